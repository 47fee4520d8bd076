"""Sending the dead letters of a directory again: `replay`.

Each letter is sent once more, on purpose: with a replay id, so that a FIFO queue stores it although
it has seen its id. The replay id is made of the letter itself, so that a replay that was killed and
started again doubles nothing that a FIFO queue still remembers; what was stored is noted beside the
file as it goes, too. Letters that fail again, or are left out, stay in their file.

A file that is being replayed is called `….replaying`; a live sink that was writing to it goes on in
a new one (`dead_letters.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec
from anyio import to_thread

from pumphouse.errors import PumphouseError, UsageError
from pumphouse.model import Receipt
from pumphouse.sink.chains import in_order
from pumphouse.sink.letter import DeadLetterLine
from pumphouse.sink.letter_files import is_at, lock, try_lock

MAX_LINE_BYTES = 16_777_216
"""A longer line is no dead letter: 1 MiB of a message takes less, however it is escaped."""

SendLetter = Callable[[DeadLetterLine, str], Awaitable[Receipt]]
"""Sends a letter; the text is its replay id."""

_Job = tuple[int, bytes, DeadLetterLine]
_decoder = msgspec.json.Decoder(DeadLetterLine)


@dataclass(slots=True)
class Replayed:
    """What a replay came to. `failed` has file, line and reason of each that could not be sent;
    `skipped` counts the letters that were left out."""

    stored: int = 0
    skipped: int = 0
    failed: list[tuple[Path, int, str]] = field(default_factory=list)


async def replay(
    path: Path,
    send: SendLetter,
    *,
    kinds: Collection[str] | None = None,
    unknown: bool = False,
    replay_id: str | None = None,
    window: int = 256,
    progress: Callable[[Replayed], object] | None = None,
) -> Replayed:
    """Send the letters of a file, or of every `.jsonl` file of a directory, oldest file first.

    `kinds` names the failures that are wanted; None wants all but `unknown`, whose messages may be
    in the queue already and are sent only with `unknown=True`. Letters of one group are sent in
    their order, and once one has failed the rest of its group stays where it is. Raises
    `UsageError` for a path that is not there.
    """
    done = Replayed()
    wanted = _wanted(kinds, unknown)
    for file in await to_thread.run_sync(_files, path):
        await _replay_file(file, send, wanted, replay_id, window, done, progress)
    return done


def _wanted(kinds: Collection[str] | None, unknown: bool) -> Callable[[str], bool]:
    if kinds is not None:
        return lambda kind: kind in kinds or (unknown and kind == "unknown")
    return lambda kind: unknown or kind != "unknown"


def _files(path: Path) -> list[Path]:
    """The files to replay, by their first names; those of an earlier replay among them."""
    if path.is_dir():
        found = {p for p in path.iterdir() if p.is_file() and p.name.endswith(".jsonl")}
        for p in path.iterdir():
            for suffix in (".replaying", ".rest"):
                if p.name.endswith(f".jsonl{suffix}"):
                    found.add(p.with_name(p.name.removesuffix(suffix)))
        return sorted(found)
    if path.is_file():
        return [path]
    raise UsageError(f"there are no dead letters at {path}")


class _Open:
    """A file under replay: its lines, and the note of those that are done."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.taken = file.with_name(file.name + ".replaying")
        self.rest = file.with_name(file.name + ".rest")
        self.notes = file.with_name(file.name + ".done")
        self._done: set[int] = set()
        self._number = 0
        self._noting = self.notes.open("a+")  # whoever holds its lock is the one who replays
        try:
            if not try_lock(self._noting.fileno()) or not is_at(self.notes, self._noting.fileno()):
                raise UsageError(f"{self.file} is being replayed by somebody else")
            self._reading = self._take()
        except BaseException:
            self._noting.close()
            raise

    def _take(self) -> IO[bytes]:
        if self.rest.exists():  # an earlier replay was at its last step, or was not
            if self.taken.exists():
                self.rest.unlink()
            else:
                os.replace(self.rest, self.file)
                self._noting.truncate(0)
        if self.taken.exists():
            self._noting.seek(0)
            numbers = self._noting.read().split("\n")[:-1]
            self._done = {int(number) for number in numbers if number.isdigit()}
        else:
            self._noting.truncate(0)
            with self.file.open("rb") as held:
                lock(held.fileno())  # nobody is in the middle of a line
                os.replace(self.file, self.taken)
        return self.taken.open("rb")

    def next(self) -> tuple[int, bytes] | None:
        """The next line that is not done, with its number; None after the last."""
        while line := self._reading.readline(MAX_LINE_BYTES):
            self._number += 1
            if self._number not in self._done:
                return self._number, line
        return None

    def note(self, number: int) -> None:
        self._done.add(number)
        self._noting.write(f"{number}\n")
        self._noting.flush()

    def close(self) -> None:
        self._noting.close()
        self._reading.close()

    def finish(self) -> None:
        """Keep the lines that are not done, under the file's own name, and nothing else."""
        self._reading.seek(0)
        self._number = 0
        kept = 0
        with self.rest.open("wb") as rest:
            while (line := self.next()) is not None:
                rest.write(line[1])
                kept += 1
            rest.flush()
            os.fsync(rest.fileno())
        self._reading.close()
        self.taken.unlink()
        if kept:
            os.replace(self.rest, self.file)
        else:
            self.rest.unlink()
        self.notes.unlink()
        self._noting.close()


async def _replay_file(
    file: Path,
    send: SendLetter,
    wanted: Callable[[str], bool],
    replay_id: str | None,
    window: int,
    done: Replayed,
    progress: Callable[[Replayed], object] | None,
) -> None:
    opened = await to_thread.run_sync(_Open, file)

    async def letters() -> AsyncIterator[_Job]:
        while (line := await to_thread.run_sync(opened.next)) is not None:
            number, raw = line
            try:
                letter = _decoder.decode(raw)
                if letter.v != 1:
                    raise msgspec.ValidationError(f"version {letter.v} is not known")
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                done.failed.append((file, number, f"no dead letter: {error}"))
                continue
            if wanted(letter.kind):
                yield number, raw, letter
            else:
                done.skipped += 1

    async def one(job: _Job) -> Receipt:
        number, raw, letter = job
        again = replay_id or hashlib.sha256(raw.rstrip(b"\n")).hexdigest()[:16]
        receipt = await send(letter, again)
        opened.note(number)
        return receipt

    def settled(job: _Job, outcome: Receipt | PumphouseError) -> None:
        if isinstance(outcome, PumphouseError):
            done.failed.append((file, job[0], str(outcome)))
        else:
            done.stored += 1
        if progress is not None:
            progress(done)

    def chain(job: _Job) -> str | None:
        letter = job[2]
        return f"{letter.queue} {letter.group_id}" if letter.group_id else None

    try:
        await in_order(letters(), chain, one, window=window, done=settled)
    except BaseException:
        opened.close()
        raise
    await to_thread.run_sync(opened.finish)
