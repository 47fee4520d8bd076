"""The end of a lease is told by the clock, whatever requests about it are on their way."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from pumphouse import Account, App, Message, Queue, VirtualClock
from pumphouse.errors import OutcomeUnknownError
from pumphouse.protocol.operations import ChangeMessageVisibilityBatch
from support.service import make_queue, send


class SlowChanges:
    """A way to SQS on which visibility changes hang, and then arrive (`arrive`), or never do."""

    def __init__(self, account: Account, seconds: float, *, arrive: bool = False) -> None:
        self.clock = account.clock
        self._account = account
        self._seconds = seconds
        self._arrive = arrive

    async def execute(self, operation: Any) -> Any:
        if not isinstance(operation, ChangeMessageVisibilityBatch):
            return await self._account.execute(operation)
        await self.clock.sleep(self._seconds)
        if self._arrive:
            return await self._account.execute(operation)
        raise OutcomeUnknownError("no answer")

    async def aclose(self) -> None: ...


def two_apps(
    clock: VirtualClock, queue: str, mode: Literal["cancel", "flag"]
) -> tuple[App, App, dict[str, list[float]]]:
    """Two services of one queue, and when which of them was started and told."""
    at: dict[str, list[float]] = {"one": [], "two": [], "told": []}

    def service(name: str) -> App:
        app = App(name, drain_seconds=0)

        @app.subscriber(Queue(queue, prefetch=0), concurrency=1, on_lease_lost=mode)
        async def handle(message: Message) -> None:
            at[name].append(clock.monotonic())
            try:
                while not message.lease_lost:
                    await clock.sleep(0.25)
            except asyncio.CancelledError:
                pass
            if name == "one":
                at["told"].append(clock.monotonic())

        return app

    return service("one"), service("two"), at


@pytest.mark.parametrize("mode", ["cancel", "flag"])
@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("hangs", [5, 20, 60])
async def test_a_handler_is_told_at_the_end_of_its_lease_while_an_extension_hangs(
    account: Account, clock: VirtualClock, hangs: float, queue: str, mode: Any
) -> None:
    url = await make_queue(account, queue, VisibilityTimeout="30")
    one, two, at = two_apps(clock, queue, mode)
    await send(account, url, "x", "A" if queue == "q.fifo" else None)
    async with one.running(SlowChanges(account, hangs)):
        await clock.advance(1)
        async with two.running(account):
            await clock.advance(100)
            assert (at["told"][:1], at["two"]) == ([30.0], [30.0])


async def test_an_extension_that_arrives_too_late_gives_no_lease_back(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="30")
    app = App(drain_seconds=0)
    seen: list[tuple[float, bool]] = []

    @app.subscriber(Queue("q", prefetch=0), concurrency=1, on_lease_lost="flag")
    async def handle(message: Message) -> None:
        while clock.monotonic() < 120:
            await clock.sleep(1)
            seen.append((clock.monotonic(), message.lease_lost))

    await send(account, url, "x")
    async with app.running(SlowChanges(account, 16, arrive=True)) as running:
        await clock.advance(125)
        asked = running.consumers[0].exits.settlement.requests
    assert all(lost == (at >= 30) for at, lost in seen)
    assert asked <= 3  # one extension, which was not repeated


@pytest.mark.parametrize("latency", [0, 2])
@pytest.mark.parametrize(("lease", "most"), [(600, 7200), (3600, 7200), (30, 100)])
async def test_a_message_is_held_for_no_longer_in_all(
    account: Account, clock: VirtualClock, lease: int, most: int, latency: float
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout=str(lease))
    app = App(drain_seconds=0)
    cancelled: list[float] = []

    @app.subscriber(Queue("q", prefetch=0, max_lease_seconds=most), concurrency=1)
    async def handle(message: Message) -> None:
        try:
            await clock.sleep(1e6)
        except asyncio.CancelledError:
            cancelled.append(clock.monotonic())
            raise

    await send(account, url, "x")
    async with app.running(SlowChanges(account, latency, arrive=True)):
        await clock.advance(most + 1)
        assert cancelled == [most - 1]
        assert account.queue("q").in_flight <= 1


async def test_a_message_is_extended_once_every_half_lease(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="20")
    app = App(drain_seconds=0)

    @app.subscriber(Queue("q", prefetch=0), concurrency=2)
    async def handle(message: Message) -> None:
        await clock.sleep(200)

    await send(account, url, "x")
    async with app.running(account) as running:
        await clock.advance(190)
        (consumer,) = running.consumers
        assert consumer.stats.leases_lost == 0
        assert consumer.exits.settlement.requests == 18  # at 10, 20, … s
        assert len(consumer.exits.extender._schedule) <= 3
