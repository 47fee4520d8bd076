"""The runtime of subscribers: from a declaration to messages that are received, run and settled."""
