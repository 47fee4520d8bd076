"""Handlers, options and moments that go wrong: nothing is lost, and nothing is left behind.

`at_rest` is asserted at the end of each: no lease, slot, task or timer is left.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import UsageError
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    DeleteMessageBatch,
    ReceiveMessage,
    SendMessage,
)
from pumphouse.running import Running
from pumphouse.signals import AT_ONCE_SECONDS, Signals
from pumphouse.subscriber.outcomes import Drop, Reject, Retry, check_delay_rule
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.runner import Runner
from support.service import deleted, make_queue, receive, receives, send

URL = "https://sqs.us-east-1.amazonaws.com/000000000000/q"


class Odd(BaseException):
    """As test frameworks and other event loops have them."""


def at_rest(clock: VirtualClock, running: Running) -> None:
    for consumer in running.consumers:
        exits = consumer.exits
        assert not exits.live
        assert not exits.at_work
        assert not exits.in_place
        assert not exits.by_id
        assert not list(exits.lanes)
        assert not exits.lanes.available
        assert not consumer.pump.open_receives
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert clock.next_timer is None


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize("how", ["async", "plain", "batch"])
@pytest.mark.parametrize(
    "error",
    [
        Odd,
        GeneratorExit,
        SystemExit,
        asyncio.CancelledError,
        StopIteration,
        MemoryError,
        BaseExceptionGroup("several", [Odd()]),
    ],
    ids=["odd", "generator", "exit", "cancelled", "stop iteration", "memory", "group"],
)
async def test_whatever_a_handler_raises_is_a_failed_attempt(
    account: Account, clock: VirtualClock, error: Any, how: str, name: str
) -> None:
    url = await make_queue(account, name)
    for number in range(4):
        await send(account, url, str(number), group="A" if name.endswith(".fifo") else None)
    app = App()
    runs: list[str] = []

    def work(body: str) -> None:
        runs.append(body)
        if "1" in body and runs.count(body) == 1:
            raise error

    async def on_the_loop(body: str) -> None:
        work(body)

    async def in_batches(bodies: list[str]) -> None:
        work("".join(bodies))

    handlers: dict[str, Callable[..., Any]]
    handlers = {"async": on_the_loop, "plain": work, "batch": in_batches}
    handler = handlers[how]
    app.subscriber(name, concurrency=2, retry=1, batch=10 if how == "batch" else None)(handler)
    async with app.running(account) as running:
        await clock.advance(20)
    assert sorted(deleted(account)) == list("0123")
    assert runs.count("0123" if how == "batch" else "1") == 2
    at_rest(clock, running)


@pytest.mark.parametrize("name", ["q", "q.fifo"])
@pytest.mark.parametrize(
    "rule",
    [lambda _: 1 / 0, lambda _: float("nan"), lambda _: "x", lambda _: None],
    ids=["raises", "nan", "text", "none"],
)
async def test_a_retry_function_that_fails_leaves_it_to_the_default(
    account: Account, clock: VirtualClock, rule: Any, name: str
) -> None:
    url = await make_queue(account, name)
    await send(account, url, "one", group="A" if name.endswith(".fifo") else None)
    app = App()
    runs: list[float] = []

    @app.subscriber(name, retry=rule)
    async def handle(body: str) -> None:
        runs.append(clock.monotonic())
        if len(runs) == 1:
            raise ValueError

    async with app.running(account) as running:
        await clock.advance(5)
    assert len(runs) == 2
    assert runs[1] - runs[0] <= 2  # at most 1 s, in whole seconds where SQS waits
    assert deleted(account) == ["one"]
    at_rest(clock, running)


@pytest.mark.parametrize("outcome", [Retry, Reject, Drop])
async def test_an_outcome_s_class_says_what_its_value_says(
    account: Account, clock: VirtualClock, outcome: Any
) -> None:
    url = await make_queue(account, "q")
    dead = await make_queue(account, "dead")
    await send(account, url, "one")
    app = App()
    runs: list[str] = []

    @app.subscriber("q", retry=1, max_attempts=2, dead_letter="dead")
    async def handle(body: str) -> Any:
        runs.append(body)
        return outcome

    async with app.running(account) as running:
        await clock.advance(20)
    assert len(runs) == (2 if outcome is Retry else 1)
    assert [each.body for each in await receive(account, dead)] == (
        [] if outcome is Drop else ["one"]
    )
    at_rest(clock, running)


def _wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


def _hidden(function: Any) -> Any:
    return lambda body: function(body)


@pytest.mark.parametrize("around", [_wrapped, _hidden, functools.partial])
async def test_a_plain_function_around_an_async_one_is_awaited(
    account: Account, clock: VirtualClock, around: Any
) -> None:
    url = await make_queue(account, "q")
    await send(account, url, "one")
    app = App()
    runs: list[str] = []

    async def handle(body: str) -> None:
        await clock.sleep(1)
        runs.append(body)
        if len(runs) == 1:
            raise ValueError

    app.subscriber("q", retry=1)(around(handle))
    async with app.running(account) as running:
        await clock.advance(20)
    assert runs == ["one", "one"]
    assert deleted(account) == ["one"]
    at_rest(clock, running)


def test_what_can_not_work_is_refused_when_it_is_declared() -> None:
    async def yields(body: str) -> AsyncIterator[int]:
        yield 1

    def also_yields(body: str) -> Any:
        yield 1

    for function in (yields, also_yields):
        with pytest.raises(UsageError, match="yields, so calling it runs nothing"):
            App().subscriber("q")(function)
    for rule in ("x", -1, None, float("nan"), timedelta(seconds=-1), True, 50_000, Retry):
        with pytest.raises(UsageError, match="retry is a RetryPolicy"):
            check_delay_rule(rule)
    wrong: list[dict[str, Any]] = [{"timeout": "x"}, {"timeout": float("nan")}, {"retry": "x"}]
    for options in wrong:
        with pytest.raises(UsageError, match=next(iter(options))):
            App().subscriber("q", **options)(print)
    for again in ("q", URL, "arn:aws:sqs:us-east-1:000000000000:q"):
        app = App()
        app.subscriber("q")(lambda body: None)
        with pytest.raises(UsageError, match="has a subscriber already"):
            app.subscriber(again)
    app = App()
    declare = app.subscriber("q")
    declare(lambda body: None)
    with pytest.raises(UsageError, match="has a subscriber already"):
        declare(lambda body: None)
    with pytest.raises(UsageError, match="its own dead-letter queue"):
        App().subscriber("q", max_attempts=3, dead_letter=URL)(lambda body: None)
    # one name in two regions is two queues
    app = App()
    app.subscriber(URL)(lambda body: None)
    app.subscriber(URL.replace("us-east-1", "eu-west-1"))(lambda body: None)


@pytest.mark.parametrize("concurrency", [1, 10])
async def test_a_batch_that_gathers_at_a_stop_is_given_back(
    account: Account, clock: VirtualClock, concurrency: int
) -> None:
    """And while it gathers, idle workers don't wake each other."""
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    for number in range(3):
        await send(account, url, str(number))
    app = App()

    @app.subscriber("q", batch=100, batch_window=200, concurrency=concurrency)
    async def handle(bodies: list[str]) -> None: ...

    async with app.running(account) as running:
        await clock.advance(10)
        assert account.queue("q").in_flight == 3
    assert account.queue("q").visible == 3
    at_rest(clock, running)


