"""`pumphouse run` with `--workers` or `--reload`: the parent process.

It never imports the service, so it holds nothing of old code. With `--local` the account is here,
served to the worker on 127.0.0.1, so that it outlives every change of the source.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pumphouse.cli.exit_codes import code_of
from pumphouse.cli.run import local, logs
from pumphouse.cli.run.display import LiveDisplay, terminal
from pumphouse.cli.run.options import Options
from pumphouse.cli.run.process import Beside, beside, served_health, shown, told
from pumphouse.cli.run.reload import Sources, watch
from pumphouse.cli.run.supervisor import Supervisor
from pumphouse.cli.run.workers import Process
from pumphouse.errors import PumphouseError
from pumphouse.signals import Signals

if TYPE_CHECKING:
    from rich.console import Console

    from pumphouse.account import Account

_log = logging.getLogger("pumphouse")


def run_supervised(options: Options) -> int:
    """Keep the workers until a signal; the exit code of the run."""
    feed = local.Feed(options.send, options.group_by)
    console = None if options.plain else terminal()
    logs.set_up(options.level, logs.formatter(options.log_format))
    return asyncio.run(told(_supervise(options, console, feed)))


async def _supervise(options: Options, console: Console | None, feed: local.Feed) -> int:
    display: LiveDisplay | None = None
    supervisor: Supervisor
    sources = Sources([os.getcwd()]) if options.reload else None
    go_along: list[Beside] = []
    at_stop: list[Callable[[], object]] = []

    async def spawn(number: int) -> Process:
        worker = Process(number, lambda: heard(worker), display.print_line if display else None)
        await worker.start(worker_options)
        return worker

    def heard(worker: Process) -> None:
        if sources is not None and worker.report is not None and worker.report.folder:
            sources.add(worker.report.folder)
        supervisor.heard()

    async with AsyncExitStack() as stack:
        worker_options = options
        if options.local:
            account = local.new_account()
            stack.push_async_callback(account.aclose)
            served = await stack.enter_async_context(local.served(account, options.serve_port or 0))
            if options.serve_port is not None:
                _log.info("SQS and SNS are served at %s", served.url)
            at_stop.append(served.end_polls)
            worker_options = replace(options, local=False, local_url=served.url, serve_port=None)
            if feed:
                go_along.append(lambda: _feed_once(feed, account, supervisor))
        supervisor = Supervisor(
            options.workers or 1,
            spawn,
            stop_seconds=options.stop_seconds,
            reloading=options.reload,
            waiting_every=options.waiting_every if console is not None else 0.0,
        )
        if sources is not None:
            go_along.append(partial(watch, sources, supervisor.reload))

        def receive() -> None:
            for each in at_stop:
                each()
            supervisor.receive(signals.received[-1])

        signals = stack.enter_context(Signals(receive))
        stack.enter_context(served_health(options, supervisor))
        display = stack.enter_context(shown(console, options, supervisor.snapshot))
        async with beside(*go_along):
            code = await supervisor.run()
    return code


async def _feed_once(feed: local.Feed, account: Account, supervisor: Supervisor) -> None:
    await supervisor.until_up()
    try:
        await feed.send(account)
    except PumphouseError as error:
        _log.error("%s", error)
        supervisor.give_up(code_of(error))
