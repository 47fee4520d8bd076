"""Looking at the messages of a queue without receiving them, which SQS itself can't do."""

from __future__ import annotations

from itertools import islice

from pumphouse.account.message import VISIBLE
from pumphouse.account.queue import Queue
from pumphouse.account.receiving import described
from pumphouse.protocol.operations import ReceivedMessage


def look(queue: Queue, number: int) -> list[ReceivedMessage]:
    """The first messages that are visible now, oldest first, as a receive would describe them, but
    without a receipt handle. Nothing about them changes."""
    queue.settle(queue.clock.monotonic())
    visible = (message for message in queue.messages.values() if message.state == VISIBLE)
    return [described(message) for message in islice(visible, number)]
