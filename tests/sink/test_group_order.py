"""A group's messages leave in the order in which they were sent, whatever holds one of them up; and
what holds it up is counted."""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, NotSentError, OutcomeUnknownError, ThrottledError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import SendMessageBatch
from support.sending import bodies, outcomes

from .conftest import MakeSink

who: ContextVar[str] = ContextVar("who", default="nobody")


class SlowStore(MemoryBlobStore):
    """Takes its time, each body its own, and fails for what it is told to fail for."""

    def __init__(self, clock: VirtualClock, seconds: Any, fails: bytes = b"\0") -> None:
        super().__init__()
        self.clock = clock
        self.seconds: Any = seconds if callable(seconds) else lambda: seconds
        self.fails = fails
        self.callers: list[str] = []

    async def put(self, key: str, data: bytes) -> None:
        self.callers.append(who.get())
        await self.clock.sleep(self.seconds())
        if self.fails in data:
            raise OSError("the store is down")
        await super().put(key, data)


async def restored(account: Account, check: ClaimCheck, queue: str = "orders.fifo") -> list[str]:
    return [
        (await check.restore(sent.body, sent.attributes))[0].rstrip("x")
        for sent in account.sent(queue)
    ]


async def test_large_and_small_ones_of_a_group_keep_their_order(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    rng = random.Random(3)
    check = ClaimCheck(SlowStore(clock, rng.random), inline_max_bytes=10)
    sink = make("orders.fifo", claim_check=check)
    sent = [f"{n:02}" + "x" * rng.choice([0, 50]) for n in range(40)]
    got = await outcomes(
        clock, [sink.send(body, group_id=f"g{n % 2}") for n, body in enumerate(sent)]
    )
    assert all(isinstance(each, Receipt) for each in got)
    stored = await restored(account, check)
    for group in range(2):
        of_group = [body for body in stored if int(body) % 2 == group]
        assert of_group == [f"{n:02}" for n in range(group, 40, 2)]


async def test_only_its_own_group_waits_for_a_body(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(SlowStore(clock, 5), inline_max_bytes=10)
    sink = make("orders.fifo", claim_check=check)
    before = asyncio.create_task(sink.send("before", group_id="g"))
    large = asyncio.create_task(sink.send("large" + "x" * 50, group_id="g"))
    behind = asyncio.create_task(sink.send("behind", group_id="g"))
    other = asyncio.create_task(sink.send("other", group_id="h"))
    await clock.advance(1)
    assert bodies(account, "orders.fifo") == ["before", "other"]
    await clock.advance(5)
    assert await restored(account, check) == ["before", "other", "large", "behind"]
    await asyncio.gather(before, large, behind, other)


@pytest.mark.parametrize("end", ["cancelled", "failed"])
async def test_a_message_whose_body_is_not_stored_lets_its_group_go_on(
    make: MakeSink, account: Account, clock: VirtualClock, end: str
) -> None:
    check = ClaimCheck(SlowStore(clock, 5, b"bad"), inline_max_bytes=10)
    letters: list[Any] = []
    sink = make("orders.fifo", claim_check=check, on_dead_letter=letters.append)
    large = asyncio.create_task(sink.send("bad" + "x" * 50, group_id="g"))
    behind = asyncio.create_task(sink.send("behind", group_id="g"))
    await clock.advance(1)
    if end == "cancelled":
        large.cancel()
        await clock.advance(1)
        assert large.cancelled()
    else:
        await clock.advance(5)
        assert isinstance(large.exception(), NotSentError)
    assert (await behind).message_id
    assert bodies(account, "orders.fifo") == ["behind"]
    assert sink.stats["waiting"] == 0
    assert len(letters) == (end == "failed")
    await sink.aclose()


async def test_bodies_on_their_way_to_the_store_count_against_the_ceilings(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    store = SlowStore(clock, 1000)
    sink = make(claim_check=ClaimCheck(store, inline_max_bytes=10), batch_queue_max=100)
    sends = [asyncio.create_task(sink.send("x" * 1000)) for _ in range(500)]
    await clock.advance(1)
    assert sum(t.done() and isinstance(t.exception(), ThrottledError) for t in sends) == 400
    assert sink.stats["waiting"] == 100
    assert len(store.callers) == 100, "a body was stored for a message that was turned away"
    await clock.advance(1000)
    assert sink.stats["stored"] == 100
    assert sink.stats["waiting"] == 0
    assert sink._batcher._schedule.admission.bytes == 0
    await asyncio.gather(*sends, return_exceptions=True)


async def test_those_who_wait_for_room_store_their_bodies_when_they_are_let_in(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    store = SlowStore(clock, 1)
    check = ClaimCheck(store, inline_max_bytes=10)
    sink = make("orders.fifo", claim_check=check, batch_queue_max=2, wait=True)

    async def send(n: int) -> Receipt:
        who.set(f"caller {n}")
        return await sink.send(f"{n}" + "x" * 50, group_id="g")

    sends = [asyncio.create_task(send(n)) for n in range(6)]
    await clock.advance(0.5)
    assert store.callers == ["caller 0", "caller 1"]
    await clock.run_until(lambda: all(task.done() for task in sends))
    assert await restored(account, check) == [str(n) for n in range(6)]
    assert store.callers == [f"caller {n}" for n in range(6)], "each in its caller's context"


async def test_closing_waits_for_bodies_and_tells_the_truth_at_its_deadline(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(SlowStore(clock, iter([1.0, 100.0]).__next__), inline_max_bytes=10)
    sink = make("orders.fifo", claim_check=check)
    soon = asyncio.create_task(sink.send("soon" + "x" * 50, group_id="a"))
    never = asyncio.create_task(sink.send("never" + "x" * 50, group_id="b"))
    behind = asyncio.create_task(sink.send("behind", group_id="b"))
    await clock.settle()
    closing = asyncio.create_task(sink.aclose(10))
    await clock.advance(10)
    await closing
    assert (await soon).message_id
    assert isinstance(never.exception(), ClosedError)
    assert isinstance(behind.exception(), ClosedError)
    assert sink.stats["waiting"] == 0


async def test_whoever_sends_them_the_messages_of_a_group_wait_for_room_in_order(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", wait=True, batch_queue_tenant_max=1)
    sent = [("0", "h", "a"), ("1", "g", "a"), ("2", "g", "b"), ("3", "g", "a"), ("4", "g", "c")]
    await outcomes(clock, [sink.send(b, group_id=g, tenant=t) for b, g, t in sent])
    assert [body for body in bodies(account, "orders.fifo") if body != "0"] == list("1234")


async def test_one_that_would_pass_its_group_is_turned_away_where_it_does_not_wait(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", batch_queue_tenant_max=1)
    first = [
        asyncio.create_task(sink.send("0", group_id="h", tenant="a")),
        asyncio.create_task(sink.send("1", group_id="g", tenant="a", wait=True)),
    ]
    await asyncio.sleep(0)
    with pytest.raises(ThrottledError, match="others of group 'g' wait"):
        await sink.send("2", group_id="g", tenant="b")
    other = asyncio.create_task(sink.send("3", group_id="other", tenant="b"))
    await clock.run_until(lambda: all(task.done() for task in [*first, other]))
    assert sorted(bodies(account, "orders.fifo")) == ["0", "1", "3"]


async def test_a_predecessor_that_is_withdrawn_lets_the_other_tenant_in(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.delay(SendMessageBatch, 5, times=None)
    sink = make("orders.fifo", wait=True, batch_queue_tenant_max=1)
    inside = asyncio.create_task(sink.send("0", group_id="h", tenant="a"))
    parked = asyncio.create_task(sink.send("1", group_id="g", tenant="a"))
    behind = asyncio.create_task(sink.send("2", group_id="g", tenant="b"))
    await clock.advance(1)
    assert sink.stats["waiting"] == 3
    parked.cancel()
    await clock.advance(1)
    assert sink.stats["requests"] == 2, "it does not wait for the tenant of the one before it"
    await clock.advance(10)
    await asyncio.gather(inside, behind)
    assert not sink._batcher._schedule.admission._lines


@pytest.mark.parametrize("seed", range(12))
async def test_order_holds_through_ceilings_bodies_lost_answers_and_cancellations(
    make: MakeSink, account: Account, clock: VirtualClock, seed: int
) -> None:
    rng = random.Random(seed)
    check = ClaimCheck(SlowStore(clock, rng.random), inline_max_bytes=10)
    options = {
        "claim_check": check,
        "wait": True,
        "batch_queue_max": rng.choice([3, 10]),
        "batch_queue_tenant_max": rng.choice([1, 3]),
        "batch_max_inflight": rng.choice([1, 3]),
    }
    account.faults.delay(SendMessageBatch, 0.2, times=5)
    account.faults.lose_answer(SendMessageBatch, times=3)
    sink = make("orders.fifo", **options)
    sends = []
    for n in range(60):
        body = f"{n:02}" + "x" * rng.choice([0, 50])
        group, tenant = f"g{rng.randrange(3)}", f"t{rng.randrange(3)}"
        sends.append((asyncio.create_task(sink.send(body, group_id=group, tenant=tenant)), group))
        if rng.random() < 0.1:
            await clock.advance(rng.random())
        if rng.random() < 0.1:
            rng.choice(sends)[0].cancel()
    await clock.run_until(lambda: all(task.done() for task, _ in sends))
    stored = [int(body) for body in await restored(account, check)]
    assert len(stored) == len(set(stored))
    for group in {group for _, group in sends}:
        of_group = [n for n in stored if sends[n][1] == group]
        assert of_group == sorted(of_group)
    for n, (task, _) in enumerate(sends):
        if not task.cancelled():
            assert isinstance(task.exception(), type(None) | OutcomeUnknownError)
            assert n in stored
    schedule = sink._batcher._schedule
    assert sink.stats["waiting"] == schedule.admission.bytes == 0
    assert not any((schedule._held, schedule.called, schedule.admission._lines))