async def test_what_ran_behind_a_spent_message_is_given_back_at_a_stop(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="3600")
    dead = await make_queue(account, "dead.fifo")
    for number in range(4):
        await send(account, url, str(number), group="A")
    app = App(drain_seconds=10)

    @app.subscriber("q.fifo", batch=10, max_attempts=1, dead_letter="dead.fifo")
    async def handle(bodies: list[str]) -> Any:
        await clock.sleep(5)
        return [None, Retry(), None, None]

    async with app.running(account) as running:
        await clock.advance(1)
        began = clock.monotonic()
    assert clock.monotonic() - began < 5
    assert deleted(account) == ["0", "1"]
    assert [each.body for each in await receive(account, dead)] == ["1"]
    assert account.queue("q.fifo").visible == 2
    at_rest(clock, running)


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "throttle"])
@pytest.mark.parametrize("times", [1, 3, 8])
async def test_a_spent_head_is_carried_once_through_any_trouble(
    account: Account, clock: VirtualClock, fault: str, times: int
) -> None:
    url = await make_queue(account, "q.fifo")
    dead = await make_queue(account, "dead.fifo")
    for number in range(4):
        await send(account, url, str(number), group="A")
    getattr(account.faults, fault)(SendMessage, times=times)
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", max_attempts=2, retry=1, dead_letter="dead.fifo")
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "1":
            raise ValueError

    async with app.running(account) as running:
        await clock.advance(300)
    assert runs == ["0", "1", "1", "2", "3"]  # spent is spent, also when it is carried later
    assert [each.body for each in await receive(account, dead)] == ["1"]
    assert sorted(deleted(account)) == list("0123")
    at_rest(clock, running)


