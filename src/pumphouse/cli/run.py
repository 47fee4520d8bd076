"""`pumphouse run service:app`: one app in one process, drained on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from dataclasses import dataclass

from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.errors import UsageError


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said."""

    target: str
    endpoint_url: str | None = None
    region: str | None = None
    local: bool = False
    drain_seconds: float | None = None
    log_level: str = "info"


def run(options: Options) -> int:
    """Run the app until a signal. Returns its exit code: 0 after a full drain.

    Raises `UsageError` where there is no such app, `ConfigError` where a queue is not as declared.
    """
    level = logging.getLevelNamesMapping().get(options.log_level.upper())
    if level is None:
        raise UsageError(f"--log-level is debug, info, warning or error, not {options.log_level!r}")
    if options.local and (options.endpoint_url or options.region):
        raise UsageError("--local runs on an account in memory; it has no endpoint and no region")
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    app = load(options.target)
    code = asyncio.run(_serve(app, options))
    if app.abandoned_threads:
        logging.getLogger("pumphouse").error(
            "%d handlers still run in their threads; their messages are given back",
            app.abandoned_threads,
        )
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def load(target: str) -> App:
    """The app that `module:name` names; the name is `app` where none is given."""
    module_name, _, attribute = target.partition(":")
    if not module_name:
        raise UsageError(f"an app is named as module:name, service:app for example; not {target!r}")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise UsageError(f"there is no module {error.name!r} here or on the Python path") from None
    found: object = module
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise UsageError(f"{module_name}:{attribute or 'app'} is {what}, and no pumphouse App")
    if not found.handlers:
        raise UsageError(f"{target} has no subscriber, so there is nothing to run")
    return found


async def _serve(app: App, options: Options) -> int:
    backend: Backend | None = None
    if options.local:
        from pumphouse.account import Account
        from pumphouse.in_process import make_queues

        backend = Account(ledger_room=0)
        await make_queues(backend, app)
    elif options.endpoint_url or options.region:
        from pumphouse.http import connect

        backend = connect(region=options.region, endpoint_url=options.endpoint_url)
    try:
        return await app.serve(backend, drain_seconds=options.drain_seconds)
    finally:
        if backend is not None:
            await backend.aclose()
