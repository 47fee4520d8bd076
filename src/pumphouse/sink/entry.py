"""What a sink schedules: `Entry`, where an entry can be, and the `Limits` that it moves within."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from pumphouse.errors import PumphouseError
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES

# where an entry is
NEW, PARKED, HELD, WAITING, LATER, SENT, DONE = range(7)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large batches are, how long they fill, and how much may wait. Bytes are counted as SQS
    counts them: body and attributes."""

    batch_max_entries: int = MAX_BATCH_ENTRIES
    batch_max_bytes: int = 262_144
    batch_linger: float = 0.02
    batch_max_inflight: int = 8
    batch_queue_max: int = 4_096
    batch_queue_max_bytes: int = 134_217_728
    batch_queue_tenant_max: int = 1_024


class Entry(msgspec.Struct, eq=False):
    """One message on its way: what is scheduled, sent and settled.

    A base class: what is in the message is for `outgoing.py` to add. `done` is what the caller
    waits on, and `error` what the latest try brought (both opaque here); `tries` counts the
    requests that carried it; `first_unknown` is when the first one without an answer began,
    by the monotonic clock and by the time of day. What is `held` is let in and keeps its place, and
    is sent when it is ready: the value is what is to be done (`batcher.py`), None when it is ready.
    """

    done: Any
    size: int
    tenant: str
    lane: str
    state: int = NEW
    arrived: float = 0.0
    tries: int = 0
    first_try: float = 0.0
    first_unknown: tuple[float, float] | None = None
    held: Any = None
    error: PumphouseError | None = None
    alone: bool = False

    def __repr__(self) -> str:
        state = ("new", "parked", "held", "waiting", "later", "sent", "done")[self.state]
        return f"Entry({state}, lane={self.lane!r}, {self.size} bytes, tries={self.tries})"


E = TypeVar("E", bound=Entry)
