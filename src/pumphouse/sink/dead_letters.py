"""The end of the road: what is kept of a message that failed for good, and where.

A target is a callback, another queue, or a directory of JSON lines (`letter_files.py`), which can
be sent again with `replay.py`. Letters of one group are kept in the order in which they failed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from pumphouse.clock import Clock, Timer, VirtualClock, timeout
from pumphouse.errors import MessageTooLargeError, PumphouseError
from pumphouse.protocol.attributes import MAX_ATTRIBUTES, forbidden_character
from pumphouse.protocol.operations import MessageAttributeValue
from pumphouse.sink.letter import DeadLetter
from pumphouse.sink.letter_files import LetterFiles
from pumphouse.sink.outgoing import Outgoing

_log = logging.getLogger("pumphouse.sink")

_LEAST = 1 / 30  # of the time for a letter, where those before it have used it up

Callback = Callable[[DeadLetter], Awaitable[None] | None]
DeadLetterTarget = Callback | str | Path
"""A function of a `DeadLetter` (plain or async), a queue (text: name, URL or ARN), or a directory
(`Path`)."""


class Keeper(Protocol):
    """Where dead letters go; `together` where many at once are as good as one, `in_thread` where
    it is done in one, which takes no virtual time."""

    together: bool
    in_thread: bool

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them; raises where it can't."""


