"""Which event loop an app of one's own process runs on: uvloop where it is installed, or asyncio's.

What runs on it is not this module's, and nothing here runs unless it is asked to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar, get_args

from pumphouse.errors import UsageError

LEFT_SECONDS = 2.0
"""What tasks may take to end that are left when the main one has ended."""
T = TypeVar("T")
LoopName = Literal["auto", "asyncio", "uvloop"]
"""`auto` is uvloop where it is installed; `asyncio` is what `asyncio.run` would take."""

_log = logging.getLogger("pumphouse")
_left_behind: list[asyncio.Runner] = []  # with tasks that do not end


def factory(name: LoopName) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop of that name; None for the one that asyncio makes by itself.

    Raises `UsageError` for a name that is none, and for uvloop where it is not installed.
    """
    if name not in get_args(LoopName):
        raise UsageError(f"an event loop is auto, asyncio or uvloop, not {name!r}")
    if name == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if name == "auto":
            return None
        raise UsageError("uvloop is not installed: pip install 'pumphouse[fast]'") from None
    new: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new


def run(main: Coroutine[Any, Any, T], name: LoopName = "auto") -> T:
    """`asyncio.run` on the loop of that name; but tasks that don't end within a while when they are
    cancelled are left behind with it, and not waited for.

    Raises `UsageError` as `factory` does, and what `main` raises.
    """
    try:
        make = factory(name)
    except UsageError:
        main.close()
        raise
    runner = asyncio.Runner(loop_factory=make)
    stuck: set[asyncio.Task[Any]] = set()
    try:
        return runner.run(_with_the_rest(main, stuck))
    finally:
        if stuck:
            _log.error("tasks still run that were cancelled, and are left behind: %d", len(stuck))
            _left_behind.append(runner)
            asyncio.set_event_loop(None)
        else:
            runner.close()


async def _with_the_rest(main: Coroutine[Any, Any, T], stuck: set[asyncio.Task[Any]]) -> T:
    """What `main` gives, after all other tasks were cancelled; `stuck` gets those that go on."""
    try:
        return await main
    finally:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            stuck |= (await asyncio.wait(rest, timeout=LEFT_SECONDS))[1]
