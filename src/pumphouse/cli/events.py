"""What a command does with the bad lines of its input: it stops before anything is sent, or skips
them and says so. Reading the lines is `jsonl.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pumphouse.errors import UsageError
from pumphouse.jsonl import Events, InputError, and_more

SKIP, STOP = "skip", "stop"


def read_events(read: Callable[[], Events], on_bad_line: str) -> Events:
    """The events that `read` gives, after the bad lines among them were told on standard error.

    Raises `UsageError` for an `on_bad_line` that is neither skip nor stop, `InputError` for a bad
    line when it is stop, and what `read` raises.
    """
    if on_bad_line not in (SKIP, STOP):
        raise UsageError(f"--on-bad-line is {SKIP} or {STOP}, not {on_bad_line!r}")
    events = read()
    if events.bad_lines and on_bad_line == STOP:
        raise InputError(
            f"{events.source}: {events.bad_lines[0]}{and_more(events.bad_lines)}; "
            f"nothing was sent (--on-bad-line {SKIP} leaves bad lines out)"
        )
    if sys.stderr is not None:
        for line in events.bad_lines:
            print(f"{events.source}: skipped {line}", file=sys.stderr)
    return events
