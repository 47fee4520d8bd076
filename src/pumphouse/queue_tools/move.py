"""Moving messages by hand: received, sent and confirmed, and only then deleted.

Whatever happens, a message is in the source or in its destination: it leaves the source when SQS
has confirmed that the destination stored it. Workers receive in tens; the messages of a FIFO group
are sent one after the other, and once one has failed, those behind it stay. What stays is held
until the end, so that it is not received again, and then given back.

On a FIFO queue the deduplication id is made of the message's id in the source. So a message whose
send or delete was never answered is not stored twice when it is sent again within five minutes, by
this run or by the next; and two messages with equal ids of their own, sent an hour apart, are both
stored, where their own ids would have let the second one vanish.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from typing import TypeVar

from pumphouse import settling
from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy, one_try
from pumphouse.clock import Clock
from pumphouse.content import check_attributes
from pumphouse.errors import (
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    ThrottledError,
    TransientError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.operations import Attributes, ReceivedMessage, ReceiveMessage
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
"""The same where messages stay behind, which are held until the end."""
WAIT_SECONDS = 2
WORKERS = 8
RETRIES = RetryPolicy(base_seconds=0.2, cap_seconds=5.0, max_attempts=6, budget_seconds=30.0)
_PASSING = (ThrottledError, TransientError, NetworkError, OutcomeUnknownError)
_NOTES = (
    *(REASON, ATTEMPTS, SOURCE, MESSAGE_ID),
    *(SINK_REASON, SINK_QUEUE, "pumphouse.error", "pumphouse.subject"),
)
_WORKER_RATE = 50.0  # what one worker is sure to do in a second
_SAME = 3  # receives in a row that bring nothing new end a worker

T = TypeVar("T")
Route = Callable[[ReceivedMessage], Awaitable[tuple[str, bool]]]
"""Where a message goes: the queue's URL, and whether it came from there. Raises `PumphouseError`
where there is no such queue."""


class Pace:
    """So many messages a second, evenly."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._clock = clock
        self._next = 0.0

    async def wait(self) -> None:
        if self._gap:
            now = self._clock.monotonic()
            at = max(now, self._next)
            self._next = at + self._gap
            if at > now:
                await self._clock.sleep(at - now)


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
    ) -> None:
        self.result = result
        self._backend = backend
        self._source_url = source_url
        self._route = route
        self._wanted = wanted
        self._fifo = fifo
        self._clock = clock
        self._pace = Pace(rate, clock)
        self._workers = min(WORKERS, ceil(rate / _WORKER_RATE)) if rate else WORKERS
        self._rate = rate / self._workers if rate else None
        self._left = most
        self._stop = stop
        self._progress = progress
        self._lease_seconds = lease_seconds
        self._sinks: dict[str, Sink] = {}
        self._held: dict[str, str] = {}  # what stays: message id and newest receipt handle
        self._moved: set[str] = set()  # moved, and not known to be deleted

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
            try:
                await give_back(self._backend, self._source_url, list(self._held.values()))
            finally:
                for sink in self._sinks.values():
                    await sink.aclose()
        if self._stop.is_set() and not self.result.ended:
            self.result.ended = INTERRUPTED

    @property
    def _over(self) -> bool:
        return self._stop.is_set() or (self._left is not None and self._left <= 0)

    async def _work(self) -> None:
        one_try.set(True)  # the tries are counted here
        nothing_new = 0
        while not self._over and nothing_new < _SAME:
            messages = await self._receive()
            if not messages:
                return
            fresh = [each for each in messages if not self._is_known(each)]
            nothing_new = 0 if fresh else nothing_new + 1
            await self._delete([each for each in messages if each.message_id in self._moved])
            await self._deal_with(fresh)

    async def _receive(self) -> list[ReceivedMessage]:
        size = MAX_BATCH_ENTRIES
        if self._rate:  # no more than can be sent well within the lease
            size = max(1, min(size, int(self._rate * self._lease_seconds / 4)))
        operation = ReceiveMessage(
            self._source_url,
            message_system_attribute_names=["All"],
            message_attribute_names=["All"],
            max_number_of_messages=size,
            visibility_timeout=self._lease_seconds,
            wait_time_seconds=WAIT_SECONDS,
        )
        return (await self._with_retries(partial(self._backend.execute, operation))).messages

    def _is_known(self, message: ReceivedMessage) -> bool:
        """Whether this run has dealt with a message, which came again when its lease was over."""
        if message.message_id in self._held:
            self._held[message.message_id] = message.receipt_handle
            return True
        return message.message_id in self._moved

    def _keep(self, message: ReceivedMessage) -> None:
        self._held[message.message_id] = message.receipt_handle

    async def _deal_with(self, messages: list[ReceivedMessage]) -> None:
        meant: list[ReceivedMessage] = []
        for message in messages:
            if self._over:
                self._keep(message)
            elif not self._wanted(message):
                self.result.left_out += 1
                self._keep(message)
            else:
                if self._left is not None:
                    self._left -= 1
                meant.append(message)
        outcomes = await in_order(
            meant,
            lambda message: message.attributes.get("MessageGroupId", "") if self._fifo else None,
            self._send,
        )
        stored: list[ReceivedMessage] = []
        for message, outcome in zip(meant, outcomes, strict=True):
            if isinstance(outcome, Receipt):
                stored.append(message)
                self._moved.add(message.message_id)
                continue
            self._keep(message)
            if isinstance(outcome, str):  # a dry run
                continue
            trouble = self.result.failed
            if isinstance(outcome, OutcomeUnknownError):
                trouble = self.result.unknown
            trouble.add(message.message_id, str(outcome))
        await self._delete(stored)
        self._progress(self.result)

    # --- one message ----------------------------------------------------------------------------

    async def _send(self, message: ReceivedMessage) -> Receipt | str:
        url, home = await self._route(message)
        counts = self.result.destinations
        name = url.rpartition("/")[2]
        if self.result.dry_run:
            counts[name] = counts.get(name, 0) + 1
            self.result.moved += 1
            return name
        await self._pace.wait()
        attributes = _attributes(message, home=home)
        check_attributes(attributes)
        receipt = await self._sink(url).send(
            message.body,
            group_id=message.attributes.get("MessageGroupId"),
            deduplication_id=deduplication_id(message) if self._fifo else None,
            attributes=attributes,
            trace_header=message.attributes.get("AWSTraceHeader"),
        )
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

    async def _delete(self, messages: list[ReceivedMessage]) -> None:
        """Delete what is moved; what can't be deleted is told, and deleted when it comes again."""
        left = {each.message_id: each.receipt_handle for each in messages}
        failures: dict[str, PumphouseError] = {}

        async def once() -> None:
            ids = list(left)
            refused = await settling.delete(
                self._backend, self._source_url, [left[each] for each in ids]
            )
            for place, message_id in enumerate(ids):
                if (error := refused.get(place)) is None:
                    self._moved.discard(message_id)
                    del left[message_id]
                elif not isinstance(error, _PASSING):
                    failures[message_id] = error
                    del left[message_id]
            if left:
                raise next(iter(refused.values()))

        if left:
            try:
                await self._with_retries(once)
            except PumphouseError as error:
                failures.update(dict.fromkeys(left, error))
        for message_id, failure in failures.items():
            self.result.undeleted.add(message_id, str(failure))

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
