"""The batcher of one queue and one set of credentials: runs what `schedule.py` decides.

It owns the request tasks and one timer, asks its `send` for the outcome of every entry of a batch,
and then settles each entry: stored, tried again later, or failed for good. What a request looks
like and what an answer means is the sink's business; which entries travel together the schedule's;
which are tried again is said in `repeating.py`.

Whatever ends a task, its own error or its loop, nobody is left waiting and no place is lost: what
the task had still to bring to an end is settled when it is over (`_ended`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any

from pumphouse.backend import left_nothing
from pumphouse.clock import Clock, Timer
from pumphouse.confirmation import Confirmed, Outcome
from pumphouse.errors import (
    ClosedError,
    CrossThreadError,
    NetworkError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    RefusedError,
    ThrottledError,
)
from pumphouse.sink.entry import HELD, Limits
from pumphouse.sink.outgoing import Outgoing
from pumphouse.sink.repeating import Repeating, kind_of, truth
from pumphouse.sink.schedule import NEVER, Schedule

_log = logging.getLogger("pumphouse.sink")


class Batcher:
    """Takes entries, sends them in batches, and resolves each entry's future with its outcome.

    `look_up()` is what has to be awaited before a request, if anything: it brings why nothing can
    be sent, or None. `send(batch, failure)` says what became of every entry and doesn't raise, but
    for its cancellation; a `failure` is the look-up's, and nothing is sent. `bury(failed)` is told
    of what failed for good, before its caller is, and doesn't raise.
    """

    def __init__(
        self,
        send: Callable[[list[Outgoing], PumphouseError | None], Awaitable[Confirmed]],
        look_up: Callable[[], Awaitable[PumphouseError | None] | None],
        bury: Callable[[list[tuple[Outgoing, PumphouseError, str]]], Awaitable[None]] | None,
        *,
        limits: Limits,
        fifo: bool,
        repeating: Repeating,
        clock: Clock,
    ) -> None:
        self._send = send
        self._look_up = look_up
        self._bury = bury
        self._fifo = fifo
        self._linger = limits.batch_linger
        self._repeating = repeating
        self._clock = clock
        self._schedule: Schedule[Outgoing] = Schedule(limits, exclusive=fifo)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first that came
        self._tasks: dict[asyncio.Task[None], list[Outgoing]] = {}  # with what is theirs to settle
        self._changed = asyncio.Event()
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._closing = False
        self._given_up = False
        self._cut_off = False  # a request was cancelled: does the loop end?
        self.counts: Counter[str] = Counter()

    # --- in ---------------------------------------------------------------------------------

    def submit(self, entry: Outgoing, *, wait: bool) -> None:
        """Admit an entry; its future `done` will have the outcome.

        Past a ceiling it waits for room, or `ThrottledError` is raised; `ClosedError` after
        `close` was called; `CrossThreadError` in another event loop.
        """
        if self._closing:
            raise ClosedError("the sink is closed; nothing was sent")
        if (loop := entry.done.get_loop()) is not self._loop:
            self._settle_in(loop)
        schedule = self._schedule
        now = self._clock.monotonic()
        reason = schedule.admit(entry, now)
        if reason is None:
            if schedule.called or schedule.is_full() or self._timer_at > now + self._linger:
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
            error.retry_after_seconds = self._repeating.draw(1)
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
        self._cut_off = False
        self._tasks.clear()

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
        if isinstance(entry.held, asyncio.Task):
            entry.held.cancel()
        self.counts["withdrawn" if entry.first_unknown is None else "unknown"] += 1
        self._pump(now)
        self._changed.set()
        return True

    # --- out --------------------------------------------------------------------------------

    def _pump(self, now: float) -> None:
        """Send what can be sent now, and see to it that the rest is looked at in time."""
        if self._cut_off:
            return
        schedule = self._schedule
        while schedule.called:
            self._prepare(schedule.called.popleft())
        while (batch := schedule.take(now, flush=self._closing)) is not None:
            self._start(self._request(batch), batch)
        when = schedule.next_time()
        if when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = when
            self._timer = self._clock.call_later(when - now, self._tick)

    def _start(
        self,
        work: Coroutine[Any, Any, None],
        theirs: list[Outgoing],
        context: Context | None = None,
    ) -> asyncio.Task[None]:
        """Run a task, which empties the list of what is its own to settle when that is settled."""
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks[task] = theirs
        task.add_done_callback(self._ended)
        return task

    def _prepare(self, entry: Outgoing) -> None:
        """Begin what has to be done before an entry can be sent, in the context of its caller."""
        if entry.state == HELD:
            prepare, context = given = entry.held
            held = [entry]
            task = self._start(self._make_ready(held, prepare), held, context)
            if entry.held is given:  # an eager task may have done it by now
                entry.held = task

    async def _make_ready(
        self, held: list[Outgoing], prepare: Callable[[], Awaitable[int | PumphouseError]]
    ) -> None:
        entry = held[0]
        found = await prepare()
        held.clear()
        if entry.state != HELD:
            return
        now = self._clock.monotonic()
        if isinstance(found, PumphouseError):
            self._schedule.withdraw(entry, now)
        else:
            self._schedule.ready(entry, found, now)
        self._pump(now)
        if isinstance(found, PumphouseError) and not entry.done.done():
            await self._fail([(entry, found)])

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task is over; what it should have settled, and did not, is settled here."""
        left = self._tasks.pop(task, None)
        if left:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _log.error("a request broke off", exc_info=error)
            else:
                self._cut_short()
            if left[0].held is not None:
                failed = self._unprepared(left[0], error)
            elif error is None:  # it was cancelled before its first step
                failed = self._unsent(left)
            else:
                now = self._clock.monotonic(), self._clock.now()
                text = f"the request broke off with {type(error).__name__}"
                failed = self._settle(left, [_unknown(text, error) for _ in left], False, now)
            if failed:
                self._start(self._fail(failed), [])
        self._changed.set()

    def _unprepared(
        self, entry: Outgoing, error: BaseException | None
    ) -> list[tuple[Outgoing, PumphouseError]]:
        """What has to be done before an entry can be sent broke off."""
        if entry.state != HELD:
            return []
        self._schedule.withdraw(entry, self._clock.monotonic())
        if entry.done.done():
            return []
        failure = NotSentError("not sent: what has to be done before was cancelled")
        if error is not None:
            failure = NotSentError(f"not sent: what has to be done before failed ({error!r})")
            failure.__cause__ = error
        return [(entry, failure)]

    def _tick(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self._clock.monotonic()
        self._schedule.wake(now)
        self._pump(now)

    async def _request(self, batch: list[Outgoing]) -> None:
        """One request, from the start to the settlement of each of its entries."""
        clock, may_begin = self._clock, self._repeating.may_begin
        began = clock.monotonic(), clock.now()
        late: list[Outgoing] = []
        sent = batch
        as_one = False
        failure: PumphouseError | None = None
        outcomes: list[Outcome] = []
        try:
            if (looking := self._look_up()) is not None:
                failure = await looking
                began = clock.monotonic(), clock.now()
            for entry in batch:
                if not entry.tries:
                    entry.first_try = began[0]
                elif not may_begin(entry, began):
                    late.append(entry)  # as late as it is now: it ends as its last try did
                    continue
                entry.tries += 1
            if late:
                sent = [entry for entry in batch if entry not in late]
            if sent:
                outcomes, _, as_one = await self._send(sent, failure)
        except asyncio.CancelledError as error:  # by `_give_up`, with its loop, or by the backend
            self._cut_short()
            if left_nothing(error):
                await self._fail(self._unsent(batch))
                return
            outcomes = [_unknown("the request was cancelled before its answer") for _ in sent]
        if late:
            answered = iter(outcomes)
            outcomes = [
                (e.error or _unknown("no answer")) if e in late else next(answered) for e in batch
            ]
        await self._fail(self._settle(batch, outcomes, as_one, began))

    def _settle(
        self,
        batch: list[Outgoing],
        outcomes: list[Outcome],
        as_one: bool,
        began: tuple[float, float],
    ) -> list[tuple[Outgoing, PumphouseError]]:
        """Settle a request that is over; returned is what failed for good."""
        now = self._clock.monotonic(), self._clock.now()
        retries: list[tuple[Outgoing, float]] = []
        failed: list[tuple[Outgoing, PumphouseError]] = []
        draws: dict[int, float] = {}
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
            if self._given_up:
                failed.append((entry, truth(entry, outcome)))
            elif as_one and len(batch) > 1 and isinstance(outcome, RefusedError):
                entry.alone = True  # whose fault it was shows when each goes by itself
                retries.append((entry, now[0]))
            elif (
                not entry.done.done()  # somebody waits for another try
                and (wait := self._repeating.delay(entry, outcome, now, draws)) is not None
            ):
                self.counts["retried"] += 1
                retries.append((entry, now[0] + wait))
            else:
                failed.append((entry, truth(entry, outcome)))
        self.counts["stored"] += stored
        if not self._given_up:
            self._schedule.finish(batch, retries, now[0])
            self._pump(now[0])
        batch.clear()
        return failed

    def _unsent(self, batch: list[Outgoing]) -> list[tuple[Outgoing, PumphouseError]]:
        """Settle a request that is over before anything of it left; as `_settle`."""
        if self._given_up:
            failed = self._abandon(batch)
            batch.clear()
            return failed
        began = self._clock.monotonic(), self._clock.now()
        for entry in batch:
            entry.first_try = entry.first_try if entry.tries else began[0]
        lost: list[Outcome] = [NetworkError("the request was cancelled unsent") for _ in batch]
        return self._settle(batch, lost, False, began)

    def _cut_short(self) -> None:
        """A request was cancelled. Its loop may be about to end, and with it all who wait: nothing
        is begun before they had their turn."""
        if not self._given_up and not self._cut_off:
            self._cut_off = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._cut_off = False
        self._pump(self._clock.monotonic())

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

    async def close(self, deadline_seconds: float, hurry: Callable[[], None]) -> None:
        """Send what waits, wait for the answers, and give every caller its outcome.

        At the deadline, what is unanswered is unknown, what was never sent fails with
        `ClosedError`, and what was failing fails with the error of its last try. `hurry` is called
        when this is cancelled, before what is being buried is waited for.
        """
        self._settle_in(asyncio.get_running_loop())
        self._closing = True
        timer = self._clock.call_later(max(0.0, deadline_seconds), self._give_up)
        try:
            self._pump(self._clock.monotonic())
            inside = self._schedule.admission
            while self._tasks or inside.inside or inside.parked:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            hurry()
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
        for task, theirs in self._tasks.items():
            if theirs:  # it has not been settled
                task.cancel()
        if failed := self._abandon(self._schedule.drain()):
            self._start(self._fail(failed), [])
        self._changed.set()

    def _abandon(self, entries: list[Outgoing]) -> list[tuple[Outgoing, PumphouseError]]:
        """Let go of entries that no request will carry any more. Those that were never sent are
        told so; returned are the others, with the error of their last try."""
        failed: list[tuple[Outgoing, PumphouseError]] = []
        for entry in entries:
            if entry.error is not None:
                failed.append((entry, truth(entry, entry.error)))
                continue
            self.counts["withdrawn"] += 1
            if not entry.done.done():
                entry.done.set_exception(
                    ClosedError("the sink was closed before the message could be sent")
                )
        return failed

    def __repr__(self) -> str:
        return f"Batcher({'closing, ' if self._closing else ''}{self._schedule!r})"


def _unknown(text: str, error: BaseException | None = None) -> OutcomeUnknownError:
    unknown = OutcomeUnknownError(text)
    unknown.__cause__ = error
    return unknown


_COUNTED = (
    *("requests", "stored", "retried", "withdrawn", "queue_full", "strangers"),
    *("unknown", "config_errors", "too_large", "refused", "throttled", "transient"),
    "unreachable",
)
