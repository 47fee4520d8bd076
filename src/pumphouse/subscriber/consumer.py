"""One subscription at work: from the received message to the settled one.

The way of a message: the pump brings it (`on_received`), it waits in its lane, a worker takes it
(`_next`), the runner decodes it and calls the handler, and what came of it is carried out
(`_finish`): deleted, tried again in place, given back, or carried to the dead-letter queue. Every
way out gives back the slot and the lease. The extender keeps the lease all the while.

What SQS is asked goes through `settlement.py`; who is next is said by `lanes.py`; starting and
stopping is in `stopping.py`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from math import ceil
from typing import Literal

from pumphouse.backend import Backend
from pumphouse.clock import Clock, Timer
from pumphouse.hooks import Hooks
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.attempts import Attempts
from pumphouse.subscriber.dead_letters import DeadLetters
from pumphouse.subscriber.delivery import (
    HELD,
    LOST,
    RUNNING,
    SETTLED,
    SETTLING,
    WAITING,
    Delivery,
    Intent,
)
from pumphouse.subscriber.events import (
    DeadLettered,
    Handled,
    LeaseLost,
    LoopStalled,
    ReceivedAgain,
    SettleFailed,
)
from pumphouse.subscriber.extender import Extender
from pumphouse.subscriber.lanes import Lanes
from pumphouse.subscriber.outcomes import (
    Ack,
    Drop,
    Outcome,
    Reject,
    Retry,
    delay_after,
    describe,
)
from pumphouse.subscriber.pump import Health, Pump
from pumphouse.subscriber.runner import Runner, Stopped
from pumphouse.subscriber.settlement import Settlement
from pumphouse.subscriber.setup import Ready
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription
from pumphouse.subscriber.workers import Workers

_log = logging.getLogger("pumphouse.subscriber")


class Consumer:
    """A running subscription; made, started and stopped by `Running` in `app.py`."""

    def __init__(
        self,
        subscription: Subscription,
        ready: Ready,
        backend: Backend,
        clock: Clock,
        hooks: Hooks,
        runner: Runner,
        stats: Stats,
        tasks: asyncio.TaskGroup,
    ) -> None:
        queue = subscription.queue
        self.subscription = subscription
        self.name = queue.known_as.name
        self.stats = stats
        self.ready = ready
        self.stopping = False
        self.live: set[Delivery] = set()  # received and neither settled nor lost
        self.at_work: set[Delivery] = set()  # a handler has it
        self.waiting: dict[Delivery, tuple[Timer, float]] = {}  # until a retry's delay is over
        self.quiet = asyncio.Event()  # set when the stop has something to look at
        self._queue = queue
        self._clock = clock
        self._hooks = hooks
        self.runner = runner
        self._tasks = tasks
        self._in_place = (
            ready.lease_seconds if queue.in_place_seconds is None else queue.in_place_seconds
        )
        self._capacity = subscription.concurrency * (subscription.batch or 1) + queue.prefetch
        self._live_most = max(100, 10 * self._capacity)
        self._by_id: dict[str, Delivery] = {}
        self.lanes = Lanes()
        self._attempts = Attempts(fifo=queue.is_fifo, max_attempts=ready.max_attempts)
        self.workers: Workers[Delivery] = Workers(subscription.concurrency, self._next, self._work)
        self.settlement = Settlement(backend, ready.queue_url, clock, self, tasks)
        self.extender = Extender(
            clock,
            self,
            lease_seconds=ready.lease_seconds,
            max_lease_seconds=queue.max_lease_seconds,
            extend=queue.extend,
        )
        self._dead_letters = (
            DeadLetters(backend, ready.dead_letter_url, clock, ready.queue_arn or self.name)
            if ready.dead_letter_url
            else None
        )
        self.pump = Pump(
            backend, queue, ready.queue_url, clock, hooks, self, tasks, resolve=ready.resolve
        )

    @property
    def health(self) -> Health:
        if self.pump.ended:
            return "ended"
        return "healthy" if self.pump.healthy else "unhealthy"

    # --- what the pump asks and brings ----------------------------------------------------------

    def room(self) -> int:
        """How many more messages may be received now."""
        if self.extender.behind() or self.settlement.congested:
            return 0
        return min(
            self._capacity - len(self.at_work) - self.lanes.startable,
            self._live_most - len(self.live),
        )

    def hungry(self) -> bool:
        return self.lanes.startable == 0

    def on_received(self, messages: list[ReceivedMessage]) -> None:
        now = self._clock.monotonic()
        lease = self.ready.lease_seconds
        self.stats.received += len(messages)
        arrived: list[Delivery] = []
        for raw in messages:
            known = self._by_id.get(raw.message_id)
            if known is not None and self._is_again(known, raw, now):
                arrived.append(known)
                continue
            delivery = Delivery(raw, now, lease)
            self._by_id[raw.message_id] = delivery
            self.live.add(delivery)
            arrived.append(delivery)
            self._admit(delivery)
        self.extender.register(arrived, now)
        self.workers.wake()

    def _admit(self, delivery: Delivery) -> None:
        """A delivery that just came: to its lane, or straight on if it is not to be run."""
        if self.stopping:
            self.release(delivery, unrun=True)
            return
        raw = delivery.raw
        if self._attempts and self._attempts.is_done(raw.message_id):
            self._delete(delivery)  # it was handled before, and its delete was never confirmed
            return
        if self._attempts or raw.attributes.get("ApproximateReceiveCount") != "1":
            delivery.attempt = self._attempts.arrive(raw.message_id, delivery.receive_count)
        if self._queue.is_fifo:
            delivery.key = raw.attributes.get("MessageGroupId", "")
            delivery.sequence = int(raw.attributes.get("SequenceNumber") or 0)
        elif self.subscription.partition_key is not None:
            delivery.key = self.runner.partition_of(delivery)
        self.lanes.add(delivery)

    def _is_again(self, known: Delivery, raw: ReceivedMessage, now: float) -> bool:
        """Whether a message that is still here was received again, and is dealt with by that."""
        if known.intent is Intent.RELEASE or known.lease_lost:
            return False  # the one here is on its way out, and this one has to be run or released
        self.settlement.refresh(known, raw.receipt_handle, now + self.ready.lease_seconds)
        known.show_lease()
        self.stats.received_again += 1
        _log.warning(
            "%s: message %s was received again while it is %s",
            self.name,
            known.message_id,
            known.state.value,
        )
        self._hooks.emit(ReceivedAgain(self.name, known.message_id))
        return True

    def on_gone(self) -> None:
        _log.warning("%s: the queue is gone, and the subscription ends with it", self.name)

    # --- handlers -------------------------------------------------------------------------------

    def _next(self) -> Delivery | None:
        """The next delivery for a free worker."""
        while not self.stopping and (delivery := self.lanes.take()) is not None:
            if self._may_start(delivery):
                return delivery
        if not self.stopping:
            self.pump.kick()
        return None

    def _may_start(self, delivery: Delivery) -> bool:
        if self._clock.monotonic() >= delivery.lease_until:
            self.stats.expired += 1
            self._attempts.unrun(delivery.message_id)
            self._lose(delivery, "the lease ended before a handler was free")
            self.lanes.done(delivery)
            return False
        limit = self.ready.max_attempts
        if limit is not None and delivery.attempt > limit:
            self._carry(delivery, f"{delivery.attempt - 1} attempts are used up")
            return False
        delivery.move(RUNNING)
        self.at_work.add(delivery)
        self.stats.started += 1
        return True

    async def _work(self, delivery: Delivery) -> None:
        delivery.task = asyncio.current_task()
        began = self._clock.monotonic()
        outcome = await self.runner.run(delivery)
        self.finish(delivery, outcome, began)
        if self.stopping:
            self.quiet.set()
        else:
            self.pump.kick()

    def finish(self, delivery: Delivery, outcome: Outcome | Stopped, began: float) -> None:
        """Carry out what came of a handler."""
        delivery.task = None
        self.at_work.discard(delivery)
        if delivery.state is not RUNNING:
            return  # the stop gave it back before its thread was done
        if self._hooks.wanted(Handled):
            self._tell(delivery, outcome, began)
        if isinstance(outcome, Ack):
            self.stats.acked += 1
            self._done(delivery)
        elif delivery.lease_lost:
            self._attempts.ran(delivery.message_id)
            self._end(delivery, LOST)
            self.lanes.done(delivery)
        elif isinstance(outcome, Drop):
            self.stats.dropped += 1
            self._done(delivery)
        elif isinstance(outcome, Retry):
            self.stats.retried += 1
            self._retry(delivery, outcome)
        elif isinstance(outcome, Reject):
            self.stats.rejected += 1
            self._carry(delivery, outcome.reason or "rejected")
        else:
            self.stats.stopped += 1
            self._give_back_group(delivery, 0)
            self.release(delivery, unrun=True)
            self.lanes.done(delivery)

    def _done(self, delivery: Delivery) -> None:
        if self._clock.monotonic() >= delivery.lease_until and not delivery.lease_lost:
            self._report_lost(delivery, "the handler took longer than the lease")
        self._delete(delivery)
        self.lanes.done(delivery)

    def _retry(self, delivery: Delivery, outcome: Retry) -> None:
        limit = self.ready.max_attempts
        if limit is not None and delivery.attempt >= limit:
            self._carry(delivery, outcome.reason or "attempts are used up")
            return
        delay = outcome.after_seconds
        if delay is None:
            delay = delay_after(self.subscription.retry, delivery.attempt)
        self._attempts.ran(delivery.message_id)
        if self._can_wait(delivery, delay):
            self.stats.retried_in_place += 1
            delivery.attempt += 1
            delivery.move(WAITING)
            timer = self._clock.call_later(delay, partial(self._over, delivery))
            self.waiting[delivery] = (timer, self._clock.monotonic() + delay)
            return
        # on a FIFO queue the head blocks its group for SQS, too; elsewhere followers would overtake
        self._give_back_group(delivery, 0 if self._queue.is_fifo else ceil(delay))
        self.release(delivery, ceil(delay))
        self.lanes.done(delivery)

    def _can_wait(self, delivery: Delivery, delay: float) -> bool:
        """Whether a retry can be made in place: the lease kept, the followers held."""
        if delivery.key is None or self.stopping or delay > self._in_place:
            return False
        again = self._clock.monotonic() + delay
        if not self._queue.extend:
            return again < delivery.lease_until
        return again + self.ready.lease_seconds < (
            delivery.received_at + self._queue.max_lease_seconds
        )

    def _over(self, delivery: Delivery) -> None:
        """A retry's delay is over."""
        del self.waiting[delivery]
        delivery.move(HELD)
        self.lanes.again(delivery)
        self.workers.wake()

    # --- ways out -------------------------------------------------------------------------------

    def _delete(self, delivery: Delivery) -> None:
        delivery.move(SETTLING)
        self.settlement.submit(delivery, Intent.DELETE)

    def release(self, delivery: Delivery, seconds: int = 0, *, unrun: bool = False) -> None:
        """Make a message visible again in `seconds`; `unrun` for one that had no attempt."""
        if unrun:
            self.stats.released += 1
            self._attempts.unrun(delivery.message_id)
        delivery.move(SETTLING)
        if self._clock.monotonic() >= delivery.lease_until:
            self._lose(delivery, "the lease ended before it could be given back")
        else:
            self.settlement.submit(delivery, Intent.RELEASE, seconds)

    def _give_back_group(self, delivery: Delivery, seconds: int) -> None:
        """Release all that waits behind a delivery that is not going to succeed here."""
        for follower in self.lanes.followers(delivery):
            self.release(follower, seconds, unrun=True)

    def _carry(self, delivery: Delivery, reason: str) -> None:
        """To the dead-letter queue; the lane stays taken until it is there."""
        delivery.move(SETTLING)
        self._tasks.create_task(self._carry_out(delivery, reason))

    async def _carry_out(self, delivery: Delivery, reason: str) -> None:
        problem = ""
        if self._dead_letters is None:
            problem = "there is no dead-letter queue"
        else:
            try:
                await self._dead_letters.send(delivery, reason, delivery.attempt)
            except Exception as error:
                problem = describe(error)
        if problem:
            _log.error(
                "%s: message %s can't go to the dead-letter queue (%s); it is tried again later",
                self.name,
                delivery.message_id,
                problem,
            )
            delay = ceil(delay_after(self.subscription.retry, delivery.attempt))
            self._give_back_group(delivery, 0 if self._queue.is_fifo else delay)
            self.settlement.submit(delivery, Intent.RELEASE, delay)
        else:
            self.stats.dead_lettered += 1
            self._hooks.emit(
                DeadLettered(
                    self.name,
                    delivery.message_id,
                    self.ready.dead_letter_name,
                    delivery.attempt,
                    reason,
                )
            )
            self.settlement.submit(delivery, Intent.DELETE)
        self.lanes.done(delivery)
        self.workers.wake()

    # --- what settlement and the extender tell --------------------------------------------------

    def on_settled(self, delivery: Delivery, intent: Intent) -> None:
        if intent is Intent.DELETE:
            self.stats.deleted += 1
            if self._attempts:
                self._attempts.forget(delivery.message_id)
        self._end(delivery, SETTLED)

    def on_extended(self, delivery: Delivery) -> None:
        delivery.show_lease()
        self.extender.renewed(delivery)

    def on_refused(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        if intent is Intent.EXTEND:
            if not delivery.lease_lost:
                self.on_lease_over(delivery, f"SQS refused to extend it: {error}")
            return
        self.stats.settle_failed += 1
        verb: Literal["delete", "release"] = "delete" if intent is Intent.DELETE else "release"
        _log.warning("%s: message %s: %s failed: %s", self.name, delivery.message_id, verb, error)
        self._hooks.emit(SettleFailed(self.name, delivery.message_id, verb, describe(error)))
        if intent is Intent.DELETE:
            self._attempts.done_unconfirmed(delivery.message_id)
            self._give_back_group(delivery, 0)
        self._end(delivery, LOST)

    def extend(self, delivery: Delivery, seconds: int) -> None:
        self.settlement.submit(delivery, Intent.EXTEND, seconds)

    def on_lease_over(self, delivery: Delivery, reason: str) -> None:
        if delivery.state is SETTLING:
            return  # settlement finds out, and says what came of it
        if delivery.state is RUNNING:
            self._report_lost(delivery, reason)
            self._give_back_group(delivery, 0)
            if self.subscription.on_lease_lost == "cancel" and delivery.task is not None:
                delivery.stop_reason = reason
                delivery.task.cancel()
            return
        if delivery.state is WAITING:
            self.waiting.pop(delivery)[0].cancel()
            self._give_back_group(delivery, 0)
            self._lose(delivery, reason)
            self.lanes.done(delivery)
        elif delivery.state is HELD:
            self.lanes.discard(delivery)
            self._attempts.unrun(delivery.message_id)
            self._lose(delivery, reason)

    def on_stall(self, seconds: float) -> None:
        self.stats.stalls += 1
        _log.error("%s: the event loop was blocked for %.1f s", self.name, seconds)
        self._hooks.emit(LoopStalled(self.name, seconds))

    def _lose(self, delivery: Delivery, reason: str) -> None:
        self._report_lost(delivery, reason)
        self._end(delivery, LOST)

    def _report_lost(self, delivery: Delivery, reason: str) -> None:
        running = delivery.state is RUNNING
        delivery.lease_lost = True
        if delivery.lease is not None:
            delivery.lease.lost = True
        self.stats.leases_lost += 1
        _log.warning("%s: lease of %s lost: %s", self.name, delivery.message_id, reason)
        self._hooks.emit(LeaseLost(self.name, delivery.message_id, reason, running))

    def _end(self, delivery: Delivery, state: object) -> None:
        """The last thing that happens to a delivery."""
        if delivery.state is RUNNING and state is SETTLED:
            raise AssertionError("a running delivery is not settled")
        delivery.move(SETTLED if state is SETTLED else LOST)
        self.live.discard(delivery)
        if self._by_id.get(delivery.message_id) is delivery:
            del self._by_id[delivery.message_id]
        if self.stopping:
            self.quiet.set()
        else:
            self.pump.kick()

    def _tell(self, delivery: Delivery, outcome: Outcome | Stopped, began: float) -> None:
        name = type(outcome).__name__.lower()
        if delivery.lease_lost and not isinstance(outcome, Ack):
            name = "lost"
        self._hooks.emit(
            Handled(
                self.name,
                delivery.message_id,
                name,  # type: ignore[arg-type]
                delivery.attempt,
                self._clock.monotonic() - began,
                getattr(outcome, "reason", ""),
            )
        )
