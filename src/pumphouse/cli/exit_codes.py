"""The exit codes of the command, for people who write supervisors; they are those of sysexits.h.

====  ============================================================================================
0     done; `run`: drained, after a signal or because there was nothing left to wait for
1     it failed in a way that may or may not come again: an exception in the service, a full disk
2     the command line, or the app it names, can't be used
69    every subscription has ended, as its queue was deleted
70    a worker crashed again and again
75    AWS or the network did not answer, or not now: the same may succeed later
78    a queue, the credentials, a permission or a port is not right, and won't be by trying again
128+n  a signal n ended it early: the second one of a run; 137 for a worker that had to be killed
====  ============================================================================================
"""

from __future__ import annotations

from pumphouse.errors import (
    ConfigError,
    NetworkError,
    OutcomeUnknownError,
    RefusedError,
    ThrottledError,
    TransientError,
    UsageError,
)

OK, FAILED, WRONG_USAGE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
ENDED, CRASH_LOOP, TRY_LATER, CONFIG = 69, 70, 75, 78

HEALS_BY_NO_RESTART = frozenset({WRONG_USAGE, CONFIG})


def code_of(error: BaseException) -> int:
    """The exit code of `run` for what ended it."""
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, ConfigError | RefusedError):
        return CONFIG
    if isinstance(error, ThrottledError | TransientError | NetworkError | OutcomeUnknownError):
        return TRY_LATER
    return FAILED


def of_process(returncode: int) -> int:
    """A process's return code as a shell tells it: 128 and the signal that killed it."""
    return 128 - returncode if returncode < 0 else returncode
