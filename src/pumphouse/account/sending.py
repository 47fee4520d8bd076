"""`SendMessage` and `SendMessageBatch`: what AWS refuses about a message, and storing it.

A fault of one message is AWS's error for the request when it was sent alone, and the entry's when
it came in a batch; a few faults of FIFO parameters are the whole request's in both cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumphouse.account.batches import check_batch, failed_entry
from pumphouse.account.deduplication import content_id
from pumphouse.account.fifo import FifoQueue
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    MAX_DELAY_SECONDS,
    MAX_MESSAGE_BYTES,
    attributes_size,
    forbidden_character,
    is_token,
    md5_of_attributes,
    md5_of_body,
    text_size,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

Request = SendMessage | SendMessageBatchRequestEntry

TRACE_HEADER = "AWSTraceHeader"


def send_message(scope: Scope, operation: SendMessage) -> SendMessageResult:
    queue = scope.queue(operation.queue_url)
    now = scope.clock.monotonic()
    if queue.is_fifo:
        _check_fifo(queue, operation, "MissingParameter")
    _check(queue, operation)
    message = _store(scope, queue, operation, now)
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
    check_batch(entries)
    size = 0
    for entry in entries:
        size += text_size(entry.message_body)
        if entry.message_attributes is not None:
            size += attributes_size(entry.message_attributes)
    if size > MAX_MESSAGE_BYTES:
        raise fault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. "
            f"You have sent {size} bytes.",
        )
    if queue.is_fifo:
        for entry in entries:
            _check_fifo(queue, entry, "InvalidParameterValue")
    now = scope.clock.monotonic()
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []
    for entry in entries:
        try:
            _check(queue, entry)
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


def _check_fifo(queue: Queue, request: Request, missing: str) -> None:
    if not request.message_group_id:
        raise fault(missing, "The request must contain the parameter MessageGroupId.")
    if request.message_deduplication_id is None and not queue.settings.content_based_deduplication:
        raise fault(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )


def _check(queue: Queue, request: Request) -> None:
    body = request.message_body
    if not body:
        raise fault("MissingParameter", "The request must contain the parameter MessageBody.")
    size = text_size(body)
    if request.message_attributes is not None:
        size += attributes_size(request.message_attributes)
    if size > queue.settings.maximum_message_size:
        raise fault(
            "InvalidParameterValue",
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{queue.settings.maximum_message_size} bytes.",
        )
    if forbidden_character(body) is not None:
        raise fault(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    delay = request.delay_seconds
    if delay is not None and not 0 <= delay <= MAX_DELAY_SECONDS:
        raise _invalid(
            "DelaySeconds", delay, f"DelaySeconds must be >= 0 and <= {MAX_DELAY_SECONDS}."
        )
    group_id = request.message_group_id
    if group_id is not None and not is_token(group_id):
        raise _invalid(
            "MessageGroupId",
            group_id,
            "MessageGroupId can only include alphanumeric and punctuation characters. "
            "1 to 128 in length.",
        )
    deduplication_id = request.message_deduplication_id
    if queue.is_fifo:
        if delay:
            raise _invalid(
                "DelaySeconds",
                delay,
                "The request include parameter that is not valid for this queue type.",
            )
        if deduplication_id is not None and not is_token(deduplication_id):
            raise _invalid(
                "MessageDeduplicationId",
                deduplication_id,
                "MessageDeduplicationId can only include alphanumeric and punctuation "
                "characters. 1 to 128 in length.",
            )
    elif deduplication_id is not None:
        raise _invalid(
            "MessageDeduplicationId",
            deduplication_id,
            "The request includes a parameter that is not valid for this queue type.",
        )


def _invalid(parameter: str, value: object, reason: str) -> ServiceError:
    return fault(
        "InvalidParameterValue",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


def _store(scope: Scope, queue: Queue, request: Request, now: float) -> Message:
    """Store a message that was checked. A double is not stored; the value has the first's ids."""
    body = request.message_body
    attributes = request.message_attributes
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
    if request.message_system_attributes:
        message.trace_header = request.message_system_attributes[TRACE_HEADER].string_value
        message.md5_of_system_attributes = md5_of_attributes(request.message_system_attributes)
    delay: float | None = request.delay_seconds
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
        delay = None
    queue.add(message, now, queue.settings.delay_seconds if delay is None else delay)
    return message
