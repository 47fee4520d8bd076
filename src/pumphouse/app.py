"""The app: which handlers read which queues. Configuration only, until it is started.

`App` holds the declarations; `Running` (in `running.py`) is an app at work. Nothing here does any
I/O before `running`, `serve` or `run`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from pumphouse.backend import Backend
from pumphouse.claim_check import ClaimCheck
from pumphouse.clock import Clock, RealClock, VirtualClock
from pumphouse.errors import ClosedError, UsageError
from pumphouse.health.monitor import health_of
from pumphouse.hooks import Hooks
from pumphouse.model import Message
from pumphouse.running import Running, StoppedWhileStarting
from pumphouse.subscriber.chain import Middleware
from pumphouse.subscriber.injection.markers import TheApp
from pumphouse.subscriber.injection.overrides import Overrides
from pumphouse.subscriber.injection.state import AppState
from pumphouse.subscriber.outcomes import DEFAULT_BACKOFF, DelayRule, ErrorPolicy
from pumphouse.subscriber.plan import plan_for
from pumphouse.subscriber.queue import Queue, as_queue, same_queue
from pumphouse.subscriber.subscription import Subscription, UndecodablePolicy

if TYPE_CHECKING:
    from pumphouse.addressing import Topic
    from pumphouse.in_process import InProcessAccount
    from pumphouse.lambda_handler import LambdaHandler
    from pumphouse.notifications.signatures import Verifier
    from pumphouse.sink import Sink

P = ParamSpec("P")
R = TypeVar("R")

DRAIN_SECONDS = 20.0
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler, as `handler.calls` keeps it while an app runs in process.

    `result` is what it returned, or the exception that it raised.
    """

    payload: Any
    message: Message
    result: Any


class Handler(Generic[P, R]):
    """A declared handler: call it as the function that it is.

    `calls` is filled while the app runs in process, for tests.
    """

    def __init__(self, function: Callable[P, R], subscription: Subscription) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.subscription = subscription
        self.calls: list[Call] = []

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def record(self, payload: Any, message: Message, result: Any) -> None:
        """Note a call in `calls`."""
        self.calls.append(Call(payload, message, result))

    def __repr__(self) -> str:
        return f"<Handler {self.subscription.plan.name} of {self.subscription.queue.name}>"


