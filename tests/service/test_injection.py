"""Dependencies of handlers, seen from outside: made, cached, left, cancelled, refused.

Without `from __future__ import annotations`, so that handlers inside of tests can be annotated with
what stands there.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest
from typing_extensions import TypeAliasType

from pumphouse import App, Depends, Header, Message, Queue, Retry, Settle, VirtualClock
from pumphouse.errors import UsageError
from pumphouse.protocol.operations import ReceiveMessage
from pumphouse.subscriber.outcomes import Ack, Drop, Reject
from support.injecting import Log, dead_app, reasons, run, scoped
from support.service import make_queue, receives

T = TypeVar("T")

# --- dependencies ---------------------------------------------------------------------------------


async def test_dependencies_of_every_kind_are_made_before_and_left_after_in_reverse() -> None:
    app, subscriber = dead_app()
    log = Log()

    def plain() -> str:
        log.append("plain")
        return "plain"

    async def awaited(first: Annotated[str, Depends(plain)]) -> str:
        log.append("awaited")
        return f"{first} awaited"

    def generator(second: Annotated[str, Depends(awaited)]) -> Iterator[str]:
        log.append("generator")
        yield f"{second} generator"
        log.append("generator left")

    async def async_generator(third: Annotated[str, Depends(generator)]) -> AsyncIterator[str]:
        log.append("async generator")
        yield f"{third} async"
        log.append("async generator left")

    @subscriber
    async def handle(body: str, fourth: Annotated[str, Depends(async_generator)]) -> None:
        log.append(f"{body}: {fourth}")

    await run(app, "body")
    assert log == [
        "plain",
        "awaited",
        "generator",
        "async generator",
        "body: plain awaited generator async",
        "async generator left",
        "generator left",
    ]


async def test_a_dependency_is_called_once_for_a_message_or_for_each_parameter() -> None:
    app, subscriber = dead_app()
    made: list[int] = []

    def number() -> int:
        made.append(len(made) + 1)
        return made[-1]

    def left(same: Annotated[int, Depends(number)]) -> int:
        return same

    def right(other: Annotated[int, Depends(number, use_cache=False)]) -> int:
        return other

    seen = []

    @subscriber
    async def handle(
        one: Annotated[int, Depends(number)],
        two: Annotated[int, Depends(left)],
        three: Annotated[int, Depends(right)],
        body: str,
    ) -> None:
        seen.append((body, one, two, three))

    await run(app, "a", "b")
    assert seen == [("a", 1, 1, 2), ("b", 3, 3, 4)]


async def test_defaults_classes_and_callables_as_dependencies() -> None:
    app, subscriber = dead_app()

    class Page:
        def __init__(self, message: Message, size: int = 10) -> None:
            self.of, self.size = message.queue, size

    @dataclass
    class Filter:
        page: Annotated[Page, Depends()]
        tenant: Annotated[str, Header()] = "none"

    class Twice:
        async def __call__(self, page: Annotated[Page, Depends()]) -> int:
            return 2 * page.size

    def power(base: int, exponent: int = 2) -> int:
        return int(base**exponent)

    seen = []

    @subscriber
    async def handle(
        body: str,
        filter: Filter = Depends(),  # noqa: A002, B008
        twice: int = Depends(Twice()),
        nine: int = Depends(functools.partial(power, 3)),
        also: Annotated[Page, Depends(Page)] = None,  # type: ignore[assignment]
    ) -> None:
        seen.append((body, filter.page.of, filter.tenant, twice, nine, also is filter.page))

    await run(app, "a", headers={"tenant": "t1"})
    assert seen == [("a", "q", "t1", 20, 9, True)]


class Box(Generic[T]):
    def __init__(self, message: Message) -> None:
        self.queue = message.queue


async def test_generic_classes_as_dependencies() -> None:
    app, subscriber = dead_app()
    seen = []

    @subscriber
    async def handle(
        one: Annotated[Box[int], Depends()],
        same: Annotated[Box[int], "noted", Depends()],
        other: Annotated[Box[str], Depends(Box[str])],
    ) -> None:
        seen.append((one.queue, one is same, one is other))

    await run(app, "a")
    assert seen == [("q", True, False)]


async def test_what_is_given_by_its_type_may_be_left_out_where_the_handler_is_called_directly() -> (
    None
):
    app, subscriber = dead_app()
    seen = []

    def queue_of(message: Annotated[Message, "as it came"]) -> str:
        return message.queue

    @subscriber
    async def handle(
        body: str,
        queue: Annotated[str, Depends(queue_of)] = "",
        message: Message | None = None,
        own: Optional[App] = None,  # noqa: UP045
    ) -> None:
        seen.append((body, queue, message and message.queue, own))

    @app.subscriber("many", batch=10)
    async def handle_all(bodies: list[str], messages: list[Message] | None = None) -> None:
        seen.append((bodies, len(messages or ())))

    async with app.in_process() as account:
        await account.send("q", "a")
        await account.settle()
        await account.send("many", "b")
        await account.settle()
    await handle("c")
    assert seen == [("a", "q", "q", app), (["b"], 1), ("c", "", None, None)]


Key = TypeVar("Key")
Pair = TypeAliasType("Pair", dict[T, Key], type_params=(Key, T))
Maybe = TypeAliasType("Maybe", T | None, type_params=(T,))  # type: ignore[arg-type, unused-ignore]
Boxed = TypeAliasType("Boxed", Annotated[Box[T], Depends()], type_params=(T,))
Tenant = TypeAliasType("Tenant", Annotated[str, Header("tenant")])


async def test_aliases_stand_for_what_they_name() -> None:
    """As `type Boxed[T] = …` of Python 3.12 makes them."""
    app, subscriber = dead_app()
    seen = []

    @subscriber
    async def handle(
        pair: Pair[int, str],
        box: Boxed[int],
        tenant: Tenant,
        message: Maybe[Message] = None,
    ) -> None:
        assert message is not None
        seen.append((pair, box.queue, tenant, message.queue))

    await run(app, {"a": 1}, headers={"tenant": "t1"})
    assert seen == [({"a": 1}, "q", "t1", "q")]

    async def inside(body: str, tenant: Tenant | None = None) -> None: ...  # type: ignore[valid-type, unused-ignore]

    with pytest.raises(UsageError, match="the mark belongs around the whole type"):
        app.subscriber("other")(inside)


async def test_a_wrapped_async_dependency_is_awaited() -> None:
    app, subscriber = dead_app()

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @traced
    async def tenant(message: Message) -> str:
        return f"tenant of {message.text}"

    seen = []

    @subscriber
    async def handle(body: str, tenant: Annotated[str, Depends(tenant)]) -> None:
        seen.append(tenant)

    await run(app, "a")
    assert seen == ["tenant of a"]


async def test_a_dependency_gets_the_payload_by_its_type() -> None:
    app, subscriber = dead_app()

    @dataclass
    class Order:
        id: int

    async def audit(order: Order, message: Message, verbose: bool = True) -> str:
        return f"{order.id} of {message.queue} {verbose}"

    seen = []

    @subscriber
    async def handle(order: Order, note: Annotated[str, Depends(audit)]) -> None:
        seen.append((order, note))

    await run(app, {"id": 7})
    assert seen == [(Order(7), "7 of q True")]


async def test_context_variables_of_dependencies_hold_in_the_handler() -> None:
    app, subscriber = dead_app()
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = []

    async def scope(message: Message) -> AsyncIterator[None]:
        token = tenant.set(message.text)
        yield
        tenant.reset(token)

    @subscriber
    async def handle(_: Annotated[None, Depends(scope)]) -> None:
        seen.append(tenant.get())

    async with app.in_process() as account:
        for body in "ab":
            await account.send("q", body)
        await account.settle()
    assert sorted(seen) == ["a", "b"]
    assert tenant.get() == "nobody"


# --- clean-up -------------------------------------------------------------------------------------


async def test_clean_up_sees_what_the_handler_raised() -> None:
    app, subscriber = dead_app()
    log = Log()

    @subscriber
    async def handle(body: str, session: Annotated[str, Depends(scoped(log))]) -> None:
        if body == "bad":
            raise LookupError("no such order")

    await run(app, "good")
    assert log == ["opened", "committed", "closed"]
    log.clear()
    account = await run(app, "bad")
    assert log == ["opened", "LookupError", "closed"] * 2
    assert reasons(account) == ["LookupError: no such order"]


async def test_an_exception_that_clean_up_swallows_still_counts() -> None:
    app, subscriber = dead_app()

    async def swallowing() -> AsyncIterator[int]:
        with suppress(LookupError):
            yield 1

    def also_swallowing() -> Iterator[int]:
        with suppress(LookupError):
            yield 2

    @subscriber
    async def handle(
        body: str,
        one: Annotated[int, Depends(swallowing)],
        two: Annotated[int, Depends(also_swallowing)],
    ) -> None:
        raise LookupError("gone")

    assert reasons(await run(app, "a")) == ["LookupError: gone"]


async def test_an_error_in_clean_up_is_a_failed_attempt_and_the_rest_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, subscriber = dead_app(on_error={ConnectionError: Reject})
    log = Log()

    async def outer() -> AsyncIterator[int]:
        try:
            yield 1
        except ConnectionError:
            log.append("outer saw it")
            raise

    def inner(outer: Annotated[int, Depends(outer)]) -> Iterator[int]:
        yield 2
        raise ConnectionError("commit failed")

    @subscriber
    async def handle(body: str, inner: Annotated[int, Depends(inner)]) -> None:
        log.append("handled")

    with caplog.at_level(logging.ERROR, "pumphouse.subscriber"):
        account = await run(app, "a")
    assert log == ["handled", "outer saw it"]
    assert reasons(account) == ["ConnectionError: commit failed"]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "clean-up of dependency" in record.getMessage()
    assert "inner failed" in record.getMessage()
    assert record.exc_info


async def test_clean_up_may_raise_another_exception_in_its_place() -> None:
    app, subscriber = dead_app(on_error={PermissionError: Drop})

    def translating() -> Iterator[int]:
        try:
            yield 1
        except LookupError as error:
            raise PermissionError("not yours") from error

    @subscriber
    async def handle(body: str, one: Annotated[int, Depends(translating)]) -> None:
        raise LookupError("none")

    account = await run(app, "a")
    assert account.sent("dead") == []
    assert len(receives(account)) == 1


async def test_clean_up_is_over_before_the_message_is_settled() -> None:
    app, subscriber = dead_app()
    clock = VirtualClock()
    left_at = []

    async def slow() -> AsyncIterator[None]:
        yield
        await clock.sleep(45)
        left_at.append(clock.now())

    @subscriber
    async def handle(body: str, _: Annotated[None, Depends(slow)]) -> None: ...

    async with app.in_process(clock) as account:
        await account.send("q", "a")
        await account.settle()
        (deleted,) = [
            each for each in account.ledger if type(each.operation).__name__ == "DeleteMessageBatch"
        ]
    assert deleted.started_at >= left_at[0]
    assert receives(account) == {"a": 1}, "the lease was not kept"


async def test_generators_that_yield_nothing_or_twice_are_named() -> None:
    for dependency, says in (
        (_yields_nothing, "yielded nothing"),
        (_yields_twice, "more than once"),
    ):
        app, subscriber = dead_app()

        @subscriber
        async def handle(body: str, _: Annotated[Any, Depends(dependency)]) -> None: ...

        (reason,) = reasons(await run(app, "a"))
        assert says in reason
        assert dependency.__name__ in reason


async def _yields_nothing() -> AsyncIterator[int]:
    for each in ():
        yield each


def _yields_twice() -> Iterator[int]:
    yield 1
    yield 2


@pytest.mark.parametrize("error", [StopIteration("s"), StopAsyncIteration("s"), GeneratorExit("s")])
async def test_exceptions_that_generators_use_themselves(error: BaseException) -> None:
    app, subscriber = dead_app()
    log = Log()

    def inner() -> Iterator[int]:
        try:
            yield 1
        finally:
            log.append("inner left")

    @subscriber
    async def handle(
        body: str,
        one: Annotated[int, Depends(inner)],
        two: Annotated[str, Depends(scoped(log))],
    ) -> None:
        raise error

    account = await run(app, "a")
    assert log.count("closed") == log.count("inner left") == 2
    assert len(account.sent("dead")) == 1


# --- cancellation and time ------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before", "handler", "after"])
async def test_a_time_out_covers_dependencies_and_their_clean_up(where: str) -> None:
    clock = VirtualClock()
    app, subscriber = dead_app(timeout=5)
    log = Log()

    async def slow() -> AsyncIterator[None]:
        log.append("entering")
        await clock.sleep(10 if where == "before" else 0)
        try:
            yield
        finally:
            log.append("leaving")
            await clock.sleep(10 if where == "after" else 0)

    @subscriber
    async def handle(
        body: str, outer: Annotated[str, Depends(scoped(log))], _: Annotated[None, Depends(slow)]
    ) -> None:
        log.append("handling")
        await clock.sleep(10 if where == "handler" else 0)

    async with app.in_process(clock) as account:
        await account.send("q", "a")
        await account.settle()
    assert reasons(account) == ["TimeoutError: the handler took longer than 5 s"]
    assert log.count("CancelledError") == log.count("closed") == log.count("entering") == 2
    assert log.count("handling") == log.count("leaving") == (0 if where == "before" else 2)


async def test_a_stop_cancels_the_handler_and_clean_up_runs_before_the_message_is_given_back() -> (
    None
):
    clock = VirtualClock()
    app, subscriber = dead_app()
    log = Log()
    started = asyncio.Event()

    @subscriber
    async def handle(body: str, session: Annotated[str, Depends(scoped(log))]) -> None:
        started.set()
        await clock.sleep(10_000)

    async with app.in_process(clock) as account:
        await account.send("q", "a")
        await clock.run_until(started.is_set)
    assert log == ["opened", "CancelledError", "closed"]
    url = await make_queue(account, "q")
    answer = await account.execute(ReceiveMessage(url))
    assert [each.body for each in answer.messages] == ["a"], "given back, and visible"


@pytest.mark.parametrize("batch", [None, 1])
async def test_an_error_in_place_of_the_cancellation_of_a_stop_is_none_of_the_message(
    batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    app, subscriber = dead_app(max_attempts=1, on_error={ConnectionError: Drop}, batch=batch)
    started = asyncio.Event()

    async def connection() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise ConnectionError("left in the middle")

    @subscriber
    async def handle(_: Annotated[None, Depends(connection)]) -> None:
        started.set()
        await clock.sleep(10_000)

    async with app.in_process(clock) as account:
        await account.send("q", "a")
        await clock.run_until(started.is_set)
    assert account.sent("dead") == []
    url = await make_queue(account, "q")
    answer = await account.execute(ReceiveMessage(url))
    assert [each.body for each in answer.messages] == ["a"], "given back, and visible"
    assert "left in the middle" in caplog.text


async def test_a_cancellation_in_the_middle_of_clean_up_leaves_the_rest() -> None:
    clock = VirtualClock()
    app, subscriber = dead_app()
    log = Log()
    leaving = asyncio.Event()

    async def slow(session: Annotated[str, Depends(scoped(log))]) -> AsyncIterator[None]:
        yield
        leaving.set()
        await clock.sleep(10_000)
        log.append("not reached")

    @subscriber
    async def handle(body: str, _: Annotated[None, Depends(slow)]) -> None: ...

    async with app.in_process(clock) as account:
        await account.send("q", "a")
        await clock.run_until(leaving.is_set)
    assert log == ["opened", "CancelledError", "closed"]
    assert account.sent("dead") == []


async def test_a_lost_lease_cancels_and_cleans_up() -> None:
    clock = VirtualClock()
    app = App("service")
    log = Log()
    started = asyncio.Event()

    @app.subscriber(Queue("q", visibility_timeout=10))
    async def handle(body: str, session: Annotated[str, Depends(scoped(log))]) -> None:
        started.set()
        await clock.sleep(60 if log.count("opened") == 1 else 0)

    async with app.in_process(clock) as account:
        account.faults.fail_entries(
            "ChangeMessageVisibilityBatch",
            lambda entry: True,
            code="ReceiptHandleIsInvalid",
            sender_fault=True,
            times=1,
        )
        await account.send("q", "a")
        await account.settle()
    assert log == ["opened", "CancelledError", "closed", "opened", "committed", "closed"]


# --- what dependencies raise ----------------------------------------------------------------------


async def test_what_a_dependency_raises_is_judged_as_the_handlers_own() -> None:
    app, subscriber = dead_app(on_error={PermissionError: Drop, LookupError: Reject})
    handled = []

    def check(body: str) -> None:
        if body == "not mine":
            raise PermissionError
        if body == "unknown":
            raise LookupError("no tenant")
        if body == "broken":
            raise OSError("no connection")

    @subscriber
    async def handle(body: str, _: Annotated[None, Depends(check)]) -> None:
        handled.append(body)

    account = await run(app, "fine", "not mine", "unknown", "broken")
    assert handled == ["fine"]
    assert sorted(reasons(account)) == ["LookupError: no tenant", "OSError: no connection"]
    assert receives(account) == {"fine": 1, "not mine": 1, "unknown": 1, "broken": 2}


async def test_outcomes_can_be_raised(caplog: pytest.LogCaptureFixture) -> None:
    app, subscriber = dead_app(max_attempts=3)
    log = Log()

    def check(body: str, message: Message) -> None:
        if body == "reject":
            raise Settle(Reject("no such tenant"))
        if body == "drop":
            raise Settle(Drop)
        if body == "retry" and message.attempt == 1:
            raise Settle(Retry(after=20))

    @subscriber
    async def handle(
        body: str, session: Annotated[str, Depends(scoped(log))], _: Annotated[None, Depends(check)]
    ) -> None:
        if body == "ack":
            raise Settle(Ack())

    with caplog.at_level(logging.INFO, "pumphouse.subscriber"):
        account = await run(app, "reject", "drop", "retry", "ack")
    assert reasons(account) == ["no such tenant"]
    assert log.count("Settle") == 4
    assert log.count("committed") == 1
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize("bad", [None, 1, "reject", ValueError, Settle])
def test_only_outcomes_can_be_raised(bad: Any) -> None:
    with pytest.raises(UsageError, match="takes Ack, Retry, Drop or Reject"):
        Settle(bad)


async def test_a_handler_that_a_dependency_kept_from_being_called_has_no_call() -> None:
    app, subscriber = dead_app()

    def check(body: str) -> None:
        if body == "bad":
            raise LookupError("bad")

    @subscriber
    async def handle(body: str, _: Annotated[None, Depends(check)]) -> None: ...

    await run(app, "good", "bad")
    assert [call.payload for call in handle.calls] == ["good"]
