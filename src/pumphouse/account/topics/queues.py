"""A message from a topic into a queue: a send, as the queue itself would take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumphouse.account.rules import check_message
from pumphouse.account.sending import store
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import attributes_size
from pumphouse.protocol.names import parse_queue_arn
from pumphouse.protocol.operations import Attributes, MessageAttributeValue, SendMessage

if TYPE_CHECKING:
    from pumphouse.account.account import Account


class NotDeliveredError(Exception):
    """The queue is not there, or does not take the message."""


def put(
    account: Account,
    arn: str,
    body: str,
    attributes: Attributes | None,
    group_id: str | None,
    deduplication_id: str | None,
    trace_header: str | None,
) -> None:
    """Store a message in the queue of an ARN. Raises `NotDeliveredError`.

    Raw delivery takes as many attributes as a queue does, ten; a message of more is not delivered.
    """
    queue = account.find(arn)
    if queue is None:
        raise NotDeliveredError(f"there is no queue {arn}")
    fifo = queue.is_fifo
    trace = (
        {"AWSTraceHeader": MessageAttributeValue("String", trace_header)} if trace_header else None
    )
    # A standard queue is told the group as well (fair queues), and deduplicates nothing.
    request = SendMessage(
        queue.url,
        body,
        None,
        attributes or None,
        trace,
        deduplication_id if fifo else None,
        group_id,
    )
    data = body.encode(errors="surrogatepass")
    try:
        check_message(queue.settings, request, data, len(data) + attributes_size(attributes))
    except ServiceError as error:
        raise NotDeliveredError(f"the queue refuses the message: {error.message}") from None
    name = parse_queue_arn(arn)
    home = account.within(region=name.region, account_id=name.account_id)
    clock = account.clock
    store(home, queue, request, data, clock.monotonic(), clock.now())
    if queue.parking.occupied:
        queue.wake()
