"""One subscription at work: from the received message to its handler.

The way of a message: the pump brings it (`on_received`), it waits in its lane, a worker takes it
(`_next`), the runner decodes it and calls the handler, and what came of it is carried out by
`exits.py`, through `settlement.py`. The extender keeps its lease all the while. Stopping is in
`stopping.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pumphouse.backend import Backend
from pumphouse.clock import Clock, Timer
from pumphouse.hooks import Hooks
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.batches import BatchRule
from pumphouse.subscriber.carrying import Ran
from pumphouse.subscriber.delivery import RUNNING, Delivery, Intent
from pumphouse.subscriber.events import ReceivedAgain
from pumphouse.subscriber.exits import Exits
from pumphouse.subscriber.judging import STOPPED, Stopped
from pumphouse.subscriber.outcomes import Outcome
from pumphouse.subscriber.priority import PriorityGroup
from pumphouse.subscriber.pump import Health, Pump
from pumphouse.subscriber.runner import Runner
from pumphouse.subscriber.setup import Ready
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription
from pumphouse.subscriber.workers import Workers

_Result = Outcome | Stopped
_Singles = Workers[Delivery, _Result]
_Batches = Workers[list[Delivery], list[_Result]]

_log = logging.getLogger("pumphouse.subscriber")


class Consumer:
    """A running subscription. `on_end()` is called when it ends by itself, with its queue."""

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
        *,
        priorities: PriorityGroup | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        queue = subscription.queue
        self.subscription = subscription
        self.ready = ready
        self.name = queue.known_as.name
        self.stats = stats
        self.runner = runner
        self.quiet = asyncio.Event()  # set when a stop has something to look at
        self._queue = queue
        self._fifo = queue.is_fifo
        self._key_of = runner.partition_of if subscription.partition_key is not None else None
        self._clock = clock
        self._monotonic = clock.monotonic
        self._hooks = hooks
        self._on_end = on_end
        self._capacity = subscription.concurrency * (subscription.batch or 1) + queue.prefetch
        self._live_most = max(100, 10 * self._capacity)
        self._batches = (
            BatchRule(subscription.batch, subscription.batch_window_seconds)
            if subscription.batch
            else None
        )
        self._batch_timer: Timer | None = None
        self._gathers_since = 0.0  # when there was last room for more, after there was none
        self.exits = Exits(subscription, ready, backend, clock, hooks, stats, tasks, self._changed)
        self._lanes = self.exits.lanes
        self._records = self.exits.attempts.records  # what is remembered of messages: often nothing
        self._most_attempts = ready.max_attempts
        self.pump = Pump(
            backend,
            queue,
            ready.queue_url,
            clock,
            hooks,
            self,
            tasks,
            lease_seconds=ready.lease_seconds,
            resolve=ready.resolve,
        )
        size = subscription.concurrency
        self.workers = (
            _Batches(size, self._next_batch, runner.run_batch, self._finish_batch, [])
            if self._batches
            else _Singles(size, self._next, runner.run, self.exits.finish, STOPPED)
        )
        self._priorities = priorities if subscription.priority is not None else None
        self._its_turn: Callable[[], bool] | None = None
        if self._priorities is not None and subscription.priority is not None:
            self._its_turn = self._priorities.join(subscription.priority, self)
            self.pump.eager = True

    @property
    def health(self) -> Health:
        if self.pump.ended:
            return "ended"
        return "unhealthy" if self.reason else "healthy"

    @property
    def reason(self) -> str:
        """Why it is not healthy: the last receive failed, or settling has for some time."""
        if self.pump.ended:
            return "the queue was deleted"
        return self.pump.reason or self.exits.settlement.problem

    @property
    def requests(self) -> int:
        """Every request that was made for it: receives, settlement, and dead letters."""
        return self.pump.requests + self.exits.requests

    @property
    def stopping(self) -> bool:
        return self.exits.stopping

    # --- what the pump asks and brings ----------------------------------------------------------

    def room(self) -> int:
        """How many more messages may be received now."""
        exits = self.exits
        if exits.extender.behind() or exits.settlement.congested:
            exits.short_of_room = True
            return 0
        if self._its_turn is not None and not self._its_turn():
            return 0
        waiting = self._lanes.available if self._batches else len(self._lanes.line)
        room = self._capacity - len(exits.at_work) - waiting
        left = self._live_most - len(exits.live)
        if left < room:
            exits.short_of_room = True
            return left
        return room

    def hungry(self) -> bool:
        """Whether a handler is free and nothing waits for it."""
        return not self._lanes.line or self._batches is not None

    def on_received(self, messages: list[ReceivedMessage], since: float) -> None:
        """Messages came; their leases run, and are counted from `since`."""
        exits = self.exits
        by_id = exits.by_id
        now = self._monotonic()
        lease_until = since + self.ready.lease_seconds
        self.stats.received += len(messages)
        arrived: list[Delivery] = []
        for raw in messages:
            known = by_id.get(raw.message_id)
            if known is None or not self._is_again(known, raw, lease_until):
                by_id[raw.message_id] = delivery = Delivery(raw, now, lease_until)
                arrived.append(delivery)
        exits.live.update(arrived)
        exits.extender.register(arrived, now, lease_until)
        self._admit(arrived)
        self.workers.wake()

    def _admit(self, arrived: list[Delivery]) -> None:
        """Deliveries that just came: to their lanes, or straight on if they are not to be run."""
        exits = self.exits
        if exits.stopping:
            for delivery in arrived:
                exits.release(delivery, unrun=True)
            return
        attempts, records = exits.attempts, self._records
        admitted: list[Delivery] = []
        for delivery in arrived:
            raw = delivery.raw
            attributes = raw.attributes
            if records or attributes.get("ApproximateReceiveCount") != "1":
                if attempts.is_done(raw.message_id):
                    exits.delete_done(delivery)
                    continue
                delivery.attempt = attempts.arrive(raw.message_id, delivery.receive_count)
            if self._fifo:
                delivery.key = attributes.get("MessageGroupId", "")
                delivery.sequence = int(attributes.get("SequenceNumber") or 0)
            elif self._key_of is not None:
                delivery.key = self._key_of(delivery)
            admitted.append(delivery)
        self._lanes.add(*admitted)

    def _is_again(self, known: Delivery, raw: ReceivedMessage, lease_until: float) -> bool:
        """Whether a message that is still here was received again, and is dealt with by that."""
        if known.intent is Intent.RELEASE or known.lease_lost:
            return False  # the one here is on its way out, and this one has to be run or released
        known.raw = raw
        known.lease_until = lease_until
        known.show_lease(self._clock)
        self.exits.extender.renewed(known)
        self.stats.received_again += 1
        _log.warning(
            "%s: message %s was received again while it is %s",
            self.name,
            known.message_id,
            known.state.name,
        )
        self._hooks.emit(ReceivedAgain(self.name, known.message_id))
        return True

    def on_empty(self) -> None:
        """A receive brought nothing, or failed."""
        if self._priorities is not None:
            self._priorities.changed(self)

    def on_gone(self) -> None:
        """The queue does not exist, and the subscription ends with it."""
        _log.warning("%s: the queue is gone, and the subscription ends with it", self.name)
        self._on_end()

    # --- what the priority group asks and tells -------------------------------------------------

    def has_something(self) -> bool:
        """Whether messages wait here, or may wait in the queue. A queue that is not asked, as its
        handlers are busy and nothing is fetched in advance, holds up nothing."""
        pump = self.pump
        return bool(self._lanes.line) or (
            pump.healthy and not pump.empty and not self.stopping and pump.open_receives > 0
        )

    def look_again(self) -> None:
        """What may be started has changed."""
        self.workers.wake()
        self._changed()

    # --- handlers -------------------------------------------------------------------------------

    # While it stops nothing waits in the lanes, and so nothing is started.

    def _next(self, task: asyncio.Task[None]) -> Delivery | None:
        """The next delivery for a free worker."""
        lanes = self._lanes
        while lanes.line and (self._its_turn is None or self._its_turn()):
            delivery = lanes.take()
            if self._may_start(delivery, task):
                if not lanes.line:
                    self._nothing_waits()
                return delivery
        self._nothing_to_do()
        return None

    def _next_batch(self, task: asyncio.Task[None]) -> list[Delivery] | None:
        """The next batch for a free worker, or None while there is none, or none is due."""
        rule, lanes = self._batches, self._lanes
        while rule and lanes.line:
            if self._its_turn is not None and not self._its_turn():
                break
            now = self._clock.monotonic()
            since = max(lanes.first_came, self._gathers_since)
            if wait := rule.wait(now, lanes.available, since):
                if self._batch_timer is None:
                    self._batch_timer = self._clock.call_later(wait, self._batch_due)
                break
            if batch := self._startable(lanes.take_many(rule.size), task):
                if not lanes.line:
                    self._nothing_waits()
                return batch
        self._nothing_to_do()
        return None

    def _startable(self, taken: list[Delivery], task: asyncio.Task[None]) -> list[Delivery]:
        """Those of a batch that may start. What stands behind one that is not out of the way
        doesn't: it waits for that, or is given back with it."""
        batch: list[Delivery] = []
        stuck: dict[str, Delivery] = {}  # by lane
        for each in taken:
            head = stuck.get(each.key) if stuck and each.key is not None else None
            if head is not None:
                if head.live:
                    self._lanes.again(each)
                else:
                    self.exits.release(each, unrun=True)
                    self._lanes.done(each)
            elif self._may_start(each, task):
                batch.append(each)
            elif each.key is not None and each.intent is not Intent.DELETE:
                stuck[each.key] = each
        return batch

    def _nothing_to_do(self) -> None:
        """A worker goes idle. What waits may not start yet, so no other one is woken for it."""
        if self.stopping:
            self.quiet.set()
        else:
            self.pump.kick()

    def _nothing_waits(self) -> None:
        self.pump.kick()
        if self._priorities is not None:
            self._priorities.changed(self)

    def _batch_due(self) -> None:
        self._batch_timer = None
        self.workers.wake()

    def _may_start(self, delivery: Delivery, task: asyncio.Task[None]) -> bool:
        exits = self.exits
        now = delivery.started_at = self._monotonic()
        if now >= delivery.lease_until:
            self.stats.expired += 1
            exits.attempts.unrun(delivery.message_id)
            exits.lose(delivery, "the lease ended before a handler was free")
            for follower in self._lanes.followers(delivery):
                exits.release(follower, unrun=True)
            self._lanes.done(delivery)
            return False
        if self._records and exits.attempts.is_done(delivery.message_id):
            exits.delete_done(delivery)  # an earlier receive was handled while this one waited
            self._lanes.done(delivery)
            return False
        if self._most_attempts is not None and delivery.attempt > self._most_attempts:
            exits.carry(delivery, f"{delivery.attempt - 1} attempts are used up", ran=False)
            return False
        delivery.state = RUNNING  # it waited, and this is the way of most
        exits.at_work[delivery] = task
        self.stats.started += 1
        return True

    def _finish_batch(self, batch: list[Delivery], outcomes: list[_Result]) -> None:
        """Carry out what came of a handler for each delivery of its batch."""
        if self._queue.extend and self.workers.all_busy and not self.pump.open_receives:
            # there was no room, and so what waits may be the first few of a batch: it gathers from
            # now on, where its lease lasts for that
            self._gathers_since = self._monotonic()
        outcomes = outcomes or [STOPPED] * len(batch)
        by_lane: dict[str, list[Ran]] = {}
        for delivery, outcome in zip(batch, outcomes, strict=True):
            if delivery.key is None:
                self.exits.finish(delivery, outcome)
            else:
                by_lane.setdefault(delivery.key, []).append((delivery, outcome))
        for ran in by_lane.values():
            self.exits.finish_lane(ran)
        self._changed()

    def stop_collecting(self) -> None:
        """No batch is waited for any more; for a stop."""
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None

    def _changed(self) -> None:
        """A lane may go on, there may be room again, or a stop may be complete."""
        if self.exits.stopping:
            self.quiet.set()
            return
        if self._lanes.line:
            self.workers.wake()
        self.pump.kick()
