"""What the system does not give, tasks that do not end, and queues that are asked for nothing."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter

import pytest

from pumphouse import event_loop
from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import RealClock, VirtualClock
from pumphouse.lambda_handler import LambdaHandler
from pumphouse.protocol.operations import CreateQueue, SendMessage
from pumphouse.subscriber import stopping
from pumphouse.subscriber.outcomes import Outcome, Retry
from pumphouse.subscriber.queue import Queue
from pumphouse.testing import LambdaContext, lambda_event
from support.service import make_queue, send


@pytest.mark.parametrize("failing", [1, 2])
async def test_threads_that_can_not_be_started(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Without the first one a message has failed; without the second one the first does it all."""
    app = App()
    ran: Counter[str] = Counter()

    @app.subscriber("q", retry=5, concurrency=2)
    def handle(body: str) -> None:
        ran[body] += 1

    start = threading.Thread.start
    asked = 0

    def fails(thread: threading.Thread) -> None:
        nonlocal asked
        if thread.name.startswith("pumphouse-"):
            asked += 1
            if asked == failing:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails)
    async with app.in_process() as account:
        await account.send("q", "x")
        await account.send("q", "y")
        await account.settle()
    assert ran == {"x": 1, "y": 1}
    assert app.abandoned_threads == 0
    assert asked >= failing


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_eager_tasks_keep_the_concurrency(
    account: Account, clock: VirtualClock, name: str
) -> None:
    factory = asyncio.eager_task_factory  # type: ignore[attr-defined,unused-ignore]
    asyncio.get_running_loop().set_task_factory(factory)
    url = await make_queue(account, name)
    for number in range(300):
        await send(account, url, str(number), str(number) if name != "q" else None)
    app = App()
    running = worst = ran = 0

    @app.subscriber(name, concurrency=3)
    async def handle(body: str) -> None:
        nonlocal running, worst, ran
        ran += 1
        running += 1
        worst = max(worst, running)
        await clock.sleep(0.01)
        running -= 1

    async with app.running(account):
        await clock.advance(60)
    assert (ran, worst) == (300, 3)


async def test_receives_that_do_not_wait_ask_an_empty_queue_once_a_second(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    app = App()

    @app.subscriber(Queue("q", wait_time_seconds=0))
    async def handle(body: str) -> None: ...

    async with app.running(account) as running:
        await clock.advance(60)
        assert 59 <= running.consumers[0].requests <= 61
        for _ in range(100):
            await send(account, url, "x")
        await clock.advance(1.5)
        assert running.consumers[0].stats.acked == 100


async def test_what_is_tried_again_at_once_and_for_ever_ends_a_test_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pumphouse.clock.MAX_STEPS", 100)
    app = App()

    @app.subscriber("q.fifo", retry=0)
    async def handle(body: str) -> Outcome:
        return Retry()

    async with app.in_process() as account:
        await account.send("q.fifo", "x", group_id="A")
        with pytest.raises(TimeoutError, match=r"has not come to rest.*q.fifo holds 1 messages"):
            await account.settle(limit_seconds=1)


async def test_what_never_waits_ends_a_test_with_an_error(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.clock.MAX_ROUNDS", 1_000)

    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    task = asyncio.create_task(busy())
    with pytest.raises(TimeoutError, match="never waits for time to pass"):
        await clock.settle()
    task.cancel()


@pytest.mark.parametrize("how", ["plain", "async"])
def test_an_app_that_runs_by_itself_does_not_wait_for_handlers_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(stopping, "CANCEL_GRACE_SECONDS", 0.02)
    monkeypatch.setattr(event_loop, "LEFT_SECONDS", 0.02)
    app = App(drain_seconds=0)
    account = Account(clock=RealClock())
    go_on = threading.Event()
    loop: asyncio.AbstractEventLoop

    def stop() -> None:
        running = app.run_now
        assert running is not None
        running.request_stop()

    if how == "plain":

        @app.subscriber("q")
        def handle(body: str) -> None:
            loop.call_soon_threadsafe(stop)
            go_on.wait(30)

    else:

        @app.subscriber("q")
        async def handle_on_the_loop(body: str) -> None:
            stop()
            while True:
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    continue

    async def prepared() -> int:
        nonlocal loop
        loop = asyncio.get_running_loop()
        url = (await account.execute(CreateQueue("q"))).queue_url
        await account.execute(SendMessage(url, "x"))
        return await app.serve(account)

    assert event_loop.run(prepared(), "asyncio") == 0
    assert account.queue("q").visible == 1  # given back
    go_on.set()


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_the_longest_delay_is_kept_within_what_the_service_allows(
    account: Account, clock: VirtualClock, name: str
) -> None:
    url = await make_queue(account, name)
    app = App()
    runs: list[float] = []

    @app.subscriber(name)
    async def handle(body: str) -> Outcome | None:
        runs.append(clock.monotonic())
        await clock.sleep(5)
        return Retry(after=43_200) if len(runs) == 1 else None

    async with app.running(account):
        await send(account, url, "x", "A" if name != "q" else None)
        await clock.advance(43_300)
    assert len(runs) == 2
    assert 43_100 <= runs[1] <= 43_200


async def test_the_longest_lease_leaves_room_for_retries_in_place(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    app = App()
    runs: list[float] = []

    @app.subscriber(Queue("q.fifo", visibility_timeout=43_200), retry=1)
    async def handle(body: str) -> None:
        runs.append(clock.monotonic())
        if len(runs) == 1:
            raise ValueError

    async with app.running(account) as running:
        await send(account, url, "x", "A")
        await clock.advance(60)
        assert running.consumers[0].stats.retried_in_place == 1
    assert len(runs) == 2


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_eager_tasks_keep_the_concurrency_on_lambda(
    account: Account, clock: VirtualClock
) -> None:
    factory = asyncio.eager_task_factory  # type: ignore[attr-defined,unused-ignore]
    asyncio.get_running_loop().set_task_factory(factory)
    app = App()
    ran = 0

    @app.subscriber("q", concurrency=2)
    async def handle(body: str) -> None:
        nonlocal ran
        ran += 1

    handler = LambdaHandler(app, backend=account)
    answer = await handler.invoke(lambda_event("q", ["a", "b", "c"]), LambdaContext(30, clock))
    assert answer == {"batchItemFailures": []}
    assert ran == 3
