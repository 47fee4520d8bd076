"""Events from JSON lines: reading them, finding each one's group, and saying which lines are bad.

One line is one JSON object, sent as it stands. Blank lines are no events. A line that can't be an
event is a `BadLine` with its number, never an exception; input that can't be read at all is one
`UsageError`. What to do about bad lines is the caller's decision.

`load` and `read` keep everything in memory; `parsed`, `UsualKeys` and `grouped` are for those who
look at one line at a time.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, NamedTuple

import msgspec

from pumphouse.content import encode
from pumphouse.errors import PumphouseError, UsageError
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES, is_token, message_size

STDIN = "-"
MAX_INPUT_BYTES = 1 << 28
"""What is read at most: the account keeps all of it in memory."""

USUAL_KEYS = ("group", "group_id", "source", "tenant", "customer", "account", "user")
"""Where the group is looked for when no key is given: the first that every event has."""

ONE_GROUP = "all"

_CHUNK = 1 << 16
_LONGEST = MAX_MESSAGE_BYTES + 8  # with its line end and a byte order mark
_NOTHING = object()


class InputError(PumphouseError):
    """What was read holds no events, or holds a line that none can be made of."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the number of its line (from 1), its group, and the line itself as the body."""

    line: int
    group: str
    body: str


class Line(NamedTuple):
    """A line that is an object: its number, itself, and what it says."""

    number: int
    body: str
    value: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Events:
    """Everything that was read: the events in order, the bad lines, and how groups were found."""

    events: Sequence[Event]
    bad_lines: Sequence[BadLine]
    source: str
    grouping: str

    @property
    def groups(self) -> int:
        return len({event.group for event in self.events})


def load(path: str, group_by: str | None = None) -> Events:
    """Read events from a file, or from standard input (`-`); see `read`.

    Raises `UsageError` when the input can't be opened or read.
    """
    if path == "":
        raise UsageError("--input needs the name of a file, or - for standard input")
    with _opened(path) as stream:
        return read(stream, "standard input" if path == STDIN else path, group_by)


def read(stream: IO[bytes], source: str, group_by: str | None = None) -> Events:
    """Read events from a stream that is called `source` in messages.

    `group_by` is the key whose value is the group; dots lead into objects, unless the object has
    the whole key as it stands. Without it, the first of `USUAL_KEYS` that every event has decides,
    and where there is none all events are one group.

    Raises `UsageError` when the key is empty or there is more than `MAX_INPUT_BYTES`, and
    `InputError` when there is not one event in it.
    """
    check_key(group_by)
    lines: list[Line] = []
    bad: list[BadLine] = []
    usual = UsualKeys()
    for line in parsed(stream, source, MAX_INPUT_BYTES):
        if isinstance(line, BadLine):
            bad.append(line)
        else:
            lines.append(line)
            usual.see(line)
    if not lines:
        raise InputError(nothing_in(source, bad))

    key = group_by or usual.key
    if key is None:
        events = [Event(line.number, ONE_GROUP, line.body) for line in lines]
    else:
        events, without = [], []
        for line in lines:
            event = grouped(line, key)
            if isinstance(event, BadLine):
                without.append(event)
            else:
                events.append(event)
        if not events:
            raise InputError(f"{source}: no event has a group: {without[0]}{and_more(without)}")
        bad = sorted([*bad, *without], key=lambda line: line.line)
    return Events(events, bad, source, grouping_of(key, given=group_by is not None))


def grouping_of(key: str | None, *, given: bool) -> str:
    """How events are grouped, in words; `given` is whether somebody said so."""
    if key is None:
        return "all in one group: no --group-by, and no usual key that every event has"
    return f"by {key!r}" + ("" if given else ", a usual key (--group-by takes another)")


def check_key(group_by: str | None) -> None:
    """Raise `UsageError` for a key that is none."""
    if group_by is not None and not group_by.strip("."):
        raise UsageError("--group-by needs the name of a key")


# --- lines --------------------------------------------------------------------------------------


def parsed(stream: IO[bytes], source: str, limit: float = math.inf) -> Iterator[Line | BadLine]:
    """Each line of a stream that is not blank; raises `UsageError` after `limit` bytes."""
    for number, raw in _numbered(stream, source, limit):
        line = _parse(number, raw)
        if line is not None:
            yield line


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """The input as bytes; whatever the operating system has against it is a `UsageError`."""
    try:
        if path == STDIN:
            if sys.stdin is None:
                raise UsageError("standard input is closed")
            yield sys.stdin.buffer
        else:
            with open(path, "rb") as stream:
                yield stream
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a path with a NUL in it
        if isinstance(error, PumphouseError):
            raise
        raise UsageError(f"cannot read {path!r}: {error}") from None


