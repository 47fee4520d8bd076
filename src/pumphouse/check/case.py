"""One subscription beside what AWS says about its queues: what the rules look at."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pumphouse.backoff import RetryPolicy
from pumphouse.check.facts import Look, QueueFacts
from pumphouse.middleware.time_limit import TimeLimit
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.subscriber.outcomes import DelayRule, delay_after
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.setup import RedrivePolicy
from pumphouse.subscriber.subscription import Subscription

_MOST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A subscription, its queue, and the dead-letter queue that it declares or that the queue's own
    policy names. `circle` are the queues through which dead letters come back, if they do."""

    subscription: Subscription
    facts: QueueFacts
    dead_letter: Queue | None = None
    letters: QueueFacts | None = None
    circle: tuple[str, ...] = ()

    @property
    def queue(self) -> Queue:
        return self.subscription.queue

    @property
    def name(self) -> str:
        return self.queue.known_as.name

    @property
    def own(self) -> RedrivePolicy | None:
        """The queue's own redrive policy, as it is now."""
        return self.facts.redrive

    @property
    def attempts(self) -> int | None:
        """After how many failed attempts a message goes; None where nothing ends them."""
        if self.subscription.max_attempts is not None:
            return self.subscription.max_attempts
        return self.own.max_receive_count if self.own else None

    @property
    def lease_seconds(self) -> int:
        return self.queue.visibility_timeout or self.facts.lease_seconds

    @property
    def limit_seconds(self) -> float | None:
        """After what time a handler is cancelled; None where nothing bounds it."""
        limits = [
            each.seconds for each in self.subscription.middleware if isinstance(each, TimeLimit)
        ]
        if self.subscription.timeout_seconds is not None:
            limits.append(self.subscription.timeout_seconds)
        return min(limits, default=None)

    @property
    def handling_seconds(self) -> float | None:
        """How long a message is held until then, the gathering of its batch included."""
        limit = self.limit_seconds
        return None if limit is None else limit + self.subscription.batch_window_seconds


async def cases_of(look: Look, subscriptions: Sequence[Subscription]) -> list[Case]:
    """Look up what the rules need to know of each subscription."""
    cases = [await _case(look, subscription) for subscription in subscriptions]
    leads = {
        case.facts.arn: case.letters.arn
        for case in cases
        if case.facts.arn and case.letters is not None and case.letters.arn
    }
    return [replace(case, circle=await _circle(look, case, leads)) for case in cases]


async def _case(look: Look, subscription: Subscription) -> Case:
    facts = await look.queue(subscription.queue)
    dead_letter = subscription.dead_letter
    if dead_letter is None and facts.redrive is not None:
        dead_letter = Queue(facts.redrive.dead_letter_target_arn)
    letters = None if dead_letter is None else await look.queue(dead_letter)
    return Case(subscription, facts, dead_letter, letters)


async def _circle(look: Look, case: Case, leads: dict[str, str]) -> tuple[str, ...]:
    """The way of a dead letter back to its source; empty where it doesn't come back."""
    source = case.facts.arn
    arn = leads.get(source, "")
    way: list[str] = []
    while arn and len(way) < _MOST_STEPS:
        facts = await look.queue(Queue(arn))
        way.append(facts.name)
        policy = facts.redrive
        arn = leads.get(arn) or (policy.dead_letter_target_arn if policy else "")
        if arn == source:
            return tuple(way)
    return ()


class _Highest(random.Random):
    """Draws the most of every range."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


def longest_delay(rule: DelayRule, attempt: int) -> float:
    """The most that is waited after a failed attempt, in seconds."""
    if isinstance(rule, RetryPolicy):
        return min(rule.delay(attempt, _Highest()), float(MAX_VISIBILITY_SECONDS))
    return delay_after(rule, attempt)


def span(seconds: float) -> str:
    """A duration for people: `90 s`, `15 min`, `4 d`."""
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit or seconds == unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
