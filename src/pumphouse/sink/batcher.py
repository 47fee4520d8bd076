"""The batcher of one queue and one set of credentials: runs what `schedule.py` decides.

It owns the request tasks and one timer, asks its `send` for the outcome of every entry of a batch,
and then settles each entry: stored, tried again later, or failed for good. What a request looks
like and what an answer means is the sink's business; which entries travel together the schedule's.

An entry that failed is tried again

* when it was throttled or failed transiently, could not reach the service, or found no credentials:
  nothing was stored;
* when its outcome is unknown, if that can't double it (a FIFO queue, within the deduplication
  window), or the caller accepted that it may (`retry_unknown`).

Attempts and seconds are bounded by one `RetryPolicy` for each entry, from its first try.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pumphouse.backoff import RetryPolicy
from pumphouse.clock import Clock, Timer
from pumphouse.confirmation import Confirmed
from pumphouse.errors import (
    ClosedError,
    ConfigError,
    CrossThreadError,
    MessageTooLargeError,
    NetworkError,
    NoCredentialsError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    RefusedError,
    ThrottledError,
    TransientError,
)
from pumphouse.sink.entry import Limits
from pumphouse.sink.outgoing import Outgoing
from pumphouse.sink.schedule import NEVER, Schedule

DEDUPLICATION_SECONDS = 300.0
"""For how long a FIFO queue recognises a deduplication id ("Exactly-once processing" in the SQS
developer guide)."""
_DEDUPLICATION_MARGIN = 30.0  # what a request may still take once it has been started


class Batcher:
    """Takes entries, sends them in batches, and resolves each entry's future with its outcome.

    `send(batch)` says what became of every entry and doesn't raise, but for its cancellation;
    `bury(failed)` is told of what failed for good, before its caller is, and doesn't raise.
    """

    def __init__(
        self,
        send: Callable[[list[Outgoing]], Awaitable[Confirmed]],
        bury: Callable[[list[tuple[Outgoing, PumphouseError, str]]], Awaitable[None]] | None,
        *,
        limits: Limits,
        fifo: bool,
        retry: RetryPolicy,
        retry_unknown: bool,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._send = send
        self._bury = bury
        self._fifo = fifo
        self._linger = limits.batch_linger
        self._retry = retry
        self._retry_unknown = retry_unknown
        self._clock = clock
        self._rng = rng
        self._schedule: Schedule[Outgoing] = Schedule(limits, exclusive=fifo)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first that came
        self._coming: set[asyncio.Timeout] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._closing = False
        self._given_up = False
        self.counts: Counter[str] = Counter()

    # --- in ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def coming(self) -> AsyncIterator[None]:
        """Around what a caller has to wait for before it can `submit` with `came`: closing waits
        for it, too, and ends it at the deadline with `ClosedError`."""
        if self._closing:
            raise ClosedError("the sink is closed; nothing was sent")
        self._settle_in(asyncio.get_running_loop())
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._coming.add(scope)
                try:
                    yield
                finally:
                    self._coming.discard(scope)
                    self._changed.set()
        except TimeoutError:
            if not scope.expired():
                raise
            raise ClosedError("the sink was closed before the message could be sent") from None

    def submit(self, entry: Outgoing, *, wait: bool, came: bool = False) -> None:
        """Admit an entry; its future `done` will have the outcome.

        Past a ceiling it waits for room, or `ThrottledError` is raised; `ClosedError` after
        `close` was called, unless it `came` before that; `CrossThreadError` in another event loop.
        """
        if self._closing and (self._given_up or not came):
            raise ClosedError("the sink is closed; nothing was sent")
        if (loop := entry.done.get_loop()) is not self._loop:
            self._settle_in(loop)
        schedule = self._schedule
        now = self._clock.monotonic()
        reason = schedule.admit(entry, now)
        if reason is None:
            if self._closing or schedule.is_full() or self._timer_at > now + self._linger:
                self._pump(now)
        elif wait:
            schedule.admission.park(entry)
            schedule.admit_parked(now)
            self._pump(now)
        else:
            self.counts["queue_full"] += 1
            error = ThrottledError(
                f"the sink's queue is full ({reason}); nothing was sent",
                code="SinkQueueFull",
                status=429,
            )
            error.retry_after_seconds = self._retry.delay(1, self._rng)
            raise error

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to an event loop: to the first one, or to the next once that is closed. What a
        closed loop left behind has no caller any more, and no request that could end."""
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise CrossThreadError(
                "the sink belongs to another event loop; make one for each loop, "
                "or use pumphouse.sync.sink.Sink from threads"
            )
        if self._schedule.admission.inside or self._schedule.admission.parked:
            self._schedule = Schedule(self._schedule.limits, exclusive=self._fifo)
        self._loop = loop
        self._timer, self._timer_at = None, NEVER
        self._changed = asyncio.Event()
        for what in (self._tasks, self._sending, self._coming):
            what.clear()

    def limit(self, limits: Limits) -> None:
        """Make batches by other limits from now on."""
        self._schedule.limits = limits

    async def refuse(self, entry: Outgoing, error: PumphouseError) -> None:
        """Fail an entry that is not to be sent at all."""
        await self._fail([(entry, error)])

    def withdraw(self, entry: Outgoing) -> bool:
        """Take back an entry whose caller is gone; False while a request is carrying it."""
        now = self._clock.monotonic()
        if not self._schedule.withdraw(entry, now):
            return False
        self.counts["withdrawn" if entry.first_unknown is None else "unknown"] += 1
        self._pump(now)
        self._changed.set()
        return True

    # --- out --------------------------------------------------------------------------------

    def _pump(self, now: float) -> None:
        """Send what can be sent now, and see to it that the rest is looked at in time."""
        schedule = self._schedule
        while (batch := schedule.take(now, flush=self._closing)) is not None:
            self._start(self._request(batch))
        when = schedule.next_time()
        if when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._clock.call_later(when - now, self._tick)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._sending.discard(task)
        self._changed.set()

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self._clock.monotonic()
        self._schedule.wake(now)
        self._pump(now)

    async def _request(self, batch: list[Outgoing]) -> None:
        """One request, from the start to the settlement of each of its entries."""
        if self._given_up:  # between the decision to send and the first step of doing it
            await self._fail(self._abandon(batch))
            return
        if (task := asyncio.current_task()) is not None:
            self._sending.add(task)
        began = self._clock.monotonic()
        for entry in batch:
            if not entry.tries:
                entry.first_try = began
            entry.tries += 1
        try:
            outcomes, _, as_one = await self._send(batch)
        except asyncio.CancelledError:  # by `_give_up`, or with the loop: there is no going on
            self._give_up()
            lost = "the sink was closed before the request was answered"
            outcomes, as_one = [OutcomeUnknownError(lost) for _ in batch], True
        if task is not None:
            self._sending.discard(task)
        now = self._clock.monotonic()
        retries: list[tuple[Outgoing, float]] = []
        failed: list[tuple[Outgoing, PumphouseError]] = []
        draws: dict[int, float] = {}  # shared, so that what failed together goes together again
        stored = 0
        for entry, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, PumphouseError):
                stored += 1
                if not entry.done.done():
                    entry.done.set_result(outcome)
                continue
            entry.error = outcome
            if entry.first_unknown is None and isinstance(outcome, OutcomeUnknownError):
                entry.first_unknown = began
            alone = as_one and len(batch) > 1 and isinstance(outcome, RefusedError)
            if alone and not self._given_up:
                entry.alone = True  # whose fault it was shows when each goes by itself
                retries.append((entry, now))
            elif (wait := self._next_delay(entry, outcome, draws, now)) is not None:
                self.counts["retried"] += 1
                retries.append((entry, now + wait))
            else:
                failed.append((entry, _truth(entry, outcome)))
        self.counts["stored"] += stored
        if not self._given_up:
            self._schedule.finish(batch, retries, now)
            self._pump(now)
        await self._fail(failed)

    def _next_delay(
        self, entry: Outgoing, error: PumphouseError, draws: dict[int, float], now: float
    ) -> float | None:
        """Seconds until the entry's next try, or None when there is none."""
        if self._given_up or entry.done.cancelled():  # nobody waits for another try
            return None
        if isinstance(error, OutcomeUnknownError):
            if not (self._fifo or self._retry_unknown):
                return None
        elif not isinstance(error, _NOT_STORED):
            return None
        attempt = entry.tries
        if (wait := draws.get(attempt)) is None:
            wait = draws[attempt] = self._retry.delay(attempt, self._rng)
        if isinstance(error, ThrottledError):
            wait = max(wait, error.retry_after_seconds)
        if not self._retry.allows(attempt, now - entry.first_try + wait):
            return None
        if entry.first_unknown is not None and self._fifo and not self._retry_unknown:
            remembered = entry.first_unknown + DEDUPLICATION_SECONDS - _DEDUPLICATION_MARGIN
            if now + wait > remembered:
                return None  # the queue may have forgotten the id by then, and store it twice
        return wait

    async def _fail(self, failed: list[tuple[Outgoing, PumphouseError]]) -> None:
        if not failed:
            return
        kinds = [(entry, error, kind_of(error)) for entry, error in failed]
        for _, _, kind in kinds:
            self.counts[kind] += 1
        try:
            if self._bury is not None:
                await self._bury(kinds)
        finally:
            for entry, error in failed:
                if not entry.done.done():
                    entry.done.set_exception(error)

    @property
    def closing(self) -> bool:
        return self._closing

    def stats(self) -> dict[str, int]:
        """Everything that is counted, with what is waiting or on its way."""
        inside = self._schedule.admission
        now = {"waiting": inside.inside + inside.parked}
        return dict.fromkeys(_COUNTED, 0) | self.counts | now

    # --- the end ----------------------------------------------------------------------------

    async def close(self, deadline_seconds: float) -> None:
        """Send what waits, wait for the answers, and give every caller its outcome.

        At the deadline, what is unanswered is unknown, what was never sent fails with
        `ClosedError`, and what was failing fails with the error of its last try.
        """
        self._settle_in(asyncio.get_running_loop())
        self._closing = True
        timer = self._clock.call_later(max(0.0, deadline_seconds), self._give_up)
        try:
            self._pump(self._clock.monotonic())
            inside = self._schedule.admission
            while self._tasks or self._coming or inside.inside or inside.parked:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self._give_up()
            while self._tasks:
                await asyncio.wait(self._tasks)
            raise
        finally:
            timer.cancel()
            if self._timer is not None:
                self._timer.cancel()
                self._timer, self._timer_at = None, NEVER

    def _give_up(self) -> None:
        """The end of the deadline: no more requests, and the truth for everyone."""
        if self._given_up:
            return
        self._closing = self._given_up = True
        for task in tuple(self._sending):
            task.cancel()
        for scope in self._coming:
            scope.reschedule(0)
        if failed := self._abandon(self._schedule.drain()):
            self._start(self._fail(failed))
        self._changed.set()

    def _abandon(self, entries: list[Outgoing]) -> list[tuple[Outgoing, PumphouseError]]:
        """Let go of entries that no request will carry any more. Those that were never sent are
        told so; returned are the others, with the error of their last try."""
        failed: list[tuple[Outgoing, PumphouseError]] = []
        for entry in entries:
            if entry.error is not None:
                failed.append((entry, _truth(entry, entry.error)))
                continue
            self.counts["withdrawn"] += 1
            if not entry.done.done():
                entry.done.set_exception(
                    ClosedError("the sink was closed before the message could be sent")
                )
        return failed

    def __repr__(self) -> str:
        return f"Batcher({'closing, ' if self._closing else ''}{self._schedule!r})"


