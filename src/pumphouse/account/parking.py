"""Receives that wait for a message: who is parked at a queue, and the one timer that wakes them.

A parked receive is roused, never handed anything: it then takes for itself, or passes the wake-up
on when it was cancelled meanwhile. So a receive that nobody waits for any more can't consume. What
can be taken, and when, is the queue's matter.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

from pumphouse.clock import Clock, Timer


class Ticket:
    """One receive that waits until `deadline`; `expired` once that has come."""

    __slots__ = ("deadline", "expired", "number", "woken")

    def __init__(self, deadline: float, number: int) -> None:
        self.deadline = deadline
        self.number = number
        self.expired = False
        self.woken: asyncio.Future[None] | None = None

    def __lt__(self, other: Ticket) -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class Parking:
    """The parked receives of one queue, in the order they came.

    `next_event()` is when a message may become visible by time alone, and `on_event(now)` is called
    then. A timer is armed only while someone is parked.
    """

    __slots__ = (
        "_clock",
        "_count",
        "_deadlines",
        "_next_event",
        "_on_event",
        "_parked",
        "_roused",
        "_timer",
        "_timer_due",
        "occupied",
    )

    def __init__(
        self, clock: Clock, next_event: Callable[[], float], on_event: Callable[[float], None]
    ) -> None:
        self._clock = clock
        self._next_event = next_event
        self._on_event = on_event
        self._count = 0
        self._parked: OrderedDict[Ticket, None] = OrderedDict()
        self._deadlines: list[Ticket] = []
        self._roused: Ticket | None = None
        self._timer: Timer | None = None
        self._timer_due = inf
        self.occupied = False
        """Whether anyone is parked."""

    def __len__(self) -> int:
        return len(self._parked) + (self._roused is not None)

    def enter(self, deadline: float) -> Ticket:
        """A place at the end of the line."""
        self._count += 1
        ticket = Ticket(deadline, self._count)
        heappush(self._deadlines, ticket)
        if len(self._deadlines) > 2 * len(self._parked) + 16:
            self._deadlines = [each for each in self._deadlines if self._waits(each)]
            self._deadlines.append(ticket)
            heapify(self._deadlines)
        return ticket

    async def wait(self, ticket: Ticket) -> None:
        """Return when the ticket is roused or has expired; again in front if it was roused before.

        Whoever waits calls `leave` at the end, however it ends.
        """
        ticket.woken = asyncio.get_running_loop().create_future()
        self._parked[ticket] = None
        if ticket is self._roused:
            self._roused = None
            self._parked.move_to_end(ticket, last=False)
        self.occupied = True
        self.arm()
        await ticket.woken

    def leave(self, ticket: Ticket) -> None:
        self._parked.pop(ticket, None)
        if ticket is self._roused:
            self._roused = None
        if not self._parked:
            self.occupied = False
            self._disarm()

    def rouse(self) -> None:
        """Wake the first in line, unless one that was woken has not yet looked."""
        if self._roused is None and self._parked:
            self._roused = self._parked.popitem(last=False)[0]
            self._roused.wake()

    def rouse_all(self) -> None:
        """Wake everyone: there is nothing to wait for any more."""
        for ticket in self._parked:
            ticket.wake()

    def arm(self) -> None:
        """Have the timer go off when time alone changes something for those who are parked."""
        if not self._parked:
            self._disarm()
            return
        due = min(self._next_event(), self._next_deadline())
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(due - self._clock.monotonic(), self._ring)

    def _ring(self) -> None:
        # The time that the timer was set for, even where the clock is a rounding error before it.
        now = max(self._timer_due, self._clock.monotonic())
        self._timer = None
        while self._deadlines and self._deadlines[0].deadline <= now:
            ticket = heappop(self._deadlines)
            ticket.expired = True
            if ticket in self._parked:
                del self._parked[ticket]
                ticket.wake()
        self._on_event(now)
        self.arm()

    def _next_deadline(self) -> float:
        while self._deadlines and not self._waits(self._deadlines[0]):
            heappop(self._deadlines)
        return self._deadlines[0].deadline if self._deadlines else inf

    def _waits(self, ticket: Ticket) -> bool:
        return ticket in self._parked or ticket is self._roused

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = inf
