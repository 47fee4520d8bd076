"""Time as a parameter: the real clock, and a virtual one that a test moves.

Everything in pumphouse that waits, measures or stamps takes a `Clock`. `now()` is for timestamps,
`monotonic()` for durations and deadlines. The virtual clock runs timers in order and lets the event
loop come to rest between them, so a test sees what would have happened, at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

MAX_STEPS = 10_000
"""How often timers may be due without delay, one after the other, before `run_until` ends."""
MAX_ROUNDS = 1_000_000
"""How many rounds of the event loop `settle` lets something run."""


class Timer(Protocol):
    """A callback that is waiting for its time."""

    def cancel(self) -> None:
        """Forget the callback; does nothing once it has run."""


class Clock(Protocol):
    """What tells the time and waits."""

    def now(self) -> float:
        """Seconds since the epoch, for timestamps and signatures."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines."""
        ...

    def call_later(self, delay_seconds: float, callback: Callable[[], object]) -> Timer:
        """Run `callback` on the running event loop in `delay_seconds`."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""


def epoch_of(clock: Clock) -> float:
    """What `now()` was at the zero of `monotonic()`: to be asked anew each time, as the machine's
    time of day is set now and then, and goes on while a machine that is suspended stands still."""
    return clock.now() - clock.monotonic()


@asynccontextmanager
async def timeout(clock: Clock, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """`asyncio.timeout` on any clock: raises `TimeoutError` when the body takes longer.

    None waits for ever. The value is `asyncio`'s own time-out object, so `.expired()` works.
    """
    async with asyncio.timeout(None) as scope:
        if seconds is None:
            yield scope
            return
        loop = asyncio.get_running_loop()
        timer = clock.call_later(max(0.0, seconds), lambda: scope.reschedule(loop.time()))
        try:
            yield scope
        finally:
            timer.cancel()


class RealClock:
    """The machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay_seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, delay_seconds), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def __repr__(self) -> str:
        return "RealClock()"


class _VirtualTimer:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """A clock that stands still until it is moved; for one event loop, in tests and simulations.

    `await clock.advance(30)` runs everything that falls due in the next 30 seconds, each at its own
    time and in order. `await clock.settle()` runs what can run without time passing, and
    `await clock.run_until(done)` moves from timer to timer until `done()` holds.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._epoch = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._held = 0
        self._settling = 0
        self._moving = 0

    def now(self) -> float:
        return self._epoch + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def call_later(self, delay_seconds: float, callback: Callable[[], object]) -> Timer:
        timer = _VirtualTimer(callback)
        due = self._elapsed + max(0.0, delay_seconds)
        heapq.heappush(self._timers, (due, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await waiter
        finally:
            timer.cancel()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let no time pass while the body runs: for work in threads, which the loop can't see."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    @contextmanager
    def released(self) -> Iterator[None]:
        """Let time pass again while the body runs, for one of those who hold it."""
        held = self._held > 0
        self._held -= held
        try:
            yield
        finally:
            self._held += held

    @property
    def next_timer(self) -> float | None:
        """The `monotonic()` time of the next timer, or None when nothing waits for time."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    @property
    def moving(self) -> bool:
        """Whether someone is moving time: in `advance` or `run_until`."""
        return self._moving > 0

    async def settle(self) -> None:
        """Run everything that can run without time passing. Raises `TimeoutError` where that does
        not end."""
        rounds = 0
        loop = asyncio.get_running_loop()
        ready = getattr(loop, "_ready", None)
        self._settling += 1
        try:
            while True:
                if ready is None:  # another loop than asyncio's own does not show its queue
                    for _ in range(64):
                        await asyncio.sleep(0)
                else:
                    await asyncio.sleep(0)
                    # others that settle too are always ready, and wait for the same
                    while len(ready) >= self._settling:
                        rounds += 1
                        if rounds > MAX_ROUNDS:
                            raise TimeoutError(
                                "something runs again and again and never waits for time to pass"
                            )
                        await asyncio.sleep(0)
                if not self._held:
                    return
                await asyncio.sleep(0.0005)  # real time: a thread is at work
        finally:
            self._settling -= 1

    async def advance(self, seconds: float) -> None:
        """Move time by `seconds`, running each timer at its time and the loop to rest after it."""
        if seconds < 0:
            raise ValueError("time does not go back")
        target = self._elapsed + seconds
        self._moving += 1
        try:
            await self.settle()
            while (due := self.next_timer) is not None and due <= target:
                await self._step(due)
            self._elapsed = max(self._elapsed, target)
        finally:
            self._moving -= 1

    async def run_until(self, done: Callable[[], bool], *, limit_seconds: float = 86_400.0) -> None:
        """Move from timer to timer until `done()`; `TimeoutError` after `limit_seconds` of it."""
        end = self._elapsed + limit_seconds
        self._moving += 1
        try:
            await self.settle()
            steps = 0  # without time passing
            while not done():
                due = self.next_timer
                steps = steps + 1 if due is not None and due <= self._elapsed else 0
                if steps > MAX_STEPS:
                    raise TimeoutError(
                        f"not done, and time stands still: {MAX_STEPS:,} times something was due "
                        "at once"
                    )
                if due is None or due > end:
                    raise TimeoutError(
                        f"not done after {limit_seconds:g} virtual seconds"
                        if due is not None
                        else "not done, and nothing is waiting for time to pass"
                    )
                await self._step(due)
        finally:
            self._moving -= 1

    async def _step(self, due: float) -> None:
        self._elapsed = max(self._elapsed, due)
        while self._timers and self._timers[0][0] <= self._elapsed:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.callback()
        await self.settle()

    def __repr__(self) -> str:
        waiting = sum(not timer.cancelled for _, _, timer in self._timers)
        return f"VirtualClock(elapsed={self._elapsed:g}s, timers={waiting})"


async def wait_and_move(clock: Clock | None, event: asyncio.Future[Any]) -> None:
    """Wait for a future, without cancelling it and without raising what it raises; where nobody
    else is there to move a virtual clock, move it until then."""
    while not event.done():
        if not isinstance(clock, VirtualClock):
            await asyncio.wait({event})
            continue
        await asyncio.wait({event}, timeout=0.02)
        if not clock.moving and not event.done() and clock.next_timer is not None:
            with suppress(TimeoutError):  # what it waits for next is not time
                await clock.run_until(event.done)