def _numbered(stream: IO[bytes], source: str, limit: float) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number, without its line end; None for one that no message can hold."""
    number = read = 0
    while line := stream.readline(_LONGEST):
        number += 1
        read += len(line)
        rest, most = line, _LONGEST
        while len(rest) == most and not rest.endswith(b"\n"):
            rest, most = stream.readline(_CHUNK), _CHUNK
            read += len(rest)
            _check_size(read, source, limit)
        _check_size(read, source, limit)
        content = line.rstrip(b"\r\n")
        if number == 1:
            content = content.removeprefix(b"\xef\xbb\xbf")
        cut = rest is not line
        yield number, None if cut or len(content) > MAX_MESSAGE_BYTES else content


def _check_size(read: int, source: str, limit: float) -> None:
    if read > limit:
        raise UsageError(
            f"{source} is larger than {int(limit) >> 20} MiB, and all of it is kept in memory"
        )


def _parse(number: int, raw: bytes | None) -> Line | BadLine | None:
    """The line's text and its object; None for a blank line."""
    limit = f"{MAX_MESSAGE_BYTES:,} bytes of a message"
    if raw is None:
        return BadLine(number, f"longer than the {limit}")
    if not raw.strip():
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8: byte {raw[error.start]:#04x} at {error.start + 1}")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return BadLine(number, f"not JSON: {str(error).removeprefix('JSON is malformed: ')}")
    if not isinstance(value, dict):
        return BadLine(number, f"{_kind(value)}, and an event is an object")
    if message_size(*encode(text)) > MAX_MESSAGE_BYTES:
        return BadLine(number, f"as a message longer than the {limit}")
    return Line(number, text, value)


def nothing_in(source: str, bad: Sequence[BadLine]) -> str:
    """What is to be said of an input without events."""
    if not bad:
        return f"{source} holds no events: it is empty"
    return f"{source} holds no events: {bad[0]}{and_more(bad)}"


def and_more(bad: Sized) -> str:
    """` (and 3 more bad lines)` after the first of them, or nothing."""
    more = len(bad) - 1
    return f" (and {more} more bad {'line' if more == 1 else 'lines'})" if more else ""


# --- groups -------------------------------------------------------------------------------------


class UsualKeys:
    """Which of `USUAL_KEYS` every event has."""

    def __init__(self) -> None:
        self._left: Sequence[str] = USUAL_KEYS

    def see(self, line: Line) -> None:
        """Look at one more event."""
        if self._left:
            get = line.value.get
            self._left = [key for key in self._left if _group(get(key)) is not None]

    @property
    def key(self) -> str | None:
        """The first of them, if there is one."""
        return self._left[0] if self._left else None


def grouped(line: Line, key: str) -> Event | BadLine:
    """The event of a line, with the group that it has at a key."""
    found = _at(line.value, key)
    group = _group(found)
    if group is not None:
        return Event(line.number, group, line.body)
    if found is _NOTHING:
        keys = ", ".join(_shown(name) for name in list(line.value)[:8]) or "no keys"
        return BadLine(line.number, f"nothing at the key {key!r}; the event has {keys}")
    return BadLine(
        line.number, f"{_kind(found)} at the key {key!r}, and a group is text or a number"
    )


def _shown(name: str) -> str:
    """A key from the input, fit for a line of a message."""
    return "".join(c if c.isprintable() else "?" for c in name[:40]) + "…" * (len(name) > 40)


def _at(value: object, key: str) -> object:
    """The value at a dotted key; the whole key wins over its parts."""
    if not isinstance(value, Mapping):
        return _NOTHING
    if key in value:
        return value[key]
    first, dot, rest = key.partition(".")
    return _at(value.get(first), rest) if dot else _NOTHING


def _group(value: object) -> str | None:
    """The message group id for a value: itself where SQS takes it, else a hash of it."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | int | float):
        text = str(value)
    else:
        return None
    if is_token(text):
        return text
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


_KINDS = {
    type(None): "null",
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
}


def _kind(value: object) -> str:
    """What JSON calls a decoded value."""
    return _KINDS[type(value)]
