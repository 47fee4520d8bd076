"""`DeleteMessage` and `ChangeMessageVisibility`, alone and in batches: what handles may do.

A standard queue deletes by any handle that a message ever had. A FIFO queue takes the handle of the
latest receive only, and only while that lease lasts. Deleting what is gone already is no fault, and
changing the visibility of it is. A change comes too late once the lease has ended: a standard queue
then does nothing and says that it is done, as AWS does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pumphouse.account.batches import check_batch, failed_entry, no_value
from pumphouse.account.message import IN_FLIGHT, Message
from pumphouse.account.queue import Queue
from pumphouse.account.rules import invalid
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.protocol.faults import fault, from_answer
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
    for number, entry in enumerate(operation.entries, 1):
        try:
            _delete(queue, entry.receipt_handle)
        except ServiceError as error:
            where = f"DeleteMessageBatchRequestEntry.{number}.ReceiptHandle"
            refusal = error if entry.receipt_handle else no_value(where)
            result.failed.append(failed_entry(entry.id, refusal))
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
    for number, entry in enumerate(operation.entries, 1):
        try:
            _change_visibility(queue, entry.receipt_handle, entry.visibility_timeout, now)
        except ServiceError as error:
            where = f"ChangeMessageVisibilityBatchRequestEntry.{number}.ReceiptHandle"
            refusal = error if entry.receipt_handle else no_value(where)
            result.failed.append(failed_entry(entry.id, refusal))
        else:
            result.successful.append(ChangeMessageVisibilityBatchResultEntry(entry.id))
    if queue.parking.occupied:
        queue.wake()
    return result


def _delete(queue: Queue, handle: str) -> None:
    message, is_latest = _find(queue, handle)
    if message is None:
        return
    if queue.is_fifo and not (is_latest and message.state is IN_FLIGHT):
        raise _expired(handle)
    queue.remove(message)


def _change_visibility(queue: Queue, handle: str, seconds: int | None, now: float) -> None:
    if seconds is None:
        raise fault("MissingParameter", "The request must contain the parameter VisibilityTimeout.")
    if not 0 <= seconds <= MAX_VISIBILITY_SECONDS:
        raise invalid(
            "VisibilityTimeout",
            seconds,
            f"VisibilityTimeout must be an integer between 0 and {MAX_VISIBILITY_SECONDS}.",
        )
    message, is_latest = _find(queue, handle)
    if message is None or (not is_latest and not queue.is_fifo):
        raise invalid(
            "ReceiptHandle",
            handle,
            "Message does not exist or is not available for visibility timeout change.",
        )
    if not is_latest:
        raise _expired(handle)
    if message.state is not IN_FLIGHT:
        if queue.is_fifo:
            raise fault("MessageNotInflight", "The specified message isn't in flight.")
        return  # AWS answers that it is done, and does nothing
    if now + seconds > message.received + MAX_VISIBILITY_SECONDS:
        raise invalid(
            "VisibilityTimeout",
            seconds,
            "Total VisibilityTimeout for the message is beyond the limit "
            f"[{MAX_VISIBILITY_SECONDS} seconds].",
        )
    queue.change_visibility(message, seconds, now)


def _find(queue: Queue, handle: str) -> tuple[Message | None, bool]:
    """The message of a handle, None when it is gone, and whether it is its latest handle."""
    if not handle:
        raise fault("MissingParameter", "The request must contain the parameter ReceiptHandle.")
    found = queue.find(handle)
    if found is None:
        raise fault(
            "ReceiptHandleIsInvalid",
            f'The input receipt handle "{handle}" is not a valid receipt handle.',
        )
    if queue.expired_handles and handle in queue.expired_handles:
        raise _expired(handle)
    return found


def _expired(handle: str) -> ServiceError:
    text = invalid("ReceiptHandle", handle, "The receipt handle has expired.").message
    return from_answer("InvalidParameterValue", text, status=400)


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    ChangeMessageVisibility: change_message_visibility,
    ChangeMessageVisibilityBatch: change_message_visibility_batch,
    DeleteMessage: delete_message,
    DeleteMessageBatch: delete_message_batch,
}
"""The handler of each operation: it takes the scope and the operation."""
