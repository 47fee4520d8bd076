"""Every way out for a delivery: deleted, tried again in place, given back, carried away, or lost.

`Exits` has the deliveries that are alive, their lanes and their leases. It is told what came of a
handler (`finish`), by SQS what came of a request (`on_settled`, `on_extended`, `on_refused`) and by
the extender what came of a lease (`on_lease_over`), and sees to it that each way out gives back
the lease and lets the lane go on. How deliveries come in and to their handlers is `consumer.py`'s;
the wait of a retry is `in_place.py`'s, the way to the dead letters `carrying.py`'s, and what is
told of it all `reports.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from typing import Literal

from pumphouse.backend import Backend
from pumphouse.clock import Clock
from pumphouse.errors import MessageNotInflight, ReceiptHandleExpired, ReceiptHandleIsInvalid
from pumphouse.hooks import Hooks
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.subscriber import events
from pumphouse.subscriber.attempts import Attempts
from pumphouse.subscriber.bodies import StoredBodies
from pumphouse.subscriber.carrying import Behind, Carrying
from pumphouse.subscriber.delivery import (
    HELD,
    LOST,
    RUNNING,
    SETTLED,
    SETTLING,
    WAITING,
    Delivery,
    Intent,
    State,
)
from pumphouse.subscriber.extender import Extender
from pumphouse.subscriber.in_place import InPlace
from pumphouse.subscriber.judging import Stopped
from pumphouse.subscriber.lanes import Lanes
from pumphouse.subscriber.outcomes import (
    DEFAULT_BACKOFF,
    Ack,
    Drop,
    Outcome,
    Reject,
    Retry,
    delay_after,
    describe,
)
from pumphouse.subscriber.reports import Reports
from pumphouse.subscriber.settlement import Settlement
from pumphouse.subscriber.setup import Ready
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription

HIDE_MARGIN_SECONDS = 60
"""What is left of SQS's 12 hours: for the receive's own way, and for requests that are repeated."""


class Exits:
    """The deliveries of one subscription, and what becomes of them.

    `changed()` is called when a lane may go on, or when there is room again.
    """

    def __init__(
        self,
        subscription: Subscription,
        ready: Ready,
        backend: Backend,
        clock: Clock,
        hooks: Hooks,
        stats: Stats,
        tasks: asyncio.TaskGroup,
        changed: Callable[[], object],
    ) -> None:
        queue = subscription.queue
        self.name = queue.known_as.name
        self.stopping = False
        self.short_of_room = False  # the pump was told to wait for deliveries to be settled
        self.live: set[Delivery] = set()  # received and neither settled nor lost
        self.at_work: dict[Delivery, asyncio.Task[None]] = {}  # a handler has it, in this task
        self.by_id: dict[str, Delivery] = {}
        self.lanes = Lanes()
        self.attempts = Attempts(fifo=queue.is_fifo, max_attempts=ready.max_attempts)
        self.in_place = InPlace(queue, ready, clock, self._delay_over)
        self.settlement = Settlement(backend, ready.queue_url, clock, self, tasks)
        self.extender = Extender(
            clock,
            self,
            lease_seconds=ready.lease_seconds,
            max_lease_seconds=queue.max_lease_seconds,
            extend=queue.extend,
        )
        self._subscription = subscription
        self._bodies = (
            StoredBodies(subscription.claim_check, clock, tasks, self.name)
            if subscription.claim_check
            else None
        )
        self._queue = queue
        self._ready = ready
        self._clock = clock
        self._monotonic = clock.monotonic
        self._hooks = hooks
        self._stats = stats
        self._changed = changed
        self._reports = Reports(self.name, clock, hooks, stats)
        self._carrying = Carrying(ready, backend, clock, self._reports, self, tasks)

    @property
    def requests(self) -> int:
        """The requests that settled what left, and carried what failed."""
        return self.settlement.requests + self._carrying.requests

    # --- after a handler ------------------------------------------------------------------------

    def finish(self, delivery: Delivery, outcome: Outcome | Stopped, behind: Behind = ()) -> None:
        """Carry out what came of a handler; `behind` waits while it is carried away."""
        if delivery.restored is not None:
            delivery.restored = None
        del self.at_work[delivery]
        if self.stopping:
            self._changed()
        if delivery.state is not RUNNING:
            return  # the stop gave it back before its thread was done
        if self._hooks.listening and self._hooks.wanted(events.Handled):
            self._reports.handled(delivery, outcome)
        if type(outcome) is Ack:
            self._stats.acked += 1
        elif isinstance(outcome, Drop) and not delivery.lease_lost:
            self._stats.dropped += 1
        else:
            self._not_done(delivery, outcome, behind)
            return
        if self._monotonic() >= delivery.lease_until or delivery.lease_lost:
            self._report_lost(delivery, "the handler took longer than the lease")
            # it may have come again, and is not to be run again
            self.attempts.done_unconfirmed(delivery.message_id)
        delivery.state = SETTLING  # it was running, and this is the way of most
        self.settlement.delete(delivery)
        if delivery.key is not None:
            self.lanes.done(delivery)

    def _not_done(self, delivery: Delivery, outcome: Outcome | Stopped, behind: Behind) -> None:
        if self._was_lost(delivery):
            return
        if isinstance(outcome, Retry):
            self._stats.retried += 1
            self._retry(delivery, outcome)
        elif isinstance(outcome, Reject):
            self._stats.rejected += 1
            self.attempts.ran(delivery.message_id)
            self.carry(delivery, outcome.reason or "rejected", behind)
        else:
            self._stats.stopped += 1
            self._give_back_group(delivery, 0)
            self.release(delivery, unrun=True)
            self.lanes.done(delivery)

    def finish_lane(self, ran: Behind) -> None:
        """`finish`, for those of a batch that are of one lane, in order and up to the first that is
        not done: its lane goes on there, and none behind it is deleted, whatever came of it."""
        for place, (delivery, outcome) in enumerate(ran):
            lost = delivery.state is not RUNNING or self._is_lost(delivery)
            if isinstance(outcome, Ack) or (isinstance(outcome, Drop) and not lost):
                self.finish(delivery, outcome)
                continue
            behind = ran[place + 1 :]
            if isinstance(outcome, Reject) and not lost:
                self.finish(delivery, outcome, behind)  # which waits until it is out of the way
                return
            self._put_back(behind, lost=lost)  # before it is judged, as its group may go with it
            self.finish(delivery, outcome)
            return

    def _put_back(self, behind: Behind, *, lost: bool) -> None:
        """Deliveries of a batch that ran behind one of their lane that is not done: they come
        again, and that they ran was no attempt, as they are not what failed. Behind one whose lease
        is lost nothing waits here, as it may be with somebody else: from there on they are given
        back."""
        for delivery, _ in behind:
            delivery.restored = None
            del self.at_work[delivery]
            if delivery.state is not RUNNING or self._was_lost(delivery):
                lost = True
            elif lost or self.stopping:  # then nobody takes anything from its lane any more
                self.release(delivery, unrun=True)
                self.lanes.done(delivery)
            else:
                delivery.move(WAITING)
                delivery.move(HELD)
                self.lanes.again(delivery)

    def _is_lost(self, delivery: Delivery) -> bool:
        """Whether the lease is over of one that a handler had, which is counted once."""
        if not delivery.lease_lost and self._monotonic() >= delivery.lease_until:
            self.on_lease_over(delivery, "the handler took longer than the lease")
        return delivery.lease_lost

    def _was_lost(self, delivery: Delivery) -> bool:
        """Whether the lease was lost while a handler had it: that is its end here."""
        if not self._is_lost(delivery):
            return False
        self._end(delivery, LOST)
        self.lanes.done(delivery)
        return True

    def _retry(self, delivery: Delivery, outcome: Retry) -> None:
        limit = self._ready.max_attempts
        if outcome.counts:
            self.attempts.ran(delivery.message_id)
            if limit is not None and delivery.attempt >= limit:
                self.carry(delivery, outcome.reason or "attempts are used up")
                return
        delay = outcome.after_seconds
        if delay is None:
            delay = delay_after(self._subscription.retry, delivery.attempt)
        self._stats.retried_in_place += self._again(delivery, delay, ran=outcome.counts)

    def _again(self, delivery: Delivery, delay: float, *, ran: bool) -> bool:
        """Back to its handler after a delay: in place (True), or by way of SQS; `ran` for one that
        had an attempt."""
        delivery.move(WAITING)
        behind = self.lanes.behind(delivery)
        if self.stopping or not self.in_place.allows(delivery, delay, behind):
            self._give_back_with_group(delivery, ceil(delay), unrun=not ran)
            return False
        delivery.attempt += ran
        self.in_place.wait(delivery, delay)
        return True

    def _delay_over(self, delivery: Delivery) -> None:
        delivery.move(HELD)
        self.lanes.again(delivery)
        self._changed()

    # --- deletes and releases -------------------------------------------------------------------

    def delete_done(self, delivery: Delivery) -> None:
        """Delete one that came again after it was handled, as its delete was not confirmed."""
        delivery.carried = self.attempts.was_carried(delivery.message_id)
        delivery.move(SETTLING)
        self.settlement.delete(delivery)

    def release(self, delivery: Delivery, seconds: int = 0, *, unrun: bool = False) -> None:
        """Make a message visible again in `seconds`; `unrun` for one that had no attempt."""
        if unrun:
            self._stats.released += 1
            self.attempts.unrun(delivery.message_id)
        delivery.given_back = True
        if delivery.lease is not None:
            delivery.lease.end()  # a thread that is still at it sees that it is not alone any more
        if self._clock.monotonic() >= delivery.lease_until:
            self.lose(delivery, "the lease ended before it could be given back")
        else:
            delivery.move(SETTLING)
            self.settlement.release(delivery, min(seconds, self._hideable(delivery)))

    def _hideable(self, delivery: Delivery) -> int:
        """For how many seconds more SQS hides a message, of the 12 hours since its receive."""
        until = delivery.received_at + MAX_VISIBILITY_SECONDS - HIDE_MARGIN_SECONDS
        return max(0, int(until - self._monotonic()))

    def release_waiting(self) -> None:
        """Give back everything that no handler has; for a stop."""
        for delivery in self.lanes.clear():
            self.release(delivery, unrun=True)
        for delivery, left in self.in_place.end_all():
            self.release(delivery, max(0, ceil(left)))
            self.lanes.done(delivery)

    def _give_back_with_group(self, delivery: Delivery, seconds: int, *, unrun: bool) -> None:
        # a FIFO queue hands out nothing of a group whose head is hidden; elsewhere the followers
        # would overtake it
        self._give_back_group(delivery, 0 if self._queue.is_fifo else seconds)
        self.release(delivery, seconds, unrun=unrun)
        self.lanes.done(delivery)

    def _give_back_group(self, delivery: Delivery, seconds: int) -> None:
        """Release all that waits behind a delivery that is not going to succeed here."""
        for follower in self.lanes.followers(delivery):
            self.release(follower, seconds, unrun=True)

    # --- to the dead-letter queue ---------------------------------------------------------------

    def carry(
        self, delivery: Delivery, reason: str, behind: Behind = (), *, ran: bool = True
    ) -> None:
        """To the dead-letter queue; the lane stays taken until it is there, and what ran `behind`
        it in its batch waits. `ran` for one that just had an attempt."""
        delivery.move(SETTLING)
        self._carrying.carry(delivery, reason, behind, ran=ran)

    def on_carried(self, delivery: Delivery, behind: Behind) -> None:
        if delivery.live:
            self.settlement.delete(delivery)
        else:
            self.attempts.done_unconfirmed(delivery.message_id, carried=True)
        self.lanes.done(delivery)
        self.finish_lane(behind)
        self._changed()

    def on_not_carried(
        self, delivery: Delivery, behind: Behind, problem: str, *, ran: bool
    ) -> None:
        self._put_back(behind, lost=not delivery.live)
        if delivery.live:
            delay = max(
                delay_after(self._subscription.retry, delivery.attempt),
                DEFAULT_BACKOFF.delay(self.attempts.not_carried(delivery.message_id)),
            )
            self._reports.not_carried(delivery, problem, delay)
            self._again(delivery, delay, ran=ran)
        else:
            self._give_back_group(delivery, 0)
            self.lanes.done(delivery)
        self._changed()

    # --- what settlement and the extender tell --------------------------------------------------

    def on_deleted(self, deliveries: Sequence[Delivery]) -> None:
        """`on_settled` for a whole request of deletes."""
        self._stats.deleted += len(deliveries)
        self.live.difference_update(deliveries)
        by_id = self.by_id
        for delivery in deliveries:
            delivery.state = SETTLED
            message_id = delivery.raw.message_id
            if by_id.get(message_id) is delivery:
                del by_id[message_id]
        if self.attempts.records or self._bodies is not None:
            for delivery in deliveries:
                self._forget(delivery)
        self._room_again()

    def on_settled(self, delivery: Delivery, intent: Intent) -> None:
        if intent is Intent.DELETE:
            self._stats.deleted += 1
            self._forget(delivery)
        self._end(delivery, SETTLED)

    def _forget(self, delivery: Delivery) -> None:
        """It is deleted for certain. Where it came again meanwhile that is not to be run."""
        if self.by_id.get(delivery.message_id, delivery) is delivery:
            self.attempts.forget(delivery.message_id)
        else:
            self.attempts.done_unconfirmed(delivery.message_id)
        if self._bodies is not None:
            self._bodies.forget(delivery)

    def on_extended(self, delivery: Delivery) -> None:
        if not delivery.lease_lost:  # or it is too late, and somebody else may have it
            delivery.show_lease(self._clock)
            self.extender.renewed(delivery)
        self._room_again()

    def on_refused(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        if intent is Intent.EXTEND:
            if delivery.lease_lost:
                return
            if isinstance(
                error, ReceiptHandleIsInvalid | ReceiptHandleExpired | MessageNotInflight
            ):
                self.on_lease_over(delivery, f"it can't be extended: {describe(error)}")
            else:
                self._reports.not_extended(delivery, error)
                self.extender.refused(delivery)
            return
        verb: Literal["delete", "release"] = "delete" if intent is Intent.DELETE else "release"
        known = bool(self.settlement.problem)
        self._reports.not_settled(delivery, verb, error, known=known)
        if intent is Intent.DELETE:
            self.attempts.done_unconfirmed(delivery.message_id, carried=delivery.carried)
            self._give_back_group(delivery, 0)
        self._end(delivery, LOST)

    def extend(self, delivery: Delivery, seconds: int) -> None:
        self.settlement.extend(delivery, seconds)

    def on_lease_over(self, delivery: Delivery, reason: str) -> None:
        if delivery.state is SETTLING:
            if delivery.intent is Intent.NONE:  # it is being carried, and somebody else may have it
                self.lose(delivery, reason)
            return  # otherwise settlement finds out, and says what came of it
        if delivery.state is HELD:
            self._stats.expired += 1
            self.attempts.unrun(delivery.message_id)
            for follower in self.lanes.cut(delivery):
                self.release(follower, unrun=True)
            self.lose(delivery, reason)
            return
        self._give_back_group(delivery, 0)
        if delivery.state is RUNNING:
            self.attempts.ran(delivery.message_id)  # now, as it may come again while this one runs
            self._report_lost(delivery, reason)
            cancel = self._subscription.on_lease_lost == "cancel" and not self._subscription.batch
            task = self.at_work.get(delivery)
            if cancel and task is not None:
                delivery.stop_reason = reason
                task.cancel()
        elif delivery.state is WAITING:
            self.in_place.end(delivery)
            self.lose(delivery, reason)
            self.lanes.done(delivery)

    def on_stall(self, seconds: float) -> None:
        self._reports.stalled(seconds)

    def lose(self, delivery: Delivery, reason: str) -> None:
        """The lease of a delivery that no handler has is over."""
        self._report_lost(delivery, reason)
        self._end(delivery, LOST)

    def _report_lost(self, delivery: Delivery, reason: str) -> None:
        if not delivery.lease_lost:
            delivery.lease_lost = True
            if delivery.lease is not None:
                delivery.lease.end()
            self._reports.lease_lost(delivery, reason)

    def _end(self, delivery: Delivery, state: State) -> None:
        """The last thing that happens to a delivery."""
        delivery.move(state)
        self.live.discard(delivery)
        if self.by_id.get(delivery.message_id) is delivery:
            del self.by_id[delivery.message_id]
        self._room_again()

    def _room_again(self) -> None:
        if self.stopping or self.short_of_room:
            self.short_of_room = False
            self._changed()
