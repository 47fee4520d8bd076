"""The values that users hold: frozen, and free of any connection to where they came from."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


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

    __slots__ = ("lost", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.lost = False


@dataclass(frozen=True, slots=True)
class Message:
    """A received message, for a handler that asks for it.

    `body` is what was sent, `headers` the message attributes it was sent with (`str`, or `bytes`
    for a Binary one). `receive_count` is SQS's count; `attempt` counts, from 1, how often the
    message was run, which is what limits and delays go by. `sent_at` and `first_received_at` are
    seconds since the epoch. `attributes` are SQS's system attributes as SQS spells them.
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

    @property
    def text(self) -> str:
        """The body as text; `UnicodeDecodeError` where it is none."""
        return self.body.decode()

    @property
    def deadline(self) -> float:
        """When the lease ends, in seconds since the epoch; it moves on while it is extended."""
        return self.lease.until

    @property
    def lease_lost(self) -> bool:
        """Whether the lease is over: the message is, or will be, with someone else."""
        return self.lease.lost
