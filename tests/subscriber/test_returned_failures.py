"""Failures that a handler returns instead of raising: the message is never deleted for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from pumphouse import Account, Ack, App, Drop, Message, Reject, Retry
from pumphouse.subscriber.chain import CallNext, CallNextBatch
from pumphouse.subscriber.outcomes import Settle
from support.service import deleted

REASON = "pumphouse.reason"


def dead(account: Account, name: str = "dead") -> list[str]:
    return [sent.body for sent in account.sent(name)]


def why(account: Account, name: str = "dead") -> list[str | None]:
    return [(sent.attributes or {})[REASON].string_value for sent in account.sent(name)]


@pytest.mark.parametrize("publish", [None, "out"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError, "ValueError"),
        (asyncio.CancelledError(), "CancelledError"),
        (ExceptionGroup("all", [ValueError("no")]), "ExceptionGroup: all"),
        ([Retry()], "UsageError: the handler returned a list with Retry"),
        ((Reject("x"),), "UsageError: the handler returned a tuple with Reject"),
        ({"a": Retry}, "UsageError: the handler returned a dict with"),
        (["fine", ValueError("no")], "UsageError: the handler returned a list with ValueError"),
        (frozenset([Drop()]), "UsageError: the handler returned a frozenset with Drop"),
        (Future(), "UsageError: the handler returned a Future that nobody awaited"),
        ((x for x in "ab"), "UsageError: the handler returned a generator that nobody awaited"),
    ],
    ids=lambda value: repr(value)[:30].split(" at ")[0],
)
async def test_a_returned_failure_is_a_failure(
    value: Any, reason: str, publish: str | None
) -> None:
    app = App()

    @app.subscriber("q", max_attempts=2, dead_letter="dead", retry=1, publish=publish)
    async def handle(body: str) -> Any:
        return value

    async with app.in_process() as account:
        if publish:
            await account.send(publish, "to have it")
        await account.send("q", "x")
        await account.settle()
        assert len(handle.calls) == 2
        assert dead(account) == ["x"]
        (given,) = why(account)
        assert given is not None
        assert given.startswith(reason)
        if publish:
            assert [sent.body for sent in account.sent(publish)] == ["to have it"]


async def test_returned_exceptions_follow_on_error_and_settle() -> None:
    app = App()

    @app.subscriber("q", max_attempts=2, dead_letter="dead", on_error={LookupError: Drop})
    async def handle(body: str) -> Any:
        return LookupError(body) if body == "gone" else Settle(Reject("not here"))

    async with app.in_process() as account:
        await account.send("q", "gone")
        await account.send("q", "bad")
        await account.settle()
        assert [call.payload for call in handle.calls] == ["gone", "bad"]
        assert (dead(account), why(account)) == (["bad"], ["not here"])


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_gathered_exceptions_of_a_batch_fail_alone(name: str) -> None:
    app = App()
    dead_name = name.replace("q", "dead")

    @app.subscriber(name, batch=10, max_attempts=2, dead_letter=dead_name, retry=1)
    async def handle(bodies: list[str]) -> Any:
        async def one(body: str) -> Any:
            if body == "bad":
                raise ValueError(body)
            if body == "cancelled":
                raise asyncio.CancelledError
            return [Retry()] if body == "wrapped" else None

        return await asyncio.gather(*map(one, bodies), return_exceptions=True)

    bodies = ["a", "bad", "cancelled", "wrapped", "c"]
    async with app.in_process() as account:
        for body in bodies:
            await account.send(name, body, group_id=body if name != "q" else None)
        await account.settle()
        assert deleted(account)[:2] == ["a", "c"]
        assert dead(account, dead_name) == ["bad", "cancelled", "wrapped"]
        assert why(account, dead_name)[:2] == ["ValueError: bad", "CancelledError"]
        assert [call.payload for call in handle.calls].count("a") == 1


async def test_one_exception_for_a_whole_batch_fails_all_of_it() -> None:
    app = App()

    @app.subscriber("q", batch=10, max_attempts=1, dead_letter="dead")
    async def handle(bodies: list[str]) -> Any:
        return ValueError("all")

    async with app.in_process() as account:
        for body in "ab":
            await account.send("q", body)
        await account.settle()
        assert sorted(dead(account)) == ["a", "b"]
        assert set(why(account)) == {"ValueError: all"}


@pytest.mark.parametrize("batch", [None, 10])
async def test_what_a_middleware_returns_is_no_exception_either(batch: int | None) -> None:
    class Odd:
        async def receive(self, message: Message, call_next: CallNext) -> Any:
            await call_next(message)
            return ValueError("odd")

        async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> Any:
            await call_next(messages)
            return [ValueError("odd") for _ in messages]

    app = App(middleware=[Odd()])

    async def handle(bodies: list[str]) -> Any:
        return Ack()

    async def handle_one(body: str) -> Any:
        return Ack()

    declare = app.subscriber("q", max_attempts=1, dead_letter="dead", batch=batch)
    declare(handle) if batch else declare(handle_one)

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        assert (dead(account), why(account)) == (["x"], ["ValueError: odd"])
