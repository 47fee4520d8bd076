"""SIGTERM and SIGINT, or SIGHUP too, for as long as a block runs: each of them asks to stop.

What a stop is, and what a second request for it does, is `running.py`'s. The same signal twice at
once is one: `timeout` and some init processes signal a process and then its whole group.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from pumphouse.way_out import give_back

AT_ONCE_SECONDS = 0.1
"""How soon after a signal the same one is no second request."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
_log = logging.getLogger("pumphouse")


_active: list[Signals] = []  # every app that is served in this process
_before: dict[signal.Signals, Any] = {}  # the handlers that were there


class Signals:
    """Calls `stop` for each signal; does nothing where no main thread has entered one.

    Several may be entered at once, in any order: each signal is for all of them. With `hangup` a
    terminal that goes away is one more signal, unless it is ignored as `nohup` has it.
    """

    def __init__(self, stop: Callable[[], object], *, hangup: bool = False) -> None:
        self._wanted = (*_SIGNALS, _HANGUP) if hangup and _HANGUP and _minded() else _SIGNALS
        self.received: list[signal.Signals] = []
        self._stop = stop
        self._came: dict[signal.Signals, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def exit_code(self) -> int:
        """0 for a stop by one signal or none; 128 and the number of the second."""
        return 128 + self.received[1] if len(self.received) > 1 else 0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        _active.append(self)
        with suppress(ValueError):  # not the main thread
            for number in self._wanted:
                if number not in _before:
                    _before[number] = signal.signal(number, _handle)
        return self

    def __exit__(self, *_: object) -> None:
        _active.remove(self)
        if not _active:
            with suppress(ValueError):
                while _before:
                    number = next(iter(_before))
                    give_back(number, _before[number])
                    del _before[number]

    def receive(self, number: signal.Signals) -> None:
        """A signal has come, in whatever the main thread was doing."""
        if number not in self._wanted:
            return
        before = self._came.get(number)
        now = self._came[number] = time.monotonic()
        if before is not None and now - before < AT_ONCE_SECONDS:
            return
        if self._loop is not None:
            with suppress(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(self._ask, number)

    def _ask(self, number: signal.Signals) -> None:
        self.received.append(number)
        _log.warning(
            "%s: %s",
            number.name,
            "draining" if len(self.received) == 1 else "cancelling what still runs",
        )
        self._stop()


def _minded() -> bool:
    """Whether SIGHUP does anything: `nohup` has it ignored."""
    return _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN


def _handle(number: int, _: FrameType | None) -> None:
    for each in tuple(_active):
        each.receive(signal.Signals(number))
