"""Lambda under random troubles: handlers that fail, wait, or take too long, invocations that crash,
permissions that are missing. Whatever happens, a group stays in order and nothing is lost."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.lambda_handler import LambdaHandler
from pumphouse.protocol.operations import ChangeMessageVisibilityBatch
from pumphouse.subscriber.outcomes import Drop, Reject, Retry
from pumphouse.testing import EventSourceMapping
from support.service import make_queue, send

GROUPS, EACH = "abcd", 8


class Crashing(LambdaHandler):
    """A function whose process dies now and then, when its handlers have run."""

    chance = 0.0
    rng = random.Random()

    async def invoke(self, event: object, context: object = None) -> dict[str, Any]:
        answer = await super().invoke(event, context)
        if self.rng.random() < self.chance:
            raise RuntimeError("the process died")
        return answer


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("seed", range(12))
async def test_a_group_stays_in_order_and_nothing_is_lost(seed: int, batch: int | None) -> None:
    rng = random.Random(seed * 2 + bool(batch))
    clock = VirtualClock()
    account = Account(clock=clock)
    await make_queue(account, "q.fifo", VisibilityTimeout="60")
    await make_queue(account, "dead.fifo")
    app = App()
    done: dict[str, list[str]] = defaultdict(list)
    running: dict[str, int] = defaultdict(int)
    trouble = rng.choice([0.1, 0.3, 0.5])

    async def one(body: str) -> Any:
        group = body[0]
        running[group] += 1
        assert running[group] == 1, "one of a group at a time"
        try:
            if rng.random() < trouble:
                kind = rng.randrange(4)
                if kind == 0:
                    raise ValueError(body)
                if kind == 1:
                    return Retry(after=rng.choice([0, 5, 100]))
                await clock.sleep(rng.choice([1, 25]))  # some of them longer than the function has
                if kind == 2:
                    raise ValueError(body)
            elif rng.random() < 0.1:
                done[group].append(body)
                return rng.choice([Drop(), Reject("bad")])
            done[group].append(body)
            return None
        finally:
            running[group] -= 1

    if batch is None:

        @app.subscriber("q.fifo", concurrency=3, retry=7, max_attempts=900, dead_letter="dead.fifo")
        async def handle(payload: str) -> Any:
            return await one(payload)

    else:

        @app.subscriber("q.fifo", batch=batch, retry=7, max_attempts=900, dead_letter="dead.fifo")
        async def handle_many(payload: list[str]) -> Any:
            outcomes: list[Any] = []
            failed: set[str] = set()
            for body in payload:
                if body[0] in failed:  # as a handler of batches has to: in order
                    outcomes.append(Retry())
                    continue
                outcome = await one(body)
                if isinstance(outcome, Retry):
                    failed.add(body[0])
                outcomes.append(outcome)
            return [outcome if outcome is not None else Drop() for outcome in outcomes]

    for number in range(EACH):
        for group in GROUPS:
            await send(account, "q.fifo", f"{group}{number}", group)
    function = Crashing(app, account)
    function.rng = rng
    function.chance = rng.choice([0.0, 0.2])
    mapping = EventSourceMapping(account, "q.fifo", function, function_seconds=20)
    if rng.random() < 0.3:
        account.faults.refuse(ChangeMessageVisibilityBatch, "AccessDenied", "no", times=None)
    elif rng.random() < 0.3:
        account.faults.throttle(ChangeMessageVisibilityBatch, times=5)

    async def to_the_end() -> None:
        queue = account.queue("q.fifo")
        for _ in range(3_000):
            await mapping.poll()
            if not (queue.visible or queue.in_flight):
                return
            await clock.sleep(3)
        raise AssertionError(f"not done: {queue!r}")

    work = asyncio.create_task(to_the_end())
    await clock.run_until(work.done)
    work.result()
    await function.aclose()
    for group in GROUPS:
        first: list[str] = []
        for body in done[group]:
            if body not in first:
                first.append(body)
        assert first == [f"{group}{number}" for number in range(EACH)]
        if not function.chance and batch is None:
            assert done[group] == first, "nothing runs again that was done"
