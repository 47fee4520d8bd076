"""The work of an operation does not grow with what the account holds.

Work is counted in lines of Python that run, so that the figures are the same on every run. What it
costs in time is printed by `bench/account.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.a_queue import AQueue

CYCLES = 200


async def _lines(work: Callable[[], Awaitable[object]]) -> int:
    """How many lines of Python a piece of work runs."""
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        await work()
    finally:
        sys.settrace(before)
    return count


async def _cycles(queue: AQueue, groups: int) -> None:
    for number in range(CYCLES):
        await queue.send("body", message_group_id=f"g{number % groups}")
        await queue.delete(*await queue.receive(1))


async def _holding(
    name: str, messages: int, groups: int, *, delayed: int = 0, leased: int = 0, queues: int = 0
) -> int:
    account = Account(clock=VirtualClock(), ledger_room=0)
    parked = []
    for number in range(queues):
        parked.append((await AQueue.create(account, f"other{number}")).poll())
    queue = await AQueue.create(account, name)
    for start in range(0, leased, 10):
        await queue.send_batch(*["body"] * 10, message_group_id=f"l{start}")
        await queue.receive(visibility=600)
    for start in range(0, messages, 10):
        await queue.send_batch(*["body"] * 10, message_group_id=f"g{start % groups}")
    for start in range(0, delayed, 10):
        await queue.send_batch(*["body"] * 10, delay_seconds=900 - start % 100)
    await _cycles(queue, groups)  # warm, and once around the queue's own tidying
    count = await _lines(lambda: _cycles(queue, groups))
    for poll in parked:
        poll.cancel()
    await asyncio.gather(*parked, return_exceptions=True)
    return count


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_with_many_messages(name: str) -> None:
    few = await _holding(name, 100, groups=10)
    many = await _holding(name, 10_000, groups=10)
    assert many <= 1.1 * few


async def test_with_many_groups() -> None:
    few = await _holding("q.fifo", 5_000, groups=50)
    many = await _holding("q.fifo", 5_000, groups=5_000)
    assert many <= 1.1 * few


async def test_with_many_delays_and_leases() -> None:
    few = await _holding("q", 100, groups=10, delayed=100, leased=100)
    many = await _holding("q", 100, groups=10, delayed=5_000, leased=5_000)
    assert many <= 1.1 * few


async def test_with_many_queues_that_are_waited_at() -> None:
    few = await _holding("q", 100, groups=10, queues=1)
    many = await _holding("q", 100, groups=10, queues=300)
    assert many <= 1.1 * few


async def test_a_queue_that_is_waited_at_has_one_timer(
    account: Account, clock: VirtualClock
) -> None:
    polls = []
    for number in range(100):
        queue = await AQueue.create(account, f"q{number}")
        for _ in range(5):
            await queue.send(delay_seconds=100)
        polls += [queue.poll(wait=20) for _ in range(4)]
    await clock.settle()
    assert repr(clock).endswith("timers=100)")
    await clock.advance(20)
    assert all(poll.done() for poll in polls)
    assert repr(clock).endswith("timers=0)")


async def test_behind_a_message_that_is_given_back_again_and_again(account: Account) -> None:
    """What was deleted behind a message that stays is passed over once, not at every receive."""
    queue = await AQueue.create(account, "q.fifo")
    await queue.send("stays")

    async def cycles() -> None:
        for _ in range(50):
            await queue.send("goes")
            first, second = await queue.receive()
            assert first.body == "stays"
            await queue.delete(second)
            await queue.change(first, 0)

    early = await _lines(cycles)
    for _ in range(4):
        await cycles()
    late = await _lines(cycles)
    assert late <= 1.1 * early


async def test_settings_are_changed_without_a_look_at_the_messages(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")

    async def change() -> None:
        seconds = 40 if account.queue("q.fifo").settings.visibility_timeout_seconds == 30 else 30
        await queue.set(VisibilityTimeout=seconds)

    few = await _lines(change)
    for _ in range(100):
        await queue.send_batch(*["body"] * 10)
    assert await _lines(change) <= few + 10
