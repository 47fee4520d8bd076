"""The actions on topics as such: creating, finding, setting and deleting them, tags, permissions.

One handler per action; each raises what AWS raises, and validates before it changes anything.
Access policies are stored and shown, and not enforced: an account lets everyone in.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from pumphouse.account.topics.references import check_arn, find_topic, invalid, topic_of
from pumphouse.account.topics.settings import (
    DEFAULT_MESSAGE_BYTES,
    MAX_LARGE_MESSAGE_SUBSCRIPTIONS,
    OUT_OF_SCOPE,
    TopicSettings,
    created,
    is_policy_action,
)
from pumphouse.account.topics.topic import Topic
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import TopicName, partition_of
from pumphouse.protocol.operations import DONE, Done, Operation
from pumphouse.protocol.sns_operations import (
    AddTopicPermission,
    CreateTopic,
    CreateTopicResult,
    DeleteTopic,
    GetTopicAttributes,
    GetTopicAttributesResult,
    ListTagsForResource,
    ListTagsForResourceResult,
    ListTopics,
    ListTopicsResult,
    RemoveTopicPermission,
    SetTopicAttributes,
    Tag,
    TagResource,
    TagResourceResult,
    TopicReference,
    UntagResource,
    UntagResourceResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

T = TypeVar("T")

PAGE = 100
MAX_TAGS = 50
MAX_TAG_KEY = 128
MAX_TAG_VALUE = 256

_TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")


# --- topics -------------------------------------------------------------------------------------


def create_topic(scope: Scope, operation: CreateTopic) -> CreateTopicResult:
    """A new topic, or the one of this name where every attribute and tag that is named is the
    same."""
    attributes = operation.attributes or {}
    tags = _checked(operation.tags or [])
    settings = created(operation.name, attributes)
    topic = scope.topics.get(operation.name)
    if topic is not None:
        if topic.settings.differs(attributes):
            raise invalid("Attributes Reason: Topic already exists with different attributes")
        if not tags.items() <= topic.tags.items():
            raise invalid("Tags Reason: Topic already exists with different tags")
        return CreateTopicResult(topic.arn)
    _check_quota(tags)
    topic = Topic(TopicName(operation.name, scope.account_id, scope.region), settings)
    topic.tags = tags
    scope.topics[operation.name] = topic
    return CreateTopicResult(topic.arn)


def delete_topic(scope: Scope, operation: DeleteTopic) -> Done:
    """The topic is gone at once; one that is not there is no fault, one that has an archive is."""
    topic = find_topic(scope, operation.topic_arn)
    if topic is None:
        return DONE
    if topic.settings.archive_policy:
        raise fault(
            "InvalidState", "Invalid state: Cannot delete a topic with an ArchivePolicy", "sns"
        )
    home = scope.account.within(region=topic.name.region, account_id=topic.name.account_id)
    del home.topics[topic.name.name]
    scope.account.forget_topic(topic)
    topic.deleted = True
    scope.account.topics.orphan(topic.subscriptions.values(), scope.clock.monotonic())
    topic.subscriptions.clear()
    topic.by_endpoint.clear()
    return DONE


def get_topic_attributes(scope: Scope, operation: GetTopicAttributes) -> GetTopicAttributesResult:
    """Every attribute of a topic."""
    topic = topic_of(scope, operation.topic_arn)
    pending = sum(each.pending for each in topic.subscriptions.values())
    return GetTopicAttributesResult(
        {
            "TopicArn": topic.arn,
            "Owner": topic.name.account_id,
            "Policy": topic.policy,
            "SubscriptionsConfirmed": str(len(topic.subscriptions) - pending),
            "SubscriptionsPending": str(pending),
            "SubscriptionsDeleted": str(topic.deleted_subscriptions),
            **topic.settings.shown(),
        }
    )


def set_topic_attributes(scope: Scope, operation: SetTopicAttributes) -> Done:
    """Change one attribute; it holds at once."""
    topic = topic_of(scope, operation.topic_arn)
    settings = topic.settings.changed(operation.attribute_name, operation.attribute_value or "")
    _check_large_messages(topic, settings)
    topic.configure(settings)
    return DONE


def _check_large_messages(topic: Topic, settings: TopicSettings) -> None:
    if settings.maximum_message_size <= DEFAULT_MESSAGE_BYTES:
        return
    if len(topic.subscriptions) > MAX_LARGE_MESSAGE_SUBSCRIPTIONS:
        raise invalid(
            "MaximumMessageSize Reason: A topic with a MaximumMessageSize above "
            f"{DEFAULT_MESSAGE_BYTES} must have {MAX_LARGE_MESSAGE_SUBSCRIPTIONS} or fewer "
            "subscriptions"
        )
    if any(each.protocol != "sqs" for each in topic.subscriptions.values()):
        raise invalid(
            "MaximumMessageSize Reason: A topic with a MaximumMessageSize above "
            f"{DEFAULT_MESSAGE_BYTES} can't have a subscription of this protocol"
        )


def list_topics(scope: Scope, operation: ListTopics) -> ListTopicsResult:
    """The topics of this region and account id by name, a hundred at a time."""
    topics = sorted(scope.topics.values(), key=_name_of)
    page, token = page_of(topics, _name_of, operation.next_token)
    return ListTopicsResult([TopicReference(topic.arn) for topic in page], token)


def _name_of(topic: Topic) -> str:
    return topic.name.name


def page_of(
    items: Sequence[T], key: Callable[[T], str], token: str | None
) -> tuple[Sequence[T], str | None]:
    """One page of items that are sorted by their keys, and the token of the next.

    A token is the key before the page, so that what is deleted between two pages moves nothing.
    """
    start = bisect_right(items, _key_of(token), key=key) if token else 0
    page = items[start : start + PAGE]
    more = start + PAGE < len(items)
    return page, _token_of(key(page[-1])) if more else None


def _token_of(key: str) -> str:
    return urlsafe_b64encode(f"after:{key}".encode()).decode()


def _key_of(token: str) -> str:
    try:
        kind, _, key = urlsafe_b64decode(token.encode()).decode().partition(":")
    except ValueError:
        kind = key = ""
    if kind != "after" or not key:
        raise invalid("NextToken")
    return key


# --- tags ---------------------------------------------------------------------------------------


def _tagged(scope: Scope, arn: str) -> Topic:
    check_arn(arn, "ResourceArn")
    topic = find_topic(scope, arn, "ResourceArn")
    if topic is None:
        raise fault("ResourceNotFound", "Resource does not exist", "sns")
    return topic


def list_tags_for_resource(
    scope: Scope, operation: ListTagsForResource
) -> ListTagsForResourceResult:
    """A topic's tags."""
    tags = _tagged(scope, operation.resource_arn).tags
    return ListTagsForResourceResult([Tag(key, tags[key]) for key in sorted(tags)])


