"""The values that users hold: frozen, and free of any connection to where they came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """SQS's word that a message is stored.

    `sequence_number` is set on FIFO queues only: 20 digits that grow within a group.
    `deduplication_id` is the one that was sent, where one was.
    """

    message_id: str
    queue_url: str
    sequence_number: str | None = None
    deduplication_id: str | None = None
