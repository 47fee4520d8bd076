"""CPU of confirmed sends, one `send` a message from 32 tasks, beside boto3 and aiobotocore.

    python bench/sink.py [--messages 20000] [--rounds 3]

Every message has a body of 512 bytes and two attributes, and every client checks the MD5s. The stub
runs in a process of its own; what is measured is the CPU of this one, in milliseconds per 1,000
messages (the best of the rounds), and the requests that left it per message.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stub import BODY, stub

TASKS = 32
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


def measure(messages: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of CPU per 1,000 messages and requests per message, by client."""
    peers = max(TASKS, messages // 20)
    found: dict[str, tuple[float, float]] = {}

    def note(name: str, result: tuple[float, float]) -> None:
        found[name] = min(found.get(name, result), result)

    with stub() as url:
        for _ in range(rounds):
            note("pumphouse Sink", asyncio.run(_pumphouse(url, messages)))
            note("boto3", _boto3(url, peers))
            if importlib.util.find_spec("aiobotocore"):
                note("aiobotocore", asyncio.run(_aiobotocore(url, peers)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = measure(arguments.messages, arguments.rounds)
    ours = found["pumphouse Sink"][0]
    print(f"{'client':<16} {'CPU ms per 1,000':>16} {'requests each':>14} {'times ours':>11}")
    for name, (milliseconds, requests) in found.items():
        print(f"{name:<16} {milliseconds:>16.1f} {requests:>14.3f} {milliseconds / ours:>11.1f}")
    for name in ("aiobotocore",):
        if name not in found:
            print(f"{name} is not installed, and so not measured")


if __name__ == "__main__":
    main()
