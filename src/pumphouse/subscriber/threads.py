"""Threads for plain functions: few, daemons, and never waited for at the end of the process.

The standard library's pool joins its threads when the interpreter ends, so one handler that hangs
would hang the stop. Here the runtime waits as long as it has promised, and no longer.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from pumphouse.clock import Clock, VirtualClock

_Call = tuple[
    asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]
]


class Threads:
    """At most `size` threads, started when they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._started = 0
        self.busy = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """The result of `call`, run in a thread, in a copy of the caller's context.

        Cancelling it does not stop the thread; the future that is waited for can be shielded.
        """
        return await self.submit(call)

    async def to_the_end(
        self, call: Callable[[], Any], clock: Clock
    ) -> tuple[Any, asyncio.CancelledError | None]:
        """Run `call` and wait for its end even when that is cancelled, since a thread can't be
        stopped. Gives the result and the cancellation, if there was one; raises the cancellation
        where the call has failed as well, otherwise what the call raised.
        """
        cancelled: asyncio.CancelledError | None = None
        with clock.hold() if isinstance(clock, VirtualClock) else nullcontext():
            future = self.submit(call)
            while not future.done():
                try:
                    await asyncio.shield(future)
                except asyncio.CancelledError as error:
                    if future.cancelled():
                        raise
                    cancelled = error
                except BaseException:  # noqa: S110 - it is raised below, from the future
                    pass
        if cancelled is not None and future.exception() is not None:
            raise cancelled
        return future.result(), cancelled

    def submit(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((loop, future, contextvars.copy_context(), call))
        self.busy += 1
        if self._started < min(self._size, self.busy):
            self._started += 1
            threading.Thread(
                target=self._work, name=f"{self._name}-{self._started}", daemon=True
            ).start()
        return future

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            loop, future, context, call = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(call)
            except BaseException as caught:
                error = caught
            try:
                loop.call_soon_threadsafe(self._finish, future, result, error)
            except RuntimeError:
                return  # the loop is closed, and nobody waits any more
            del item, future, context, call, result, error

    def _finish(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        self.busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration | GeneratorExit):  # to a coroutine they mean its end
            raised = RuntimeError(f"the handler raised {type(error).__name__}")
            raised.__cause__ = error
            future.set_exception(raised)
        else:
            future.set_exception(error)
