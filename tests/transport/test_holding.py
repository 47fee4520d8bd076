"""`claimed` and `leases`: a lease for the length of a block, and leases as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, LeaseLostError, RefusedConfigError
from pumphouse.protocol.operations import ChangeMessageVisibilityBatch
from pumphouse.transport import Lease, LeaseTransport

Go = Callable[[Awaitable[Any]], Awaitable[Any]]


@pytest.fixture
async def jobs(account: Account) -> LeaseTransport[str]:
    transport: LeaseTransport[str] = await LeaseTransport.create("jobs", account)
    await transport.publish("A", "A1")
    return transport


def left(account: Account) -> tuple[int, int]:
    """How many messages are visible, and in flight."""
    queue = account.queue("jobs.fifo")
    queue.settle(account.clock.monotonic())
    return queue.visible, queue.in_flight


async def test_a_block_that_ends_acks(account: Account, jobs: LeaseTransport[str], go: Go) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 30) as lease:
            assert lease.event == "A1"
            assert left(account) == (0, 1)

    await go(block())
    assert left(account) == (0, 0)


async def test_a_block_is_extended_while_it_lasts_and_not_after(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 10) as lease:
            await clock.sleep(300)
            assert lease.receive_count == 1
            assert not lease.lost

    await go(block())
    assert left(account) == (0, 0)
    extensions = len(list(account.ledger))
    await clock.advance(100)
    assert len(list(account.ledger)) == extensions


@pytest.mark.parametrize("delay", [0, 7])
async def test_a_block_that_raises_nacks(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock, delay: int
) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 30, nack_delay=delay):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await go(block())
    await clock.advance(delay)
    assert left(account) == (1, 0)


async def test_a_block_that_is_cancelled_nacks(
    account: Account, jobs: LeaseTransport[str], clock: VirtualClock
) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 30):
            await clock.sleep(100)

    task = asyncio.ensure_future(block())
    await clock.advance(1)
    assert left(account) == (0, 1)
    task.cancel()
    await clock.settle()
    assert task.cancelled()
    assert left(account) == (1, 0)


async def test_a_block_that_settles_itself_is_left_alone(
    account: Account, jobs: LeaseTransport[str], go: Go
) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 30) as lease:
            await jobs.nack(lease)

    await go(block())
    assert left(account) == (1, 0)


async def test_a_block_whose_lease_is_lost_is_told_and_does_not_pretend(
    account: Account,
    jobs: LeaseTransport[str],
    go: Go,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    async def block() -> None:
        async with jobs.claimed("w", 10) as lease:
            account.faults.refuse(ChangeMessageVisibilityBatch, "AccessDenied", times=None)
            seen.append(lease.lost)
            await clock.sleep(11)
            seen.append(lease.lost)

    with caplog.at_level(logging.WARNING), pytest.raises(LeaseLostError):
        await go(block())
    assert seen == [False, True]
    assert "is not extended any more" in caplog.text
    assert left(account) == (1, 0)


async def test_a_block_waits_for_a_lease_or_times_out(
    account: Account, go: Go, clock: VirtualClock
) -> None:
    jobs: LeaseTransport[str] = await LeaseTransport.create("other", account)

    async def block(wait: float | None) -> str:
        async with jobs.claimed("w", 30, wait_seconds=wait) as lease:
            return lease.event

    with pytest.raises(TimeoutError):
        await go(block(3))
    assert clock.monotonic() == 3
    task = asyncio.ensure_future(block(None))
    await clock.advance(65)
    await jobs.publish("A", "late")
    assert await go(task) == "late"
    waiting = asyncio.ensure_future(block(None))
    await clock.settle()
    await go(jobs.close())
    with pytest.raises(ClosedError):
        await waiting


async def test_leases_come_until_the_transport_is_closed(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    seen: list[Lease[str]] = []

    async def loop() -> None:
        async for lease in jobs.leases("w", 30):
            seen.append(lease)
            await jobs.ack(lease)

    task = asyncio.ensure_future(loop())
    await clock.advance(50)
    await jobs.publish("B", "B1")
    await clock.advance(1)
    assert [lease.event for lease in seen] == ["A1", "B1"]
    await go(jobs.close())
    await go(task)
    assert left(account) == (0, 0)


# --- an orderly end, and trouble ----------------------------------------------------------------


async def test_stop_ends_loops_and_claims_and_leaves_time_to_settle(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    await jobs.publish("A", "A2")
    seen = []

    async def loop() -> None:
        async for lease in jobs.leases("w", 30):
            seen.append(lease.event)
            await clock.sleep(5)
            await jobs.ack(lease)

    working = asyncio.ensure_future(loop())
    waiting = asyncio.ensure_future(jobs.claim("idle", 30, wait_seconds=20))
    await clock.advance(1)
    jobs.stop()
    assert await go(waiting) is None
    assert await go(jobs.claim("late", 30)) is None
    await go(working)
    await go(jobs.publish("B", "B1"))  # stopped is not closed
    await go(jobs.close())
    assert seen == ["A1"]
    assert left(account) == (2, 0)
    with pytest.raises(ClosedError):
        await jobs.claim("w", 30)


async def test_a_block_that_waits_is_told_of_the_stop(
    account: Account, go: Go, clock: VirtualClock
) -> None:
    jobs: LeaseTransport[str] = await LeaseTransport.create("empty", account)

    async def block() -> None:
        async with jobs.claimed("w", 30):
            pass

    waiting = asyncio.ensure_future(block())
    await clock.advance(1)
    jobs.stop()
    with pytest.raises(ClosedError):
        await go(waiting)
    await go(jobs.close())


async def test_a_loop_lives_through_an_outage(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    account.faults.lose_request("ReceiveMessage", times=None)

    async def first() -> str:
        async for lease in jobs.leases("w", 30):
            await jobs.ack(lease)
            return lease.event
        raise AssertionError

    found = asyncio.ensure_future(first())
    before = len(account.ledger)
    await clock.advance(600)
    assert not found.done()
    assert len(account.ledger) - before < 400  # it does not hammer
    account.faults.clear()
    assert await go(found) == "A1"


async def test_a_loop_ends_with_what_an_operator_has_to_put_right(
    account: Account, jobs: LeaseTransport[str], go: Go
) -> None:
    account.faults.refuse("ReceiveMessage", "AccessDenied", times=None)
    with pytest.raises(RefusedConfigError):
        await go(anext(jobs.leases("w", 30)))


async def test_a_block_whose_ack_is_under_way_is_left_alone(
    account: Account, jobs: LeaseTransport[str], go: Go
) -> None:
    async def block() -> asyncio.Task[None]:
        async with jobs.claimed("w", 30) as lease:
            ack = asyncio.create_task(jobs.ack(lease))
            await asyncio.sleep(0)
        return ack

    await go(await go(block()))
    assert left(account) == (0, 0)


async def test_a_block_is_kept_through_an_outage_that_is_shorter_than_its_lease(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    async def block() -> None:
        async with jobs.claimed("w", 60) as lease:
            await clock.sleep(25)
            account.faults.throttle("ChangeMessageVisibilityBatch", times=None)
            await clock.sleep(30)
            account.faults.clear()
            await clock.sleep(100)
            assert not lease.lost

    await go(block())
    assert left(account) == (0, 0)


@pytest.mark.parametrize("steps", range(10))
async def test_a_block_that_is_cancelled_at_any_moment_leaves_nothing_in_flight(
    account: Account, jobs: LeaseTransport[str], clock: VirtualClock, steps: int
) -> None:
    await jobs.publish("A", "A2")

    async def block() -> None:
        async with jobs.claimed("w", 30):
            await asyncio.sleep(0)

    task = asyncio.ensure_future(block())
    other = asyncio.ensure_future(jobs.claim("w2", 30, wait_seconds=0))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await clock.advance(0.5)
    assert task.done()
    if (lease := other.result()) is not None:
        await jobs.nack(lease)
    assert left(account)[1] == 0


async def test_a_lease_that_is_there_is_kept_for_a_block(
    account: Account, jobs: LeaseTransport[str], go: Go, clock: VirtualClock
) -> None:
    lease = await go(jobs.claim("w", 10))

    async def block(error: bool) -> None:
        async with jobs.keep(lease, 10, nack_delay=3) as kept:
            assert kept is lease
            await clock.sleep(25)
            if error:
                raise KeyError

    with pytest.raises(KeyError):
        await go(block(True))
    assert lease.settled
    assert left(account) == (0, 1)  # parked
    lease = await go(jobs.claim("w", 10, wait_seconds=20))
    assert lease.receive_count == 2
    await go(block(False))
    assert left(account) == (0, 0)
