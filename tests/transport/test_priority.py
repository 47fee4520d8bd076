"""`PriorityTransport`: levels of priority over one queue each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, RefusedConfigError, UsageError
from pumphouse.transport import LocalLevels, PriorityTransport

Go = Callable[[Awaitable[Any]], Awaitable[Any]]


@pytest.fixture
async def jobs(account: Account) -> PriorityTransport[str]:
    return await PriorityTransport.create("jobs", account, levels=3, wait_seconds=0)


async def test_there_is_a_queue_for_each_level(account: Account, jobs: Any) -> None:
    assert jobs.levels == 3
    assert [queue.name.name for queue in account.queues] == [
        "jobs-p0.fifo",
        "jobs-p1.fifo",
        "jobs-p2.fifo",
    ]


async def test_a_claim_takes_from_its_level_and_above(jobs: Any, go: Go) -> None:
    await jobs.publish("low", "l", 0)
    await jobs.publish("mid", "m", 1)
    await jobs.publish("top", "t", 9)  # above the highest is the highest
    top = await go(jobs.claim("w", 30, 2))
    assert top.event == "t"
    assert await go(jobs.claim("w", 30, 2)) is None
    mid = await go(jobs.claim("w", 30, 1))
    assert mid.event == "m"
    low = await go(jobs.claim("w", 30))
    assert low.event == "l"
    assert await go(jobs.claim("w", 30, 7)) is None
    for lease in (top, mid, low):
        await go(jobs.ack(lease))


async def test_a_groups_priority_is_that_of_its_first_publish_while_it_has_messages(
    account: Account, jobs: Any, go: Go
) -> None:
    await jobs.publish("G", "1", 2)
    await jobs.publish("G", "2", 0)
    assert len(account.sent("jobs-p2.fifo")) == 2
    for number in ("1", "2"):
        lease = await go(jobs.claim("w", 30, 2))
        assert lease.event == number
        await go(jobs.ack(lease))
    assert len(jobs.group_levels) == 0
    await jobs.publish("G", "3", 0)  # it had none, and starts anew
    assert len(account.sent("jobs-p0.fifo")) == 1


async def test_a_group_that_is_held_here_keeps_its_level_for_what_is_published_here(
    account: Account, jobs: Any, go: Go
) -> None:
    """As a harel worker does, which publishes to the group that it has a message of."""
    other: Any = await PriorityTransport.create("jobs", account, levels=3, wait_seconds=0)
    await other.publish("G", "1", 2)
    lease = await go(jobs.claim("w", 30))
    await jobs.publish("G", "2", 0)
    assert len(account.sent("jobs-p2.fifo")) == 2
    await go(jobs.ack(lease))


async def test_levels_take_turns_so_that_none_starves(jobs: Any, go: Go) -> None:
    for number in range(30):
        await jobs.publish(f"high{number}", "high", 2)
    await jobs.publish("low", "low", 0)
    seen = []
    while "low" not in seen:
        lease = await go(jobs.claim("w", 30))
        seen.append(lease.event)
        await go(jobs.ack(lease))
    assert len(seen) <= 3


async def test_a_claim_waits_on_all_levels_and_takes_one_message(
    account: Account, jobs: Any, go: Go, clock: VirtualClock
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.advance(3)
    await jobs.publish("G", "1", 1)
    lease = await go(claim)
    assert lease.event == "1"
    await go(jobs.ack(lease))
    # The receives of the other levels are still open: what they bring goes back at once.
    await jobs.publish("H", "2", 2)
    await clock.settle()
    assert account.queue("jobs-p2.fifo").visible == 1
    again = await go(jobs.claim("w", 30))
    assert again.event == "2"
    await go(jobs.close())


async def test_a_claim_that_is_cancelled_takes_nothing(
    account: Account, jobs: Any, clock: VirtualClock
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.advance(1)
    claim.cancel()
    await clock.settle()
    assert claim.cancelled()
    for level in range(3):
        await jobs.publish(f"G{level}", "x", level)
    await clock.settle()
    assert [queue.visible for queue in account.queues] == [1, 1, 1]


async def test_an_error_of_one_level_reaches_the_claim(account: Account, jobs: Any, go: Go) -> None:
    account.faults.refuse("ReceiveMessage", "AccessDenied", times=None)
    with pytest.raises(RefusedConfigError):
        await go(jobs.claim("w", 30, wait_seconds=2))


async def test_a_group_on_two_levels_is_out_once(
    account: Account, jobs: Any, go: Go, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Two processes that share no levels published it with two priorities."""
    other: Any = await PriorityTransport.create("jobs", account, levels=3, wait_seconds=0)
    await jobs.publish("G", "1", 2)
    await other.publish("G", "2", 0)
    first = await go(jobs.claim("w", 30, 2))
    with caplog.at_level(logging.WARNING):
        assert await go(jobs.claim("w", 30)) is None
    assert "two priorities" in caplog.text
    await go(jobs.ack(first))
    await clock.advance(1)
    assert (await go(jobs.claim("w", 30))).event == "2"


