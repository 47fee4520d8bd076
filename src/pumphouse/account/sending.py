"""`SendMessage` and `SendMessageBatch`: from a request to a stored message.

A fault of one message is AWS's error for the request when it was sent alone, and the entry's when
it came in a batch; what a FIFO queue must be told is the whole request's in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5
from typing import TYPE_CHECKING, Any, cast

from pumphouse.account.batches import check_batch, failed_entry, no_value
from pumphouse.account.deduplication import content_id
from pumphouse.account.fifo import FifoQueue
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.rules import TRACE_HEADER, Request, check_fifo, check_message
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    MAX_MESSAGE_BYTES,
    attributes_size,
    md5_of_attributes,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    Operation,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Account, Scope


def send_message(scope: Scope, operation: SendMessage) -> SendMessageResult:
    queue = scope.queue(operation.queue_url)
    if not operation.message_body:
        raise fault("MissingParameter", "The request must contain the parameter MessageBody.")
    settings = queue.settings
    if settings.fifo:
        check_fifo(settings, operation, "MissingParameter")
    body = _encoded(operation)
    check_message(settings, operation, body, _size(operation, body))
    now = scope.clock.monotonic()
    message = _composed(scope, operation, body, now, scope.clock.now())
    queue.settle(now)
    _store(scope, queue, message, operation, body)
    if queue.parking.occupied:
        queue.wake()
    return SendMessageResult(
        message.md5_of_body,
        message.message_id,
        message.md5_of_attributes,
        message.md5_of_system_attributes,
        message.sequence_number,
    )


def send_message_batch(scope: Scope, operation: SendMessageBatch) -> SendMessageBatchResult:
    queue = scope.queue(operation.queue_url)
    entries = operation.entries
    check_batch(entries, "SendMessageBatchRequestEntry")
    settings = queue.settings
    if settings.fifo:
        for entry in entries:
            check_fifo(settings, entry, "InvalidParameterValue")
    bodies = [_encoded(entry) for entry in entries]
    sizes = [_size(entry, body) for entry, body in zip(entries, bodies, strict=True)]
    if sum(sizes) > MAX_MESSAGE_BYTES:
        raise fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. "
            f"You have sent {sum(sizes)} bytes.",
        )
    now, sent_at = scope.clock.monotonic(), scope.clock.now()
    taken: list[tuple[Message, SendMessageBatchRequestEntry, bytes]] = []
    failed: list[BatchResultErrorEntry] = []
    for number, (entry, body, size) in enumerate(zip(entries, bodies, sizes, strict=True), 1):
        try:
            if not body:
                raise no_value(f"SendMessageBatchRequestEntry.{number}.MessageBody")
            check_message(settings, entry, body, size)
        except ServiceError as error:
            failed.append(failed_entry(entry.id, error))
        else:
            taken.append((_composed(scope, entry, body, now, sent_at), entry, body))
    queue.settle(now)
    successful: list[SendMessageBatchResultEntry] = []
    for message, entry, body in taken:
        _store(scope, queue, message, entry, body)
        successful.append(
            SendMessageBatchResultEntry(
                entry.id,
                message.message_id,
                message.md5_of_body,
                message.md5_of_attributes,
                message.md5_of_system_attributes,
                message.sequence_number,
            )
        )
    if queue.parking.occupied:
        queue.wake()
    return SendMessageBatchResult(successful, failed)


def _encoded(request: Request) -> bytes:
    # a lone surrogate is refused, after it was counted
    return request.message_body.encode(errors="surrogatepass")


def _size(request: Request, body: bytes) -> int:
    attributes = request.message_attributes
    return len(body) + attributes_size(attributes) if attributes else len(body)


def _composed(scope: Scope, request: Request, body: bytes, now: float, sent_at: float) -> Message:
    """The message of a request that was checked."""
    attributes = request.message_attributes
    message = Message(
        scope.account.next_message_id(),
        request.message_body,
        md5(body, usedforsecurity=False).hexdigest(),
        scope.account_id,
        sent_at,
        now,
        attributes,
        md5_of_attributes(attributes) if attributes else None,
        None,
        None,
        request.message_group_id,
    )
    if request.message_system_attributes:
        message.trace_header = request.message_system_attributes[TRACE_HEADER].string_value
        message.md5_of_system_attributes = md5_of_attributes(request.message_system_attributes)
    return message


def _store(scope: Scope, queue: Queue, message: Message, request: Request, body: bytes) -> None:
    """Store a message. A double is not stored; it gets the ids of the first."""
    delay = request.delay_seconds
    if queue.is_fifo:
        deduplication_id = request.message_deduplication_id or content_id(body)
        if is_double(scope.account, cast(FifoQueue, queue), message, deduplication_id):
            return
        delay = None  # a FIFO queue's own delay holds, also where the request says 0
    queue.add(message, message.stored, queue.settings.delay_seconds if delay is None else delay)


def is_double(account: Account, queue: FifoQueue, message: Message, deduplication_id: str) -> bool:
    """Whether a FIFO queue has had a message before: then it gets the first's ids, and otherwise a
    sequence number."""
    group_id, now = message.group_id or "", message.stored
    first = queue.deduplication.lookup(group_id, deduplication_id, now)
    if first is not None:
        message.message_id, message.sequence_number = first
        return True
    message.deduplication_id = deduplication_id
    message.sequence_number = sequence = account.next_sequence_number()
    queue.deduplication.remember(group_id, deduplication_id, message.message_id, sequence, now)
    return False


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    SendMessage: send_message,
    SendMessageBatch: send_message_batch,
}
"""The handler of each operation: it takes the scope and the operation."""
