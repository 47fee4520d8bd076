"""SIGTERM and SIGINT for as long as a block runs: each of them asks to stop.

What a stop is, and what a second request for it does, is `running.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger("pumphouse")


class Signals:
    """Calls `stop` for each signal; in the main thread only, elsewhere it does nothing."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self.received: list[signal.Signals] = []
        self._stop = stop
        self._before: dict[signal.Signals, object] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def exit_code(self) -> int:
        """0 for a stop by one signal or none; 128 and the number of the second."""
        return 128 + self.received[1] if len(self.received) > 1 else 0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError:  # not the main thread
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        self._before.clear()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ask, signal.Signals(number))

    def _ask(self, number: signal.Signals) -> None:
        self.received.append(number)
        _log.warning(
            "%s: %s",
            number.name,
            "draining" if len(self.received) == 1 else "cancelling what still runs",
        )
        self._stop()
