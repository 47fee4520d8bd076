"""A message is tried again only while that is safe: when its try begins, and not only when it is
planned. What lies between the two may take any time."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import NetworkError, OutcomeUnknownError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import SendMessageBatch
from support.sending import bodies, outcomes

from .conftest import MakeSink


class Slow:
    """Carries requests out and loses their answers, after as long as a client waits for one."""

    def __init__(self, account: Account, seconds: float, until: float) -> None:
        self.account = account
        self.seconds = seconds
        self.until = until
        self.begun: dict[str, list[float]] = defaultdict(list)

    async def execute(self, operation: Any) -> Any:
        if not isinstance(operation, SendMessageBatch):
            return await self.account.execute(operation)
        now = self.account.clock.monotonic()
        for entry in operation.entries:
            self.begun[entry.message_body].append(now)
        answer = await self.account.execute(operation)
        if now < self.until:
            await self.account.clock.sleep(self.seconds)
            raise OutcomeUnknownError("the answer was lost")
        return answer

    async def aclose(self) -> None:
        pass


async def test_a_retry_that_waits_for_its_turn_ends_with_the_deduplication_window(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    backend = Slow(account, seconds=10, until=540)
    patient = RetryPolicy(budget_seconds=None)
    sink = make("orders.fifo", backend, batch_max_inflight=1, retry=patient)
    got = await outcomes(clock, [sink.send(f"m{n}", group_id=f"g{n}") for n in range(600)])
    stored = bodies(account, "orders.fifo")
    assert len(stored) == len(set(stored)) == 600
    assert all(isinstance(each, Receipt | OutcomeUnknownError) for each in got)
    assert sum(isinstance(each, Receipt) for each in got) > 0
    assert all(times[-1] - times[0] <= 240 for times in backend.begun.values())
    assert max(times[-1] - times[0] for times in backend.begun.values()) > 60
    assert sink.stats["waiting"] == 0


@pytest.mark.parametrize("sleeps", ["the process", "the machine"])
async def test_a_pause_longer_than_the_window_ends_it(
    make: MakeSink, account: Account, clock: VirtualClock, sleeps: str
) -> None:
    """A machine that sleeps stops the monotonic clock, too; the time of day goes on."""
    account.faults.lose_answer(SendMessageBatch)
    sink = make("orders.fifo", retry=RetryPolicy(base_seconds=10, budget_seconds=None))
    sending = asyncio.create_task(sink.send("x", group_id="g", id="1"))
    behind = asyncio.create_task(sink.send("y", group_id="g", id="2"))
    await clock.advance(0.02)
    if sleeps == "the process":
        clock._elapsed += 241
    else:
        clock._epoch += 241
    await clock.run_until(lambda: sending.done() and behind.done())
    assert isinstance(sending.exception(), OutcomeUnknownError)
    assert len(account.ledger.of(SendMessageBatch)) == 1, "the others of a batch go with it"
    assert sorted(bodies(account, "orders.fifo")) == ["x", "y"]


async def test_a_pause_within_the_window_is_no_harm(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer(SendMessageBatch)
    sink = make("orders.fifo", batch_linger=0, retry=RetryPolicy(budget_seconds=None))
    sending = asyncio.create_task(sink.send("x", group_id="g", id="1"))
    await clock.settle()
    clock._epoch += 200
    await clock.run_until(sending.done)
    assert (await sending).message_id
    assert bodies(account, "orders.fifo") == ["x"]


async def test_what_is_late_leaves_its_request_to_the_others(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer(SendMessageBatch)
    sink = make("orders.fifo", retry=RetryPolicy(base_seconds=10, budget_seconds=None))
    late = asyncio.create_task(sink.send("late", group_id="a"))
    await clock.advance(0.1)
    clock._epoch += 300
    due = clock.next_timer
    assert due is not None
    await clock.advance(due - clock.monotonic() - 0.01)
    fresh = asyncio.create_task(sink.send("fresh", group_id="b"))
    await clock.run_until(lambda: late.done() and fresh.done())
    assert isinstance(late.exception(), OutcomeUnknownError)
    assert (await fresh).message_id
    assert bodies(account, "orders.fifo") == ["late", "fresh"]


async def test_no_try_begins_after_the_budget_however_long_the_line(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    begun: dict[str, list[float]] = defaultdict(list)

    class Down:
        async def execute(self, operation: Any) -> Any:
            if not isinstance(operation, SendMessageBatch):
                return await account.execute(operation)
            for entry in operation.entries:
                begun[entry.message_body].append(clock.monotonic())
            await clock.sleep(20)
            raise NetworkError("down")

        async def aclose(self) -> None:
            pass

    sink = make("orders", Down(), retry=RetryPolicy(budget_seconds=60), rng=random.Random(1))
    got = await outcomes(clock, [sink.send(f"m{n}", tenant=f"t{n % 8}") for n in range(500)])
    assert all(isinstance(each, NetworkError) for each in got)
    assert len(begun) == 500
    assert max(times[-1] - times[0] for times in begun.values()) <= 60
