"""Middleware around handlers, from the outside: order, outcomes, short cuts, errors, batches."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from typing import Any

import pytest

from pumphouse import Ack, App, Drop, Message, Queue, Reject, Reply, Retry, UsageError
from pumphouse.account import Account
from pumphouse.middleware import CallNext, CallNextBatch, Surroundings, TimeLimit
from pumphouse.subscriber.events import Handled
from pumphouse.subscriber.outcomes import Settle
from support.service import make_queue, send


def noting(seen: list[str], name: str) -> Any:
    async def middleware(message: Message, call_next: CallNext) -> Any:
        seen.append(f"{name} in")
        outcome = await call_next(message)
        seen.append(f"{name} out: {outcome}")
        return outcome

    return middleware


def failing_once(seen: list[str]) -> Any:
    async def handle(text: str, message: Message) -> None:
        seen.append(f"attempt {message.attempt}")
        if message.attempt == 1:
            raise LookupError(text)

    return handle


def outcomes_of(app: App) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    app.hooks.on(Handled, lambda event: found.append((event.outcome, event.reason)))
    return found


async def run(app: App, *bodies: object, queue: str = "q", **more: Any) -> Any:
    async with app.in_process() as account:
        for body in bodies:
            await account.send(queue, body, **more)
        await account.settle()
        return account


# --- order and outcomes -------------------------------------------------------------------------


async def test_the_first_middleware_is_outermost_and_sees_the_outcome() -> None:
    seen: list[str] = []
    app = App(middleware=[noting(seen, "app 1"), noting(seen, "app 2")])

    @app.subscriber("q", middleware=[noting(seen, "own")])
    async def handle(text: str) -> None:
        seen.append("handler")

    await run(app, "x")
    assert seen == [
        "app 1 in",
        "app 2 in",
        "own in",
        "handler",
        "own out: Ack()",
        "app 2 out: Ack()",
        "app 1 out: Ack()",
    ]


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [(Drop("away"), ("drop", "away")), (Drop, ("drop", "")), (Ack(), ("ack", ""))],
)
async def test_a_middleware_makes_another_outcome(returned: Any, outcome: Any) -> None:
    async def middleware(message: Message, call_next: CallNext) -> Any:
        assert await call_next(message) == Retry(after=1)
        return returned

    app = App(middleware=[middleware])

    @app.subscriber("q")
    async def handle(text: str) -> Retry:
        return Retry(after=1)

    found = outcomes_of(app)
    await run(app, "x")
    assert found == [outcome]
    assert len(handle.calls) == 1


async def test_a_short_cut_does_not_call_the_handler() -> None:
    async def middleware(message: Message, call_next: CallNext) -> Any:
        return Drop("too old") if message.text == "old" else await call_next(message)

    app = App(middleware=[middleware])

    @app.subscriber("q")
    async def handle(text: str) -> None: ...

    found = outcomes_of(app)
    await run(app, "old", "new")
    assert [call.payload for call in handle.calls] == ["new"]
    assert sorted(found) == [("ack", ""), ("drop", "too old")]


async def test_an_error_passes_through_and_can_be_answered() -> None:
    seen: list[str] = []

    async def outer(message: Message, call_next: CallNext) -> Any:
        try:
            return await call_next(message)
        except LookupError as error:
            seen.append(f"outer: {error!r}")
            return Reject(f"no {error}")

    async def inner(message: Message, call_next: CallNext) -> Any:
        try:
            return await call_next(message)
        finally:
            seen.append("inner ran after")

    app = App(middleware=[outer, inner])

    @app.subscriber("q", max_attempts=3, dead_letter=Queue("dead", create_if_missing=True))
    async def handle(text: str) -> None:
        raise LookupError(text)

    account = await run(app, "x")
    assert seen == ["inner ran after", "outer: LookupError('x')"]
    (dead,) = account.sent("dead")
    assert dead.attributes["pumphouse.reason"].string_value == "no x"


async def test_an_outcome_that_is_raised_is_an_outcome_for_the_middleware() -> None:
    seen: list[str] = []

    async def settling(message: Message, call_next: CallNext) -> Any:
        await call_next(message)
        raise Settle(Drop("raised"))

    app = App(middleware=[noting(seen, "outer"), settling, noting(seen, "inner")])

    @app.subscriber("q")
    async def handle(text: str) -> None:
        raise Settle(Ack())

    found = outcomes_of(app)
    await run(app, "x")
    assert seen == [
        "outer in",
        "inner in",
        "inner out: Ack()",
        "outer out: Drop(reason='raised')",
    ]
    assert found == [("drop", "raised")]


async def test_an_outcome_that_is_raised_is_one_for_the_whole_batch() -> None:
    whole = Whole()
    app = App(middleware=[whole])

    @app.subscriber("q", batch=10, batch_window=1)
    async def handle(texts: list[str]) -> None:
        raise Settle(Drop("all"))

    await run(app, "a", "b")
    assert whole.seen == [(["a", "b"], [Drop("all"), Drop("all")])]


async def test_an_error_of_a_middleware_is_a_failed_attempt_and_on_error_judges_it() -> None:
    async def middleware(message: Message, call_next: CallNext) -> Any:
        raise PermissionError("not for us")

    app = App(middleware=[middleware])

    @app.subscriber("q", on_error={PermissionError: Drop})
    async def handle(text: str) -> None: ...

    found = outcomes_of(app)
    await run(app, "x")
    assert found == [("drop", "PermissionError: not for us")]
    assert not handle.calls


async def test_one_that_returns_nothing_changes_nothing() -> None:
    """A forgotten `return` loses no message."""
    errors: list[str] = []

    async def forgetful(message: Message, call_next: CallNext) -> None:
        await call_next(message)

    async def swallowing(message: Message, call_next: CallNext) -> None:
        try:
            await call_next(message)
        except LookupError as error:
            errors.append(str(error))

    seen: list[str] = []
    app = App(middleware=[swallowing, forgetful])
    app.subscriber("q", retry=5)(failing_once(seen))
    found = outcomes_of(app)
    await run(app, "x")
    assert seen == ["attempt 1", "attempt 2"]
    assert found == [("retry", "LookupError: x"), ("ack", "")]
    assert errors == ["x"]


@pytest.mark.parametrize("awaits", [False, True])
async def test_one_that_neither_calls_on_nor_decides_is_an_error(
    awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def mute(message: Message, call_next: CallNext) -> None:
        if awaits:
            call_next(message).close()  # type: ignore[attr-defined]

    app = App(middleware=[mute])

    @app.subscriber("q", max_attempts=1, dead_letter=Queue("dead", create_if_missing=True))
    async def handle(text: str) -> None: ...

    account = await run(app, "x")
    (dead,) = account.sent("dead")
    reason = dead.attributes["pumphouse.reason"].string_value
    did = "did not await call_next" if awaits else "did not call call_next"
    assert f"mute {did} and returned nothing" in reason


@pytest.mark.parametrize("how", ["a coroutine", "a task", "a value", "before", "after"])
async def test_one_that_does_not_wait_for_the_handler_loses_nothing(how: str) -> None:
    running: set[Any] = set()

    async def careless(message: Message, call_next: CallNext) -> Any:
        if how == "a coroutine":
            return call_next(message)  # `await` is forgotten
        if how == "a value":
            await call_next(message)
            return True
        task = asyncio.ensure_future(call_next(message))
        running.add(task)
        if how == "a task":
            return task
        if how == "after":
            await asyncio.sleep(0)  # it has begun
        return Ack()

    app = App(middleware=[careless])
    at_work = most = 0

    @app.subscriber("q", retry=1, max_attempts=3, dead_letter="dead")
    async def handle(text: str) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        try:
            await app.clock.sleep(30)
        finally:
            at_work -= 1

    account = await run(app, "x")
    (dead,) = account.sent("dead")
    reason = dead.attributes["pumphouse.reason"].string_value
    if how == "a value":
        assert "a middleware returned True, which is no outcome" in reason
    elif how == "a coroutine":
        assert "careless did not await call_next" in reason
    else:
        assert "careless did not await call_next" in reason
        await asyncio.wait(running)
        for task in running:
            assert task.cancelled() or "call_next is too late" in str(task.exception())
    assert (at_work, most) == (0, 1 if how in ("a value", "after") else 0)


async def test_call_next_is_called_once() -> None:
    async def twice(message: Message, call_next: CallNext) -> Any:
        await call_next(message)
        return await call_next(message)

    app = App(middleware=[twice])

    @app.subscriber("q", max_attempts=1, dead_letter=Queue("dead", create_if_missing=True))
    async def handle(text: str) -> None: ...

    account = await run(app, "x")
    assert len(handle.calls) == 1
    (dead,) = account.sent("dead")
    reason = dead.attributes["pumphouse.reason"].string_value
    assert "twice called call_next twice" in reason
    assert "Retry()" in reason


async def test_a_reply_is_stored_before_a_middleware_hears_of_it() -> None:
    seen: list[object] = []
    app = App()

    async def middleware(message: Message, call_next: CallNext) -> Any:
        try:
            outcome = await call_next(message)
        except Exception as error:
            seen.append(type(error).__name__)
            raise
        seen.append((outcome, [sent.body for sent in account.sent("replies")]))
        return outcome

    app = App(middleware=[middleware])

    @app.subscriber("q", publish="replies", retry=1)
    async def handle(text: str) -> str:
        return text.upper()

    async with app.in_process() as account:
        account.faults.refuse("SendMessageBatch", "AccessDenied", times=1)
        await account.send("q", "x")
        await account.settle()
    assert seen[0] != (Ack(), ["X"])  # the refused one is an error here
    assert seen[-1] == (Ack(), ["X"])
    assert len(seen) == 2


async def test_a_middleware_answers_for_the_handler() -> None:
    async def cached(message: Message, call_next: CallNext) -> Any:
        return Reply({"cached": message.text})

    app = App(middleware=[cached])

    @app.subscriber("q", publish="replies")
    async def handle(text: str) -> str:
        return text

    account = await run(app, "x")
    assert [sent.body for sent in account.sent("replies")] == ['{"cached":"x"}']
    assert not handle.calls


async def test_the_handler_gets_the_body_and_the_message_that_is_passed_on() -> None:
    async def decrypt(message: Message, call_next: CallNext) -> Any:
        return await call_next(dataclasses.replace(message, body=message.body[::-1]))

    async def tag(message: Message, call_next: CallNext) -> Any:
        headers = {**message.headers, "seen-by": "tag"}
        return await call_next(dataclasses.replace(message, headers=headers))

    app = App(middleware=[decrypt, tag])
    got: list[object] = []

    @app.subscriber("q")
    async def handle(payload: dict[str, int], message: Message) -> None:
        got.append((payload, message.headers))

    await run(app, '{"a":1}'[::-1])
    assert got == [({"a": 1}, {"seen-by": "tag"})]


async def test_an_undecodable_body_is_an_error_that_a_middleware_sees() -> None:
    seen: list[str] = []

    async def middleware(message: Message, call_next: CallNext) -> Any:
        try:
            return await call_next(message)
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    app = App(middleware=[middleware])

    @app.subscriber("q", undecodable="drop")
    async def handle(payload: dict[str, int]) -> None: ...

    found = outcomes_of(app)
    await run(app, "no json")
    assert seen == ["UndecodableError"]
    assert [outcome for outcome, _ in found] == ["drop"]


# --- cancellation and time ----------------------------------------------------------------------


async def test_a_stop_cancels_through_the_middleware() -> None:
    seen: list[str] = []

    async def middleware(message: Message, call_next: CallNext) -> Any:
        try:
            return await call_next(message)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    app = App(middleware=[middleware], drain_seconds=0)

    @app.subscriber("q")
    async def handle(text: str) -> None:
        await asyncio.get_running_loop().create_future()

    found = outcomes_of(app)
    async with app.in_process() as account:
        await account.send("q", "x")
        await account.clock.advance(1)
    assert seen == ["cancelled"]
    assert found == [("stopped", "")]
    assert account._home.queues["q"].visible == 1  # given back at once


async def test_the_time_out_of_a_subscription_is_seen_by_its_middleware() -> None:
    seen: list[str] = []

    async def middleware(message: Message, call_next: CallNext) -> Any:
        try:
            return await call_next(message)
        except TimeoutError as error:
            seen.append(str(error))
            raise

    app = App(middleware=[middleware])

    @app.subscriber("q", timeout=2, on_error={TimeoutError: Drop})
    async def handle(text: str) -> None:
        await app.clock.sleep(60)

    await run(app, "x")
    assert seen == ["the handler took longer than 2 s"]


async def test_a_time_limit_is_a_failed_attempt_on_the_apps_clock() -> None:
    app = App(middleware=[TimeLimit(30)])
    times: list[float] = []

    @app.subscriber("q", retry=1)
    async def handle(text: str, message: Message) -> None:
        times.append(app.clock.monotonic())
        await app.clock.sleep(60 if message.attempt == 1 else 29)

    found = outcomes_of(app)
    await run(app, "x")
    assert found == [("retry", "TimeoutError: it took longer than 30 s"), ("ack", "")]
    assert times[1] - times[0] >= 31


async def test_a_handlers_own_time_out_is_not_taken_for_the_limit() -> None:
    app = App(middleware=[TimeLimit(30)])

    @app.subscriber("q", on_error={TimeoutError: Drop})
    async def handle(text: str) -> None:
        raise TimeoutError("the database is slow")

    found = outcomes_of(app)
    await run(app, "x")
    assert found == [("drop", "TimeoutError: the database is slow")]


async def test_a_plain_function_is_waited_for_past_its_limit_and_its_result_counts() -> None:
    """A thread can't be cancelled: what it did is done."""
    app = App(middleware=[TimeLimit(0.05)])

    @app.subscriber("q")
    def handle(text: str) -> None:
        time.sleep(0.2)

    found = outcomes_of(app)
    account = Account()  # on the real clock
    url = await make_queue(account, "q")
    async with app.running(account):
        await send(account, url, "x")
        async with asyncio.timeout(10):
            while not found:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert found == [("ack", "")]


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("nan")])
def test_a_time_limit_takes_seconds(seconds: Any) -> None:
    with pytest.raises(UsageError, match="TimeLimit takes seconds"):
        TimeLimit(seconds)


