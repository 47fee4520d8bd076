"""Every exception of pumphouse, by whose fault it is and what a caller can do about it.

| Class | Whose fault | What to do |
|---|---|---|
| `UsageError` | the caller's; nothing was sent | correct the call |
| `RefusedError` | the message or request, says AWS | do not send it again as it is |
| `ConfigError` | queue, credentials or settings | an operator has to act |
| `ThrottledError` | nobody's | wait `retry_after_seconds` |
| `TransientError` | the service's | send it again |
| `NetworkError` | the network's; nothing was processed | send it again |
| `OutcomeUnknownError` | the answer was lost | FIFO: send again; else decide |

How an AWS error code finds its class is in `protocol/faults.py`.
"""

from __future__ import annotations

from typing import TypeVar


class PumphouseError(Exception):
    """The base of every exception that pumphouse raises on purpose."""


E = TypeVar("E", bound=PumphouseError)


def told_of(error: E, text: str) -> E:
    """The same error in other words, for one of the messages that it befell; it may be shared."""
    told = type(error).__new__(type(error))
    told.__dict__.update(error.__dict__)
    told.args = (text,)
    if isinstance(told, ServiceError):
        told.message = text
    told.__cause__ = error.__cause__
    return told.with_traceback(error.__traceback__)


def own(error: E) -> E:
    """The same error as another object: who raises it again adds to its traceback, and nobody is to
    share that with a neighbour. One that can't be made anew comes back as it is."""
    try:
        copied = type(error).__new__(type(error), *error.args)
        copied.args = error.args
        copied.__dict__.update(error.__dict__)
    except Exception:
        return error
    if notes := getattr(error, "__notes__", None):
        copied.__notes__ = list(notes)
    return copied


# --- the caller's fault -------------------------------------------------------------------------


class UsageError(PumphouseError, ValueError):
    """An argument or an option can't be used; raised before any request."""


class MessageTooLargeError(UsageError):
    """Body and attributes together are larger than the queue takes; raised before any request.

    `size` and `limit` are in bytes, counted as SQS counts them (body + each attribute's name,
    data type and value).
    """

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"the message is {size} bytes with its attributes, and the limit is {limit}; "
            "shorten it, or let a claim check carry the body"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.size, self.limit))


class ClosedError(PumphouseError):
    """The object was closed, or is closing, and takes no more work; nothing was sent."""


class NotSentError(PumphouseError):
    """Not sent, because a message before it in its group failed, or because its body could not be
    stored apart from it; `__cause__` is why."""


class CrossThreadError(PumphouseError, RuntimeError):
    """A call came from a thread or an event loop where it could only block for ever, or that is
    not the one that the object is used in."""


# --- settings and credentials -------------------------------------------------------------------


class ConfigError(PumphouseError):
    """Settings, a queue or credentials that an operator has to put right."""


class NoCredentialsError(ConfigError):
    """No AWS credentials were found anywhere in the chain, or they can't be loaded now."""


# --- what the service answered ------------------------------------------------------------------


class ServiceError(PumphouseError):
    """An error that SQS or SNS answered with, for a request or for one entry of a batch.

    `code` is the short code (`QueueDoesNotExist`), `query_code` its spelling in the older query
    protocol (`AWS.SimpleQueueService.NonExistentQueue`), `status` the HTTP status (400 or 500 for
    an entry of a batch), `sender_fault` whether AWS blames the request, `request_id` the id that
    AWS support asks for, or "".
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "InternalError",
        query_code: str = "",
        status: int = 500,
        sender_fault: bool = False,
        request_id: str = "",
    ) -> None:
        self.message = message
        self.code = code
        self.query_code = query_code or code
        self.status = status
        self.sender_fault = sender_fault
        self.request_id = request_id
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), dict(self.__dict__)))


def _rebuild(kind: type[ServiceError], state: dict[str, object]) -> ServiceError:
    """Make a `ServiceError` again from its attributes, for pickle and copy."""
    error = kind.__new__(kind)
    error.__dict__.update(state)
    error.args = (state["message"],)
    return error


class RefusedError(ServiceError):
    """AWS refuses this request or message as it is; sending it again changes nothing."""


class ThrottledError(ServiceError):
    """Too many requests, or a full local queue: wait `retry_after_seconds` and send again."""

    retry_after_seconds: float = 0.0


class TransientError(ServiceError):
    """The service failed to answer properly; the same request may succeed the next time."""


class RefusedConfigError(ServiceError, ConfigError):
    """AWS refuses the credentials, the permissions or the queue that were configured."""


class QueueDoesNotExist(RefusedConfigError):
    """No such queue in this account and region (AWS's `QueueDoesNotExist`)."""


class TopicDoesNotExist(RefusedConfigError):
    """No such topic in this account and region (SNS's `NotFound`)."""


class SubscriptionDoesNotExist(RefusedConfigError):
    """No such subscription in this account and region (SNS's `NotFound`)."""


class ClockSkewError(RefusedConfigError):
    """This machine's clock is too far from AWS's for a signature to be taken."""


class QueueNameExists(RefusedError):
    """A queue of this name exists with other attributes."""


class QueueDeletedRecently(RefusedError):
    """A queue of this name was deleted less than 60 seconds ago."""


class PurgeQueueInProgress(RefusedError):
    """The queue was purged less than 60 seconds ago."""


class ReceiptHandleIsInvalid(RefusedError):
    """The receipt handle was never this queue's."""


class ReceiptHandleExpired(RefusedError):
    """The lease behind the receipt handle has ended (AWS's `InvalidParameterValue` for it)."""


class MessageNotInflight(RefusedError):
    """The message is not in flight, so its visibility can't be changed."""


class OverLimit(ThrottledError):
    """A quota is used up: 120,000 messages in flight, for example."""


# --- answers that are none, and answers that are missing ----------------------------------------


class OutcomeUnknownError(PumphouseError):
    """The request may have been carried out, and no answer says whether it was.

    On a FIFO queue the same message with the same deduplication id can be sent again safely.
    """


class Md5MismatchError(OutcomeUnknownError):
    """What SQS says that it stored is not what was sent."""

    def __init__(self, what: str, expected: str, got: str) -> None:
        self.what = what
        self.expected = expected
        self.got = got
        super().__init__(f"the MD5 of the {what} is {got!r} in the answer and should be {expected}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.what, self.expected, self.got))


class UnexpectedAnswerError(OutcomeUnknownError):
    """An answer that is no SQS or SNS document: a proxy's page, or a cut or garbled body.

    `status` is the HTTP status and `excerpt` the first bytes of the body, for the log.
    """

    def __init__(self, status: int, excerpt: str, reason: str = "") -> None:
        self.status = status
        self.excerpt = excerpt
        self.reason = reason
        detail = f" ({reason})" if reason else ""
        super().__init__(f"HTTP {status} and no AWS answer in it{detail}: {excerpt!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.status, self.excerpt, self.reason))


class NetworkError(PumphouseError):
    """The request did not reach the service: no name, no connection, no TLS, or no free socket."""


# --- large bodies ---------------------------------------------------------------------------------


class BlobMissingError(PumphouseError):
    """The blob store holds no body under the key of a claim ticket."""


class BlobDamagedError(PumphouseError):
    """What the blob store holds is not the body that was sent."""


# --- idempotency --------------------------------------------------------------------------------


class StoreError(PumphouseError):
    """An idempotency store could not be read or written."""


# --- leases -------------------------------------------------------------------------------------


class LeaseLostError(PumphouseError):
    """The lease ended before it was settled; the message is, or will be, with someone else."""
