"""The served endpoint beside other SQS emulators: throughput, and the server's CPU per request.

    python bench/server.py [--seconds 3] [--rounds 3] [--backlogs 1250 100000] [--only NAME ...]

Each server runs in a process of its own on 127.0.0.1, and gets the same JSON requests from the same
generator over the same number of kept connections (moto closes each, so it is connected to anew).
With as many messages in the queue as the backlog says, three loads are measured: one message a
request; ten a request; and a cycle of three requests in tens (send, receive, delete) that leaves
the backlog as it was. pumphouse runs as its extra `server` installs it, on uvloop, and on asyncio.
Throughput is requests a second, the best of the rounds; CPU is what the server's processes used, in
microseconds per request, the least of the rounds.

Compared are moto's server, ministack (`pip install ministack` in an environment of its own, and its
command on PATH or in BENCH_MINISTACK) and fauxqs 1.9 (`npm install fauxqs@1.9`, and the folder that
holds `node_modules` as the working directory or in BENCH_FAUXQS). What is not there is left out,
and the output says so.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BODY = "x" * 200
CONNECTIONS = 16
FILL_SECONDS = 120.0
"""How long filling a queue may take before the server is left out of that backlog."""
LOOK_SECONDS = 5.0
"""How long a server is watched filling, to tell how long the whole would take."""
START_SECONDS = 60.0
ENOUGH = 100
"""Fewer answers than these make no figure."""

Script = Generator[bytes, bytes, None]


# --- requests -----------------------------------------------------------------------------------


def _request(port: int, action: str, document: dict[str, Any]) -> bytes:
    body = json.dumps(document).encode()
    head = (
        "POST / HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Content-Type: application/x-amz-json-1.0\r\n"
        f"X-Amz-Target: AmazonSQS.{action}\r\n"
        "User-Agent: bench\r\n"
        "X-Amz-Date: 20260101T000000Z\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-east-1/sqs/"
        "aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, "
        f"Signature={'0' * 64}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Loads:
    """The scripts of one server's queue; a script yields requests and is sent the answers."""

    port: int
    url: str

    def one_by_one(self) -> Script:
        request = _request(self.port, "SendMessage", {"QueueUrl": self.url, "MessageBody": BODY})
        while True:
            yield request

    def in_tens(self, batches: Iterator[None] | None = None) -> Script:
        request = self._send_ten()
        while batches is None or next(batches, False) is None:
            yield request

    def cycle(self) -> Script:
        send = self._send_ten()
        receive = _request(
            self.port, "ReceiveMessage", {"QueueUrl": self.url, "MaxNumberOfMessages": 10}
        )
        while True:
            yield send
            messages = json.loads((yield receive)).get("Messages", [])
            if messages:
                entries = [
                    {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                    for number, message in enumerate(messages)
                ]
                document = {"QueueUrl": self.url, "Entries": entries}
                yield _request(self.port, "DeleteMessageBatch", document)

    def _send_ten(self) -> bytes:
        entries = [{"Id": str(number), "MessageBody": BODY} for number in range(10)]
        return _request(self.port, "SendMessageBatch", {"QueueUrl": self.url, "Entries": entries})


# --- the generator ------------------------------------------------------------------------------


class _Failed(Exception):
    """A server answered with an error, or not at all."""


@dataclass
class _Run:
    """What all connections of one measurement share."""

    port: int
    answers: int = 0
    open: int = 0
    stopped: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    failure: str = ""

    def fail(self, why: str) -> None:
        self.failure = self.failure or why
        self.stopped = True
        self.ended.set()


class _Connection(asyncio.Protocol):
    """Sends one script's requests, one after the other."""

    def __init__(self, run: _Run, script: Script) -> None:
        self.run = run
        self.script = script
        self.request: bytes | None = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self._go_on(None)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower() + b"\r\n"
        place = head.find(b"\r\ncontent-length:")
        if place < 0:
            self.run.fail(f"no length in {head!r}")
            return
        body_end = end + 4 + int(head[place + 17 : head.index(b"\r\n", place + 2)])
        if len(self.buffer) < body_end:
            return
        if not head.startswith(b"http/1.1 200"):
            self.run.fail(self.buffer[:300].decode(errors="replace"))
            return
        body, self.buffer = self.buffer[end + 4 : body_end], b""
        self.run.answers += 1
        if b"\r\nconnection: close" in head:
            self.transport.close()
            self.next_request(body)
            asyncio.get_running_loop().create_task(self._again())
        else:
            self._go_on(body)

    def next_request(self, answer: bytes | None) -> None:
        try:
            self.request = self.script.send(answer)  # type: ignore[arg-type]
        except StopIteration:
            self.request = None

    def _go_on(self, answer: bytes | None) -> None:
        if answer is not None or self.request is None:
            self.next_request(answer)
        if self.request is None or self.run.stopped:
            self.run.open -= 1
            self.transport.close()
            if self.run.open == 0:
                self.run.ended.set()
        else:
            self.transport.write(self.request)

    async def _again(self) -> None:
        if self.request is None or self.run.stopped:
            self._go_on(None)
            return
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self, "127.0.0.1", self.run.port)
        except OSError as error:
            self.run.fail(str(error))


