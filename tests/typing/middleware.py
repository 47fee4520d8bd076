"""Middleware as type checkers see it: never run, only checked.

A line that must not type-check says so with a `type: ignore`, and mypy complains of the ones that
are no longer needed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import assert_type

from pumphouse import Ack, App, Drop, Header, Message, Outgoing, Receipt, Reject, Retry, Router
from pumphouse.middleware import (
    Begun,
    CallNext,
    CallNextBatch,
    Idempotency,
    IdempotencyStore,
    JsonFormatter,
    Logging,
    MemoryStore,
    MessageContext,
    Middleware,
    SqliteStore,
    Surroundings,
    TimeLimit,
    json_logging,
)

GoOn = Callable[[Outgoing], Awaitable[Receipt]]


async def passing(message: Message, call_next: CallNext) -> Ack | Retry | Drop | Reject:
    outcome = await call_next(message)
    assert_type(outcome, Ack | Retry | Drop | Reject)
    return outcome


async def other_names(incoming: Message, go_on: CallNext) -> None:
    await go_on(incoming)


async def wrong(message: str, call_next: CallNext) -> None: ...


class Everything:
    async def receive(self, message: Message, call_next: CallNext) -> Drop | None:
        await call_next(message)
        return Drop("no") if message.attempt > 3 else None

    async def receive_batch(self, messages: list[Message], call_next: CallNextBatch) -> object:
        outcomes = await call_next(messages)
        assert_type(outcomes, list[Ack | Retry | Drop | Reject])
        return outcomes

    async def publish(self, outgoing: Outgoing, call_next: GoOn) -> Receipt:
        return await call_next(outgoing)


class Binding:
    def bind(self, surroundings: Surroundings) -> Everything:
        assert_type(surroundings.queue, str | None)
        return Everything()


class OnlyPublishing:
    async def publish(self, outgoing: Outgoing, call_next: object) -> Receipt: ...  # type: ignore[empty-body]


app = App("orders", middleware=[Logging(), passing, Everything(), Binding(), OnlyPublishing()])
tuples = App("orders", middleware=(Logging(), TimeLimit(timedelta(seconds=3))))
router = Router(middleware=[TimeLimit(30), other_names])
refused = App("orders", middleware=[wrong])  # type: ignore[list-item]

listed: list[Middleware] = [Logging(logger="orders", level=logging.DEBUG, bodies=True), passing]


@app.subscriber("orders", middleware=[Idempotency(MemoryStore(), key=Header("order-id"))])
async def handle(text: str) -> None: ...


def key_of(message: Message) -> str | None:
    return message.group_id


keyed = Idempotency(SqliteStore("keys.db"), key=key_of, remember=timedelta(days=1), scope="all")


class Store:
    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        return Begun("busy", until)

    async def extend(self, key: str, owner: str, *, until: float, now: float) -> bool:
        return True

    async def complete(self, key: str, owner: str, *, until: float, now: float) -> None: ...

    async def abandon(self, key: str, owner: str) -> None: ...


class HalfAStore:
    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        return Begun("new")


own: IdempotencyStore = Store()
memory: IdempotencyStore = MemoryStore()
file: IdempotencyStore = SqliteStore("keys.db")
idempotent = Idempotency(Store())
half = Idempotency(HalfAStore())  # type: ignore[arg-type]

handler = json_logging(logging.INFO, service="orders", version=3)
assert_type(handler, logging.Handler)
handler.addFilter(MessageContext())
handler.setFormatter(JsonFormatter(service="orders"))
postponed = Retry(after=timedelta(minutes=1), counts=False)
