"""Whatever an attribute or a message says: it is taken or refused, and what is taken works."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.account.topics.notifying import HttpDelivery
from pumphouse.account.topics.signing import Signer
from pumphouse.clock import VirtualClock
from pumphouse.errors import ServiceError
from pumphouse.protocol.operations import CreateQueue, MessageAttributeValue
from pumphouse.protocol.sns_operations import (
    AddTopicPermission,
    ConfirmSubscription,
    CreateTopic,
    GetSubscriptionAttributes,
    GetTopicAttributes,
    Publish,
    RemoveTopicPermission,
    SetSubscriptionAttributes,
    SetTopicAttributes,
    Subscribe,
)

QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"

NAMES = st.sampled_from(
    [
        "http",
        "defaultHealthyRetryPolicy",
        "healthyRetryPolicy",
        "sicklyRetryPolicy",
        "requestPolicy",
        "defaultRequestPolicy",
        "headerContentType",
        "throttlePolicy",
        "maxReceivesPerSecond",
        "numRetries",
        "numNoDelayRetries",
        "minDelayTarget",
        "maxDelayTarget",
        "backoffFunction",
        "disableSubscriptionOverrides",
        "guaranteed",
        "Statement",
        "Effect",
        "Action",
        "Sid",
        "deadLetterTargetArn",
        "MessageRetentionPeriod",
        "$or",
        "prefix",
        "numeric",
        "exists",
        "anything-but",
        "cidr",
        "wildcard",
        "equals-ignore-case",
        "a",
        "b",
    ]
) | st.text(max_size=3)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 4000)
    | st.integers()
    | st.floats()
    | st.sampled_from(["linear", "text/plain", "Allow", "SNS:Publish", QUEUE, ">", "10.0.0.0/8"])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


def part(*names: str) -> st.SearchStrategy[Any]:
    """An object of some of these members, each of a wrong kind or of a right one."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, LEAVES)) | LEAVES


RETRY = part("numRetries", "numNoDelayRetries", "minDelayTarget", "maxDelayTarget", "other")
REQUEST, THROTTLE = part("headerContentType"), part("maxReceivesPerSecond")
OWN_POLICY = st.fixed_dictionaries(
    {},
    optional={
        "healthyRetryPolicy": RETRY,
        "sicklyRetryPolicy": RETRY,
        "requestPolicy": REQUEST,
        "throttlePolicy": THROTTLE,
        "guaranteed": LEAVES,
    },
)
TOPICS_POLICY = st.fixed_dictionaries(
    {},
    optional={
        "defaultHealthyRetryPolicy": RETRY,
        "defaultRequestPolicy": REQUEST,
        "defaultThrottlePolicy": THROTTLE,
        "disableSubscriptionOverrides": LEAVES,
    },
).map(lambda http: {"http": http})
STATEMENTS = st.lists(part("Sid", "Effect", "Action"), max_size=2).map(lambda s: {"Statement": s})
TEXTS = (
    VALUES.map(json.dumps)
    | st.text(max_size=8)
    | st.sampled_from(["true", "false", "1", "2", "MessageBody", "Active", "MessageGroup", "["])
)
TOPIC = st.sampled_from(
    [
        "ArchivePolicy",
        "ContentBasedDeduplication",
        "DeliveryPolicy",
        "DisplayName",
        "FifoThroughputScope",
        "FifoTopic",
        "KmsMasterKeyId",
        "MaximumMessageSize",
        "Policy",
        "SQSSuccessFeedbackSampleRate",
        "SignatureVersion",
        "TracingConfig",
        "Other",
    ]
)
SUBSCRIPTION = st.sampled_from(
    [
        "DeliveryPolicy",
        "FilterPolicy",
        "FilterPolicyScope",
        "RawMessageDelivery",
        "RedrivePolicy",
        "SubscriptionRoleArn",
        "Other",
    ]
)


SIGNER = Signer(VirtualClock())  # a key of its own for every example would take most of the time


def change(names: st.SearchStrategy[str], **policies: st.SearchStrategy[Any]) -> Any:
    """An attribute with any text, or one of these with a policy of its form."""
    formed = [st.tuples(st.just(n), each.map(json.dumps)) for n, each in policies.items()]
    return st.one_of(st.tuples(names, TEXTS), *formed)


TOPIC_CHANGE = change(TOPIC, DeliveryPolicy=TOPICS_POLICY, Policy=STATEMENTS)
SUBSCRIPTION_CHANGE = change(
    SUBSCRIPTION, DeliveryPolicy=OWN_POLICY, RedrivePolicy=part("deadLetterTargetArn")
)


