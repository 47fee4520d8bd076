"""CPU of the wire client per 1,000 messages, beside boto3 and aiobotocore in the same run.

    python bench/client.py [--messages 4000] [--rounds 5]

Three jobs: a send of each message by itself, sends in batches of ten, and receives of ten with a
delete of the ten. Bodies of 512 bytes; the clients that check MD5s check them. The stub answers
from a process of its own, over loopback; what is measured is the CPU of this process, user and
system, in milliseconds per 1,000 messages. The clients take turns in each round; the table shows
medians, the best round, and how many times pumphouse's median goes into the other's. `uvloop` is
pumphouse on uvloop.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rounds import OURS, installed, interleaved
from stub import BODY, stub

TASKS = 32
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret"}
JOBS = ("send", "batch of ten", "receive + delete in tens")
GOALS = {"send": (25, 30), "batch of ten": (6, 15), "receive + delete in tens": (9, 20)}


def _calls(job: str, messages: int) -> int:
    return messages if job == "send" else messages // 10


async def _from_tasks(one: Callable[[], Awaitable[Any]], calls: int) -> float:
    """CPU seconds of `calls` calls from 32 tasks, after a few that warm up."""

    async def task(count: int) -> None:
        for _ in range(count):
            await one()

    await asyncio.gather(*(task(2) for _ in range(TASKS)))
    began = time.process_time()
    await asyncio.gather(*(task(calls // TASKS) for _ in range(TASKS)))
    return (time.process_time() - began) * calls / (calls // TASKS * TASKS)


async def pumphouse(url: str, job: str, messages: int) -> float:
    from pumphouse import Keys, connect
    from pumphouse.protocol.operations import (
        DeleteMessageBatch,
        DeleteMessageBatchRequestEntry,
        ReceiveMessage,
        SendMessage,
        SendMessageBatch,
        SendMessageBatchRequestEntry,
    )

    queue = f"{url}/000000000000/bench"
    async with connect(
        region="us-east-1", endpoint_url=url, credentials=Keys("AKIAEXAMPLE", "secret")
    ) as backend:

        async def send() -> None:
            await backend.execute(SendMessage(queue, BODY))

        async def batch() -> None:
            entries = [SendMessageBatchRequestEntry(str(n), BODY) for n in range(10)]
            await backend.execute(SendMessageBatch(queue, entries))

        async def receive() -> None:
            answer = await backend.execute(
                ReceiveMessage(queue, max_number_of_messages=10, wait_time_seconds=20)
            )
            entries = [
                DeleteMessageBatchRequestEntry(str(n), message.receipt_handle)
                for n, message in enumerate(answer.messages)
            ]
            await backend.execute(DeleteMessageBatch(queue, entries))

        one = dict(zip(JOBS, (send, batch, receive), strict=True))[job]
        return await _from_tasks(one, _calls(job, messages))


def boto3(url: str, job: str, messages: int) -> float:
    import boto3 as library

    sqs = library.client("sqs", region_name="us-east-1", endpoint_url=url, **KEYS)
    queue = f"{url}/000000000000/bench"

    def send() -> None:
        sqs.send_message(QueueUrl=queue, MessageBody=BODY)

    def batch() -> None:
        entries = [{"Id": str(n), "MessageBody": BODY} for n in range(10)]
        sqs.send_message_batch(QueueUrl=queue, Entries=entries)

    def receive() -> None:
        got = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=20)
        entries = [
            {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
            for n, message in enumerate(got["Messages"])
        ]
        sqs.delete_message_batch(QueueUrl=queue, Entries=entries)

    one = dict(zip(JOBS, (send, batch, receive), strict=True))[job]
    for _ in range(5):
        one()
    calls = max(20, _calls(job, messages) // 8)  # a share is enough of what takes so long
    began = time.process_time()
    for _ in range(calls):
        one()
    return (time.process_time() - began) * _calls(job, messages) / calls


async def aiobotocore(url: str, job: str, messages: int) -> float:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    queue = f"{url}/000000000000/bench"
    config = AioConfig(max_pool_connections=TASKS)
    async with get_session().create_client(
        "sqs", region_name="us-east-1", endpoint_url=url, config=config, **KEYS
    ) as sqs:

        async def send() -> None:
            await sqs.send_message(QueueUrl=queue, MessageBody=BODY)

        async def batch() -> None:
            entries = [{"Id": str(n), "MessageBody": BODY} for n in range(10)]
            await sqs.send_message_batch(QueueUrl=queue, Entries=entries)

        async def receive() -> None:
            got = await sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            entries = [
                {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
                for n, message in enumerate(got["Messages"])
            ]
            await sqs.delete_message_batch(QueueUrl=queue, Entries=entries)

        one = dict(zip(JOBS, (send, batch, receive), strict=True))[job]
        calls = max(64, _calls(job, messages) // 4)
        return await _from_tasks(one, calls) * _calls(job, messages) / calls


def _contenders() -> dict[str, Callable[[str, str, int], float]]:
    found: dict[str, Callable[[str, str, int], float]] = {
        OURS: lambda *arguments: asyncio.run(pumphouse(*arguments)),
    }
    for name in installed("boto3", "aiobotocore", "uvloop"):
        if name == "boto3":
            found[name] = boto3
        elif name == "aiobotocore":
            found[name] = lambda *arguments: asyncio.run(aiobotocore(*arguments))
        else:
            found[name] = _on_uvloop
    return found


def _on_uvloop(url: str, job: str, messages: int) -> float:
    import uvloop

    return uvloop.run(pumphouse(url, job, messages))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=4000, help="per client, job and round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    contenders = _contenders()
    with stub() as url:
        print("CPU in ms per 1,000 messages: median (best) of", options.rounds, "rounds\n")
        print("| job | " + " | ".join(contenders) + " | goal |")
        print("|---|" + "---|" * (len(contenders) + 1))
        for job in JOBS:

            def measured(run: Callable[[str, str, int], float], job: str = job) -> float:
                return run(url, job, options.messages) * 1e6 / options.messages

            runs = {name: partial(measured, run) for name, run in contenders.items()}
            results = interleaved(runs, options.rounds, 30)
            cells = [results.cell(name) for name in contenders]
            goal, ratio = GOALS[job]
            print(f"| {job} | " + " | ".join(cells) + f" | {goal}, {ratio}x boto3 |", flush=True)


if __name__ == "__main__":
    main()
