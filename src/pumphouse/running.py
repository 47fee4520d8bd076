"""An app at work: starts its subscriptions, keeps them, and stops them.

A supervisor task holds everything that runs, so that an error in the body of `async with` reaches
the caller as it is, and a cancelled caller still gets a full stop. The stop of one subscription is
`subscriber/stopping.py`'s.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from weakref import WeakSet

from pumphouse.addressing import QueueUrls, Topic
from pumphouse.backend import Backend
from pumphouse.clock import Clock, RealClock, wait_and_move
from pumphouse.errors import ClosedError
from pumphouse.lifespans import Lifespan, enterable
from pumphouse.notifications.reading import Reading
from pumphouse.notifications.signatures import Fetch, Verifier
from pumphouse.outlet import Outlet
from pumphouse.subscriber.consumer import Consumer
from pumphouse.subscriber.priority import PriorityGroup
from pumphouse.subscriber.runner import Runner
from pumphouse.subscriber.setup import Ready, prepare
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.stopping import stop
from pumphouse.subscriber.subscription import Subscription
from pumphouse.watchdog import Watchdog

if TYPE_CHECKING:
    from pumphouse.app import App
    from pumphouse.sink import Sink

_BROKEN_OFF = "the app was stopped before it had started"


class StoppedWhileStarting(ClosedError):
    """The app was stopped before it had started."""


class Running:
    """The run of an app: `async with` starts and drains it.

    `request_stop` begins the drain, a second time it cancels the handlers at once; `stopped` waits
    for a request to stop or for the last subscription to end. Without `receive` no queue is read:
    lifespans and publishers are open, and whoever has the messages calls the `runner_for` them.
    """

    def __init__(
        self,
        app: App,
        backend: Backend | None,
        *,
        clock: Clock | None,
        drain_seconds: float,
        lifespans: tuple[Lifespan, ...],
        record_calls: bool = False,
        receive: bool = True,
    ) -> None:
        self.app = app
        self.consumers: list[Consumer] = []
        self._record_calls = record_calls
        self._receive = receive
        self._given = backend
        self._backend: Backend | None = backend
        self._clock = clock
        self._drain_seconds = drain_seconds
        self._lifespans = lifespans
        self._outlet: Outlet | None = None
        self._up = False
        self._stopped = False  # every subscription, each message settled
        self._over = False
        self._runners: WeakSet[Runner] = WeakSet()
        self._stop = asyncio.Event()
        self._harder = asyncio.Event()

    @property
    def backend(self) -> Backend:
        """What it runs on. Raises `ClosedError` before the start."""
        if self._backend is None:
            raise ClosedError("the app has not started")
        return self._backend

    @property
    def clock(self) -> Clock:
        """What it runs by. Raises `ClosedError` before the start."""
        if self._clock is None:
            raise ClosedError("the app has not started")
        return self._clock

    @property
    def busy_threads(self) -> int:
        """Plain functions that run in a thread now."""
        return sum(consumer.runner.busy_threads for consumer in self.consumers)

    @property
    def finished(self) -> bool:
        """Whether everything has stopped."""
        return self._supervisor.done()

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for, or everything has ended."""
        return self._stop.is_set()

    @property
    def state(self) -> Literal["starting", "running", "draining", "stopped"]:
        """Where in its life it is. May be asked in any thread."""
        if self._over:
            return "stopped"
        if self._stop.is_set():
            return "draining"
        return "running" if self._up else "starting"

    def request_stop(self) -> None:
        """Drain; when it drains already, cancel the handlers now. Still releases everything.

        A start comes to its end first; a second request breaks it off.
        """
        if self._stop.is_set():
            self._harder.set()
            for consumer in self.consumers:
                consumer.exits.settlement.give_back()
                consumer.quiet.set()
            if not self._started.done():
                self._supervisor.cancel()  # nothing is held yet
        self._stop.set()

    async def stopped(self) -> None:
        """Wait for a request to stop, or until every subscription has ended."""
        await self._stop.wait()

    async def drain(self) -> None:
        """Stop and wait for the end of it. Cancelling it, or `request_stop`, makes it harder."""
        await self._finish()

    @property
    def outlet(self) -> Outlet:
        """Everything that the app publishes."""
        if self._outlet is None:
            raise ClosedError("the app has not started")
        return self._outlet

    def sink(self, queue: str | Topic) -> Sink:
        """The sink to a queue or topic. Raises `ClosedError` after the stop."""
        return self.outlet.sink(queue)

    async def __aenter__(self) -> Running:
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = loop.create_future()
        self._supervisor: asyncio.Task[None] = loop.create_task(
            self._supervise(), name=f"pumphouse {self.app.name}"
        )
        try:
            await self._wait_for(self._started)
            self._started.result()
        except BaseException:
            self.request_stop()
            self.request_stop()
            await self._finish()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._finish()

    async def _finish(self) -> None:
        """Stop, and wait for it; being cancelled meanwhile makes it stop harder, and still stop."""
        supervisor = self._supervisor
        if not self._stop.is_set():
            self.request_stop()
        cancelled: asyncio.CancelledError | None = None
        while not supervisor.done():
            try:
                await self._wait_for(supervisor)
            except asyncio.CancelledError as again:
                cancelled = again
                self.request_stop()
        if not self._started.done():  # cancelled before its first step
            self._started.set_exception(StoppedWhileStarting(_BROKEN_OFF))
        failed = self._started.exception()  # it has been, or is being, raised
        if cancelled is not None:
            raise cancelled
        if failed is None:
            supervisor.result()

    async def _wait_for(self, event: asyncio.Future[None]) -> None:
        """Wait, without cancelling it and without raising what it raises."""
        await wait_and_move(self._clock or getattr(self._backend, "clock", None), event)

    # --- the supervisor -------------------------------------------------------------------------

    async def _supervise(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                async with asyncio.TaskGroup() as tasks:
                    if self._receive:
                        await self._start_consumers(tasks, stack)
                    self._up = True
                    self._started.set_result(None)
                    while not self._stopped:
                        try:
                            await self._stop.wait()
                            await self._stop_consumers()
                        except asyncio.CancelledError as error:
                            if not _open(tasks):  # a bug of ours: a task failed, all are cancelled
                                for consumer in self.consumers:
                                    consumer.workers.cancel()
                                raise
                            # the loop is being closed, with all its tasks, those of a stop as well:
                            # a new one gives everything back
                            cancelled = error
                            self.request_stop()
                            self.request_stop()
            if cancelled is not None:
                raise cancelled
        except BaseException as error:
            if self._started.done():
                raise
            if isinstance(error, asyncio.CancelledError):
                error = StoppedWhileStarting(_BROKEN_OFF)
            self._started.set_exception(_single(error))
        finally:
            self._over = True
            self._stop.set()  # nobody waits for one that is over

    async def _open(self, stack: AsyncExitStack) -> None:
        if self._backend is None:
            from pumphouse.http import connect

            self._backend = connect()
            stack.push_async_callback(self._backend.aclose)
        if self._clock is None:
            self._clock = getattr(self._backend, "clock", None) or RealClock()
        self._outlet = Outlet(self._backend, self._clock, self.app.hooks)
        stack.push_async_callback(self._outlet.aclose)
        stack.callback(self.app.state.snapshot())
        self.app.dependency_overrides.watch(self._bind)
        stack.callback(self.app.dependency_overrides.watch, None)
        for lifespan in self._lifespans:
            await stack.enter_async_context(enterable(lifespan, self.app))
        for subscription in self.app.subscriptions:
            # what a handler asks for and nobody has put is told before any request
            subscription.plan.bind(self.app, None)

    def _bind(self) -> None:
        """The overrides have changed."""
        for runner in self._runners:
            runner.bind()

    async def _start_consumers(self, tasks: asyncio.TaskGroup, stack: AsyncExitStack) -> None:
        urls = QueueUrls(self.backend)
        subscriptions = self.app.subscriptions
        verifier = self.verifier()
        ready: list[Ready] = [
            await prepare(subscription, self.backend, urls, verifier)
            for subscription in subscriptions
        ]
        await self.outlet.check(self.app, urls)
        priorities = PriorityGroup()
        for subscription, found in zip(subscriptions, ready, strict=True):
            stats = Stats()
            runner = self.runner_for(subscription, stats, found.reading)
            self.consumers.append(
                Consumer(
                    subscription,
                    found,
                    self.backend,
                    self.clock,
                    self.app.hooks,
                    runner,
                    stats,
                    tasks,
                    priorities=priorities,
                    on_end=self._subscription_ended,
                )
            )
        if isinstance(self.clock, RealClock) and self.consumers:
            shortest = min(consumer.ready.lease_seconds for consumer in self.consumers)
            watchdog = Watchdog(max(1.0, min(10.0, shortest / 4)))
            watchdog.start()
            stack.callback(watchdog.stop)
        for consumer in self.consumers:
            consumer.pump.kick()

    def runner_for(
        self, subscription: Subscription, stats: Stats, reading: Reading | None = None
    ) -> Runner:
        """What calls a handler of the app: with its middleware, its replies published here."""
        handler = subscription.handler
        runner = Runner(
            subscription,
            self.clock,
            self.app.hooks,
            stats,
            reply=self.outlet.reply,
            recorder=handler.record if handler is not None and self._record_calls else None,
            reading=reading,
            app=self.app,
            stopping=self._being_stopped,
        )
        self._runners.add(runner)
        return runner

    def _being_stopped(self) -> bool:
        """Whether handlers may have been cancelled by a stop, or with all tasks of their loop."""
        return self._stop.is_set() or self._supervisor.cancelling() > 0

    async def _stop_consumers(self) -> None:
        async with asyncio.TaskGroup() as stops:
            for consumer in self.consumers:
                stops.create_task(stop(consumer, self.clock, self._drain_seconds, self._harder))
        self._stopped = True

    def _subscription_ended(self) -> None:
        if all(consumer.pump.ended for consumer in self.consumers):
            self._stop.set()

    def verifier(self) -> Verifier | None:
        """Who verifies signatures: the one that was given, or one with the certificates of the
        account in process, or else one that fetches them over HTTP; None where no queue wants it.
        """
        if not any(each.queue.verify_sns_signatures for each in self.app.subscriptions):
            return None
        if self.app.sns_verifier is not None:
            return self.app.sns_verifier
        return Verifier(_certificates_of(self.backend), clock=self.clock)


def _certificates_of(backend: Backend) -> Fetch:
    """What gets the certificates that the notifications of a backend are signed with."""
    certificate = getattr(backend, "signing_certificate", None)
    if certificate is None:
        from pumphouse.http.fetch import fetch

        return fetch

    async def of_the_account(url: str, max_bytes: int) -> bytes:
        return bytes(certificate(url.rpartition("/")[2]))

    return of_the_account


def _open(tasks: asyncio.TaskGroup) -> bool:
    """Whether a group takes tasks: it does not after one of them has failed."""
    nothing = asyncio.sleep(0)
    try:
        tasks.create_task(nothing)
    except RuntimeError:
        nothing.close()
        return False
    return True


def _single(error: BaseException) -> BaseException:
    """The one error of a group, where it is one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
