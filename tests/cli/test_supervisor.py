"""Which workers run, and for how long: on a virtual clock, with workers that are no processes."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pumphouse.cli.exit_codes import CONFIG, CRASH_LOOP, ENDED, FAILED, TRY_LATER
from pumphouse.cli.run.reports import Order, Report
from pumphouse.cli.run.supervisor import (
    HARD_SECONDS,
    MAX_CRASHES,
    STEADY_SECONDS,
    Restarts,
    Supervisor,
)
from pumphouse.clock import VirtualClock
from pumphouse.health import QueueState, Snapshot
from pumphouse.health.state import State


class Puppet:
    """A worker that does what a test says."""

    stop_seconds = 70.0

    def __init__(self, number: int, crew: Crew) -> None:
        self.number = number
        self.pid = 100 + number
        self.report: Report | None = None
        self.reported_at = 0.0
        self.signals: list[signal.Signals] = []
        self.orders: list[float] = []
        self._crew = crew
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def tell(self, state: State = "running", **queue: object) -> None:
        queues = {"mail": QueueState(**queue)}  # type: ignore[arg-type]
        self.report = Report(
            snapshot=Snapshot(app="shop", state=state, queues=queues),
            stop_seconds=self.stop_seconds,
        )
        self.reported_at = self._crew.clock.monotonic()
        self._crew.supervisor.heard()

    def end(self, code: int = 0) -> None:
        if not self._code.done():
            self._code.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def send(self, number: signal.Signals) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.end(-signal.SIGKILL)

    def order(self, order: Order) -> None:
        self.orders.append(order.waiting_every)


class Crew:
    """A supervisor, and every worker that it has started."""

    def __init__(self, clock: VirtualClock, count: int, **options: object) -> None:
        self.clock = clock
        self.started: list[Puppet] = []
        self.fails = 0
        self.task: asyncio.Task[int]
        self.supervisor = Supervisor(count, self._spawn, clock=clock, **options)  # type: ignore[arg-type]

    async def _spawn(self, number: int) -> Puppet:
        if self.fails:
            self.fails -= 1
            raise OSError(11, "no more processes")
        puppet = Puppet(number, self)
        self.started.append(puppet)
        return puppet

    def code(self) -> int:
        """The exit code of the run, which is over."""
        assert self.task.done(), "the run goes on"
        return self.task.result()


@asynccontextmanager
async def crew(clock: VirtualClock, count: int = 1, **options: object) -> AsyncIterator[Crew]:
    made = Crew(clock, count, **options)
    made.task = asyncio.create_task(made.supervisor.run())
    await clock.settle()
    try:
        yield made
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)


# --- starting and restarting ----------------------------------------------------------------------


async def test_the_first_worker_is_seen_to_run_before_the_others_start(
    clock: VirtualClock,
) -> None:
    async with crew(clock, 3) as found:
        assert [each.number for each in found.started] == [1]
        assert found.supervisor.snapshot().not_ready == "starting"
        found.started[0].tell("starting")  # it has still to find its queues
        await clock.settle()
        assert [each.number for each in found.started] == [1]
        found.started[0].tell()
        await clock.settle()
        assert [each.number for each in found.started] == [1, 2, 3]
        for each in found.started:
            each.tell()
        assert found.supervisor.snapshot().not_ready == ""


async def test_a_worker_that_crashes_is_started_again_and_what_it_counted_stays(
    clock: VirtualClock,
) -> None:
    async with crew(clock) as found:
        found.started[0].tell(handled=7, held=2)
        found.started[0].end(-signal.SIGSEGV)
        await clock.settle()
        assert len(found.started) == 1
        snapshot = found.supervisor.snapshot()
        assert snapshot.not_ready == "starting"
        await clock.advance(0.5)
        assert len(found.started) == 2
        found.started[1].tell(handled=3)
        snapshot = found.supervisor.snapshot()
        assert (snapshot.not_ready, snapshot.workers[0].restarts) == ("", 1)
        assert (snapshot.queues["mail"].handled, snapshot.queues["mail"].held) == (10, 0)


async def test_a_crash_loop_ends_the_run_and_drains_the_others(clock: VirtualClock) -> None:
    async with crew(clock, 2) as found:
        found.started[0].tell()
        await clock.settle()
        steady = found.started[1]
        steady.tell()
        for _ in range(MAX_CRASHES):
            found.started[-1 if len(found.started) > 2 else 0].end(1)
            assert not steady.signals
            await clock.advance(30)
        assert len(found.started) == 2 + MAX_CRASHES
        found.started[-1].end(1)
        await clock.settle()
        assert steady.signals == [signal.SIGTERM]
        steady.end(0)
        await clock.settle()
        assert found.code() == CRASH_LOOP


@pytest.mark.parametrize("code", [2, CONFIG])
async def test_what_no_restart_heals_ends_the_run_at_once(clock: VirtualClock, code: int) -> None:
    async with crew(clock, 2) as found:
        found.started[0].end(code)
        await clock.advance(1)
        assert len(found.started) == 1
        assert found.code() == code


async def test_while_aws_is_not_there_one_worker_tries(clock: VirtualClock) -> None:
    async with crew(clock, 3) as found:
        for attempt in range(1, 4):
            found.started[-1].tell("stopped")  # the last that it says
            found.started[-1].end(TRY_LATER)
            await clock.advance(30)
            assert [each.number for each in found.started] == [1] * (attempt + 1)
        found.started[-1].tell()
        await clock.settle()
        assert [each.number for each in found.started] == [1, 1, 1, 1, 2, 3]


async def test_a_worker_that_can_not_be_started_is_tried_again(clock: VirtualClock) -> None:
    async with crew(clock, 1) as found:
        found.started[0].tell()
        found.fails = 2
        found.started[0].end(1)
        await clock.advance(5)
        assert len(found.started) == 2


async def test_every_subscription_ended_is_an_end_and_no_crash(clock: VirtualClock) -> None:
    async with crew(clock, 2) as found:
        found.started[0].tell()
        await clock.settle()
        for each in found.started:
            each.tell(status="ended")
            each.end(ENDED)
        await clock.settle()
        assert found.code() == ENDED


def test_restarts_come_later_and_later_and_are_counted_in_a_row() -> None:
    restarts = Restarts(random.Random(1))
    waits = [restarts.after(1, 0) for _ in range(MAX_CRASHES)]
    for at, wait in enumerate(waits):
        assert wait is not None
        assert 0.25 * 2**at <= wait <= 0.5 * 2**at
    assert restarts.after(1, 0) is None
    assert restarts.after(1, STEADY_SECONDS) is not None
    assert restarts.in_a_row == 1


def test_a_network_that_is_gone_is_waited_for_as_long_as_it_takes() -> None:
    restarts = Restarts()
    waits = [restarts.after(TRY_LATER, 0) for _ in range(100)]
    assert all(wait is not None and wait <= 30 for wait in waits)


# --- stopping -------------------------------------------------------------------------------------


async def test_a_signal_drains_all_and_the_exit_code_is_the_worst(clock: VirtualClock) -> None:
    async with crew(clock, 2) as found:
        found.started[0].tell()
        await clock.settle()
        found.started[1].tell()
        found.supervisor.receive(signal.SIGINT)
        await clock.settle()
        assert [each.signals for each in found.started] == [[signal.SIGTERM]] * 2
        assert found.supervisor.snapshot().state == "draining"
        found.started[0].end(0)
        found.started[1].end(FAILED)
        await clock.settle()
        assert found.code() == FAILED
        assert found.supervisor.snapshot().state == "stopped"


async def test_a_worker_that_does_not_end_is_killed_when_its_drain_is_over(
    clock: VirtualClock,
) -> None:
    async with crew(clock) as found:
        found.started[0].tell()
        found.supervisor.receive(signal.SIGTERM)
        await clock.advance(Puppet.stop_seconds - 1)
        assert not found.task.done()
        await clock.advance(2)
        assert found.code() == 128 + signal.SIGKILL


async def test_the_time_for_a_drain_can_be_given(clock: VirtualClock) -> None:
    async with crew(clock, stop_seconds=5.0) as found:
        found.started[0].tell()
        found.supervisor.receive(signal.SIGTERM)
        await clock.advance(6)
        assert found.code() == 128 + signal.SIGKILL


async def test_a_second_signal_is_passed_on_and_a_third_one_kills(clock: VirtualClock) -> None:
    async with crew(clock) as found:
        found.started[0].tell()
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        found.supervisor.receive(signal.SIGINT)
        await clock.settle()
        assert found.started[0].signals == [signal.SIGTERM, signal.SIGINT]
        found.supervisor.receive(signal.SIGINT)
        await clock.settle()
        assert found.code() == 128 + signal.SIGINT


async def test_after_a_second_signal_the_bound_is_short(clock: VirtualClock) -> None:
    async with crew(clock) as found:
        found.started[0].tell()
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        found.supervisor.receive(signal.SIGTERM)
        await clock.advance(HARD_SECONDS + 1)
        assert found.code() == 128 + signal.SIGTERM


async def test_a_worker_that_was_stopped_before_it_had_begun_is_no_failure(
    clock: VirtualClock,
) -> None:
    async with crew(clock) as found:
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        found.started[0].end(-signal.SIGTERM)
        await clock.settle()
        assert found.code() == 0


async def test_a_signal_while_a_restart_waits_ends_the_run(clock: VirtualClock) -> None:
    async with crew(clock) as found:
        found.started[0].end(1)
        await clock.settle()
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        assert found.code() == 0


async def test_a_worker_that_somebody_else_ended_is_started_again(clock: VirtualClock) -> None:
    async with crew(clock) as found:
        found.started[0].tell()
        found.started[0].end(0)
        await clock.advance(1)
        assert len(found.started) == 2


# --- reload ---------------------------------------------------------------------------------------


async def test_a_change_starts_the_next_as_soon_as_nothing_is_held(clock: VirtualClock) -> None:
    async with crew(clock, reloading=True) as found:
        old = found.started[0]
        old.tell(held=2, handled=5)
        found.supervisor.reload()
        await clock.settle()
        assert old.signals == [signal.SIGTERM]
        old.tell("draining", held=1, handled=6)
        await clock.advance(5)
        assert len(found.started) == 1
        old.tell("draining", held=0, handled=7)
        await clock.settle()
        assert len(found.started) == 2  # its open poll still has to end
        found.started[1].tell(handled=1)
        assert found.supervisor.snapshot().queues["mail"].handled == 8
        old.end(0)
        await clock.settle()
        assert found.supervisor.snapshot().queues["mail"].handled == 8
        assert found.supervisor.snapshot().not_ready == ""


async def test_a_worker_that_holds_on_to_something_is_killed_in_the_end(
    clock: VirtualClock,
) -> None:
    async with crew(clock, reloading=True) as found:
        found.started[0].tell(held=1)
        found.supervisor.reload()
        await clock.advance(Puppet.stop_seconds + 1)
        assert len(found.started) == 2


async def test_code_that_ends_by_itself_waits_for_the_next_change(clock: VirtualClock) -> None:
    async with crew(clock, reloading=True) as found:
        found.started[0].end(1)
        await clock.advance(600)
        assert len(found.started) == 1
        found.supervisor.reload()
        await clock.settle()
        assert len(found.started) == 2
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        found.started[1].end(0)
        await clock.settle()
        assert found.code() == 0


async def test_a_signal_during_a_reload_waits_for_the_old_worker_too(clock: VirtualClock) -> None:
    async with crew(clock, reloading=True) as found:
        found.started[0].tell(held=1)
        found.supervisor.reload()
        await clock.settle()
        found.supervisor.receive(signal.SIGTERM)
        await clock.settle()
        assert not found.task.done()
        assert found.started[0].signals == [signal.SIGTERM]  # a second one would cancel
        found.started[0].end(0)
        await clock.settle()
        assert found.code() == 0


# --- how it is ------------------------------------------------------------------------------------


async def test_one_worker_asks_what_waits_and_another_one_when_it_is_gone(
    clock: VirtualClock,
) -> None:
    async with crew(clock, 2, waiting_every=5.0) as found:
        found.started[0].tell()
        await clock.settle()
        found.started[1].tell()
        assert [each.orders for each in found.started] == [[5.0], []]
        found.started[0].end(1)
        await clock.settle()
        assert found.started[1].orders == [5.0]


async def test_a_worker_that_is_silent_is_blocked_and_all_of_them_are_not_live(
    clock: VirtualClock,
) -> None:
    async with crew(clock, 2) as found:
        found.started[0].tell()
        await clock.settle()
        found.started[1].tell()
        await clock.advance(40)
        found.started[1].tell()
        snapshot = found.supervisor.snapshot()
        assert (snapshot.live, snapshot.workers[0].silent_seconds) == (True, 40)
        await clock.advance(40)
        assert not found.supervisor.snapshot().live


async def test_until_up_waits_for_a_worker_that_runs(clock: VirtualClock) -> None:
    async with crew(clock) as found:
        up = asyncio.create_task(found.supervisor.until_up())
        found.started[0].tell("starting")
        await clock.settle()
        assert not up.done()
        found.started[0].tell()
        await clock.settle()
        assert up.done()
