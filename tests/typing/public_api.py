"""The public API as type checkers see it: never run, only checked by mypy and pyright.

A line that must not type-check says so with a `type: ignore`, and mypy complains of the ones that
are no longer needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, assert_type

import pumphouse
from pumphouse import (
    Account,
    App,
    Backend,
    HttpBackend,
    Message,
    Queue,
    RealClock,
    Receipt,
    Retry,
    Sink,
    VirtualClock,
)
from pumphouse.asyncapi import document, dumps
from pumphouse.check import Finding, check
from pumphouse.clock import Clock
from pumphouse.lambda_handler import LambdaHandler
from pumphouse.protocol.operations import (
    DeleteMessage,
    Done,
    GetQueueUrl,
    GetQueueUrlResult,
    ReceivedMessage,
    ReceiveMessage,
    ReceiveMessageResult,
    SendMessage,
    SendMessageResult,
)
from pumphouse.transport import Lease, LeaseTransport


@dataclass
class Order:
    id: int


async def operations(backend: Backend) -> None:
    assert_type(await backend.execute(SendMessage("url", "body")), SendMessageResult)
    assert_type(await backend.execute(GetQueueUrl("name")), GetQueueUrlResult)
    assert_type(await backend.execute(DeleteMessage("url", "handle")), Done)
    answer = await backend.execute(ReceiveMessage("url", max_number_of_messages=10))
    assert_type(answer, ReceiveMessageResult)
    assert_type(answer.messages, list[ReceivedMessage])
    await backend.execute("SendMessage")  # type: ignore[arg-type]
    SendMessage("url")  # type: ignore[call-arg]


def backends() -> None:
    account = Account(clock=VirtualClock(), region="eu-west-1")
    backend: Backend = account
    backend = account.within(region="us-east-1")
    backend = pumphouse.connect(region="eu-west-1")
    assert_type(pumphouse.connect(), HttpBackend)
    clocks: list[Clock] = [RealClock(), VirtualClock(), account.clock]
    print(backend, clocks)
    Account(region=1)  # type: ignore[arg-type]


async def sink(backend: Backend) -> None:
    async with Sink("orders.fifo", backend, batch_linger=0.01) as sink:
        assert_type(sink, Sink)
        assert_type(await sink.send({"id": 1}, group_id="a"), Receipt)
        assert_type((await sink.send(b"raw")).sequence_number, str | None)
    Sink("orders", backend, batch_lingers=1)  # type: ignore[call-arg]
    receipt = Receipt("id", "url")
    receipt.message_id = "other"  # type: ignore[misc]


app = App("orders")


@app.subscriber(Queue("orders.fifo"), concurrency=20, max_attempts=5, dead_letter="spent.fifo")
async def handle(order: Order, message: Message) -> Retry | None:
    assert_type(message.group_id, str | None)
    assert_type(message.headers, dict[str, str | bytes])
    return Retry(after=5) if message.attempt == 1 else None


@app.subscriber("plain")
def in_a_thread(body: bytes) -> None:
    print(body)


app.subscriber("orders", concurency=3)  # type: ignore[call-arg]
app.subscriber("orders", undecodable="ignore")  # type: ignore[arg-type]


async def service(backend: Backend, message: Message) -> None:
    assert_type(await handle(Order(1), message), Retry | None)
    await handle(1, message)  # type: ignore[arg-type]
    in_a_thread(b"body")
    async with app.running(backend) as running:
        assert_type(running.clock, Clock)
        assert_type(app.sink("replies"), Sink)


async def on_lambda(backend: Backend) -> None:
    assert_type(app.lambda_handler, LambdaHandler)
    assert_type(app.lambda_handler({}, None), dict[str, Any])
    assert_type(await LambdaHandler(app, backend).invoke({}), dict[str, Any])
    LambdaHandler(app, partial=False)  # type: ignore[call-arg]


async def leases(backend: Backend) -> None:
    transport: LeaseTransport[Order] = await LeaseTransport.create("steps", backend, events=Order)
    async with transport:
        await transport.publish("group", Order(1))
        await transport.publish("group", 1)  # type: ignore[arg-type]
        lease = await transport.claim("worker", visibility=30)
        assert_type(lease, Lease[Order] | None)
        if lease is not None:
            assert_type(lease.event, Order)
            await transport.ack(lease)


async def preflight(backend: Backend) -> None:
    findings = await check(app, backend)
    assert_type(findings, list[Finding])
    assert_type(findings[0].severity, Literal["error", "warning", "info"])
    assert_type(document(app, title="Shop"), dict[str, Any])
    document(app, titel="Shop")  # type: ignore[call-arg]
    assert_type(dumps(document(app), "yaml"), str)
    dumps(document(app), "xml")  # type: ignore[arg-type]