class Setting:
    """A topic with a queue and an HTTP endpoint, and what they are sent."""

    def __init__(self, fifo: bool) -> None:
        self.fifo = fifo
        self.clock = VirtualClock()
        self.account = Account(clock=self.clock, deliver=self._deliver)
        self.account.topics.signer = SIGNER
        self.group = "g" if fifo else None

    async def _deliver(self, delivery: HttpDelivery) -> int:
        delivery.body.decode()
        assert all(isinstance(each, str) for each in delivery.headers.values())
        return 500

    async def make(self) -> None:
        suffix = ".fifo" if self.fifo else ""
        fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "true"} if self.fifo else None
        self.topic = (await self.account.execute(CreateTopic(f"t{suffix}", fifo))).topic_arn
        queue = QUEUE + suffix
        queue_fifo = {"FifoQueue": "true"} if self.fifo else None
        await self.account.execute(CreateQueue(f"queue{suffix}", queue_fifo))
        self.arns = [
            (await self.account.execute(Subscribe(self.topic, "sqs", queue))).subscription_arn
        ]
        if not self.fifo:
            asked = Subscribe(self.topic, "http", "http://127.0.0.1:9/", {}, True)
            self.arns.append((await self.account.execute(asked)).subscription_arn)
            token = self.account.topics.subscriptions[str(self.arns[1])].token
            await self.account.execute(ConfirmSubscription(self.topic, token))

    async def maybe(self, operation: Any) -> bool:
        """Whether it is taken; a refusal is AWS's, and the sender's fault."""
        try:
            await self.account.execute(operation)
        except ServiceError as error:
            if error.status >= 500:
                raise
            return False
        return True

    async def works(self) -> None:
        """What there is can be looked at, and delivers."""
        await self.account.execute(GetTopicAttributes(self.topic))
        for arn in self.arns:
            await self.account.execute(GetSubscriptionAttributes(str(arn)))
        await self.account.execute(
            Publish('{"a": [1, "x"]}', self.topic, message_group_id=self.group)
        )
        await self.clock.advance(1)
        await self.account.aclose()


@settings(max_examples=40, deadline=None)
@given(st.lists(TOPIC_CHANGE, min_size=1, max_size=4), st.booleans())
def test_any_attribute_of_a_topic(changes: list[tuple[str, str]], fifo: bool) -> None:
    async def play() -> None:
        setting = Setting(fifo)
        await setting.make()
        for name, text in changes:
            if await setting.maybe(SetTopicAttributes(setting.topic, name, text)):
                await setting.maybe(
                    SetTopicAttributes(setting.topic, "ContentBasedDeduplication", "true")
                )
        await setting.maybe(AddTopicPermission(setting.topic, "l", ["111122223333"], ["Publish"]))
        await setting.maybe(RemoveTopicPermission(setting.topic, "l"))
        await setting.maybe(CreateTopic("other.fifo" if fifo else "other", dict(changes)))
        await setting.works()

    asyncio.run(play())


@settings(max_examples=40, deadline=None)
@given(st.lists(SUBSCRIPTION_CHANGE, min_size=1, max_size=4), st.booleans())
def test_any_attribute_of_a_subscription(changes: list[tuple[str, str]], fifo: bool) -> None:
    async def play() -> None:
        setting = Setting(fifo)
        await setting.make()
        for name, text in changes:
            for arn in setting.arns:
                await setting.maybe(SetSubscriptionAttributes(str(arn), name, text))
        await setting.maybe(Subscribe(setting.topic, "sqs", f"{QUEUE}2", dict(changes)))
        await setting.works()

    asyncio.run(play())


@settings(max_examples=40, deadline=None)
@given(
    TEXTS | VALUES.map(lambda value: json.dumps({"default": "d", "sqs": value})),
    st.none() | st.text(max_size=5),
    st.sampled_from([None, "json"]),
    st.dictionaries(
        st.text(max_size=3),
        st.builds(
            MessageAttributeValue,
            st.sampled_from(["String", "Number", "Binary", "String.Array"]) | st.text(max_size=9),
            st.none() | TEXTS,
            st.none() | st.binary(max_size=3),
        ),
        max_size=2,
    ),
    st.booleans(),
)
def test_any_message(
    message: str, subject: str | None, structure: str | None, attributes: Any, raw: bool
) -> None:
    async def play() -> None:
        setting = Setting(False)
        await setting.make()
        for arn in setting.arns:
            value = "true" if raw else "false"
            await setting.maybe(SetSubscriptionAttributes(str(arn), "RawMessageDelivery", value))
        operation = Publish(
            message,
            setting.topic,
            subject=subject,
            message_structure=structure,
            message_attributes=attributes,
        )
        await setting.maybe(operation)
        await setting.works()

    asyncio.run(play())
