"""`ReceiveMessage`: what AWS refuses, the long poll, and what of a message is handed out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pumphouse.account.fifo import FifoQueue
from pumphouse.account.message import Message
from pumphouse.account.queue import MAX_IN_FLIGHT, Queue
from pumphouse.account.rules import check_token, invalid
from pumphouse.account.settings import check_asked
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

MAX_MESSAGES = 10
_LIMITS = range(1, MAX_MESSAGES + 1)


def receive_message(
    scope: Scope, operation: ReceiveMessage
) -> ReceiveMessageResult | Coroutine[Any, Any, ReceiveMessageResult]:
    """The answer; where there is none yet and time to wait, the waiting for it."""
    queue = scope.queue(operation.queue_url)
    _check(operation)
    writers = _writers(
        tuple(operation.attribute_names or ()),
        tuple(operation.message_system_attribute_names or ()),
    )
    wait = operation.wait_time_seconds
    if wait is None:
        wait = queue.settings.wait_time_seconds
    now = scope.clock.monotonic()
    queue.settle(now)
    if not wait and not queue.is_fifo and queue.in_flight >= MAX_IN_FLIGHT:
        raise fault("OverLimit", f"Too many messages in flight: the limit is {MAX_IN_FLIGHT}.")
    messages = _take(queue, operation, writers, now)
    if wait and not messages:
        return _wait(queue, operation, writers, now + wait)
    if queue.parking.occupied:
        queue.wake()
    return ReceiveMessageResult(messages)


async def _wait(
    queue: Queue, operation: ReceiveMessage, writers: Writers, deadline: float
) -> ReceiveMessageResult:
    parking = queue.parking
    ticket = parking.enter(deadline)
    try:
        while True:
            await parking.wait(ticket)
            if queue.deleted:
                raise fault("QueueDoesNotExist")
            now = queue.clock.monotonic()
            queue.settle(now)
            messages = _take(queue, operation, writers, now)
            if messages or ticket.expired:
                return ReceiveMessageResult(messages)
    finally:
        parking.leave(ticket)
        if parking.occupied:
            queue.wake()


def _check(operation: ReceiveMessage) -> None:
    limit = operation.max_number_of_messages
    if limit is not None and limit not in _LIMITS:
        raise invalid(
            "MaxNumberOfMessages", limit, f"Must be between 1 and {MAX_MESSAGES}, if provided."
        )
    visibility = operation.visibility_timeout
    if visibility is not None and not 0 <= visibility <= MAX_VISIBILITY_SECONDS:
        raise invalid(
            "VisibilityTimeout",
            visibility,
            f"Must be >= 0 and <= {MAX_VISIBILITY_SECONDS}, if provided.",
        )
    wait = operation.wait_time_seconds
    if wait is not None and not 0 <= wait <= MAX_WAIT_SECONDS:
        raise invalid(
            "WaitTimeSeconds", wait, f"Must be >= 0 and <= {MAX_WAIT_SECONDS}, if provided."
        )
    if operation.receive_request_attempt_id is not None:
        check_token("ReceiveRequestAttemptId", operation.receive_request_attempt_id)


def _take(
    queue: Queue, operation: ReceiveMessage, writers: Writers, now: float
) -> list[ReceivedMessage]:
    visibility = operation.visibility_timeout
    if visibility is None:
        visibility = queue.settings.visibility_timeout_seconds
    attempt_id = operation.receive_request_attempt_id
    if attempt_id is not None and isinstance(queue, FifoQueue):
        messages = _take_once(queue, attempt_id, operation, visibility, now)
    elif queue.has_next():
        limit = min(operation.max_number_of_messages or 1, MAX_IN_FLIGHT - queue.in_flight)
        messages = queue.take(limit, visibility, now) if limit > 0 else []
    else:
        return []
    names = operation.message_attribute_names
    if not writers and not names:
        return [
            ReceivedMessage(message.message_id, message.handle, message.md5_of_body, message.body)
            for message in messages
        ]
    return [_handed_out(message, writers, names or []) for message in messages]


def _take_once(
    queue: FifoQueue, attempt_id: str, operation: ReceiveMessage, visibility: int, now: float
) -> list[Message]:
    """What the receive of this id brought, or, under a new id, the next messages."""
    attempt = queue.attempts.get(attempt_id, now)
    if attempt is None:
        limit = min(operation.max_number_of_messages or 1, MAX_IN_FLIGHT - queue.in_flight)
        messages = queue.take(limit, visibility, now) if limit > 0 else []
        if messages:
            queue.attempts.add(attempt_id, messages, now + visibility, now)
        return messages
    if not attempt.is_repeatable():
        raise invalid(
            "ReceiveRequestAttemptId",
            attempt_id,
            "The receiveRequestAttemptId is not valid anymore since the receive call is not "
            "retryable.",
        )
    attempt.due = now + visibility
    messages = [message for message, _ in attempt.messages]
    for message in messages:
        queue.change_visibility(message, visibility, now)
    return messages


# --- attributes ---------------------------------------------------------------------------------

Writers = tuple[tuple[str, Callable[[Message], str | None]], ...]

_SYSTEM_ATTRIBUTES: dict[str, Callable[[Message], str | None]] = {
    "SenderId": lambda message: message.sender_id,
    "SentTimestamp": lambda message: str(int(message.sent_at * 1000)),
    "ApproximateReceiveCount": lambda message: str(message.received_before + message.receive_count),
    "ApproximateFirstReceiveTimestamp": lambda message: str(int(message.first_received_at * 1000)),
    "MessageGroupId": lambda message: message.group_id,
    "MessageDeduplicationId": lambda message: message.deduplication_id,
    "SequenceNumber": lambda message: message.sequence_number,
    "AWSTraceHeader": lambda message: message.trace_header,
    "DeadLetterQueueSourceArn": lambda message: message.source_arn,
}


@lru_cache(maxsize=256)
def _writers(names: tuple[str, ...], system_names: tuple[str, ...]) -> Writers:
    """How to write the system attributes that are asked for, under AWS's old and new parameter.

    The old one takes the names of queue attributes as well and ignores them.
    """
    check_asked([name for name in names if name not in _SYSTEM_ATTRIBUTES])
    for name in system_names:
        if name not in _SYSTEM_ATTRIBUTES and name != "All":
            raise fault("InvalidAttributeName", f"Unknown Attribute {name}.")
    wanted = {*names, *system_names}
    return tuple(
        (name, write)
        for name, write in _SYSTEM_ATTRIBUTES.items()
        if name in wanted or "All" in wanted
    )


def _handed_out(message: Message, writers: Writers, names: list[str]) -> ReceivedMessage:
    """A message with the attributes that are asked for, and the MD5 of just these."""
    attributes = message.attributes or {}
    wanted = {name: value for name, value in attributes.items() if _is_wanted(name, names)}
    is_all = len(wanted) == len(attributes)
    return ReceivedMessage(
        message.message_id,
        message.handle,
        message.md5_of_body,
        message.body,
        {name: value for name, write in writers if (value := write(message)) is not None},
        message.md5_of_attributes if is_all else md5_of_attributes(wanted),
        wanted or None,
    )


def described(message: Message) -> ReceivedMessage:
    """A message with all that is known of it, as nobody has received it: without a handle."""
    return ReceivedMessage(
        message.message_id,
        "",
        message.md5_of_body,
        message.body,
        {
            name: value
            for name, write in _SYSTEM_ATTRIBUTES.items()
            if (value := write(message)) is not None
        },
        message.md5_of_attributes,
        message.attributes or None,
    )


def _is_wanted(name: str, patterns: list[str]) -> bool:
    return any(
        pattern in ("All", "*", ".*")
        or pattern == name
        or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in patterns
    )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    ReceiveMessage: receive_message,
}
"""The handler of each operation: it takes the scope and the operation."""