class App:
    """Handlers and the queues that they read.

    ```python
    app = App("orders")

    @app.subscriber("orders.fifo", concurrency=20)
    async def handle(order: Order) -> None: ...

    async with app.running(backend):
        ...
    ```

    - `drain_seconds`: how long running handlers get at a stop before they are cancelled and their
      messages given back.
    - `lifespan`: a function of the app that makes an async context manager, entered before the
      first receive and left after the last settlement.
    - `clock`: what it runs on, instead of its backend's own or the machine's.
    - `middleware`: async functions `(message, call_next)` around every handler of single messages.

    - `sns_verifier`: who verifies the envelopes of queues with `verify_sns_signatures`; by default
      one that fetches SNS's certificates from SNS.

    `state` holds what handlers take as `Annotated[T, State()]`; the lifespan puts it there.
    `dependency_overrides` puts other functions in the place of dependencies, for tests.

    Raises `UsageError` for options out of their range.
    """

    __pumphouse_mark__ = TheApp()  # a parameter of this type is given the app

    def __init__(
        self,
        name: str = "app",
        *,
        drain_seconds: float = DRAIN_SECONDS,
        lifespan: Lifespan | None = None,
        middleware: tuple[Middleware, ...] | list[Middleware] = (),
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        sns_verifier: Verifier | None = None,
    ) -> None:
        if not 0 <= drain_seconds <= 86_400:
            raise UsageError(f"drain_seconds is 0 to 86,400, not {drain_seconds!r}")
        self.name = name
        self.hooks = hooks or Hooks()
        self.drain_seconds = float(drain_seconds)
        self.middleware = tuple(middleware)
        self.handlers: list[Handler[..., Any]] = []
        self.state = AppState()
        self.dependency_overrides = Overrides()
        self._lifespans: list[Lifespan] = [lifespan] if lifespan else []
        self.sns_verifier = sns_verifier
        self._clock = clock
        self._running: Running | None = None
        self._last_run: Running | None = None

    @property
    def clock(self) -> Clock:
        """The clock that the app runs on: the one that it was given, otherwise its backend's."""
        if self._clock is None:
            return self._running.clock if self._running else RealClock()
        return self._clock

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(handler.subscription for handler in self.handlers)

    def subscriber(
        self,
        queue: Queue | str,
        *,
        concurrency: int = 10,
        batch: int | None = None,
        batch_window: float | timedelta = 0.0,
        max_attempts: int | None = None,
        dead_letter: Queue | str | None = None,
        redrive: Literal["write", "check"] = "write",
        retry: DelayRule = DEFAULT_BACKOFF,
        timeout: float | timedelta | None = None,
        on_error: ErrorPolicy | None = None,
        undecodable: UndecodablePolicy = "retry",
        on_lease_lost: Literal["cancel", "flag"] = "cancel",
        partition_key: Callable[[Any], str] | None = None,
        publish: str | Topic | None = None,
        priority: int | None = None,
        claim_check: ClaimCheck | None = None,
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Declare the function below as the handler of a queue.

        An async function runs on the event loop, a plain one in a thread. It gets the payload as
        its annotation says (`bytes`, `str`, `dict`, a msgspec Struct, a dataclass, a pydantic
        model; text without one), and the `Message` where a parameter is annotated so.

        - `concurrency`: how many run at once (batches, with `batch`).
        - `batch`: hand over lists of up to so many messages; up to 10 as they come in one receive,
          more as they gather within `batch_window` seconds.
        - `max_attempts`, `dead_letter`: after so many failed attempts a message goes to that queue.
          The queue's redrive policy is written to fit, or checked (`redrive`). Without them the
          queue's own policy holds.
        - `retry`: the delay after a failed attempt: a `RetryPolicy`, seconds, or a function of the
          attempt. By default 1 s doubled each time, up to 15 minutes, with full jitter.
        - `timeout`: seconds after which a handler is cancelled, which is a failed attempt. A thread
          can't be cancelled: it keeps its slot and its lease to its end.
        - `on_error`: exceptions to outcomes, a mapping or a function; everything else is a retry.
        - `undecodable`: what becomes of a body that is not what the handler takes: "retry" (so that
          it ends in the dead-letter queue), "reject" (there at once), or "drop".
        - `on_lease_lost`: "cancel" the handler, or "flag" it in `message.lease_lost`.
        - `partition_key`: a function of the payload; messages of one key run one at a time and in
          the order they came, in this process. For standard queues.
        - `publish`: the queue or `Topic` that replies go to; confirmed before the message is
          deleted.
        - `priority`: among the subscribers that have one, a lower number goes first: nothing of a
          queue is started while one that goes before it has something waiting.
        - `claim_check`: fetches and checks bodies that were stored apart, before the handler is
          called, and deletes them when SQS has confirmed the delete of their message. A body that
          is missing or damaged is undecodable; a store that fails is a failed attempt.

        Raises `UsageError` for anything that can't work.
        """
        descriptor = as_queue(queue)
        self._check_new(descriptor)

        def declare(function: Callable[P, R]) -> Handler[P, R]:
            self._check_new(descriptor)
            subscription = Subscription(
                queue=descriptor,
                plan=plan_for(function, batch=batch is not None),
                concurrency=concurrency,
                batch=batch,
                batch_window_seconds=_seconds("batch_window", batch_window),
                max_attempts=max_attempts,
                dead_letter=as_queue(dead_letter) if dead_letter is not None else None,
                redrive=redrive,
                retry=retry,
                timeout_seconds=None if timeout is None else _seconds("timeout", timeout),
                on_error=on_error,
                undecodable=undecodable,
                on_lease_lost=on_lease_lost,
                partition_key=partition_key,
                publish=publish,
                priority=priority,
                claim_check=claim_check,
            )
            handler = Handler(function, subscription)
            self.handlers.append(handler)
            return handler

        return declare

    def _check_new(self, queue: Queue) -> None:
        if any(same_queue(other.queue, queue) for other in self.subscriptions):
            raise UsageError(f"queue {queue.name!r} has a subscriber already")

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async context manager (a function of the app) around the app's run."""
        self._lifespans.append(function)
        return function

    @asynccontextmanager
    async def running(
        self,
        backend: Backend | None = None,
        *,
        clock: Clock | None = None,
        drain_seconds: float | None = None,
        record_calls: bool = False,
        receive: bool = True,
    ) -> AsyncIterator[Running]:
        """Run the app for as long as the body does; leaving it drains.

        Without a backend it connects as `pumphouse.connect()` does, and closes that connection at
        the end. The clock is the backend's own, where it has one. `record_calls` keeps every call
        of a handler in `handler.calls`. Without `receive` no queue is read: for whoever brings the
        messages, as AWS Lambda does.

        Raises `ConfigError` where a queue or a policy is not as declared.
        """
        if self._running is not None:
            raise UsageError(f"the app {self.name!r} is running already")
        running = Running(
            self,
            backend,
            clock=clock or self._clock,
            drain_seconds=self.drain_seconds if drain_seconds is None else drain_seconds,
            lifespans=tuple(self._lifespans),
            record_calls=record_calls,
            receive=receive,
        )
        self._running = running
        self._last_run = running
        try:
            async with running:
                yield running
        finally:
            self._running = None

    def in_process(
        self, clock: VirtualClock | None = None
    ) -> AbstractAsyncContextManager[InProcessAccount]:
        """Run the app on an account in memory and a virtual clock, for a test.

        Every queue that the app names is made, as it is declared. Gives the account:
        `await account.send(…)`, `await account.settle()`, `account.sent("queue")`,
        `account.faults`; and `handler.calls` is filled.
        """
        from pumphouse.in_process import in_process

        return in_process(self, clock)

    async def serve(
        self, backend: Backend | None = None, *, drain_seconds: float | None = None
    ) -> int:
        """Run until SIGTERM or SIGINT, then drain; for the main task of a process.

        A second signal cancels the handlers and still gives everything back. Returns 0, or after a
        second signal 128 and its number. It ends by itself when every subscription has.
        """
        from pumphouse.signals import Signals

        with Signals(self._request_stop) as signals:
            try:
                async with self.running(backend, drain_seconds=drain_seconds) as running:
                    await running.stopped()
                    await running.drain()
            except StoppedWhileStarting:
                pass
        return signals.exit_code

    def _request_stop(self) -> None:
        if self._running is not None:
            self._running.request_stop()

    def run(self, backend: Backend | None = None, *, drain_seconds: float | None = None) -> int:
        """`serve` in a new event loop; returns its exit code."""
        return asyncio.run(self.serve(backend, drain_seconds=drain_seconds))

    def sink(self, queue: str | Topic) -> Sink:
        """The publisher to a queue or topic, shared by the handlers, open while the app runs.

        Raises `ClosedError` when the app is not running.
        """
        if self._running is None:
            raise ClosedError(f"the app {self.name!r} is not running, so it publishes nothing")
        return self._running.sink(queue)

    @property
    def last_run(self) -> Running | None:
        """The run that goes on, or the last one that did; None before the first."""
        return self._last_run

    @cached_property
    def lambda_handler(self) -> LambdaHandler:
        """The app as a function on AWS Lambda, behind an SQS event source mapping:
        `handler = app.lambda_handler`. `LambdaHandler(app, …)` makes one with options."""
        from pumphouse.lambda_handler import LambdaHandler

        return LambdaHandler(self)

    @property
    def run_now(self) -> Running | None:
        """The app at work, or None while it is not."""
        return self._running

    def health(self) -> dict[str, dict[str, object]]:
        """How each subscription is, by queue: `status` (healthy, unhealthy, ended), `reason`,
        what it holds, and its counters; see `pumphouse.health.QueueState`."""
        return health_of(self._running)

    @property
    def abandoned_threads(self) -> int:
        """Plain functions that still run in their threads after the last run has stopped."""
        return self._last_run.busy_threads if self._last_run else 0

    def __repr__(self) -> str:
        return f"<App {self.name}: {len(self.handlers)} subscribers>"


def _seconds(option: str, value: float | timedelta) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{option} is seconds or a timedelta, not {value!r}")
    return float(value)
