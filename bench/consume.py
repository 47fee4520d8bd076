"""CPU of consuming: the whole runtime with an async no-op handler, beside aiobotocore and fanferro.

    python bench/consume.py [--messages 20000] [--rounds 5]

The runtime keeps leases, settles in confirmed batches and runs 32 handlers at once; so does
fanferro's consumer, with its heartbeats on. aiobotocore's is a plain loop: it receives ten,
"handles" them, deletes them in one batch, and does nothing else. Bodies are 512 bytes. The stub
runs in a process of its own; what is measured is the CPU of this one, all threads, in milliseconds
per 1,000 messages, and the receive and delete requests per message. They take turns in each round
(aiobotocore with a tenth of the messages); the table shows medians, the best round, and how many
times pumphouse's median goes into the other's.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rounds import OURS, installed, interleaved
from stub import stub

KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret"}
CONCURRENCY = 32
QUEUE = "https://sqs.us-east-1.amazonaws.com/000000000000/bench"
GOALS = {
    OURS: "at most 18, at most 0.205 requests",
    "aiobotocore": "8x",
    "fanferro": "1.7x",
}
Found = tuple[float, float]
"""Milliseconds of CPU per 1,000 messages, and requests per message (nan where not counted)."""


async def _pumphouse(url: str, messages: int) -> Found:
    from pumphouse import App
    from pumphouse.http import HttpBackend, Keys

    app = App("bench", drain_seconds=5)
    handled = 0
    done = asyncio.Event()

    @app.subscriber("bench", concurrency=CONCURRENCY)
    async def handle(body: str) -> None:
        nonlocal handled
        handled += 1
        if handled >= messages:
            done.set()

    backend = HttpBackend(
        region="us-east-1", endpoint_url=url, credentials=Keys("AKIAEXAMPLE", "secret")
    )
    try:
        began = time.process_time()
        async with app.running(backend) as running:
            await asyncio.wait_for(done.wait(), 600)
            (consumer,) = running.consumers
        seconds = time.process_time() - began
        stats = consumer.stats
        if stats.deleted + stats.released != stats.received or stats.settle_failed:
            raise RuntimeError(f"not everything was settled: {stats}")
        requests = consumer.pump.requests + consumer.exits.settlement.requests
        return seconds * 1e6 / stats.deleted, requests / stats.deleted
    finally:
        await backend.aclose()


async def _aiobotocore(url: str, messages: int) -> Found:
    from aiobotocore.session import get_session

    queue = f"{url}/000000000000/bench"
    async with get_session().create_client(
        "sqs", region_name="us-east-1", endpoint_url=url, **KEYS
    ) as client:
        handled = requests = 0

        async def loop() -> None:
            nonlocal handled, requests
            while handled < messages:
                answer = await client.receive_message(
                    QueueUrl=queue,
                    MaxNumberOfMessages=10,
                    WaitTimeSeconds=20,
                    MessageAttributeNames=["All"],
                    MessageSystemAttributeNames=["All"],
                )
                entries = [
                    {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]}
                    for place, each in enumerate(answer["Messages"])
                ]
                await client.delete_message_batch(QueueUrl=queue, Entries=entries)
                handled += len(entries)
                requests += 2

        began = time.process_time()
        await asyncio.gather(*(loop() for _ in range(4)))
        return (time.process_time() - began) * 1e6 / handled, requests / handled


async def _fanferro(url: str, messages: int) -> Found:
    import fanferro

    client = fanferro.Client(
        region="us-east-1",
        endpoint_url=url,
        credentials=fanferro.Credentials("AKIAEXAMPLE", "secret"),
        account_id="000000000000",
    )
    handled = 0
    done = asyncio.Event()

    async def handle(body: bytes) -> None:
        nonlocal handled
        handled += 1
        if handled >= messages:
            done.set()

    async with client:
        consumer = client.consumer(client.queue(url=QUEUE), handle, concurrency=CONCURRENCY)
        began = time.process_time()
        await consumer.start()
        await asyncio.wait_for(done.wait(), 600)
        await consumer.stop()
        return (time.process_time() - began) * 1e6 / handled, float("nan")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runs: dict[str, tuple[Callable[[str, int], Coroutine[Any, Any, Found]], int]] = {
        OURS: (_pumphouse, options.messages),
        "aiobotocore": (_aiobotocore, options.messages // 10),
        "fanferro": (_fanferro, options.messages),
    }
    requests: dict[str, float] = {}
    with stub() as url:

        def turn(name: str) -> float:
            run, messages = runs[name]
            taken, requests[name] = asyncio.run(run(url, messages))
            return taken

        names = [OURS, *installed("aiobotocore", "fanferro")]
        for name in names:  # imports and first connections are nobody's cost per message
            if name != OURS:
                asyncio.run(runs[name][0](url, 200))
        results = interleaved(
            {name: (lambda name=name: turn(name)) for name in names},  # type: ignore[misc]
            options.rounds,
        )
    print()
    print("CPU in ms per 1,000 messages: median (best)", end=" ")
    print(f"of {len(results.taken[OURS])} rounds")
    print()
    print("| client | CPU | requests per message | goal |")
    print("|---|---|---|---|")
    for name in names:
        counted = requests.get(name, float("nan"))
        shown = "not counted" if counted != counted else f"{counted:.4f}"
        print(f"| {name} | {results.cell(name)} | {shown} | {GOALS[name]} |")


if __name__ == "__main__":
    main()