async def test_what_was_carried_while_its_lease_was_lost_is_not_run_again(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="5")
    dead = await make_queue(account, "dead.fifo")
    await send(account, url, "one", group="A")
    account.faults.throttle(ChangeMessageVisibilityBatch, times=100)
    account.faults.delay(SendMessage, 20)
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", max_attempts=1, dead_letter="dead.fifo")
    async def handle(body: str) -> None:
        runs.append(body)
        raise ValueError

    async with app.running(account) as running:
        await clock.advance(300)
    assert runs == ["one"]
    assert [each.body for each in await receive(account, dead)] == ["one"]
    assert account.queue("q.fifo").visible == account.queue("q.fifo").in_flight == 0
    at_rest(clock, running)


async def test_a_message_handled_with_its_lease_lost_is_not_run_again_here(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="10")
    await send(account, url, "one", group="A")
    account.faults.throttle(ChangeMessageVisibilityBatch, times=100)
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", on_lease_lost="flag")
    async def handle(body: str) -> None:
        runs.append(body)
        await clock.sleep(15)

    async with app.running(account) as running:
        await clock.advance(100)
    assert runs == ["one"]
    assert receives(account) == {"one": 2}
    assert account.queue("q.fifo").visible == account.queue("q.fifo").in_flight == 0
    at_rest(clock, running)


async def test_a_head_whose_delete_never_succeeds_does_not_run_behind_its_followers(
    account: Account, clock: VirtualClock
) -> None:
    """Followers start when the head's handler is done; the head comes again, and is deleted."""
    url = await make_queue(account, "q.fifo", VisibilityTimeout="10")
    for body in ("A1", "A2", "A3"):
        await send(account, url, body, group="A")
    account.faults.throttle(ChangeMessageVisibilityBatch, times=None)
    account.faults.fail_entries(
        DeleteMessageBatch, [0], code="InternalError", sender_fault=False, times=60
    )
    app = App()
    runs: list[str] = []

    @app.subscriber(Queue("q.fifo", wait_time_seconds=1))
    async def handle(body: str) -> None:
        runs.append(body)

    async with app.running(account) as running:
        await clock.advance(300)
        assert account.queue("q.fifo").visible == account.queue("q.fifo").in_flight == 0
    assert runs == ["A1", "A2", "A3"]
    assert receives(account)["A1"] > 1
    at_rest(clock, running)


async def test_what_several_lost_receives_would_have_brought_comes_at_once(
    account: Account, clock: VirtualClock
) -> None:
    """FIFO: each is asked for again under its own attempt id, not after its lease."""
    url = await make_queue(account, "q.fifo", VisibilityTimeout="600")
    await send(account, url, "long", group="L")
    app = App()
    runs: list[str] = []

    @app.subscriber(Queue("q.fifo", prefetch=0), concurrency=6)
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "long":
            await clock.sleep(100)

    async with app.running(account) as running:
        await clock.advance(1)
        account.faults.lose_answer(ReceiveMessage, times=3)
        for group in "ABC":
            await send(account, url, group, group=group)
            await clock.advance(0.1)
        await clock.advance(20)
        assert sorted(runs) == ["A", "B", "C", "long"]
        await clock.advance(100)
    at_rest(clock, running)


async def test_workers_of_a_lower_queue_that_has_to_wait_are_idle(
    account: Account, clock: VirtualClock
) -> None:
    """They don't wake each other for messages that may not start yet: time could never pass."""
    high, low = await make_queue(account, "high"), await make_queue(account, "low")
    app = App()
    runs: list[str] = []

    @app.subscriber("high", concurrency=1, priority=1)
    async def first(body: str) -> None:
        await clock.sleep(10)
        runs.append(body)

    @app.subscriber("low", concurrency=10, priority=2)
    async def second(body: str) -> None:
        await clock.sleep(1)
        runs.append(body)

    async with app.running(account) as running:
        for number in range(30):
            await send(account, low, f"low {number}")
        await clock.advance(0.5)
        for number in range(3):
            await send(account, high, f"high {number}")
        await clock.advance(60)
    assert len(runs) == 33
    assert runs.index("high 1") < runs.index("low 29")  # nothing of it while one waited here
    at_rest(clock, running)