def tag_resource(scope: Scope, operation: TagResource) -> TagResourceResult:
    """Add tags; one with a known key takes the other's place."""
    topic = _tagged(scope, operation.resource_arn)
    tags = topic.tags | _checked(operation.tags)
    _check_quota(tags)
    topic.tags = tags
    return TagResourceResult()


def untag_resource(scope: Scope, operation: UntagResource) -> UntagResourceResult:
    """Take tags away; a key that the topic does not have is no fault."""
    topic = _tagged(scope, operation.resource_arn)
    for key in operation.tag_keys:
        topic.tags.pop(key, None)
    return UntagResourceResult()


def _checked(tags: list[Tag]) -> dict[str, str]:
    """Tags by their keys. Raises AWS's faults for those that can't be."""
    for number, tag in enumerate(tags, 1):
        where = f"tags.{number}.member"
        if not tag.key:
            raise _constraint(tag.key, f"{where}.key", "greater than or equal to 1")
        if len(tag.key) > MAX_TAG_KEY:
            raise _constraint(tag.key, f"{where}.key", f"less than or equal to {MAX_TAG_KEY}")
        if len(tag.value) > MAX_TAG_VALUE:
            raise _constraint(tag.value, f"{where}.value", f"less than or equal to {MAX_TAG_VALUE}")
        if not (_TAG_TEXT.fullmatch(tag.key) and _TAG_TEXT.fullmatch(tag.value)):
            raise invalid("Tags Reason: The given tag(s) contain invalid characters")
        if tag.key.lower().startswith("aws:"):
            raise invalid(f"Tags Reason: The prefix of the tag {tag.key} is reserved")
    found = {tag.key: tag.value for tag in tags}
    if len(found) < len(tags):
        raise invalid("Duplicated keys are not allowed.")
    return found


