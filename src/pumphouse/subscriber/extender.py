"""When which lease is extended: due times, and the one timer that waits for the next of them.

Every lease is due at half of what is left of it, for slow calls to have the other half; what falls
due at about the same time is extended together. The calls themselves are `settlement.py`'s. A lease
that is past its end, or at the end of the time that a message is held in all, is reported as lost
then, whatever has become of its extension; nothing is extended that is about to be given back.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from pumphouse.clock import Clock, Timer
from pumphouse.subscriber.delivery import SETTLED, Delivery, Intent


class Owner(Protocol):
    """Who extends, and who is told."""

    def extend(self, delivery: Delivery, seconds: int) -> None:
        """Ask SQS for `seconds` more from now."""

    def on_lease_over(self, delivery: Delivery, reason: str) -> None:
        """The lease has ended, or may not be extended any more."""

    def on_stall(self, seconds: float) -> None:
        """The timer came that much late: the event loop was blocked."""


MIN_ROOM = 200
"""How many deliveries a schedule holds before it looks for those that are settled."""


class Schedule:
    """Due times, several deliveries each: plain code.

    A delivery that was added by itself (`move`) counts only where that was done last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sequence[Delivery]]] = []
        self._number = 0
        self._held = 0  # deliveries, with their messages
        self._room = MIN_ROOM

    def __len__(self) -> int:
        return self._held

    def add(self, due: float, deliveries: Sequence[Delivery]) -> None:
        self._number += 1
        self._held += len(deliveries)
        if self._held > self._room:
            self._forget_the_settled()
        heapq.heappush(self._heap, (due, self._number, deliveries))

    def move(self, delivery: Delivery, due: float) -> None:
        """From now on this one is due then, and only then."""
        delivery.due = due
        self.add(due, (delivery,))

    def next_due(self) -> float | None:
        """When the earliest delivery that still matters is due."""
        heap = self._heap
        while heap:
            due, _, deliveries = heap[0]
            for delivery in deliveries:
                if delivery.state < SETTLED and delivery.due in (0.0, due):
                    return due
            heapq.heappop(heap)
            self._held -= len(deliveries)
        return None

    def _forget_the_settled(self) -> None:
        """Those that are settled would be kept, with their bodies, until they were due; done when
        they may be more than half."""
        kept = [
            (due, number, _still_due(deliveries, due)) for due, number, deliveries in self._heap
        ]
        self._heap = [entry for entry in kept if entry[2]]
        heapq.heapify(self._heap)
        self._held = sum(len(entry[2]) for entry in self._heap)
        self._room = max(MIN_ROOM, 2 * self._held)

    def take(self, until: float) -> list[Delivery]:
        """The live deliveries that are due by `until`, earliest first."""
        taken: list[Delivery] = []
        while self._heap and self._heap[0][0] <= until:
            due, _, deliveries = heapq.heappop(self._heap)
            self._held -= len(deliveries)
            taken += _still_due(deliveries, due)
        return taken


def _still_due(deliveries: Sequence[Delivery], due: float) -> list[Delivery]:
    return [each for each in deliveries if each.live and each.due in (0.0, due)]


class Extender:
    """Keeps the leases of one queue alive, or (`extend=False`) only watches them end."""

    def __init__(
        self,
        clock: Clock,
        owner: Owner,
        *,
        lease_seconds: int,
        max_lease_seconds: float,
        extend: bool = True,
        on_late: Callable[[], object] | None = None,
    ) -> None:
        self._clock = clock
        self._owner = owner
        self._lease = lease_seconds
        self._cap = max_lease_seconds
        self._extend = extend
        self._schedule = Schedule()
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._slack = lease_seconds / 20
        self._closed = False

    def register(self, deliveries: Sequence[Delivery], now: float, lease_until: float) -> None:
        """Deliveries that were received now, and are leased until then."""
        due = now + max(0.0, lease_until - now) / 2 if self._extend else lease_until
        self._schedule.add(due, deliveries)
        self._arm()

    def renewed(self, delivery: Delivery) -> None:
        """Its lease has a new end: the next extension is due half a lease before that."""
        self._place(delivery, delivery.lease_until - self._lease / 2)

    def behind(self) -> bool:
        """Whether extensions are late by more than a tenth of a lease: no time to receive more."""
        return (
            self._timer is not None and self._clock.monotonic() > self._timer_due + self._lease / 10
        )

    def refused(self, delivery: Delivery) -> None:
        """SQS did not extend it, and its lease goes on: it is asked again when half of what is left
        of that is over."""
        now = self._clock.monotonic()
        self._place(delivery, now + max(0.5, (delivery.lease_until - now) / 2))

    def close(self) -> None:
        """Extend nothing any more, whatever still comes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _place(self, delivery: Delivery, due: float) -> None:
        """Look at it then, or at its end if that is before."""
        due = max(due, self._clock.monotonic())
        self._schedule.move(delivery, min(due, delivery.lease_until, self._last(delivery)))
        self._arm()

    def _last(self, delivery: Delivery) -> float:
        """Until when it may be held in all, with a second for what its end takes."""
        return delivery.received_at + self._cap - 1

    def _arm(self) -> None:
        due = self._schedule.next_due()
        if due is None or self._closed or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(due - self._clock.monotonic(), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        late = now - self._timer_due
        if late > max(0.5, self._lease / 10):
            self._owner.on_stall(late)
        for delivery in self._schedule.take(now + self._slack):
            self._attend(delivery, now)
        self._arm()

    def _attend(self, delivery: Delivery, now: float) -> None:
        if not delivery.live or delivery.lease_lost or delivery.intent is Intent.RELEASE:
            return
        if now >= delivery.lease_until:
            self._owner.on_lease_over(delivery, "the lease ended before it could be extended")
            return
        last = self._last(delivery) if self._extend else math.inf
        if now >= last:
            self._owner.on_lease_over(delivery, "it was held for as long as a message may be")
            return
        seconds = int(min(self._lease, last + 1 - now))
        if self._extend and now + seconds > delivery.lease_until:
            self._owner.extend(delivery, seconds)
        # whatever becomes of that, and until it is known
        self._schedule.move(delivery, min(delivery.lease_until, last))
