"""The actions on subscriptions: subscribing, confirming, setting, listing, unsubscribing.

A queue of whoever subscribes it is subscribed at once. A queue of another account id and an HTTP
endpoint are asked to confirm with a token first, and get nothing else before they did. Other
protocols that AWS has are refused, but for email, whose subscriptions wait for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from pumphouse.account.topics import http_endpoints
from pumphouse.account.topics.control import page_of
from pumphouse.account.topics.envelope import confirmation
from pumphouse.account.topics.queues import Letter, NotDeliveredError, put
from pumphouse.account.topics.references import check_arn, invalid, subscription_of, topic_of
from pumphouse.account.topics.settings import (
    DEFAULT_MESSAGE_BYTES,
    MAX_LARGE_MESSAGE_SUBSCRIPTIONS,
    BadAttributeError,
)
from pumphouse.account.topics.store import Topics, Undelivered
from pumphouse.account.topics.subscription_settings import (
    differs,
    set_attributes,
)
from pumphouse.account.topics.topic import Subscription, Topic
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import FIFO_SUFFIX, is_queue_name, parse_queue_arn
from pumphouse.protocol.operations import DONE, Done, Operation
from pumphouse.protocol.sns_operations import (
    ConfirmSubscription,
    ConfirmSubscriptionResult,
    GetSubscriptionAttributes,
    GetSubscriptionAttributesResult,
    ListSubscriptions,
    ListSubscriptionsByTopic,
    ListSubscriptionsByTopicResult,
    ListSubscriptionsResult,
    SetSubscriptionAttributes,
    Subscribe,
    SubscribeResult,
    SubscriptionReference,
    Unsubscribe,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

PENDING = "pending confirmation"
"""What stands for the ARN of a subscription that is not confirmed."""

MAX_FIFO_SUBSCRIPTIONS = 100

_PENDING_ARN = "PendingConfirmation"
_DELIVERED = ("sqs", "http", "https", "email", "email-json")
_NOT_DELIVERED = ("sms", "application", "lambda", "firehose")
_MAIL = re.compile(r"[^@\s]+@[^@\s]+")
_OUTSIDE_URLS = re.compile(r"[^!-~]")
_TOKEN = re.compile(r"[0-9a-f]{64,512}")


def subscribe(scope: Scope, operation: Subscribe) -> SubscribeResult:
    """A new subscription, or the one that this endpoint has with the same attributes."""
    check_arn(operation.topic_arn, "TopicArn")
    topic = topic_of(scope, operation.topic_arn)
    protocol, endpoint = operation.protocol, operation.endpoint or ""
    _check_endpoint(topic, protocol, endpoint)
    attributes = operation.attributes or {}
    try:
        subscription = _existing(topic, protocol, endpoint)
        if subscription is not None:
            if differs(subscription, attributes):
                raise BadAttributeError("Subscription already exists with different attributes")
        else:
            arn = f"{topic.arn}:{uuid4()}"
            subscription = Subscription(arn, topic, scope.account_id, protocol, endpoint)
            set_attributes(subscription, attributes)
            _check_room(topic, protocol)
            _add(scope, subscription)
    except BadAttributeError as error:
        raise invalid(f"Attributes Reason: {error}") from None
    if subscription.pending:
        if scope.clock.monotonic() > subscription.token_until:
            scope.account.topics.give_token(subscription)
        if protocol == "sqs":
            _ask_queue(scope, subscription)
        else:
            http_endpoints.ask(scope, subscription)
        if not operation.return_subscription_arn:
            return SubscribeResult(PENDING)
    return SubscribeResult(subscription.arn)


def _add(scope: Scope, subscription: Subscription) -> None:
    topics = scope.account.topics
    subscription.number = topics.next_subscription_number()
    if not _is_own_queue(scope, subscription):
        subscription.pending = True
        subscription.authenticated = False
        topics.give_token(subscription)
    subscription.topic.add(subscription)
    topics.subscriptions[subscription.arn] = subscription


def _is_own_queue(scope: Scope, subscription: Subscription) -> bool:
    if subscription.protocol != "sqs":
        return False
    return parse_queue_arn(subscription.endpoint).account_id == scope.account_id


def _ask_queue(scope: Scope, subscription: Subscription) -> None:
    """Put the document that asks to confirm into a queue."""
    message_id = scope.account.next_message_id()
    topics = scope.account.topics
    kind = "SubscriptionConfirmation"
    body = confirmation(topics, subscription, kind, message_id, scope.clock.now())
    in_order = message_id if subscription.endpoint.endswith(FIFO_SUFFIX) else None
    try:
        letter = Letter(body, None, None)
        put(scope.account, subscription.endpoint, letter, in_order, in_order)
    except NotDeliveredError as error:
        topics.undelivered.append(Undelivered(subscription.arn, message_id, str(error)))


def _existing(topic: Topic, protocol: str, endpoint: str) -> Subscription | None:
    return topic.by_endpoint.get((protocol, endpoint))


def _check_endpoint(topic: Topic, protocol: str, endpoint: str) -> None:
    if protocol in _NOT_DELIVERED:
        raise invalid(
            f"Protocol Reason: this account delivers to sqs, http and https, not to {protocol}"
        )
    if protocol not in _DELIVERED:
        raise invalid(f"Amazon SNS does not support this protocol string: {protocol}")
    if topic.is_fifo and protocol != "sqs":
        raise invalid(f"Invalid protocol type: {protocol}")
    if not endpoint:
        raise invalid("Endpoint Reason: no value for required parameter")
    if protocol in ("http", "https"):
        if not endpoint.startswith(f"{protocol}://"):
            raise invalid("Endpoint must match the specified protocol")
        if not _is_url(endpoint):
            raise invalid("Endpoint")
    if protocol in ("email", "email-json") and _MAIL.fullmatch(endpoint) is None:
        raise invalid("Email address")
    if protocol == "sqs":
        try:
            queue = parse_queue_arn(endpoint)
        except ValueError:
            raise invalid("SQS endpoint ARN") from None
        if not is_queue_name(queue.name):
            raise invalid("SQS endpoint ARN")
        if queue.is_fifo and not topic.is_fifo:
            raise invalid(
                "Invalid parameter: Endpoint Reason: "
                "FIFO SQS Queues can not be subscribed to standard SNS topics"
            )


def _is_url(text: str) -> bool:
    """Whether a URL has a host, a port that can be, and no character that must be escaped."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.port != 0 and _OUTSIDE_URLS.search(text) is None
    except ValueError:
        return False


