"""What may be wrong with attempts and dead letters (PH2..).

How long a dead letter is kept is said in "Setting-up dead-letter queue retention in Amazon SQS": on
a standard queue it keeps the time at which it was first sent, on a FIFO queue that starts anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from pumphouse.check.case import Case, span
from pumphouse.check.facts import QueueFacts
from pumphouse.check.findings import Finding, found
from pumphouse.check.queue_rules import denials, own_key, refused, unseen
from pumphouse.protocol.names import QueueName, parse_queue_arn
from pumphouse.subscriber.queue import Queue, same_kind
from pumphouse.subscriber.setup import receive_limit

MOST_RETENTION_SECONDS = 1_209_600


def dead_letter_findings(case: Case) -> Iterator[Finding]:
    """Everything about where a message goes that always fails."""
    if case.dead_letter is None or case.letters is None:
        if not case.facts.known:
            return  # nothing is known of its policy, and the queue itself has its finding
        yield found(
            "PH209",
            case.name,
            "it has no redrive policy, and the subscriber no max_attempts: a message that always "
            f"fails comes back until it expires, {span(case.facts.retention_seconds)} after it "
            "was sent",
            "give max_attempts= and dead_letter=, or set a redrive policy on the queue",
        )
        return
    name, letters, to = case.name, case.letters, case.letters.name
    if not same_kind(case.queue, case.dead_letter):
        kind = "a FIFO" if case.queue.is_fifo else "a standard"
        yield found(
            "PH202",
            name,
            f"its dead-letter queue {to} is not {kind} queue, as it is itself",
            f"create {kind} queue for its dead letters and name that in the redrive policy",
        )
    if elsewhere := _elsewhere(case, case.dead_letter):
        yield found(
            "PH203",
            name,
            f"its dead-letter queue {to} is in another {elsewhere}, which SQS does not take",
            "name a dead-letter queue of the same account and region",
        )
    elif letters.missing:
        yield found(
            "PH201",
            name,
            f"its dead-letter queue {to} does not exist",
            _make(case.dead_letter, letters, declared=case.subscription.dead_letter is not None),
        )
    elif letters.refused:
        yield from _not_seen(case, letters)
    if case.facts.known:
        yield from _policy(case, letters)
    if case.circle:
        yield found(
            "PH212",
            name,
            f"its dead letters come back to it: {' → '.join((name, *case.circle, name))}",
            f"take the redrive policy of {case.circle[-1]} away",
        )
    if letters.known and case.facts.known:
        yield from _room(case, letters)


def _elsewhere(case: Case, dead_letter: Queue) -> str:
    """In which way the dead-letter queue is somewhere else; "" where it isn't, or isn't known."""
    source, target = _place(case.facts, case.queue), _place(case.letters, dead_letter)
    for what, mine, theirs in (
        ("region", source.region, target.region),
        ("account", source.account_id, target.account_id),
    ):
        if mine and theirs and mine != theirs:
            return what
    return ""


def _place(facts: QueueFacts | None, queue: Queue) -> QueueName:
    return parse_queue_arn(facts.arn) if facts is not None and facts.arn else queue.known_as


def _make(dead_letter: Queue, letters: QueueFacts, *, declared: bool) -> str:
    if letters.other_kind:
        return f"there is a queue {letters.other_kind}; create {letters.name}, of the other kind"
    if not declared:
        return "create it, or set another redrive policy on the queue"
    if dead_letter.name != dead_letter.known_as.name:
        return "create it, or correct the URL or ARN"
    return f"create it, or declare Queue({dead_letter.name!r}, create_if_missing=True)"


def _not_seen(case: Case, letters: QueueFacts) -> Iterator[Finding]:
    """The start looks up both kinds of dead-letter queues, and reads the attributes of those that
    are declared."""
    reference = case.dead_letter.name if case.dead_letter is not None else letters.name
    if case.subscription.dead_letter is not None or letters.refused == "sqs:GetQueueUrl":
        yield refused(case.name, letters.refused, reference)
    else:
        yield unseen(case.name, letters.refused, f"its dead-letter queue {letters.name}")


def _policy(case: Case, letters: QueueFacts) -> Iterator[Finding]:
    """The queue's redrive policy beside what is declared."""
    name, own, subscription = case.name, case.own, case.subscription
    if subscription.max_attempts is None:
        if own is not None and case.queue.is_fifo:
            yield _no_room(
                case,
                own.max_receive_count,
                own.max_receive_count,
                f"declare max_attempts={own.max_receive_count} and dead_letter={letters.name!r}: "
                f"then maxReceiveCount is {receive_limit(own.max_receive_count)}",
            )
        return
    attempts = subscription.max_attempts
    limit = receive_limit(attempts)
    same = own is not None and (
        own.dead_letter_target_arn == letters.arn
        or (not letters.arn and own.dead_letter_target_arn.endswith(f":{letters.name}"))
    )
    if subscription.redrive == "write":
        if own is not None and not same:
            other = own.dead_letter_target_arn.rpartition(":")[2]
            yield found(
                "PH205",
                name,
                f"its redrive policy names {other}, and the start writes {letters.name} over it",
                f"declare dead_letter={other!r}, or move what is in {other} first",
            )
        elif own is not None and own.max_receive_count != limit:
            yield found(
                "PH208",
                name,
                f"its maxReceiveCount is {own.max_receive_count}, and the start writes {limit} for "
                f"max_attempts={attempts}",
                f"set {limit} where the queue is defined, so that nothing sets it back",
            )
        return
    if own is None or not same:
        what = "none"
        if own is not None:
            what = own.dead_letter_target_arn.rpartition(":")[2]
        yield found(
            "PH204",
            name,
            f"redrive='check' wants a redrive policy to {letters.name}, and the queue's names "
            f"{what}",
            "set it on the queue, or let redrive='write' do it",
        )
    elif own.max_receive_count < attempts:
        yield found(
            "PH206",
            name,
            f"SQS takes a message away after {own.max_receive_count} receives, before its "
            f"{attempts} attempts",
            f"set maxReceiveCount to {limit}",
        )
    elif own.max_receive_count < limit:
        yield _no_room(case, own.max_receive_count, attempts, f"set maxReceiveCount to {limit}")


