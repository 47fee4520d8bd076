"""`LambdaHandler`: what AWS Lambda calls with a batch of an SQS queue, and what it is answered.

The first invocation starts the app (lifespans, publishers); it stays up for as long as Lambda keeps
the process, on one event loop. Each invocation finds the source of its queue (`source.py`), has its
messages run (`batch.py`), has the failed ones come again when they are to, and names them. What
can't be done as a whole is raised, so that Lambda deletes nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from pumphouse.backend import Backend
from pumphouse.clock import timeout
from pumphouse.errors import CrossThreadError, PumphouseError, UsageError
from pumphouse.lambda_handler.batch import Batch
from pumphouse.lambda_handler.event import records_of
from pumphouse.lambda_handler.source import Source
from pumphouse.running import Running
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.queue import Queue, same_queue
from pumphouse.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pumphouse.app import App

LONGEST_INVOCATION_SECONDS = 900.0
"""What Lambda gives a function at most; taken where no context says how much it is."""

_log = logging.getLogger("pumphouse.lambda")


class Context(Protocol):
    """What is used of Lambda's context object."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda ends the invocation."""
        ...


class BatchFailedError(PumphouseError):
    """Messages of an invocation failed, and the mapping takes no partial batch responses: raised so
    that all of the batch comes again. `failed` are their message ids."""

    def __init__(self, failed: Sequence[str], total: int) -> None:
        self.failed = tuple(failed)
        self.total = total
        super().__init__(f"{len(failed)} of {total} messages failed, and all of them come again")

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.failed, self.total))


