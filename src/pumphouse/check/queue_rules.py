"""What may be wrong with the queue of a subscription and the way to it, and options that do nothing
(PH1.., PH6..)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumphouse.check.access import denied
from pumphouse.check.case import Case, span
from pumphouse.check.facts import QueueFacts
from pumphouse.check.findings import Finding, found
from pumphouse.subscriber.queue import Queue

READING = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)
"""What reading a queue takes, beside finding it."""
_AWS_KEYS = ("alias/aws/sqs", "alias/aws/sns")


def queue_findings(case: Case) -> Iterator[Finding]:
    """The queue itself."""
    name, facts, queue = case.name, case.facts, case.queue
    yield from reachable(name, queue, facts)
    if queue.wait_time_seconds == 0:
        yield found(
            "PH104",
            name,
            "wait_time_seconds=0 asks an empty queue over and over, and every request is paid for",
            "leave wait_time_seconds at 20",
        )
    if not facts.known:
        return
    yield from denials(name, facts, READING)
    if own_key(facts):
        yield found(
            "PH105",
            name,
            f"its messages are encrypted with {facts.key}",
            "permit kms:Decrypt on that key to the service, and to its producers "
            "kms:GenerateDataKey as well",
        )
    delay = facts.number("DelaySeconds", 0)
    if delay and case.subscription.ordered:
        yield found(
            "PH106",
            name,
            f"its DelaySeconds of {span(delay)} holds back new messages, and no retries",
            "say in retry= how long a failed message waits",
        )
    scope = facts.attributes.get("DeduplicationScope", "queue")
    limit = facts.attributes.get("FifoThroughputLimit", "perQueue")
    if (scope == "messageGroup") != (limit == "perMessageGroupId"):
        yield found(
            "PH108",
            name,
            f"DeduplicationScope is {scope} and FifoThroughputLimit {limit}, and so it has not the "
            "throughput of either",
            "set messageGroup and perMessageGroupId for high throughput, or neither",
        )


def reachable(name: str, queue: Queue, facts: QueueFacts) -> Iterator[Finding]:
    """A queue that the start looks up and reads the attributes of."""
    if facts.missing:
        yield found("PH101", name, "the queue does not exist", _make_or_name(queue, facts))
    elif facts.refused:
        yield refused(name, facts.refused, queue.name)


def refused(name: str, action: str, reference: str) -> Finding:
    """A call that these credentials may not make, and the start makes."""
    remedy = f"permit {action} on {reference}"
    if action == "sns:ListTopics":
        remedy = f"permit {action}, or name the topic {reference} by its ARN"
    return found("PH102", name, f"{action} is not permitted to these credentials", remedy)


def unseen(name: str, action: str, what: str) -> Finding:
    """A call that only this check makes."""
    return found(
        "PH107",
        name,
        f"{what} could not be looked at: {action} is not permitted",
        f"permit {action} to whoever runs the check, to have that checked as well",
    )


def denials(name: str, facts: QueueFacts, actions: Sequence[str]) -> Iterator[Finding]:
    """What a queue's policy denies to everyone."""
    if bad := denied(facts.document("Policy"), actions):
        yield found(
            "PH103",
            name,
            f"its access policy denies {', '.join(bad)} to everyone",
            "take the Deny statement out of the queue's Policy, or except the service's role",
        )


def own_key(facts: QueueFacts) -> bool:
    """Whether a queue is encrypted with a key that has to be permitted: AWS's own one is to all of
    the account."""
    return bool(facts.key) and facts.key not in _AWS_KEYS


def _make_or_name(queue: Queue, facts: QueueFacts) -> str:
    if facts.other_kind:
        return f"there is a queue {facts.other_kind}: read that one, or create this one"
    if queue.name != queue.known_as.name:
        return "create it, correct the URL or ARN, or have its owner permit these credentials"
    return f"create it, or declare Queue({queue.name!r}, create_if_missing=True)"


def option_findings(cases: Sequence[Case]) -> Iterator[Finding]:
    """Options that have no effect."""
    ranked = [case for case in cases if case.subscription.priority is not None]
    if ranked and len({case.subscription.priority for case in ranked}) == 1:
        what = "no other subscriber has one" if len(ranked) == 1 else "all have the same"
        yield found(
            "PH601",
            ranked[0].name,
            f"priority={ranked[0].subscription.priority} has no effect: {what}",
            "give other subscribers another priority, or none to this one",
        )
    for case in cases:
        if case.subscription.partition_key is not None and case.subscription.concurrency == 1:
            yield found(
                "PH602",
                case.name,
                "partition_key has no effect with concurrency=1: everything runs one by one",
                "raise concurrency, or leave partition_key out",
            )
