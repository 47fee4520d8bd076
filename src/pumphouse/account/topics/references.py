"""From the ARNs of requests to topics and subscriptions, and AWS's words for wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pumphouse.account.topics.store import ORPHAN_SECONDS
from pumphouse.account.topics.topic import Subscription, Topic
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import is_topic_name, parse_topic_arn

if TYPE_CHECKING:
    from pumphouse.account.account import Scope


def invalid(what: str) -> ServiceError:
    """AWS's fault for a parameter that can't be: `InvalidParameter`."""
    return fault("InvalidParameter", f"Invalid parameter: {what}", "sns")


def topic_of(scope: Scope, arn: str, parameter: str = "TopicArn") -> Topic:
    """The topic of an ARN. Raises AWS's faults where it is none, elsewhere, or not there."""
    topic = find_topic(scope, arn, parameter)
    if topic is None:
        raise fault("NotFound", "Topic does not exist", "sns")
    return topic


def find_topic(scope: Scope, arn: str, parameter: str = "TopicArn") -> Topic | None:
    """The topic of an ARN, if there is one. Raises AWS's faults for an ARN that is wrong."""
    topic = scope.topics_by_arn.get(arn)
    if topic is not None and not topic.deleted:
        return topic
    check_arn(arn, parameter)
    try:
        name = parse_topic_arn(arn)
    except ValueError:
        raise invalid(parameter) from None
    if name.region != scope.region or not is_topic_name(name.name):
        raise invalid(parameter)
    home = scope.account.scope(name.region, name.account_id)
    topic = home.topics.get(name.name) if home is not None else None
    if topic is None:
        scope.topics_by_arn.pop(arn, None)
    else:
        scope.topics_by_arn[arn] = topic
    return topic


def check_arn(arn: str, parameter: str) -> None:
    """Raise AWS's fault for a text with too few parts for an ARN."""
    parts = arn.split(":")
    if len(parts) < 6:
        raise invalid(f"{parameter} Reason: An ARN must have at least 6 elements, not {len(parts)}")


def subscription_of(scope: Scope, arn: str) -> Subscription:
    """The subscription of an ARN. Raises AWS's faults where it is none or not there."""
    check_arn(arn, "SubscriptionArn")
    subscription = scope.account.topics.subscriptions.get(arn)
    if subscription is None or subscription.topic.name.region != scope.region:
        raise fault("NotFound", "Subscription does not exist", "sns")
    orphaned = subscription.orphaned
    if orphaned is not None and scope.clock.monotonic() >= orphaned + ORPHAN_SECONDS:
        del scope.account.topics.subscriptions[arn]
        raise fault("NotFound", "Subscription does not exist", "sns")
    return subscription
