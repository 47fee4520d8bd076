"""A topic's attributes: AWS's rules for setting and showing them.

`created` makes a new topic's settings, `TopicSettings.changed` those after `SetTopicAttributes`,
`TopicSettings.differs` is what `CreateTopic` asks about a topic that exists, and `shown` is what
`GetTopicAttributes` answers of them. Policies, encryption, feedback and archives are stored and
shown, not applied. The rules are those of "CreateTopic" and "SetTopicAttributes" in the API
reference; AWS words a fault of the former as one of `Attributes`, of the latter by its name.
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
    check_topic_policy,
    effective_policy,
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
    archive_policy: str = ""
    others: dict[str, str] = {}
    named: frozenset[str] = frozenset()
    """The attributes that were set."""

    def changed(self, name: str, text: str) -> TopicSettings:
        """The settings after an attribute was set. Raises AWS's fault for what can't be."""
        try:
            if name in ("FifoTopic", "TopicArn", "Owner"):
                raise UnknownAttributeError
            return _with(self, name, text)
        except UnknownAttributeError:
            raise _invalid("AttributeName") from None
        except BadAttributeError as error:
            raise _invalid(str(error)) from None

    def with_all(self, attributes: Mapping[str, str]) -> TopicSettings:
        """The settings with these attributes of a `CreateTopic`. Raises AWS's faults."""
        settings = self
        for name, text in attributes.items():
            try:
                settings = _with(settings, name, text)
            except UnknownAttributeError:
                raise _invalid(f"Attributes Reason: Unknown attribute {name}") from None
            except BadAttributeError as error:
                raise _invalid(f"Attributes Reason: {error}") from None
        return settings

    def differs(self, attributes: Mapping[str, str]) -> bool:
        """Whether any of these attributes has another value here."""
        return replace(self.with_all(attributes), named=self.named) != self

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
        if self.archive_policy:
            found["ArchivePolicy"] = self.archive_policy
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
    return TopicSettings(fifo=fifo).with_all(attributes)


# --- the rules, one for each attribute ----------------------------------------------------------


class BadAttributeError(Exception):
    """An attribute that can't be set so, in AWS's words."""


class UnknownAttributeError(BadAttributeError):
    """An attribute that is none, or none of this kind of topic."""


def _with(settings: TopicSettings, name: str, text: str) -> TopicSettings:
    rule = _RULES.get(name)
    if rule is not None:
        changed: TopicSettings = replace(settings, **rule(settings, text))
    elif (check := _kept(name)) is not None:
        check(name, text)
        others = {**settings.others, name: text}
        if not text:
            del others[name]
        changed = replace(settings, others=others)
    else:
        raise UnknownAttributeError
    return replace(changed, named=changed.named | {name})


def _display_name(settings: TopicSettings, text: str) -> dict[str, Any]:
    if len(text) > 100:
        raise BadAttributeError("DisplayName")
    return {"display_name": text}


def _policy(settings: TopicSettings, text: str) -> dict[str, Any]:
    if not text:
        return {"policy": ""}
    policy = _object(text)
    statements = policy.get("Statement") if policy is not None else None
    if isinstance(statements, dict):
        statements = [statements]
    if not statements or not isinstance(statements, list):
        raise BadAttributeError("Policy Error: null")
    for statement in statements:
        if not isinstance(statement, dict) or statement.get("Effect") not in ("Allow", "Deny"):
            raise BadAttributeError("Policy Error: null")
        actions = statement.get("Action", statement.get("NotAction"))
        for action in actions if isinstance(actions, list) else [actions]:
            if not isinstance(action, str):
                raise BadAttributeError("Policy Error: null")
            if not is_policy_action(action):
                raise BadAttributeError(OUT_OF_SCOPE)
    return {"policy": text}


OUT_OF_SCOPE = "Policy statement action out of service scope!"

_POLICY_ACTIONS = frozenset(
    {
        "addpermission",
        "deletetopic",
        "getdataprotectionpolicy",
        "gettopicattributes",
        "listsubscriptionsbytopic",
        "listtagsforresource",
        "publish",
        "putdataprotectionpolicy",
        "receive",  # of the default policies of old
        "removepermission",
        "settopicattributes",
        "subscribe",
    }
)


def is_policy_action(action: str) -> bool:
    """Whether a topic's policy may speak of an action ("Valid Amazon SNS policy actions")."""
    name = action.lower().removeprefix("sns:")
    return name in _POLICY_ACTIONS or "*" in name


