"""A queue's attributes: typed values, their defaults, and AWS's rules for setting and showing them.

`created` makes a new queue's settings, `QueueSettings.changed` those after `SetQueueAttributes`,
`QueueSettings.difference` is what `CreateQueue` asks about a queue that exists, and
`QueueSettings.shown` is what `GetQueueAttributes` answers of them. Everything is pure: counters,
timestamps and the ARN come from the queue (`control.py`), redrive from `redrive.py`, the rules of
dead-letter queues from `dead_letters.py`. Encryption keys and access policies are stored and shown,
not applied.

The rules are those of "SetQueueAttributes" and "CreateQueue" in the API reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pumphouse.account.dead_letters import (
    RedriveAllowPolicy,
    RedrivePolicy,
    parse_redrive_allow_policy,
    parse_redrive_policy,
)
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import FIFO_SUFFIX, is_queue_name

Attributes = Mapping[str, str]

# What GetQueueAttributes can be asked for and SetQueueAttributes does not take.
READ_ONLY = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)
MAX_POLICY_STATEMENTS = 20


class QueueSettings(Struct, frozen=True, kw_only=True, gc=False):
    """What a queue is set to. Durations are in whole seconds, sizes in bytes.

    `fifo` and what follows it hold for FIFO queues only; `redrive_policy` says where messages go
    after too many receives and `redrive_allow_policy` who may send such messages here.
    """

    delay_seconds: int = 0
    maximum_message_size: int = MAX_MESSAGE_BYTES
    retention_seconds: int = 345_600
    wait_time_seconds: int = 0
    visibility_timeout_seconds: int = 30
    policy: str = ""
    redrive_policy: RedrivePolicy | None = None
    redrive_allow_policy: RedriveAllowPolicy | None = None
    kms_master_key_id: str = ""
    kms_data_key_reuse_period_seconds: int = 300
    sqs_managed_sse_enabled: bool = True
    fifo: bool = False
    content_based_deduplication: bool = False
    deduplication_scope: str = "queue"
    fifo_throughput_limit: str = "perQueue"

    def changed(self, attributes: Attributes) -> QueueSettings:
        """The settings after these attributes were set.

        Raises `InvalidAttributeName`, `InvalidAttributeValue` or `InvalidParameterValue` faults as
        AWS does, and changes nothing then.
        """
        fields: dict[str, Any] = {}
        for name, text in attributes.items():
            rule = _rule(name, self.fifo)
            fields[rule.field] = rule.parse(name, text)
        # a FIFO queue may be told that it is one
        if fields.pop("fifo", self.fifo) != self.fifo:
            raise fault(
                "InvalidAttributeValue",
                "Invalid value for the parameter FifoQueue. "
                "Reason: Modifying queue type is not supported.",
            )
        if fields.get("kms_master_key_id") and fields.get("sqs_managed_sse_enabled"):
            raise fault(
                "InvalidAttributeName",
                "You can use one type of server-side encryption (SSE) at one time. "
                "You can either enable KMS SSE or SQS SSE.",
            )
        if fields.get("kms_master_key_id"):
            fields["sqs_managed_sse_enabled"] = False
        elif fields.get("sqs_managed_sse_enabled"):
            fields["kms_master_key_id"] = ""
        settings: QueueSettings = replace(self, **fields)
        if (
            settings.fifo_throughput_limit == "perMessageGroupId"
            and settings.deduplication_scope != "messageGroup"
        ):
            raise fault(
                "InvalidAttributeValue",
                "Invalid value for the parameter FifoThroughputLimit. Reason: To set "
                "FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be "
                "messageGroup.",
            )
        return settings

    def difference(self, attributes: Attributes) -> str | None:
        """The first of these attributes that has another value here, or None.

        An attribute that is not named is not compared: `CreateQueue` with a name alone finds any
        queue of that name.
        """
        for name, text in attributes.items():
            rule = _rule(name, self.fifo)
            if rule.parse(name, text) != getattr(self, rule.field):
                return name
        return None

    def shown(self) -> dict[str, str]:
        """The settings as `GetQueueAttributes` answers them: texts, without what is not set."""
        return {
            name: text
            for name, rule in _RULES.items()
            if (self.fifo or not rule.fifo_only)
            and (text := rule.show(getattr(self, rule.field))) is not None
            and (name != "KmsDataKeyReusePeriodSeconds" or self.kms_master_key_id)
        }


def created(name: str, attributes: Attributes) -> QueueSettings:
    """The settings of a new queue of this name.

    Raises faults for a name that is none and for attributes that the kind of queue does not have.
    """
    fifo = attributes.get("FifoQueue", "").lower() == "true"
    check_name(name, fifo)
    return QueueSettings(fifo=fifo).changed(attributes)


def check_name(name: str, fifo: bool) -> None:
    """Raise AWS's fault where a queue of this kind can't have this name."""
    if not name:
        raise fault("InvalidParameterValue", "Queue name cannot be empty")
    if fifo and not (name.endswith(FIFO_SUFFIX) and is_queue_name(name)):
        raise fault(
            "InvalidParameterValue",
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length.",
        )
    if not fifo and (name.endswith(FIFO_SUFFIX) or not is_queue_name(name)):
        raise fault(
            "InvalidParameterValue",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )


def check_asked(names: list[str]) -> None:
    """Raise AWS's fault where `GetQueueAttributes` asks for something that is no attribute."""
    for name in names:
        if name not in _RULES and name not in READ_ONLY and name != "All":
            raise _unknown(name)


