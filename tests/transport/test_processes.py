"""Real processes over `pumphouse serve`, killed at random, judged by their ledgers from outside."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from pumphouse import LeaseTransport
from pumphouse.http import connect
from pumphouse.protocol.operations import GetQueueAttributes
from pumphouse.protocol.sigv4 import Keys
from support.serve_process import serve

WORKER = Path(__file__).parents[1] / "support" / "lease_worker.py"
KEYS = Keys("any", "any")


class Line(NamedTuple):
    """A line of a worker's ledger; `file` is which worker's."""

    at: int
    kind: str
    group: str
    number: int
    file: str


class Held(NamedTuple):
    """A time in which a worker had a message: until it was done, or dead."""

    start: int
    end: int
    number: int


class Crew:
    """Four workers; one that dies is replaced by a new one."""

    def __init__(self, url: str, folder: Path, visibility: int, tasks: int) -> None:
        self.url, self.folder, self.visibility, self.tasks = url, folder, visibility, tasks
        self.workers: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.died_at: dict[str, int] = {}
        self.started = 0
        for _ in range(4):
            self.hire()

    def hire(self) -> None:
        self.started += 1
        ledger = self.folder / f"worker-{self.started}"
        arguments = [self.url, "jobs", str(ledger), str(self.visibility), str(self.tasks)]
        process = subprocess.Popen([sys.executable, str(WORKER), *arguments])
        self.workers.append((process, ledger))

    def kill_one(self, rng: random.Random) -> None:
        process, ledger = self.workers.pop(rng.randrange(len(self.workers)))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        self.died_at[ledger.name] = time.monotonic_ns()
        self.hire()

    def lines(self) -> list[Line]:
        found = []
        for ledger in self.folder.iterdir():
            for text in ledger.read_text().splitlines():
                at, kind, group, number = text.split()
                found.append(Line(int(at), kind, group, int(number), ledger.name))
        return sorted(found)

    def dismiss(self) -> None:
        end = time.monotonic() + 30
        for process, ledger in self.workers:
            while not ledger.exists() and time.monotonic() < end:  # it does not know the signal yet
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        for process, _ in self.workers:
            assert process.wait(30) == 0

    def end(self) -> None:
        for process, _ in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait(10)


async def publish(url: str, groups: int, each: int) -> None:
    async with await LeaseTransport.create(
        "jobs", region="us-east-1", endpoint_url=url, credentials=KEYS
    ) as transport:

        async def publish_one_group(group: str) -> None:
            for number in range(each):
                await transport.publish(group, number)

        await asyncio.gather(*(publish_one_group(f"g{index}") for index in range(groups)))


async def left_over(url: str) -> int:
    """How many messages the queue still has, visible or in flight."""
    backend = connect(region="us-east-1", endpoint_url=url, credentials=KEYS)
    try:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        queue_url = f"{url}/000000000000/jobs.fifo"
        answer = await backend.execute(GetQueueAttributes(queue_url, names))
        return sum(int(count) for count in answer.attributes.values())
    finally:
        await backend.aclose()


def holdings(lines: list[Line], died_at: dict[str, int]) -> dict[str, list[Held]]:
    """By group, each time that a message was in a worker's hands, in the order of their starts."""
    ends: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for line in lines:
        if line.kind == "E":
            ends[line.file, line.group, line.number].append(line.at)
    held: dict[str, list[Held]] = defaultdict(list)
    for line in lines:
        if line.kind == "S":
            own = ends[line.file, line.group, line.number]
            end = own.pop(0) if own else died_at[line.file]
            held[line.group].append(Held(line.at, end, line.number))
    return held


def judge(lines: list[Line], died_at: dict[str, int], groups: int, each: int) -> None:
    held = holdings(lines, died_at)
    assert len(held) == groups
    for group, times in held.items():
        for before, after in pairwise(times):
            assert before.end <= after.start, f"{group}: {before} and {after} at once"
            assert after.number in (before.number, before.number + 1), f"{group}: {before} {after}"
        assert (times[0].number, times[-1].number) == (0, each - 1), group
    acked = {(line.group, line.number) for line in lines if line.kind == "A"}
    last = {(line.group, line.number): line for line in lines if line.kind in "SE"}
    for event, line in last.items():
        # Without a confirmation only where the worker died between asking for it and hearing it.
        assert event in acked or (line.kind == "E" and line.file in died_at), event


@pytest.mark.parametrize(
    ("groups", "each", "kills", "visibility"),
    [
        pytest.param(20, 20, 2, 2, id="small"),
        pytest.param(200, 100, 25, 8, id="full", marks=pytest.mark.soak),
    ],
)
def test_every_event_is_acked_alone_and_in_order_whoever_is_killed(
    tmp_path: Path, groups: int, each: int, kills: int, visibility: int
) -> None:
    rng = random.Random(7)
    started = time.monotonic()
    with serve() as url:
        crew = Crew(url, tmp_path, visibility, tasks=16)
        try:
            publishing = subprocess.Popen(
                [sys.executable, __file__, url, str(groups), str(each)],
                env={**os.environ, "PYTHONPATH": str(WORKER.parents[1])},
            )
            for _ in range(kills):
                time.sleep(rng.uniform(0.3, 1.2))
                crew.kill_one(rng)
            assert publishing.wait(240) == 0
            deadline = time.monotonic() + 240
            while asyncio.run(left_over(url)):
                assert time.monotonic() < deadline, "not done in time"
                time.sleep(0.2)
            crew.dismiss()
        finally:
            crew.end()
    lines = crew.lines()
    judge(lines, crew.died_at, groups, each)
    took = time.monotonic() - started
    again = sum(line.kind == "S" for line in lines) - groups * each
    print(f"{groups * each} events in {took:.1f}s, {kills} kills, {again} delivered again")


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
