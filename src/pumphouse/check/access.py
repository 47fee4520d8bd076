"""Access policies of queues as far as they can be judged from here: what they surely deny to
everyone, and whether they let a topic send.

A condition that is not understood is taken as fulfilled for what is allowed and as unfulfilled for
what is denied, so that nothing is found that may not be so. The grammar is that of "IAM JSON policy
elements reference"; the statement that a topic needs is that of "Fanout to Amazon SQS queues".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

_SNS = "sns.amazonaws.com"
_ARN_TESTS = ("ArnEquals", "ArnLike", "StringEquals", "StringLike")


def denied(policy: Mapping[str, Any], actions: Iterable[str]) -> list[str]:
    """Those of the actions (`sqs:ReceiveMessage`) that a policy denies to everyone, always."""
    statements = [
        each
        for each in _statements(policy)
        if each.get("Effect") == "Deny" and not each.get("Condition") and _everyone(each)
    ]
    return [action for action in actions if any(_covers(each, action) for each in statements)]


def lets_topic_send(policy: Mapping[str, Any], topic_arn: str) -> bool:
    """Whether a queue's policy lets SNS send to it for a topic."""
    return any(
        each.get("Effect") == "Allow"
        and _covers(each, "sqs:SendMessage")
        and _for_sns(each)
        and _fits(each.get("Condition"), topic_arn)
        for each in _statements(policy)
    )


def _statements(policy: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for each in _list(policy.get("Statement")):
        if isinstance(each, Mapping):
            yield each


def _covers(statement: Mapping[str, Any], action: str) -> bool:
    return any(
        isinstance(pattern, str) and fnmatchcase(action.lower(), pattern.lower())
        for pattern in _list(statement.get("Action"))
    )


def _everyone(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    return principal == "*" or (
        isinstance(principal, Mapping) and "*" in _list(principal.get("AWS"))
    )


def _for_sns(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal")
    service = _list(principal.get("Service")) if isinstance(principal, Mapping) else []
    return _everyone(statement) or _SNS in service


def _fits(condition: object, topic_arn: str) -> bool:
    """Whether the condition holds for a topic: the tests of `aws:SourceArn` are made, the rest is
    taken as fulfilled."""
    if not isinstance(condition, Mapping):
        return True
    for test, keys in condition.items():
        if test not in _ARN_TESTS or not isinstance(keys, Mapping):
            continue
        for key, patterns in keys.items():
            if key.lower() == "aws:sourcearn" and not any(
                isinstance(pattern, str) and fnmatchcase(topic_arn, pattern)
                for pattern in _list(patterns)
            ):
                return False
    return True


def _list(value: object) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
