"""CPU of confirmed sends, one `send` a message from 32 tasks, beside boto3, aiobotocore, fanferro.

    python bench/sink.py [--messages 16000] [--rounds 7]

Every message has a body of 512 bytes and two attributes, the same ones in all: what pumphouse has
learned of short attributes it keeps, so that such ones cost it less than new ones. pumphouse and
fanferro check the MD5s of both in each answer; boto3 and aiobotocore have no such check. The stub
runs in a process of its own; what is measured is the CPU of this one, all threads, in milliseconds
per 1,000 messages, and the requests that left it per message. The clients take turns in each round
(the others with a twentieth of the messages); the table shows medians, the best round, and how many
times pumphouse's median goes into the other's. `uvloop` is pumphouse on uvloop. What is not
installed is left out: fanferro takes Python 3.12.

`bare asyncio` calibrates: the same tasks wait for futures that are resolved in tens by the same
round trips, with bytes made beforehand and no work at all (`bare.py`). It is what this machine
charges anybody; figures of two machines can be compared as multiples of it at best.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import bare
from rounds import OURS, installed, interleaved
from stub import BODY, stub

TASKS = 32
SHARE = 20
"""The others send so much less: a share is enough of what takes so long."""
GOALS = {
    OURS: "at most 12, at most 0.105 requests",
    "boto3": "60x",
    "aiobotocore": "50x",
    "fanferro": "7x",
}
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret"}
QUEUE = "https://sqs.us-east-1.amazonaws.com/000000000000/bench"
ATTRIBUTES = {"event": "push", "tenant": "octo-org/octo-repo"}
BOTO_ATTRIBUTES = {
    name: {"DataType": "String", "StringValue": value} for name, value in ATTRIBUTES.items()
}


async def _from_tasks(send: Callable[[], Awaitable[Any]], messages: int) -> float:
    """CPU seconds of `messages` sends from 32 tasks."""

    async def task() -> None:
        for _ in range(messages // TASKS):
            await send()

    began = time.process_time()
    await asyncio.gather(*(task() for _ in range(TASKS)))
    return time.process_time() - began


async def _pumphouse(url: str, messages: int) -> tuple[float, float]:
    from pumphouse.http import HttpBackend, Keys
    from pumphouse.sink import Sink

    backend = HttpBackend(
        region="us-east-1", endpoint_url=url, credentials=Keys("AKIAEXAMPLE", "secret")
    )
    try:
        async with Sink(QUEUE, backend) as sink:
            await sink.send(BODY, attributes=ATTRIBUTES)

            async def send() -> None:
                await sink.send(BODY, attributes=ATTRIBUTES)

            before = sink.stats
            seconds = await _from_tasks(send, messages)
            after = sink.stats
        stored = after["stored"] - before["stored"]
        return seconds * 1e6 / stored, (after["requests"] - before["requests"]) / stored
    finally:
        await backend.aclose()


async def _aiobotocore(url: str, messages: int) -> tuple[float, float]:
    from aiobotocore.session import get_session

    async with get_session().create_client(
        "sqs", region_name="us-east-1", endpoint_url=url, **KEYS
    ) as client:

        async def send() -> None:
            await client.send_message(
                QueueUrl=QUEUE, MessageBody=BODY, MessageAttributes=BOTO_ATTRIBUTES
            )

        await send()
        messages = messages // TASKS * TASKS
        return (await _from_tasks(send, messages)) * 1e6 / messages, 1.0


def _boto3(url: str, messages: int) -> tuple[float, float]:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "sqs",
        region_name="us-east-1",
        endpoint_url=url,
        config=Config(max_pool_connections=TASKS),
        **KEYS,
    )

    def send(_: int) -> None:
        client.send_message(QueueUrl=QUEUE, MessageBody=BODY, MessageAttributes=BOTO_ATTRIBUTES)

    send(0)
    with ThreadPoolExecutor(TASKS) as threads:
        began = time.process_time()
        list(threads.map(send, range(messages)))
        return (time.process_time() - began) * 1e6 / messages, 1.0


async def _fanferro(url: str, messages: int) -> tuple[float, float]:
    import fanferro

    client = fanferro.Client(
        region="us-east-1",
        endpoint_url=url,
        credentials=fanferro.Credentials("AKIAEXAMPLE", "secret"),
        account_id="000000000000",
        verify_md5=True,
    )
    async with client:
        queue = client.queue(url=QUEUE)

        async def send() -> None:
            await queue.send(BODY, attributes=ATTRIBUTES)

        await send()
        messages = messages // TASKS * TASKS
        return (await _from_tasks(send, messages)) * 1e6 / messages, float("nan")


async def _bare(url: str, messages: int) -> tuple[float, float]:
    entry = {"MessageBody": BODY, "MessageAttributes": BOTO_ATTRIBUTES}
    entries = [{"Id": str(position)} | entry for position in range(10)]
    body = json.dumps({"QueueUrl": QUEUE, "Entries": entries}).encode()
    request = bare.raw_request("SendMessageBatch", body)
    return await bare.shared_round_trips(url, request, messages) * 1e6 / messages, 0.1


def _on_uvloop(url: str, messages: int) -> tuple[float, float]:
    import uvloop

    return uvloop.run(_pumphouse(url, messages))


Measured = Callable[[str, int], tuple[float, float]]
"""Milliseconds of CPU per 1,000 messages, and requests per message, for so many messages."""


def _in_loop(run: Callable[[str, int], Coroutine[Any, Any, tuple[float, float]]]) -> Measured:
    return lambda url, messages: asyncio.run(run(url, messages))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=16_000, help="of ours in each round")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    requests: dict[str, float] = {}
    peers = {
        "boto3": _boto3,
        "aiobotocore": _in_loop(_aiobotocore),
        "fanferro": _in_loop(_fanferro),
        "uvloop": _on_uvloop,
    }
    runs = {OURS: _in_loop(_pumphouse), **{name: peers[name] for name in installed(*peers)}}
    runs[bare.NAME] = _in_loop(_bare)
    with stub() as url:

        def measured(name: str) -> float:
            whole = name in (OURS, "uvloop", bare.NAME)
            count = arguments.messages if whole else max(TASKS, arguments.messages // SHARE)
            milliseconds, requests[name] = runs[name](url, count)
            return milliseconds

        results = interleaved({name: partial(measured, name) for name in runs}, arguments.rounds)
    print(f"\nCPU in ms per 1,000 messages: median (best) of {arguments.rounds} rounds\n")
    print("| client | CPU | requests per message | goal |")
    print("|---|---|---|---|")
    for name in runs:
        each = f"{requests[name]:.3f}" if requests.get(name, math.nan) > 0 else "not counted"
        print(f"| {name} | {results.cell(name)} | {each} | {GOALS.get(name, '')} |")


if __name__ == "__main__":
    main()
