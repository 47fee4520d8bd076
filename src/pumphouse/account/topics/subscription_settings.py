"""A subscription's attributes: AWS's rules for setting them, and what makes two the same.

`set_attributes` sets them all or none. The rules are those of "Subscribe" and
"SetSubscriptionAttributes" in the API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pumphouse.account.topics.delivery_policy import (
    BadDeliveryPolicyError,
    check_subscription_policy,
)
from pumphouse.account.topics.filter_policy import ATTRIBUTES, BODY, FilterPolicy, compile_policy
from pumphouse.account.topics.json_tokens import BadJsonError, parse_json
from pumphouse.account.topics.patterns import BadPatternError
from pumphouse.account.topics.settings import BadAttributeError
from pumphouse.account.topics.topic import Subscription
from pumphouse.protocol.names import is_arn, parse_queue_arn


def set_attributes(subscription: Subscription, attributes: Mapping[str, str]) -> None:
    """Set attributes, all or none. Raises `BadAttributeError`."""
    fields: dict[str, Any] = {}
    for name, text in attributes.items():
        rule = _RULES.get(name)
        if rule is None:
            raise BadAttributeError("AttributeName")
        fields |= rule(subscription, text)
    # The scope and the policy belong together, whichever of them was named.
    if "FilterPolicy" in attributes or "FilterPolicyScope" in attributes:
        scope = fields.get("filter_scope", subscription.filter_scope)
        old = subscription.filter_policy
        text = attributes.get("FilterPolicy", old.text if old is not None else "")
        fields["filter_policy"] = _compiled(text, scope)
    for name, value in fields.items():
        setattr(subscription, name, value)


def differs(subscription: Subscription, attributes: Mapping[str, str]) -> bool:
    """Whether any of these attributes has another value; raises `BadAttributeError`."""
    other = Subscription(
        subscription.arn,
        subscription.topic,
        subscription.owner,
        subscription.protocol,
        subscription.endpoint,
    )
    set_attributes(other, attributes)
    return any(
        getattr(other, field) != getattr(subscription, field)
        for name in attributes
        if (field := _COMPARED.get(name))
    ) or ("FilterPolicy" in attributes and _text(other) != _text(subscription))


def _text(subscription: Subscription) -> str:
    policy = subscription.filter_policy
    return policy.text if policy is not None else ""


def _compiled(text: str, scope: str) -> FilterPolicy | None:
    if not text or text.strip() == "{}":
        return None
    try:
        return compile_policy(text, scope)
    except BadPatternError as error:
        raise BadAttributeError(str(error)) from None


# --- the rules, one for each attribute ----------------------------------------------------------


def _raw(subscription: Subscription, text: str) -> dict[str, Any]:
    if text.lower() not in ("true", "false"):
        raise BadAttributeError(
            f"RawMessageDelivery: Invalid value [{text}]. Must be true or false."
        )
    raw = text.lower() == "true"
    if raw and subscription.protocol not in ("sqs", "http", "https", "firehose"):
        raise BadAttributeError(
            f"Delivery protocol [{subscription.protocol}] does not support raw message delivery."
        )
    return {"raw": raw}


def _filter_scope(subscription: Subscription, text: str) -> dict[str, Any]:
    if text not in (ATTRIBUTES, BODY):
        raise BadAttributeError(
            f"FilterPolicyScope: Invalid value [{text}]. "
            "Please use either MessageBody or MessageAttributes"
        )
    return {"filter_scope": text}


def _redrive_policy(subscription: Subscription, text: str) -> dict[str, Any]:
    if not text:
        return {"redrive_policy": "", "dead_letter_arn": ""}
    try:
        policy = parse_json(text)
    except BadJsonError as error:
        raise BadAttributeError(f"RedrivePolicy: failed to parse JSON. {error}") from None
    if not isinstance(policy, dict):
        raise BadAttributeError("RedrivePolicy: invalid JSON.")
    if unknown := sorted(policy.keys() - {"deadLetterTargetArn"}):
        raise BadAttributeError(f"RedrivePolicy: invalid JSON. Attribute {unknown[0]} is unknown.")
    if "deadLetterTargetArn" not in policy:
        raise BadAttributeError("RedrivePolicy: Missing deadLetterTargetArn attribute")
    arn = policy["deadLetterTargetArn"]
    if not isinstance(arn, str) or not is_arn(arn) or len(arn.split(":")) < 6:
        raise BadAttributeError("RedrivePolicy: deadLetterTargetArn is an invalid arn")
    try:
        queue = parse_queue_arn(arn)
    except ValueError:
        raise BadAttributeError("RedrivePolicy: deadLetterTargetArn must be a SQS queue") from None
    if queue.region != subscription.topic.name.region:
        raise BadAttributeError(
            "RedrivePolicy: deadLetterTargetArn must be in the same region as the subscription"
        )
    if subscription.endpoint.endswith(".fifo") and not queue.is_fifo:
        raise BadAttributeError(
            "RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic."
        )
    if queue.is_fifo and not subscription.topic.is_fifo:
        raise BadAttributeError(
            "RedrivePolicy: must use a standard queue as DLQ for a subscription to a standard topic"
        )
    return {"redrive_policy": text, "dead_letter_arn": arn}


def _delivery_policy(subscription: Subscription, text: str) -> dict[str, Any]:
    if not text:
        return {"delivery_policy": ""}
    try:
        check_subscription_policy(subscription.topic.settings.delivery_policy, text)
    except BadDeliveryPolicyError as error:
        raise BadAttributeError(f"DeliveryPolicy: {error}") from None
    return {"delivery_policy": text}


def _role(subscription: Subscription, text: str) -> dict[str, Any]:
    return {"role_arn": text}


def _with_scope(subscription: Subscription, text: str) -> dict[str, Any]:
    return {}  # compiled once the scope is known


_RULES: dict[str, Callable[[Subscription, str], dict[str, Any]]] = {
    "DeliveryPolicy": _delivery_policy,
    "FilterPolicy": _with_scope,
    "FilterPolicyScope": _filter_scope,
    "RawMessageDelivery": _raw,
    "RedrivePolicy": _redrive_policy,
    "SubscriptionRoleArn": _role,
}
_COMPARED = {
    "DeliveryPolicy": "delivery_policy",
    "FilterPolicyScope": "filter_scope",
    "RawMessageDelivery": "raw",
    "RedrivePolicy": "redrive_policy",
    "SubscriptionRoleArn": "role_arn",
}