async def test_levels_that_are_shared_make_it_exact(account: Account, go: Go) -> None:
    shared = LocalLevels()
    a, b = [
        await PriorityTransport[str].create("jobs", account, levels=2, group_levels=shared)
        for _ in range(2)
    ]
    await a.publish("G", "1", 1)
    await b.publish("G", "2", 0)
    assert len(account.sent("jobs-p1.fifo")) == 2
    await go(a.close())
    await go(b.close())


async def test_the_memory_of_levels_is_bounded() -> None:
    levels = LocalLevels(max_messages=3)
    for number in range(10):
        await levels.enter(f"g{number}", 1, "key")
    assert len(levels) == 3
    assert await levels.enter("g9", 0, "other") == 1
    assert await levels.enter("g0", 0, "other") == 0


async def test_the_memory_of_levels_is_bounded_for_one_group_too() -> None:
    """A process that only publishes never hears that its messages are gone."""
    levels = LocalLevels(max_messages=3)
    for number in range(10):
        assert await levels.enter("g", number, f"key-{number}") == 0
    assert len(levels) == 3
    for number in range(10):
        await levels.leave("g", f"key-{number}")
    assert len(levels) == 0
    assert await levels.enter("g", 2, "key") == 2


async def test_no_level_starves_when_claims_with_and_without_a_minimum_alternate(
    jobs: Any, go: Go
) -> None:
    for number in range(12):
        for level in range(3):
            await jobs.publish(f"G{level}-{number}", str(level), level)
    seen = []
    for number in range(12):
        lease = await go(jobs.claim("w", 30, min_priority=number % 2))
        if number % 2 == 0:
            seen.append(lease.event)
        await go(jobs.ack(lease))
    assert sorted(seen) == ["0", "0", "1", "1", "2", "2"]


async def test_a_minimum_above_the_highest_level_takes_from_the_highest(
    jobs: Any, go: Go, clock: VirtualClock
) -> None:
    await jobs.publish("G", "top", priority=9)
    lease = await go(jobs.claim("w", 30, min_priority=9))
    assert lease.event == "top"
    await go(jobs.ack(lease))

    async def loop() -> None:
        async for _ in jobs.leases("w", 30, min_priority=9):
            pass

    idle = asyncio.ensure_future(loop())
    await clock.advance(60)  # and it waits, as any claim does
    await go(jobs.close())
    await idle


