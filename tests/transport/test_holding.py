"""`claimed` and `leases`: a lease for the length of a block, and leases as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, LeaseLostError
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
