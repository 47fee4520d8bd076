"""What a command does with the bad lines of its input: it stops before anything is sent, or skips
them and says so. Reading the lines is `jsonl.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sized

from pumphouse.errors import UsageError
from pumphouse.jsonl import BadLine, Events, InputError, and_more

SKIP, STOP = "skip", "stop"


def read_events(read: Callable[[], Events], on_bad_line: str) -> Events:
    """The events that `read` gives, after the bad lines among them were told on standard error.

    Raises `UsageError` for an `on_bad_line` that is neither skip nor stop, `InputError` for a bad
    line when it is stop, and what `read` raises.
    """
    check(on_bad_line)
    events = read()
    if events.bad_lines and on_bad_line == STOP:
        raise stopped_by(events.source, events.bad_lines[0], events.bad_lines)
    for line in events.bad_lines:
        skipped(events.source, line)
    return events


def check(on_bad_line: str) -> None:
    """Raise `UsageError` for what is neither skip nor stop."""
    if on_bad_line not in (SKIP, STOP):
        raise UsageError(f"--on-bad-line is {SKIP} or {STOP}, not {on_bad_line!r}")


def stopped_by(source: str, first: BadLine, bad: Sized) -> InputError:
    """What to raise for bad lines where they stop a command."""
    return InputError(
        f"{source}: {first}{and_more(bad)}; "
        f"nothing was sent (--on-bad-line {SKIP} leaves bad lines out)"
    )


def skipped(source: str, line: BadLine) -> None:
    """Say on standard error that a line is left out."""
    if sys.stderr is not None:
        print(f"{source}: skipped {line}", file=sys.stderr)
