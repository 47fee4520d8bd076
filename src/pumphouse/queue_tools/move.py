"""Moving messages by hand: received, sent and confirmed, and only then deleted.

Whatever happens, a message is in the source or in its destination: it leaves the source when SQS
has confirmed that the destination stored it. Workers receive in tens; the messages of a FIFO group
are sent one after the other, and once one has failed, those behind it stay, also those that come
later. What stays is held until the end, so that it is not received again, and then given back; of a
FIFO queue it is received again where more may be behind it (`groups.py`). What comes again is
known, and never dealt with twice.

On a FIFO queue the deduplication id is made of the message's id in the source. So a message whose
send or delete was never answered is not stored twice when it is sent again within five minutes, by
this run or by the next; and two messages with equal ids of their own, sent an hour apart, are both
stored, where their own ids would have let the second one vanish.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TypeVar

from pumphouse import settling
from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy, one_try
from pumphouse.clock import Clock, timeout
from pumphouse.content import check_attributes
from pumphouse.errors import (
    NetworkError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedConfigError,
    ThrottledError,
    TransientError,
    told_of,
)
from pumphouse.model import Receipt
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.operations import Attributes, ReceivedMessage, ReceiveMessage
from pumphouse.queue_tools.groups import Groups
from pumphouse.queue_tools.reading import give_back
from pumphouse.queue_tools.results import INTERRUPTED, Redriven
from pumphouse.queue_tools.selection import SINK_QUEUE, SINK_REASON
from pumphouse.sink import Sink
from pumphouse.sink.chains import in_order
from pumphouse.subscriber.dead_letters import ATTEMPTS, MESSAGE_ID, REASON, SOURCE

LEASE_SECONDS = 120
"""How long a message is held while it is moved: longer than its sends are tried, and short enough
that what a killed run held comes back while SQS still knows its deduplication ids."""
LONG_LEASE_SECONDS = 600
"""The same on a standard queue where messages stay behind, which are held until the end. On a FIFO
queue it would be longer than SQS knows a deduplication id."""
WAIT_SECONDS = 2
WORKERS = 8
RETRIES = RetryPolicy(base_seconds=0.2, cap_seconds=5.0, max_attempts=6, budget_seconds=30.0)
_PASSING = (ThrottledError, TransientError, NetworkError, OutcomeUnknownError)
_NOTES = (
    *(REASON, ATTEMPTS, SOURCE, MESSAGE_ID),
    *(SINK_REASON, SINK_QUEUE, "pumphouse.error", "pumphouse.subject"),
)
_WORKER_RATE = 50.0  # what one worker is sure to do in a second
_ROUNDS = 2  # so often all that is known comes again, before nothing new is expected

T = TypeVar("T")
Route = Callable[[ReceivedMessage], Awaitable[tuple[str, bool]]]
"""Where a message goes: the queue's URL, and whether it came from there. Raises `PumphouseError`
where there is no such queue."""


class Pace:
    """So many messages a second, evenly, until `stop` is set."""

    def __init__(self, rate: float | None, clock: Clock, stop: asyncio.Event) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._clock = clock
        self._stop = stop
        self._next = 0.0

    async def wait(self) -> None:
        if self._gap:
            now = self._clock.monotonic()
            at = max(now, self._next)
            self._next = at + self._gap
            if at > now:
                with suppress(TimeoutError):
                    async with timeout(self._clock, at - now):
                        await self._stop.wait()


class Move:
    """One run; `result` has what came of it, also while it runs."""

    def __init__(
        self,
        backend: Backend,
        source_url: str,
        route: Route,
        wanted: Callable[[ReceivedMessage], bool],
        result: Redriven,
        *,
        fifo: bool,
        clock: Clock,
        rate: float | None,
        most: int | None,
        stop: asyncio.Event,
        progress: Callable[[Redriven], object],
        lease_seconds: int,
        workers: int = WORKERS,
        only_to: str = "",
        looks_behind: bool = False,
    ) -> None:
        """`only_to` is the one destination of all messages, where there is one: a run that can't
        send there ends. `looks_behind`: what stays of a group may be received again and again."""
        self.result = result
        self._backend = backend
        self._source_url = source_url
        self._route = route
        self._wanted = wanted
        self._fifo = fifo
        self._clock = clock
        self._pace = Pace(rate, clock, stop)
        self._workers = min(workers, ceil(rate / _WORKER_RATE)) if rate else workers
        self._rate = rate / self._workers if rate else None
        self._left = most
        self._stop = stop
        self._progress = progress
        self._lease_seconds = lease_seconds
        self._only_to = only_to
        self._sinks: dict[str, Sink] = {}
        # what was received, and is not known to be deleted: message id and newest receipt handle
        self._known: dict[str, str] = {}
        self._held: set[str] = set()  # what of it stays
        self._moved: set[str] = set()  # what of it is moved
        self._undeleted: dict[str, PumphouseError] = {}  # and why it is not deleted
        self._known_again = 0  # how many have come again since one was new
        self._groups = Groups(looks_behind=looks_behind)
        self._closed: dict[str, PumphouseError] = {}  # destinations that take nothing, and why

    @property
    def hides(self) -> bool:
        """Whether there may be messages that were not seen, behind others of their group."""
        return self._groups.hides

    async def run(self) -> None:
        """Move until nothing more comes, `stop` is set, or enough were moved. What the source
        refuses ends it, and is in the result."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._workers):
                    tasks.create_task(self._work())
        except BaseExceptionGroup as group:
            if not isinstance(error := _first(group), PumphouseError):
                raise error from None
            self.result.ended = str(error)
        finally:
            for message_id, failure in self._undeleted.items():
                self.result.undeleted.add(message_id, str(failure))
            try:
                await give_back(self._backend, self._source_url, self._handles(self._held))
            finally:
                for sink in self._sinks.values():
                    await sink.aclose()
        if self._only_to in self._closed and not self.result.ended:
            self.result.ended = str(self._closed[self._only_to])
        if self._stop.is_set() and not self.result.ended:
            self.result.ended = INTERRUPTED

    @property
    def _over(self) -> bool:
        enough = self._left is not None and self._left <= 0
        return enough or self._stop.is_set() or self._only_to in self._closed

    async def _work(self) -> None:
        one_try.set(True)  # the tries are counted here
        while not self._over and self._known_again <= _ROUNDS * (30 + len(self._known)):
            size = self._size(beside=await self._let_go())
            messages = await self._receive(size)
            if not messages:
                if self._groups.parked:
                    continue
                return
            again, fresh, early = [], [], []
            for message in messages:
                if message.message_id in self._known:
                    again.append(message)
                elif self._group_of(message) in self._groups.busy:
                    early.append(message)
                else:
                    fresh.append(message)
            self._known_again = 0 if fresh else self._known_again + len(messages)
            self._known.update((each.message_id, each.receipt_handle) for each in [*again, *fresh])
            await give_back(self._backend, self._source_url, [e.receipt_handle for e in early])
            await self._delete({each.message_id for each in again} & self._moved)
            await self._deal_with(fresh)
            came, new = self._groups_of(messages), self._groups_of(fresh)
            self._groups.came(came, new, full=len(messages) == size)

    async def _let_go(self) -> int:
        """Give back what stays of one group, so that what is behind it is handed out with it; how
        many these are."""
        ids = self._groups.next()
        await give_back(self._backend, self._source_url, self._handles(ids))
        return len(ids)

    def _hold(self, message: ReceivedMessage) -> None:
        """Keep what stays from being received again."""
        self._held.add(message.message_id)
        if (group := self._group_of(message)) is not None:
            self._groups.stays(group, message.message_id)

    def _handles(self, ids: Iterable[str]) -> list[str]:
        return [self._known[each] for each in ids]

    def _size(self, *, beside: int) -> int:
        """How many to receive: no more than may be moved and can be sent well within the lease,
        `beside` what is known to come again."""
        size = MAX_BATCH_ENTRIES if self._left is None else min(self._left, MAX_BATCH_ENTRIES)
        if self._rate:
            size = max(1, min(size, int(self._rate * self._lease_seconds / 4)))
        return min(size + beside, MAX_BATCH_ENTRIES)

    async def _receive(self, size: int) -> list[ReceivedMessage]:
        operation = ReceiveMessage(
            self._source_url,
            message_system_attribute_names=["All"],
            message_attribute_names=["All"],
            max_number_of_messages=size,
            visibility_timeout=self._lease_seconds,
            wait_time_seconds=WAIT_SECONDS,
        )
        return (await self._with_retries(partial(self._backend.execute, operation))).messages

    async def _deal_with(self, messages: list[ReceivedMessage]) -> None:
        meant: list[ReceivedMessage] = []
        for message in messages:
            if self._over:
                self._hold(message)
            elif not self._wanted(message):
                self.result.left_out += 1
                self._hold(message)
            else:
                if self._left is not None:
                    self._left -= 1
                meant.append(message)
        groups = self._groups_of(messages)
        self._groups.busy |= groups
        try:
            outcomes = await in_order(meant, self._group_of, self._send)
        finally:
            self._groups.busy -= groups
        stored: set[str] = set()
        for message, outcome in zip(meant, outcomes, strict=True):
            if isinstance(outcome, Receipt):
                stored.add(message.message_id)
                continue
            self._hold(message)
            if outcome is None or isinstance(outcome, str):  # stopped before it; a dry run
                continue
            trouble = self.result.failed
            if isinstance(outcome, OutcomeUnknownError):
                trouble = self.result.unknown
            trouble.add(message.message_id, str(outcome))
        self._moved |= stored
        await self._delete(stored)
        self._progress(self.result)

    def _group_of(self, message: ReceivedMessage) -> str | None:
        return message.attributes.get("MessageGroupId", "") if self._fifo else None

    def _groups_of(self, messages: Iterable[ReceivedMessage]) -> set[str]:
        return {group for each in messages if (group := self._group_of(each)) is not None}

    # --- one message ----------------------------------------------------------------------------

    async def _send(self, message: ReceivedMessage) -> Receipt | str | None:
        """Send it; the name of the queue in a dry run, None where the run was stopped before."""
        group = self._group_of(message)
        if group is not None and (first := self._groups.broken.get(group)) is not None:
            raise NotSentError(f"not sent: a message before it in its group failed ({first})")
        try:
            return await self._send_now(message)
        except PumphouseError as error:
            if group is not None:
                self._groups.broken[group] = error
            raise

    async def _send_now(self, message: ReceivedMessage) -> Receipt | str | None:
        url, home = await self._route(message)
        counts = self.result.destinations
        name = url.rpartition("/")[2]
        if self.result.dry_run:
            counts[name] = counts.get(name, 0) + 1
            self.result.moved += 1
            return name
        await self._pace.wait()
        if self._stop.is_set() or self._only_to in self._closed:
            return None
        if (closed := self._closed.get(url)) is not None:
            raise NotSentError(f"not sent: {closed}")
        attributes = _attributes(message, home=home)
        check_attributes(attributes)
        try:
            receipt = await self._sink(url).send(
                message.body,
                group_id=message.attributes.get("MessageGroupId"),
                deduplication_id=deduplication_id(message) if self._fifo else None,
                attributes=attributes,
                trace_header=message.attributes.get("AWSTraceHeader"),
            )
        except RefusedConfigError as error:  # it takes no other message either
            told = self._closed.setdefault(
                url, told_of(error, f"{name} takes no messages ({error.message})")
            )
            if url == self._only_to:
                return None
            raise told from None
        counts[name] = counts.get(name, 0) + 1
        self.result.moved += 1
        return receipt

    def _sink(self, url: str) -> Sink:
        if (sink := self._sinks.get(url)) is None:
            sink = self._sinks[url] = Sink(
                url,
                self._backend,
                wait=True,
                batch_linger=0.0 if self._fifo else 0.005,
                clock=self._clock,
                retry=RETRIES,
            )
        return sink

    async def _delete(self, ids: Collection[str]) -> None:
        """Delete what is moved; what can't be deleted is tried again when it comes again, and
        told where it does not."""
        left = set(ids)
        failures: dict[str, PumphouseError] = {}

        async def once() -> None:
            left.intersection_update(self._known)  # another worker may have done it
            if not (some := list(left)):
                return
            refused = await settling.delete(self._backend, self._source_url, self._handles(some))
            for place, message_id in enumerate(some):
                if (error := refused.get(place)) is None:
                    self._moved.discard(message_id)
                    self._undeleted.pop(message_id, None)
                    self._known.pop(message_id, None)
                elif isinstance(error, _PASSING):
                    continue
                else:
                    failures[message_id] = error
                left.discard(message_id)
            if left:
                raise next(error for error in refused.values() if isinstance(error, _PASSING))

        if left:
            try:
                await self._with_retries(once)
            except PumphouseError as error:
                failures.update(dict.fromkeys(left, error))
        self._undeleted.update(failures)

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        began, attempt = self._clock.monotonic(), 1
        while True:
            try:
                return await call()
            except QueueDoesNotExist:
                raise
            except _PASSING as error:
                wait = RETRIES.next_delay(
                    attempt,
                    self._clock.monotonic() - began,
                    at_least_seconds=getattr(error, "retry_after_seconds", 0.0),
                )
                if wait is None:
                    raise
            attempt += 1
            await self._clock.sleep(wait)


def deduplication_id(message: ReceivedMessage) -> str:
    """The id under which a message is moved: of its id in the source, so that it is the same each
    time the message is sent again, and another one when it has been a dead letter once more."""
    return hashlib.sha256(f"redrive {message.message_id}".encode()).hexdigest()


def _attributes(message: ReceivedMessage, *, home: bool) -> Attributes:
    """The attributes to send: on the way home without what the runtime noted beside the sender's
    own, so that the message is again what it was."""
    attributes = dict(message.message_attributes or {})
    if home:
        for name in _NOTES:
            attributes.pop(name, None)
    return attributes


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