# --- the rules, one for each attribute ----------------------------------------------------------


class _Rule(NamedTuple):
    """How an attribute is read and shown: `show` answers None for what is not shown at all."""

    field: str
    parse: Callable[[str, str], Any]
    show: Callable[[Any], str | None]
    fifo_only: bool = False


def _integer(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 12):
            raise _invalid(name)
        value = int(text)
        if not low <= value <= high:
            raise _invalid(name)
        return value

    return parse


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _invalid(name)
    return text.lower() == "true"


def _choice(*values: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text not in values:
            raise _invalid(name)
        return text

    return parse


_POLICY_KEYS = {"Version", "Id", "Statement"}
_STATEMENT_KEYS = {
    "Sid",
    "Effect",
    "Principal",
    "NotPrincipal",
    "Action",
    "NotAction",
    "Resource",
    "NotResource",
    "Condition",
}


def _is_statement(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() <= _STATEMENT_KEYS
        and value.get("Effect") in ("Allow", "Deny")
        and isinstance(value.get("Action", value.get("NotAction")), str | list)
    )


def _policy(name: str, text: str) -> str:
    """An access policy, in its shortest form; "" takes it away."""
    if not text:
        return ""
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise _invalid(name) from None
    if not isinstance(policy, dict):
        raise _invalid(name)
    statements = policy.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    if (
        not policy.keys() <= _POLICY_KEYS
        or policy.get("Version", "2008-10-17") not in ("2008-10-17", "2012-10-17")
        or not isinstance(statements, list)
        or not statements
        or not all(_is_statement(statement) for statement in statements)
    ):
        raise _invalid(name)
    if len(statements) > MAX_POLICY_STATEMENTS:
        raise fault(
            "OverLimit",
            f"{len(statements)} statements were found in the submitted policy, "
            f"max allowed is {MAX_POLICY_STATEMENTS}",
        )
    try:
        written = json.dumps(policy, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        written.encode()
    except ValueError:  # NaN, Infinity, and halves of characters, which Python reads
        raise _invalid(name) from None
    return written


def _text(name: str, text: str) -> str:
    return text


def _shown_boolean(value: bool) -> str:
    return "true" if value else "false"


def _shown_text(value: str) -> str | None:
    return value or None


def _shown_policy(value: RedrivePolicy | RedriveAllowPolicy | None) -> str | None:
    return value.text if value else None


_RULES: dict[str, _Rule] = {
    "DelaySeconds": _Rule("delay_seconds", _integer(0, 900), str),
    "MaximumMessageSize": _Rule("maximum_message_size", _integer(1024, MAX_MESSAGE_BYTES), str),
    "MessageRetentionPeriod": _Rule("retention_seconds", _integer(60, 1_209_600), str),
    "ReceiveMessageWaitTimeSeconds": _Rule("wait_time_seconds", _integer(0, 20), str),
    "VisibilityTimeout": _Rule("visibility_timeout_seconds", _integer(0, 43_200), str),
    "Policy": _Rule("policy", _policy, _shown_text),
    "RedrivePolicy": _Rule("redrive_policy", parse_redrive_policy, _shown_policy),
    "RedriveAllowPolicy": _Rule("redrive_allow_policy", parse_redrive_allow_policy, _shown_policy),
    "KmsMasterKeyId": _Rule("kms_master_key_id", _text, _shown_text),
    "KmsDataKeyReusePeriodSeconds": _Rule(
        "kms_data_key_reuse_period_seconds", _integer(60, 86_400), str
    ),
    "SqsManagedSseEnabled": _Rule("sqs_managed_sse_enabled", _boolean, _shown_boolean),
    "FifoQueue": _Rule("fifo", _boolean, _shown_boolean, True),
    "ContentBasedDeduplication": _Rule(
        "content_based_deduplication", _boolean, _shown_boolean, True
    ),
    "DeduplicationScope": _Rule("deduplication_scope", _choice("queue", "messageGroup"), str, True),
    "FifoThroughputLimit": _Rule(
        "fifo_throughput_limit", _choice("perQueue", "perMessageGroupId"), str, True
    ),
}


def _rule(name: str, fifo: bool) -> _Rule:
    """The rule of an attribute that may be set on a queue of this kind."""
    rule = _RULES.get(name)
    if rule is None:
        raise _unknown(name)
    if rule.fifo_only and not fifo:
        if name in ("DeduplicationScope", "FifoThroughputLimit"):
            raise fault(
                "InvalidAttributeName",
                f"You can specify the {name} only when FifoQueue is set to true.",
            )
        raise _unknown(name)
    return rule


def _unknown(name: str) -> Exception:
    return fault("InvalidAttributeName", f"Unknown Attribute {name}.")


def _invalid(name: str) -> Exception:
    return fault("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