class SlowLevels(LocalLevels):
    """Levels in a store that takes its time, or fails."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock, self.failing = clock, False

    async def enter(self, group_id: str, level: int, key: str) -> int:
        await self.clock.sleep(0.1)
        if self.failing:
            raise OSError("the store is down")
        return await super().enter(group_id, level, key)

    async def leave(self, group_id: str, key: str) -> None:
        await self.clock.sleep(0.1)
        if self.failing:
            raise OSError("the store is down")
        await super().leave(group_id, key)


@pytest.mark.parametrize("wait", [0, 20])
async def test_what_the_store_of_levels_keeps_from_a_claim_goes_back(
    account: Account, go: Go, clock: VirtualClock, wait: int
) -> None:
    levels = SlowLevels(clock)
    jobs: Any = await PriorityTransport.create("jobs", account, levels=2, group_levels=levels)
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=wait))
    if wait:
        await clock.advance(0.05)
    await go(jobs.publish("G", "x", 1))
    await clock.advance(0.01)
    if not wait:
        claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=0))
        await clock.advance(0.01)
    assert account.queue("jobs-p1.fifo").in_flight == 1
    claim.cancel()
    await clock.settle()
    assert claim.cancelled()
    assert account.queue("jobs-p1.fifo").visible == 1
    levels.failing = True
    with pytest.raises(OSError, match="down"):
        await go(jobs.claim("w", 30, wait_seconds=wait))
    await clock.settle()
    assert account.queue("jobs-p1.fifo").visible == 1
    await go(jobs.close())


async def test_an_ack_that_is_cancelled_frees_its_group_all_the_same(
    account: Account, go: Go, clock: VirtualClock
) -> None:
    levels = SlowLevels(clock)
    jobs: Any = await PriorityTransport.create("jobs", account, levels=2, group_levels=levels)
    for steps in range(12):
        await go(jobs.publish("G", "x", steps % 2))
        assert len(account.sent(f"jobs-p{steps % 2}.fifo")) == 1 + steps // 2
        ack = asyncio.ensure_future(jobs.ack(await go(jobs.claim("w", 30))))
        for _ in range(steps):
            await asyncio.sleep(0)
        ack.cancel()
        await clock.advance(1)
        assert ack.done()
        if steps == 0:  # it never began
            await clock.advance(30)
            await go(jobs.ack(await go(jobs.claim("w", 30))))
    assert len(levels) == 0


async def test_an_ack_stands_though_the_store_of_levels_fails(
    account: Account, go: Go, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    levels = SlowLevels(clock)
    jobs: Any = await PriorityTransport.create("jobs", account, levels=2, group_levels=levels)
    await go(jobs.publish("G", "x"))
    lease = await go(jobs.claim("w", 30))
    levels.failing = True
    await go(jobs.ack(lease))
    assert lease.settled
    assert "was not left" in caplog.text


@pytest.mark.parametrize("wait", [0, 20])
async def test_a_claim_that_meets_close_gets_none(
    account: Account, jobs: Any, go: Go, clock: VirtualClock, wait: int
) -> None:
    account.faults.delay("ReceiveMessage", 0.1, times=None)
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=wait))
    await clock.advance(0.05)
    await go(jobs.close())
    assert await go(claim) is None


async def test_a_publish_that_stored_nothing_leaves_no_trace(jobs: Any) -> None:
    with pytest.raises(UsageError):
        await jobs.publish("no group", "x", 1)
    assert len(jobs.group_levels) == 0


@pytest.mark.parametrize("bad", [-1, 1.5, "1", True, None])
async def test_a_priority_is_a_number_from_0(jobs: Any, bad: Any) -> None:
    with pytest.raises(ValueError, match="number from 0"):
        await jobs.publish("G", "x", bad)
    with pytest.raises(ValueError, match="number from 0"):
        await jobs.claim("w", 30, bad)


@pytest.mark.parametrize("levels", [0, 11, 1.5, True])
async def test_levels_are_1_to_10(account: Account, levels: Any) -> None:
    with pytest.raises(UsageError):
        await PriorityTransport.create("jobs", account, levels=levels)
    assert not account.queues


async def test_blocks_and_loops_know_priorities(jobs: Any, go: Go) -> None:
    await jobs.publish("low", "l", 0)
    await jobs.publish("top", "t", 2)

    async def block() -> str:
        async with jobs.claimed("w", 30, 1) as lease:
            return str(lease.event)

    assert await go(block()) == "t"

    async def loop() -> Any:
        async for lease in jobs.leases("w", 30, wait_seconds=0):
            await jobs.ack(lease)
            await jobs.close()
            yielded.append(lease.event)

    yielded: list[str] = []
    await go(loop())
    assert yielded == ["l"]
    with pytest.raises(ClosedError):
        await jobs.claim("w", 30)
