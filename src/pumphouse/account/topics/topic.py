"""A topic and its subscriptions, as the account holds them."""

from __future__ import annotations

import json
from typing import Any

from pumphouse.account.deduplication import Deduplication
from pumphouse.account.topics.delivery_policy import RetryPlan, plan_of, subscription_policy
from pumphouse.account.topics.filter_policy import ATTRIBUTES, FilterPolicy
from pumphouse.account.topics.settings import TopicSettings
from pumphouse.protocol.names import TopicName, partition_of

_DEFAULT_ACTIONS = (
    "GetTopicAttributes",
    "SetTopicAttributes",
    "AddPermission",
    "RemovePermission",
    "DeleteTopic",
    "Subscribe",
    "ListSubscriptionsByTopic",
    "Publish",
)


class Topic:
    """One topic. `subscriptions` are by ARN, those that wait for their confirmation too."""

    __slots__ = (
        "arn",
        "by_endpoint",
        "deduplication",
        "deleted",
        "deleted_subscriptions",
        "name",
        "settings",
        "subscriptions",
        "tags",
    )

    def __init__(self, name: TopicName, settings: TopicSettings) -> None:
        self.name = name
        self.arn = name.arn()
        self.settings = settings
        self.tags: dict[str, str] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.by_endpoint: dict[tuple[str, str], Subscription] = {}
        self.deleted_subscriptions = 0
        self.deleted = False
        self.deduplication = _deduplication(settings)

    @property
    def is_fifo(self) -> bool:
        return self.settings.fifo

    def add(self, subscription: Subscription) -> None:
        """Take a subscription, new or back again."""
        self.subscriptions[subscription.arn] = subscription
        self.by_endpoint[subscription.protocol, subscription.endpoint] = subscription

    def remove(self, subscription: Subscription) -> bool:
        """End a subscription; False where it is none of this topic's any more."""
        if self.subscriptions.pop(subscription.arn, None) is None:
            return False
        self.by_endpoint.pop((subscription.protocol, subscription.endpoint), None)
        self.deleted_subscriptions += 1
        return True

    @property
    def policy(self) -> str:
        """The access policy: the owner's own where none was set."""
        return self.settings.policy or json.dumps(
            default_policy(self.name), separators=(",", ":"), ensure_ascii=False
        )

    def configure(self, settings: TopicSettings) -> None:
        """Take other settings; they hold at once."""
        if settings.throughput_scope != self.settings.throughput_scope:
            self.deduplication = _deduplication(settings)
        self.settings = settings

    def __repr__(self) -> str:
        pending = sum(each.pending for each in self.subscriptions.values())
        waiting = f", {pending} of them pending" if pending else ""
        return f"<Topic {self.name.name}: {len(self.subscriptions)} subscriptions{waiting}>"


def _deduplication(settings: TopicSettings) -> Deduplication:
    per_group = settings.throughput_scope == "MessageGroup"
    return Deduplication("messageGroup" if per_group else "queue")


def default_policy(name: TopicName) -> dict[str, Any]:
    """The access policy that every topic begins with."""
    return {
        "Version": "2008-10-17",
        "Id": "__default_policy_ID",
        "Statement": [
            {
                "Sid": "__default_statement_ID",
                "Effect": "Allow",
                "Principal": {"AWS": "*"},
                "Action": [f"SNS:{action}" for action in _DEFAULT_ACTIONS],
                "Resource": name.arn(),
                "Condition": {"StringEquals": {"AWS:SourceOwner": name.account_id}},
            }
        ],
    }


class Subscription:
    """One subscription of a topic.

    `token` confirms it for two days, and "" is that of one that needs no confirmation.
    `filter_policy` is compiled when it is set. `dead_letter_arn` is the queue of its redrive
    policy, or "". `number` is its place among all of the account.
    """

    __slots__ = (
        "arn",
        "authenticated",
        "dead_letter_arn",
        "delivery_policy",
        "endpoint",
        "filter_policy",
        "filter_scope",
        "number",
        "orphaned",
        "owner",
        "pending",
        "protocol",
        "raw",
        "redrive_policy",
        "role_arn",
        "token",
        "token_until",
        "topic",
    )

    def __init__(self, arn: str, topic: Topic, owner: str, protocol: str, endpoint: str) -> None:
        self.arn = arn
        self.topic = topic
        self.owner = owner
        self.protocol = protocol
        self.endpoint = endpoint
        self.raw = False
        self.filter_policy: FilterPolicy | None = None
        self.filter_scope = ATTRIBUTES
        self.redrive_policy = ""
        self.dead_letter_arn = ""
        self.delivery_policy = ""
        self.role_arn = ""
        self.number = 0
        self.token = ""
        self.token_until = 0.0  # on the clock's `monotonic()`
        self.pending = False
        self.authenticated = True
        self.orphaned: float | None = None
        """When its topic was deleted, on the clock's `monotonic()`."""

    @property
    def is_http(self) -> bool:
        return self.protocol in ("http", "https")

    @property
    def plan(self) -> RetryPlan:
        """How HTTP deliveries are tried, as its topic's policy and its own say now."""
        return plan_of(self.topic.settings.delivery_policy, self.delivery_policy)

    def shown(self) -> dict[str, str]:
        """The attributes as `GetSubscriptionAttributes` answers them."""
        partition = partition_of(self.topic.name.region)
        found = {
            "SubscriptionArn": self.arn,
            "TopicArn": self.topic.arn,
            "Protocol": self.protocol,
            "Endpoint": self.endpoint,
            "Owner": self.owner,
            "SubscriptionPrincipal": f"arn:{partition}:iam::{self.owner}:user/pumphouse",
            "ConfirmationWasAuthenticated": _flag(self.authenticated),
            "PendingConfirmation": _flag(self.pending),
            "RawMessageDelivery": _flag(self.raw),
        }
        if self.filter_policy is not None:
            found["FilterPolicy"] = self.filter_policy.text
            found["FilterPolicyScope"] = self.filter_scope
        if self.is_http:
            policy = subscription_policy(self.topic.settings.delivery_policy, self.delivery_policy)
            found["EffectiveDeliveryPolicy"] = json.dumps(policy, separators=(",", ":"))
        others = {
            "RedrivePolicy": self.redrive_policy,
            "DeliveryPolicy": self.delivery_policy,
            "SubscriptionRoleArn": self.role_arn,
        }
        return found | {name: text for name, text in others.items() if text}

    def __repr__(self) -> str:
        state = " (pending)" if self.pending else ""
        return f"<Subscription of {self.topic.name.name}: {self.protocol} {self.endpoint}{state}>"


def _flag(value: bool) -> str:
    return "true" if value else "false"