def _check_room(topic: Topic, protocol: str) -> None:
    """A FIFO topic has few subscriptions, and one of large messages few, to queues only."""
    if topic.is_fifo and len(topic.subscriptions) >= MAX_FIFO_SUBSCRIPTIONS:
        raise fault(
            "SubscriptionLimitExceeded",
            f"A FIFO topic can't have more than {MAX_FIFO_SUBSCRIPTIONS} subscriptions.",
            "sns",
        )
    if topic.settings.maximum_message_size <= DEFAULT_MESSAGE_BYTES:
        return
    if protocol != "sqs" or len(topic.subscriptions) >= MAX_LARGE_MESSAGE_SUBSCRIPTIONS:
        raise invalid(
            "TopicArn Reason: A topic with a MaximumMessageSize above "
            f"{DEFAULT_MESSAGE_BYTES} takes {MAX_LARGE_MESSAGE_SUBSCRIPTIONS} subscriptions to "
            "queues and none of another protocol"
        )


def confirm_subscription(scope: Scope, operation: ConfirmSubscription) -> ConfirmSubscriptionResult:
    """Confirm by token. As on AWS the token decides, whatever topic of the region is named."""
    parts = operation.topic_arn.split(":")
    if len(parts) != 6 or parts[2] != "sns" or parts[3] != scope.region:
        raise invalid("Topic")
    if not _TOKEN.fullmatch(operation.token):
        raise invalid("Token")
    subscription = scope.account.topics.by_token.get(operation.token)
    if subscription is None or subscription.topic.deleted:
        raise invalid("Token")
    if scope.clock.monotonic() > subscription.token_until:
        raise invalid("Token")
    topic = subscription.topic
    subscription.pending = False
    subscription.authenticated = _wants_signature(operation)
    # one that was unsubscribed comes back
    topic.add(subscription)
    scope.account.topics.subscriptions[subscription.arn] = subscription
    return ConfirmSubscriptionResult(subscription.arn)


