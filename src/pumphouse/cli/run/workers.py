"""A worker process as its supervisor sees it: started, listened to, signalled, killed.

It has a process group of its own, so that Ctrl-C in a terminal reaches it only by way of its
supervisor, and once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import msgspec

from pumphouse.cli.run.options import Options
from pumphouse.cli.run.reports import MAX_LINE_BYTES, Order, Report, encode

STARTING_SECONDS = 60.0
"""What the stop of a worker may take that has not told what its own takes."""
_LONGEST_LINE = 1 << 20


class Process:
    """A worker process. `on_report` is called when it has told of itself, `on_line` with each line
    that it printed, where lines are wanted; otherwise it prints by itself."""

    def __init__(
        self,
        number: int,
        on_report: Callable[[], object],
        on_line: Callable[[str], object] | None = None,
    ) -> None:
        self.number = number
        self.report: Report | None = None
        self.reported_at = 0.0
        self._on_report = on_report
        self._on_line = on_line
        self._process: asyncio.subprocess.Process
        self._writer: asyncio.StreamWriter
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def stop_seconds(self) -> float:
        """What its drain may take."""
        return self.report.stop_seconds if self.report else STARTING_SECONDS

    async def start(self, options: Options) -> None:
        """Start it. Raises `OSError` where the machine has no room for it."""
        ours, theirs = socket.socketpair()
        piped = asyncio.subprocess.PIPE if self._on_line else None
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pumphouse.cli.run.worker",
                str(self.number),
                str(theirs.fileno()),
                msgspec.json.encode(replace(options, send=[])).decode(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=piped,
                stderr=asyncio.subprocess.STDOUT if piped else None,
                pass_fds=(theirs.fileno(),),
                process_group=0,
                limit=_LONGEST_LINE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"} if piped else None,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        self._tasks.append(asyncio.create_task(self._listen(reader)))
        if self._on_line is not None and self._process.stdout is not None:
            self._tasks.append(asyncio.create_task(self._read(self._process.stdout, self._on_line)))

    async def wait(self) -> int:
        """Wait for its end, and for what it still had to say; its return code."""
        code = await self._process.wait()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=2.0)  # a child of it may hold them
            for task in late:
                task.cancel()
        self._writer.close()
        return code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once; what it held comes again when its leases end."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def order(self, order: Order) -> None:
        """Tell it something."""
        with suppress(OSError):
            self._writer.write(encode(order))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):  # it is gone, or what it says is nothing
            while text := await reader.readline():
                self.report = msgspec.json.decode(text, type=Report)
                self.reported_at = asyncio.get_running_loop().time()
                self._on_report()

    async def _read(self, stream: asyncio.StreamReader, tell: Callable[[str], object]) -> None:
        while True:
            try:
                text = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                if end.partial:
                    tell(end.partial.decode(errors="replace"))
                return
            except asyncio.LimitOverrunError as error:
                text = await stream.readexactly(error.consumed)
            tell(text.decode(errors="replace").rstrip("\r\n"))
