"""What may be sent again, and what a call ends as when it is not. Pure: no IO, no clock.

An attempt that brought no answer is one of two things. Where it provably was not processed (no
connection, or the last byte of the request never left) it is a `NetworkError`, and any operation
may be sent again. Otherwise its outcome is unknown, and only an operation that is as good twice as
once may be sent again: a reset on a reused connection proves nothing, however likely it is that the
other side had closed it before.
"""

from __future__ import annotations

from typing import Any

from pumphouse.errors import (
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    ServiceError,
    ThrottledError,
    TransientError,
    UnexpectedAnswerError,
)
from pumphouse.http.connection import ExchangeFailed
from pumphouse.protocol.attributes import MAX_WAIT_SECONDS
from pumphouse.protocol.operations import Operation, ReceiveMessage

_SENT = ("entries", "publish_batch_request_entries")


def repeatable(operation: Operation[Any]) -> bool:
    """Whether carrying the operation out twice is as good as once.

    A send is, where each message has a deduplication id; a receive, where it has an attempt id.
    """
    return operation.repeatable or deduplicated(operation)


def deduplicated(operation: Operation[Any]) -> bool:
    """Whether the service itself notices that it has carried the operation out already."""
    if isinstance(operation, ReceiveMessage):
        return operation.receive_request_attempt_id is not None
    for name in _SENT:
        if (entries := getattr(operation, name, None)) is not None:
            return all(getattr(entry, "message_deduplication_id", None) for entry in entries)
    return bool(getattr(operation, "message_deduplication_id", None))


def wait_seconds(operation: Operation[Any]) -> int:
    """How long the service may take its time: a receive's wait.

    A receive that names none waits as long as its queue says, which can be the maximum.
    """
    if not isinstance(operation, ReceiveMessage):
        return 0
    wait = operation.wait_time_seconds
    return MAX_WAIT_SECONDS if wait is None else wait


def of_failure(failure: ExchangeFailed, action: str) -> PumphouseError:
    """The error of an attempt that brought no whole answer."""
    if not failure.left:
        return NetworkError(f"{action} was not sent: {failure.reason}")
    part = "was cut" if failure.answered else "did not come"
    return OutcomeUnknownError(f"the answer to {action} {part}: {failure.reason}")


def may_repeat(error: PumphouseError, operation: Operation[Any]) -> bool:
    """Whether an attempt that ended so may be followed by another."""
    if isinstance(error, OutcomeUnknownError):
        return repeatable(operation)
    return isinstance(error, (NetworkError, ThrottledError, TransientError))


def heavier(doubt: OutcomeUnknownError | None, other: OutcomeUnknownError) -> OutcomeUnknownError:
    """Of two attempts without a proper answer, the one that is more likely to have been done."""
    return other if doubt is None or _busy(doubt) else doubt


def _busy(error: OutcomeUnknownError) -> bool:
    """Whether it was a page that says "busy", which many take as "not processed"."""
    return isinstance(error, UnexpectedAnswerError) and error.status in (429, 503)


def outcome(
    error: PumphouseError, doubt: OutcomeUnknownError | None, operation: Operation[Any]
) -> PumphouseError:
    """What the call ends as: `error` is its last attempt's, `doubt` an earlier one's.

    An attempt without an answer may have been carried out, whatever a later one says. Only for an
    operation that leaves things as they are the second time does the service's word stand.
    """
    if doubt is None:
        return error
    if isinstance(error, OutcomeUnknownError) and (_busy(doubt) or not _busy(error)):
        return error
    final = isinstance(error, ServiceError) and not isinstance(
        error, (ThrottledError, TransientError)
    )
    if final and operation.repeatable:
        return error
    unknown = OutcomeUnknownError(f"{doubt}; a later try ended as: {error}")
    unknown.__cause__ = error
    return unknown
