"""Requests of one kind that fail one after another: how many, why, and when that is told.

One that fails is nothing to speak of, as it is sent again. Those that fail for some seconds, or are
refused for good, are told once, by a warning and by the subscription's health, until one succeeds.
"""

from __future__ import annotations

import logging

from pumphouse.clock import Clock

TOLD_AFTER_SECONDS = 5.0
_log = logging.getLogger("pumphouse.subscriber")


class Streak:
    """`problem` is empty, or what is wrong; `what` names the requests: "deletes"."""

    def __init__(self, queue: str, what: str, clock: Clock) -> None:
        self.failures = 0
        self.problem = ""
        self._queue = queue
        self._what = what
        self._clock = clock
        self._since = 0.0

    def failed(self, reason: str, *, passing: bool) -> None:
        """A request failed as a whole; `passing` if the same one may succeed later."""
        now = self._clock.monotonic()
        if not self.failures:
            self._since = now
        self.failures += 1
        if self.problem or (passing and now - self._since < TOLD_AFTER_SECONDS):
            return
        self.problem = f"{self._what} fail: {reason}"
        _log.warning("%s: %s", self._queue, self.problem)

    def succeeded(self) -> None:
        """A request, or a part of one, was confirmed."""
        if self.problem:
            _log.info("%s: %s go through again", self._queue, self._what)
        self.failures = 0
        self.problem = ""
