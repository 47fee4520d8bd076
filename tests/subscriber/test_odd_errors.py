"""Errors, reasons and functions of odd kinds: each ends as an outcome that is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pumphouse.app import App
from pumphouse.errors import UsageError
from pumphouse.middleware import Idempotency, MemoryStore
from pumphouse.subscriber.outcomes import Drop, Outcome, Reject, Retry, describe
from pumphouse.subscriber.queue import Queue


class Broken(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Unnamed(Exception, metaclass=Nameless):
    pass


class Leaving(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Broken(), "Broken (which can't be written as text)"),
        (Unnamed("x"), "Unnamed: x"),
        (Leaving(), "Leaving (which can't be written as text)"),
        (ExceptionGroup("two", [Broken()]), "ExceptionGroup: two (1 sub-exception): Broken "),
    ],
    ids=["no text", "no name", "cancelling", "in a group"],
)
def test_every_error_is_described(error: Exception, said: str) -> None:
    assert describe(error).startswith(said)


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("how", ["async", "plain", "batch"])
async def test_an_error_without_a_text_is_counted_and_backed_off(queue: str, how: str) -> None:
    app = App()
    runs: list[float] = []
    subscriber = app.subscriber(
        queue,
        max_attempts=3,
        dead_letter="dead" + queue[1:],
        retry=5,
        batch=2 if how == "batch" else None,
    )

    def fail() -> None:
        runs.append(app.clock.monotonic())
        raise Broken

    if how == "async":

        @subscriber
        async def handle(body: str) -> None:
            fail()

    elif how == "plain":

        @subscriber
        def handle_in_a_thread(body: str) -> None:
            fail()

    else:

        @subscriber
        async def handle_many(bodies: list[str]) -> None:
            fail()

    async with app.in_process() as account:
        await account.send(queue, "x", group_id="g" if queue.endswith("fifo") else None)
        await account.settle()
        assert [m.body for m in account.sent("dead" + queue[1:])] == ["x"]
    assert len(runs) == 3
    assert runs[1] - runs[0] >= 5
    assert runs[2] - runs[1] >= 5


class Leave(BaseException):
    """Of a kind that is not meant to be caught."""


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError, GeneratorExit, SystemExit, Leave, Broken]
)
@pytest.mark.parametrize("where", ["on_error", "retry"])
async def test_functions_that_fail_in_odd_ways_leave_the_default(
    where: str, error: type[BaseException]
) -> None:
    app = App()
    runs: list[float] = []

    def odd(_: object) -> Any:
        raise error

    options: dict[str, Any] = {where: odd}

    @app.subscriber("q", max_attempts=3, dead_letter="dead", **options)
    async def handle(body: str) -> None:
        runs.append(app.clock.monotonic())
        raise ValueError(body)

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        assert [m.body for m in account.sent("dead")] == ["x"]
    assert len(runs) == 3


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("batch", [None, 2])
async def test_a_handler_that_cancels_itself_has_failed(queue: str, batch: int | None) -> None:
    app = App()
    runs: list[float] = []

    async def handle(body: Any) -> None:
        runs.append(app.clock.monotonic())
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    handle.__annotations__["body"] = list[str] if batch else str
    app.subscriber(queue, batch=batch, max_attempts=3, dead_letter="dead" + queue[1:], retry=5)(
        handle
    )
    async with app.in_process() as account:
        await account.send(queue, "x", group_id="g" if queue.endswith("fifo") else None)
        await account.settle()
        assert [m.body for m in account.sent("dead" + queue[1:])] == ["x"]
    assert len(runs) == 3
    assert runs[1] - runs[0] >= 5


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Reject(ValueError("boom")), "ValueError: boom"),  # type: ignore[arg-type]
        (Retry(reason=ValueError("boom")), "ValueError: boom"),  # type: ignore[arg-type]
        (Reject(Broken()), "Broken (which can't be written as text)"),  # type: ignore[arg-type]
        (Reject("no such tenant"), "no such tenant"),
    ],
    ids=["rejected", "tried again", "no text", "text"],
)
async def test_the_reason_of_an_outcome_may_be_an_exception(outcome: Outcome, reason: str) -> None:
    app = App()

    @app.subscriber("q", max_attempts=2, dead_letter="dead", retry=1)
    async def handle(body: str) -> Outcome:
        return outcome

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        (letter,) = account.sent("dead")
    assert len(handle.calls) == (2 if isinstance(outcome, Retry) else 1)
    assert any(reason == value.string_value for value in (letter.attributes or {}).values())


@pytest.mark.parametrize("kind", [Retry, Drop, Reject])
@pytest.mark.parametrize("reason", [123, None, b"bytes", ["a"]])
def test_a_reason_that_is_no_text_is_refused_where_it_is_given(kind: Any, reason: object) -> None:
    with pytest.raises(UsageError, match=f"{kind.__name__}: a reason is a text or an exception"):
        kind(reason=reason)


async def _async(_: object) -> Any: ...


def _yields(_: object) -> Any:
    yield 1


class _Callable:
    async def __call__(self, _: object) -> Any: ...


@pytest.mark.parametrize(
    "function", [_async, _yields, _Callable()], ids=["async", "yields", "object"]
)
@pytest.mark.parametrize("option", ["on_error", "retry", "partition_key"])
def test_functions_that_would_have_to_be_awaited_are_refused(option: str, function: Any) -> None:
    app = App()
    with pytest.raises(UsageError, match=rf"{option} is a plain function"):

        @app.subscriber("q", **{option: function})
        async def handle(body: str) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"max_lease_seconds": "x"},
        {"max_lease_seconds": float("nan")},
        {"in_place_seconds": "x"},
        {"in_place_seconds": True},
        {"attributes": None},
        {"attributes": [("a", "b")]},
        {"attributes": {"a": 1}},
        {"visibility_timeout": 30.0},
        {"prefetch": None},
        {"pollers": True},
        {"extend": "no"},
        {"create_if_missing": 1},
        {"on_missing": ["end"]},
        {"sns": None},
    ],
    ids=str,
)
def test_options_of_a_queue_of_wrong_types_are_wrong_usage(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=name):
        Queue("q", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": "1"},
        {"timeout": "1"},
        {"batch_window": None},
        {"redrive": ["write"]},
        {"undecodable": None},
        {"on_lease_lost": {}},
        {"middleware": None},
        {"middleware": "mw"},
        {"priority": 1.5},
        {"retry": "1"},
        {"on_error": 3},
    ],
    ids=str,
)
def test_options_of_a_subscriber_of_wrong_types_are_wrong_usage(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=name):

        @App().subscriber("q", **options)
        async def handle(body: str) -> None: ...


@pytest.mark.parametrize(
    "options", [{"drain_seconds": "x"}, {"middleware": None}, {"hooks": 3}], ids=str
)
def test_options_of_an_app_of_wrong_types_are_wrong_usage(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=name):
        App(**options)


@pytest.mark.parametrize("key", [_async, _yields, _Callable()], ids=["async", "yields", "object"])
def test_a_key_of_idempotency_is_not_awaited_either(key: Any) -> None:
    with pytest.raises(UsageError, match="key is a plain function"):
        Idempotency(MemoryStore(), key=key)
