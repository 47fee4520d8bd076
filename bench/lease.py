"""Events a second and requests per event of the lease transport, beside harel's own.

    python bench/lease.py [--events 3000] [--groups 256] [--workers 1,8,64] [--rounds 3]

One `pumphouse serve` process on 127.0.0.1 serves them all, in one run, in turn. Workers do nothing
with an event: claim, ack, again. Counted is what they ask of the endpoint from the first claim to
the last ack; publishing is not. harel's sync transport works in threads over boto3, its async one
in tasks over aioboto3, which is measured where it is installed (`make .venv/.aioboto3`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harel.engine.transport import SqsTransport
from harel.spec.states import Event

from pumphouse.http import HttpBackend, connect
from pumphouse.integrations.harel import AsyncHarelTransport
from pumphouse.protocol.sigv4 import Keys
from pumphouse.transport import LeaseTransport

EVENT = Event(kind="measured", data={"customer": "c-17", "amount": 1299})


@dataclass
class Count:
    """What one run took."""

    events: int
    acked: int = 0
    requests: int = 0
    started: float = 0.0
    ended: float = 0.0
    asked: int = 0

    def start(self) -> None:
        self.started, self.requests = time.perf_counter(), 0

    def ack(self) -> bool:
        """An event is done; whether it was the last."""
        self.acked += 1
        if self.acked == self.events:
            self.ended, self.asked = time.perf_counter(), self.requests
        return self.acked >= self.events

    @property
    def rate(self) -> float:
        return self.events / (self.ended - self.started)

    @property
    def requests_per_event(self) -> float:
        return self.asked / self.events


class Counting:
    """A backend that counts."""

    def __init__(self, backend: HttpBackend, count: Count) -> None:
        self.backend, self.count, self.clock = backend, count, backend.clock

    async def execute(self, operation: Any) -> Any:
        self.count.requests += 1
        return await self.backend.execute(operation)

    async def aclose(self) -> None:
        await self.backend.aclose()


async def in_tasks(transport: Any, count: Count, workers: int) -> None:
    done = asyncio.Event()

    async def work(name: str) -> None:
        while not done.is_set():
            lease = await transport.claim(name, 30)
            if lease is not None:
                await transport.ack(lease)
                if count.ack():
                    done.set()

    count.start()
    await asyncio.gather(*(work(f"w{index}") for index in range(workers)))


async def ours(url: str, queue: str, count: Count, workers: int, *, coalesce: bool) -> None:
    backend = Counting(backend_at(url), count)
    transport = await AsyncHarelTransport.create(
        queue_name=queue, backend=backend, coalesce=coalesce
    )
    try:
        await in_tasks(transport, count, workers)
    finally:
        await transport.close()
        await backend.aclose()


async def harel_aioboto3(url: str, queue: str, count: Count, workers: int) -> None:
    from harel.engine.aio_transport import AsyncSqsTransport

    transport = await AsyncSqsTransport.create(url, queue)
    transport._sqs.meta.events.register("before-call.sqs", lambda **_: counted(count))
    try:
        await in_tasks(transport, count, workers)
    finally:
        await transport.close()


async def harel_boto3(url: str, queue: str, count: Count, workers: int) -> None:
    transport = SqsTransport.create(url, queue)
    # harel leaves boto3's pool at 10 connections; give it one for each worker.
    import boto3
    from botocore.config import Config

    transport._sqs = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(max_pool_connections=max(10, workers)),
    )
    lock = threading.Lock()

    def asked(**_: Any) -> None:
        with lock:
            counted(count)

    transport._sqs.meta.events.register("before-call.sqs", asked)
    done = threading.Event()

    def work(name: str) -> None:
        while not done.is_set():
            lease = transport.claim(name, 30)
            if lease is not None:
                transport.ack(lease)
                with lock:
                    last = count.ack()
                if last:
                    done.set()

    threads = [threading.Thread(target=work, args=(f"w{index}",)) for index in range(workers)]
    count.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    transport.close()


def counted(count: Count) -> None:
    count.requests += 1


def backend_at(url: str) -> HttpBackend:
    return connect(region="us-east-1", endpoint_url=url, credentials=Keys("any", "any"))


async def publish(url: str, queue: str, events: int, groups: int) -> None:
    backend = backend_at(url)
    transport = await LeaseTransport[Event].create(queue, backend, events=Event)

    async def one_group(index: int) -> None:
        for _ in range(index, events, groups):
            await transport.publish(f"g{index}", EVENT)

    await asyncio.gather(*(one_group(index) for index in range(groups)))
    await transport.close()
    await backend.aclose()


Run = Callable[[str, str, Count, int], Awaitable[None]]


def contestants() -> dict[str, Run]:
    found: dict[str, Run] = {
        "pumphouse, coalesced": lambda *a: ours(*a, coalesce=True),
        "pumphouse, plain": lambda *a: ours(*a, coalesce=False),
        "harel on boto3 (threads)": harel_boto3,
    }
    apart = Path(__file__).parents[1] / ".venv" / "aioboto3"  # see the Makefile
    if not importlib.util.find_spec("aioboto3") and apart.is_dir():
        sys.path.insert(0, str(apart))
    if importlib.util.find_spec("aioboto3"):
        found["harel on aioboto3 (tasks)"] = harel_aioboto3
    else:
        print("aioboto3 is not installed: harel's async transport is left out", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=3000)
    parser.add_argument("--groups", type=int, default=256)
    parser.add_argument("--workers", default="1,8,64")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [sys.executable, "-m", "pumphouse", "serve", "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        measure(url, options)
    finally:
        server.terminate()
        server.communicate(timeout=30)


def measure(url: str, options: argparse.Namespace) -> None:
    print(f"{options.events} events in {options.groups} groups, median of {options.rounds}")
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores shared with the endpoint\n")
    print(f"{'':28} {'workers':>7} {'events/s':>9} {'(range)':>13} {'requests/event':>15}")
    number = 0
    for workers in map(int, options.workers.split(",")):
        counts: dict[str, list[Count]] = {}
        for _ in range(options.rounds):
            for name, run in contestants().items():
                number += 1
                queue = f"lease-{number}"
                asyncio.run(publish(url, queue, options.events, options.groups))
                count = Count(options.events)
                asyncio.run(run(url, queue, count, workers))
                counts.setdefault(name, []).append(count)
        for name, runs in counts.items():
            rates = sorted(count.rate for count in runs)
            asked = statistics.median(count.requests_per_event for count in runs)
            spread = f"{rates[0]:.0f}-{rates[-1]:.0f}"
            print(
                f"{name:28} {workers:>7} {statistics.median(rates):>9.0f} {spread:>13} "
                f"{asked:>15.2f}",
                flush=True,
            )
        print()


if __name__ == "__main__":
    main()