async def _drive(
    port: int, script: Callable[[], Script], seconds: float, *, until: int | None = None
) -> tuple[int, float]:
    """Answers, and the seconds they took; stops after `seconds`, or fails where it has to end.

    A server that has hardly answered by then gets five times as long. With `until`, the script ends
    by itself after so many answers, and a server that would not get there in time fails early.
    """
    loop = asyncio.get_running_loop()
    run = _Run(port, open=CONNECTIONS)
    began = time.perf_counter()
    for _ in range(CONNECTIONS):
        await loop.create_connection(lambda: _Connection(run, script()), "127.0.0.1", port)
    deadline = began + seconds * (5 if until is None else 1)
    while not run.ended.is_set() and time.perf_counter() < deadline:
        try:
            await asyncio.wait_for(run.ended.wait(), seconds if until is None else LOOK_SECONDS)
        except TimeoutError:
            if until is None:
                if run.answers >= ENOUGH:
                    break
                continue
            needs = (time.perf_counter() - began) * until / max(1, run.answers)
            if needs > seconds:
                run.fail(f"filling the queue would take {needs:,.0f} s")
    if until is not None and not run.ended.is_set():
        run.fail(f"the queue was not filled within {seconds:g} s")
    answers, took = run.answers, time.perf_counter() - began
    run.stopped = True
    if run.failure:
        raise _Failed(run.failure)
    await asyncio.wait_for(run.ended.wait(), 30)
    return answers, took


# --- servers ------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _pumphouse(port: int, loop: str) -> tuple[list[str], dict[str, str], Path | None]:
    script = (
        "from pumphouse.account import Account;"
        "from pumphouse.server.runner import Server, bind;"
        "from pumphouse.server.wire import Endpoint;"
        f"Server(Endpoint(Account(ledger_room=0)), loop={loop!r}).run([bind('127.0.0.1', {port})])"
    )
    return [sys.executable, "-c", script], {}, None


def _moto(port: int) -> tuple[list[str], dict[str, str], Path | None]:
    return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], {}, None


def _ministack(port: int) -> tuple[list[str], dict[str, str], Path | None]:
    command = os.environ.get("BENCH_MINISTACK") or shutil.which("ministack") or ""
    environment = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "LOG_LEVEL": "ERROR"}
    return [command], environment, None


_FAUXQS = """import {{ buildApp }} from "fauxqs";
const app = buildApp({{ logger: false }});
await app.listen({{ port: {port}, host: "127.0.0.1" }});
"""


def _fauxqs(port: int) -> tuple[list[str], dict[str, str], Path | None]:
    folder = _fauxqs_folder()
    command = ["node", "--input-type=module", "-e", _FAUXQS.format(port=port)]
    return command, {}, folder