class LambdaHandler:
    """A Lambda function's handler: `handler = app.lambda_handler`.

    Called with the event and the context, it returns `{"batchItemFailures": [...]}`; the event
    source mapping needs `FunctionResponseTypes: [ReportBatchItemFailures]`, as Lambda otherwise
    takes every answer for a success and **deletes the failed messages too**. Where that can't be
    set, `partial_responses=False` raises `BatchFailedError` when a message failed.

    - `backend`: instead of the connection that `pumphouse.connect()` makes of Lambda's environment.
    - `reserve_seconds`: how long before Lambda's deadline handlers are cancelled and the answer is
      made; by default a tenth of the time that an invocation has, 0.2 to 3 seconds.
    - `change_visibility`: let failed messages come again after the delay that their outcome asks
      for; it needs `sqs:ChangeMessageVisibility`. Without it, or without the permission, they come
      when the queue's visibility timeout is over.
    - `record_calls`: keep every call of a handler in `handler.calls`, for tests.

    Raises `UsageError` for an option out of its range.
    """

    def __init__(
        self,
        app: App,
        backend: Backend | None = None,
        *,
        reserve_seconds: float | None = None,
        partial_responses: bool = True,
        change_visibility: bool = True,
        record_calls: bool = False,
    ) -> None:
        _check(app, backend, reserve_seconds)
        for option, value in (
            ("partial_responses", partial_responses),  # "no" would mean yes, and lose messages
            ("change_visibility", change_visibility),
            ("record_calls", record_calls),
        ):
            if not isinstance(value, bool):
                raise UsageError(f"{option} is True or False, not {value!r}")
        self.app = app
        self._backend = backend
        self._reserve_seconds = reserve_seconds
        self._partial = partial_responses
        self._change = change_visibility
        self._record_calls = record_calls
        self._calling = threading.Lock()
        self._loop: asyncio.Runner | None = None
        self._in: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Lock | None = None
        self._stack: AsyncExitStack | None = None
        self._running: Running | None = None
        self._sources: dict[str, Source] = {}
        self._left: set[asyncio.Task[None]] = set()

    # --- from outside ---------------------------------------------------------------------------

    def __call__(self, event: object, context: object = None) -> dict[str, Any]:
        """Handle an invocation, on the event loop that all invocations share.

        Raises `UsageError` where an event loop runs already: there it is
        `await handler.invoke(event, context)`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError(
                "an event loop is running here: use `await handler.invoke(event, context)`"
            )
        with self._calling:
            if self._loop is None:
                self._loop = asyncio.Runner()
                atexit.register(self.close)
            invocation: list[asyncio.Task[Any]] = []

            async def invoke() -> dict[str, Any]:
                invocation.extend(filter(None, [asyncio.current_task()]))
                return await self.invoke(event, context)

            try:
                return self._loop.run(invoke())
            finally:
                self._end(self._loop, invocation)

    @staticmethod
    def _end(loop: asyncio.Runner, invocation: list[asyncio.Task[Any]]) -> None:
        """What tore the loop away (Ctrl-C, `loop.stop()`) has left the invocation where it was.
        Its messages come again, so it must not go on beside the invocation that gets them."""

        async def end() -> None:
            for task in invocation:
                task.cancel()
            await asyncio.wait(invocation)

        if any(not task.done() for task in invocation):
            loop.run(end())

    async def invoke(self, event: object, context: object = None) -> dict[str, Any]:
        """Handle an invocation on the running event loop; what calling it returns and raises.

        Raises `UsageError` for what is no event of SQS and for a queue that the app does not read,
        and whatever the start of the app raises.
        """
        _remaining_seconds(context)  # raises for what is no context, before anything is started
        batches = records_of(event)
        subscriptions = {arn: self._subscription_of(arn) for arn in batches}
        running = await self._started()
        clock = running.clock
        remaining = _remaining_seconds(context)
        reserve = self._reserve_seconds
        if reserve is None:
            reserve = max(0.2, min(3.0, remaining / 10))
        end = clock.monotonic() + remaining
        work: list[tuple[Source, Batch, list[Delivery]]] = []
        for arn, messages in batches.items():
            source = await self._source(arn, subscriptions[arn], running)
            work.append((source, *source.batch(messages, end - reserve)))
        try:
            async with asyncio.TaskGroup() as tasks:
                for _, batch, deliveries in work:
                    tasks.create_task(batch.run(deliveries, end - reserve, reserve / 2))
        finally:
            for _, batch, _ in work:
                for task in batch.tasks:
                    self._left.add(task)
                    task.add_done_callback(self._left.discard)
        if self._change:
            left = max(0.05, end - clock.monotonic() - reserve / 8)
            try:
                async with timeout(clock, left):
                    for source, batch, _ in work:
                        await source.show_again(batch.failures)
            except TimeoutError:
                _log.warning("there was no time to say when the failed messages come again")
        failed = list(
            dict.fromkeys(each.message_id for _, batch, _ in work for each in batch.failures)
        )
        if failed and not self._partial:
            raise BatchFailedError(failed, sum(len(each) for _, _, each in work))
        return {"batchItemFailures": [{"itemIdentifier": each} for each in failed]}

    async def aclose(self) -> None:
        """Leave the lifespans and close the publishers and the connection. It can be used again."""
        for task in self._left:
            task.cancel()
        for source in self._sources.values():
            source.runner.close()
        self._sources.clear()
        stack, self._stack, self._running, self._in = self._stack, None, None, None
        if stack is not None:
            await stack.aclose()

    def close(self) -> None:
        """`aclose`, for a handler that was called without `await`; at the end of the process this
        happens by itself."""
        with self._calling:
            loop, self._loop = self._loop, None
            if loop is not None:
                atexit.unregister(self.close)
                try:
                    loop.run(self.aclose())
                finally:
                    loop.close()

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # --- the app --------------------------------------------------------------------------------

    async def _started(self) -> Running:
        """The app's run; the first invocation starts it, and one that fails leaves nothing."""
        loop = asyncio.get_running_loop()
        if self._in is not loop:
            if self._running is not None:
                raise CrossThreadError(
                    "the app was started in another event loop; `await handler.aclose()` there "
                    "before it is used in a new one"
                )
            self._in, self._starting = loop, asyncio.Lock()
        async with self._starting or asyncio.Lock():
            if self._running is None:
                stack = AsyncExitStack()
                self._running = await stack.enter_async_context(
                    self.app.running(self._backend, record_calls=self._record_calls, receive=False)
                )
                self._stack = stack
        return self._running

    def _subscription_of(self, arn: str) -> Subscription:
        queue = Queue(arn)
        for subscription in self.app.subscriptions:
            if same_queue(subscription.queue, queue):
                return subscription
        known = ", ".join(each.queue.name for each in self.app.subscriptions) or "none"
        raise UsageError(
            f"the event comes from {arn}, and the app {self.app.name!r} has no subscriber of that "
            f"queue (it has {known}); where a deployment names the queue, declare it by its ARN, "
            "from the environment for example"
        )

    async def _source(self, arn: str, subscription: Subscription, running: Running) -> Source:
        if (source := self._sources.get(arn)) is None:
            source = self._sources[arn] = await Source.open(running, subscription, arn)
        return source


def _check(app: object, backend: object, reserve_seconds: object) -> None:
    if not callable(getattr(app, "running", None)):
        raise UsageError(f"LambdaHandler takes an App, not {app!r}")
    if backend is not None and not callable(getattr(backend, "execute", None)):
        raise UsageError(f"the backend is {backend!r}; pumphouse.connect(…) makes one")
    if reserve_seconds is not None and not (
        isinstance(reserve_seconds, int | float)
        and not isinstance(reserve_seconds, bool)
        and 0 <= reserve_seconds <= 60
    ):
        raise UsageError(f"reserve_seconds is 0 to 60, not {reserve_seconds!r}")


def _remaining_seconds(context: object) -> float:
    if context is None:
        return LONGEST_INVOCATION_SECONDS
    if not callable(getattr(context, "get_remaining_time_in_millis", None)):
        raise UsageError(
            f"the context is of type {type(context).__name__}; it is Lambda's context object, "
            "which has get_remaining_time_in_millis(), or None for no deadline"
        )
    return cast(Context, context).get_remaining_time_in_millis() / 1000
