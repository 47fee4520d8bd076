"""Sending the dead letters of a directory again: `replay`.

Each letter is sent once more, on purpose: with a replay id, so that a FIFO queue stores it although
it has seen its id. That a letter leaves is noted beside the file, and what came of it
(`replay_file.py`). Where a replay was killed between the two, nobody knows whether the letter is
stored: it is `unknown` from then on. But its replay id is its own, so that a FIFO queue recognises
it for five minutes: within them it is sent there again, and doubles nothing. Letters that fail
again, or are left out, stay in their file.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
from anyio import to_thread

from pumphouse.errors import (
    ClosedError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.names import FIFO_SUFFIX
from pumphouse.replay_file import Left, ReplayFile, files_at, key_of
from pumphouse.sink.chains import in_order
from pumphouse.sink.letter import KINDS, DeadLetterLine
from pumphouse.sink.repeating import DEDUPLICATION_SECONDS, LEAVING_SECONDS

SendLetter = Callable[[DeadLetterLine, str], Awaitable[Receipt]]
"""Sends a letter; the text is its replay id."""

_RECOGNISED_SECONDS = DEDUPLICATION_SECONDS - 2 * LEAVING_SECONDS
"""How long after a letter was sent it may be sent to a FIFO queue again, which recognises it: a
try, and what it waits for, may take the rest."""


class _LeftOutError(PumphouseError):
    """A letter that may be stored, and was not to be sent for that."""


class _Job(NamedTuple):
    number: int
    letter: DeadLetterLine


_decoder = msgspec.json.Decoder(DeadLetterLine)


@dataclass(slots=True)
class Replayed:
    """What a replay came to. `failed` has file, line and reason of each that could not be sent;
    `skipped` counts the letters that were left out, `doubtful` those of them that may be stored
    already, and `unsent` those that were read and not sent as it was stopped. `moved` has the files
    of what is left that could not have its own name back."""

    stored: int = 0
    skipped: int = 0
    doubtful: int = 0
    unsent: int = 0
    failed: list[tuple[Path, int, str]] = field(default_factory=list)
    moved: list[Path] = field(default_factory=list)


async def replay(
    path: Path,
    send: SendLetter,
    *,
    kinds: Collection[str] | None = None,
    unknown: bool = False,
    replay_id: str | None = None,
    window: int = 256,
    progress: Callable[[Replayed], object] | None = None,
    stop: Callable[[], bool] = lambda: False,
    elsewhere: str | None = None,
    ready: Callable[[DeadLetterLine], Awaitable[object]] | None = None,
    now: Callable[[], float] = time.time,
) -> Replayed:
    """Send the letters of a file, or of every `.jsonl` file of a directory, oldest file first.

    `kinds` names the failures that are wanted; None wants all but `unknown`, whose messages may be
    in the queue already and are sent only with `unknown=True`, or where `kinds` names them. Letters
    of one group are sent in their order, and once one has failed the rest of its group stays where
    it is; on a FIFO queue also once one that may be stored is left out. Once `stop()` says so no
    more is sent; what is under way is awaited, and all else stays. `elsewhere` names the queue or
    topic that `send` takes instead of the letters' own. `ready` is awaited before a letter counts
    as one that leaves, and may raise why it can't; `now` tells Unix seconds.

    Raises `UsageError` for a path that is not there, a kind that no failure has, and a file that
    is being replayed already or written to for seconds; `OSError` when what is stored can't be
    noted, after what is under way, and `PumphouseError` when a letter that is stored counts as
    unknown for that.
    """
    check(path, kinds)
    wanted = _wanted(kinds, unknown)
    run = _Replay(send, wanted, replay_id, window, progress, stop, elsewhere, ready, now)
    for file in await to_thread.run_sync(files_at, path):
        if not stop():
            await run.file(file)
    return run.done


def check(path: Path, kinds: Collection[str] | None) -> None:
    """Raise `UsageError` where there is nothing at the path, or a kind that no failure has."""
    if kinds is not None and (wrong := sorted(set(kinds) - set(KINDS))):
        raise UsageError(f"no letter fails as {', '.join(wrong)}; kinds are {', '.join(KINDS)}")
    files_at(path)


def _wanted(kinds: Collection[str] | None, unknown: bool) -> Callable[[str], bool]:
    if kinds is not None:
        return lambda kind: kind in kinds or (unknown and kind == "unknown")
    return lambda kind: unknown or kind != "unknown"


class _Replay:
    """One call of `replay`."""

    def __init__(
        self,
        send: SendLetter,
        wanted: Callable[[str], bool],
        replay_id: str | None,
        window: int,
        progress: Callable[[Replayed], object] | None,
        stop: Callable[[], bool],
        elsewhere: str | None,
        ready: Callable[[DeadLetterLine], Awaitable[object]] | None,
        now: Callable[[], float],
    ) -> None:
        self.done = Replayed()
        self._send = send
        self._wanted = wanted
        self._replay_id = replay_id
        self._window = window
        self._progress = progress
        self._stop = stop
        self._elsewhere = elsewhere
        self._ready = ready
        self._now = now
        self._trouble: OSError | None = None
        self._unnoted = 0  # letters that are stored, which only this process knows
        self._broken: dict[str, PumphouseError] = {}  # groups that have failed, in any file

    @property
    def _stopped(self) -> bool:
        return self._trouble is not None or self._stop()

    async def file(self, file: Path) -> None:
        """Replay one file."""
        opened = await to_thread.run_sync(ReplayFile, file)
        try:
            await in_order(
                self._letters(opened),
                _chain,
                lambda job: self._one(opened, job),
                window=self._window,
                done=lambda job, outcome: self._settled(opened, job, outcome),
            )
            back = await to_thread.run_sync(opened.finish)
        except OSError as error:
            if not self._unnoted:
                raise
            raise PumphouseError(
                f"{file} could not be put back ({error}); letters of it that were stored and could "
                f"not be noted, and that the next replay takes for unknown: {self._unnoted}"
            ) from error
        finally:
            opened.close()
        if back is not None and back != file:
            self.done.moved.append(back)
        self._unnoted = 0
        if self._trouble is not None:
            raise self._trouble

    async def _letters(self, opened: ReplayFile) -> AsyncIterator[_Job]:
        while not self._stopped:
            try:
                lines = await to_thread.run_sync(opened.some)
            except OSError as error:
                self._trouble = error
                return
            if not lines:
                return
            for number, line in lines:
                if self._stopped:
                    return
                try:
                    letter = _decoder.decode(line)
                    if letter.v != 1:
                        raise msgspec.ValidationError(f"version {letter.v} is not known")
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    self.done.failed.append((opened.file, number, f"no dead letter: {error}"))
                    continue
                if letter.key is None:
                    letter.key = key_of(line)
                job = _Job(number, letter)
                kind = self._kind(opened, job)
                if self._wanted(kind) or (kind == "unknown" and self._fifo(letter)):
                    yield job  # a FIFO queue's that is left out holds up its group
                else:
                    self.done.skipped += 1
                    self.done.doubtful += kind == "unknown"

    def _kind(self, opened: ReplayFile, job: _Job) -> str:
        """How a letter failed; `unknown` where a replay that was killed may have stored it, but not
        while a FIFO queue would recognise it."""
        if opened.is_unknown(job.number):
            return "unknown"
        if (left := opened.left(job.number)) is None:
            return job.letter.kind
        recognised = (
            self._fifo(job.letter)
            and left.as_what == self._leaves(job.letter).as_what
            and 0 <= self._now() - left.at < _RECOGNISED_SECONDS
        )
        return job.letter.kind if recognised else "unknown"

    def _where(self, letter: DeadLetterLine) -> str:
        return self._elsewhere or letter.queue

    def _fifo(self, letter: DeadLetterLine) -> bool:
        return self._where(letter).endswith(FIFO_SUFFIX)

    def _id(self, letter: DeadLetterLine) -> str:
        return self._replay_id or (letter.key or "")[:16]

    def _leaves(self, letter: DeadLetterLine) -> Left:
        as_what = f"{self._where(letter)} {self._id(letter)}"
        return Left(int(self._now()), hashlib.sha256(as_what.encode()).hexdigest()[:16])

    async def _one(self, opened: ReplayFile, job: _Job) -> Receipt:
        if self._stopped:
            raise NotSentError("not sent: interrupted")
        if (before := self._broken.get(_chain(job) or "")) is not None:
            raise NotSentError(f"not sent: a letter before it in its group failed ({before})")
        if self._ready is not None:
            await self._ready(job.letter)
        if not self._wanted(self._kind(opened, job)):
            raise _LeftOutError("it may be stored already, and was left out")
        if not self._noted(lambda: opened.note_leaving(job.number, self._leaves(job.letter))):
            raise NotSentError("not sent: it could not be noted")
        try:
            receipt = await self._send(job.letter, self._id(job.letter))
        except OutcomeUnknownError:
            self._noted(lambda: opened.note_unknown(job.number))
            raise
        except PumphouseError:
            self._noted(lambda: opened.note_failed(job.number))
            raise
        if not self._noted(lambda: opened.note(job.number)):
            self._unnoted += 1
        return receipt

    def _noted(self, note: Callable[[], None]) -> bool:
        try:
            note()
        except OSError as error:
            self._trouble = self._trouble or error
            return False
        return True

    def _settled(self, opened: ReplayFile, job: _Job, outcome: Receipt | PumphouseError) -> None:
        if not isinstance(outcome, PumphouseError):
            self.done.stored += 1
        elif isinstance(outcome, _LeftOutError):
            self.done.skipped += 1
            self.done.doubtful += 1
            self._break(job, outcome)
        elif self._stopped and isinstance(outcome, NotSentError | ClosedError):
            self.done.unsent += 1
        else:
            self.done.failed.append((opened.file, job.number, str(outcome)))
            self._break(job, outcome)
        if self._progress is not None:
            self._progress(self.done)

    def _break(self, job: _Job, why: PumphouseError) -> None:
        if (chain := _chain(job)) is not None:
            self._broken.setdefault(chain, why)


def _chain(job: _Job) -> str | None:
    letter = job.letter
    return f"{letter.queue} {letter.group_id}" if letter.group_id else None