def _delivery_policy(settings: TopicSettings, text: str) -> dict[str, Any]:
    if text:
        try:
            check_topic_policy(text)
        except BadDeliveryPolicyError as error:
            raise BadAttributeError(f"DeliveryPolicy: {error}") from None
    return {"delivery_policy": text}


def _one_of(name: str, text: str, *values: str) -> str:
    if text not in values:
        known = f"{', '.join(values[:-1])} or {values[-1]}"
        raise BadAttributeError(f"{name}: Invalid value [{text}]. Must be {known}.")
    return text


def _signature_version(settings: TopicSettings, text: str) -> dict[str, Any]:
    return {"signature_version": _one_of("SignatureVersion", text, "1", "2")}


def _maximum_message_size(settings: TopicSettings, text: str) -> dict[str, Any]:
    size = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
    if not 1024 <= size <= MAX_MESSAGE_BYTES:
        raise BadAttributeError(
            f"MaximumMessageSize: Must be between 1024 and {MAX_MESSAGE_BYTES}."
        )
    return {"maximum_message_size": size}


def _fifo_topic(settings: TopicSettings, text: str) -> dict[str, Any]:
    is_fifo = _one_of("FifoTopic", text.lower(), "true", "false") == "true"
    if is_fifo is not settings.fifo:
        raise BadAttributeError("FifoTopic")
    return {}


def _content_based(settings: TopicSettings, text: str) -> dict[str, Any]:
    _only_fifo(settings)
    value = _one_of("ContentBasedDeduplication", text.lower(), "true", "false")
    return {"content_based_deduplication": value == "true"}


def _throughput_scope(settings: TopicSettings, text: str) -> dict[str, Any]:
    _only_fifo(settings)
    return {"throughput_scope": _one_of("FifoThroughputScope", text, "Topic", "MessageGroup")}


def _archive_policy(settings: TopicSettings, text: str) -> dict[str, Any]:
    """How many days messages are kept for, from 1 to 365; `{}` ends it."""
    _only_fifo(settings)
    policy = _object(text)
    if policy is None:
        raise BadAttributeError("ArchivePolicy: Unable to parse JSON")
    if not policy:
        return {"archive_policy": ""}
    if "MessageRetentionPeriod" not in policy:
        raise BadAttributeError("ArchivePolicy: JSON is missing required fields")
    days = str(policy["MessageRetentionPeriod"])
    if not (days.isascii() and days.isdecimal() and len(days) < 6 and 1 <= int(days) <= 365):
        raise BadAttributeError("ArchivePolicy: MessageRetentionPeriod value is invalid")
    return {"archive_policy": text}


def _only_fifo(settings: TopicSettings) -> None:
    if not settings.fifo:
        raise UnknownAttributeError


_RULES: dict[str, Callable[[TopicSettings, str], dict[str, Any]]] = {
    "ArchivePolicy": _archive_policy,
    "ContentBasedDeduplication": _content_based,
    "DeliveryPolicy": _delivery_policy,
    "DisplayName": _display_name,
    "FifoThroughputScope": _throughput_scope,
    "FifoTopic": _fifo_topic,
    "MaximumMessageSize": _maximum_message_size,
    "Policy": _policy,
    "SignatureVersion": _signature_version,
}


# --- attributes that are only kept ----------------------------------------------------------------


def _kept(name: str) -> Callable[[str, str], object] | None:
    """What checks an attribute that is only kept; None for what is none."""
    if _FEEDBACK.fullmatch(name):
        return _sample_rate if name.endswith("SampleRate") else _any_text
    if name == "TracingConfig":
        return _tracing
    return _any_text if name in ("KmsMasterKeyId", "DataProtectionPolicy") else None


def _any_text(name: str, text: str) -> None:
    """Whatever it says."""


def _tracing(name: str, text: str) -> None:
    _one_of(name, text, "PassThrough", "Active")


def _sample_rate(name: str, text: str) -> None:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and int(text) <= 100):
        given = f"{text} " if text else ""
        raise BadAttributeError(f"{name}: {given}value provided is not an integer between 0-100")


def _object(text: str) -> dict[str, Any] | None:
    """A JSON object; None for what is none."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)  # NaN and Infinity, which Python reads, are no JSON
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _invalid(what: str) -> ServiceError:
    return fault("InvalidParameter", f"Invalid parameter: {what}", "sns")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
