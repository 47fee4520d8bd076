"""What handlers are given beside the payload: markers, state, overrides, and the plan of a call."""
