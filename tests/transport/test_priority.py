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
    levels = LocalLevels(max_groups=3)
    for number in range(10):
        await levels.enter(f"g{number}", 1, "key")
    assert len(levels) == 3
    assert await levels.enter("g9", 0, "other") == 1
    assert await levels.enter("g0", 0, "other") == 0


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
