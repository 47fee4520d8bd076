"""When a batch is handed to its handler: by its size, or by the time that it gathered.

Plain code. Which messages go into it is said by `lanes.py`, what its outcomes mean by `exits.py`,
and by `behind_failures` below where nothing is held until it can go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.judging import Stopped
from pumphouse.subscriber.outcomes import Ack, Drop, Outcome, Reject


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


def behind_failures(
    deliveries: Sequence[Delivery], outcomes: Sequence[Outcome | Stopped]
) -> list[bool]:
    """For each delivery of a batch, whether one before it in its lane was not done.

    Such a one is never deleted: its group goes on at the message that failed, and everything
    behind that comes again.
    """
    failed: set[str] = set()
    behind: list[bool] = []
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        key = delivery.key
        behind.append(key is not None and key in failed)
        if key is not None and not isinstance(outcome, Ack | Drop | Reject):
            failed.add(key)
    return behind
