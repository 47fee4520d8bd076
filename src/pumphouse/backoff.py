"""How long to wait before trying again: exponential growth, full jitter, and a cap."""

from __future__ import annotations

import random

_shared = random.Random()


def full_jitter(
    attempt: int,
    *,
    base_seconds: float = 0.1,
    cap_seconds: float = 20.0,
    rng: random.Random | None = None,
) -> float:
    """A delay in seconds, drawn evenly between 0 and `base * 2**(attempt-1)`, at most the cap.

    `attempt` is the number of the attempt that failed, from 1.
    """
    ceiling = min(cap_seconds, base_seconds * 2.0 ** min(max(attempt, 1) - 1, 62))
    return (rng or _shared).uniform(0.0, ceiling)