def _truth(entry: Outgoing, error: PumphouseError) -> PumphouseError:
    """The final word on an entry: unknown, when any of its tries was and none was confirmed."""
    if entry.first_unknown is None or isinstance(error, OutcomeUnknownError):
        return error
    unknown = OutcomeUnknownError(f"one try was not answered, and the last one brought: {error}")
    unknown.__cause__ = error
    return unknown


def kind_of(error: PumphouseError) -> str:
    """The word under which a failure is counted and written down."""
    for kind, name in _KINDS:
        if isinstance(error, kind):
            return name
    return "failed"


_COUNTED = (
    *("requests", "stored", "retried", "withdrawn", "queue_full", "strangers"),
    *("unknown", "config_errors", "too_large", "refused", "throttled", "transient"),
    "unreachable",
)
_NOT_STORED = (ThrottledError, TransientError, NetworkError, NoCredentialsError)
_KINDS: tuple[tuple[type[PumphouseError], str], ...] = (
    (OutcomeUnknownError, "unknown"),
    (ConfigError, "config_errors"),
    (MessageTooLargeError, "too_large"),
    (RefusedError, "refused"),
    (ThrottledError, "throttled"),
    (TransientError, "transient"),
    (NetworkError, "unreachable"),
    (NotSentError, "not_sent"),
)
