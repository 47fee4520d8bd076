"""How acks, nacks and extensions get through: outages, neighbours, answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import LeaseLostError
from pumphouse.transport import Lease, LeaseTransport

Go = Callable[[Awaitable[Any]], Awaitable[Any]]


@pytest.fixture
async def jobs(account: Account) -> LeaseTransport[Any]:
    return await LeaseTransport.create("jobs", account, wait_seconds=0)


async def claimed(jobs: LeaseTransport[Any], go: Go, *events: str) -> list[Lease[Any]]:
    """Publish events, each in a group of its own letter, and claim as many."""
    for event in events:
        await jobs.publish(event[0], event)
    found = await go(asyncio.gather(*(jobs.claim("w", 60) for _ in events)))
    return sorted((lease for lease in found if lease), key=lambda lease: lease.group_id)


@pytest.mark.parametrize("fault", ["throttle", "lose_request", "lose_answer"])
async def test_an_outage_that_ends_within_the_lease_is_waited_for(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock, fault: str
) -> None:
    (lease,) = await claimed(jobs, go, "A1")
    getattr(account.faults, fault)("DeleteMessageBatch", times=None)
    ack = asyncio.ensure_future(jobs.ack(lease))
    await clock.advance(30)
    assert not ack.done()
    account.faults.clear()
    await go(ack)
    assert lease.settled
    assert account.queue("jobs.fifo").in_flight == 0


async def test_an_outage_that_outlasts_the_lease_is_a_lost_lease(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    (lease,) = await claimed(jobs, go, "A1")
    account.faults.throttle("DeleteMessageBatch", times=None)
    with pytest.raises(LeaseLostError):
        await go(jobs.ack(lease))
    assert lease.lost
    assert 60 <= clock.monotonic() < 70


async def test_an_entry_that_fails_for_long_holds_up_no_other(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    bad, good = await claimed(jobs, go, "A1", "B1")
    account.faults.fail_entries(
        "ChangeMessageVisibilityBatch",
        lambda entry: entry.receipt_handle == bad.token,
        times=None,
    )
    extensions = [asyncio.ensure_future(jobs.extend(lease, 50)) for lease in (bad, good)]
    await clock.settle()
    assert [each.done() for each in extensions] == [False, True]
    nack = asyncio.ensure_future(jobs.nack(good))
    await clock.settle()
    assert nack.done()
    assert account.queue("jobs.fifo").visible == 1
    account.faults.clear()
    await go(extensions[0])


async def test_a_nack_that_was_carried_out_is_no_lost_lease_though_its_answer_was(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    (lease,) = await claimed(jobs, go, "A1")
    account.faults.lose_answer("ChangeMessageVisibilityBatch")
    await go(jobs.nack(lease))
    assert lease.settled
    (again,) = await go(asyncio.gather(jobs.claim("w", 30)))
    assert again.receive_count == 2


async def test_a_change_that_waits_to_be_sent_again_is_not_overtaken(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    (lease,) = await claimed(jobs, go, "A1")
    account.faults.throttle("ChangeMessageVisibilityBatch")
    extension = asyncio.ensure_future(jobs.extend(lease, 100))
    await clock.settle()
    await go(jobs.nack(lease, 5))  # the later one counts
    await go(extension)
    again = await go(jobs.claim("w", 30, wait_seconds=20))
    assert again.receive_count == 2
    assert 5 <= clock.monotonic() < 7


async def test_close_does_not_wait_for_an_outage_to_end(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    (lease,) = await claimed(jobs, go, "A1")
    account.faults.throttle("DeleteMessageBatch", times=None)
    ack = asyncio.ensure_future(jobs.ack(lease))
    await clock.settle()
    await go(jobs.close())
    assert clock.monotonic() < 30
    assert ack.done()
    assert ack.exception() is not None


async def test_a_follower_that_is_lost_after_the_ack_of_the_one_before_harms_nothing(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await jobs.publish("A", "A1")
    await jobs.publish("A", "A2")
    leases = await go(asyncio.gather(jobs.claim("w", 60), jobs.claim("w", 60)))
    (lease,) = [lease for lease in leases if lease is not None]
    account.faults.delay("ChangeMessageVisibilityBatch", 0.02)
    account.faults.fail_entries(
        "ChangeMessageVisibilityBatch", [1], code="MessageNotInflight", sender_fault=True
    )
    extension = asyncio.ensure_future(jobs.extend(lease, 100))
    await clock.settle()
    await go(jobs.ack(lease))
    with pytest.raises(LeaseLostError):  # the head was deleted before it was extended
        await go(extension)
    await clock.advance(61)
    (again,) = await go(asyncio.gather(jobs.claim("w", 60)))
    assert again.event == "A2"
    await go(jobs.ack(again))
