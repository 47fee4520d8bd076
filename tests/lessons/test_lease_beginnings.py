"""From when a lease is counted, and how long it is: what SQS gave, and no more (L1, L3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.model import Message
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    DeleteQueue,
    ReceiveMessage,
    SetQueueAttributes,
)
from pumphouse.subscriber.queue import Queue
from support.service import Gauge, count, deleted, make_queue, send


class LateAnswers:
    """A backend whose answers with messages are read late, as on a loop that was blocked."""

    def __init__(self, account: Account, seconds: float) -> None:
        self.account = account
        self.clock = account.clock
        self.seconds = seconds

    async def execute(self, operation: Any) -> Any:
        answer = await self.account.execute(operation)
        if isinstance(operation, ReceiveMessage) and answer.messages:
            await self.clock.sleep(self.seconds)
        return answer

    async def aclose(self) -> None:
        """Nothing to give back."""


@pytest.mark.parametrize("extend", [True, False])
async def test_l1_an_answer_that_is_read_late_starts_nothing_past_its_lease(
    account: Account, clock: VirtualClock, extend: bool
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="5")
    gauge = Gauge()
    apps = [App("late"), App("other")]
    for app in apps:

        @app.subscriber(Queue("q.fifo", prefetch=0, extend=extend), concurrency=1)
        async def handle(body: str, message: Message) -> None:
            assert clock.now() < message.deadline
            gauge.enter("A")
            await clock.sleep(4 if not extend else 8)
            gauge.leave("A")

    await send(account, url, "A1", group="A")
    await send(account, url, "A2", group="A")
    async with apps[0].running(LateAnswers(account, 12 if extend else 30)) as late:
        await clock.advance(1)
        async with apps[1].running(account):
            await clock.advance(60)
        assert late.consumers[0].stats.expired > 0
    assert deleted(account) == ["A1", "A2"]
    assert gauge.most["A"] == 1


@pytest.mark.parametrize("change", ["shortened", "zero", "made again"])
async def test_l3_the_lease_is_asked_for_with_each_receive(
    account: Account, clock: VirtualClock, change: str
) -> None:
    """A queue whose timeout changes while it is read: what is held is held under what was read."""
    url = await make_queue(account, "q.fifo", VisibilityTimeout="120")
    runs: Counter[str] = Counter()
    apps = [App("one"), App("two")]
    for app in apps:

        @app.subscriber(Queue("q.fifo", prefetch=0), concurrency=1)
        async def handle(body: str) -> None:
            runs[body] += 1
            await clock.sleep(50)

    async with apps[0].running(account), apps[1].running(account):
        await clock.advance(1)
        if change == "made again":
            await account.execute(DeleteQueue(url))
            await clock.advance(70)
            await make_queue(account, "q.fifo")
            await clock.advance(60)
        else:
            seconds = "20" if change == "shortened" else "0"
            await account.execute(SetQueueAttributes(url, {"VisibilityTimeout": seconds}))
            await clock.advance(25)
        await send(account, url, "A1", group="A")
        await clock.advance(200)
    assert runs == {"A1": 1}


async def test_l1_a_message_that_comes_late_in_a_long_poll_is_run_at_once_and_kept(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="30")
    app = App()
    began: list[float] = []

    @app.subscriber("q")
    async def handle(body: str, message: Message) -> None:
        began.append(clock.monotonic())
        await clock.sleep(4 if body == "short" else 100)

    async with app.running(account) as running:
        start = clock.monotonic()
        await clock.advance(19)
        await send(account, url, "short")
        await clock.advance(5)
        assert count(account, ChangeMessageVisibilityBatch) == 0  # not even one more request
        await send(account, url, "long")
        await clock.advance(150)
        assert [round(at - start) for at in began] == [19, 24]
        assert running.consumers[0].stats.leases_lost == 0
    assert deleted(account) == ["short", "long"]


@pytest.mark.parametrize(("lease", "wait"), [(1, 1), (5, 3), (30, 20), (600, 20)])
async def test_l1_a_receive_waits_for_two_thirds_of_a_lease_at_most(
    account: Account, clock: VirtualClock, lease: int, wait: int
) -> None:
    await make_queue(account, "q", VisibilityTimeout=str(lease))
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(account):
        await clock.advance(10)
    (first, *_) = [
        entry.operation for entry in account.ledger if isinstance(entry.operation, ReceiveMessage)
    ]
    assert (first.wait_time_seconds, first.visibility_timeout) == (wait, lease)
