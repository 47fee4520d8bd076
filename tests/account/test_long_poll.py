"""Receives that wait: what wakes them, in which order, and what their end leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pumphouse.account import Account
from pumphouse.clock import RealClock, VirtualClock
from support.a_queue import AQueue


async def test_an_empty_poll_ends_on_time(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    poll = queue.poll(wait=7)
    await clock.advance(6.9)
    assert not poll.done()
    await clock.advance(0.1)
    assert await poll == []
    assert clock.next_timer is None


async def test_the_queues_wait_time_holds_where_the_receive_has_none(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, ReceiveMessageWaitTimeSeconds=5)
    assert await queue.receive(wait=0) == []
    poll = asyncio.ensure_future(queue.bodies())
    await clock.advance(4)
    assert not poll.done()
    await queue.send("a")
    await clock.settle()
    assert await poll == ["a"]


async def _by_a_send(queue: AQueue, clock: VirtualClock) -> None:
    await queue.send("a", **({"message_group_id": "new"} if queue.is_fifo else {}))


async def _by_the_end_of_a_delay(queue: AQueue, clock: VirtualClock) -> None:
    if queue.is_fifo:
        await queue.set(DelaySeconds=3)
        await queue.send("a", message_group_id="new")
    else:
        await queue.send("a", delay_seconds=3)
    await clock.advance(3)


async def _by_the_end_of_a_lease(queue: AQueue, clock: VirtualClock) -> None:
    await clock.advance(6)


async def _by_a_release(queue: AQueue, clock: VirtualClock) -> None:
    await queue.change(HELD[-1], 0)


async def _by_a_shorter_lease(queue: AQueue, clock: VirtualClock) -> None:
    await queue.change(HELD[-1], 2)
    await clock.advance(2)


HELD: list[str] = []


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize(
    "waken",
    [
        _by_a_send,
        _by_the_end_of_a_delay,
        _by_the_end_of_a_lease,
        _by_a_release,
        _by_a_shorter_lease,
    ],
)
async def test_a_poll_wakes_at_once(
    account: Account,
    clock: VirtualClock,
    name: str,
    waken: Callable[[AQueue, VirtualClock], Awaitable[None]],
) -> None:
    queue = await AQueue.create(account, name, VisibilityTimeout=6)
    await queue.send("a")
    [message] = await queue.receive()
    HELD.append(message.receipt_handle)
    poll = queue.poll()
    await clock.settle()
    assert not poll.done()
    before = clock.monotonic()
    await waken(queue, clock)
    await clock.settle()
    assert poll.done()
    assert await poll == ["a"]
    assert clock.monotonic() - before <= 6


async def test_a_delete_frees_the_group_for_a_poll(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo")
    await queue.send_batch(*"ab")
    [message] = await queue.receive(1)
    poll = queue.poll()
    await clock.settle()
    await queue.delete(message)
    await clock.settle()
    assert await poll == ["b"]


async def test_first_come_first_served(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    polls = [queue.poll(1) for _ in range(4)]
    await clock.settle()
    await queue.send("a")
    await clock.settle()
    assert [poll.done() for poll in polls] == [True, False, False, False]
    await queue.send_batch("b", "c", "d")
    await clock.settle()
    assert [await poll for poll in polls] == [["a"], ["b"], ["c"], ["d"]]


async def test_one_poll_takes_all_that_it_asked_for(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    first, second = queue.poll(10), queue.poll(10)
    await clock.settle()
    await queue.send_batch(*"abcde")
    await clock.settle()
    assert await first == list("abcde")
    assert not second.done()
    await clock.advance(20)
    assert await second == []


async def test_a_cancelled_poll_takes_nothing(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    first, second = queue.poll(), queue.poll()
    await clock.settle()
    await queue.send("a")  # the first is woken now, and has not run yet
    first.cancel()
    await clock.settle()
    assert first.cancelled()
    assert await second == ["a"]
    third = queue.poll()
    await clock.settle()
    third.cancel()
    await clock.settle()
    assert clock.next_timer is None
    await queue.send("b")
    await clock.settle()
    assert await queue.counts() == (1, 1, 0)
    assert "waiting" not in repr(account)


async def test_the_only_poll_is_cancelled_as_a_message_comes(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, "q.fifo")
    poll = queue.poll()
    await clock.settle()
    await queue.send("a")
    poll.cancel()
    await clock.settle()
    assert await queue.counts() == (1, 0, 0)
    [message] = await queue.receive(attribute_names=["All"])
    assert message.attributes["ApproximateReceiveCount"] == "1"


async def test_someone_else_takes_it_first(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    polls = [queue.poll(wait=10), queue.poll(wait=20)]
    await clock.settle()
    await queue.send("a")
    assert await queue.bodies() == ["a"]  # before the woken one runs
    await clock.advance(5)
    assert not any(poll.done() for poll in polls)
    await queue.send("b")
    await clock.settle()
    assert await polls[0] == ["b"]  # it has not lost its place
    await clock.advance(15)
    assert await polls[1] == []


async def test_polls_of_different_lengths_end_each_on_time(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    polls = {wait: queue.poll(wait=wait) for wait in (9, 3, 6, 1)}
    ended = []
    for second in range(1, 10):
        await clock.advance(1)
        ended += [(wait, second) for wait, poll in polls.items() if poll.done()]
        polls = {wait: poll for wait, poll in polls.items() if not poll.done()}
    assert ended == [(1, 1), (3, 3), (6, 6), (9, 9)]


async def test_a_rounding_error_of_the_clock_is_no_endless_loop(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    for step in (0.1, 0.2, 0.7, 1.1):
        await clock.advance(step)
        await queue.send("a", delay_seconds=1)
        poll = queue.poll(wait=3)
        await clock.advance(3)
        assert await poll == ["a"]


async def test_many_polls_leave_nothing_behind(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    for _ in range(500):
        poll = queue.poll()
        await clock.settle()
        await queue.send("a")
        await poll
    parking = account.queue("q").parking
    assert len(parking) == 0
    assert len(parking._deadlines) < 64
    assert clock.next_timer is None


async def test_on_the_real_clock() -> None:
    account = Account(clock=RealClock())
    queue = await AQueue.create(account)
    poll = queue.poll()
    await asyncio.sleep(0)
    await queue.send("a")
    assert await asyncio.wait_for(poll, 5) == ["a"]
