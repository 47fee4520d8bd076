"""Events of an input of any size: looked through first, then handed out one at a time.

Whether every line is an event, and which key has the groups, is known only at the end of the input;
nothing is sent before. What can't be read twice, as a pipe, is put into a temporary file meanwhile.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from pumphouse.cli.events import STOP, skipped, stopped_by
from pumphouse.errors import UsageError
from pumphouse.jsonl import (
    ONE_GROUP,
    STDIN,
    BadLine,
    Event,
    InputError,
    Line,
    UsualKeys,
    check_key,
    grouped,
    grouping_of,
    nothing_in,
    parsed,
)

MAX_PIPED_BYTES = 1 << 30
"""What is read at most of an input that is no file."""

_CHUNK = 1 << 20


class EventFile:
    """What `opened` gives. `source` is its name in messages; `identity` is the same text whenever
    the same file is opened, unless it was changed in between; a pipe has another one every time."""

    def __init__(self, stream: IO[bytes], source: str, identity: str, group_by: str | None) -> None:
        self.source = source
        self.identity = identity
        self._stream = stream
        self._key = self._given = group_by
        self.skipped = 0  # bad lines, once it was looked through
        self._kept: IO[bytes] | None = None
        self._start = 0
        self._last_line = 0
        self._count = 0

    def __len__(self) -> int:
        """How many events there are, once it was looked through."""
        return self._count

    @property
    def grouping(self) -> str:
        """How the events are grouped, in words, once it was looked through."""
        return grouping_of(self._key, given=self._given is not None)

    def look_through(self, on_bad_line: str) -> None:
        """Read all of it once. Bad lines are told one by one on standard error, or stop it.

        Raises `InputError` where they do, or where there is no event at all, and `UsageError`.
        """
        try:
            self._look_through(on_bad_line)
        except OSError as error:
            raise _unreadable(self.source, error) from None

    def _look_through(self, on_bad_line: str) -> None:
        if not _is_file(self._stream):
            self._keep()
        self._start = self._stream.tell()
        usual = UsualKeys()
        first: BadLine | None = None
        bad = 0
        for line in parsed(self._stream, self.source):
            if isinstance(line, Line):
                self._last_line = line.number
                usual.see(line)
                event = self._event(line)
            else:
                event = line
            if isinstance(event, Event):
                self._count += 1
                continue
            first = first or event
            bad += 1
            if on_bad_line != STOP:
                skipped(self.source, event)
        if not self._count:
            raise InputError(nothing_in(self.source, [first] * bad if first else []))
        if first is not None and on_bad_line == STOP:
            raise stopped_by(self.source, first, range(bad))
        self.skipped = bad
        self._key = self._key or usual.key

    def __iter__(self) -> Iterator[Event]:
        """The events that were there when it was looked through.

        Raises `InputError` where they are not what they were then.
        """
        self._stream.seek(self._start)
        count = 0
        for line in parsed(self._stream, self.source):
            number = line.number if isinstance(line, Line) else line.line
            if number > self._last_line:
                break
            event = self._event(line) if isinstance(line, Line) else line
            if isinstance(event, Event):
                count += 1
                yield event
        if count != self._count:
            raise InputError(
                f"{self.source} was changed while it was being sent: it had {self._count} events, "
                f"and then {count}"
            )

    def _keep(self) -> None:
        """Have all of the input in a file that nobody else sees."""
        kept = self._kept = tempfile.TemporaryFile()  # noqa: SIM115 - it is read much later
        while chunk := self._stream.read(_CHUNK):
            kept.write(chunk)
            if kept.tell() > MAX_PIPED_BYTES:
                raise UsageError(
                    f"{self.source} is larger than {MAX_PIPED_BYTES >> 20} MiB; "
                    "a file may be of any size"
                )
        kept.seek(0)
        self._stream = kept

    def close(self) -> None:
        """Forget what was kept of it."""
        if self._kept is not None:
            self._kept.close()

    def _event(self, line: Line) -> Event | BadLine:
        return grouped(line, self._key) if self._key else Event(line.number, ONE_GROUP, line.body)


@contextmanager
def opened(path: str, group_by: str | None = None) -> Iterator[EventFile]:
    """Open a file, or standard input (`-`); see `jsonl.read` for the groups.

    Raises `UsageError` when it can't be opened, or the key is empty.
    """
    check_key(group_by)
    if path == "":
        raise UsageError("--input needs the name of a file, or - for standard input")
    with ExitStack() as stack:
        if path == STDIN:
            if sys.stdin is None:
                raise UsageError("standard input is closed")
            stream: IO[bytes] = sys.stdin.buffer
            events = EventFile(stream, "standard input", uuid.uuid4().hex, group_by)
        else:
            try:
                stream = stack.enter_context(open(path, "rb"))
            except OSError as error:
                raise _unreadable(path, error) from None
            except ValueError as error:  # a path with a NUL in it
                raise UsageError(f"cannot read {path!r}: {error}") from None
            events = EventFile(stream, path, _identity(path, stream), group_by)
        stack.callback(events.close)
        yield events


def _unreadable(source: str, error: OSError) -> UsageError:
    return UsageError(f"cannot read {source}: {error.strerror or error}")


def _identity(path: str, stream: IO[bytes]) -> str:
    status = os.fstat(stream.fileno())
    if not stat.S_ISREG(status.st_mode):
        return uuid.uuid4().hex
    what = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return f"{os.path.realpath(path)}:{':'.join(map(str, what))}"


def _is_file(stream: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, io.UnsupportedOperation, AttributeError):
        return False
