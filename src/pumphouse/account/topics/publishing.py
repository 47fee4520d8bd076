"""`Publish` and `PublishBatch`: from a request to a message in every queue that wants it.

A message goes to each confirmed subscription whose filter policy it passes: to queues at once, in
the order of publishing, to HTTP endpoints beside (`http_endpoints.py`). What shows for all
subscriptions, a signature and the values that filters read, is made once, when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pumphouse.account.batches import failed_entry
from pumphouse.account.deduplication import content_id
from pumphouse.account.topics import http_endpoints
from pumphouse.account.topics.envelope import Envelopes
from pumphouse.account.topics.matching import MessageView
from pumphouse.account.topics.message_rules import (
    Request,
    check_parameters,
    checked_messages,
    size_of,
)
from pumphouse.account.topics.queues import Letter, NotDeliveredError, put
from pumphouse.account.topics.references import check_arn, invalid, topic_of
from pumphouse.account.topics.store import Undelivered
from pumphouse.account.topics.topic import Subscription, Topic
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES, is_entry_id
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import Operation
from pumphouse.protocol.sns_operations import (
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    PublishBatchResult,
    PublishBatchResultEntry,
    PublishResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope


def publish(scope: Scope, operation: Publish) -> PublishResult:
    """Publish one message. A double on a FIFO topic is answered with the first's ids."""
    topic = _topic_of(scope, operation)
    check_parameters(topic, operation)
    messages = checked_messages(operation)
    if size_of(operation) > topic.settings.maximum_message_size:
        raise invalid("Message too long")
    message_id, number = _send(scope, topic, operation, messages, operation.trace_header)
    return PublishResult(message_id, number)


def publish_batch(scope: Scope, operation: PublishBatch) -> PublishBatchResult:
    """Publish up to ten messages, in order. An entry whose message or subject is refused fails
    alone; for wrong attributes and for what a FIFO topic must be told AWS refuses all of them."""
    entries = operation.publish_batch_request_entries
    _check_batch(entries)
    topic = topic_of(scope, operation.topic_arn)
    for number, entry in enumerate(entries, 1):
        where = f"publishBatchRequestEntries.{number}.member.messageAttributes"
        check_parameters(topic, entry, where)
    if sum(size_of(entry) for entry in entries) > topic.settings.maximum_message_size:
        raise fault(
            "BatchRequestTooLong",
            "The length of all the messages put together is more than the limit.",
            "sns",
        )
    result = PublishBatchResult([], [])
    for entry in entries:
        try:
            messages = checked_messages(entry)
        except ServiceError as error:
            result.failed.append(failed_entry(entry.id, error))
            continue
        message_id, sequence = _send(scope, topic, entry, messages, operation.trace_header)
        result.successful.append(PublishBatchResultEntry(entry.id, message_id, sequence))
    return result


def _topic_of(scope: Scope, operation: Publish) -> Topic:
    if operation.phone_number is not None:
        raise invalid("PhoneNumber Reason: this account sends no text messages")
    arn = operation.topic_arn
    if arn is not None:
        return topic_of(scope, arn)
    if (arn := operation.target_arn) is None:
        raise invalid("TopicArn or TargetArn Reason: no value for required parameter")
    check_arn(arn, "TargetArn")
    if arn.split(":")[5].startswith("endpoint/"):
        raise invalid("TargetArn Reason: No endpoint found for the target arn specified")
    return topic_of(scope, arn, "TargetArn")


def _check_batch(entries: Sequence[PublishBatchRequestEntry]) -> None:
    if not entries:
        raise fault("EmptyBatchRequest", "The batch request doesn't contain any entries.", "sns")
    if len(entries) > MAX_BATCH_ENTRIES:
        raise fault(
            "TooManyEntriesInBatchRequest",
            "The batch request contains more entries than permissible.",
            "sns",
        )
    if len({entry.id for entry in entries}) < len(entries):
        raise fault(
            "BatchEntryIdsNotDistinct",
            "Two or more batch entries in the request have the same Id.",
            "sns",
        )
    if not all(is_entry_id(entry.id) for entry in entries):
        raise fault(
            "InvalidBatchEntryId",
            "The Id of a batch entry in a batch request doesn't abide by the specification.",
            "sns",
        )


# --- one message --------------------------------------------------------------------------------


