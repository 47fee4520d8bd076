"""Callers are cancelled and sinks are closed at every moment, in a storm: everyone knows the truth,
and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.errors import OutcomeUnknownError, PumphouseError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import CreateQueue
from pumphouse.sink import Sink
from pumphouse.sink.letter import DeadLetter
from support.stormy import StormyBackend

POLICY = RetryPolicy(base_seconds=0.05, cap_seconds=1, max_attempts=5, budget_seconds=20)


async def run(queue: str, cancel_at: int, close_at: int, *, more: bool) -> None:
    """Thirty callers; eight are cancelled at one step of the loop, the sink is closed at another.
    `more` brings a claim check and slow dead letters into it."""
    seed = cancel_at * 31 + close_at
    rng = random.Random(seed)
    clock = VirtualClock()
    account = Account(clock=clock)
    fifo = queue.endswith(".fifo")
    await account.execute(CreateQueue(queue, {"FifoQueue": "true"} if fifo else None))
    store = MemoryBlobStore()

    async def bury(letter: DeadLetter) -> None:
        await clock.sleep(0.01)

    options: dict[str, Any] = (
        {"claim_check": ClaimCheck(store, inline_max_bytes=10), "on_dead_letter": bury}
        if more
        else {}
    )
    sink = Sink(
        queue,
        StormyBackend(account, seed, trouble=0.5, seconds=0.02),
        clock=clock,
        retry=POLICY,
        rng=rng,
        wait=True,
        batch_queue_max=15,
        batch_max_inflight=2,
        **options,
    )
    before = asyncio.all_tasks()
    bodies = [f"{n}:" + "x" * rng.choice([1, 20]) for n in range(30)]
    tasks = [
        asyncio.create_task(sink.send(body, group_id=f"g{n % 3}", tenant=str(n % 4)))
        for n, body in enumerate(bodies)
    ]
    closing: asyncio.Task[None] | None = None
    for step in range(max(cancel_at, close_at) + 1):
        if step == cancel_at:
            for task in rng.sample(tasks, 8):
                task.cancel()
        if step == close_at:
            closing = asyncio.create_task(sink.aclose(rng.choice([0, 0.03, 0.5, 30])))
        await asyncio.sleep(0)
        if step % 5 == 4 and clock.next_timer is not None and rng.random() < 0.5:
            await clock.advance(clock.next_timer - clock.monotonic())
    assert closing is not None
    await clock.run_until(lambda: closing.done() and all(task.done() for task in tasks))
    await closing
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert sink.stats["waiting"] == 0
    assert not asyncio.all_tasks() - before
    stored = [
        store.blobs[json.loads(sent.body)["claim"]].decode() if sent.body[0] == "{" else sent.body
        for sent in account.sent(queue)
    ]
    assert len(stored) == len(set(stored)), "stored twice"
    for body, result in zip(bodies, results, strict=True):
        if isinstance(result, Receipt):
            assert body in stored
        elif not isinstance(result, OutcomeUnknownError | asyncio.CancelledError):
            assert isinstance(result, PumphouseError), result
            assert body not in stored, result


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("queue", ["q", "q.fifo"])
async def test_cancelled_and_closed_at_every_moment(queue: str, more: bool) -> None:
    for cancel_at in range(0, 60, 3):
        for close_at in (cancel_at // 2, cancel_at, cancel_at + 7):
            await run(queue, cancel_at, close_at, more=more)
