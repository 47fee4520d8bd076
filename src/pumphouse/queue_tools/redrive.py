"""Dead letters on their way back: which, where to, and by which of two ways.

SQS's message move task (`move_task.py`) is taken where it can do what is asked: the whole queue to
one destination. Everything else is the own move (`move.py`): conditions, a part, messages of
several queues, a dead-letter queue that is none to SQS.

A message goes to the queue that is named, else to the one that it came from: as SQS says, which
moved it (`DeadLetterQueueSourceArn`), or as the runtime noted, which carried it
(`pumphouse.source`), else to the only queue that has this one as its dead-letter queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from pumphouse.addressing import QueueUrls, missing
from pumphouse.backend import Backend
from pumphouse.clock import Clock, RealClock
from pumphouse.errors import (
    ConfigError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedConfigError,
    RefusedError,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.names import parse_queue_arn, parse_queue_url
from pumphouse.protocol.operations import (
    GetQueueAttributes,
    ListDeadLetterSourceQueues,
    ReceivedMessage,
)
from pumphouse.queue_tools.move import LEASE_SECONDS, LONG_LEASE_SECONDS, WORKERS, Move
from pumphouse.queue_tools.move_task import MAX_RATE, start, watch
from pumphouse.queue_tools.results import Redriven
from pumphouse.queue_tools.selection import Condition, all_hold, queue_of, source_of

_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
_MOST_PAGES = 100


@dataclass(frozen=True, slots=True)
class _Queue:
    url: str
    arn: str
    visible: int
    in_flight: int
    redrives: bool = False

    @property
    def name(self) -> str:
        return parse_queue_url(self.url).name

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


async def redrive(
    backend: Backend,
    queue: str,
    *,
    to: str | None = None,
    conditions: Sequence[Condition] = (),
    rate: float | None = None,
    most: int | None = None,
    dry_run: bool = False,
    task: bool | None = None,
    clock: Clock | None = None,
    stop: asyncio.Event | None = None,
    progress: Callable[[Redriven], object] = lambda result: None,
) -> Redriven:
    """Move the dead letters of a queue to the queue `to`, or each to where it came from.

    - `conditions`: only messages for which all of them hold (`selection.py`).
    - `rate`: at most so many messages a second, 0.02 to 10,000; `most`: at most so many in all.
    - `dry_run`: move nothing, and count. With conditions, or where each message says itself where
      it goes, that takes receives: each message's receive count goes up by one.
    - `task`: True insists on SQS's message move task, False on the own move; None takes the task
      where it can do what is asked.
    - `stop`: ends the run in order when it is set: what was sent is deleted, the rest given back.

    Stopped or killed at any moment, each message is in the one queue or in the other, and the next
    run goes on; `move.py` says when one can be in both. Raises `UsageError` and `ConfigError` for
    what can't be, before anything is moved.
    """
    if rate is not None and not 0.02 <= rate <= 10_000:
        raise UsageError(f"the rate is 0.02 to 10,000 messages a second, not {rate:g}")
    if most is not None and most < 1:
        raise UsageError(f"the number of messages is at least 1, not {most}")
    clock = clock_of(backend) if clock is None else clock
    stop = stop or asyncio.Event()
    urls = QueueUrls(backend)
    source = await _found(backend, await urls.resolve(queue))
    target = None
    if to is not None:
        target = await _found(backend, await urls.resolve(to))
        _check_target(source, target)
    sources = await _sources(backend, source)
    if target is None and len(sources) == 1:
        target = await _found(backend, sources[0])
    obstacle = _obstacle(target, sources, conditions, rate, most)
    if task and obstacle:
        raise UsageError(f"SQS's message move task can't be used: {obstacle}")
    by_task = not obstacle and task is not False
    hides = False
    result = Redriven("task" if by_task else "move", to_move=source.visible, dry_run=dry_run)
    if dry_run and target is not None and not conditions:
        result.moved = min(source.visible, most or source.visible)
        result.destinations = {target.name: result.moved}
        result.hidden = source.in_flight
        return result
    if by_task and target is not None:
        try:
            await start(backend, source.arn, target.arn, None if rate is None else int(rate))
        except (RefusedError, RefusedConfigError, UnexpectedAnswerError) as error:
            if task:
                raise
            by_task, result.way = False, "move"
            result.no_task = (
                "the server has none" if isinstance(error, UnexpectedAnswerError) else str(error)
            )
    if by_task and target is not None:
        progress(result)  # it runs from here on, whatever becomes of this process
        await watch(
            backend, source.arn, target.arn, result, clock=clock, stop=stop, progress=progress
        )
    else:
        stays = bool(conditions) or dry_run
        workers = WORKERS
        if most is not None and not conditions:  # a worker more would receive what is left alone
            workers = min(WORKERS, ceil(most / MAX_BATCH_ENTRIES))
        move = Move(
            backend,
            source.url,
            _Router(backend, source, None if to is None else target, sources, urls).route,
            all_hold(conditions),
            result,
            fifo=source.fifo,
            clock=clock,
            rate=rate,
            most=most,
            stop=stop,
            progress=progress,
            lease_seconds=LONG_LEASE_SECONDS if stays and not source.fifo else LEASE_SECONDS,
            workers=workers,
            only_to="" if target is None else target.url,
            looks_behind=source.fifo and not source.redrives and not dry_run,
        )
        await move.run()
        hides = most is None and move.hides
    await _look_back(backend, source, result, hides=hides)
    return result


async def _look_back(backend: Backend, before: _Queue, result: Redriven, *, hides: bool) -> None:
    """What is left in the source. SQS's numbers lag behind, so what has just been moved may still
    be counted: taken is only what was counted at the start as well, or has a reason to be there."""
    try:
        after = await _found(backend, before.url)
    except PumphouseError as error:
        result.ended = result.ended or str(error)
        return
    result.hidden = min(before.in_flight, after.in_flight)
    if result.ended:
        result.left = after.visible + after.in_flight
    elif hides:
        stays = result.left_out + result.failed.count + result.unknown.count
        result.unseen = max(0, after.visible - stays - (result.moved if result.dry_run else 0))


class _Router:
    """Where each message goes."""

    def __init__(
        self,
        backend: Backend,
        source: _Queue,
        target: _Queue | None,
        sources: list[str],
        urls: QueueUrls,
    ) -> None:
        self._source = source
        self._target = target
        self._names = {parse_queue_url(url).name: url for url in sources}
        self._urls = urls

    async def route(self, message: ReceivedMessage) -> tuple[str, bool]:
        noted = source_of(message)
        origin = queue_of(noted) if noted else None
        came_from = origin.name if origin else None
        if self._target is not None:
            return self._target.url, came_from == self._target.name
        if came_from is None and len(self._names) == 1:
            return next(iter(self._names.values())), True
        if came_from is None or noted is None or origin is None:
            raise ConfigError(f"it does not say which queue it came from; {self._choices}")
        if url := self._names.get(came_from):
            return url, True
        # a note is an attribute, which anyone could have sent: it is believed where SQS says the
        # same, or says nothing
        if self._names and "DeadLetterQueueSourceArn" not in message.attributes:
            raise ConfigError(
                f"it names {came_from}, which does not have this dead-letter queue; {self._choices}"
            )
        here = parse_queue_arn(self._source.arn)
        if (origin.account_id or here.account_id, origin.region or here.region) != here[1:]:
            raise ConfigError(f"it names {noted}, which is elsewhere; {self._choices}")
        if came_from.endswith(".fifo") != self._source.fifo:
            raise ConfigError(f"it names {came_from}, which is of the other kind; {self._choices}")
        try:
            url = await self._urls.resolve(came_from)
        except QueueDoesNotExist:
            raise ConfigError(
                f"the queue that it came from, {came_from}, does not exist; {self._choices}"
            ) from None
        return url, True

    @property
    def _choices(self) -> str:
        names = ", ".join(self._names)
        return f"--to names one of {names}" if names else "--to names the queue"


def clock_of(backend: Backend) -> Clock:
    """The backend's own clock, where it has one, otherwise the machine's."""
    own: Clock | None = getattr(backend, "clock", None)
    return RealClock() if own is None else own


def _obstacle(
    target: _Queue | None,
    sources: list[str],
    conditions: Sequence[Condition],
    rate: float | None,
    most: int | None,
) -> str:
    """Why SQS's task can't do what is asked, or ""."""
    if target is None:
        return "the messages go to several queues"
    if not sources:
        return "no queue has this one as its dead-letter queue"
    if conditions or most is not None:
        return "it moves the whole queue"
    if rate is not None and (rate != int(rate) or not 1 <= rate <= MAX_RATE):
        return f"its rate is a whole number up to {MAX_RATE}"
    return ""


def _check_target(source: _Queue, target: _Queue) -> None:
    if source.arn == target.arn:
        raise UsageError(f"{source.name} can't be moved to itself")
    if source.fifo != target.fifo:
        kinds = ("FIFO", "standard") if source.fifo else ("standard", "FIFO")
        raise UsageError(
            f"{source.name} is a {kinds[0]} queue and {target.name} a {kinds[1]} queue; messages "
            "are moved between queues of one kind"
        )


async def _found(backend: Backend, url: str) -> _Queue:
    names = ["QueueArn", "RedrivePolicy", *_COUNTS]
    try:
        found = (await backend.execute(GetQueueAttributes(url, names))).attributes
    except QueueDoesNotExist as error:
        raise missing(error, parse_queue_url(url).name) from error.__cause__
    visible, in_flight = (int(found.get(name) or 0) for name in _COUNTS)
    return _Queue(url, found["QueueArn"], visible, in_flight, bool(found.get("RedrivePolicy")))


async def _sources(backend: Backend, source: _Queue) -> list[str]:
    """The URLs of the queues whose dead-letter queue this is; none where that can't be read."""
    found: list[str] = []
    token: str | None = None
    for _ in range(_MOST_PAGES):
        try:
            page = await backend.execute(ListDeadLetterSourceQueues(source.url, token, 1_000))
        except RefusedConfigError:
            return []
        found += page.queue_urls
        token = page.next_token
        if token is None:
            break
    return found