async def test_ten_thousand_handlers_at_once(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    for number in range(2_000):
        await send(account, url, str(number))
    app = App()
    running_now: set[str] = set()
    most = 0

    @app.subscriber("q", concurrency=10_000)
    async def handle(body: str) -> None:
        nonlocal most
        running_now.add(body)
        most = max(most, len(running_now))
        await clock.sleep(50)
        running_now.discard(body)

    async with app.running(account) as running:
        await clock.advance(100)
    assert most == len(deleted(account)) == 2_000
    at_rest(clock, running)


class NoClock:
    """An account that does not say that its time is virtual."""

    cancel_is_exact = True

    def __init__(self, account: Account) -> None:
        self.execute = account.execute

    async def aclose(self) -> None: ...


async def test_a_start_that_hangs_can_be_cancelled(account: Account) -> None:
    await make_queue(account, "q")

    @asynccontextmanager
    async def hangs(app: App) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            steps.append("left")

    steps: list[str] = []
    app = App(lifespan=hangs)

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async def service() -> None:
        async with app.running(NoClock(account)):
            pass

    task = asyncio.create_task(service())
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert steps == ["left"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_two_signals_break_off_a_start(account: Account) -> None:
    await make_queue(account, "q")
    starting = asyncio.Event()

    @asynccontextmanager
    async def hangs(app: App) -> AsyncIterator[None]:
        starting.set()
        await asyncio.Event().wait()
        yield

    app = App(lifespan=hangs)

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    task = asyncio.create_task(app.serve(NoClock(account)))
    await starting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert await task == 128 + signal.SIGINT


async def test_the_same_signal_twice_at_once_is_one() -> None:
    stops: list[float] = []
    with Signals(lambda: stops.append(1)) as signals:
        for number in (signal.SIGTERM, signal.SIGTERM):  # as `timeout` does to a process
            os.kill(os.getpid(), number)
        await asyncio.sleep(0)
        assert (len(stops), signals.exit_code) == (1, 0)
        signals._came[signal.SIGTERM] -= AT_ONCE_SECONDS
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        assert (len(stops), signals.exit_code) == (2, 128 + signal.SIGTERM)


async def test_a_lifespan_may_take_real_time_in_process() -> None:
    @asynccontextmanager
    async def connects(app: App) -> AsyncIterator[None]:
        await asyncio.to_thread(lambda: __import__("time").sleep(0.1))
        yield

    app = App(lifespan=connects)

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.in_process() as account:
        await account.send("q", "one")
        await account.settle()
    assert [call.payload for call in handle.calls] == ["one"]


async def test_one_signal_drains_every_app_of_the_process(
    account: Account, clock: VirtualClock
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    apps = [App("one"), App("two")]
    for app in apps:
        await make_queue(account, app.name)

        @app.subscriber(app.name)
        async def handle(body: str) -> None: ...

    async def both() -> list[int]:
        return await asyncio.gather(*(app.serve(account) for app in apps))

    task = asyncio.create_task(both())
    await clock.advance(1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == [0, 0]
    assert signal.getsignal(signal.SIGTERM) is before
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_loop_that_is_closed_gives_everything_back(
    account: Account, clock: VirtualClock
) -> None:
    """As `asyncio.run` does at its end: every task is cancelled, the app's own included."""
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    for number in range(3):
        await send(account, url, str(number))
    app = App()

    @app.subscriber("q", concurrency=1)
    async def handle(body: str) -> None:
        await clock.sleep(1_000)

    async def service() -> None:
        async with app.running(account) as running:
            apps.append(running)
            await running.stopped()

    apps: list[Running] = []
    task = asyncio.create_task(service())
    await clock.advance(2)
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        each.cancel()
    await clock.advance(10)
    assert task.cancelled()
    assert account.queue("q").visible == 3
    at_rest(clock, apps[0])


async def test_what_escapes_all_judgement_still_gives_back_its_slot_and_its_message(
    account: Account, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `KeyboardInterrupt` does, which is meant for the program and goes on to it."""
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    await send(account, url, "one")
    app = App()
    run, times = Runner.run, 0

    async def interrupted(self: Runner, delivery: Any) -> Any:
        nonlocal times
        times += 1
        if times == 1:
            raise Odd
        return await run(self, delivery)

    monkeypatch.setattr(Runner, "run", interrupted)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    @app.subscriber("q", concurrency=1)
    async def handle(body: str) -> None: ...

    async with app.running(account) as running:
        await clock.advance(1)
    assert times == 2
    assert receives(account) == {"one": 2}
    assert deleted(account) == ["one"]
    at_rest(clock, running)
