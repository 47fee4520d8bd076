"""Notices while it happens that the event loop is blocked, and says by what.

The extender notices afterwards that its timer came late; but a loop that is blocked for ever tells
nobody. This thread watches a heartbeat of the loop and logs where the loop's thread stands.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

_log = logging.getLogger("pumphouse")


class Watchdog:
    """Watches the loop it is started on; `limit_seconds` without a heartbeat are reported, once
    for each stall."""

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.reports = 0
        self._beat = time.monotonic()
        self._reported = 0.0
        self._ended = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._watched = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._watched = threading.get_ident()
        self._heartbeat()
        self._thread = threading.Thread(target=self._watch, name="pumphouse-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(1.0)  # it ends at once, or when it has said what it is about to say

    def _heartbeat(self) -> None:
        self._beat = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(self.limit_seconds / 4, self._heartbeat)

    def _watch(self) -> None:
        while not self._ended.wait(self.limit_seconds / 4):
            silent = time.monotonic() - self._beat
            if silent < self.limit_seconds or self._reported == self._beat:
                continue
            self._reported = self._beat
            self.reports += 1
            frame = sys._current_frames().get(self._watched)
            where = "".join(traceback.format_stack(frame)[-6:]) if frame else "  (unknown)\n"
            _log.error(
                "the event loop has been blocked for %.1f s, and leases can't be extended; it is "
                "at:\n%s",
                silent,
                where.rstrip(),
            )
