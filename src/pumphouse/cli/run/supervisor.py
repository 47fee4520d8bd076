"""Which worker processes of a run there are, and for how long.

Each of the `count` places has one worker. One that crashes is started anew, later each time, and
when it has crashed too often in a row the whole run ends. A signal drains all of them, a second one
cancels their handlers, a third one kills them; so does the end of the time that a drain may take.
A change of the source drains them too, and the next ones start as soon as nothing is held any more.

What a worker is, is `workers.py`'s: here it is whatever has the methods of `Worker`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec.structs import replace

from pumphouse.backoff import full_jitter
from pumphouse.cli.exit_codes import (
    CRASH_LOOP,
    ENDED,
    FAILED,
    HEALS_BY_NO_RESTART,
    OK,
    TRY_LATER,
    of_process,
)
from pumphouse.cli.run.reports import REPORT_SECONDS, Order, Report
from pumphouse.clock import Clock, RealClock, timeout
from pumphouse.health.state import Snapshot, State, WorkerState, merge

MAX_CRASHES = 5
STEADY_SECONDS = 60.0
"""A worker that ran for so long has not crashed in a row with the one before it."""
HARD_SECONDS = 45.0
"""What a worker may take to give everything back once its handlers are cancelled."""
_log = logging.getLogger("pumphouse")


class Worker(Protocol):
    """A process that runs the app."""

    number: int
    report: Report | None
    reported_at: float

    @property
    def pid(self) -> int | None: ...

    @property
    def stop_seconds(self) -> float: ...

    async def wait(self) -> int: ...

    def send(self, number: signal.Signals) -> None: ...

    def kill(self) -> None: ...

    def order(self, order: Order) -> None: ...


class Restarts:
    """When a worker that has ended is started again: after half a second, doubled up to 30 s."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.in_all = 0
        self.in_a_row = 0
        self._rng = rng

    def after(self, code: int, ran_seconds: float) -> float | None:
        """The seconds to wait, or None after `MAX_CRASHES` in a row. One that ended because AWS
        or the network is not there is tried for ever."""
        if ran_seconds >= STEADY_SECONDS:
            self.in_a_row = 0
        self.in_a_row += 1
        if self.in_a_row > MAX_CRASHES and code != TRY_LATER:
            return None
        self.in_all += 1
        ceiling = min(30.0, 0.5 * 2.0 ** min(self.in_a_row - 1, 30))
        return ceiling / 2 + full_jitter(
            1, base_seconds=ceiling / 2, cap_seconds=30.0, rng=self._rng
        )