def _fauxqs_folder() -> Path:
    return Path(os.environ.get("BENCH_FAUXQS") or ".").resolve()


def _there() -> tuple[dict[str, Callable[[int], Any]], list[str]]:
    """The servers that can be started, and why the others can't."""
    servers: dict[str, Callable[[int], Any]] = {"pumphouse": lambda port: _pumphouse(port, "auto")}
    missing = []
    if importlib.util.find_spec("uvloop"):
        servers["pumphouse, asyncio"] = lambda port: _pumphouse(port, "asyncio")
    else:
        missing.append("pumphouse on uvloop, as its extra has it: uvloop is not installed")
    if importlib.util.find_spec("moto") and importlib.util.find_spec("flask"):
        servers["moto"] = _moto
    else:
        missing.append("moto: moto[server] is not installed")
    if os.environ.get("BENCH_MINISTACK") or shutil.which("ministack"):
        servers["ministack"] = _ministack
    else:
        missing.append("ministack: no command `ministack` on PATH or in BENCH_MINISTACK")
    if shutil.which("node") and (_fauxqs_folder() / "node_modules" / "fauxqs").is_dir():
        servers["fauxqs"] = _fauxqs
    else:
        missing.append("fauxqs: no node, or no node_modules/fauxqs here or in BENCH_FAUXQS")
    return servers, missing


