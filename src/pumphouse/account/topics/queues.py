"""A message from a topic into queues: each stores it as it would a send.

What is the same for every queue (the encoded body, MD5s, what AWS refuses of the attributes) is
worked out once, in a `Letter`.
"""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING

from pumphouse.account.fifo import FifoQueue
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.rules import check_message
from pumphouse.account.sending import is_double
from pumphouse.account.settings import QueueSettings
from pumphouse.account.topics.store import KNOWN_QUEUES
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import attributes_size, md5_of_attributes
from pumphouse.protocol.operations import Attributes, MessageAttributeValue, SendMessage

if TYPE_CHECKING:
    from pumphouse.account.account import Account

_ANY_QUEUE = QueueSettings()


class NotDeliveredError(Exception):
    """The queue is not there, or does not take the message."""


class Letter:
    """A body and its attributes, ready for any queue.

    `refusal` is why no queue takes it, or "": raw delivery takes as many attributes as a queue
    does, ten.
    """

    __slots__ = (
        "attributes",
        "body",
        "md5_of_attributes",
        "md5_of_body",
        "md5_of_system_attributes",
        "refusal",
        "size",
        "trace_header",
    )

    def __init__(self, body: str, attributes: Attributes | None, trace_header: str | None) -> None:
        data = body.encode(errors="surrogatepass")
        self.body = body
        self.attributes = attributes or None
        self.trace_header = trace_header
        self.size = len(data) + attributes_size(attributes)
        self.md5_of_body = md5(data, usedforsecurity=False).hexdigest()
        self.md5_of_attributes = md5_of_attributes(attributes)
        trace = None
        if trace_header:
            trace = {"AWSTraceHeader": MessageAttributeValue("String", trace_header)}
        self.md5_of_system_attributes = md5_of_attributes(trace)
        self.refusal = "" if body else "it is empty"
        try:
            request = SendMessage("", body, None, self.attributes, trace)
            check_message(_ANY_QUEUE, request, data, 0)  # its size is each queue's own to look at
        except ServiceError as error:
            self.refusal = error.message


def put(
    account: Account, arn: str, letter: Letter, group_id: str | None, deduplication_id: str | None
) -> None:
    """Store a letter in the queue of an ARN. Raises `NotDeliveredError`.

    `deduplication_id` is what every message of a FIFO topic has, and none of a standard one.
    """
    queue = _queue(account, arn)
    if letter.refusal:
        raise NotDeliveredError(f"the queue refuses the message: {letter.refusal}")
    settings = queue.settings
    if letter.size > settings.maximum_message_size:
        raise NotDeliveredError(
            "the queue refuses the message: Message must be shorter than "
            f"{settings.maximum_message_size} bytes"
        )
    clock = account.clock
    now = clock.monotonic()
    message = Message(
        account.next_message_id(),
        letter.body,
        letter.md5_of_body,
        queue.name.account_id,
        clock.now(),
        now,
        letter.attributes,
        letter.md5_of_attributes,
        letter.trace_header,
        letter.md5_of_system_attributes,
        # a FIFO topic tells the group to FIFO queues alone, a standard one to fair queues
        group_id if queue.is_fifo or deduplication_id is None else None,
    )
    if isinstance(queue, FifoQueue) and is_double(account, queue, message, deduplication_id or ""):
        return
    queue.settle(now)
    queue.add(message, now, settings.delay_seconds)
    if queue.parking.occupied:
        queue.wake()


def _queue(account: Account, arn: str) -> Queue:
    known = account.topics.known_queues
    queue = known.get(arn)
    if queue is None or queue.deleted:
        known.pop(arn, None)
        queue = account.find(arn)
        if queue is None:
            raise NotDeliveredError(f"there is no queue {arn}")
        if len(known) >= KNOWN_QUEUES:
            known.clear()  # queues that are gone are in it as well
        known[arn] = queue
    return queue
