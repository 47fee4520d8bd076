"""The endpoint as what it also is: an ASGI application, under uvicorn's own HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from pumphouse.account import Account
from pumphouse.protocol.operations import CreateQueue, GetQueueAttributes, SendMessage
from pumphouse.server.asgi import Application
from pumphouse.server.runner import bind
from pumphouse.server.wire import Endpoint
from support.raw_http import ask, connect, post

URL = "http://127.0.0.1/000000000000/plain"
POLL = post({"QueueUrl": URL, "WaitTimeSeconds": 20}, target="AmazonSQS.ReceiveMessage")


@asynccontextmanager
async def _hosted(endpoint: Endpoint) -> AsyncIterator[int]:
    socket = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        Application(endpoint), lifespan="on", log_config=None, http="httptools", ws="none"
    )
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([socket]))
        yield socket.getsockname()[1]
        endpoint.stop()
        server.should_exit = True


def _no_signals():  # type: ignore[no-untyped-def]
    from contextlib import nullcontext

    return nullcontext()


async def test_requests_health_and_a_body_that_is_too_large() -> None:
    account = Account()
    await account.execute(CreateQueue("plain"))
    async with _hosted(Endpoint(account, max_body_bytes=1000)) as port:
        send = post({"QueueUrl": URL, "MessageBody": "x"}, target="AmazonSQS.SendMessage")
        async with connect(port) as connection:
            await connection.send(send + send)
            assert [(await connection.answer()).status for _ in range(2)] == [200, 200]
        assert (await ask(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200
        form = post(f"Action=GetQueueUrl&QueueName=plain&Pad={'x' * 900}")
        made = await ask(port, form)
        assert f"<QueueUrl>{URL}</QueueUrl>" in made.body.decode()
        large = await ask(port, post({"QueueUrl": "x" * 1000}, target="AmazonSQS.SendMessage"))
        assert (large.status, large.headers["connection"]) == (413, "close")


async def test_a_client_that_leaves_its_poll_takes_no_message() -> None:
    account = Account()
    await account.execute(CreateQueue("plain"))
    endpoint = Endpoint(account)
    async with _hosted(endpoint) as port:
        async with connect(port) as connection:
            await connection.send(POLL)
            async with asyncio.timeout(10):
                while not endpoint.parked:  # noqa: ASYNC110 - the server's state
                    await asyncio.sleep(0.005)
                connection.abort()
                while endpoint.parked:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        await account.execute(SendMessage(URL, "for someone who is there"))
        counts = await account.execute(GetQueueAttributes(URL, ["All"]))
        assert counts.attributes["ApproximateNumberOfMessages"] == "1"


async def test_stopping_answers_a_parked_poll() -> None:
    account = Account()
    await account.execute(CreateQueue("plain"))
    endpoint = Endpoint(account)
    async with _hosted(endpoint) as port, connect(port) as connection:
        await connection.send(POLL)
        async with asyncio.timeout(10):
            while not endpoint.parked:  # noqa: ASYNC110 - the server's state
                await asyncio.sleep(0.005)
        endpoint.stop()
        assert (await connection.answer()).json() == {}
