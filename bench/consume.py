"""CPU of consuming: the whole runtime with an async no-op handler, beside aiobotocore's plain loop.

    python bench/consume.py [--messages 50000] [--rounds 3]

The runtime keeps leases, settles in confirmed batches and runs 32 handlers at once; the plain loop
receives ten, "handles" them and deletes them in one batch, and nothing else. Bodies are 512 bytes.
The stub runs in a process of its own; what is measured is the CPU of this one, in milliseconds per
1,000 messages (the best of the rounds), and the receive and delete requests per message.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import time

from stub import stub

KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "secret"}
CONCURRENCY = 32
LIMIT_MS, LIMIT_REQUESTS = 18.0, 0.205


async def _pumphouse(url: str, messages: int) -> tuple[float, float]:
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


async def _aiobotocore(url: str, messages: int) -> tuple[float, float]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best: dict[str, tuple[float, float]] = {}
    with stub() as url:
        for _ in range(options.rounds):
            for name, run, messages in (
                ("pumphouse", _pumphouse, options.messages),
                ("aiobotocore", _aiobotocore, options.messages // 10),
            ):
                if name != "pumphouse" and not importlib.util.find_spec(name):
                    continue
                found = asyncio.run(run(url, messages))
                best[name] = min(found, best.get(name, found))
    print("client        CPU ms per 1,000 messages   receive+delete requests per message")
    for name, (ms, requests) in best.items():
        print(f"{name:<14}{ms:>25.1f}   {requests:>35.4f}")
    if "aiobotocore" in best:
        print(
            f"aiobotocore costs {best['aiobotocore'][0] / best['pumphouse'][0]:.1f} times as much"
        )
    else:
        print(
            "aiobotocore is not installed (pip install 'pumphouse[bench]'), so it is not beside it"
        )
    ms, requests = best["pumphouse"]
    print(f"limits: {LIMIT_MS} ms ({'met' if ms <= LIMIT_MS else 'MISSED'}), ", end="")
    print(f"{LIMIT_REQUESTS} requests ({'met' if requests <= LIMIT_REQUESTS else 'MISSED'})")


if __name__ == "__main__":
    main()
