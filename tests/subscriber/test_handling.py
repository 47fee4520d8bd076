"""Handlers: payloads, batches, partition keys, priorities, replies, middleware, in-process runs."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pydantic
import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.model import Message
from pumphouse.subscriber.outcomes import (
    Ack,
    Drop,
    Reject,
    Reply,
    Retry,
    Settle,
    outcome_of_error,
)
from pumphouse.subscriber.queue import Queue
from support.service import Gauge, deleted, make_queue, receives, send


class Struct(msgspec.Struct):
    id: int


class Model(pydantic.BaseModel):
    id: int


@dataclasses.dataclass
class Data:
    id: int


@pydantic.dataclasses.dataclass
class PydanticData:
    id: int


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (bytes, b'{"id":7}'),
        (str, '{"id":7}'),
        (dict, {"id": 7}),
        (dict[str, int], {"id": 7}),
        (Any, {"id": 7}),
        (Struct, Struct(7)),
        (Model, Model(id=7)),
        (Data, Data(7)),
        (PydanticData, PydanticData(7)),
    ],
)
async def test_the_payload_is_what_the_annotation_says(kind: Any, expected: object) -> None:
    app = App()

    async def handle(payload, message: Message) -> None:  # type: ignore[no-untyped-def]
        assert message.text == '{"id":7}'

    handle.__annotations__["payload"] = kind
    handler = app.subscriber("q")(handle)
    async with app.in_process() as account:
        await account.send("q", {"id": 7})
        await account.settle()
    assert [call.payload for call in handler.calls] == [expected]


async def test_in_process_calls_sent_and_faults() -> None:
    app = App()

    @app.subscriber("orders.fifo", max_attempts=2, dead_letter="dead.fifo", publish="replies")
    async def handle(body: str, message: Message) -> dict[str, str]:
        if body == "bad":
            raise ValueError("bad")
        return {"done": body}

    async with app.in_process() as account:
        account.faults.throttle("SendMessageBatch", times=1)
        account.faults.lose_answer("DeleteMessageBatch", times=1)
        await account.send("orders.fifo", "one", group_id="A", headers={"h": "1"})
        await account.send("orders.fifo", "bad", group_id="A")
        await account.send("orders.fifo", "two", group_id="A", headers={"h": b"2"})
        await account.settle()
        assert [sent.body for sent in account.sent("replies")] == [
            '{"done":"one"}',
            '{"done":"two"}',
        ]
        assert [sent.body for sent in account.sent("dead.fifo")] == ["bad"]
    assert [(call.payload, call.message.attempt) for call in handle.calls] == [
        ("one", 1),
        ("bad", 1),
        ("bad", 2),
        ("two", 1),
    ]
    assert [call.message.headers for call in handle.calls[::3]] == [{"h": "1"}, {"h": b"2"}]
    assert isinstance(handle.calls[1].result, ValueError)


async def test_settle_says_what_does_not_come_to_rest() -> None:
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None:
        raise RuntimeError("always, and no dead-letter queue")

    async with app.in_process() as account:
        await account.send("q", "one")
        with pytest.raises(TimeoutError, match=r"q has 1 messages .*RuntimeError: always, and no"):
            await account.settle(limit_seconds=600)


async def test_a_reply_on_fifo_is_not_doubled(account: Account, clock: VirtualClock) -> None:
    """The handler runs twice, as the delete is refused; the reply is stored once."""
    url = await make_queue(account, "q.fifo", VisibilityTimeout="10")
    await make_queue(account, "out.fifo")
    await send(account, url, "one", group="A")
    account.faults.refuse("DeleteMessageBatch", "AccessDenied", times=None)
    runs = 0
    for _ in range(2):  # another process, that does not remember
        app = App(drain_seconds=0)

        @app.subscriber("q.fifo", publish="out.fifo")
        async def handle(body: str) -> Reply:
            nonlocal runs
            runs += 1
            return Reply({"n": body}, headers={"k": "v"})

        async with app.running(account):
            await clock.advance(5)
        await clock.advance(60)
    assert runs == 2
    (sent,) = account.sent("out.fifo")
    assert (sent.group_id, sent.attributes["k"].string_value) == ("A", "v")


async def test_a_reply_that_can_not_be_published_is_a_failed_attempt(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "out")
    await send(account, url, "one")
    account.faults.refuse("SendMessageBatch", "AccessDenied", times=None)
    account.faults.refuse("SendMessage", "AccessDenied", times=None)
    app = App()

    @app.subscriber("q", publish="out", retry=500)
    async def handle(body: str) -> str:
        return body

    async with app.running(account) as running:
        await clock.advance(100)
        assert running.consumers[0].stats.retried == 1
    assert not deleted(account)


async def test_exceptions_map_to_outcomes(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    for kind in ("KeyError", "ValueError", "OSError", "RuntimeError"):
        await send(account, url, kind)
    app = App()

    @app.subscriber(
        "q",
        max_attempts=5,
        dead_letter="dead",
        retry=300,
        on_error={LookupError: Drop, ValueError: Reject, OSError: Retry(after=100)},
    )
    async def handle(body: str) -> None:
        raise {e.__name__: e for e in (KeyError, ValueError, OSError, RuntimeError)}[body]("x")

    async with app.running(account) as running:
        await clock.advance(10)
        stats = running.consumers[0].stats
        assert (stats.dropped, stats.rejected, stats.retried) == (1, 1, 2)
    assert [sent.body for sent in account.sent("dead")] == ["ValueError"]
    await clock.advance(95)
    assert account.queue("q").visible == 0 or account.queue("q").visible == 1


def _group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


class Shipwreck(ExceptionGroup[Exception]):
    pass


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (_group(KeyError("a")), Drop),
        (_group(KeyError("a"), _group(IndexError("b"), KeyError("c"))), Drop),
        (_group(ValueError("a"), Settle(Reject("b"))), Retry),
        (_group(Settle(Reject("b"))), Reject),
        (_group(KeyError("a"), ValueError("b")), Retry),
        (_group(KeyError("a"), RuntimeError("nobody's")), Retry),
        (Shipwreck("by its own class", [KeyError("a")]), Reject),
    ],
)
def test_a_group_means_what_all_in_it_means(error: Exception, outcome: type) -> None:
    policy = {LookupError: Drop, ValueError: Reject, Shipwreck: Reject}
    found = outcome_of_error(error, policy)
    assert type(found) is outcome
    if not isinstance(found, Ack) and outcome is Drop:
        assert "KeyError: 'a'" in found.reason


def test_a_rule_for_all_exceptions_is_one_for_groups_and_a_function_is_asked_about_the_group() -> (
    None
):
    error = _group(KeyError("a"), ValueError("b"))
    assert type(outcome_of_error(error, {Exception: Drop})) is Drop
    assert type(outcome_of_error(error, {Exception: Drop, ValueError: Reject})) is Retry
    assert type(outcome_of_error(error, {ExceptionGroup: Drop, ValueError: Reject})) is Drop
    asked: list[BaseException] = []

    def ask(error: BaseException) -> type[Drop]:
        asked.append(error)
        return Drop

    assert type(outcome_of_error(error, ask)) is Drop
    assert asked == [error]


async def test_an_error_in_a_task_group_of_a_handler_finds_its_rule(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    await send(account, url, "a")
    app = App()

    @app.subscriber("q", on_error={ValueError: Drop})
    async def handle(body: str) -> None:
        async def fail() -> None:
            raise ValueError(body)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            tasks.create_task(clock.sleep(60))

    async with app.running(account) as running:
        await clock.advance(10)
        assert running.consumers[0].stats.dropped == 1


async def test_one_receive_is_one_batch_with_an_outcome_each(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    for number in range(10):
        await send(account, url, str(number))
    app = App()
    batches: list[list[str]] = []

    @app.subscriber("q", batch=10, max_attempts=3, dead_letter="dead", retry=100)
    async def handle(bodies: list[str], messages: list[Message]) -> list[Any]:
        assert [message.text for message in messages] == bodies
        batches.append(bodies)
        return [
            {"1": Retry(after=50), "2": Reject("no"), "3": Drop()}.get(body, Ack())
            for body in bodies
        ]

    async with app.running(account):
        await clock.advance(10)
    assert batches == [[str(number) for number in range(10)]]
    assert sorted(deleted(account)) == ["0", "2", "3", "4", "5", "6", "7", "8", "9"]
    assert [sent.body for sent in account.sent("dead")] == ["2"]


async def test_larger_batches_gather_by_size_and_by_time(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="4")
    app = App()
    batches: list[tuple[float, int]] = []

    @app.subscriber("q", batch=25, batch_window=10, concurrency=1)
    async def handle(bodies: list[str]) -> None:
        batches.append((round(clock.monotonic(), 1), len(bodies)))

    async with app.running(account):
        for number in range(30):
            await send(account, url, str(number))
        await clock.advance(30)
    assert [size for _, size in batches] == [25, 5]
    assert batches[0][0] < 1
    assert 9.9 <= batches[1][0] <= 10.1  # longer than two leases: they cover the wait
    assert set(receives(account).values()) == {1}


async def test_a_batch_on_fifo_goes_on_at_the_message_that_failed(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    for body in ("A1", "A2", "B1", "A3", "B2"):
        await send(account, url, body, group=body[0])
    app = App()
    batches: list[list[str]] = []

    @app.subscriber("q.fifo", batch=10, retry=5)
    async def handle(bodies: list[str]) -> list[Any]:
        batches.append(bodies)
        first = len(batches) == 1
        return [Retry() if body == "A2" and first else None for body in bodies]

    async with app.running(account):
        await clock.advance(4)
        assert sorted(deleted(account)) == ["A1", "B1", "B2"]
        await clock.advance(10)
    assert sorted(batches[0]) == ["A1", "A2", "A3", "B1", "B2"]
    assert batches[1] == ["A2", "A3"]
    assert deleted(account)[-2:] == ["A2", "A3"]


async def test_an_undecodable_message_of_a_batch_hurts_nobody_else(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for body in ('{"id":1}', "nonsense", '{"id":3}'):
        await send(account, url, body)
    app = App()
    seen: list[int] = []

    @app.subscriber("q", batch=10, retry=500)
    async def handle(items: list[Struct]) -> None:
        seen.extend(item.id for item in items)

    async with app.running(account):
        await clock.advance(5)
    assert seen == [1, 3]
    assert sorted(deleted(account)) == ['{"id":1}', '{"id":3}']


async def test_a_batch_handler_that_returns_nonsense_loses_nothing(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for number in range(3):
        await send(account, url, str(number))
    app = App()

    @app.subscriber("q", batch=10, retry=500)
    async def handle(bodies: list[str]) -> list[Any]:
        return [Ack()]

    async with app.running(account):
        await clock.advance(5)
    assert not deleted(account)


async def test_partition_keys_order_a_standard_queue_in_process(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for number in range(12):
        await send(account, url, f"{'ABC'[number % 3]}{number // 3}")
    app = App()
    runs: dict[str, list[str]] = {}
    gauge = Gauge()

    @app.subscriber("q", concurrency=8, partition_key=lambda body: body[0], retry=3)
    async def handle(body: str) -> None:
        gauge.enter(body[0])
        await clock.sleep(1)
        gauge.leave(body[0])
        runs.setdefault(body[0], []).append(body)
        if body == "B1" and runs["B"].count("B1") == 1:
            raise RuntimeError("once")

    async with app.running(account):
        await clock.advance(30)
    assert runs["A"] == ["A0", "A1", "A2", "A3"]
    assert runs["B"] == ["B0", "B1", "B1", "B2", "B3"]
    assert gauge.most_in_all == 3
    assert set(gauge.most.values()) == {1}


async def test_a_lower_queue_starts_nothing_while_a_higher_one_has_something(
    account: Account, clock: VirtualClock
) -> None:
    high, low = await make_queue(account, "high"), await make_queue(account, "low")
    for number in range(20):
        await send(account, low, f"low {number}")
        await send(account, high, f"high {number}")
    app = App()
    runs: list[str] = []

    @app.subscriber("high", concurrency=2, priority=0)
    async def first(body: str) -> None:
        runs.append(body)
        await clock.sleep(1)

    @app.subscriber("low", concurrency=2, priority=1)
    async def second(body: str) -> None:
        runs.append(body)
        await clock.sleep(1)

    async with app.running(account):
        await clock.advance(12)
        assert [body[0] for body in runs[:20]] == ["h"] * 20
        assert "low 0" in runs  # and it did not wait for the end of a long poll
        before = len(runs)
        for number in range(20, 24):
            await send(account, high, f"high {number}")
        await clock.advance(3)
        assert [body[:4] for body in runs[before : before + 4]] == ["high"] * 4
        await clock.advance(30)
    assert len(runs) == 44


async def test_a_lower_queue_goes_on_when_the_last_of_the_higher_one_has_started(
    account: Account, clock: VirtualClock
) -> None:
    """The higher queue is known to be empty while its last message still waits for a handler."""
    high, low = await make_queue(account, "high"), await make_queue(account, "low")
    for number in range(2):
        await send(account, high, f"high {number}")
    await send(account, low, "low")
    app = App()
    started: dict[str, float] = {}

    @app.subscriber("high", concurrency=1, priority=0)
    async def first(body: str) -> None:
        started[body] = clock.monotonic()
        await clock.sleep(5)

    @app.subscriber("low", concurrency=1, priority=1)
    async def second(body: str) -> None:
        started[body] = clock.monotonic()

    async with app.running(account):
        await clock.advance(60)
    assert started["high 1"] == 5
    assert 5 <= started["low"] < 6


async def test_context_variables_do_not_leak_from_message_to_message(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for number in range(50):
        await send(account, url, str(number))
    app = App()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen: list[str] = []

    @app.subscriber("q", concurrency=3)
    async def handle(body: str) -> None:
        seen.append(variable.get())
        if int(body) % 2:
            variable.set(body)
            await clock.sleep(0.1)

    async with app.running(account):
        await clock.advance(20)
    assert seen == ["clean"] * 50


async def test_a_timeout_is_a_failed_attempt(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    await send(account, url, "slow")
    app = App()

    @app.subscriber("q", timeout=5, retry=1, max_attempts=2, dead_letter="dead")
    async def handle(body: str) -> None:
        await clock.sleep(100)

    async with app.running(account):
        await clock.advance(60)
    (dead,) = account.sent("dead")
    assert dead.attributes["pumphouse.reason"].string_value == (
        "TimeoutError: the handler took longer than 5 s"
    )


async def test_lifespans_are_entered_before_the_first_receive_and_left_last() -> None:
    app = App()
    steps: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def resources(app: App):  # type: ignore[no-untyped-def]
        steps.append("open")
        yield
        steps.append("close")

    @app.subscriber("q")
    async def handle(body: str) -> None:
        steps.append(body)

    async with app.in_process() as account:
        await account.send("q", "message")
        await account.settle()
    assert steps == ["open", "message", "close"]


async def test_a_plain_function_that_is_slow_keeps_its_lease(account: Account) -> None:
    """Its thread takes real time; here it only has to be waited for."""
    import threading

    app = App()
    threads: set[str] = set()

    @app.subscriber("q", concurrency=4)
    def handle(body: str, message: Message) -> None:
        threads.add(threading.current_thread().name)
        threading.Event().wait(0.02)

    async with app.in_process() as running:
        for number in range(12):
            await running.send("q", str(number))
        await running.settle()
        assert not running.queue("q").in_flight
    assert len(handle.calls) == 12
    assert 1 <= len(threads) <= 4
    assert threading.current_thread().name not in threads


async def test_no_task_is_left(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    for number in range(25):
        await send(account, url, str(number))
    app = App(drain_seconds=0)

    @app.subscriber("q", concurrency=7)
    async def handle(body: str) -> None:
        await clock.sleep(int(body))

    async with app.running(account):
        await clock.advance(3)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert account.queue("q").in_flight == 0


async def test_large_queues_are_polled_several_at_once_and_empty_ones_by_one(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for number in range(300):
        await send(account, url, str(number))
    app = App()
    handled: list[str] = []

    @app.subscriber(Queue("q"), concurrency=100)
    async def handle(body: str) -> None:
        handled.append(body)
        await clock.sleep(1)

    async with app.running(account) as running:
        await clock.advance(0.5)
        assert len(running.consumers[0].exits.at_work) == 100
        assert len(running.consumers[0].exits.live) <= 110
        await clock.advance(10)
        assert running.consumers[0].pump.open_receives == 1
    assert len(handled) == 300
