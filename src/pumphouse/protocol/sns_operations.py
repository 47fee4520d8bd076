"""Every SNS action on topics and subscriptions as a typed value, with the type of its result.

The shapes are AWS's (botocore's `sns/2010-03-31` model), as those of SQS are in `operations.py`;
what both are made of is in `shapes.py`. Two actions share their names with SQS's and are called
`AddTopicPermission` and `RemoveTopicPermission` here. Left out are SMS, platform applications and
data protection policies. How the values travel is `sns_query.py`'s; what is refused is said by the
service (`account/`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, field

from pumphouse.protocol.shapes import (
    Attributes,
    BatchResultErrorEntry,
    Done,
    Operation,
    R,
    Result,
    Shape,
)


class SnsOperation(Operation[R], frozen=True):
    """One action of SNS."""

    service: ClassVar[str] = "sns"


class Tag(Shape, frozen=True):
    key: str
    value: str


# --- topics -------------------------------------------------------------------------------------


class CreateTopicResult(Result, frozen=True):
    topic_arn: str


class CreateTopic(SnsOperation[CreateTopicResult], frozen=True):
    action = "CreateTopic"
    result = CreateTopicResult

    name: str
    attributes: dict[str, str] | None = None
    tags: list[Tag] | None = None
    data_protection_policy: str | None = None


class DeleteTopic(SnsOperation[Done], frozen=True):
    action = "DeleteTopic"
    result = Done

    topic_arn: str


class GetTopicAttributesResult(Result, frozen=True):
    attributes: dict[str, str] = field(default_factory=dict)


class GetTopicAttributes(SnsOperation[GetTopicAttributesResult], frozen=True):
    action = "GetTopicAttributes"
    result = GetTopicAttributesResult

    topic_arn: str


class SetTopicAttributes(SnsOperation[Done], frozen=True):
    action = "SetTopicAttributes"
    result = Done

    topic_arn: str
    attribute_name: str
    attribute_value: str | None = None


class TopicReference(Shape, frozen=True):
    """A topic in a list of topics (AWS calls this shape `Topic`)."""

    topic_arn: str


class ListTopicsResult(Result, frozen=True):
    topics: list[TopicReference] = field(default_factory=list)
    next_token: str | None = None


class ListTopics(SnsOperation[ListTopicsResult], frozen=True):
    action = "ListTopics"
    result = ListTopicsResult

    next_token: str | None = None


class AddTopicPermission(SnsOperation[Done], frozen=True):
    action = "AddPermission"
    result = Done
    repeatable = False  # the second time the label exists

    topic_arn: str
    label: str
    aws_account_id: list[str]
    action_name: list[str]


class RemoveTopicPermission(SnsOperation[Done], frozen=True):
    action = "RemovePermission"
    result = Done
    repeatable = False  # the second time the label is gone

    topic_arn: str
    label: str


class ListTagsForResourceResult(Result, frozen=True):
    tags: list[Tag] = field(default_factory=list)


class ListTagsForResource(SnsOperation[ListTagsForResourceResult], frozen=True):
    action = "ListTagsForResource"
    result = ListTagsForResourceResult

    resource_arn: str


class TagResourceResult(Result, frozen=True):
    """An empty structure, which is not the same as no result to the query protocol."""


class TagResource(SnsOperation[TagResourceResult], frozen=True):
    action = "TagResource"
    result = TagResourceResult

    resource_arn: str
    tags: list[Tag]


class UntagResourceResult(Result, frozen=True):
    """An empty structure, which is not the same as no result to the query protocol."""


class UntagResource(SnsOperation[UntagResourceResult], frozen=True):
    action = "UntagResource"
    result = UntagResourceResult

    resource_arn: str
    tag_keys: list[str]


# --- subscriptions ------------------------------------------------------------------------------


class SubscribeResult(Result, frozen=True):
    subscription_arn: str | None = None


class Subscribe(SnsOperation[SubscribeResult], frozen=True):
    """`protocol` is `sqs`, `http`, `https`, … and `endpoint` a queue's ARN or a URL."""

    action = "Subscribe"
    result = SubscribeResult

    topic_arn: str
    protocol: str
    endpoint: str | None = None
    attributes: dict[str, str] | None = None
    return_subscription_arn: bool | None = None


class ConfirmSubscriptionResult(Result, frozen=True):
    subscription_arn: str | None = None


