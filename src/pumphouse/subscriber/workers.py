"""The tasks that run handlers: as many as there are slots, kept from message to message.

A task costs more than a short handler, so a worker goes on to the next job for as long as the last
one left it as it was. A worker whose context variables were changed, or that was cancelled, ends
and is replaced, so no job sees anything of another one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar, cast

J = TypeVar("J")
R = TypeVar("R")
Task = asyncio.Task[None]


class Workers(Generic[J, R]):
    """Runs `work(job)` for every job that `next_job(its_task)` gives, at most `size` at once.

    What came of it goes to `finish(job, result)`; where `work` was left by an exception the result
    is `unfinished`. `wake()` says that there may be something to do.
    """

    def __init__(
        self,
        size: int,
        next_job: Callable[[Task], J | None],
        work: Callable[[J], Awaitable[R]],
        finish: Callable[[J, R], None],
        unfinished: R,
    ) -> None:
        self.size = size
        self._for_each_job = (next_job, work, finish, unfinished)
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._waking = False  # one worker is on its way; it wakes the next one if there is need
        self._closed = False
        self._context = contextvars.copy_context()

    @property
    def all_busy(self) -> bool:
        return len(self._tasks) >= self.size and not self._idle

    def wake(self) -> None:
        if self._waking:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                self._waking = True
                waiter.set_result(None)
                return
        if len(self._tasks) < self.size and not self._closed:
            self._waking = True
            loop = asyncio.get_running_loop()
            # itself, as it may not run before it is counted: loops may make eager tasks
            task = asyncio.Task(self._run(), loop=loop, context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    async def close(self, abandon: Collection[asyncio.Task[None]] = ()) -> None:
        """End the workers, and wait for all but those in `abandon`."""
        self._closed = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        self._idle.clear()
        if ending := self._tasks.difference(abandon):
            await asyncio.wait(ending)

    def cancel(self) -> None:
        """End them in the middle of it: for an app that has failed."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        loop = asyncio.get_running_loop()
        clean = self._context
        next_job, work, finish, unfinished = self._for_each_job
        self._waking = False
        while True:
            job = next_job(task)
            if job is None:
                if self._closed:
                    return
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                self._waking = False
                continue
            if not self._waking:
                self.wake()
            result = unfinished
            try:
                result = await work(job)
            finally:
                finish(job, result)
            if task.cancelling() or contextvars.copy_context() != clean:
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._waking = False
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a worker of pumphouse failed", "exception": error, "task": task}
            )
        if not self._closed:
            self.wake()