class _Place:
    """Where a worker is, or is about to be again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: Worker | None = None
        self.over = False  # no worker comes here any more
        self.restarts = Restarts()


class Supervisor:
    """Keeps `count` workers, which `spawn(number)` starts.

    - `stop_seconds`: what a drain may take; None for what the worker says of itself.
    - `reloading`: a worker that ends by itself waits for `reload` instead of being started again.
    - `waiting_every`: how often one of the workers asks SQS what waits; 0 for never.
    """

    def __init__(
        self,
        count: int,
        spawn: Callable[[int], Awaitable[Worker]],
        *,
        clock: Clock | None = None,
        stop_seconds: float | None = None,
        reloading: bool = False,
        waiting_every: float = 0.0,
    ) -> None:
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._spawn = spawn
        self._clock = clock or RealClock()
        self._stop_seconds = stop_seconds
        self._reloading = reloading
        self._waiting_every = waiting_every
        self._asking: Worker | None = None
        self._alive: dict[Worker, None] = {}
        self._told: set[Worker] = set()  # to stop
        self._past: list[Snapshot] = []  # what those counted that are over, in one
        self._codes: list[int] = []
        self._signals: list[signal.Signals] = []
        self._stop = asyncio.Event()
        self._harder = asyncio.Event()
        self._changed = asyncio.Event()
        self._news = asyncio.Event()
        self._began = self._clock.monotonic()

    async def run(self) -> int:
        """Keep the workers until a signal, or until nothing is to be kept; the exit code."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for place in self._places:
                    tasks.create_task(self._keep(place))
        finally:
            for worker in self._alive:  # only where something failed here
                worker.send(signal.SIGTERM)
        if len(self._signals) > 1:
            return 128 + self._signals[1]
        return max(self._codes, default=OK)

    def receive(self, number: signal.Signals) -> None:
        """A signal: drain; at the second one harder; at the third one at once."""
        self._signals.append(number)
        self._drain_all()
        if len(self._signals) > 1:
            self._harder.set()
            for worker in self._alive:
                if len(self._signals) > 2:
                    worker.kill()
                else:
                    worker.send(signal.SIGINT)  # another SIGTERM may be lost in the first one

    def reload(self) -> None:
        """The source has changed: drain the workers, and start new ones."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def heard(self) -> None:
        """A worker has told of itself, or is over."""
        news, self._news = self._news, asyncio.Event()
        news.set()
        self._choose_who_asks()

    async def until_up(self) -> None:
        """Wait until a worker runs the app."""
        await self._until(lambda: any(_state(each) == "running" for each in self._alive))

    def snapshot(self) -> Snapshot:
        """All workers as one app; in any thread."""
        now = self._clock.monotonic()
        alive = tuple(self._alive)
        told = [
            replace(each.report.snapshot, blocked_seconds=_blocked(each, now))
            for each in alive
            if each.report is not None
        ]
        workers = [_told(place, now) for place in self._places]
        states: set[State] = {each.state for each in workers}
        state: State = "running" if states == {"running"} else "starting"
        if self._stop.is_set():
            state = "draining" if alive else "stopped"
        elif "draining" in states:
            state = "draining"
        merged = merge(told, past=self._past, workers=workers)
        uptime = round(now - self._began, 1)
        return replace(merged, state=state, uptime_seconds=uptime)

    # --- one place ------------------------------------------------------------------------------

    async def _keep(self, place: _Place) -> None:
        first = self._places[0]
        if place is not first:  # what is wrong with the app or its queues is told once
            await self._until(lambda: first.over or _has_begun(first) or self._stop.is_set())
        while not self._stop.is_set():
            changed = self._changed
            began = self._clock.monotonic()
            code = await self._one(place, changed)
            if code is None:
                continue
            if self._stop.is_set():
                self._codes.append(code)
            elif self._reloading:
                _log.error("the app has ended with %d; a change of its source starts it", code)
                await _first(changed.wait(), self._stop.wait())
            elif code == ENDED:
                self._codes.append(code)
                break
            elif code in HEALS_BY_NO_RESTART:
                self.give_up(code)
            elif (wait := place.restarts.after(code, self._clock.monotonic() - began)) is None:
                _log.error(
                    "worker %d has ended with %d, as did the %d before it: giving up",
                    place.number,
                    code,
                    MAX_CRASHES,
                )
                self.give_up(CRASH_LOOP)
            else:
                _log.error(
                    "worker %d has ended with %d; it is started again in %.1f s",
                    place.number,
                    code,
                    wait,
                )
                await _first(self._clock.sleep(wait), self._stop.wait())
        place.over = True
        self.heard()

    async def _one(self, place: _Place, changed: asyncio.Event) -> int | None:
        """One worker until it is over; its exit code, or None where the next is to start now."""
        try:
            worker = await self._spawn(place.number)
        except OSError as error:
            _log.error("worker %d can't be started: %s", place.number, error)
            return FAILED
        self._alive[worker] = None
        place.worker = worker
        over = self._tasks.create_task(self._until_over(worker))
        try:
            await _first(over, self._stop.wait(), changed.wait())
            if over.done():
                return over.result()
            self._tell_to_stop(worker)
            if not self._stop.is_set():
                self._tasks.create_task(self._see_off(worker, over))
                await _first(over, self._stop.wait(), self._until(lambda: _holds_nothing(worker)))
                return None
            await self._see_off(worker, over)
            return over.result()
        finally:
            place.worker = None

    async def _until_over(self, worker: Worker) -> int:
        code = of_process(await worker.wait())
        del self._alive[worker]
        told = worker in self._told
        self._told.discard(worker)
        if worker.report is not None:
            self._past = [merge((), past=[*self._past, worker.report.snapshot])]
        elif told and code == 128 + signal.SIGTERM:
            code = OK  # it was told to stop before it had begun
        self.heard()
        return code

    async def _see_off(self, worker: Worker, over: asyncio.Task[int]) -> None:
        """Wait for the end of a worker that was told to stop; kill it when that takes too long."""
        most = worker.stop_seconds if self._stop_seconds is None else self._stop_seconds
        if not await self._within(most, over, self._harder.wait()) or not (
            over.done() or await self._within(min(most, HARD_SECONDS), over)
        ):
            _log.error(
                "worker %d has not ended in time, and is killed; what it held comes again when "
                "its leases end",
                worker.number,
            )
            worker.kill()
            await over

    # --- all of them ----------------------------------------------------------------------------

    def _drain_all(self) -> None:
        self._stop.set()
        for worker in self._alive:
            self._tell_to_stop(worker)
        self.heard()

    def _tell_to_stop(self, worker: Worker) -> None:
        """Once: a second signal would cancel its handlers."""
        if worker not in self._told:
            self._told.add(worker)
            worker.send(signal.SIGTERM)

    def give_up(self, code: int) -> None:
        """Drain all of them, and end with this code at least."""
        self._codes.append(code)
        self._drain_all()

    def _choose_who_asks(self) -> None:
        if not self._waiting_every or (
            self._asking in self._alive and _state(self._asking) == "running"
        ):
            return
        self._asking = next((each for each in self._alive if _state(each) == "running"), None)
        if self._asking is not None:
            self._asking.order(Order(waiting_every=self._waiting_every))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._news.wait()

    async def _within(self, seconds: float, *awaited: Awaitable[Any]) -> bool:
        """Whether one of these comes within so many seconds."""
        try:
            async with timeout(self._clock, seconds):
                await _first(*awaited)
        except TimeoutError:
            return False
        return True


async def _first(*awaited: Awaitable[Any]) -> None:
    """Wait for the first of these; tasks go on, and whatever else is given is cancelled."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, given in zip(tasks, awaited, strict=True):
            if task is not given:
                task.cancel()


def _state(worker: Worker | None) -> State:
    return "starting" if worker is None or worker.report is None else worker.report.snapshot.state


def _has_begun(place: _Place) -> bool:
    return _state(place.worker) == "running"


def _holds_nothing(worker: Worker) -> bool:
    return worker.report is not None and worker.report.holds_nothing


def _blocked(worker: Worker, now: float) -> float:
    """How long its event loop has not come round, as far as can be seen from outside."""
    silent = now - worker.reported_at
    return round(silent, 1) if silent > 3 * REPORT_SECONDS else 0.0


def _told(place: _Place, now: float) -> WorkerState:
    worker = place.worker
    return WorkerState(
        number=place.number,
        pid=worker.pid if worker else None,
        state="stopped" if place.over else _state(worker),
        restarts=place.restarts.in_all,
        silent_seconds=round(now - worker.reported_at, 1) if worker and worker.report else 0.0,
    )
