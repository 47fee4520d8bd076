"""The permissions that a service needs, as a policy of IAM: what its features ask for, no more.

`needs_of` says it in names and makes no request. `look_up` finds the ARNs, the dead-letter queues
that only the queues' own policies name, and the keys. The actions are those of "Amazon SQS API
permissions: Actions and resource reference"; the batch actions come with their single ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pumphouse.addressing import Topic
from pumphouse.check.case import Case, cases_of
from pumphouse.check.facts import Look, named_by_url
from pumphouse.check.publishing_rules import targets_of
from pumphouse.check.queue_rules import own_key
from pumphouse.claim_check import ClaimCheck
from pumphouse.http.s3 import S3BlobStore
from pumphouse.protocol.names import is_arn, parse_queue_arn, partition_of
from pumphouse.subscriber.queue import Queue

if TYPE_CHECKING:
    from pumphouse.app import App
    from pumphouse.backend import Backend

Resource = Queue | Topic | str
"""A queue or a topic that is named, or an ARN, or `*`."""

# Statement by statement: what it is for, and its actions.
FEATURES: dict[str, tuple[str, ...]] = {
    "FindQueues": ("sqs:GetQueueUrl",),
    "ReadQueues": (
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
        "sqs:GetQueueAttributes",
    ),
    "CreateQueues": ("sqs:CreateQueue",),
    "WriteRedrivePolicies": ("sqs:SetQueueAttributes",),
    "ReadDeadLetterQueues": ("sqs:GetQueueAttributes",),
    "SendDeadLetters": ("sqs:SendMessage",),
    "Publish": ("sqs:SendMessage", "sqs:GetQueueAttributes"),
    "PublishToTopics": ("sns:Publish", "sns:GetTopicAttributes"),
    "FindTopics": ("sns:ListTopics",),
    "ReadSubscriptions": ("sns:ListSubscriptions", "sns:GetSubscriptionAttributes"),
    "ReadKeys": ("kms:Decrypt",),
    "WriteKeys": ("kms:GenerateDataKey", "kms:Decrypt"),
    "FetchBodies": ("s3:GetObject", "s3:DeleteObject"),
    "StoreBodies": ("s3:PutObject",),
}


@dataclass(slots=True)
class Needs:
    """What a service needs, by feature. `unknown` are the queues whose own redrive policies say
    where dead letters go, which only looking tells."""

    by_feature: dict[str, list[Resource]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def add(self, feature: str, resource: Resource) -> None:
        listed = self.by_feature.setdefault(feature, [])
        if resource not in listed:
            listed.append(resource)


def needs_of(app: App) -> Needs:
    """What the features need that an app declares."""
    needs = Needs()
    for subscription in app.subscriptions:
        queue = subscription.queue
        _find(needs, queue)
        needs.add("ReadQueues", queue)
        if (dead_letter := subscription.dead_letter) is not None:
            _find(needs, dead_letter)
            needs.add("ReadDeadLetterQueues", dead_letter)
            needs.add("SendDeadLetters", dead_letter)
            if subscription.redrive == "write":
                needs.add("WriteRedrivePolicies", queue)
        else:
            needs.unknown.append(queue.known_as.name)
        if queue.sns == "auto":
            needs.add("ReadSubscriptions", "*")
        _bodies(needs, "FetchBodies", subscription.claim_check)
    for target in targets_of(app):
        if isinstance(target.to, Topic):
            needs.add("PublishToTopics", target.to)
            if not is_arn(target.to.reference):
                needs.add("FindTopics", "*")
        else:
            _find(needs, target.to)
            needs.add("Publish", target.to)
        _bodies(needs, "StoreBodies", target.claim_check)
    return needs


def _find(needs: Needs, queue: Queue) -> None:
    if not named_by_url(queue):
        needs.add("FindQueues", queue)
    if queue.create_if_missing:
        needs.add("CreateQueues", queue)


def _bodies(needs: Needs, feature: str, check: ClaimCheck | None) -> None:
    if check is not None and isinstance(store := check.store, S3BlobStore):
        needs.add(feature, f"arn:aws:s3:::{store.bucket}/{check.prefix}*")


@dataclass(slots=True)
class Found:
    """What looking tells beyond the declarations: ARNs by reference, and more needs."""

    arns: dict[str, str] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)


async def look_up(app: App, backend: Backend) -> Found:
    """Find ARNs, dead-letter queues and keys; `Get…` and `List…` operations only."""
    look = Look(backend)
    found = Found(needs=needs_of(app))
    found.needs.unknown.clear()
    for case in await cases_of(look, app.subscriptions):
        _note(found, case.queue, case.facts.arn)
        if own_key(case.facts):
            found.needs.add("ReadKeys", _key(case.facts.key, case.facts.arn))
        if case.letters is not None and case.dead_letter is not None:
            _note(found, case.dead_letter, case.letters.arn)
            _own_letters(found.needs, case)
            if own_key(case.letters):
                found.needs.add("WriteKeys", _key(case.letters.key, case.letters.arn))
    for target in targets_of(app):
        if isinstance(target.to, Topic):
            topic = await look.topic(target.to)
            if topic.arn:
                found.arns[f"sns {target.to.reference}"] = topic.arn
        else:
            facts = await look.queue(target.to)
            _note(found, target.to, facts.arn)
            if own_key(facts):
                found.needs.add("WriteKeys", _key(facts.key, facts.arn))
    return found


def _note(found: Found, queue: Queue, arn: str) -> None:
    if arn:
        found.arns[f"sqs {queue.name}"] = arn


def _own_letters(needs: Needs, case: Case) -> None:
    if case.subscription.dead_letter is None and case.dead_letter is not None:
        needs.add("FindQueues", case.dead_letter)
        needs.add("SendDeadLetters", case.dead_letter)


def _key(key: str, queue_arn: str) -> str:
    """The ARN of a queue's key; an alias stays one."""
    if is_arn(key) or key.startswith("alias/") or not queue_arn:
        return key
    place = parse_queue_arn(queue_arn)
    return f"arn:{partition_of(place.region)}:kms:{place.region}:{place.account_id}:key/{key}"


# --- as a policy ----------------------------------------------------------------------------------


def policy(needs: Needs, arns: dict[str, str] | None = None) -> dict[str, Any]:
    """The policy of IAM. Resources are ARNs of any region and account with the right name, where
    `arns` doesn't have them."""
    statements = []
    for feature, actions in FEATURES.items():
        resources = needs.by_feature.get(feature, [])
        plain = sorted({_resource(each, arns or {}) for each in resources if not _is_alias(each)})
        if plain:
            statements.append(_statement(feature, actions, plain))
        if aliases := sorted(
            each for each in resources if isinstance(each, str) and _is_alias(each)
        ):
            by_alias = _statement(f"{feature}ByAlias", actions, ["*"])
            by_alias["Condition"] = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": aliases}}
            statements.append(by_alias)
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, actions: Iterable[str], resources: list[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resources}


def _is_alias(resource: Resource) -> bool:
    return isinstance(resource, str) and resource.startswith("alias/")


def _resource(resource: Resource, arns: dict[str, str]) -> str:
    if isinstance(resource, str):
        return resource
    if isinstance(resource, Topic):
        return arns.get(f"sns {resource.reference}") or f"arn:aws:sns:*:*:{resource.name}"
    return arns.get(f"sqs {resource.name}") or f"arn:aws:sqs:*:*:{resource.known_as.name}"
