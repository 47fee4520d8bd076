"""One process of a run: the app, what it runs on, and what goes along with it.

`run_here` is the whole of `pumphouse run` without `--workers` and `--reload`; `work` is what it has
in common with a worker process (`worker.py`).
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from typing import TYPE_CHECKING

from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.cli.exit_codes import ENDED, FAILED, OK, code_of
from pumphouse.cli.run import local, logs
from pumphouse.cli.run.loading import load_or_tell
from pumphouse.cli.run.options import Options
from pumphouse.errors import PumphouseError
from pumphouse.event_loop import run
from pumphouse.health import HealthServer, Monitor, Snapshot
from pumphouse.health.server import HasSnapshots
from pumphouse.protocol.names import is_loopback

if TYPE_CHECKING:
    from rich.console import Console

    from pumphouse.account import Account
    from pumphouse.cli.run.display import LiveDisplay

_log = logging.getLogger("pumphouse")
LEFT_SECONDS = 2.0
"""What tasks of the service may take to end that were left behind."""
Beside = Callable[[], Awaitable[object]]
Around = Callable[[Monitor], AbstractAsyncContextManager[object]]


def run_here(options: Options) -> int:
    """Run the app in this process. Returns its exit code; raises `UsageError` where there is no
    such app."""
    from pumphouse.cli.run.display import terminal

    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe as well: what handlers print is a log
        sys.stdout.reconfigure(line_buffering=True)
    feed = local.Feed(options.send, options.group_by)
    console = None if options.plain else terminal()
    logs.set_up(options.level, logs.formatter(options.log_format))
    app = load_or_log(options.target)
    if app is None:
        return FAILED

    @asynccontextmanager
    async def around(monitor: Monitor) -> AsyncIterator[None]:
        asking: list[Beside] = []
        if console is not None and options.waiting_every:
            asking = [partial(monitor.keep_asking, options.waiting_every)]
        with served_health(options, monitor), shown(console, options, monitor.snapshot):
            async with beside(*asking):
                yield

    return finish(app, run(told(work(app, options, around, feed)), options.loop))


def load_or_log(target: str) -> App | None:
    """The app; None where its module raised, after the traceback was logged."""
    return load_or_tell(target, lambda _: _log.exception("%s can't be loaded", target))


def finish(app: App, code: int) -> int:
    """End the process at once, where handlers still run in threads that nobody can end."""
    if app.abandoned_threads:
        _log.error(
            "%d handlers still run in their threads; their messages are given back",
            app.abandoned_threads,
        )
        _exit_now(code)
    return code


def _exit_now(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # it is full, or was never there
            stream.flush()
    os._exit(code)


async def told(running: Awaitable[int]) -> int:
    """The exit code that this gives; what goes wrong in it is logged, and told by the code.

    Tasks that do not end when they are cancelled end with the process, at once: the event loop
    would wait for them for ever.
    """
    try:
        code = await running
    except PumphouseError as error:
        _log.error("%s", error)
        code = code_of(error)
    except Exception:
        _log.exception("the app failed")
        code = FAILED
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (stuck := (await asyncio.wait(left, timeout=LEFT_SECONDS))[1]):
        _log.error("tasks still run that were cancelled, and are cut off: %d", len(stuck))
        _exit_now(code)
    return code


async def work(app: App, options: Options, around: Around, feed: local.Feed | None = None) -> int:
    """Run the app until a signal, or until every subscription has ended; its exit code."""
    monitor = Monitor(app)
    async with AsyncExitStack() as stack:
        backend: Backend | None
        ending: list[Beside] = []
        if options.local:
            backend = account = await _account(app, stack)
            if options.serve_port is not None:
                served = await stack.enter_async_context(local.served(account, options.serve_port))
                _log.info("SQS and SNS are served at %s", served.url)
            if feed:
                await feed.send(account)
            if options.until_empty:
                ending = [partial(local.until_empty, account, app)]
        else:
            backend = await _backend(app, options, stack)
        await stack.enter_async_context(around(monitor))
        async with beside(*ending):
            code = await app.serve(backend, drain_seconds=options.drain_seconds)
    last = monitor.snapshot()
    if code == OK and last.ended:
        _log.error("every subscription has ended, as its queue was deleted")
        return ENDED
    return code


async def _account(app: App, stack: AsyncExitStack) -> Account:
    account = local.new_account()
    stack.push_async_callback(account.aclose)
    await local.make_queues(account, app)
    return account


async def _backend(app: App, options: Options, stack: AsyncExitStack) -> Backend | None:
    """What the app runs on; None for AWS as its configuration says."""
    backend: Backend
    if options.local_url is not None:
        from pumphouse.http import HttpBackend, Keys

        backend = HttpBackend(
            region="us-east-1", endpoint_url=options.local_url, credentials=Keys("local", "local")
        )
    elif options.endpoint_url or options.region:
        from pumphouse.http import connect

        backend = connect(region=options.region, endpoint_url=options.endpoint_url)
    else:
        return None
    stack.push_async_callback(backend.aclose)
    if options.local_url is not None:
        await local.make_queues(backend, app)
    return backend


# --- what goes along ------------------------------------------------------------------------------


@asynccontextmanager
async def beside(*functions: Beside) -> AsyncIterator[None]:
    """Run these beside the body, and end them with it. One that fails is logged; it ends nothing,
    as showing an app is not worth more than the app."""

    async def watched(each: Beside) -> None:
        try:
            await each()
        except Exception:
            _log.exception("%s failed", each)

    tasks = [asyncio.create_task(watched(each)) for each in functions]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def shown(
    console: Console | None, options: Options, snapshot: Callable[[], Snapshot]
) -> Iterator[LiveDisplay | None]:
    """Show the run while the body runs: on the console, or as log lines where there is none; and
    what came of it at the end."""
    from pumphouse.cli.run.view import summary

    if console is None:
        yield None
        _log.info("%s", summary(snapshot()))
        return

    from pumphouse.cli.run.display import LiveDisplay

    display = LiveDisplay(console, snapshot, waiting_every=options.waiting_every)
    with logs.through(display.handler()):
        display.open()
        last_line = ""
        try:
            yield display
            last_line = summary(snapshot())
        finally:
            display.close(last_line)


@contextmanager
def served_health(options: Options, source: HasSnapshots) -> Iterator[None]:
    """The health endpoint while the body runs, if one is wanted; says where it is."""
    if options.health_port is None:
        yield
        return
    with HealthServer(source, host=options.health_host, port=options.health_port) as server:
        _log.info("health is at %s/live, /ready and /health", server.url)
        if not is_loopback(options.health_host):
            _log.warning(
                "%s is reached from other machines: who reaches it reads the names of queues, and "
                "why they fail; --health-host 127.0.0.1 keeps that to this one",
                options.health_host,
            )
        yield
