"""Redrive policies as attributes: what they say, AWS's rules for them, and who may name whom.

Pure: `parse_redrive_policy` and `parse_redrive_allow_policy` read the texts, `check_dead_letter`
asks whether a source may name its dead-letter queue. Moving messages there is `redrive.py`'s, and
moving them back is `moves.py`'s.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import QueueName, parse_queue_arn

MAX_RECEIVE_COUNT = 1000
MAX_SOURCE_ARNS = 10
CANT_ALLOW = "Amazon SQS can't create the redrive allow policy. "


class RedrivePolicy(Struct, frozen=True, gc=False):
    """After `max_receive_count` receives a message goes to the queue `target_arn`."""

    target_arn: str
    max_receive_count: int

    @property
    def text(self) -> str:
        """The policy as `GetQueueAttributes` answers it."""
        return _compact(
            {"deadLetterTargetArn": self.target_arn, "maxReceiveCount": self.max_receive_count}
        )


class RedriveAllowPolicy(Struct, frozen=True, gc=False):
    """Which queues may name this one as their dead-letter queue.

    `permission` is `allowAll`, `denyAll` or `byQueue`; `source_arns` is for `byQueue`.
    """

    permission: str
    source_arns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The policy as `GetQueueAttributes` answers it."""
        policy: dict[str, object] = {"redrivePermission": self.permission}
        if self.source_arns:
            policy["sourceQueueArns"] = self.source_arns
        return _compact(policy)

    def allows(self, source_arn: str) -> bool:
        """Whether this source may send its dead letters here."""
        return self.permission == "allowAll" or source_arn in self.source_arns


def parse_redrive_policy(name: str, text: str) -> RedrivePolicy | None:
    """The policy of an attribute's text; None for "", which takes it away.

    Raises `InvalidAttributeValue` for what is no JSON map and `InvalidParameterValue` for a map
    that is no redrive policy.
    """
    if not text:
        return None
    policy = _json_map(text)
    if policy is None:
        raise fault(
            "InvalidAttributeValue",
            f"Invalid value for the parameter {name}. "
            "Reason: Redrive policy is not a valid JSON map.",
        )
    for key in ("maxReceiveCount", "deadLetterTargetArn"):
        if key not in policy:
            raise _refused(
                name, text, f"Redrive policy does not contain mandatory attribute: {key}."
            )
    if len(policy) > 2:
        raise _refused(
            name,
            text,
            "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].",
        )
    count = _count(policy["maxReceiveCount"])
    if count is None or not 1 <= count <= MAX_RECEIVE_COUNT:
        raise _refused(
            name,
            text,
            f"Invalid value for maxReceiveCount: {_plain(policy['maxReceiveCount'])}, "
            f"valid values are from 1 to {MAX_RECEIVE_COUNT} both inclusive.",
        )
    target = policy["deadLetterTargetArn"]
    parts = target.split(":") if isinstance(target, str) else []
    if len(parts) != 6 or parts[0] != "arn" or not parts[5]:
        raise _refused(name, text, "Invalid value for deadLetterTargetArn.")
    if parts[2] != "sqs":
        raise _refused(name, text, "Only SQS queues are valid resources for deadLetterTargetArn.")
    return RedrivePolicy(target, count)


def parse_redrive_allow_policy(name: str, text: str) -> RedriveAllowPolicy | None:
    """The policy of an attribute's text; None for "", which takes it away."""
    if not text:
        return None
    policy = _json_map(text)
    permission = policy.get("redrivePermission") if policy is not None else None
    sources = policy.get("sourceQueueArns") if policy is not None else None
    if (
        policy is None
        or permission not in ("allowAll", "denyAll", "byQueue")
        or not policy.keys() <= {"redrivePermission", "sourceQueueArns"}
        or not (sources is None or _is_list_of_texts(sources))
    ):
        raise fault(
            "InvalidAttributeValue",
            f"Invalid value for the parameter {name}. Reason: Amazon SQS can't create the redrive "
            "allow policy, as it\u2019s in an unsupported format.",
        )
    cant = CANT_ALLOW
    if permission != "byQueue":
        if sources:
            raise _refused(
                name,
                text,
                cant + "To specify one or more source queue ARNs, you must set redrivePermission "
                "to byQueue.",
            )
        return RedriveAllowPolicy(permission)
    if not sources:
        raise _refused(
            name,
            text,
            cant + "When you specify the byQueue permission type, you must also specify one or "
            "more sourceQueueArns values.",
        )
    if len(sources) > MAX_SOURCE_ARNS:
        raise _refused(
            name,
            text,
            cant + f"The maximum number of source queue ARNs you can specify is {MAX_SOURCE_ARNS}.",
        )
    return RedriveAllowPolicy(permission, tuple(sources))


def check_sources(queue: QueueName, policy: RedriveAllowPolicy, text: str) -> None:
    """Raise AWS's fault where a source that `queue` lets in is in another region."""
    if any(arn.split(":")[3:4] != [queue.region] for arn in policy.source_arns):
        raise _refused(
            "RedriveAllowPolicy",
            text,
            CANT_ALLOW
            + "All source queue ARNs must be in the same region as the current SQS queue.",
        )


def check_dead_letter(
    source: QueueName,
    policy: RedrivePolicy,
    text: str,
    target_exists: bool,
    allow: RedriveAllowPolicy | None,
) -> None:
    """Raise AWS's fault where `source` may not name the policy's target as its dead-letter queue.

    Both are of one kind, region and account; the target exists, and its `RedriveAllowPolicy`
    (`allow`) lets the source in.
    """
    target = parse_queue_arn(policy.target_arn)
    if target.region != source.region:
        raise _refused(
            "RedrivePolicy", text, "Dead-letter target must be in same region as the source."
        )
    if target.account_id != source.account_id:
        raise _refused(
            "RedrivePolicy", text, "Dead-letter target owner should be same as the source."
        )
    if target.is_fifo != source.is_fifo:
        raise _refused(
            "RedrivePolicy", text, "Dead-letter queue must be same type of queue as the source.."
        )
    if not target_exists:
        raise _refused("RedrivePolicy", text, "Dead letter target does not exist.")
    if allow is not None and not allow.allows(source.arn()):
        raise _refused(
            "RedrivePolicy",
            text,
            "The dead-letter queue's redrive allow policy does not allow this source queue.",
        )


def _refused(name: str, text: str, reason: str) -> ServiceError:
    return fault(
        "InvalidParameterValue", f"Value {text} for parameter {name} is invalid. Reason: {reason}"
    )


def _json_map(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _count(value: object) -> int | None:
    """AWS takes the number also as a text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    return None


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _compact(value)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