# --- batches ------------------------------------------------------------------------------------


class Whole:
    """A middleware for single messages and for batches."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def receive(self, message: Message, call_next: CallNext) -> Any:
        self.seen.append(message.text)
        return await call_next(message)

    async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> Any:
        outcomes = await call_next(messages)
        self.seen.append(([message.text for message in messages], outcomes))
        return outcomes


async def test_a_batch_goes_through_receive_batch_once() -> None:
    whole = Whole()
    app = App(middleware=[whole])

    @app.subscriber("q", batch=10, batch_window=1)
    async def handle(texts: list[str]) -> list[Any]:
        return [Ack() if text != "b" else Drop("b") for text in texts]

    await run(app, "a", "b", "c")
    assert whole.seen == [(["a", "b", "c"], [Ack(), Drop("b"), Ack()])]


async def test_a_middleware_passes_a_part_of_a_batch_on() -> None:
    class Filter:
        async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> Any:
            good = [message for message in messages if message.text != "b"]
            outcomes = iter(await call_next(good))
            return [Drop("b") if message.text == "b" else next(outcomes) for message in messages]

    app = App(middleware=[Filter()])

    @app.subscriber("q", batch=10, batch_window=1)
    async def handle(texts: list[str], messages: list[Message]) -> None:
        assert [message.text for message in messages] == texts == ["a", "c"]

    found = outcomes_of(app)
    await run(app, "a", "b", "c")
    assert found == [("ack", ""), ("drop", "b"), ("ack", "")]


async def test_batches_pass_on_other_bodies_and_undecodable_ones_fail_alone() -> None:
    class Reverse:
        async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> Any:
            return await call_next(
                [dataclasses.replace(each, body=each.body[::-1]) for each in messages]
            )

    app = App(middleware=[Reverse()])

    @app.subscriber("q", batch=10, batch_window=1, undecodable="drop")
    async def handle(payloads: list[dict[str, int]]) -> None: ...

    found = outcomes_of(app)
    await run(app, '{"a":1}'[::-1], '{"b":2}', '{"c":3}'[::-1])
    assert [call.payload for call in handle.calls] == [{"a": 1}, {"c": 3}]
    assert [outcome for outcome, _ in found] == ["ack", "drop", "ack"]


@pytest.mark.parametrize(
    "wrong",
    ["too few", "a stranger", "twice the same", "no list", "other values", "not awaited"],
    ids=lambda text: text,
)
async def test_what_a_batch_middleware_gets_wrong_is_said_and_nothing_is_lost(wrong: str) -> None:
    class Wrong:
        async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> Any:
            if wrong == "too few":
                return (await call_next(messages))[1:]
            if wrong == "a stranger":
                return await call_next([*messages, dataclasses.replace(messages[0], lease=None)])
            if wrong == "no list":
                return await call_next(messages[0])  # type: ignore[arg-type]
            if wrong == "other values":
                return [True for _ in await call_next(messages)]
            if wrong == "not awaited":
                return call_next(messages)
            return await call_next([messages[0]] * 2)

    app = App(middleware=[Wrong()])

    @app.subscriber(
        "q",
        batch=10,
        batch_window=1,
        max_attempts=1,
        dead_letter=Queue("dead", create_if_missing=True),
    )
    async def handle(texts: list[str]) -> None: ...

    account = await run(app, "a", "b")
    reasons = [sent.attributes["pumphouse.reason"].string_value for sent in account.sent("dead")]
    assert len(reasons) == 2
    assert all("UsageError" in reason for reason in reasons)
    said = {
        "too few": "a list of 2 outcomes",
        "other values": "a middleware returned True, which is no outcome",
        "not awaited": "did not await call_next",
    }.get(wrong, "call_next takes a list of messages")
    assert all(said in reason for reason in reasons)


async def test_a_time_limit_holds_for_a_batch() -> None:
    app = App(middleware=[TimeLimit(5)])

    @app.subscriber("q", batch=10, batch_window=1, on_error={TimeoutError: Drop})
    async def handle(texts: list[str]) -> None:
        await app.clock.sleep(60)

    found = outcomes_of(app)
    await run(app, "a", "b")
    assert found == [("drop", "TimeoutError: it took longer than 5 s")] * 2


# --- what is one --------------------------------------------------------------------------------


class Callable:
    async def __call__(self, message: Message, call_next: CallNext) -> Any:
        return await call_next(message)

    async def method(self, message: Message, call_next: CallNext) -> Any:
        return await call_next(message)

    async def with_more(self, more: str, message: Message, call_next: CallNext, **rest: Any) -> Any:
        assert more == "more"
        return await call_next(message)


async def test_functions_methods_callables_and_partials_are_middleware() -> None:
    it = Callable()
    app = App(middleware=[one, it, it.method, functools.partial(it.with_more, "more")])

    @app.subscriber("q")
    async def handle(text: str) -> None: ...

    found = outcomes_of(app)
    await run(app, "x")
    assert found == [("ack", "")]


# --- what is no middleware ----------------------------------------------------------------------


async def one(message: Message, call_next: CallNext) -> Any:
    return await call_next(message)


class OnlyPublish:
    async def publish(self, outgoing: Any, call_next: Any) -> Any:
        return await call_next(outgoing)


def test_a_handler_of_batches_refuses_what_would_be_left_out() -> None:
    """Nothing is skipped without a word."""
    app = App(middleware=[one])
    with pytest.raises(UsageError, match=r"subscriber of 'q'.*one takes single messages"):

        @app.subscriber("q", batch=5)
        async def handle(texts: list[str]) -> None: ...


async def test_a_publish_middleware_does_not_stand_in_the_way_of_batches() -> None:
    app = App(middleware=[OnlyPublish()])

    @app.subscriber("q", batch=5)
    async def handle(texts: list[str]) -> None: ...

    await run(app, "x")
    assert len(handle.calls) == 1


def plain(message: Message, call_next: CallNext) -> Any: ...


async def yields(message: Message, call_next: CallNext) -> Any:
    yield


async def alone(message: Message) -> Any: ...


class Nothing: ...


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (plain, "plain is no async function"),
        (yields, "yields yields"),
        (alone, r"alone takes \(message: 'Message'\).* should take \(message, call_next\)"),
        (TimeLimit, r"TimeLimit is a class; give an instance: TimeLimit\(…\)"),
        (Nothing(), "is no middleware"),
        ("logging", "'logging' is no middleware"),
        (None, "None is no middleware"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:20]),
)
def test_what_is_no_middleware_is_refused_when_it_is_declared(wrong: Any, said: str) -> None:
    def declare() -> None:
        app = App(middleware=[wrong])

        @app.subscriber("q")
        async def handle(text: str) -> None: ...

    with pytest.raises(UsageError, match=said):
        declare()
    app = App()
    with pytest.raises(UsageError, match=said):

        @app.subscriber("q", middleware=[wrong])
        async def handle(text: str) -> None: ...


def test_middleware_is_a_list() -> None:
    with pytest.raises(UsageError, match=r"^middleware is a list, not .*: middleware=\[…\]"):
        App(middleware=one)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="subscriber of 'q': middleware is a list, not None"):
        App().subscriber("q", middleware=None)  # type: ignore[arg-type]


async def test_one_that_binds_is_another_for_each_subscription() -> None:
    seen: list[tuple[str | None, object]] = []

    class Bound:
        def bind(self, surroundings: Surroundings) -> Any:
            class Here:
                async def receive(self, message: Message, call_next: CallNext) -> Any:
                    what = surroundings.outcome_of(LookupError("x"))
                    seen.append((surroundings.queue, what))
                    return await call_next(message)

            return Here()

        async def receive(self, message: Message, call_next: CallNext) -> Any: ...

    app = App(middleware=[Bound()])

    @app.subscriber("a", on_error={LookupError: Drop})
    async def first(text: str) -> None: ...

    @app.subscriber("b")
    async def second(text: str) -> None: ...

    async with app.in_process() as account:
        await account.send("a", "x")
        await account.settle()
        await account.send("b", "x")
        await account.settle()
    assert seen == [("a", Drop("LookupError: x")), ("b", Retry(reason="LookupError: x"))]


# --- putting a message off ----------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("seconds", [5, 300])  # in place where there is order, and given back
async def test_a_message_that_was_put_off_has_used_no_attempt(queue: str, seconds: float) -> None:
    attempts: list[int] = []
    app = App()

    @app.subscriber(
        queue, max_attempts=2, dead_letter=Queue(f"dead-{queue}", create_if_missing=True)
    )
    async def handle(text: str, message: Message) -> Retry:
        attempts.append(message.attempt)
        if len(attempts) <= 4:
            return Retry(after=seconds, reason="not yet", counts=False)
        return Retry(after=1)

    group = {"group_id": "g"} if queue.endswith("fifo") else {}
    account = await run(app, "x", queue=queue, **group)
    assert attempts == [1, 1, 1, 1, 1, 2]
    assert len(account.sent(f"dead-{queue}")) == 1


async def test_the_runtime_logs_an_error_that_no_middleware_has_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[one])
    app.subscriber("q", retry=1)(failing_once([]))
    with caplog.at_level(logging.INFO, "pumphouse"):
        await run(app, "x")
    said = [r for r in caplog.records if r.exc_info and "LookupError" in r.getMessage()]
    assert len(said) == 1
