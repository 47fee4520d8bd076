"""Requests of one kind that fail one after another: how many, why, and when that is told.

One that fails is nothing to speak of, as it is sent again. Those that fail for some seconds, or are
refused for good, are told once, by a warning and by the subscription's health, until one succeeds,
or until nothing has failed for some time: what failed may have become needless meanwhile.
"""

from __future__ import annotations

import logging

from pumphouse.clock import Clock

TOLD_AFTER_SECONDS = 5.0
OVER_AFTER_SECONDS = 120.0
_log = logging.getLogger("pumphouse.subscriber")


class Streak:
    """`what` names the requests: "deletes"."""

    def __init__(self, queue: str, what: str, clock: Clock) -> None:
        self.failures = 0
        self._problem = ""
        self._queue = queue
        self._what = what
        self._clock = clock
        self._since = 0.0
        self._last = 0.0

    @property
    def problem(self) -> str:
        """What is wrong, if that was told; empty otherwise."""
        return "" if self._is_over(self._clock.monotonic()) else self._problem

    def _is_over(self, now: float) -> bool:
        return now > self._last + OVER_AFTER_SECONDS

    def failed(self, reason: str, *, passing: bool) -> None:
        """A request failed as a whole; `passing` if the same one may succeed later."""
        now = self._clock.monotonic()
        if self._is_over(now):
            self.failures, self._problem = 0, ""
        if not self.failures:
            self._since = now
        self._last = now
        self.failures += 1
        if self._problem or (passing and now - self._since < TOLD_AFTER_SECONDS):
            return
        self._problem = f"{self._what} fail: {reason}"
        _log.warning("%s: %s", self._queue, self._problem)

    def succeeded(self) -> None:
        """A request, or a part of one, was confirmed."""
        if self._problem:
            _log.info("%s: %s go through again", self._queue, self._what)
        self.failures = 0
        self._problem = ""
