"""What becomes of a message that was received too often.

A message goes to the dead-letter queue at the receive that would be one too many, as on AWS. On a
standard queue it keeps the time it was sent at, so its retention goes on; on a FIFO queue both
start anew.
"""

from __future__ import annotations

from pumphouse.account.message import Message
from pumphouse.account.queue import Queue


def move_to_dead_letters(
    source: Queue, message: Message, target: Queue, now: float, sequence_number: str
) -> None:
    """Take a message out of its queue and store it in its dead-letter queue."""
    source.remove(message)
    dead = Message(
        message.message_id,
        message.body,
        message.md5_of_body,
        message.sender_id,
        message.sent_at,
        message.stored,
        message.attributes,
        message.md5_of_attributes,
        message.trace_header,
        message.md5_of_system_attributes,
        message.group_id,
        message.deduplication_id,
        source_arn=source.arn,
        received_before=message.received_before + message.receive_count,
        first_received_at=message.first_received_at,
    )
    if target.is_fifo:
        dead.sequence_number = sequence_number
        dead.sent_at = target.clock.now()
        dead.stored = now
    target.settle(now)
    target.add(dead, now)
    if target.parking.occupied:
        target.wake()
