"""`subscribe_queue_to_topic`: a subscription, and the permission that it needs to deliver.

SNS delivers to a queue only what the queue's policy lets it send; the statement that it needs is
that of "Fanout to Amazon SQS queues" in the SNS developer guide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from pumphouse.addressing import QueueUrls, Topic, TopicArns
from pumphouse.backend import Backend
from pumphouse.errors import ConfigError, RefusedError, UsageError
from pumphouse.protocol.operations import GetQueueAttributes, SetQueueAttributes
from pumphouse.protocol.sns_operations import (
    GetSubscriptionAttributes,
    ListSubscriptionsByTopic,
    SetSubscriptionAttributes,
    Subscribe,
)

_MOST_PAGES = 1_000
_PENDING = "PendingConfirmation"
"""What lists show in the place of an ARN."""
_NONE = {"FilterPolicy": "{}", "RedrivePolicy": ""}
"""What takes an attribute away that is not wanted."""


async def subscribe_queue_to_topic(
    backend: Backend,
    queue: str,
    topic: Topic | str,
    *,
    raw_message_delivery: bool = True,
    filter_policy: Mapping[str, Any] | None = None,
    filter_policy_scope: Literal["MessageAttributes", "MessageBody"] = "MessageAttributes",
    dead_letter: str | None = None,
) -> str:
    """Subscribe a queue to a topic and let the topic send to it; returns the subscription's ARN.

    The queue (a name, URL or ARN) and the topic exist. The statement that permits the topic is
    merged into the queue's policy, beside whatever is in it. `dead_letter` is a queue for what SNS
    can't deliver to this one, and gets the statement as well. Done twice it changes nothing;
    done with other options it changes the subscription to fit. It waits for nothing: AWS takes a
    while to deliver by a new policy or filter. Two callers that change one queue's policy at the
    same moment can undo each other's change, as SQS has no way to tell.

    Raises `UsageError` for options that can't be, `QueueDoesNotExist`, `TopicDoesNotExist`,
    `ConfigError` (also where SNS first wants the queue's owner, another account, to confirm), and
    whatever else the backend raises.
    """
    if filter_policy_scope not in ("MessageAttributes", "MessageBody"):
        raise UsageError(
            "filter_policy_scope is 'MessageAttributes' or 'MessageBody', "
            f"not {filter_policy_scope!r}"
        )
    urls = QueueUrls(backend)
    topic = topic if isinstance(topic, Topic) else Topic(topic)
    topic_arn = await TopicArns(backend).resolve(topic)
    queue_arn = await _permit(backend, await urls.resolve(queue), topic_arn)
    attributes = {"RawMessageDelivery": "true" if raw_message_delivery else "false"}
    if filter_policy:
        attributes["FilterPolicyScope"] = filter_policy_scope
        attributes["FilterPolicy"] = msgspec.json.encode(dict(filter_policy)).decode()
    if dead_letter is not None:
        arn = await _permit(backend, await urls.resolve(dead_letter), topic_arn)
        policy = {"deadLetterTargetArn": arn}
        attributes["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    try:
        answer = await backend.execute(
            Subscribe(topic_arn, "sqs", queue_arn, attributes, return_subscription_arn=True)
        )
    except RefusedError as error:
        if "already exists with different attributes" not in error.message:
            raise
        arn = await _existing(backend, topic_arn, queue_arn)
    else:
        if not answer.subscription_arn:
            raise ConfigError(f"SNS names no subscription of {queue_arn} to {topic_arn}")
        arn = answer.subscription_arn
    has = {}
    if arn != _PENDING:
        has = (await backend.execute(GetSubscriptionAttributes(arn))).attributes
    if arn == _PENDING or has.get("PendingConfirmation") == "true":
        raise ConfigError(
            f"the subscription of {queue_arn} to {topic_arn} waits to be confirmed: subscribe the "
            "queue as the account that it belongs to, or confirm with the document in the queue"
        )
    await _fit(backend, arn, has, attributes)
    return arn


async def _fit(
    backend: Backend, arn: str, has: Mapping[str, str], wanted: Mapping[str, str]
) -> None:
    """Change what a subscription that was there before has otherwise."""
    # only a filter over the body may be nested: the scope leads on the way there, and follows back
    filters = ["FilterPolicy", "FilterPolicyScope"]
    if wanted.get("FilterPolicyScope") == "MessageBody":
        filters.reverse()
    for name in ("RawMessageDelivery", "RedrivePolicy", *filters):
        value = wanted.get(name, _NONE.get(name))
        if value is not None and _plain(has.get(name)) != _plain(value):
            await backend.execute(SetSubscriptionAttributes(arn, name, value))


def _plain(value: str | None) -> Any:
    """An attribute so that two that mean the same are the same."""
    try:
        return msgspec.json.decode(value) if value and value != "{}" else None
    except msgspec.DecodeError:
        return value


async def _existing(backend: Backend, topic_arn: str, queue_arn: str) -> str:
    token: str | None = None
    for _ in range(_MOST_PAGES):
        page = await backend.execute(ListSubscriptionsByTopic(topic_arn, token))
        for each in page.subscriptions:
            if each.protocol == "sqs" and each.endpoint == queue_arn:
                return each.subscription_arn
        token = page.next_token
        if token is None:
            break
    raise ConfigError(f"{queue_arn} has a subscription to {topic_arn} that can't be found")


# --- the queue's policy -------------------------------------------------------------------------


async def _permit(backend: Backend, queue_url: str, topic_arn: str) -> str:
    """Let a topic send to a queue; returns the queue's ARN."""
    asked = GetQueueAttributes(queue_url, ["QueueArn", "Policy"])
    attributes = (await backend.execute(asked)).attributes
    queue_arn = attributes["QueueArn"]
    policy = merged(attributes.get("Policy", ""), queue_arn, topic_arn)
    if policy is not None:
        await backend.execute(SetQueueAttributes(queue_url, {"Policy": policy}))
    return queue_arn


def merged(policy: str, queue_arn: str, topic_arn: str) -> str | None:
    """A queue's policy with the statement that permits a topic; None where it has it already.

    Raises `ConfigError` for a policy that can't be read.
    """
    wanted = {
        "Sid": "pumphouse-" + hashlib.sha256(topic_arn.encode()).hexdigest()[:16],
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    try:
        found = msgspec.json.decode(policy) if policy else {"Version": "2012-10-17"}
    except msgspec.DecodeError as error:
        raise ConfigError(f"the policy of {queue_arn} can't be read: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"the policy of {queue_arn} can't be read: it is no object")
    statements = found.get("Statement", [])
    if isinstance(statements, dict):  # AWS takes a single one without its list
        statements = [statements]
    if not isinstance(statements, list):
        raise ConfigError(f"the policy of {queue_arn} can't be read: its Statement is no list")
    if wanted in statements:
        return None
    others = [
        each
        for each in statements
        if not (isinstance(each, dict) and each.get("Sid") == wanted["Sid"])
    ]
    return msgspec.json.encode({**found, "Statement": [*others, wanted]}).decode()
