"""`DeleteMessage` and `ChangeMessageVisibility`, alone and in batches: what handles may do.

A standard queue deletes by any handle that a message ever had. A FIFO queue takes the handle of the
latest receive only, and only while that lease lasts. Deleting what is gone already is no fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pumphouse.account.batches import check_batch, failed_entry
from pumphouse.account.message import IN_FLIGHT
from pumphouse.account.queue import Queue
from pumphouse.errors import ReceiptHandleExpired, ServiceError
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    DONE,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchResult,
    ChangeMessageVisibilityBatchResultEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchResult,
    DeleteMessageBatchResultEntry,
    Done,
    Operation,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope


def delete_message(scope: Scope, operation: DeleteMessage) -> Done:
    queue = scope.queue(operation.queue_url)
    queue.settle(scope.clock.monotonic())
    _delete(queue, operation.receipt_handle)
    if queue.parking.occupied:
        queue.wake()
    return DONE


def delete_message_batch(scope: Scope, operation: DeleteMessageBatch) -> DeleteMessageBatchResult:
    queue = scope.queue(operation.queue_url)
    check_batch(operation.entries, "DeleteMessageBatchRequestEntry")
    queue.settle(scope.clock.monotonic())
    result = DeleteMessageBatchResult([], [])
    for entry in operation.entries:
        try:
            _delete(queue, entry.receipt_handle)
        except ServiceError as error:
            result.failed.append(failed_entry(entry.id, error))
        else:
            result.successful.append(DeleteMessageBatchResultEntry(entry.id))
    if queue.parking.occupied:
        queue.wake()
    return result


def change_message_visibility(scope: Scope, operation: ChangeMessageVisibility) -> Done:
    queue = scope.queue(operation.queue_url)
    now = scope.clock.monotonic()
    queue.settle(now)
    _change_visibility(queue, operation.receipt_handle, operation.visibility_timeout, now)
    if queue.parking.occupied:
        queue.wake()
    return DONE


def change_message_visibility_batch(
    scope: Scope, operation: ChangeMessageVisibilityBatch
) -> ChangeMessageVisibilityBatchResult:
    queue = scope.queue(operation.queue_url)
    check_batch(operation.entries, "ChangeMessageVisibilityBatchRequestEntry")
    now = scope.clock.monotonic()
    queue.settle(now)
    result = ChangeMessageVisibilityBatchResult([], [])
    for entry in operation.entries:
        try:
            _change_visibility(queue, entry.receipt_handle, entry.visibility_timeout, now)
        except ServiceError as error:
            result.failed.append(failed_entry(entry.id, error))
        else:
            result.successful.append(ChangeMessageVisibilityBatchResultEntry(entry.id))
    if queue.parking.occupied:
        queue.wake()
    return result


def _delete(queue: Queue, handle: str) -> None:
    found = queue.find(handle)
    if found is None:
        raise _not_a_handle(handle)
    message, is_latest = found
    if queue.expired_handles and handle in queue.expired_handles:
        raise _expired(handle)
    if message is None:
        return
    if queue.is_fifo and not (is_latest and message.state is IN_FLIGHT):
        raise _expired(handle)
    queue.remove(message)


def _change_visibility(queue: Queue, handle: str, seconds: int | None, now: float) -> None:
    if seconds is None:
        raise fault("MissingParameter", "The request must contain the parameter VisibilityTimeout.")
    if not 0 <= seconds <= MAX_VISIBILITY_SECONDS:
        raise fault(
            "InvalidParameterValue",
            f"Value {seconds} for parameter VisibilityTimeout is invalid. "
            f"Reason: VisibilityTimeout must be an integer between 0 and {MAX_VISIBILITY_SECONDS}.",
        )
    found = queue.find(handle)
    if found is None:
        raise _not_a_handle(handle)
    message, is_latest = found
    if message is None or not is_latest:
        raise fault(
            "InvalidParameterValue",
            f"Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not "
            "exist or is not available for visibility timeout change.",
        )
    if message.state is not IN_FLIGHT:
        raise fault("MessageNotInflight", "The specified message isn't in flight.")
    if now + seconds > message.received + MAX_VISIBILITY_SECONDS:
        raise fault(
            "InvalidParameterValue",
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total "
            f"VisibilityTimeout for the message is beyond the limit [{MAX_VISIBILITY_SECONDS} "
            "seconds].",
        )
    queue.change_visibility(message, seconds, now)


def _not_a_handle(handle: str) -> ServiceError:
    return fault(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{handle}" is not a valid receipt handle.',
    )


def _expired(handle: str) -> ServiceError:
    return ReceiptHandleExpired(
        f"Value {handle} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired.",
        code="InvalidParameterValue",
        status=400,
        sender_fault=True,
    )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    ChangeMessageVisibility: change_message_visibility,
    ChangeMessageVisibilityBatch: change_message_visibility_batch,
    DeleteMessage: delete_message,
    DeleteMessageBatch: delete_message_batch,
}
"""The handler of each operation: it takes the scope and the operation."""
