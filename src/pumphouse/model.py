"""The values that users hold: frozen, and free of any connection to where they came from."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import msgspec

_log = logging.getLogger("pumphouse.subscriber")

CORRELATION_HEADER = "correlation-id"
"""The header that says what a message belongs to. It is taken from a message to everything that
its handler publishes."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The service's word that a message is stored: by SQS in a queue, or by SNS for a topic.

    `queue_url` is "" for a message to a topic, and `topic_arn` is None for one to a queue.
    `sequence_number` is set on FIFO queues and topics only: 20 digits that grow within a group.
    `deduplication_id` is the one that was sent, where one was.
    """

    message_id: str
    queue_url: str
    sequence_number: str | None = None
    deduplication_id: str | None = None
    topic_arn: str | None = None


class Lease:
    """The lease of a received message, as its handler sees it: it moves while the handler runs.

    `until` is the end of the lease in seconds since the epoch, `lost` whether it is over.
    """

    __slots__ = ("_watchers", "lost", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.lost = False
        self._watchers: list[Callable[[], object]] | None = None  # most have none

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call `changed()` on the event loop whenever the lease has moved or is over; returns a
        function that stops it."""
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(changed)
        return partial(self._watchers.remove, changed)

    def move(self, until: float) -> None:
        """The lease ends at `until` now; the runtime says so."""
        self.until = until
        self._tell()

    def end(self) -> None:
        """The lease is over; the runtime says so."""
        if not self.lost:
            self.lost = True
            self._tell()

    def _tell(self) -> None:
        for changed in tuple(self._watchers or ()):
            try:
                changed()
            except Exception:
                _log.exception("a watcher of a lease failed")


@dataclass(frozen=True, slots=True)
class Message:
    """A received message, for a handler that asks for it.

    `body` is what was sent, `headers` the message attributes it was sent with (`str`, or `bytes`
    for a Binary one). `receive_count` is SQS's count; `attempt` counts, from 1, how often the
    message was run, which is what limits and delays go by. `sent_at` and `first_received_at` are
    seconds since the epoch. `attributes` are SQS's system attributes as SQS spells them.

    Messages are equal when all of that is; their leases, which move, are left aside.
    """

    message_id: str
    queue: str
    body: bytes
    headers: dict[str, str | bytes]
    group_id: str | None
    attempt: int
    receive_count: int
    sent_at: float
    first_received_at: float
    sequence_number: str | None
    deduplication_id: str | None
    attributes: dict[str, str]
    lease: Lease

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self is other or all(getattr(self, name) == getattr(other, name) for name in _VALUE)

    @property
    def text(self) -> str:
        """The body as text; `UnicodeDecodeError` where it is none."""
        return self.body.decode()

    @property
    def correlation_id(self) -> str:
        """What the message belongs to: its header `correlation-id`, or else its own id.

        Everything that its handler publishes has the same, in that header.
        """
        return correlation_of(self.headers.get(CORRELATION_HEADER), self.message_id)

    @property
    def deadline(self) -> float:
        """When the lease ends, in seconds since the epoch; it moves on while it is extended."""
        return self.lease.until

    @property
    def lease_lost(self) -> bool:
        """Whether the lease is over: the message is, or will be, with someone else."""
        return self.lease.lost


_VALUE = tuple(each.name for each in fields(Message) if each.name != "lease")


def correlation_of(header: str | bytes | None, message_id: str) -> str:
    """The correlation id of a message with such a header."""
    return header if header and isinstance(header, str) else message_id
