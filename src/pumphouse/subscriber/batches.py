"""When a batch is handed to its handler: by its size, or by the time that it gathered.

Plain code. Which messages go into it is said by `lanes.py`, what its outcomes mean by `exits.py`.
"""

from __future__ import annotations


class BatchRule:
    """`size` messages, or those that came within `window_seconds`."""

    def __init__(self, size: int, window_seconds: float) -> None:
        self.size = size
        self.window_seconds = window_seconds

    def wait(self, now: float, available: int, since: float) -> float:
        """Seconds until a batch is due, 0 for now, when so many messages are there and it gathers
        since then."""
        if available >= self.size:
            return 0.0
        return max(0.0, since + self.window_seconds - now)
