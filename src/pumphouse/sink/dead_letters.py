"""The end of the road: what is kept of a message that failed for good, and where.

A target is a callback, another queue, or a directory of JSON lines. A directory's lines can be sent
again with `replay.py`. A write to it is one append, synced, under a lock that replay takes too.
"""

from __future__ import annotations

import base64
import inspect
import logging
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from anyio import to_thread

from pumphouse.addressing import Topic
from pumphouse.clock import Clock, timeout
from pumphouse.errors import MessageTooLargeError, PumphouseError, ServiceError
from pumphouse.protocol.attributes import MAX_ATTRIBUTES, forbidden_character
from pumphouse.protocol.operations import Attributes, MessageAttributeValue
from pumphouse.sink.outgoing import Outgoing

_log = logging.getLogger("pumphouse.sink")

MAX_FILE_BYTES = 67_108_864
"""A directory's file is followed by the next one at this size (64 MiB)."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good, as it went over the wire, and why.

    `queue` is where it was to go: a topic where `to_topic` is True.

    `kind` is the word for the failure: `refused`, `config_errors`, `too_large`, `throttled`,
    `transient`, `unreachable`, or `unknown` (it may be in the queue). `at` is in seconds since the
    epoch.
    """

    queue: str
    kind: str
    error: PumphouseError
    attempts: int
    at: float
    body: str
    attributes: Attributes | None = None
    id: str | None = None
    tenant: str | None = None
    source: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    replay_id: str | None = None
    delay: int | None = None
    to_topic: bool = False
    subject: str | None = None
    message_structure: str | None = None

    def to_json(self) -> bytes:
        """One line of a directory."""
        error: dict[str, Any] = {"class": type(self.error).__name__, "message": str(self.error)}
        if isinstance(self.error, ServiceError):
            error |= {"code": self.error.code, "status": self.error.status}
        line: dict[str, Any] = {
            "v": 1,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            "queue": self.queue,
            "kind": self.kind,
            "error": error,
            "attempts": self.attempts,
            "id": self.id,
            "tenant": self.tenant,
            "source": self.source,
            "group_id": self.group_id,
            "deduplication_id": self.deduplication_id,
            "replay_id": self.replay_id,
            "delay": self.delay,
            "body": self.body,
            "attributes": {
                name: {"type": value.data_type, "text": value.string_value}
                if value.binary_value is None
                else {
                    "type": value.data_type,
                    "base64": base64.b64encode(value.binary_value).decode(),
                }
                for name, value in (self.attributes or {}).items()
            },
        }
        if self.to_topic:
            line |= {
                "to_topic": True,
                "subject": self.subject,
                "message_structure": self.message_structure,
            }
        return msgspec.json.encode(line) + b"\n"


class _AttributeLine(msgspec.Struct):
    type: str
    text: str | None = None
    base64: bytes | None = None


class DeadLetterLine(msgspec.Struct):
    """A line of a directory, read back; what it says about the failure is for people."""

    v: int
    queue: str
    kind: str
    body: str
    attributes: dict[str, _AttributeLine] = {}
    id: str | None = None
    tenant: str | None = None
    source: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    replay_id: str | None = None
    delay: int | None = None
    to_topic: bool = False
    subject: str | None = None
    message_structure: str | None = None

    @property
    def destination(self) -> str | Topic:
        """Where it was to go."""
        return Topic(self.queue) if self.to_topic else self.queue

    def message_attributes(self) -> dict[str, MessageAttributeValue]:
        return {
            name: MessageAttributeValue(line.type, line.text, line.base64)
            for name, line in self.attributes.items()
        }


Callback = Callable[[DeadLetter], Awaitable[None] | None]
DeadLetterTarget = Callback | str | Path
"""A function of a `DeadLetter` (plain or async), a queue (text: name, URL or ARN), or a directory
(`Path`)."""


class Keeper(Protocol):
    """Where dead letters go; `together` where many at once are as good as one."""

    together: bool

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them; raises where it can't."""


class DeadLetters:
    """Hands what failed for good to a keeper. What goes wrong there is logged and counted: the
    callers get their own errors either way."""

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
        self.timeout_seconds = timeout_seconds
        self.counts: Counter[str] = Counter()

    async def take(self, failed: Sequence[tuple[Outgoing, PumphouseError, str]]) -> None:
        """Keep messages, each with its error and the word for it."""
        letters = [
            DeadLetter(
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
            )
            for message, error, kind in failed
        ]
        kept = 0
        try:
            async with timeout(self._clock, self.timeout_seconds):
                for some in [letters] if self._keeper.together else [[each] for each in letters]:
                    try:
                        await self._keeper.take(some)
                        kept += len(some)
                    except Exception:
                        _log.exception("%s: a dead letter could not be kept", self._queue)
        except TimeoutError:
            _log.error("%s: dead letters could not be kept in time", self._queue)
        self.counts["dead_lettered"] += kept
        self.counts["dead_letters_failed"] += len(letters) - kept


class CallbackKeeper:
    """Tells a function."""

    together = False

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            done = self._callback(letter)
            if inspect.isawaitable(done):
                await done


class DirectoryKeeper:
    """Appends lines to files of a directory, which is made if need be: one file for each process
    and time of start, a new one every 64 MiB."""

    together = True

    def __init__(self, directory: Path, queue: str) -> None:
        self.directory = directory
        self._queue = re.sub(r"[^A-Za-z0-9_.-]+", "-", queue.rstrip("/").rpartition("/")[2])
        self._path: Path | None = None

    async def take(self, letters: Sequence[DeadLetter]) -> None:
        await to_thread.run_sync(self._append, b"".join(letter.to_json() for letter in letters))

    def _append(self, lines: bytes) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        while True:
            if self._path is None:
                stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
                self._path = self.directory / f"{self._queue}.{stamp}.{os.getpid()}.jsonl"
            with self._path.open("ab") as file:
                lock(file.fileno())
                size = os.fstat(file.fileno()).st_size
                if not is_at(self._path, file.fileno()) or size >= MAX_FILE_BYTES:
                    self._path = None  # a replay has taken the file away, or it is full
                    continue
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
                return


def is_at(path: Path, opened: int) -> bool:
    """Whether an open file is still the one that has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False


def lock(file: int) -> None:
    """Hold the file's lock until it is closed, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows: replay asks that writers be stopped
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: int) -> bool:
    """Hold the file's lock until it is closed; False where somebody else does."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class QueueKeeper:
    """Sends on to another queue, with the reason in attributes where there is room for them."""

    together = False  # one after the other: letters of one group keep their order

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
                self._send, letter.body, id=letter.deduplication_id or letter.id, group_id=group
            )
            try:
                await send(attributes=attributes)
            except MessageTooLargeError:
                if attributes == letter.attributes:
                    raise
                await send(
                    attributes=letter.attributes
                )  # without the reason it may be small enough