def _constraint(value: str, where: str, length: str) -> ServiceError:
    return fault(
        "ValidationError",
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy constraint: "
        f"Member must have length {length}",
        "sns",
    )


def _check_quota(tags: dict[str, str]) -> None:
    if len(tags) > MAX_TAGS:
        raise fault(
            "TagLimitExceeded",
            "Could not complete request: tag quota of per resource exceeded",
            "sns",
        )


# --- permissions --------------------------------------------------------------------------------


def add_permission(scope: Scope, operation: AddTopicPermission) -> Done:
    """Add the statement of a label that the policy does not have yet."""
    topic = topic_of(scope, operation.topic_arn)
    actions = operation.action_name
    policy, statements = _policy_of(topic)
    if any(statement.get("Sid") == operation.label for statement in statements):
        raise invalid("Statement already exists")
    if not operation.label or not operation.aws_account_id or not actions:
        raise invalid("Label, AWSAccountId and ActionName must not be empty")
    if not all(is_policy_action(action) for action in actions):
        raise invalid(OUT_OF_SCOPE)
    partition = partition_of(topic.name.region)
    statements.append(
        {
            "Sid": operation.label,
            "Effect": "Allow",
            "Principal": {
                "AWS": _one_or_all(
                    [f"arn:{partition}:iam::{each}:root" for each in operation.aws_account_id]
                )
            },
            "Action": _one_or_all([f"SNS:{action}" for action in actions]),
            "Resource": topic.arn,
        }
    )
    _write_policy(topic, policy, statements)
    return DONE


def remove_permission(scope: Scope, operation: RemoveTopicPermission) -> Done:
    """Take the statements of a label away."""
    topic = topic_of(scope, operation.topic_arn)
    policy, statements = _policy_of(topic)
    rest = [each for each in statements if each.get("Sid") != operation.label]
    if len(rest) == len(statements):
        raise _no_label()
    _write_policy(topic, policy, rest)
    return DONE


def _no_label() -> ServiceError:
    return fault("NotFound", "Statement does not exist", "sns")


def _policy_of(topic: Topic) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    policy: dict[str, Any] = json.loads(topic.policy)
    statements = policy["Statement"]
    return policy, [statements] if isinstance(statements, dict) else list(statements)


def _write_policy(topic: Topic, policy: dict[str, Any], statements: list[dict[str, Any]]) -> None:
    text = json.dumps(
        {**policy, "Statement": statements}, separators=(",", ":"), ensure_ascii=False
    )
    topic.configure(replace(topic.settings, policy=text))


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    AddTopicPermission: add_permission,
    CreateTopic: create_topic,
    DeleteTopic: delete_topic,
    GetTopicAttributes: get_topic_attributes,
    ListTagsForResource: list_tags_for_resource,
    ListTopics: list_topics,
    RemoveTopicPermission: remove_permission,
    SetTopicAttributes: set_topic_attributes,
    TagResource: tag_resource,
    UntagResource: untag_resource,
}
"""The handler of each operation: it takes the scope and the operation."""
