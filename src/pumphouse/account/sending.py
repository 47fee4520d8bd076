"""`SendMessage` and `SendMessageBatch`: from a request to a stored message.

A fault of one message is AWS's error for the request when it was sent alone, and the entry's when
it came in a batch; what a FIFO queue must be told is the whole request's in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pumphouse.account.batches import check_batch, failed_entry
from pumphouse.account.deduplication import content_id
from pumphouse.account.fifo import FifoQueue
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.rules import TRACE_HEADER, Request, check_fifo, check_message
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    MAX_MESSAGE_BYTES,
    md5_of_attributes,
    md5_of_body,
    message_size,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    Operation,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope


def send_message(scope: Scope, operation: SendMessage) -> SendMessageResult:
    queue = scope.queue(operation.queue_url)
    if not operation.message_body:
        raise fault("MissingParameter", "The request must contain the parameter MessageBody.")
    settings = queue.settings
    if settings.fifo:
        check_fifo(settings, operation, "MissingParameter")
    size = message_size(operation.message_body, operation.message_attributes)
    check_message(settings, operation, size)
    message = _store(scope, queue, operation, scope.clock.monotonic())
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
    sizes = [message_size(entry.message_body, entry.message_attributes) for entry in entries]
    if sum(sizes) > MAX_MESSAGE_BYTES:
        raise fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. "
            f"You have sent {sum(sizes)} bytes.",
        )
    now = scope.clock.monotonic()
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for number, entry in enumerate(entries):
        try:
            if not entry.message_body:
                raise fault(
                    "EmptyValue",
                    f"No Value Found for SendMessageBatchRequestEntry.{number + 1}.MessageBody.",
                )
            check_message(settings, entry, sizes[number])
        except ServiceError as error:
            failed.append(failed_entry(entry.id, error))
            continue
        message = _store(scope, queue, entry, now)
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


def _store(scope: Scope, queue: Queue, request: Request, now: float) -> Message:
    """Store a message that was checked. A double is not stored; the value has the first's ids."""
    body = request.message_body
    attributes = request.message_attributes
    system_attributes = request.message_system_attributes
    message = Message(
        scope.next_message_id(),
        body,
        md5_of_body(body),
        scope.account_id,
        scope.clock.now(),
        now,
        attributes,
        md5_of_attributes(attributes) if attributes else None,
        group_id=request.message_group_id,
    )
    if system_attributes:
        message.trace_header = system_attributes[TRACE_HEADER].string_value
        message.md5_of_system_attributes = md5_of_attributes(system_attributes)
    if isinstance(queue, FifoQueue):
        group_id = request.message_group_id or ""
        deduplication_id = request.message_deduplication_id or content_id(body)
        first = queue.deduplication.lookup(group_id, deduplication_id, now)
        if first is not None:
            message.message_id, message.sequence_number = first
            return message
        message.deduplication_id = deduplication_id
        message.sequence_number = sequence = scope.next_sequence_number()
        queue.deduplication.remember(group_id, deduplication_id, message.message_id, sequence, now)
        delay: int | None = None  # a FIFO queue's own delay holds, also where the request says 0
    else:
        delay = request.delay_seconds
    queue.add(message, now, queue.settings.delay_seconds if delay is None else delay)
    return message


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    SendMessage: send_message,
    SendMessageBatch: send_message_batch,
}
"""The handler of each operation: it takes the scope and the operation."""