def _send(
    scope: Scope, topic: Topic, request: Request, messages: dict[str, str], trace: str | None
) -> tuple[str, str | None]:
    """Deliver a message that was checked; its id, and its sequence number on a FIFO topic."""
    message_id = scope.account.next_message_id()
    number: str | None = None
    deduplication_id: str | None = None
    if topic.is_fifo:
        group_id = request.message_group_id or ""
        deduplication_id = request.message_deduplication_id or content_id(request.message.encode())
        now = scope.clock.monotonic()
        first = topic.deduplication.lookup(group_id, deduplication_id, now)
        if first is not None:
            return first
        number = scope.account.topics.next_sequence_number()
        topic.deduplication.remember(group_id, deduplication_id, message_id, number, now)
    if topic.subscriptions:
        Publication(
            scope, topic, request, messages, message_id, number, deduplication_id, trace
        ).deliver()
    return message_id, number


class Publication:
    """One message on its way to the subscriptions of its topic."""

    __slots__ = (
        "_deduplication_id",
        "_envelopes",
        "_letters",
        "_messages",
        "_number",
        "_request",
        "_scope",
        "_topic",
        "_trace",
        "_views",
        "message_id",
    )

    def __init__(
        self,
        scope: Scope,
        topic: Topic,
        request: Request,
        messages: dict[str, str],
        message_id: str,
        number: str | None,
        deduplication_id: str | None,
        trace: str | None,
    ) -> None:
        self._scope = scope
        self._topic = topic
        self._request = request
        self._messages = messages
        self.message_id = message_id
        self._number = number
        self._deduplication_id = deduplication_id
        self._trace = trace
        self._views: dict[str, MessageView] = {}
        self._envelopes: dict[str, Envelopes] = {}
        self._letters: dict[str, Letter] = {}

    def deliver(self) -> None:
        """Bring the message to every subscription that wants it."""
        for subscription in self._topic.subscriptions.values():
            if subscription.pending:
                continue
            policy = subscription.filter_policy
            if policy is not None and not policy.accepts(self._view(subscription)):
                continue
            if subscription.protocol == "sqs":
                self._to_queue(subscription)
            elif subscription.is_http:
                self._to_http(subscription)

    def _message(self, subscription: Subscription) -> str:
        messages = self._messages
        return messages.get(subscription.protocol, messages["default"])

    def _view(self, subscription: Subscription) -> MessageView:
        message = self._message(subscription)
        view = self._views.get(message)
        if view is None:
            view = MessageView(message, self._request.message_attributes)
            self._views[message] = view
        return view

    def _body(self, subscription: Subscription) -> str:
        """What the endpoint gets: the message itself, or the envelope around it."""
        message = self._message(subscription)
        if subscription.raw:
            return message
        envelopes = self._envelopes.get(message)
        if envelopes is None:
            envelopes = self._envelopes[message] = Envelopes(
                self._scope.account.topics,
                self._topic,
                message_id=self.message_id,
                message=message,
                subject=self._request.subject,
                attributes=self._request.message_attributes,
                sent_at=self._scope.clock.now(),
                sequence_number=self._number,
            )
        return envelopes.to(subscription)

    def _to_queue(self, subscription: Subscription) -> None:
        try:
            self._put(subscription.endpoint, subscription)
        except NotDeliveredError as error:
            self._failed(subscription, str(error))

    def _put(self, arn: str, subscription: Subscription) -> None:
        put(
            self._scope.account,
            arn,
            self._letter(subscription),
            self._request.message_group_id,
            self._deduplication_id,
        )

    def _letter(self, subscription: Subscription) -> Letter:
        """What a queue is to store: for raw subscriptions the same for all."""
        body = self._body(subscription)
        if not subscription.raw:
            return Letter(body, None, self._trace)
        letter = self._letters.get(body)
        if letter is None:
            letter = Letter(body, self._request.message_attributes, self._trace)
            self._letters[body] = letter
        return letter

    def _to_http(self, subscription: Subscription) -> None:
        def failed(reason: str) -> None:
            self._failed(subscription, reason)

        http_endpoints.notify(
            self._scope, subscription, self.message_id, self._body(subscription), failed
        )

    def _failed(self, subscription: Subscription, reason: str) -> None:
        """Put a message that can't be delivered into the subscription's dead-letter queue."""
        if subscription.dead_letter_arn:
            try:
                self._put(subscription.dead_letter_arn, subscription)
            except NotDeliveredError as error:
                reason = f"{reason}; the dead-letter queue: {error}"
            else:
                return
        self._scope.account.topics.undelivered.append(
            Undelivered(subscription.arn, self.message_id, reason)
        )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    Publish: publish,
    PublishBatch: publish_batch,
}
"""The handler of each operation: it takes the scope and the operation."""