class ConfirmSubscription(SnsOperation[ConfirmSubscriptionResult], frozen=True):
    action = "ConfirmSubscription"
    result = ConfirmSubscriptionResult

    topic_arn: str
    token: str
    authenticate_on_unsubscribe: str | None = None


class Unsubscribe(SnsOperation[Done], frozen=True):
    action = "Unsubscribe"
    result = Done

    subscription_arn: str


class GetSubscriptionAttributesResult(Result, frozen=True):
    attributes: dict[str, str] = field(default_factory=dict)


class GetSubscriptionAttributes(SnsOperation[GetSubscriptionAttributesResult], frozen=True):
    action = "GetSubscriptionAttributes"
    result = GetSubscriptionAttributesResult

    subscription_arn: str


class SetSubscriptionAttributes(SnsOperation[Done], frozen=True):
    action = "SetSubscriptionAttributes"
    result = Done

    subscription_arn: str
    attribute_name: str
    attribute_value: str | None = None


class SubscriptionReference(Shape, frozen=True):
    """A subscription in a list of subscriptions (AWS calls this shape `Subscription`)."""

    subscription_arn: str
    owner: str
    protocol: str
    endpoint: str
    topic_arn: str


class ListSubscriptionsResult(Result, frozen=True):
    subscriptions: list[SubscriptionReference] = field(default_factory=list)
    next_token: str | None = None


class ListSubscriptions(SnsOperation[ListSubscriptionsResult], frozen=True):
    action = "ListSubscriptions"
    result = ListSubscriptionsResult

    next_token: str | None = None


class ListSubscriptionsByTopicResult(Result, frozen=True):
    subscriptions: list[SubscriptionReference] = field(default_factory=list)
    next_token: str | None = None


class ListSubscriptionsByTopic(SnsOperation[ListSubscriptionsByTopicResult], frozen=True):
    action = "ListSubscriptionsByTopic"
    result = ListSubscriptionsByTopicResult

    topic_arn: str
    next_token: str | None = None


# --- publishing ---------------------------------------------------------------------------------


class PublishResult(Result, frozen=True):
    message_id: str
    sequence_number: str | None = None


class Publish(SnsOperation[PublishResult], frozen=True):
    """`message_structure` is None or `json`; `trace_header` travels as a request's
    `X-Amzn-Trace-Id`, outside AWS's structure."""

    action = "Publish"
    result = PublishResult
    repeatable = False  # on a FIFO topic it is; the caller knows

    message: str
    topic_arn: str | None = None
    target_arn: str | None = None
    phone_number: str | None = None
    subject: str | None = None
    message_structure: str | None = None
    message_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None
    trace_header: str | None = None


class PublishBatchRequestEntry(Shape, frozen=True):
    id: str
    message: str
    subject: str | None = None
    message_structure: str | None = None
    message_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class PublishBatchResultEntry(Shape, frozen=True):
    id: str | None = None
    message_id: str | None = None
    sequence_number: str | None = None


class PublishBatchResult(Result, frozen=True):
    successful: list[PublishBatchResultEntry] = field(default_factory=list)
    failed: list[BatchResultErrorEntry] = field(default_factory=list)


class PublishBatch(SnsOperation[PublishBatchResult], frozen=True):
    """`trace_header` is that of `Publish`, for all entries."""

    action = "PublishBatch"
    result = PublishBatchResult
    repeatable = False

    topic_arn: str
    publish_batch_request_entries: list[PublishBatchRequestEntry]
    trace_header: str | None = None


OUTSIDE_THE_MODEL: dict[type[Struct], frozenset[str]] = {
    Publish: frozenset({"trace_header"}),
    PublishBatch: frozenset({"trace_header"}),
}
"""Fields that have no place in AWS's structures."""

SNS_OPERATIONS: dict[str, type[Operation[Any]]] = {
    operation.action: operation
    for operation in (
        AddTopicPermission,
        ConfirmSubscription,
        CreateTopic,
        DeleteTopic,
        GetSubscriptionAttributes,
        GetTopicAttributes,
        ListSubscriptions,
        ListSubscriptionsByTopic,
        ListTagsForResource,
        ListTopics,
        Publish,
        PublishBatch,
        RemoveTopicPermission,
        SetSubscriptionAttributes,
        SetTopicAttributes,
        Subscribe,
        TagResource,
        Unsubscribe,
        UntagResource,
    )
}
"""The 19 SNS actions that are known, by AWS's name."""
