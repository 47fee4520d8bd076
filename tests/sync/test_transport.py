"""The sync twins of the transports: threads share what tasks share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.errors import ClosedError, LeaseLostError
from pumphouse.sync.portal import Portal
from pumphouse.sync.transport import LeaseTransport, PriorityTransport


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


@pytest.fixture
def live() -> Account:
    """An account on the machine's clock, because threads can't wait for another."""
    return Account()


@pytest.fixture
def jobs(portal: Portal, live: Account) -> LeaseTransport[Any]:
    return LeaseTransport.create("jobs", live, portal=portal, wait_seconds=0)


def left(account: Account) -> tuple[int, int]:
    queue = account.queue("jobs.fifo")
    return queue.visible, queue.in_flight


def test_publish_claim_extend_nack_and_ack(jobs: LeaseTransport[Any], live: Account) -> None:
    receipt = jobs.publish("G", {"n": 1})
    assert receipt.sequence_number
    lease = jobs.claim("w", 30)
    assert lease is not None
    jobs.extend(lease, 100)
    assert lease.remaining_seconds > 90
    jobs.nack(lease)
    again = jobs.claim("w", 30)
    assert again is not None
    assert (again.event, again.receive_count) == ({"n": 1}, 2)
    jobs.ack(again)
    with pytest.raises(LeaseLostError):
        jobs.ack(again)
    assert jobs.claim("w", 30) is None
    assert left(live) == (0, 0)


def test_threads_share_receives_and_deletes(jobs: LeaseTransport[Any], live: Account) -> None:
    for number in range(200):
        jobs.publish(f"g{number % 40}", number)
    before = Counter(entry.operation.action for entry in live.ledger)
    done: list[int] = []

    def work(name: str) -> None:
        while (lease := jobs.claim(name, 30, wait_seconds=1)) is not None or len(done) < 200:
            if lease is not None:
                done.append(lease.event)
                jobs.ack(lease)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(200))
    for group in range(40):
        own = [number for number in done if number % 40 == group]
        assert own == sorted(own)
    deletes = Counter(entry.operation.action for entry in live.ledger) - before
    assert deletes["DeleteMessageBatch"] < 150


def test_a_block_acks_or_nacks(jobs: LeaseTransport[Any], live: Account) -> None:
    jobs.publish("G", 1)
    with pytest.raises(KeyError), jobs.claimed("w", 30) as lease:
        raise KeyError(lease.event)
    assert left(live) == (1, 0)
    with jobs.claimed("w", 30) as lease:
        assert lease.receive_count == 2
    assert left(live) == (0, 0)
    with pytest.raises(TimeoutError), jobs.claimed("w", 30, wait_seconds=0):
        pass


def test_leases_come_until_it_is_closed(jobs: LeaseTransport[Any]) -> None:
    jobs.publish("G", 1)
    jobs.publish("G", 2)
    seen = []
    for lease in jobs.leases("w", 30, wait_seconds=0):
        seen.append(lease.event)
        jobs.ack(lease)
        if len(seen) == 2:
            jobs.close()
    assert seen == [1, 2]
    with pytest.raises(ClosedError):
        jobs.publish("G", 3)


def test_it_is_closed_with_its_block_and_with_its_portal(portal: Portal, live: Account) -> None:
    with LeaseTransport.create("jobs", live, portal=portal) as jobs:
        assert not jobs.transport.closed
    assert jobs.transport.closed
    other: LeaseTransport[Any] = LeaseTransport.create("jobs", live, portal=portal)
    portal.close()
    assert other.transport.closed
    other.close()  # once more is no error


def test_stop_ends_the_loops_of_threads_and_lets_them_settle(
    jobs: LeaseTransport[Any], live: Account
) -> None:
    jobs.publish("G", 1)
    jobs.publish("G", 2)
    held, stopped = threading.Event(), threading.Event()

    def work() -> None:
        for lease in jobs.leases("w", 30, wait_seconds=1):
            held.set()
            with jobs.keep(lease, 30):
                assert stopped.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    assert held.wait(20)
    jobs.stop()
    stopped.set()
    thread.join(20)
    assert not thread.is_alive()
    jobs.close()
    assert left(live) == (1, 0)


def test_priorities(portal: Portal, live: Account) -> None:
    jobs: PriorityTransport[str] = PriorityTransport.create(
        "jobs", live, portal=portal, levels=2, wait_seconds=0
    )
    jobs.publish("low", "l")
    jobs.publish("top", "t", priority=1)
    lease = jobs.claim("w", 30, min_priority=1)
    assert lease is not None
    assert lease.event == "t"
    jobs.ack(lease)
    assert jobs.claim("w", 30, min_priority=1) is None
    with jobs.claimed("w", 30) as lease:
        assert lease.event == "l"
    jobs.close()
