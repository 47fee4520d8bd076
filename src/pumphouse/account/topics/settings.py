"""A topic's attributes: AWS's rules for setting and showing them.

`created` makes a new topic's settings, `TopicSettings.changed` those after `SetTopicAttributes`,
`TopicSettings.differs` is what `CreateTopic` asks about a topic that exists, and `shown` is what
`GetTopicAttributes` answers of them. Policies, encryption and feedback are stored and shown, not
applied. The rules are those of "CreateTopic" and "SetTopicAttributes" in the API reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pumphouse.account.topics.delivery_policy import (
    BadDeliveryPolicyError,
    RetryPlan,
    effective_policy,
    parse_topic_policy,
)
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import is_topic_name

DEFAULT_MESSAGE_BYTES = 262_144
MAX_MESSAGE_BYTES = 1_048_576
MAX_LARGE_MESSAGE_SUBSCRIPTIONS = 100
"""How many subscriptions a topic of more than `DEFAULT_MESSAGE_BYTES` may have."""

_FEEDBACK = re.compile(
    r"(?:Application|Firehose|HTTP|Lambda|SQS)"
    r"(?:SuccessFeedbackRoleArn|SuccessFeedbackSampleRate|FailureFeedbackRoleArn)"
)


class TopicSettings(Struct, frozen=True, kw_only=True):
    """What a topic is set to; `others` are attributes that are only kept, by AWS's names."""

    display_name: str = ""
    policy: str = ""
    delivery_policy: str = ""
    signature_version: str = "1"
    maximum_message_size: int = DEFAULT_MESSAGE_BYTES
    fifo: bool = False
    content_based_deduplication: bool = False
    throughput_scope: str = "Topic"
    others: dict[str, str] = {}
    named: frozenset[str] = frozenset()
    """The attributes that were set."""

    @property
    def retry_plan(self) -> RetryPlan:
        """How HTTP deliveries are tried where a subscription has no policy of its own."""
        return RetryPlan.of(effective_policy(self.delivery_policy)["http"])

    def changed(self, name: str, text: str) -> TopicSettings:
        """The settings after an attribute was set. Raises AWS's fault for what can't be."""
        if name in ("FifoTopic", "TopicArn", "Owner"):
            raise _unknown()
        return _with(self, name, text)

    def differs(self, attributes: Mapping[str, str]) -> bool:
        """Whether any of these attributes has another value here."""
        wanted = self
        for name, text in attributes.items():
            wanted = _with(wanted, name, text)
        return replace(wanted, named=self.named) != self

    def shown(self) -> dict[str, str]:
        """The settings as `GetTopicAttributes` answers them; the policy is the topic's to show."""
        found = {
            "DisplayName": self.display_name,
            "EffectiveDeliveryPolicy": _compact(effective_policy(self.delivery_policy)),
        }
        if self.delivery_policy:
            found["DeliveryPolicy"] = self.delivery_policy
        if self.fifo:
            found["FifoTopic"] = "true"
            found["ContentBasedDeduplication"] = _flag(self.content_based_deduplication)
        others = {
            "SignatureVersion": self.signature_version,
            "MaximumMessageSize": str(self.maximum_message_size),
            "FifoThroughputScope": self.throughput_scope,
        }
        found |= {name: text for name, text in others.items() if name in self.named}
        return found | self.others


def created(name: str, attributes: Mapping[str, str]) -> TopicSettings:
    """The settings of a new topic of this name. Raises AWS's faults."""
    fifo = attributes.get("FifoTopic", "").lower() == "true"
    if not is_topic_name(name) or name.endswith(".fifo") is not fifo:
        raise fault("InvalidParameter", "Invalid parameter: Topic Name", "sns")
    settings = TopicSettings(fifo=fifo)
    for key, text in attributes.items():
        settings = _with(settings, key, text)
    return settings


# --- the rules, one for each attribute ----------------------------------------------------------


def _with(settings: TopicSettings, name: str, text: str) -> TopicSettings:
    rule = _RULES.get(name)
    if rule is not None:
        changed: TopicSettings = replace(settings, **rule(settings, text))
    elif name in ("KmsMasterKeyId", "TracingConfig", "ArchivePolicy", "DataProtectionPolicy") or (
        _FEEDBACK.fullmatch(name)
    ):
        others = {**settings.others, name: text}
        if not text:
            del others[name]
        changed = replace(settings, others=others)
    else:
        raise _unknown()
    return replace(changed, named=changed.named | {name})


def _display_name(settings: TopicSettings, text: str) -> dict[str, Any]:
    if len(text) > 100:
        raise _invalid("DisplayName")
    return {"display_name": text}


def _policy(settings: TopicSettings, text: str) -> dict[str, Any]:
    if not text:
        return {"policy": ""}
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        policy = None
    if not isinstance(policy, dict) or not isinstance(policy.get("Statement"), list | dict):
        raise fault("InvalidParameter", "Invalid parameter: Policy Error: null", "sns")
    return {"policy": text}


def _delivery_policy(settings: TopicSettings, text: str) -> dict[str, Any]:
    if text:
        try:
            parse_topic_policy(text)
        except BadDeliveryPolicyError as error:
            raise _invalid("DeliveryPolicy", str(error)) from None
    return {"delivery_policy": text}


def _signature_version(settings: TopicSettings, text: str) -> dict[str, Any]:
    if text not in ("1", "2"):
        raise _invalid("SignatureVersion", f"Invalid value [{text}]. Must be 1 or 2.")
    return {"signature_version": text}


def _maximum_message_size(settings: TopicSettings, text: str) -> dict[str, Any]:
    size = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
    if not 1024 <= size <= MAX_MESSAGE_BYTES:
        raise _invalid("MaximumMessageSize", f"Must be between 1024 and {MAX_MESSAGE_BYTES}.")
    return {"maximum_message_size": size}


def _fifo_topic(settings: TopicSettings, text: str) -> dict[str, Any]:
    if text.lower() not in ("true", "false") or (text.lower() == "true") is not settings.fifo:
        raise _invalid("FifoTopic")
    return {}


def _content_based(settings: TopicSettings, text: str) -> dict[str, Any]:
    _only_fifo(settings, "ContentBasedDeduplication")
    if text.lower() not in ("true", "false"):
        raise _invalid("ContentBasedDeduplication")
    return {"content_based_deduplication": text.lower() == "true"}


def _throughput_scope(settings: TopicSettings, text: str) -> dict[str, Any]:
    _only_fifo(settings, "FifoThroughputScope")
    if text not in ("Topic", "MessageGroup"):
        raise _invalid("FifoThroughputScope", "Must be Topic or MessageGroup.")
    return {"throughput_scope": text}


_RULES: dict[str, Callable[[TopicSettings, str], dict[str, Any]]] = {
    "ContentBasedDeduplication": _content_based,
    "DeliveryPolicy": _delivery_policy,
    "DisplayName": _display_name,
    "FifoThroughputScope": _throughput_scope,
    "FifoTopic": _fifo_topic,
    "MaximumMessageSize": _maximum_message_size,
    "Policy": _policy,
    "SignatureVersion": _signature_version,
}


def _only_fifo(settings: TopicSettings, name: str) -> None:
    if not settings.fifo:
        raise _invalid("AttributeName", f"{name} is an attribute of FIFO topics.")


def _unknown() -> ServiceError:
    return fault("InvalidParameter", "Invalid parameter: AttributeName", "sns")


def _invalid(name: str, reason: str = "") -> ServiceError:
    detail = f" Reason: {reason}" if reason else ""
    return fault("InvalidParameter", f"Invalid parameter: {name}{detail}", "sns")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