@contextmanager
def _running(command: list[str], environment: dict[str, str], folder: Path | None) -> Iterator[int]:
    """A server's process; its id."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process.pid
        finally:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            except ProcessLookupError:
                process.wait()


def _cpu_seconds(pid: int) -> float | None:
    """CPU of a process and of those it started; None where the system does not tell."""
    total = 0.0
    tick = os.sysconf("SC_CLK_TCK")
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(stat[11]) + int(stat[12])) / tick
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += _cpu_seconds(int(child)) or 0.0
    except (OSError, IndexError):
        return total or None
    return total


async def _queue(port: int) -> str:
    """Make the queue as soon as the server is there; its URL."""
    request = _request(port, "CreateQueue", {"QueueName": "bench"})
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            body = json.loads(await reader.readexactly(length))
            writer.close()
            if "QueueUrl" in body:
                return str(body["QueueUrl"])
        except (OSError, EOFError, TimeoutError, ValueError):
            pass
        if time.monotonic() > deadline:
            raise _Failed(f"no answer within {START_SECONDS:g} s")
        await asyncio.sleep(0.2)


# --- measuring ----------------------------------------------------------------------------------


@dataclass
class Figure:
    """The best of some rounds."""

    per_second: float = 0.0
    cpu_us: float | None = None

    def add(self, answers: int, seconds: float, cpu: float | None) -> None:
        self.per_second = max(self.per_second, answers / seconds)
        if cpu is not None and answers:
            used = cpu / answers * 1e6
            self.cpu_us = used if self.cpu_us is None else min(self.cpu_us, used)

    def __str__(self) -> str:
        cpu = "?" if self.cpu_us is None else f"{self.cpu_us:.0f}"
        rate = f"{self.per_second:,.0f}" if self.per_second >= 10 else f"{self.per_second:.1f}"
        return f"{rate} /s, {cpu} µs"


@dataclass
class _Server:
    """A running server with its queue filled."""

    name: str
    pid: int
    loads: Loads
    figures: list[Figure] = field(default_factory=lambda: [Figure() for _ in TITLES])

    async def fill(self, backlog: int) -> None:
        requests = backlog // 10
        batches = iter([None] * requests)
        port = self.loads.port
        await _drive(port, lambda: self.loads.in_tens(batches), FILL_SECONDS, until=requests)

    async def measure(self, place: int, seconds: float) -> None:
        script = (self.loads.cycle, self.loads.one_by_one, self.loads.in_tens)[place]
        before = _cpu_seconds(self.pid)
        answers, took = await _drive(self.loads.port, script, seconds)
        after = _cpu_seconds(self.pid)
        cpu = None if before is None or after is None else after - before
        self.figures[place].add(answers, took, cpu)


async def _start(
    name: str, prepare: Callable[[int], Any], backlog: int, resources: ExitStack
) -> _Server:
    port = _free_port()
    pid = resources.enter_context(_running(*prepare(port)))
    server = _Server(name, pid, Loads(port, await _queue(port)))
    await server.fill(backlog)
    return server


async def _measure(
    servers: dict[str, Callable[[int], Any]], backlog: int, seconds: float, rounds: int
) -> tuple[list[_Server], list[str]]:
    """Those that were measured, and why others were not.

    All run at once, and each load goes from server to server before it begins its next round, so
    that what else the machine does meets all of them.
    """
    running: list[_Server] = []
    failed: list[str] = []
    with ExitStack() as resources:
        for name, prepare in servers.items():
            try:
                running.append(await _start(name, prepare, backlog, resources))
            except _Failed as error:
                failed.append(f"{name} at {backlog:,}: {str(error)[:160]!r}")
        # The cycle first: it leaves the backlog as it is, and the sends do not.
        for place in range(len(TITLES)):
            for _ in range(rounds):
                for server in tuple(running):
                    try:
                        await server.measure(place, seconds)
                    except _Failed as error:
                        failed.append(f"{server.name} at {backlog:,}: {str(error)[:160]!r}")
                        running.remove(server)
    return running, failed


TITLES = ("send, receive and delete in tens", "send one by one", "send in tens")


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a table for each backlog."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlogs", type=int, nargs="+", default=[1_250, 100_000])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these servers only")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    console = Console(width=110, highlight=False)
    servers, missing = _there()
    for line in missing:
        console.print(f"left out: {line}")
    ours: dict[int, list[Figure]] = {}
    for backlog in options.backlogs:
        table = Table(title=f"{backlog:,} messages in the queue")
        table.add_column("server")
        for title in TITLES:
            table.add_column(title, justify="right")
        chosen = {
            name: prepare
            for name, prepare in servers.items()
            if not options.only or name in options.only
        }
        running, failed = asyncio.run(_measure(chosen, backlog, options.seconds, options.rounds))
        for line in failed:
            console.print(f"left out: {line}")
        for server in running:
            table.add_row(server.name, *map(str, server.figures))
        console.print(table)
        measured = {server.name: server.figures for server in running}
        _compare(console, measured)
        if "pumphouse" in measured:
            ours[backlog] = measured["pumphouse"]
    _compare_backlogs(console, ours)


def _compare(console: Console, measured: dict[str, list[Figure]]) -> None:
    """How pumphouse as it is installed is to the fastest and cheapest of the others, by load."""
    ours = measured.get("pumphouse")
    others = [figures for name, figures in measured.items() if not name.startswith("pumphouse")]
    if not ours or not others:
        return
    for place, title in enumerate(TITLES):
        speed = ours[place].per_second / max(each[place].per_second for each in others)
        console.print(f"{title}: {speed:.2f} times the throughput of the fastest other", end="")
        spent = ours[place].cpu_us
        theirs = [cost for each in others if (cost := each[place].cpu_us)]
        if spent and theirs:
            share = min(theirs) / spent
            console.print(f", with {share:.2f} times less CPU than the cheapest", end="")
        console.print()


def _compare_backlogs(console: Console, ours: dict[int, list[Figure]]) -> None:
    """What a longer queue costs pumphouse."""
    if len(ours) < 2:
        return
    shortest, longest = min(ours), max(ours)
    for place, title in enumerate(TITLES):
        share = ours[longest][place].per_second / ours[shortest][place].per_second
        console.print(f"{title}: {share:.2f} times the throughput at {longest:,} of {shortest:,}")


if __name__ == "__main__":
    main()
