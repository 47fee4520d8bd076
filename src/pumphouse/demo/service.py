"""One run of the demo: a sink sends the events, a service handles them, and all is noted down.

The service is an ordinary `App` over an ordinary backend, and the trouble is staged in its handler:
every tenth event fails once, and one event in the middle of the largest group fails every time and
ends in the dead-letter queue. What came of it is worked out by `report.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import timeout
from pumphouse.demo.report import Journal, Moment, Report
from pumphouse.errors import PumphouseError
from pumphouse.jsonl import Event
from pumphouse.model import Message
from pumphouse.protocol.operations import GetQueueAttributes, GetQueueUrl
from pumphouse.sink import Sink
from pumphouse.subscriber.queue import Queue

QUEUE = "demo.fifo"
DEAD_LETTERS = "demo-dead.fifo"
ATTEMPTS = 3
FAILS_EACH = 10
CONCURRENCY = 32
WORK_SECONDS = 0.002
STALL_SECONDS = 5.0
"""How long nothing may happen before what has not come is given up as lost."""

_RETRY = RetryPolicy(base_seconds=0.02, cap_seconds=0.05, max_attempts=None, budget_seconds=None)
_SENT_AT_ONCE = 1_000
_TICK_SECONDS = 0.05


class StagedFailure(Exception):
    """A handler of the demo failed, as it was meant to."""


class Service:
    """The app, the handler with its staged trouble, and the journal that it keeps."""

    def __init__(self, events: Sequence[Event], account: Account) -> None:
        self.journal = Journal()
        self.done = asyncio.Event()
        self.clock = account.clock
        self._total = len(events)
        self._by_body: dict[tuple[str, str], list[int]] = {}
        for event in events:
            self._by_body.setdefault((event.group, event.body), []).append(event.line)
        self.poison = poison_of(events)
        self._fails_once = {event.line for event in events[FAILS_EACH - 1 :: FAILS_EACH]}
        self.app = App("demo")
        dead_letters = Queue(DEAD_LETTERS, create_if_missing=True)
        self.app.subscriber(
            Queue(QUEUE, create_if_missing=True),
            concurrency=CONCURRENCY,
            max_attempts=ATTEMPTS,
            dead_letter=dead_letters,
            retry=_RETRY,
        )(self.handle)
        self.app.subscriber(dead_letters, concurrency=1)(self.bury)

    async def handle(self, message: Message) -> None:
        """Handle one event, or fail as it was staged."""
        line = int(message.deduplication_id or "")
        self.note(Moment.STARTED, line)
        try:
            await self.clock.sleep(WORK_SECONDS)
            if line == self.poison or line in self._fails_once:
                self._fails_once.discard(line)
                raise StagedFailure(f"the event of line {line} can't be handled now")
        except BaseException:
            self.note(Moment.FAILED, line)
            raise
        self.note(Moment.HANDLED, line)

    async def bury(self, message: Message) -> None:
        """Note what came out of the dead-letter queue: it is known by its group and its body."""
        ended = self.journal.ended
        lines = self._by_body[message.group_id or "", message.text]
        self.note(Moment.DEAD_LETTERED, next((n for n in lines if n not in ended), lines[0]))

    def note(self, moment: Moment, line: int) -> None:
        self.journal.note(moment, line)
        self._look()

    def not_sent(self, line: int, reason: str) -> None:
        self.journal.unconfirmed[line] = reason
        self._look()

    def _look(self) -> None:
        if self.journal.settled >= self._total:
            self.done.set()


def poison_of(events: Sequence[Event]) -> int | None:
    """The line that no handler can handle: in the middle of the largest group. None where there is
    but one event."""
    if len(events) < 2:
        return None
    largest, _ = Counter(event.group for event in events).most_common(1)[0]
    lines = [event.line for event in events if event.group == largest]
    return lines[len(lines) // 2]


async def run(
    events: Sequence[Event],
    *,
    account: Account | None = None,
    watch: Callable[[Journal], None] = lambda journal: None,
    stall_seconds: float | None = None,
) -> Report:
    """Send the events, handle them, and report once each is settled or nothing happens any more.

    `watch` is called with the journal every now and then. Without an account the run has one of its
    own, on the real clock. After `stall_seconds` without any event what is missing counts as lost.
    """
    account = account or Account(ledger_room=1)  # for its counts
    clock = account.clock
    began = clock.monotonic()
    service = Service(events, account)
    async with service.app.running(account), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(_send(events, account, service))
        patience = STALL_SECONDS if stall_seconds is None else stall_seconds
        await _settled(service, sending, watch, patience)
        sending.cancel()
        seconds = clock.monotonic() - began
    watch(service.journal)
    requests = dict(account.ledger.counts.most_common())
    left = await _left(account)
    return Report.of(events, service.journal, left=left, requests=requests, seconds=seconds)


async def _send(events: Sequence[Event], backend: Account, service: Service) -> None:
    """Send everything in order, many at a time; a send that fails is noted and holds up nobody."""

    async def send(event: Event) -> None:
        try:
            await sink.send(
                event.body, group_id=event.group, deduplication_id=str(event.line), wait=True
            )
        except PumphouseError as error:
            service.not_sent(event.line, str(error))
        else:
            service.journal.confirmed.add(event.line)

    async with Sink(QUEUE, backend, clock=backend.clock) as sink:
        for some in _batched(events, _SENT_AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for event in some:
                    tasks.create_task(send(event))


async def _settled(
    service: Service,
    sending: asyncio.Task[None],
    watch: Callable[[Journal], None],
    stall_seconds: float,
) -> None:
    """Wait until every event is settled, or until nothing has happened for `stall_seconds`."""
    clock = service.clock
    journal = service.journal
    seen, since = 0, clock.monotonic()
    while not (service.done.is_set() and sending.done()):
        with suppress(TimeoutError):
            async with timeout(clock, _TICK_SECONDS):
                await service.done.wait()
                await asyncio.wait([sending])
        watch(journal)
        happened = len(journal.moments) + len(journal.confirmed) + len(journal.unconfirmed)
        if happened > seen:
            seen, since = happened, clock.monotonic()
        elif clock.monotonic() - since >= stall_seconds:
            return


async def _left(backend: Backend) -> int:
    """How many messages lie in the queues, visible, delayed or in flight."""
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    left = 0
    for name in (QUEUE, DEAD_LETTERS):
        queue = await backend.execute(GetQueueUrl(name))
        answer = await backend.execute(GetQueueAttributes(queue.queue_url, names))
        left += sum(int(count) for count in answer.attributes.values())
    return left


def _batched(events: Sequence[Event], size: int) -> Iterator[Sequence[Event]]:
    return (events[start : start + size] for start in range(0, len(events), size))
