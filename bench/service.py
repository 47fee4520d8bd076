"""CPU of what surrounds a handler: injection and middleware, per 1,000 messages.

    python bench/service.py [--messages 1000] [--rounds 40]

First the runner alone: deliveries made in memory are run one after the other, without a queue, so
that nothing but the call is measured. Every row but the last two has the pydantic payload, so what
is on top of the bare handler has no parsing in it. Then the whole runtime on an account in memory.
Rows take turns in every round, with the CPU time of this process; shown are medians, and in
brackets the best. "On top" is the median of the differences within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel

from pumphouse import Account, App, Depends, Header, Message, VirtualClock
from pumphouse.middleware import Idempotency, Logging, MemoryStore
from pumphouse.protocol.operations import (
    CreateQueue,
    MessageAttributeValue,
    ReceivedMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from pumphouse.subscriber.delivery import RUNNING, Delivery

LIMIT_MS = 3.0
HELD = 100
BARE = "bare: the payload alone"
FULL = "payload, Message, Header, two Depends"
LOGGED = "the same, and Logging"


class Order(BaseModel):
    id: int
    customer: str
    amount: float


BODY = Order(id=7, customer="ada", amount=9.5).model_dump_json()
TENANT = MessageAttributeValue("String", "t1")
Run = Callable[[Delivery], Awaitable[Any]]


def settings() -> str:
    return "settings"


async def repository(settings: Annotated[str, Depends(settings)]) -> str:
    return settings


async def session() -> Any:
    yield "session"


def apps() -> dict[str, App]:
    """One app for each row, with one handler of "bench"."""
    made: dict[str, App] = {}

    def add(name: str, handler: Callable[..., Any], **options: Any) -> None:
        app = made[name] = App("bench", drain_seconds=5)
        app.subscriber("bench", concurrency=32, **options)(handler)

    async def bare(order: Order) -> None: ...

    async def message(order: Order, message: Message) -> None: ...

    async def reading(order: Order, message: Message) -> None:
        message.message_id, message.group_id, message.attempt  # noqa: B018

    async def header(order: Order, tenant: Annotated[str, Header("x-tenant")]) -> None: ...

    async def depends(
        order: Order,
        settings: Annotated[str, Depends(settings)],
        repository: Annotated[str, Depends(repository)],
    ) -> None: ...

    async def full(
        order: Order,
        message: Message,
        tenant: Annotated[str, Header("x-tenant")],
        settings: Annotated[str, Depends(settings)],
        repository: Annotated[str, Depends(repository)],
    ) -> None: ...

    async def cleaned(order: Order, session: Annotated[str, Depends(session)]) -> None: ...

    async def text(body: str) -> None: ...

    async def passing(message: Message, call_next: Callable[[Message], Awaitable[Any]]) -> Any:
        return await call_next(message)

    add(BARE, bare)
    add("payload, Message", message)
    add("payload, Message, three fields read", reading)
    add("payload, Header", header)
    add("payload, two Depends", depends)
    add(FULL, full)
    add("payload, a Depends that yields", cleaned)
    add("payload, a middleware that passes on", bare, middleware=[passing])
    add("payload, Logging", bare, middleware=[Logging()])
    add(LOGGED, full, middleware=[Logging()])
    keys = map(str, count())  # every message is a new one, however often it is run here
    once = Idempotency(MemoryStore(), key=lambda message: next(keys))
    add("payload, Idempotency in memory", bare, middleware=[once])
    add("bare: text, nothing parsed", text)
    return made


def deliveries(count: int) -> list[Delivery]:
    made = []
    for number in range(count):
        raw = ReceivedMessage(
            message_id=f"message-{number}",
            receipt_handle=f"handle-{number}",
            md5_of_body="",
            body=BODY,
            attributes={
                "ApproximateReceiveCount": "1",
                "SentTimestamp": "1700000000000",
                "ApproximateFirstReceiveTimestamp": "1700000000001",
                "SenderId": "AIDAEXAMPLE",
            },
            message_attributes={"x-tenant": TENANT},
        )
        delivery = Delivery(raw, 0.0, 30.0)
        delivery.move(RUNNING)
        made.append(delivery)
    return made


async def alone(run: Run, messages: int) -> float:
    """Milliseconds for 1,000 messages, in the runner. It has as many at a time as a subscription
    holds, so that their number is no matter of the garbage collector."""
    gc.collect()
    seconds = 0.0
    for _ in range(0, messages, HELD):
        held = deliveries(HELD)
        began = time.process_time()
        for delivery in held:
            await run(delivery)
        seconds += time.process_time() - began
    return seconds * 1e6 / messages


def parsing(messages: int) -> float:
    body = BODY.encode()
    read = Order.model_validate_json
    gc.collect()
    began = time.process_time()
    for _ in range(messages):
        read(body)
    return (time.process_time() - began) * 1e6 / messages


async def in_the_runner(messages: int, rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    taken: dict[str, list[float]] = {}
    parsed: list[float] = []
    everyone = apps()
    runs: dict[str, Run] = {}
    async with asyncio.TaskGroup() as tasks:
        stop = asyncio.Event()
        for name, app in everyone.items():
            ready: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
            tasks.create_task(_kept(app, ready, stop))
            runs[name] = await ready
        for run in runs.values():
            await alone(run, 500)
        for _ in range(rounds):
            for name, run in runs.items():
                taken.setdefault(name, []).append(await alone(run, messages))
            parsed.append(parsing(messages))
        stop.set()
    return taken, parsed


async def _kept(app: App, ready: asyncio.Future[Run], stop: asyncio.Event) -> None:
    """Keep an app at work, on a queue to which nothing is sent."""
    account = Account(clock=VirtualClock())
    await account.execute(CreateQueue("bench"))
    async with app.running(account) as running:
        (consumer,) = running.consumers
        ready.set_result(consumer.runner.run)
        await stop.wait()


async def whole(app: App, messages: int) -> float:
    """Milliseconds for 1,000 messages: received from an account, handled and deleted there."""
    account = Account()
    url = (await account.execute(CreateQueue("bench"))).queue_url
    for first in range(0, messages, 10):
        entries = [
            SendMessageBatchRequestEntry(str(number), BODY, message_attributes={"x-tenant": TENANT})
            for number in range(first, first + 10)
        ]
        await account.execute(SendMessageBatch(url, entries))
    gc.collect()
    began = time.process_time()
    async with app.running(account) as running:
        (consumer,) = running.consumers
        while consumer.stats.deleted < messages:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        seconds = time.process_time() - began
    if consumer.stats.deleted != messages or consumer.stats.undecodable:
        raise RuntimeError(f"not everything was handled: {consumer.stats}")
    return seconds * 1e6 / messages


async def in_the_runtime(messages: int, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    chosen = {name: app for name, app in apps().items() if name in (BARE, FULL, LOGGED)}
    for _ in range(rounds):
        for name, app in chosen.items():
            taken.setdefault(name, []).append(await whole(app, messages))
    return taken


def show(title: str, taken: dict[str, list[float]]) -> None:
    print(f"{title:<42}{'ms per 1,000':>16}{'on top of bare':>18}")
    for name, values in taken.items():
        on_top = f"{difference(taken, name):>18.2f}" if name != BARE else ""
        print(f"{name:<42}{statistics.median(values):>8.2f} ({min(values):.2f}){on_top}")


def difference(taken: dict[str, list[float]], name: str) -> float:
    pairs = zip(taken[name], taken[BARE], strict=True)
    return statistics.median(mine - bare for mine, bare in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    logging.getLogger("pumphouse").addHandler(logging.NullHandler())
    logging.getLogger("pumphouse").propagate = False
    logging.getLogger("pumphouse").setLevel(logging.INFO)  # records are made, and written nowhere
    taken, parsed = asyncio.run(in_the_runner(options.messages, options.rounds))
    show("the runner alone", taken)
    print(f"{'parsing the payload, in all of these rows':<42}{statistics.median(parsed):>8.2f}")
    print()
    show("the whole runtime on an account", asyncio.run(in_the_runtime(2 * options.messages, 11)))
    print()
    full = difference(taken, FULL)
    print(f"limit: {LIMIT_MS} ms on top of bare for {FULL}: {full:.2f} ", end="")
    print("(met)" if full < LIMIT_MS else "(MISSED)", end="; ")
    print(f"between the best rounds of both: {min(taken[FULL]) - min(taken[BARE]):.2f}")


if __name__ == "__main__":
    main()
