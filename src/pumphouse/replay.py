"""Sending the dead letters of a directory again: `replay`.

Each letter is sent once more, on purpose: with a replay id, so that a FIFO queue stores it although
it has seen its id. The replay id is the letter's own, so that a replay that was killed and started
again doubles nothing that a FIFO queue still remembers; what was stored is noted beside the file as
it goes, too (`replay_file.py`). Letters that fail again, or are left out, stay in their file; those
of which nobody knows any more whether they are stored stay as `unknown`.
"""

from __future__ import annotations

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
from pumphouse.replay_file import ReplayFile, files_at, key_of
from pumphouse.sink.chains import in_order
from pumphouse.sink.letter import KINDS, DeadLetterLine

SendLetter = Callable[[DeadLetterLine, str], Awaitable[Receipt]]
"""Sends a letter; the text is its replay id."""


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
) -> Replayed:
    """Send the letters of a file, or of every `.jsonl` file of a directory, oldest file first.

    `kinds` names the failures that are wanted; None wants all but `unknown`, whose messages may be
    in the queue already and are sent only with `unknown=True`, or where `kinds` names them. Letters of one group are sent in
    their order, and once one has failed the rest of its group stays where it is. Once `stop()` says
    so no more is sent; what is under way is awaited, and all else stays.

    Raises `UsageError` for a path that is not there, a kind that no failure has, and a file that
    is being replayed already or written to for seconds; `OSError` when what is stored can't be
    noted, after what is under way, and `PumphouseError` when a letter is sent twice for that.
    """
    check(path, kinds)
    run = _Replay(send, _wanted(kinds, unknown), replay_id, window, progress, stop)
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
    ) -> None:
        self.done = Replayed()
        self._send = send
        self._wanted = wanted
        self._replay_id = replay_id
        self._window = window
        self._progress = progress
        self._stop = stop
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
                f"not be noted, and that the next replay sends once more: {self._unnoted}"
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
                kind = "unknown" if opened.is_unknown(number) else letter.kind
                if self._wanted(kind):
                    yield _Job(number, letter)
                else:
                    self.done.skipped += 1
                    self.done.doubtful += kind == "unknown"

    async def _one(self, opened: ReplayFile, job: _Job) -> Receipt:
        if self._stopped:
            raise NotSentError("not sent: interrupted")
        if (before := self._broken.get(_chain(job) or "")) is not None:
            raise NotSentError(f"not sent: a letter before it in its group failed ({before})")
        try:
            receipt = await self._send(job.letter, self._replay_id or (job.letter.key or "")[:16])
        except OutcomeUnknownError:
            self._noted(opened.note_unknown, job)
            raise
        if not self._noted(opened.note, job):
            self._unnoted += 1
        return receipt

    def _noted(self, note: Callable[[int], None], job: _Job) -> bool:
        try:
            note(job.number)
        except OSError as error:
            self._trouble = self._trouble or error
            return False
        return True

    def _settled(self, opened: ReplayFile, job: _Job, outcome: Receipt | PumphouseError) -> None:
        if not isinstance(outcome, PumphouseError):
            self.done.stored += 1
        elif self._stopped and isinstance(outcome, NotSentError | ClosedError):
            self.done.unsent += 1
        else:
            self.done.failed.append((opened.file, job.number, str(outcome)))
            if (chain := _chain(job)) is not None:
                self._broken.setdefault(chain, outcome)
        if self._progress is not None:
            self._progress(self.done)


def _chain(job: _Job) -> str | None:
    letter = job.letter
    return f"{letter.queue} {letter.group_id}" if letter.group_id else None
