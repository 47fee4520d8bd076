"""Polling and resources, rows P1, P2 and P6."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import NetworkError
from pumphouse.model import Message
from pumphouse.protocol.operations import DeleteQueue, GetQueueUrl, ReceiveMessage
from pumphouse.subscriber import events
from pumphouse.subscriber.queue import Queue
from pumphouse.watchdog import Watchdog
from support.service import count, deleted, make_queue, receives, send


async def test_p1_a_deleted_queue_is_waited_for(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    account.sixty_second_rules = False
    app = App()
    runs: list[str] = []
    healed: list[events.PumpHealed] = []
    app.hooks.on(events.PumpHealed, healed.append)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        runs.append(body)

    async with app.running(account):
        await clock.advance(30)
        await account.execute(DeleteQueue(url))
        await clock.advance(60)
        assert app.health()["q"]["status"] == "unhealthy"
        assert "QueueDoesNotExist" in str(app.health()["q"]["reason"])
        before = count(account, ReceiveMessage) + count(account, GetQueueUrl)
        await clock.advance(600)
        calls = count(account, ReceiveMessage) + count(account, GetQueueUrl) - before
        assert 20 <= calls <= 60  # 2 to 6 a minute
        url = await make_queue(account, "q")
        await send(account, url, "back")
        await clock.advance(40)
        assert runs == ["back"]
        assert app.health()["q"]["status"] == "healthy"
        assert len(healed) == 1


async def test_p1_or_the_subscription_ends_with_it(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    app = App()

    @app.subscriber(Queue("q", on_missing="end"))
    async def handle(body: str) -> None: ...

    async with app.running(account) as running:
        await clock.advance(1)
        await account.execute(DeleteQueue(url))
        await clock.advance(1)
        assert app.health()["q"]["status"] == "ended"
        await running.stopped()


@pytest.mark.parametrize("fault", ["AccessDenied", "InternalError", "RequestThrottled", "dns"])
async def test_p1_the_same_for_every_other_failure(
    account: Account, clock: VirtualClock, fault: str
) -> None:
    url = await make_queue(account, "q")
    broken = Broken(account, fault)
    app = App()
    runs: list[str] = []
    delays: list[float] = []
    app.hooks.on(events.PumpUnhealthy, lambda event: delays.append(event.retry_in_seconds))

    @app.subscriber("q")
    async def handle(body: str) -> None:
        runs.append(body)

    async with app.running(broken):
        await clock.advance(1)
        broken.now = True
        await clock.advance(60)
        assert app.health()["q"]["status"] == "unhealthy"
        failed = broken.calls
        await clock.advance(600)
        assert 20 <= broken.calls - failed <= 60
        broken.now = False
        await send(account, url, "on")
        await clock.advance(40)
        assert app.health()["q"]["status"] == "healthy"
    assert runs == ["on"]
    assert len(set(delays)) == len(delays)  # with jitter


async def test_p2_thirty_queues_on_long_poll_settle_promptly(
    account: Account, clock: VirtualClock
) -> None:
    """What the runtime does for it; that sockets are apart is shown with the wire client."""
    app = App()
    took: list[float] = []
    for number in range(30):
        await make_queue(account, f"q{number}", VisibilityTimeout="10")

        @app.subscriber(f"q{number}")
        async def handle(message: Message) -> None:
            started[message.message_id] = clock.monotonic()

    started: dict[str, float] = {}

    class Timed:
        clock = account.clock
        cancel_is_exact = True

        async def execute(self, operation: Any) -> Any:
            result = await account.execute(operation)
            if operation.action == "DeleteMessageBatch":
                took.extend([clock.monotonic()] * len(operation.entries))
            return result

        async def aclose(self) -> None: ...

    async with app.running(Timed()):
        await clock.advance(3)
        for number in range(300):
            await send(account, account.within().url_of(f"q{number % 30}"), str(number))
            await clock.advance(0.1)
        await clock.advance(30)
    waits = sorted(
        done - began for done, began in zip(sorted(took), sorted(started.values()), strict=True)
    )
    assert len(waits) == 300
    assert waits[-3] < 1
    assert set(receives(account).values()) == {1}
    assert count(account, ReceiveMessage) < 30 * 20


class Stall:
    """A handler that blocks the loop: time passes, and nothing else runs meanwhile."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def block(self, seconds: float) -> None:
        self._clock._elapsed += seconds


