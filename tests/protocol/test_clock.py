"""The virtual clock: timers in order, the loop at rest between them, and time-outs on any clock."""

from __future__ import annotations

import asyncio

import pytest

from pumphouse.clock import Clock, RealClock, VirtualClock, timeout


async def test_timers_run_in_order_and_at_their_time(clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []
    for name, delay in (("c", 3), ("a", 1), ("b", 2), ("b2", 2)):
        clock.call_later(delay, lambda name=name: seen.append((name, clock.monotonic())))
    await clock.advance(2)
    assert seen == [("a", 1), ("b", 2), ("b2", 2)]
    assert clock.next_timer == 3
    await clock.advance(10)
    assert seen[-1] == ("c", 3)
    assert clock.monotonic() == 12
    assert clock.now() == 1_700_000_012
    assert clock.next_timer is None


async def test_what_a_timer_starts_is_done_before_the_next(clock: VirtualClock) -> None:
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        seen.append(f"work at {clock.monotonic():g}")
        await clock.sleep(0.5)
        seen.append(f"more at {clock.monotonic():g}")

    tasks: list[asyncio.Task[None]] = []
    clock.call_later(1, lambda: tasks.append(asyncio.ensure_future(work())))
    clock.call_later(2, lambda: seen.append("two"))
    await clock.advance(2)
    assert seen == ["work at 1", "more at 1.5", "two"]
    await tasks[0]


async def test_a_cancelled_timer_does_not_run(clock: VirtualClock) -> None:
    seen: list[int] = []
    timer = clock.call_later(1, lambda: seen.append(1))
    timer.cancel()
    timer.cancel()
    await clock.advance(2)
    assert not seen
    assert repr(clock) == "VirtualClock(elapsed=2s, timers=0)"


async def test_a_sleep_that_is_cancelled_leaves_no_timer(clock: VirtualClock) -> None:
    sleeping = asyncio.create_task(clock.sleep(10))
    await clock.settle()
    assert clock.next_timer == 10
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.next_timer is None


async def test_no_sleep_still_gives_others_their_turn(clock: VirtualClock) -> None:
    seen: list[int] = []
    asyncio.get_running_loop().call_soon(seen.append, 1)
    await clock.sleep(0)
    assert seen == [1]


async def test_run_until(clock: VirtualClock) -> None:
    seen: list[int] = []
    for delay in (1, 2, 3):
        clock.call_later(delay, lambda delay=delay: seen.append(delay))
    await clock.run_until(lambda: len(seen) == 2)
    assert clock.monotonic() == 2
    with pytest.raises(TimeoutError, match=r"not done after 0\.5"):
        await clock.run_until(lambda: False, limit_seconds=0.5)
    with pytest.raises(TimeoutError, match="nothing is waiting"):
        await clock.run_until(lambda: False)


async def test_time_does_not_go_back(clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="back"):
        await clock.advance(-1)


async def test_a_timeout_on_the_virtual_clock(clock: VirtualClock) -> None:
    async def wait() -> str:
        try:
            async with timeout(clock, 5):
                await clock.sleep(60)
        except TimeoutError:
            return f"timed out at {clock.monotonic():g}"
        return "slept"

    waiting = asyncio.create_task(wait())
    await clock.advance(5)
    assert waiting.done()
    assert await waiting == "timed out at 5"
    assert clock.next_timer is None


async def test_a_timeout_that_does_not_pass_leaves_nothing(clock: VirtualClock) -> None:
    async with timeout(clock, 5) as scope:
        await asyncio.sleep(0)
    assert not scope.expired()
    assert clock.next_timer is None
    async with timeout(clock, None):
        await asyncio.sleep(0)


async def test_a_timeout_of_nothing(clock: VirtualClock) -> None:
    async def wait() -> None:
        async with timeout(clock, -1):
            await clock.sleep(60)

    waiting = asyncio.create_task(wait())
    await clock.advance(0)
    with pytest.raises(TimeoutError):
        await waiting


async def test_cancelling_is_no_timeout(clock: VirtualClock) -> None:
    async def wait() -> None:
        async with timeout(clock, 5):
            await clock.sleep(60)

    waiting = asyncio.create_task(wait())
    await clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_no_time_passes_while_a_thread_is_at_work(clock: VirtualClock) -> None:
    seen: list[str] = []
    clock.call_later(1, lambda: seen.append("timer"))

    async def work() -> None:
        with clock.hold():
            await asyncio.get_running_loop().run_in_executor(None, seen.append, "thread")

    working = asyncio.create_task(work())
    await clock.advance(1)
    await working
    assert seen == ["thread", "timer"]


async def test_the_real_clock_is_real() -> None:
    clock: Clock = RealClock()
    before = clock.monotonic()
    rang = asyncio.Event()
    clock.call_later(-1, rang.set)
    await rang.wait()
    await clock.sleep(0)
    assert clock.monotonic() >= before
    assert clock.now() > 1_700_000_000
    assert repr(clock) == "RealClock()"
