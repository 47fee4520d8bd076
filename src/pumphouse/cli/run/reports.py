"""What a worker process and its supervisor say to each other over a socket: a JSON object a line.

A worker tells how it is, about once a second and when that changes. The supervisor tells one of
them to ask SQS what waits. A closed socket means that the other one is gone.
"""

from __future__ import annotations

import msgspec

from pumphouse.health.state import Snapshot

MAX_LINE_BYTES = 1 << 24
REPORT_SECONDS = 1.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """From a worker: `stop_seconds` is what its drain may take, `folder` where its code lives."""

    snapshot: Snapshot
    stop_seconds: float
    folder: str | None = None

    @property
    def holds_nothing(self) -> bool:
        """Whether it drains and has given back or settled all that it held."""
        queues = self.snapshot.queues.values()
        return self.snapshot.state == "draining" and not any(each.held for each in queues)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """To a worker: ask what waits, every so many seconds; 0 for never."""

    waiting_every: float = 0.0


def encode(value: Report | Order) -> bytes:
    return msgspec.json.encode(value) + b"\n"
