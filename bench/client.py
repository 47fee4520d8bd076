"""CPU of the wire client per 1,000 messages, beside boto3, aiobotocore and fanferro in one run.

    python bench/client.py [--messages 4000] [--rounds 5]

Three jobs: a send of each message by itself, sends in batches of ten, and receives of ten with a
delete of the ten. Bodies of 512 bytes. Nobody here checks MD5s: boto3 and aiobotocore can't,
fanferro's option is left off, and pumphouse's checks are in the layers above its wire client
(`sink.py` measures with them). fanferro receives in a consumer only, which `consume.py` measures.
The stub answers from a process of its own, over loopback; what is measured is the CPU of this
process, all threads, user and system, in milliseconds per 1,000 messages. boto3 makes its calls one
after another, the others from 32 tasks. The clients take turns in each round; the table shows
medians, the best round, and how many times pumphouse's median goes into the other's. `uvloop` is
pumphouse on uvloop.

`bare asyncio` calibrates: the same round trips from the same tasks, with bytes made beforehand and
no work at all (`bare.py`). It is what this machine charges anybody; figures of two machines can be
compared as multiples of it at best.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import bare
from rounds import OURS, installed, interleaved
from stub import BODY, stub

TASKS = 32
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret"}
JOBS = ("send", "batch of ten", "receive + delete in tens")
ABSENT = {("fanferro", JOBS[2]): "a consumer only"}
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


async def fanferro(url: str, job: str, messages: int) -> float:
    import fanferro as library

    client = library.Client(
        region="us-east-1",
        endpoint_url=url,
        credentials=library.Credentials("AKIAEXAMPLE", "secret"),
        account_id="000000000000",
    )
    async with client:
        queue = client.queue(url=f"{url}/000000000000/bench")

        async def send() -> None:
            await queue.send(BODY)

        async def batch() -> None:
            await queue.send_batch([BODY] * 10)

        one = dict(zip(JOBS, (send, batch), strict=False))[job]
        calls = max(64, _calls(job, messages) // 2)
        return await _from_tasks(one, calls) * _calls(job, messages) / calls


async def bare_asyncio(url: str, job: str, messages: int) -> float:
    from pumphouse.protocol.operations import (
        DeleteMessageBatch,
        DeleteMessageBatchRequestEntry,
        ReceiveMessage,
        SendMessage,
        SendMessageBatch,
        SendMessageBatchRequestEntry,
    )
    from pumphouse.protocol.sqs_json import encode_request

    queue = f"{url}/000000000000/bench"
    sends = [SendMessageBatchRequestEntry(str(n), BODY) for n in range(10)]
    deletes = [DeleteMessageBatchRequestEntry(str(n), "AQEB" + "h" * 181) for n in range(10)]
    operations: dict[str, list[Any]] = {
        "send": [SendMessage(queue, BODY)],
        "batch of ten": [SendMessageBatch(queue, sends)],
        "receive + delete in tens": [
            ReceiveMessage(queue, max_number_of_messages=10, wait_time_seconds=20),
            DeleteMessageBatch(queue, deletes),
        ],
    }
    requests = [
        bare.raw_request(operation.action, encode_request(operation)[1])
        for operation in operations[job]
    ]
    return await bare.round_trips(url, requests, _calls(job, messages))


def _contenders() -> dict[str, Callable[[str, str, int], float]]:
    peers: dict[str, Callable[[str, str, int], float]] = {
        "boto3": boto3,
        "aiobotocore": _in_loop(aiobotocore),
        "fanferro": _in_loop(fanferro),
        "uvloop": _on_uvloop,
    }
    found = {OURS: _in_loop(pumphouse), **{name: peers[name] for name in installed(*peers)}}
    return found | {bare.NAME: _in_loop(bare_asyncio)}


def _in_loop(
    run: Callable[[str, str, int], Coroutine[Any, Any, float]],
) -> Callable[[str, str, int], float]:
    return lambda *arguments: asyncio.run(run(*arguments))


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

            runs = {
                name: partial(measured, run)
                for name, run in contenders.items()
                if (name, job) not in ABSENT
            }
            results = interleaved(runs, options.rounds, 30)
            results.missing |= {name: why for (name, at), why in ABSENT.items() if at == job}
            cells = [results.cell(name) for name in contenders]
            goal, ratio = GOALS[job]
            print(f"| {job} | " + " | ".join(cells) + f" | {goal}, {ratio}x boto3 |", flush=True)


if __name__ == "__main__":
    main()
