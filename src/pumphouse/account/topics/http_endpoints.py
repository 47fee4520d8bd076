"""What an HTTP endpoint is sent: a request to confirm, notifications, and the word that it is over.

Headers and bodies are AWS's ("Fanout Amazon SNS notifications to HTTPS endpoints" in the developer
guide, and as recorded). How a request is carried out and tried again is `notifying.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pumphouse.account.topics.envelope import confirmation
from pumphouse.account.topics.notifying import HttpDelivery
from pumphouse.account.topics.store import Undelivered
from pumphouse.account.topics.topic import Subscription

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

USER_AGENT = "Amazon Simple Notification Service Agent"


def ask(scope: Scope, subscription: Subscription) -> None:
    """Ask an endpoint to confirm its subscription."""
    _confirmation(scope, subscription, "SubscriptionConfirmation")


def tell_end(scope: Scope, subscription: Subscription) -> None:
    """Tell an endpoint that its subscription has ended, with a token that brings it back."""
    if not subscription.is_http:
        return
    scope.account.topics.give_token(subscription)
    _confirmation(scope, subscription, "UnsubscribeConfirmation")


def _confirmation(scope: Scope, subscription: Subscription, kind: str) -> None:
    if not subscription.is_http:
        return
    topics = scope.account.topics
    message_id = scope.account.next_message_id()
    body = confirmation(topics, subscription, kind, message_id, scope.clock.now())

    def failed(reason: str) -> None:
        topics.undelivered.append(Undelivered(subscription.arn, message_id, reason))

    delivery = HttpDelivery(
        subscription.endpoint,
        _headers(subscription, kind, message_id, with_arn=kind != "SubscriptionConfirmation"),
        body.encode(),
    )
    topics.notifier.notify(delivery, subscription.plan, failed)


def notify(
    scope: Scope,
    subscription: Subscription,
    message_id: str,
    body: str,
    failed: Callable[[str], object],
) -> None:
    """Send a notification; `failed` is told why when it came to nothing."""
    headers = _headers(subscription, "Notification", message_id, with_arn=True)
    if subscription.raw:
        headers["x-amz-sns-rawdelivery"] = "true"
    delivery = HttpDelivery(subscription.endpoint, headers, body.encode())
    scope.account.topics.notifier.notify(delivery, subscription.plan, failed)


def _headers(
    subscription: Subscription, kind: str, message_id: str, *, with_arn: bool
) -> dict[str, str]:
    headers = {
        "x-amz-sns-message-type": kind,
        "x-amz-sns-message-id": message_id,
        "x-amz-sns-topic-arn": subscription.topic.arn,
        "Content-Type": subscription.plan.content_type,
        "User-Agent": USER_AGENT,
        "Accept-Encoding": "gzip,deflate",
    }
    if with_arn:
        headers["x-amz-sns-subscription-arn"] = subscription.arn
    return headers
