"""One invocation's messages of one queue: run by group, judged, and what is left of them.

The way of a message is that of the runtime: its lane (`lanes.py`), the runner, an outcome. What
differs is the settling: Lambda deletes what is not named as failed, so a message is done by being
left out, and to retry it is to name it. Once a message of a lane has failed, what waits behind it
fails too, unrun, so that the order of its group holds. Nothing starts after the deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Literal, cast

from pumphouse.backoff import one_try
from pumphouse.clock import Clock, timeout
from pumphouse.hooks import Hooks
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.subscriber import events
from pumphouse.subscriber.dead_letters import DeadLetters
from pumphouse.subscriber.delivery import RUNNING, SETTLING, Delivery
from pumphouse.subscriber.judging import STOPPED, Stopped
from pumphouse.subscriber.lanes import Lanes
from pumphouse.subscriber.outcomes import Ack, Drop, Outcome, Reject, Retry, delay_after, describe
from pumphouse.subscriber.runner import Runner
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription

LONGEST_DELAY_SECONDS = MAX_VISIBILITY_SECONDS - 1_200
"""SQS counts its 12 hours from the receive: up to 5 minutes of gathering and 15 of running ago."""

_TIME_IS_UP = "the function's time was up"
_log = logging.getLogger("pumphouse.lambda")

GetDeadLetters = Callable[[], Awaitable[tuple[DeadLetters, str] | None]]
"""Gives the dead-letter queue and its name, or None where there is none."""


class Batch:
    """The messages of one queue in one invocation.

    After `run`, `failures` has those that are not done, each with the seconds after which it is to
    be visible again, in the order in which they came.
    """

    def __init__(
        self,
        subscription: Subscription,
        runner: Runner,
        clock: Clock,
        hooks: Hooks,
        stats: Stats,
        dead_letters: GetDeadLetters,
    ) -> None:
        self.failures: dict[Delivery, int] = {}
        self._subscription = subscription
        self._name = subscription.queue.known_as.name
        self._runner = runner
        self._clock = clock
        self._hooks = hooks
        self._stats = stats
        self._get_dead_letters = dead_letters
        self._lanes = Lanes()
        self._open: set[Delivery] = set()  # neither done nor failed yet
        self._handling: dict[asyncio.Task[None], list[Delivery]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed_keys: set[str] = set()
        self._deadline = 0.0
        self._idle = asyncio.Event()

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """What runs; after `run`, what could not be stopped: plain functions in their threads."""
        return frozenset(self._tasks)

    async def run(
        self, deliveries: Sequence[Delivery], deadline: float, grace_seconds: float
    ) -> None:
        """Run the handler for all of them until `deadline`, on the clock's `monotonic()`, and then
        cancel what runs and give it `grace_seconds`."""
        self._deadline = deadline
        for place, delivery in enumerate(deliveries):
            self._open.add(delivery)
            if self._subscription.queue.is_fifo:
                delivery.key = delivery.group_id or ""
                delivery.sequence = place
            elif self._subscription.partition_key is not None:
                delivery.key = self._runner.partition_of(delivery)
                delivery.sequence = place
            self._lanes.add(delivery)
        self._stats.received += len(deliveries)
        try:
            self._start()
            if not await self._rest(deadline - self._clock.monotonic()):
                self._stop()
                await self._rest(grace_seconds)
        except asyncio.CancelledError:
            self._stop()
            await self._rest(grace_seconds)
            raise
        left = [each for each in deliveries if each in self._open]
        if left:
            _log.warning("%s: %s with %d messages to go", self._name, _TIME_IS_UP, len(left))
        for delivery in left:
            self._fail(delivery, 0)
        self.failures = {each: self.failures[each] for each in deliveries if each in self.failures}

    async def _rest(self, seconds: float) -> bool:
        """Wait until nothing runs any more; False where that takes longer."""
        try:
            async with timeout(self._clock, seconds):
                await self._idle.wait()
        except TimeoutError:
            return not self._tasks
        return True

    # --- starting and stopping ------------------------------------------------------------------

    def _start(self) -> None:
        """Start what may be started, and see whether anything is left to wait for."""
        size = self._subscription.batch
        while (
            len(self._tasks) < self._subscription.concurrency
            and self._clock.monotonic() < self._deadline
        ):
            if size:
                taken = self._lanes.take_many(size)
            else:
                taken = [self._lanes.take()] if self._lanes.line else []
            if not taken:
                break
            # itself, as it may not run before it is known: loops may make eager tasks
            task = asyncio.Task(self._work(taken), loop=asyncio.get_running_loop())
            self._tasks.add(task)
            self._handling[task] = taken
        if not self._tasks:
            self._idle.set()

    def _stop(self) -> None:
        """What waits stays unrun, what runs is cancelled."""
        self._deadline = self._clock.monotonic()
        for task, deliveries in self._handling.items():
            for delivery in deliveries:
                delivery.stop_reason = _TIME_IS_UP
            task.cancel()

    async def _work(self, taken: list[Delivery]) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            for delivery in taken:
                delivery.move(RUNNING)
                delivery.started_at = self._clock.monotonic()
                self._stats.started += 1
            outcomes: Sequence[Outcome | Stopped] = [STOPPED] * len(taken)
            try:
                if self._subscription.batch:
                    outcomes = await self._runner.run_batch(taken)
                else:
                    outcomes = [await self._runner.run(taken[0])]
            finally:
                del self._handling[task]  # from here on it is settled, and not cancelled
            behind = _behind_failures(taken, outcomes)
            for delivery, outcome, late in zip(taken, outcomes, behind, strict=True):
                delivery.restored = None
                delivery.move(SETTLING)
                if late or delivery.key in self._failed_keys:
                    self._fail(delivery, 0)
                else:
                    await self._judge(delivery, outcome)
        finally:
            for delivery in taken:
                if delivery in self._open:  # a bug, or the end of the process: never a success
                    self._fail(delivery, 0)
                self._lanes.done(delivery)
            self._tasks.discard(task)
            self._start()

    # --- what came of it ------------------------------------------------------------------------

    async def _judge(self, delivery: Delivery, outcome: Outcome | Stopped) -> None:
        self._tell(delivery, outcome)
        if delivery not in self._open:
            _log.warning(
                "%s: the handler of %s ended after its message was named as failed",
                self._name,
                delivery.message_id,
            )
            return
        if isinstance(outcome, Stopped):
            self._stats.stopped += 1
            outcome = Retry(reason=delivery.stop_reason or _TIME_IS_UP)
        elif isinstance(outcome, Retry):
            self._stats.retried += 1
        if isinstance(outcome, Ack | Drop):
            if isinstance(outcome, Ack):
                self._stats.acked += 1
            else:
                self._stats.dropped += 1
            self._open.discard(delivery)
            return
        limit = self._subscription.max_attempts
        delay = outcome.after_seconds if isinstance(outcome, Retry) else None
        if delay is None:
            delay = delay_after(self._subscription.retry, delivery.attempt)
        reason = ""
        if isinstance(outcome, Reject):
            self._stats.rejected += 1
            reason = outcome.reason or "rejected"
        elif outcome.counts and limit is not None and delivery.attempt >= limit:
            reason = outcome.reason or "attempts are used up"
        if not (reason and await self._carried(delivery, reason)):
            self._fail(delivery, ceil(delay))

    async def _carried(self, delivery: Delivery, reason: str) -> bool:
        """Send it to the dead-letter queue; whether it is there for certain."""
        one_try.set(True)  # `dead_letters.py` tries again
        name, problem = "", "there is no dead-letter queue"
        try:
            if (found := await self._get_dead_letters()) is not None:
                dead_letters, name = found
                await dead_letters.send(delivery, reason, delivery.attempt)
                problem = ""
        except Exception as error:
            problem = describe(error)
        if problem:
            _log.error(
                "%s: message %s can't go to the dead-letter queue (%s); it is tried again later",
                self._name,
                delivery.message_id,
                problem,
            )
            return False
        if delivery not in self._open:  # this came too late, and it was named as failed
            return False
        self._open.discard(delivery)
        self._stats.dead_lettered += 1
        self._hooks.emit(
            events.DeadLettered(self._name, delivery.message_id, name, delivery.attempt, reason)
        )
        return True

    def _fail(self, delivery: Delivery, seconds: int) -> None:
        """It is named as failed, and with it all that waits behind it."""
        if delivery not in self._open:
            return
        seconds = min(seconds, LONGEST_DELAY_SECONDS)
        # a FIFO queue hands out nothing of a group whose head is hidden, if what is behind it is
        # free; on a standard queue it would overtake
        behind = 0 if self._subscription.queue.is_fifo else seconds
        self._open.discard(delivery)
        self.failures[delivery] = seconds
        for follower in self._lanes.followers(delivery):
            self._stats.released += 1
            self._open.discard(follower)
            self.failures[follower] = behind
        if delivery.key is not None:
            self._failed_keys.add(delivery.key)

    def _tell(self, delivery: Delivery, outcome: Outcome | Stopped) -> None:
        if not self._hooks.wanted(events.Handled):
            return
        name: Literal["ack", "retry", "drop", "reject", "stopped"] = "stopped"
        if not isinstance(outcome, Stopped):
            name = type(outcome).__name__.lower()  # type: ignore[assignment]
        self._hooks.emit(
            events.Handled(
                self._name,
                delivery.message_id,
                name,
                delivery.attempt,
                self._clock.monotonic() - delivery.started_at,
                getattr(outcome, "reason", ""),
            )
        )


def _behind_failures(
    deliveries: Sequence[Delivery], outcomes: Sequence[Outcome | Stopped]
) -> list[bool]:
    """For each delivery of a batch, whether one before it in its lane was not done.

    Such a one is never deleted: its group goes on at the message that failed, and everything
    behind that comes again.
    """
    failed: set[str] = set()
    behind: list[bool] = []
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        key = delivery.key
        behind.append(key is not None and key in failed)
        if key is not None and not isinstance(outcome, Ack | Drop | Reject):
            failed.add(key)
    return behind
