"""Many processes of `pumphouse run` over one `pumphouse serve`, stopped and killed at random.

`run_processes` starts an endpoint in a process of its own and so many workers, sends the messages,
and replaces each worker that it stops with SIGTERM or kills with SIGKILL. Each worker writes a line
for every message that it starts and one for every message that it is done with.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pumphouse.http import HttpBackend, Keys
from pumphouse.protocol.operations import (
    GetQueueAttributes,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)

SERVICE = """
import asyncio, os, random, sys
from contextlib import asynccontextmanager
from pumphouse import App, Message, Queue

app = App("worker", drain_seconds=2)
log = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

@app.lifespan
@asynccontextmanager
async def up(app):
    open(f"up-{{os.getpid()}}", "w").close()
    yield

@app.subscriber(Queue("work", wait_time_seconds=1, visibility_timeout={visibility}), concurrency=20)
async def handle(body: str, message: Message) -> None:
    os.write(log, f"start {{body}} {{message.receive_count}}\\n".encode())
    drawn = random.random()
    if drawn < 0.01:
        raise RuntimeError("now and then")
    if drawn < 0.2:
        await asyncio.sleep(random.uniform(0, 0.2))
    if drawn > 0.999:
        await asyncio.sleep(30)
    os.write(log, f"done {{body}}\\n".encode())
"""


@dataclass
class Result:
    """What came of it. `first_done` is when each message was first done, by its number."""

    sent: int
    done: Counter[str] = field(default_factory=Counter)
    exits: Counter[int] = field(default_factory=Counter)
    left: int = 0
    terminated: int = 0
    killed: int = 0
    killed_pids: set[int] = field(default_factory=set)
    seconds: float = 0.0

    @property
    def lost(self) -> list[str]:
        return [str(number) for number in range(self.sent) if str(number) not in self.done]


def _environment(ledger: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LEDGER": str(ledger),
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def run_processes(
    folder: Path,
    *,
    processes: int,
    messages: int,
    seconds: float,
    kill: bool,
    visibility: int,
    seed: int,
    service: str = SERVICE,
    bodies: Sequence[str] = (),
) -> Result:
    """Run them for about so many seconds, then until nothing is left, at most ten times as long.

    `bodies` are what the messages say, otherwise they are numbered.
    """
    rng = random.Random(seed)
    ledger = folder / "ledger"
    ledger.touch()
    (folder / "service.py").write_text(service.format(visibility=visibility))
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "pumphouse"]
    result = Result(messages)
    workers: list[subprocess.Popen[bytes]] = []
    logs = (folder / "log").open("ab")

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, "run", "service:app", "--endpoint-url", url, "--log-level", "error"],
            cwd=folder,
            env=_environment(ledger),
            stderr=logs,
        )

    server = subprocess.Popen(  # noqa: ASYNC220
        [*command, "serve", "--host", "127.0.0.1", "--port", str(port), "--queue", "work"],
        env=_environment(ledger),
        stdout=subprocess.DEVNULL,
        stderr=logs,
    )
    backend = HttpBackend(
        region="us-east-1", endpoint_url=url, credentials=Keys("AKIAEXAMPLE", "secret")
    )
    try:
        await _listening(port)
        began = time.monotonic()
        queue = f"{url}/000000000000/work"
        texts = bodies or [str(number) for number in range(messages)]
        feeding = asyncio.create_task(_feed(backend, queue, texts, seconds * 0.6))

        async def lives() -> None:
            """One place: a worker that is stopped once it is up, and the next one after it."""
            while time.monotonic() - began < seconds:
                worker = start()
                workers.append(worker)
                await _until_up(folder, worker)
                await asyncio.sleep(rng.uniform(0.5, 4))
                if kill and rng.random() < 0.5:
                    worker.send_signal(signal.SIGKILL)
                    result.killed += 1
                    result.killed_pids.add(worker.pid)
                else:
                    worker.send_signal(signal.SIGTERM)
                    result.terminated += 1
                    if rng.random() < 0.2:
                        await asyncio.sleep(0.3)
                        worker.send_signal(signal.SIGTERM)
                result.exits[await asyncio.to_thread(worker.wait, 60)] += 1

        async with asyncio.TaskGroup() as places:
            for _ in range(processes):
                places.create_task(lives())
        last = [start() for _ in range(processes)]
        workers.extend(last)
        for worker in last:
            await _until_up(folder, worker)
        await feeding
        while time.monotonic() - began < 10 * seconds:
            result.left = await _left(backend, queue)
            if not result.left:
                break
            await asyncio.sleep(0.5)
        result.seconds = time.monotonic() - began
        for worker in last:
            worker.send_signal(signal.SIGTERM)
        for worker in last:
            result.exits[await asyncio.to_thread(worker.wait, 60)] += 1
    finally:
        await backend.aclose()
        for process in (*workers, server):
            if process.poll() is None:
                process.kill()
            process.wait(30)
        logs.close()
    for line in ledger.read_text().splitlines():
        what, body, *_ = line.split()
        if what == "done":
            result.done[body] += 1
    return result


async def _until_up(folder: Path, worker: subprocess.Popen[bytes]) -> None:
    for _ in range(1_200):
        if (folder / f"up-{worker.pid}").exists():
            return
        assert worker.poll() is None, f"a worker ended with {worker.returncode}"
        await asyncio.sleep(0.05)
    raise TimeoutError("a worker does not start")


async def _listening(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            await writer.wait_closed()
            return
    raise TimeoutError("the endpoint does not listen")


async def _feed(backend: HttpBackend, queue: str, texts: Sequence[str], seconds: float) -> None:
    began = time.monotonic()
    for first in range(0, len(texts), 10):
        entries = [
            SendMessageBatchRequestEntry(str(place), text)
            for place, text in enumerate(texts[first : first + 10])
        ]
        answer = await backend.execute(SendMessageBatch(queue, entries))
        assert not answer.failed
        ahead = first / len(texts) * seconds - (time.monotonic() - began)
        if ahead > 0:
            await asyncio.sleep(ahead)


async def _left(backend: HttpBackend, queue: str) -> int:
    answer = await backend.execute(GetQueueAttributes(queue, ["All"]))
    return sum(
        int(answer.attributes[f"ApproximateNumberOfMessages{part}"])
        for part in ("", "NotVisible", "Delayed")
    )