def _wants_signature(operation: ConfirmSubscription) -> bool:
    return (operation.authenticate_on_unsubscribe or "").lower() == "true"


def needs_signature(topics: Topics, operation: Operation[Any]) -> bool:
    """Whether an operation needs a signature (`Account.needs_signature`)."""
    if isinstance(operation, ConfirmSubscription):
        return _wants_signature(operation)
    if not isinstance(operation, Unsubscribe):
        return True
    subscription = topics.subscriptions.get(operation.subscription_arn)
    return subscription is not None and subscription.is_http and subscription.authenticated


def unsubscribe(scope: Scope, operation: Unsubscribe) -> Done:
    """End a subscription; one that is not there is no fault."""
    arn = operation.subscription_arn
    check_arn(arn, "SubscriptionArn")
    if len(arn.split(":")) < 7:
        raise invalid("SubscriptionId")
    subscription = scope.account.topics.subscriptions.pop(arn, None)
    if subscription is None:
        return DONE
    scope.account.topics.forget_token(subscription)
    if subscription.topic.remove(subscription) and not subscription.pending:
        http_endpoints.tell_end(scope, subscription)
    return DONE


def get_subscription_attributes(
    scope: Scope, operation: GetSubscriptionAttributes
) -> GetSubscriptionAttributesResult:
    """Every attribute of a subscription."""
    return GetSubscriptionAttributesResult(
        subscription_of(scope, operation.subscription_arn).shown()
    )


def set_subscription_attributes(scope: Scope, operation: SetSubscriptionAttributes) -> Done:
    """Change one attribute; it holds at once."""
    subscription = subscription_of(scope, operation.subscription_arn)
    try:
        set_attributes(subscription, {operation.attribute_name: operation.attribute_value or ""})
    except BadAttributeError as error:
        raise invalid(str(error)) from None
    return DONE


def list_subscriptions(scope: Scope, operation: ListSubscriptions) -> ListSubscriptionsResult:
    """The subscriptions that this account id made in this region, a hundred at a time."""
    own = (
        each
        for each in scope.account.topics.subscriptions.values()
        if each.owner == scope.account_id
        and each.topic.name.region == scope.region
        and each.orphaned is None
    )
    page, token = page_of(sorted(own, key=_number_of), _number_of, operation.next_token)
    return ListSubscriptionsResult([_reference(each) for each in page], token)


def list_subscriptions_by_topic(
    scope: Scope, operation: ListSubscriptionsByTopic
) -> ListSubscriptionsByTopicResult:
    """The subscriptions of a topic, a hundred at a time."""
    topic = topic_of(scope, operation.topic_arn)
    own = sorted(topic.subscriptions.values(), key=_number_of)
    page, token = page_of(own, _number_of, operation.next_token)
    return ListSubscriptionsByTopicResult([_reference(each) for each in page], token)


def _number_of(subscription: Subscription) -> str:
    return f"{subscription.number:016d}"


def _reference(subscription: Subscription) -> SubscriptionReference:
    return SubscriptionReference(
        _PENDING_ARN if subscription.pending else subscription.arn,
        subscription.owner,
        subscription.protocol,
        subscription.endpoint,
        subscription.topic.arn,
    )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    ConfirmSubscription: confirm_subscription,
    GetSubscriptionAttributes: get_subscription_attributes,
    ListSubscriptions: list_subscriptions,
    ListSubscriptionsByTopic: list_subscriptions_by_topic,
    SetSubscriptionAttributes: set_subscription_attributes,
    Subscribe: subscribe,
    Unsubscribe: unsubscribe,
}
"""The handler of each operation: it takes the scope and the operation."""
