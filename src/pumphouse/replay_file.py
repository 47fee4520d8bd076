"""A file of dead letters under replay: taken, noted line by line, and what is left put back.

`X.jsonl` is called `X.jsonl.replaying` meanwhile, so that whoever writes letters goes on in another
file. Beside it, `X.jsonl.done` has a note of each line that leaves and of what came of it: whoever
holds its lock is the one who replays, and a replay that was killed goes on from it; what had left,
and of which nothing more is known, may be stored. At the end the lines that are left are in
`X.jsonl.rest`, and come back under the first name; where somebody has made such a file in the
meantime, under one beside it. Nothing is ever written over.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from pumphouse.errors import UsageError
from pumphouse.sink.letter_files import append, is_at, open_private, sync_directory, try_lock

TAKEN, REST, NOTES = ".replaying", ".rest", ".done"

MAX_LINE_BYTES = 16_777_216
"""A longer line is no dead letter: 1 MiB of a message takes less, however it is escaped."""

_AT_ONCE_BYTES = 1_048_576
_WRITER_SECONDS = 5.0

_NOTE = re.compile(r"([0-9]{1,15})(?:([?!])|>([0-9]{1,15}) (\S+))?")
"""The number of a line that is done; with `?` of one that may be stored, with `!` of one that has
left and is not, with `>` of one that leaves: when (Unix seconds), and where as what."""


def files_at(path: Path) -> list[Path]:
    """The files to replay at a path, by their first names; one twice of which an earlier replay has
    left a part, for that part goes first. Raises `UsageError` where there is nothing."""
    if path.is_dir():
        found = {_first_name(each) for each in path.iterdir() if not each.is_dir()}
        files = sorted(each for each in found if each.name.endswith(".jsonl"))
    else:
        files = [_first_name(path)]
    times = {file: interrupted(file) + file.is_file() for file in files}
    if not path.is_dir() and not any(times.values()):
        raise UsageError(f"there are no dead letters at {path}")
    return [file for file in files for _ in range(times[file])]


def interrupted(file: Path) -> bool:
    """Whether a replay of the file was not finished, or is under way."""
    return file.with_name(file.name + TAKEN).exists() or _is_alone(file.with_name(file.name + REST))


def _is_alone(rest: Path) -> bool:
    """Whether what is left has no other name yet."""
    return rest.exists() and rest.stat().st_nlink == 1


def _first_name(path: Path) -> Path:
    if path.is_symlink():  # what it points to is what is taken, and what is left comes back to
        path = path.resolve()
    for suffix in (TAKEN, REST):
        if path.name.endswith(suffix):
            return path.with_name(path.name.removesuffix(suffix))
    return path


class Left(NamedTuple):
    """That a line was sent: when (Unix seconds), and a word for where it went and as what."""

    at: int
    as_what: str


class ReplayFile:
    """A file that is being replayed by this process; raises `UsageError` where another one does."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.taken = file.with_name(file.name + TAKEN)
        self.rest = file.with_name(file.name + REST)
        self.notes = file.with_name(file.name + NOTES)
        self._done: set[int] = set()
        self._unknown: set[int] = set()
        self._sent: dict[int, Left] = {}  # by a replay that was killed
        self._leaving: set[int] = set()
        self._noting = open_private(self.notes)
        try:
            if not try_lock(self._noting) or not is_at(self.notes, self._noting):
                raise UsageError(f"{self.file} is being replayed by somebody else")
            try:
                self._take()
                self._reading = self.taken.open("rb")
            except (OSError, UsageError):
                if not self.taken.exists():
                    self.notes.unlink()
                raise
        except FileNotFoundError:
            os.close(self._noting)
            raise UsageError(f"there are no dead letters at {file} any more") from None
        except BaseException:
            os.close(self._noting)
            raise
        self._lines = self._numbered()

    def _take(self) -> None:
        """Have the lines under `taken`, and know which of them are done."""
        if self.rest.exists():  # an earlier replay was at its last step
            if self.taken.exists() or not _is_alone(self.rest):  # not yet, or behind it: it is back
                self.rest.unlink()
            else:
                os.ftruncate(self._noting, 0)
                os.rename(self.rest, self.taken)
        if self.taken.exists():
            self._read_notes()
            return
        os.ftruncate(self._noting, 0)
        with self.file.open("rb") as held:
            self._wait_for_writer(held.fileno())
            os.rename(self.file, self.taken)

    def _wait_for_writer(self, held: int) -> None:
        """Nobody is in the middle of a line."""
        end = time.monotonic() + _WRITER_SECONDS
        while not try_lock(held):
            if time.monotonic() > end:
                raise UsageError(f"{self.file} is being written to by another process")
            time.sleep(0.05)

    def _read_notes(self) -> None:
        os.lseek(self._noting, 0, os.SEEK_SET)
        with open(os.dup(self._noting), "rb") as notes:
            found = notes.read()
        whole = found.rpartition(b"\n")[0]
        os.ftruncate(self._noting, len(whole) + 1 if whole else 0)
        for note in whole.decode(errors="replace").split("\n"):
            if (of := _NOTE.fullmatch(note)) is None:
                continue
            number, outcome, at, as_what = int(of[1]), of[2], of[3], of[4]
            if at:
                self._sent.setdefault(number, Left(int(at), as_what))
                continue
            if outcome == "?":
                self._unknown.add(number)
            elif outcome is None:
                self._done.add(number)
            self._sent.pop(number, None)

    # --- reading ----------------------------------------------------------------------------

    def some(self) -> list[tuple[int, bytes]]:
        """The next lines that are not done, with their numbers; none after the last."""
        found: list[tuple[int, bytes]] = []
        size = 0
        for number, line in self._lines:
            found.append((number, line))
            size += len(line)
            if size >= _AT_ONCE_BYTES:
                break
        return found

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        self._reading.seek(0)
        number = 0
        while line := self._reading.readline(MAX_LINE_BYTES):
            number += 1
            if number not in self._done:
                yield number, line

    # --- noting -----------------------------------------------------------------------------

    def note_leaving(self, number: int, left: Left) -> None:
        """A line is about to be sent. Raises `OSError` when that can't be written down, and then
        it must not be."""
        if number not in self._sent:  # the first time counts
            self._append(f"{number}>{left.at} {left.as_what}\n")
            self._leaving.add(number)

    def note(self, number: int) -> None:
        """A line is done. Raises `OSError` when that can't be written down; it is known anyway."""
        self._done.add(number)
        self._leaving.discard(number)
        self._sent.pop(number, None)
        self._append(f"{number}\n")

    def note_unknown(self, number: int) -> None:
        """A line may be stored."""
        self._unknown.add(number)
        self._append(f"{number}?\n")

    def note_failed(self, number: int) -> None:
        """A line has been sent and is not stored, unless by an earlier replay."""
        if number in self._leaving:
            self._append(f"{number}!\n")

    def _append(self, note: str) -> None:
        try:
            append(self._noting, note.encode(), sync=False)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.notes)) from None

    def is_unknown(self, number: int) -> bool:
        return number in self._unknown

    def left(self, number: int) -> Left | None:
        """When a replay that was killed had sent a line, where nothing else is known of it."""
        return self._sent.get(number)

    # --- the end ----------------------------------------------------------------------------

    def finish(self) -> Path | None:
        """Put back the lines that are not done; returns where they are, if there are any."""
        with suppress(FileNotFoundError):
            self.rest.unlink()
        rest = open_private(self.rest, os.O_EXCL)
        kept = False
        try:
            for number, line in self._numbered():
                kept = True
                append(rest, self._left(number, line), sync=False)
            if kept:
                append(rest, b"", sync=True)
        finally:
            os.close(rest)
        self._reading.close()
        self.taken.unlink()
        back = self._put_back() if kept else None
        with suppress(FileNotFoundError):
            self.rest.unlink()
        self.notes.unlink()
        sync_directory(self.file.parent)
        return back

    def _left(self, number: int, line: bytes) -> bytes:
        """A line as it stays: one that may be stored by now says so."""
        if number not in self._unknown and number not in self._sent:
            return line
        letter = msgspec.json.decode(line)
        letter |= {"kind": "unknown", "key": letter.get("key") or key_of(line)}
        return msgspec.json.encode(letter) + b"\n"

    def _put_back(self) -> Path:
        """Give what is left a name that nobody has: its own, or one that sorts before it."""
        name, number = self.file, 0
        while True:
            try:
                os.link(self.rest, name)
                return name
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                if not name.exists():
                    os.rename(self.rest, name)
                    return name
            number += 1
            name = self.file.with_name(f"{self.file.stem}.{number}{self.file.suffix}")

    def close(self) -> None:
        """Let go of it, as it is."""
        self._reading.close()
        os.close(self._noting)


def key_of(line: bytes) -> str:
    """What a letter is called whose line has no key of its own."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()[:16]
