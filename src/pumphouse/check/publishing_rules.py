"""What may be wrong with the queues and topics that a service publishes to (PH4..)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumphouse.addressing import Topic, destination
from pumphouse.check.case import Case
from pumphouse.check.facts import Look, QueueFacts, TopicFacts
from pumphouse.check.findings import Finding, found
from pumphouse.check.queue_rules import denials, own_key, refused, unseen
from pumphouse.claim_check import ClaimCheck
from pumphouse.subscriber.kinds import is_record, returns_of, same_type
from pumphouse.subscriber.queue import Queue, as_queue, same_queue

if TYPE_CHECKING:
    from pumphouse.app import App


@dataclass(frozen=True, slots=True)
class Target:
    """A queue or topic that something of a service publishes to."""

    to: Queue | Topic
    payload_type: Any = Any
    claim_check: ClaimCheck | None = None
    largest_bytes: int | None = None
    """What its publisher lets through, where that is configured."""
    source: Queue | None = None
    """The queue whose handler replies to it; None for a publisher."""
    groups: bool = True
    """Whether what is sent there says its group."""

    @property
    def name(self) -> str:
        return self.to.name if isinstance(self.to, Topic) else self.to.known_as.name


def targets_of(app: App) -> list[Target]:
    """Everything that an app publishes to, as far as it is declared; a queue that its start makes
    is the one that is declared so, whoever names it."""
    found: list[Target] = []
    made = [
        queue
        for queue in (
            *(subscription.queue for subscription in app.subscriptions),
            *(subscription.dead_letter for subscription in app.subscriptions),
            *(publisher.queue for publisher in app.publishers),
        )
        if queue is not None and queue.create_if_missing
    ]

    def target_of(to: str | Topic) -> Queue | Topic:
        found = _as_target(to)
        if isinstance(found, Topic):
            return found
        return next((each for each in made if same_queue(each, found)), found)

    for subscription in app.subscriptions:
        returns = returns_of(subscription.plan.function)
        groups = returns.unknown or not returns.types
        if subscription.publish is not None:
            to = target_of(subscription.publish)
            found.append(Target(to, source=subscription.queue, groups=groups))
        for publisher in subscription.handler.publishers if subscription.handler else ():
            to = target_of(publisher.destination_from(subscription.place))
            grouped = groups or publisher.options.get("group_id") is not None
            found.append(Target(to, source=subscription.queue, groups=grouped))
    for publisher in app.publishers:
        to = target_of(publisher.destination)
        options = publisher.options
        sizes = options.get("claim_check"), options.get("max_message_bytes")
        found.append(Target(to, publisher.payload_type, *sizes))
        if isinstance(letters := options.get("on_dead_letter"), str):
            found.append(Target(target_of(letters)))
    return found


def _as_target(to: str | Topic) -> Queue | Topic:
    to = destination(to) if isinstance(to, str) else to
    return to if isinstance(to, Topic) else as_queue(to)


async def publishing_findings(
    look: Look, targets: Sequence[Target], cases: Sequence[Case]
) -> list[Finding]:
    """Look at the targets, and judge them."""
    findings: list[Finding] = []
    for target in targets:
        if isinstance(target.to, Topic):
            findings += _topic(target.to, target, await look.topic(target.to))
        else:
            findings += _queue(target.to, target, await look.queue(target.to))
        findings += _groups(target)
        findings += _understood(target, cases)
    for case in cases:
        if not targets and returns_of(case.subscription.plan.function).replies:
            findings.append(_undeclared(case))
        if case.subscription.claim_check is not None and case.facts.known:
            check, largest = case.subscription.claim_check, case.facts.largest_bytes
            findings += _sizes(case.name, check, None, largest)
    return list(dict.fromkeys(findings))


def _undeclared(case: Case) -> Finding:
    return found(
        "PH407",
        case.name,
        f"{case.subscription.plan.name} returns replies that say themselves where they go, and the "
        "service declares no destination: none can be looked up before the first one is sent",
        "declare each destination with app.publisher(…)",
    )


def _queue(queue: Queue, target: Target, facts: QueueFacts) -> Iterator[Finding]:
    name = target.name
    if facts.missing:
        remedy = "create it, or correct the name"
        if facts.other_kind:
            remedy = f"there is a queue {facts.other_kind}: publish to that one, or create this one"
        yield found("PH401", name, "messages are sent to this queue, and it does not exist", remedy)
    elif facts.refused == "sqs:GetQueueUrl":
        yield refused(name, facts.refused, queue.name)
    elif facts.refused:
        yield unseen(name, facts.refused, "the queue")
    if not facts.known:
        return
    yield from denials(name, facts, ("sqs:SendMessage",))
    if own_key(facts):
        yield found(
            "PH105",
            name,
            f"what is published to it is encrypted with {facts.key}",
            "permit kms:GenerateDataKey and kms:Decrypt on that key to the service",
        )
    yield from _sizes(name, target.claim_check, target.largest_bytes, facts.largest_bytes)
    if target.source is None and facts.attributes.get("ContentBasedDeduplication") == "true":
        yield _no_deduplication(name)


def _topic(topic: Topic, target: Target, facts: TopicFacts) -> Iterator[Finding]:
    if facts.missing:
        remedy = "create it, or correct its name or ARN"
        if facts.other_kind:
            remedy = f"there is a topic {facts.other_kind}: publish to that one, or create this one"
        yield found(
            "PH402", topic.name, "messages are sent to this topic, and it does not exist", remedy
        )
    elif facts.refused == "sns:ListTopics":
        yield refused(topic.name, facts.refused, topic.reference)
    elif facts.refused:
        yield unseen(topic.name, facts.refused, "the topic")
    else:
        largest = facts.largest_bytes
        yield from _sizes(topic.name, target.claim_check, target.largest_bytes, largest)
        if facts.attributes.get("ContentBasedDeduplication") == "true":
            yield _no_deduplication(topic.name)


def _no_deduplication(name: str) -> Finding:
    return found(
        "PH405",
        name,
        "its content-based deduplication has no effect on what is published here: every message "
        "has a deduplication id, so that the same body sent twice is two messages",
        "give deduplication_id= where two publishes are to be one message",
    )


def _sizes(
    name: str, check: ClaimCheck | None, let_through: int | None, largest: int
) -> Iterator[Finding]:
    """Whether what is sent fits, as far as something says how large that is."""
    if check is not None and check.inline_max_bytes > largest:
        yield found(
            "PH404",
            name,
            f"the claim check leaves bodies of up to {check.inline_max_bytes:,} bytes in their "
            f"messages, and it takes {largest:,}",
            f"set inline_max_bytes below {largest}, or raise MaximumMessageSize",
        )
    if let_through is not None and let_through > largest:
        yield found(
            "PH404",
            name,
            f"its publisher sends messages of up to {let_through:,} bytes, and it takes "
            f"{largest:,}",
            "leave max_message_bytes out, or raise MaximumMessageSize",
        )


def _groups(target: Target) -> Iterator[Finding]:
    """A reply to a FIFO destination has its message's group, which on a standard queue is seldom
    there."""
    fifo = target.to.is_fifo
    if fifo and target.source is not None and not target.source.is_fifo and not target.groups:
        yield found(
            "PH403",
            target.source.known_as.name,
            f"replies go to {target.name}, which needs a group, and messages of a standard queue "
            "have none to pass on",
            "return Reply(body, group_id=…)",
        )


def _understood(target: Target, cases: Sequence[Case]) -> Iterator[Finding]:
    """Whether a handler of the same app takes what a publisher sends it."""
    if isinstance(target.to, Topic) or target.source is not None:
        return
    for case in cases:
        sent, taken = target.payload_type, case.subscription.plan.payload_type
        if not same_queue(target.to, case.queue) or same_type(sent, taken):
            continue
        if (is_record(sent) and is_record(taken)) or (sent is bytes and taken is str):
            yield found(
                "PH406",
                case.name,
                f"{sent.__name__} is published to it, and its handler takes {taken.__name__}",
                "let both be the same type, or one that reads as the other",
            )