async def test_p6_a_handler_that_blocks_the_loop_is_noticed(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="5")
    await send(account, url, "blocks")
    await send(account, url, "beside it")
    app = App()
    stalls: list[events.LoopStalled] = []
    lost: list[events.LeaseLost] = []
    app.hooks.on(events.LoopStalled, stalls.append)
    app.hooks.on(events.LeaseLost, lost.append)
    runs: list[str] = []

    @app.subscriber(Queue("q", pollers=1, prefetch=0), concurrency=2, on_lease_lost="flag")
    async def handle(body: str, message: Message) -> None:
        runs.append(body)
        if body == "blocks" and runs.count(body) == 1:
            Stall(clock).block(15)  # three leases
            await clock.sleep(0.1)
            assert message.lease_lost
        elif runs.count(body) == 1:
            await clock.sleep(1)

    async with app.running(account):
        await clock.advance(0.2)
        await clock.advance(60)
    assert stalls
    assert stalls[0].seconds > 10
    assert any(each.running for each in lost)
    assert account.queue("q").visible == account.queue("q").in_flight == 0


async def test_p6_also_when_the_handler_ends_before_anything_else_runs(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="5")
    await send(account, url, "blocks")
    app = App()
    lost: list[events.LeaseLost] = []
    app.hooks.on(events.LeaseLost, lost.append)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        if not lost:
            Stall(clock).block(15)

    async with app.running(account):
        await clock.advance(30)
    assert len(lost) == 1
    assert "blocks" in deleted(account)


async def test_p6_what_waited_meanwhile_does_not_start_past_its_deadline(
    account: Account, clock: VirtualClock
) -> None:
    """The worker goes on before any timer runs: it looks at the lease itself."""
    url = await make_queue(account, "q", VisibilityTimeout="5")
    await send(account, url, "blocks")
    await send(account, url, "waits")
    app = App()
    left: list[tuple[str, float]] = []

    @app.subscriber("q", concurrency=1)
    async def handle(body: str, message: Message) -> None:
        left.append((body, message.deadline - clock.now()))
        if len(left) == 1:
            Stall(clock).block(15)

    async with app.running(account):
        await clock.advance(30)
    assert {body for body, _ in left} == {"blocks", "waits"}
    assert all(seconds > 0 for _, seconds in left)
    assert account.queue("q").visible == account.queue("q").in_flight == 0


async def test_p6_a_thread_tells_of_it_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(0.05)
    watchdog.start()
    try:
        time.sleep(0.3)  # noqa: ASYNC251 - it is what the test is about
    finally:
        watchdog.stop()
    assert watchdog.reports == 1
    assert "test_p6_a_thread_tells_of_it_while_it_lasts" in caplog.text


async def test_p6_plain_functions_block_nothing(account: Account, clock: VirtualClock) -> None:
    """They run in threads; here one waits until the loop has done something else."""
    import threading

    url = await make_queue(account, "q")
    for body in ("first", "second"):
        await send(account, url, body)
    app = App()
    both = threading.Barrier(2, timeout=10)
    runs: list[str] = []

    @app.subscriber("q", concurrency=2)
    def handle(body: str) -> None:
        both.wait()
        runs.append(body)

    async with app.running(account):
        await clock.advance(5)
    assert sorted(runs) == ["first", "second"]
    assert sorted(deleted(account)) == ["first", "second"]


class Broken:
    """Receives that fail while `now` is set."""

    cancel_is_exact = True

    def __init__(self, account: Account, fault: str) -> None:
        self.account = account
        self.clock = account.clock
        self.fault = fault
        self.now = False
        self.calls = 0

    async def execute(self, operation: Any) -> Any:
        if self.now and isinstance(operation, ReceiveMessage):
            self.calls += 1
            if self.fault == "dns":
                raise NetworkError("no such host")
            self.account.faults.refuse(ReceiveMessage, self.fault)
        return await self.account.execute(operation)

    async def aclose(self) -> None: ...
