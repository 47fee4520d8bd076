"""Which event loop an app of one's own process runs on: uvloop where it is installed, or asyncio's.

What runs on it is not this module's, and nothing here runs unless it is asked to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar, get_args

from pumphouse.errors import UsageError

T = TypeVar("T")
LoopName = Literal["auto", "asyncio", "uvloop"]
"""`auto` is uvloop where it is installed; `asyncio` is what `asyncio.run` would take."""


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
    """`asyncio.run` on the loop of that name.

    Raises `UsageError` as `factory` does, and what `main` raises.
    """
    try:
        make = factory(name)
    except UsageError:
        main.close()
        raise
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(main)
