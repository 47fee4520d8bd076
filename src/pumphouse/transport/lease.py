"""A lease: a message in a worker's hands, for a time. And the durations that leases are made of."""

from __future__ import annotations

from datetime import timedelta
from math import ceil, isfinite
from typing import Generic, TypeVar

from pumphouse.clock import Clock
from pumphouse.content import decode
from pumphouse.errors import LeaseLostError, UsageError
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.transport.codecs import Codec
from pumphouse.transport.pieces import Held, State

E = TypeVar("E")

_UNREAD = object()

Duration = float | timedelta
"""Seconds, or a timedelta."""


def whole_seconds(value: Duration, what: str, limit: int = MAX_VISIBILITY_SECONDS) -> int:
    """A duration in the whole seconds that SQS counts in, rounded up.

    Raises `UsageError` for what is no duration, and for one outside 0 to `limit` (12 hours).
    """
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not isfinite(seconds):
        raise UsageError(f"{what} is {value!r}; it is a number of seconds or a timedelta")
    if not 0 <= seconds <= limit:
        raise UsageError(f"{what} is {seconds:g} seconds; SQS takes 0 to {limit}")
    return ceil(seconds)


class Lease(Generic[E]):
    """A message that one worker has until `deadline`, unless it extends, acks or nacks it first.

    `event` is decoded when it is first read, so a body that can't be decoded raises there
    (`UndecodableError`), in the worker's hands, and can still be nacked or acked. `token` is the
    receipt handle and changes with every delivery. `receive_count` is AWS's
    `ApproximateReceiveCount`: 1 for the first delivery.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_codec",
        "_event",
        "_held",
        "deduplication_id",
        "group_id",
        "message_id",
        "queue_url",
        "receive_count",
        "sequence_number",
        "token",
        "worker_id",
    )

    def __init__(
        self, held: Held, worker_id: str, codec: Codec[E], clock: Clock, queue_url: str
    ) -> None:
        message = held.message
        self.queue_url = queue_url
        self.group_id = held.group_id
        self.token = message.receipt_handle
        self.message_id = message.message_id
        self.receive_count = int(message.attributes.get("ApproximateReceiveCount", "1"))
        self.sequence_number = message.attributes.get("SequenceNumber", "")
        self.deduplication_id = message.attributes.get("MessageDeduplicationId", "")
        self.worker_id = worker_id
        self._held = held
        self._codec = codec
        self._clock = clock
        self._event: object = _UNREAD

    @property
    def body(self) -> bytes:
        """The body as it was published, before the codec. Raises `UndecodableError` for one that
        is marked as base64 and is not."""
        return decode(self._held.message.body, self._held.message.message_attributes)

    @property
    def event(self) -> E:
        """The event, decoded by the transport's codec; its errors come from here."""
        if self._event is _UNREAD:
            self._event = self._codec.decode(self.body)
        return self._event  # type: ignore[return-value]

    @property
    def deadline(self) -> float:
        """When the lease ends, as the transport's clock counts (`clock.monotonic()`): SQS holds it
        until then at least. It moves when the lease is extended, by you or by the transport."""
        return self._held.deadline

    @property
    def remaining_seconds(self) -> float:
        """How long the lease still lasts; 0 when it is over or settled."""
        if self._held.state is State.GONE:
            return 0.0
        return max(0.0, self._held.deadline - self._clock.monotonic())

    @property
    def lost(self) -> bool:
        """Whether the lease is known to have ended unsettled: its time is up, SQS said so, or the
        group was handed out again. The message is, or will be, with someone else: stop."""
        held = self._held
        expired = held.state is State.OUT and held.deadline <= self._clock.monotonic()
        return held.lost or expired

    @property
    def settled(self) -> bool:
        """Whether an ack or a nack of this lease was confirmed."""
        return self._held.state is State.GONE and not self._held.lost

    @property
    def over(self) -> bool:
        """Whether the lease is settled or lost."""
        return self.lost or self._held.state is State.GONE

    @property
    def in_hand(self) -> bool:
        """Whether the lease can be acted on: it is not lost, nor settled, nor being settled."""
        return self._held.state is State.OUT and not self.lost

    def held(self) -> Held:
        """What the transport knows of the lease, if it can still be acted on.

        Raises `LeaseLostError` for a lease that is lost, settled, or being settled.
        """
        if self.lost:
            raise LeaseLostError(
                f"the lease on message {self.message_id} of group {self.group_id!r} has ended; "
                "the message is, or will be, delivered again"
            )
        if self._held.state is not State.OUT:
            raise LeaseLostError(
                f"message {self.message_id} of group {self.group_id!r} was acked or nacked before"
            )
        return self._held

    def __repr__(self) -> str:
        state = "lost" if self.lost else "settled" if self.settled else "held"
        return (
            f"<Lease {state}: message {self.message_id} of group {self.group_id!r}, "
            f"{self.remaining_seconds:.1f}s left>"
        )
