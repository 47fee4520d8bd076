"""Deletes and changes of visibility on their way: in tens, each with an outcome of its own.

A delete waits a few milliseconds for others; a change goes with those of the same moment. An entry
that failed for a reason that may pass, or that the answer leaves out, is sent again with backoff
until its lease is over, and holds up no other; any other failure is that entry's alone. Two changes
of one lease never overlap, so the later one counts. What a success or a failure means is for the
caller to say, and what an answer says of each entry is in `pumphouse.settling`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from pumphouse import settling
from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy, one_try
from pumphouse.clock import Clock, Timer
from pumphouse.errors import (
    LeaseLostError,
    MessageNotInflight,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    ReceiptHandleExpired,
    ReceiptHandleIsInvalid,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.operations import ChangeMessageVisibility, DeleteMessage
from pumphouse.transport.pieces import Held, State
from pumphouse.transport.tasks import Tasks

PASSING = (NetworkError, TransientError, ThrottledError, OutcomeUnknownError)
"""Failures after which the same request may succeed."""
LOST = (ReceiptHandleExpired, ReceiptHandleIsInvalid, MessageNotInflight)
"""What SQS says of a lease that is over."""
RETRIES = RetryPolicy(base_seconds=0.1, cap_seconds=5.0, max_attempts=5, budget_seconds=None)
"""How an entry is sent again; the number of attempts counts only when there is no more time."""


@dataclass(eq=False, slots=True)
class Entry:
    """One message to delete, or to leave invisible for `seconds` or until `until`.

    `done` gets the time from which the answer counts: the moment before the request.
    """

    held: Held
    done: asyncio.Future[float]
    seconds: int = 0
    until: float | None = None
    attempts: int = 0
    unknown: bool = False
    """Whether an attempt may have been carried out, though nothing said so."""

    @property
    def handle(self) -> str:
        return self.held.message.receipt_handle

    def settle(self, result: float | BaseException) -> None:
        if not self.done.done():
            if isinstance(result, BaseException):
                self.done.set_exception(result)
            else:
                self.done.set_result(result)


@dataclass(slots=True)
class _Bucket:
    """Entries of one action that wait to be sent."""

    deletes: bool
    linger_seconds: float
    entries: list[Entry] = field(default_factory=list)
    timer: Timer | asyncio.Handle | None = None


class Settler:
    """See the module. `batch` False sends each entry by itself, at once."""

    def __init__(
        self,
        backend: Backend,
        queue_url: str,
        clock: Clock,
        tasks: Tasks,
        *,
        batch: bool,
        linger_seconds: float,
    ) -> None:
        self._backend = backend
        self._queue_url = queue_url
        self._clock = clock
        self._tasks = tasks
        self._size = MAX_BATCH_ENTRIES if batch else 1
        self._deletes = _Bucket(True, linger_seconds if batch else 0.0)
        self._changes = _Bucket(False, 0.0)
        self._changing: set[Held] = set()
        self._hurried = False

    def delete(self, held: Held) -> asyncio.Future[float]:
        """Delete a message; tried until its lease is over."""
        return self._add(self._deletes, held)

    def change(
        self, held: Held, seconds: int, *, until: float | None = None
    ) -> asyncio.Future[float]:
        """Let a lease end in `seconds` from when the request is sent, or at `until`; the result is
        when it ends. Tried until the lease is over, and dropped when it was settled meanwhile."""
        return self._add(self._changes, held, seconds, until)

    def flush(self) -> bool:
        """Send all that waits: nothing else is coming soon. Returns whether there was anything."""
        anything = bool(self._deletes.entries or self._changes.entries)
        self._flush(self._deletes)
        self._flush(self._changes)
        return anything

    def hurry(self) -> None:
        """From now on, an entry that fails for long is given up, though its lease may last."""
        self._hurried = True

    def _add(
        self, bucket: _Bucket, held: Held, seconds: int = 0, until: float | None = None
    ) -> asyncio.Future[float]:
        loop = asyncio.get_running_loop()
        entry = Entry(held, loop.create_future(), seconds, until)
        bucket.entries.append(entry)
        if bucket.deletes and len(bucket.entries) >= self._size:
            self._flush(bucket)
        elif bucket.timer is None:
            if bucket.linger_seconds > 0:
                bucket.timer = self._clock.call_later(
                    bucket.linger_seconds, lambda: self._flush(bucket)
                )
            else:
                bucket.timer = loop.call_soon(self._flush, bucket)
        return entry.done

    def _flush(self, bucket: _Bucket) -> None:
        if bucket.timer is not None:
            bucket.timer.cancel()
            bucket.timer = None
        going: list[Entry] = []
        staying: list[Entry] = []
        for entry in bucket.entries:
            if bucket.deletes:
                going.append(entry)
            elif entry.held in self._changing:
                staying.append(entry)
            else:
                self._changing.add(entry.held)
                going.append(entry)
        bucket.entries = staying  # until the change that is under way is answered
        self._start(bucket, going)

    def _start(self, bucket: _Bucket, going: Sequence[Entry]) -> None:
        for start in range(0, len(going), self._size):
            self._tasks.spawn(self._send(bucket, going[start : start + self._size]))

    async def _send(self, bucket: _Bucket, entries: Sequence[Entry]) -> None:
        """One request; what failed and may pass is sent again later."""
        one_try.set(True)  # what fails is tried again here, and only here
        again: list[Entry] = []
        pause = 0.0
        try:
            wanted = [entry for entry in entries if self._wanted(bucket, entry)]
            sent_at = self._clock.monotonic()
            failures = await self._attempt(bucket, wanted, sent_at) if wanted else {}
            for position, entry in enumerate(wanted):
                error = failures.get(position)
                if error is None or (entry.unknown and _given_back(bucket, entry, error)):
                    entry.settle(sent_at + entry.seconds)
                elif self._again(entry, error):
                    again.append(entry)
                    pause = max(pause, getattr(error, "retry_after_seconds", 0.0))
                else:
                    entry.settle(error)
            self._answered(bucket, entries, again)
            if again:
                pause = max(pause, RETRIES.delay(max(entry.attempts for entry in again)))
                await self._clock.sleep(pause)
                self._start(bucket, again)
        except BaseException as error:
            for entry in entries:
                entry.settle(error)
            self._answered(bucket, entries, ())
            raise

    def _answered(self, bucket: _Bucket, entries: Sequence[Entry], again: Sequence[Entry]) -> None:
        """Let the next changes of these leases go, but for those that are sent again."""
        if bucket.deletes:
            return
        self._changing.difference_update(entry.held for entry in entries)
        self._changing.update(entry.held for entry in again)
        if self._changes.entries:
            self._flush(self._changes)

    def _again(self, entry: Entry, error: PumphouseError) -> bool:
        """Whether an entry that failed is sent again."""
        entry.attempts += 1
        entry.unknown |= isinstance(error, OutcomeUnknownError)
        return (
            isinstance(error, PASSING)
            and entry.held.deadline > self._clock.monotonic()
            and not (self._hurried and not RETRIES.allows(entry.attempts, 0.0))
        )

    def _wanted(self, bucket: _Bucket, entry: Entry) -> bool:
        """Whether the entry still has a point; one that has none ends as a lost lease."""
        if bucket.deletes or (entry.seconds == 0 and entry.until is None):
            return True
        if entry.held.state is State.GONE:
            entry.settle(LeaseLostError("the lease was settled, or ended, before it was extended"))
            return False
        return True

    async def _attempt(
        self, bucket: _Bucket, entries: Sequence[Entry], sent_at: float
    ) -> settling.Failures:
        """Send the entries once; returns those that failed, each with its own reason."""
        for entry in entries:
            if entry.until is not None:
                entry.seconds = max(1, ceil(entry.until - sent_at))
        try:
            if self._size == 1:
                await self._send_one(bucket, entries[0])
                return {}
            if bucket.deletes:
                handles = [entry.handle for entry in entries]
                return await settling.delete(self._backend, self._queue_url, handles)
            changes = [(entry.handle, entry.seconds) for entry in entries]
            return await settling.change_visibility(self._backend, self._queue_url, changes)
        except PumphouseError as error:
            return dict.fromkeys(range(len(entries)), error)

    async def _send_one(self, bucket: _Bucket, entry: Entry) -> None:
        url = self._queue_url
        if bucket.deletes:
            await self._backend.execute(DeleteMessage(url, entry.handle))
        else:
            await self._backend.execute(ChangeMessageVisibility(url, entry.handle, entry.seconds))


def _given_back(bucket: _Bucket, entry: Entry, error: PumphouseError) -> bool:
    """Whether a give-back whose answer was lost turns out to have been carried out."""
    return not bucket.deletes and entry.seconds == 0 and isinstance(error, LOST)