class DeadLetters:
    """Hands what failed for good to a keeper. What goes wrong there is logged and counted: the
    callers get their own errors either way.

    Letters of one group wait for those before them, and for nothing else. Each has
    `timeout_seconds` from when it failed or, where that is later, from when the keeper last took
    one: it may be slow, and what waits for one that hangs does not wait for it again and again.
    """

    def __init__(
        self,
        queue: str,
        keeper: Keeper,
        clock: Clock,
        timeout_seconds: float,
        *,
        to_topic: bool = False,
    ) -> None:
        self._queue = queue
        self._to_topic = to_topic
        self._keeper = keeper
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._last: dict[str, asyncio.Future[None]] = {}  # of each group: done when it was kept
        self._ending = False
        self._took_one = clock.monotonic()
        self._scopes: dict[asyncio.Timeout, Timer | None] = {}
        self.counts: Counter[str] = Counter()

    @property
    def timeout_seconds(self) -> float:
        """How long a letter may take to be kept. Once it is set anew, as the sink is being closed,
        whatever is under way or comes later ends within it, waiting for others included."""
        return self._timeout_seconds

    @timeout_seconds.setter
    def timeout_seconds(self, seconds: float) -> None:
        if self._ending and seconds >= self._timeout_seconds:
            return  # a close that is in less of a hurry changes nothing
        self._timeout_seconds = seconds
        self._ending = True
        for scope in self._scopes:
            self._end(scope)

    async def take(self, failed: Sequence[tuple[Outgoing, PumphouseError, str]]) -> None:
        """Keep messages, each with its error and the word for it."""
        letters = [self._letter(message, error, kind) for message, error, kind in failed]
        one_by_one = [letters] if self._keeper.together else [[each] for each in letters]
        since = self._clock.monotonic()
        kept = 0
        try:
            async with (
                self._until_the_end(),
                self._in_turn({letter.group_id for letter in letters if letter.group_id}),
            ):
                for some in one_by_one:
                    kept += await self._keep(some, since)
        except TimeoutError:
            _log.error("%s: dead letters could not be kept in time", self._queue)
        finally:
            self.counts["dead_lettered"] += kept
            self.counts["dead_letters_failed"] += len(letters) - kept

    async def _keep(self, letters: Sequence[DeadLetter], since: float) -> int:
        """Keep some letters, and those that can be kept where not all of them can; how many."""
        left = max(since, self._took_one) + self._timeout_seconds - self._clock.monotonic()
        seconds = max(left, self._timeout_seconds * _LEAST)
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        scope: asyncio.Timeout | None = None
        try:
            with self._holding():
                async with timeout(self._clock, seconds) as scope:
                    await self._keeper.take(letters)
            self._took_one = self._clock.monotonic()
            return len(letters)
        except asyncio.CancelledError:
            if task is None or task.cancelling() > cancelled:
                raise
            _log.exception("%s: a dead letter could not be kept", self._queue)
        except Exception:
            if scope is not None and scope.expired():
                _log.error("%s: a dead letter could not be kept in time", self._queue)
            elif len(letters) == 1:
                _log.exception("%s: a dead letter could not be kept", self._queue)
            else:
                return sum([await self._keep([letter], since) for letter in letters])
        return 0

    def _holding(self) -> AbstractContextManager[object]:
        clock = self._clock
        if self._keeper.in_thread and isinstance(clock, VirtualClock):
            return clock.hold()
        return nullcontext()

    @asynccontextmanager
    async def _in_turn(self, groups: Iterable[str]) -> AsyncIterator[None]:
        """Once the letters that came before, of any of these groups, are kept or given up."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        before = {last for group in groups if (last := self._last.get(group)) is not None}
        self._last.update(dict.fromkeys(groups, mine))
        try:
            if waiting := {each for each in before if each.get_loop() is loop}:
                await asyncio.wait(waiting)
            yield
        finally:
            mine.set_result(None)
            for group in groups:
                if self._last.get(group) is mine:
                    del self._last[group]

    @asynccontextmanager
    async def _until_the_end(self) -> AsyncIterator[None]:
        """Raises `TimeoutError` when the sink is being closed and the time for that is up."""
        async with asyncio.timeout(None) as scope:
            self._scopes[scope] = None
            if self._ending:
                self._end(scope)
            try:
                yield
            finally:
                if (timer := self._scopes.pop(scope)) is not None:
                    timer.cancel()

    def _end(self, scope: asyncio.Timeout) -> None:
        def over() -> None:
            if scope in self._scopes:
                scope.reschedule(asyncio.get_running_loop().time())

        if (timer := self._scopes[scope]) is not None:
            timer.cancel()
        self._scopes[scope] = self._clock.call_later(self._timeout_seconds, over)

    def _letter(self, message: Outgoing, error: PumphouseError, kind: str) -> DeadLetter:
        trace = (message.system_attributes or {}).get("AWSTraceHeader")
        return DeadLetter(
            queue=self._queue,
            kind=kind,
            error=error,
            attempts=message.tries,
            at=self._clock.now(),
            body=message.body,
            attributes=message.attributes,
            id=message.id,
            tenant=message.tenant or None,
            source=message.source,
            group_id=message.group_id,
            deduplication_id=message.deduplication_id,
            replay_id=message.replay_id,
            delay=message.delay,
            to_topic=self._to_topic,
            subject=message.subject,
            message_structure=message.message_structure,
            trace_header=trace.string_value if trace else None,
        )


class CallbackKeeper:
    """Tells a function."""

    together = in_thread = False

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            done = self._callback(letter)
            if inspect.isawaitable(done):
                await done


class DirectoryKeeper:
    """Appends lines to files of a directory, in a thread that nobody has to wait for: neither who
    gives a letter up after its time, nor the end of the process."""

    together = in_thread = True

    def __init__(self, directory: Path, queue: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", queue.rstrip("/").rpartition("/")[2])
        self._files = LetterFiles(directory, name)
        self._writing: asyncio.Future[None] | None = None

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        lines = b"".join(letter.to_json() for letter in letters)
        loop = asyncio.get_running_loop()
        while (
            (writing := self._writing) is not None
            and writing.get_loop() is loop
            and not writing.done()
        ):
            await asyncio.wait({writing})
        self._writing = _apart(partial(self._files.append, lines))
        await asyncio.shield(self._writing)


def _apart(work: Callable[[], None]) -> asyncio.Future[None]:
    """Do something in a thread of its own, which ends with the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
            done.exception()  # whoever waited may have gone

    def run() -> None:
        failure: Exception | None = None
        try:
            work()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, failure)

    threading.Thread(target=run, name="pumphouse dead letters", daemon=True).start()
    return done


class QueueKeeper:
    """Sends on to another queue, with the reason in attributes where there is room for them."""

    together = in_thread = False

    def __init__(self, send: Callable[..., Awaitable[object]], *, fifo: bool) -> None:
        self._send = send
        self._fifo = fifo

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            attributes = dict(letter.attributes or {})
            for name, text in (
                ("pumphouse.error", letter.kind),
                ("pumphouse.queue", letter.queue),
                ("pumphouse.subject", letter.subject),
                ("pumphouse.error_message", str(letter.error)),
            ):
                if text and len(attributes) < MAX_ATTRIBUTES and not forbidden_character(text):
                    attributes.setdefault(name, MessageAttributeValue("String", text[:256]))
            group = letter.group_id
            if group is None and self._fifo:
                group = f"{letter.tenant or ''}/{letter.source or ''}"
            send = partial(
                self._send,
                letter.body,
                id=letter.deduplication_id or letter.id,
                group_id=group,
                trace_header=letter.trace_header,
            )
            try:
                await send(attributes=attributes)
            except MessageTooLargeError:
                if attributes == letter.attributes:
                    raise
                await send(
                    attributes=letter.attributes
                )  # without the reason it may be small enough