def _no_room(case: Case, receives: int, attempts: int, remedy: str) -> Finding:
    spent = (
        "a message that comes along behind a failing one of its group"
        if case.queue.is_fifo
        else "a message that is given back at a stop"
    )
    return found(
        "PH207",
        case.name,
        f"maxReceiveCount is {receives} for {attempts} attempts: {spent} is received without being "
        "run, and may end as a dead letter without a failure",
        remedy,
    )


def _room(case: Case, letters: QueueFacts) -> Iterator[Finding]:
    """Whether the dead-letter queue takes and keeps what is sent there."""
    name, to, facts = case.name, letters.name, case.facts
    allow = letters.document("RedriveAllowPolicy")
    permission = allow.get("redrivePermission", "allowAll")
    if facts.arn and (
        permission == "denyAll"
        or (permission == "byQueue" and facts.arn not in (allow.get("sourceQueueArns") or []))
    ):
        yield found(
            "PH211",
            name,
            f"the RedriveAllowPolicy of its dead-letter queue {to} is {permission}, without it",
            f"allow this queue in the RedriveAllowPolicy of {to}",
        )
    if not case.queue.is_fifo and letters.retention_seconds <= facts.retention_seconds:
        kept, source = span(letters.retention_seconds), span(facts.retention_seconds)
        remedy = f"set MessageRetentionPeriod of {to} above {source}"
        if letters.planned:
            days = 14 * 86_400
            remedy += f", with attributes={{'MessageRetentionPeriod': '{days}'}} in its Queue(…)"
        if facts.retention_seconds >= MOST_RETENTION_SECONDS:
            remedy = f"set MessageRetentionPeriod of this queue below {kept}"
        yield found(
            "PH210",
            name,
            f"its dead-letter queue {to} keeps messages for {kept}, from when they were first "
            f"sent, and this one for {source}",
            remedy,
        )
    if letters.largest_bytes < facts.largest_bytes:
        yield found(
            "PH213",
            name,
            f"its dead-letter queue {to} takes {letters.largest_bytes:,} bytes, and this one "
            f"{facts.largest_bytes:,}",
            f"set MaximumMessageSize of {to} to {facts.largest_bytes}",
        )
    yield from denials(to, letters, ("sqs:SendMessage",))
    if own_key(letters):
        yield found(
            "PH105",
            to,
            f"the dead letters of {name} are encrypted with {letters.key}",
            "permit kms:GenerateDataKey and kms:Decrypt on that key to the service",
        )
