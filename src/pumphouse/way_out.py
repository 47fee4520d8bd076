"""What a signal does to a process that has done its work and is about to end.

A library gives the handlers of signals back as they were (`signals.py`). In a process that is one
command's own that would leave a gap: a second SIGTERM, sent to hurry a drain that has just ended,
would kill the process, and whoever started it would take a stop in good order for a crash.
"""

from __future__ import annotations

import atexit
import signal
from types import FrameType
from typing import Any, Never

_own = False


def own_process() -> None:
    """Say that this process ends with the command that it runs. Before `give_back` nothing changes.

    To be called before anything registers with `atexit`, so that what is done here is done last.
    """
    global _own
    if not _own:
        _own = True
        atexit.register(_ignore)


def give_back(number: signal.Signals, handler: Any) -> None:
    """Set the handler of a signal as it was. One that would kill a process of our own ends it
    instead: with 128 and its number, and everything on the way unwound."""
    signal.signal(number, _end if _own and handler is signal.SIG_DFL else handler)


def _end(number: int, _: FrameType | None) -> Never:
    raise SystemExit(128 + number)


def _ignore() -> None:
    """The exit code stands; what is left is the interpreter's, which brings the handlers back that
    kill."""
    if signal.getsignal(signal.SIGTERM) is _end:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
