"""Leases that are refused, lost, long or too short, and what is kept for them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import ConfigError, OutcomeUnknownError
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    DeleteMessageBatch,
    Operation,
    ReceiveMessage,
)
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.extender import MIN_ROOM
from pumphouse.subscriber.queue import Queue
from support.service import make_queue, receive, send


async def test_settled_messages_are_not_kept_for_as_long_as_an_older_lease(
    account: Account, clock: VirtualClock
) -> None:
    gc.collect()
    before = sum(isinstance(each, Delivery) for each in gc.get_objects())  # of other tests
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None:
        if body == "long":
            await clock.sleep(1_500)

    async with app.running(account, drain_seconds=0):
        await send(account, url, "long")
        await clock.advance(1)
        for _ in range(30):
            for _ in range(20):
                await send(account, url, "x")
            await clock.advance(1)
        gc.collect()
        kept = sum(isinstance(each, Delivery) for each in gc.get_objects())
    assert kept - before <= MIN_ROOM + 20


@pytest.mark.parametrize("code", ["InvalidParameterValue", "UnsupportedOperation"])
async def test_an_extension_that_is_refused_takes_no_lease_away(
    account: Account, clock: VirtualClock, code: str
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="30")
    app = App()
    ends: list[str] = []
    account.faults.refuse(ChangeMessageVisibilityBatch, code, times=1)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(100)
        ends.append(body)

    async with app.running(account) as running:
        await send(account, url, "x")
        await clock.advance(110)
        assert running.consumers[0].stats.leases_lost == 0
    assert ends == ["x"]


async def test_one_that_can_never_be_extended_has_its_lease_to_the_end(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="30")
    app = App()
    cancelled: list[float] = []
    account.faults.refuse(ChangeMessageVisibilityBatch, "UnsupportedOperation", times=None)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        started = clock.monotonic()
        try:
            await clock.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(clock.monotonic() - started)
            raise

    async with app.running(account, drain_seconds=0) as running:
        await send(account, url, "x")
        await clock.advance(31)
        assert running.consumers[0].requests < 15
        account.faults.clear()
    assert 29 <= cancelled[0] <= 31


async def test_a_run_whose_lease_is_lost_is_counted(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q.fifo")
    dead = await make_queue(account, "dead.fifo")
    app = App()
    runs: list[float] = []

    @app.subscriber(
        Queue("q.fifo", extend=False, visibility_timeout=5),
        max_attempts=3,
        dead_letter="dead.fifo",
        on_lease_lost="flag",
        retry=1,
    )
    async def handle(body: str) -> None:
        runs.append(clock.monotonic())
        await clock.sleep(8)
        raise ValueError

    async with app.running(account):
        await send(account, url, "x", "A")
        await clock.advance(200)
    assert len(runs) == 3
    assert [message.body for message in await receive(account, dead)] == ["x"]


async def test_batches_that_are_collected_for_longer_than_a_lease_are_refused(
    account: Account,
) -> None:
    await make_queue(account, "q", VisibilityTimeout="5")
    app = App()

    @app.subscriber(Queue("q", extend=False), batch=100, batch_window=10)
    async def handle(bodies: list[str]) -> None: ...

    with pytest.raises(ConfigError, match=r"collected for 10 s.*a lease ends after 5 s"):
        async with app.running(account):
            pass


async def test_a_busy_queue_that_is_not_asked_holds_up_no_lower_one(
    account: Account, clock: VirtualClock
) -> None:
    high = await make_queue(account, "high")
    low = await make_queue(account, "low")
    app = App()
    ran: list[float] = []

    @app.subscriber(Queue("high", prefetch=0), concurrency=1, priority=1)
    async def first(body: str) -> None:
        await clock.sleep(3_600)

    @app.subscriber("low", priority=2)
    async def second(body: str) -> None:
        ran.append(clock.monotonic())

    async with app.running(account, drain_seconds=0):
        await send(account, high, "one")
        await clock.advance(1)
        await send(account, low, "two")
        await clock.advance(25)
    assert len(ran) == 1


class Slow:
    """Operations of one kind take their time, and the answers of settling ones are lost."""

    cancel_is_exact = False

    def __init__(self, account: Account, slow: type[Operation[Any]], seconds: float) -> None:
        self.account = account
        self.clock = account.clock
        self.slow = slow
        self.seconds = seconds

    async def execute(self, operation: Any) -> Any:
        if not isinstance(operation, self.slow):
            return await self.account.execute(operation)
        if self.slow is not ReceiveMessage:
            await self.clock.sleep(self.seconds)
            raise OutcomeUnknownError("lost")
        answer = await self.account.execute(operation)
        if answer.messages:
            await self.clock.sleep(self.seconds)
        return answer

    async def aclose(self) -> None: ...


@pytest.mark.parametrize("slow", [DeleteMessageBatch, ChangeMessageVisibilityBatch, ReceiveMessage])
async def test_a_stop_leaves_nothing_behind_that_waits(
    account: Account, clock: VirtualClock, slow: Any
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    app = App(drain_seconds=1)

    @app.subscriber(Queue("q", wait_time_seconds=1))
    async def handle(body: str) -> None:
        if slow is ChangeMessageVisibilityBatch:
            await clock.sleep(1e6)

    await send(account, url, "x")
    seconds = 60 if slow is ReceiveMessage else 20
    async with app.running(Slow(account, slow, seconds)):  # type: ignore[arg-type]
        await clock.advance(0.5)
    assert clock.next_timer is None
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert account.queue("q").visible == (1 if slow is ReceiveMessage else 0)


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, SystemExit, ValueError])
async def test_a_key_that_can_not_be_told_is_none(
    account: Account, clock: VirtualClock, error: type[BaseException]
) -> None:
    url = await make_queue(account, "q")
    app = App()
    ran: list[str] = []
    running = worst = 0

    def key(body: str) -> str | None:
        if body == "bad":
            raise error
        return None

    @app.subscriber("q", partition_key=key)
    async def handle(body: str) -> None:
        nonlocal running, worst
        ran.append(body)
        running += 1
        worst = max(worst, running)
        await clock.sleep(1)
        running -= 1

    async with app.running(account):
        for body in ("a", "bad", "c"):
            await send(account, url, body)
        await clock.advance(10)
    assert sorted(ran) == ["a", "bad", "c"]
    assert worst == 3  # without a key there is no lane


def test_an_app_that_ran_in_process_is_forgotten() -> None:
    async def run() -> weakref.ref[object]:
        app = App()

        @app.subscriber("q")
        async def handle(body: str) -> None:
            assert body == "works"

        async with app.in_process() as account:
            await account.send("q", "works")
            await account.settle()
        assert len(handle.calls) == 1
        return weakref.ref(account)

    account = asyncio.run(run())
    gc.collect()
    assert account() is None
