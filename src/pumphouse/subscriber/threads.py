"""Threads for plain functions: few, daemons, and never waited for at the end of the process.

The standard library's pool joins its threads when the interpreter ends, so one handler that hangs
would hang the stop. Here the runtime waits as long as it has promised, and no longer.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from pumphouse.clock import Clock, VirtualClock

_log = logging.getLogger("pumphouse.subscriber")


class _Call:
    """A call on its way through a thread; `waiter` is what its caller waits for just now."""

    __slots__ = ("context", "done", "error", "function", "result", "waiter")

    def __init__(self, function: Callable[[], Any], waiter: asyncio.Future[None]) -> None:
        self.function = function
        self.waiter = waiter
        self.context = contextvars.copy_context()
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None


class _WayBack:
    """From the threads to an event loop: calls that end at about the same time wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ended: deque[_Call] = deque()
        self._told = False  # of calls that have ended, and it has not looked yet

    def bring(self, call: _Call) -> None:
        """A call has ended, in a thread. Raises `RuntimeError` where the loop is closed."""
        self._ended.append(call)
        if not self._told:
            self._told = True
            self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._told = False  # what ends from here on tells of it, and what has ended is taken
        while self._ended:
            call = self._ended.popleft()
            call.done = True
            if not call.waiter.done():
                call.waiter.set_result(None)


class Threads:
    """At most `size` threads, started when they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: queue.SimpleQueue[tuple[_Call, _WayBack] | None] = queue.SimpleQueue()
        self._way_back: _WayBack | None = None  # to the loop that was here last
        self._started = 0
        self.busy = 0

    async def to_the_end(
        self, call: Callable[[], Any], clock: Clock
    ) -> tuple[Any, asyncio.CancelledError | None]:
        """Run `call` in a thread, in a copy of the caller's context, and wait for its end even
        when that is cancelled, since a thread can't be stopped. Gives the result and the
        cancellation, if there was one; raises the cancellation where the call has failed as well,
        otherwise what the call raised, or that no thread can be started.
        """
        cancelled: asyncio.CancelledError | None = None
        with clock.hold() if isinstance(clock, VirtualClock) else nullcontext():
            loop = asyncio.get_running_loop()
            under_way = _Call(call, loop.create_future())
            self._start(under_way, loop)
            while not under_way.done:
                try:
                    await under_way.waiter
                except asyncio.CancelledError as error:
                    cancelled = error
                    if not under_way.done:
                        under_way.waiter = loop.create_future()
            self.busy -= 1
        if under_way.error is None:
            return under_way.result, cancelled
        try:
            raise cancelled or _raisable(under_way.error)
        finally:
            cancelled = under_way.error = None  # their tracebacks lead back here

    def _start(self, call: _Call, loop: asyncio.AbstractEventLoop) -> None:
        if self._way_back is None or self._way_back.loop is not loop:
            self._way_back = _WayBack(loop)
        if self._started < min(self._size, self.busy + 1):
            name = f"{self._name}-{self._started + 1}"
            try:
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._started += 1
            except (RuntimeError, MemoryError) as error:  # the system has none left
                if not self._started:
                    raise
                _log.warning("%s: %s; %d threads go on", self._name, error, self._started)
        self.busy += 1
        self._calls.put((call, self._way_back))

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, way_back = item
            try:
                call.result = call.context.run(call.function)
            except BaseException as error:
                call.error = error
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                way_back.bring(call)
            del item, call, way_back


def _raisable(error: BaseException) -> BaseException:
    """An error as a coroutine can raise it: to one, some mean its end."""
    if not isinstance(error, StopIteration | GeneratorExit):
        return error
    raised = RuntimeError(f"the handler raised {type(error).__name__}")
    raised.__cause__ = error
    return raised
