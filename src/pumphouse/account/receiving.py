"""`ReceiveMessage`: what AWS refuses, the long poll, and what of a message is handed out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    MAX_VISIBILITY_SECONDS,
    MAX_WAIT_SECONDS,
    md5_of_attributes,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    Operation,
    ReceivedMessage,
    ReceiveMessage,
    ReceiveMessageResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope


def receive_message(
    scope: Scope, operation: ReceiveMessage
) -> ReceiveMessageResult | Coroutine[Any, Any, ReceiveMessageResult]:
    """The answer; where there is none yet and time to wait, the waiting for it."""
    queue = scope.queue(operation.queue_url)
    limit = operation.max_number_of_messages
    if limit is None:
        limit = 1
    elif not 1 <= limit <= 10:
        raise _invalid("MaxNumberOfMessages", limit, "Must be between 1 and 10, if provided.")
    visibility = operation.visibility_timeout
    if visibility is not None and not 0 <= visibility <= MAX_VISIBILITY_SECONDS:
        raise _invalid(
            "VisibilityTimeout",
            visibility,
            f"Must be >= 0 and <= {MAX_VISIBILITY_SECONDS}, if provided.",
        )
    wait = operation.wait_time_seconds
    if wait is None:
        wait = queue.settings.wait_time_seconds
    elif not 0 <= wait <= MAX_WAIT_SECONDS:
        raise _invalid(
            "WaitTimeSeconds", wait, f"Must be >= 0 and <= {MAX_WAIT_SECONDS}, if provided."
        )
    writers = _writers(
        tuple(operation.attribute_names or ())
        + tuple(operation.message_system_attribute_names or ())
    )
    now = scope.clock.monotonic()
    queue.settle(now)
    result = _take(queue, operation, limit, writers, now)
    if result.messages or not wait:
        if queue.parking.occupied:
            queue.wake()
        return result
    return _wait(queue, operation, limit, writers, now + wait)


async def _wait(
    queue: Queue, operation: ReceiveMessage, limit: int, writers: Writers, deadline: float
) -> ReceiveMessageResult:
    ticket = queue.parking.enter(deadline)
    try:
        while True:
            await queue.parking.wait(ticket)
            if queue.deleted:
                raise fault("QueueDoesNotExist")
            now = queue.clock.monotonic()
            queue.settle(now)
            result = _take(queue, operation, limit, writers, now)
            if result.messages or ticket.expired:
                return result
    finally:
        queue.parking.leave(ticket)
        if queue.parking.occupied:
            queue.wake()


def _take(
    queue: Queue, operation: ReceiveMessage, limit: int, writers: Writers, now: float
) -> ReceiveMessageResult:
    if not queue.has_next():
        return ReceiveMessageResult([])
    visibility = operation.visibility_timeout
    if visibility is None:
        visibility = queue.settings.visibility_timeout_seconds
    names = operation.message_attribute_names
    return ReceiveMessageResult(
        [
            _hand_out(queue, message, writers, names)
            for message in queue.take(limit, visibility, now)
        ]
    )


def _hand_out(
    queue: Queue, message: Message, writers: Writers, names: list[str] | None
) -> ReceivedMessage:
    attributes = {}
    for name, write in writers:
        value = write(message)
        if value is not None:
            attributes[name] = value
    wanted = md5 = None
    if names and message.attributes:
        wanted = {
            name: value for name, value in message.attributes.items() if _is_wanted(name, names)
        }
        if len(wanted) == len(message.attributes):
            md5 = message.md5_of_attributes
        else:
            md5 = md5_of_attributes(wanted)
    return ReceivedMessage(
        message.message_id,
        queue.handle_of(message),
        message.md5_of_body,
        message.body,
        attributes,
        md5,
        wanted or None,
    )


def _is_wanted(name: str, patterns: list[str]) -> bool:
    return any(
        pattern in ("All", "*", ".*")
        or pattern == name
        or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in patterns
    )


# --- system attributes --------------------------------------------------------------------------

Writers = tuple[tuple[str, Callable[[Message], str | None]], ...]

_SYSTEM_ATTRIBUTES: dict[str, Callable[[Message], str | None]] = {
    "SenderId": lambda message: message.sender_id,
    "SentTimestamp": lambda message: str(int(message.sent_at * 1000)),
    "ApproximateReceiveCount": lambda message: str(message.receive_count),
    "ApproximateFirstReceiveTimestamp": lambda message: str(int(message.first_received_at * 1000)),
    "MessageGroupId": lambda message: message.group_id,
    "MessageDeduplicationId": lambda message: message.deduplication_id,
    "SequenceNumber": lambda message: message.sequence_number,
    "AWSTraceHeader": lambda message: message.trace_header,
    "DeadLetterQueueSourceArn": lambda message: message.source_arn,
}


@lru_cache(maxsize=256)
def _writers(names: tuple[str, ...]) -> Writers:
    if "All" in names:
        return tuple(_SYSTEM_ATTRIBUTES.items())
    for name in names:
        if name not in _SYSTEM_ATTRIBUTES:
            raise fault("InvalidAttributeName", f"Unknown Attribute {name}.")
    return tuple((name, write) for name, write in _SYSTEM_ATTRIBUTES.items() if name in names)


def _invalid(parameter: str, value: object, reason: str) -> ServiceError:
    return fault(
        "InvalidParameterValue",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    ReceiveMessage: receive_message,
}
"""The handler of each operation: it takes the scope and the operation."""
