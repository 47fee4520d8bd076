"""What an answer means for each message that was sent: `confirm`, and `classify_error`.

A message is stored in a queue only when the answer says so and names the MD5s of what was sent
(`stored_in_queue`). SNS answers no MD5: a message to a topic is stored when the answer has an id
for it (`stored_in_topic`), and that it arrived as it was sent is what the request's signature is
for, which covers the SHA-256 of the body. A message is refused, throttled or failed when the answer
says that. Everything else is unknown: an entry that the answer leaves out or contradicts itself
about, an MD5 that differs, an answer that was lost. What is done about it is for `batcher.py` to
decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from pumphouse.backoff import full_jitter
from pumphouse.errors import (
    Md5MismatchError,
    OutcomeUnknownError,
    PumphouseError,
    ServiceError,
    ThrottledError,
    UnexpectedAnswerError,
    own,
)
from pumphouse.model import Receipt
from pumphouse.protocol import faults
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES, md5_of_attributes
from pumphouse.protocol.operations import (
    Attributes,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageResult,
)
from pumphouse.protocol.sns_operations import (
    PublishBatchResult,
    PublishBatchResultEntry,
    PublishResult,
)

Outcome = Receipt | PumphouseError
Answer = SendMessageResult | SendMessageBatchResult | PublishResult | PublishBatchResult
Judge = Callable[[str, "Sent", Any], Outcome]
"""What it comes to that an answer calls a message stored: asked with a queue's URL or a topic's
ARN, the message, and what the answer says of it."""

_POSITIONS = {str(position): position for position in range(MAX_BATCH_ENTRIES)}


class Confirmed(NamedTuple):
    """What an answer comes to.

    `outcomes` has one for each message, in order; `strangers` are ids in the answer that were not
    in the request; `as_one` is True where the request failed as a whole, before its messages were
    looked at one by one.
    """

    outcomes: list[Outcome]
    strangers: list[str]
    as_one: bool


class Sent(Protocol):
    """What confirmation has to know of a message that was sent."""

    md5_of_body: str
    md5_of_attributes: str | None
    system_attributes: Attributes | None
    deduplication_id: str | None
    tries: int


def classify_error(
    status: int,
    code: str,
    message: str | None = None,
    attempt: int = 1,
    *,
    delay: Callable[[int], float] = full_jitter,
) -> ServiceError:
    """The error that an SQS error code means, for a whole request or for one entry of a batch.

    `status` is the HTTP status; for an entry it is 400 for the sender's fault and 500 otherwise.
    The code decides before the status, and 429 and 503 are throttling for codes that say nothing
    else:

    * `RefusedError`: the message itself is refused (`InvalidMessageContents`,
      `InvalidParameterValue`, `MissingParameter`, …); sending it again changes nothing.
    * `ConfigError` (as `RefusedConfigError`): the queue, the credentials or the permissions are
      refused (`AccessDenied`, `QueueDoesNotExist`, …); an operator has to act.
    * `ThrottledError`: send it again after `retry_after_seconds`, a full-jitter draw for the
      attempt that failed (`attempt`, from 1); `delay` draws it.
    * `TransientError`: anything else; send it again.
    """
    error = faults.from_answer(code, message or "", status=status)
    if isinstance(error, ThrottledError):
        error.retry_after_seconds = delay(attempt)
    return error


def stored_in_queue(
    queue_url: str, sent: Sent, answer: SendMessageResult | SendMessageBatchResultEntry
) -> Outcome:
    """A receipt where the answer names the MD5s of what was sent, otherwise `Md5MismatchError`."""
    if sent.md5_of_body != answer.md5_of_message_body:
        return Md5MismatchError("body", sent.md5_of_body, answer.md5_of_message_body)
    if (expected := sent.md5_of_attributes) is not None:
        got = answer.md5_of_message_attributes or ""
        if expected != got:
            return Md5MismatchError("attributes", expected, got)
    if sent.system_attributes and (got := answer.md5_of_message_system_attributes or ""):
        system = md5_of_attributes(sent.system_attributes) or ""
        if system != got:
            return Md5MismatchError("system attributes", system, got)
    return Receipt(answer.message_id, queue_url, answer.sequence_number, sent.deduplication_id)


def stored_in_topic(
    topic_arn: str, sent: Sent, answer: PublishResult | PublishBatchResultEntry
) -> Outcome:
    """A receipt where the answer has a message id, otherwise `OutcomeUnknownError`."""
    if not answer.message_id:
        return OutcomeUnknownError("the answer has no id for a message that it calls published")
    return Receipt(answer.message_id, "", answer.sequence_number, sent.deduplication_id, topic_arn)


def confirm(
    address: str,
    sent: Sequence[Sent],
    answer: Answer | PumphouseError,
    *,
    stored: Judge = stored_in_queue,
    delay: Callable[[int], float] = full_jitter,
) -> Confirmed:
    """The outcome of every message of a request.

    `address` is the queue's URL or the topic's ARN; `stored` judges what the answer calls stored.
    The ids of a batch's entries are their positions, from "0". An error is every message's, as if
    each had been sent alone. `delay` draws the delay after a throttled attempt, from 1.
    """
    if isinstance(answer, PumphouseError):
        if isinstance(answer, UnexpectedAnswerError) and answer.status in (429, 503):
            answer = _busy(answer)
        if isinstance(answer, ThrottledError) and not answer.retry_after_seconds:
            answer.retry_after_seconds = delay(sent[0].tries)
        return Confirmed([_own(answer) for _ in sent], [], True)
    if isinstance(answer, SendMessageResult | PublishResult):
        return Confirmed([stored(address, sent[0], answer)], [], False)
    count = len(sent)
    outcomes: list[Outcome | None] = [None] * count
    strangers: list[str] = []
    for entry in answer.successful:
        entry_id = entry.id or ""
        if (at := _POSITIONS.get(entry_id, count)) >= count:
            strangers.append(entry_id)
        elif outcomes[at] is None:
            outcomes[at] = stored(address, sent[at], entry)
        else:
            outcomes[at] = _contradiction(entry_id)
    for failed in answer.failed:
        if (at := _POSITIONS.get(failed.id, count)) >= count:
            strangers.append(failed.id)
        elif outcomes[at] is None:
            status = 400 if failed.sender_fault else 500
            outcomes[at] = classify_error(
                status, failed.code, failed.message, sent[at].tries, delay=delay
            )
        else:
            outcomes[at] = _contradiction(failed.id)
    settled = [_missing(at) if got is None else got for at, got in enumerate(outcomes)]
    return Confirmed(settled, strangers, False)


def _own(error: PumphouseError) -> PumphouseError:
    """A request's error as one message's own: nobody shares an exception with a neighbour."""
    mine = own(error)
    if mine is not error:
        mine.__cause__ = error
    return mine


def _busy(answer: UnexpectedAnswerError) -> ThrottledError:
    """Too many requests, says something in between that is not SQS: nothing was passed on."""
    error = ThrottledError(str(answer), code=f"Http{answer.status}", status=answer.status)
    error.__cause__ = answer
    return error


def _missing(at: int) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the answer says nothing about entry {at} of the batch")


def _contradiction(entry_id: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the answer names entry {entry_id} of the batch twice")
