"""The app: which handlers read which queues. Configuration only, until it is started.

`App` holds the declarations (`router.py` has how they are made); `Running` (in `running.py`) is an
app at work. Nothing here does any I/O before `running`, `serve` or `run`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pumphouse import event_loop
from pumphouse.backend import Backend
from pumphouse.checking import check_number
from pumphouse.clock import Clock, RealClock, VirtualClock
from pumphouse.errors import ClosedError, UsageError
from pumphouse.health.monitor import health_of
from pumphouse.hooks import Hooks
from pumphouse.lifespans import Lifespan as Lifespan
from pumphouse.lifespans import check_lifespan
from pumphouse.router import Registry
from pumphouse.running import Running, StoppedWhileStarting
from pumphouse.subscriber.chain import Middleware
from pumphouse.subscriber.handler import Call as Call
from pumphouse.subscriber.handler import Handler as Handler
from pumphouse.subscriber.injection.markers import TheApp
from pumphouse.subscriber.injection.overrides import Overrides
from pumphouse.subscriber.injection.state import AppState

if TYPE_CHECKING:
    from pumphouse.addressing import Topic
    from pumphouse.event_loop import LoopName
    from pumphouse.in_process import InProcessAccount
    from pumphouse.lambda_handler import LambdaHandler
    from pumphouse.notifications.signatures import Verifier
    from pumphouse.sink import Sink

DRAIN_SECONDS = 20.0


class App(Registry):
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
    - `middleware`: goes around every handler, and around everything that is published.
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
        check_number("", "drain_seconds", drain_seconds, 0, 86_400)
        if hooks is not None and not isinstance(hooks, Hooks):
            raise UsageError(f"hooks is a Hooks, not {hooks!r}")
        self.name = name
        self.hooks = hooks or Hooks()
        self.drain_seconds = float(drain_seconds)
        super().__init__("", {"middleware": middleware})
        self.middleware = tuple(middleware)
        self.state = AppState()
        self._overrides = Overrides()
        self._lifespans: list[Lifespan] = []
        if lifespan is not None:
            self.lifespan(lifespan)
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

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Register an async context manager (a function of the app) around the app's run.

        Raises `UsageError` for a function that can't make one.
        """
        check_lifespan(function)
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

    def run(
        self,
        backend: Backend | None = None,
        *,
        drain_seconds: float | None = None,
        loop: LoopName = "auto",
    ) -> int:
        """`serve` in a new event loop: uvloop's where it is installed, or the one that `loop`
        names. Returns its exit code.

        Raises `UsageError` for a loop that is not there.
        """
        return event_loop.run(self.serve(backend, drain_seconds=drain_seconds), loop)

    def sink(self, queue: str | Topic) -> Sink:
        """The sink to a queue or topic, without the app's middleware, open while the app runs.

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
    def dependency_overrides(self) -> Overrides:
        """From a dependency to what is called in its place; works like a dict, also while the app
        runs. For tests."""
        return self._overrides

    @dependency_overrides.setter
    def dependency_overrides(
        self, functions: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> None:
        self._overrides.replace(functions)

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
        return f"<App {self.name}: {len(self.subscriptions)} subscribers>"
