"""A worker process of `--workers` or `--reload`, as it sees itself.

`python -m pumphouse.cli.run.worker NUMBER FD OPTIONS` runs the app, and tells its supervisor how it
is over the socket FD. When the supervisor is gone it drains, as nobody would stop it otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec

from pumphouse.app import App
from pumphouse.cli.exit_codes import FAILED, code_of
from pumphouse.cli.run import logs
from pumphouse.cli.run.loading import package_folder
from pumphouse.cli.run.options import Options
from pumphouse.cli.run.process import beside, finish, load_or_log, told, work
from pumphouse.cli.run.reports import MAX_LINE_BYTES, REPORT_SECONDS, Order, Report, encode
from pumphouse.errors import PumphouseError
from pumphouse.event_loop import run
from pumphouse.health import Monitor
from pumphouse.subscriber.stopping import (
    CANCEL_GRACE_SECONDS,
    FLUSH_SECONDS,
    POLL_MARGIN_SECONDS,
)
from pumphouse.way_out import own_process

_LOOK_SECONDS = 0.1
_MARGIN_SECONDS = 15.0  # for what the app's own lifespan does at the end
_log = logging.getLogger("pumphouse")


def main(arguments: list[str]) -> int:
    """Run the worker; its exit code."""
    number, descriptor, options = _read(arguments)
    logs.set_up(options.level, logs.formatter(options.log_format, number))
    try:
        app = load_or_log(options.target)
    except PumphouseError as error:
        _log.error("%s", error)
        return code_of(error)
    if app is None:
        return FAILED
    around = partial(_reporting, app, options, socket.socket(fileno=descriptor))
    return finish(app, run(told(work(app, options, around)), options.loop))


def _read(arguments: list[str]) -> tuple[int, int, Options]:
    number, descriptor, options = arguments
    return int(number), int(descriptor), msgspec.json.decode(options, type=Options)


def stop_seconds(app: App, options: Options) -> float:
    """What a drain of the app takes at most: handlers and open polls at the same time, then what
    is left to settle."""
    drain = app.drain_seconds if options.drain_seconds is None else options.drain_seconds
    poll = max(each.queue.wait_time_seconds for each in app.subscriptions)
    handlers = drain + CANCEL_GRACE_SECONDS
    return max(handlers, poll + POLL_MARGIN_SECONDS) + FLUSH_SECONDS + _MARGIN_SECONDS


@asynccontextmanager
async def _reporting(
    app: App, options: Options, line: socket.socket, monitor: Monitor
) -> AsyncIterator[None]:
    """Tell the supervisor how the app is while the body runs, and a last time after it."""
    reader, writer = await asyncio.open_connection(sock=line, limit=MAX_LINE_BYTES)
    stop = stop_seconds(app, options)
    folder = package_folder(options.target)
    last: tuple[str, bool] | None = None
    told_at = 0.0

    def tell() -> None:
        nonlocal last, told_at
        report = Report(snapshot=monitor.snapshot(), stop_seconds=stop, folder=folder)
        now = asyncio.get_running_loop().time()
        state = (report.snapshot.state, report.holds_nothing)
        if state == last and now - told_at < REPORT_SECONDS:
            return
        transport = writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < MAX_LINE_BYTES:
            writer.write(encode(report))
            last, told_at = state, now

    async def keep_telling() -> None:
        while True:
            tell()
            await asyncio.sleep(_LOOK_SECONDS)

    async def keep_obeying() -> None:
        asking: asyncio.Task[None] | None = None
        try:
            with suppress(OSError):  # which says the same as the end of what it reads
                while text := await reader.readline():
                    order = msgspec.json.decode(text, type=Order)
                    if asking is not None:
                        asking.cancel()
                        asking = None
                    if order.waiting_every:
                        asking = asyncio.create_task(monitor.keep_asking(order.waiting_every))
        finally:
            if asking is not None:
                asking.cancel()
        _log.error("the supervisor is gone: draining")
        signal.raise_signal(signal.SIGTERM)

    try:
        async with beside(keep_telling, keep_obeying):
            yield
    finally:
        last = None
        tell()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.drain()
        writer.close()


if __name__ == "__main__":
    own_process()
    sys.exit(main(sys.argv[1:]))
