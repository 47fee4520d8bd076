"""Deletes and changes of visibility: ten to a request, each confirmed by its own entry.

A delete waits a few milliseconds for others; a change goes with those of the same moment. An entry
that failed for a reason that may pass, or that the answer leaves out, is sent again with backoff
until its lease is over; any other failure is that entry's alone. Two changes of one lease never
overlap, so the later one counts. What a success or a failure means is for the caller to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from pumphouse.backend import Backend
from pumphouse.backoff import full_jitter
from pumphouse.clock import Clock, Timer
from pumphouse.errors import (
    LeaseLostError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
)
from pumphouse.transport.pieces import Held, State
from pumphouse.transport.tasks import Tasks

PASSING = (NetworkError, TransientError, ThrottledError, OutcomeUnknownError)
"""Failures after which the same request may succeed."""
MAX_ATTEMPTS = 5


@dataclass(eq=False, slots=True)
class Entry:
    """One message to delete, or to leave invisible for `seconds` or until `until`.

    `done` gets the time from which the answer counts: the moment before the request.
    """

    held: Held
    give_up_at: float
    done: asyncio.Future[float]
    seconds: int = 0
    until: float | None = None

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

    def delete(self, held: Held) -> asyncio.Future[float]:
        """Delete a message; tried until its lease is over."""
        return self._add(self._deletes, held, held.deadline)

    def change(
        self, held: Held, seconds: int, *, until: float | None = None
    ) -> asyncio.Future[float]:
        """Let a lease end in `seconds` from when the request is sent, or at `until`; the result is
        when it ends. Tried until the lease is over, and dropped when it was settled meanwhile."""
        return self._add(self._changes, held, held.deadline, seconds, until)

    def flush(self) -> bool:
        """Send all that waits: nothing else is coming soon. Returns whether there was anything."""
        anything = bool(self._deletes.entries or self._changes.entries)
        self._flush(self._deletes)
        self._flush(self._changes)
        return anything

    def _add(
        self,
        bucket: _Bucket,
        held: Held,
        give_up_at: float,
        seconds: int = 0,
        until: float | None = None,
    ) -> asyncio.Future[float]:
        loop = asyncio.get_running_loop()
        entry = Entry(held, give_up_at, loop.create_future(), seconds, until)
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
        for start in range(0, len(going), self._size):
            self._tasks.spawn(self._send(bucket, going[start : start + self._size]))

    async def _send(self, bucket: _Bucket, entries: list[Entry]) -> None:
        """One request, and again for what failed and may pass."""
        everything = entries
        try:
            attempt = 1
            while entries := [entry for entry in entries if self._wanted(bucket, entry)]:
                sent_at = self._clock.monotonic()
                failures = await self._attempt(bucket, entries, sent_at)
                again: list[Entry] = []
                pause = full_jitter(attempt)
                for entry in entries:
                    error = failures.get(entry)
                    if error is None:
                        entry.settle(sent_at + entry.seconds)
                    elif (
                        not isinstance(error, PASSING)
                        or attempt == MAX_ATTEMPTS
                        or self._clock.monotonic() + pause >= entry.give_up_at
                    ):
                        entry.settle(error)
                    else:
                        again.append(entry)
                if entries := again:
                    await self._clock.sleep(pause)
                attempt += 1
        except BaseException as error:
            for entry in everything:
                entry.settle(error)
            raise
        finally:
            if not bucket.deletes:
                self._changing.difference_update(entry.held for entry in everything)
                if bucket.entries:
                    self._flush(bucket)

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
    ) -> dict[Entry, PumphouseError]:
        """Send the entries once; returns those that failed, each with its own reason."""
        for entry in entries:
            if entry.until is not None:
                entry.seconds = max(1, ceil(entry.until - sent_at))
        try:
            if self._size == 1:
                await self._send_one(bucket, entries[0])
                return {}
            done, failed = await self._send_batch(bucket, entries)
        except PumphouseError as error:
            return dict.fromkeys(entries, error)
        failures: dict[Entry, PumphouseError] = {}
        reasons = {failure.id: failure for failure in failed}
        for index, entry in enumerate(entries):
            name = str(index)
            if (reason := reasons.get(name)) is not None:
                failures[entry] = from_answer(
                    reason.code,
                    reason.message or "",
                    status=400 if reason.sender_fault else 500,
                    sender_fault=reason.sender_fault,
                )
            elif name not in done:
                failures[entry] = OutcomeUnknownError("the answer says nothing of this entry")
        return failures

    async def _send_one(self, bucket: _Bucket, entry: Entry) -> None:
        url = self._queue_url
        if bucket.deletes:
            await self._backend.execute(DeleteMessage(url, entry.handle))
        else:
            await self._backend.execute(ChangeMessageVisibility(url, entry.handle, entry.seconds))

    async def _send_batch(
        self, bucket: _Bucket, entries: Sequence[Entry]
    ) -> tuple[set[str], Sequence[BatchResultErrorEntry]]:
        url = self._queue_url
        if bucket.deletes:
            deleted = await self._backend.execute(
                DeleteMessageBatch(
                    url,
                    [
                        DeleteMessageBatchRequestEntry(str(index), entry.handle)
                        for index, entry in enumerate(entries)
                    ],
                )
            )
            return {entry.id for entry in deleted.successful}, deleted.failed
        changed = await self._backend.execute(
            ChangeMessageVisibilityBatch(
                url,
                [
                    ChangeMessageVisibilityBatchRequestEntry(
                        str(index), entry.handle, entry.seconds
                    )
                    for index, entry in enumerate(entries)
                ],
            )
        )
        return {entry.id for entry in changed.successful}, changed.failed
