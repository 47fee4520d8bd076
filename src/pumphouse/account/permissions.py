"""`AddPermission` and `RemovePermission`: statements of an access policy, as AWS writes them.

The policy is the queue's `Policy` attribute, one statement per label. It is stored and shown, not
enforced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pumphouse.account.control import configure
from pumphouse.account.queue import Queue
from pumphouse.account.settings import MAX_POLICY_STATEMENTS
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import partition_of
from pumphouse.protocol.operations import (
    DONE,
    SQS_OPERATIONS,
    AddPermission,
    Done,
    Operation,
    RemovePermission,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

MAX_ACTIONS = 7

# What may be shared; the batch actions come with their single ones.
_SHARED = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT_ID = re.compile(r"\d{12}")


def add_permission(scope: Scope, operation: AddPermission) -> Done:
    """Add the statement of a label that the policy does not have yet."""
    queue = scope.queue(operation.queue_url)
    label = operation.label
    if not label:
        raise _missing("Label")
    if not _LABEL.fullmatch(label):
        raise _invalid(
            label,
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.",
        )
    if not operation.aws_account_ids:
        raise _missing("AWSAccountIds")
    _check_actions(operation.actions)
    for account_id in operation.aws_account_ids:
        if not _ACCOUNT_ID.fullmatch(account_id):
            raise _invalid(f"[{account_id}]", "PrincipalId", "Unable to verify.")
    policy = _policy(queue) or {
        "Version": "2008-10-17",
        "Id": f"{queue.arn}/SQSDefaultPolicy",
        "Statement": [],
    }
    statements = _statements(policy)
    if any(statement.get("Sid") == label for statement in statements):
        raise _invalid(label, "Label", "Already exists.")
    if len(statements) >= MAX_POLICY_STATEMENTS:
        raise fault(
            "OverLimit",
            f"{len(statements) + 1} Statements were found, "
            f"maximum allowed is {MAX_POLICY_STATEMENTS}.",
        )
    partition = partition_of(queue.name.region)
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {
            "AWS": _one_or_all(
                [f"arn:{partition}:iam::{each}:root" for each in operation.aws_account_ids]
            )
        },
        "Action": _one_or_all([f"SQS:{action}" for action in operation.actions]),
        "Resource": queue.arn,
    }
    _write(scope, queue, {**policy, "Statement": [*statements, statement]})
    return DONE


def remove_permission(scope: Scope, operation: RemovePermission) -> Done:
    """Take the statement of a label away, and the policy with its last one."""
    queue = scope.queue(operation.queue_url)
    if not operation.label:
        raise _missing("Label")
    policy = _policy(queue)
    if policy is None:
        raise _invalid(operation.label, "Label", "can't find label.")
    statements = _statements(policy)
    rest = [statement for statement in statements if statement.get("Sid") != operation.label]
    if len(rest) == len(statements):
        raise _invalid(operation.label, "Label", "can't find label on existing policy.")
    _write(scope, queue, {**policy, "Statement": rest} if rest else None)
    return DONE


def _check_actions(actions: list[str]) -> None:
    if not actions:
        raise _missing("ActionName")
    if len(actions) > MAX_ACTIONS:
        raise fault(
            "OverLimit", f"{len(actions)} Actions were found, maximum allowed is {MAX_ACTIONS}."
        )
    for action in actions:
        if action in _SHARED:
            continue
        if action in SQS_OPERATIONS and not action.endswith("Batch"):
            raise _invalid(
                f"SQS:{action}",
                "ActionName",
                "Only the queue owner is allowed to invoke this action.",
            )
        raise _invalid(
            f"SQS:{action}",
            "ActionName",
            "Please refer to the appropriate WSDL for a list of valid actions.",
        )


def _policy(queue: Queue) -> dict[str, Any] | None:
    return json.loads(queue.settings.policy) if queue.settings.policy else None


def _statements(policy: dict[str, Any]) -> list[dict[str, Any]]:
    statements = policy["Statement"]
    return [statements] if isinstance(statements, dict) else list(statements)


def _write(scope: Scope, queue: Queue, policy: dict[str, Any] | None) -> None:
    text = json.dumps(policy, separators=(",", ":"), ensure_ascii=False) if policy else ""
    configure(scope, queue, replace(queue.settings, policy=text))


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _missing(parameter: str) -> ServiceError:
    return fault("MissingParameter", f"The request must contain the parameter {parameter}.")


def _invalid(value: str, parameter: str, reason: str) -> ServiceError:
    return fault(
        "InvalidParameterValue",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    AddPermission: add_permission,
    RemovePermission: remove_permission,
}
