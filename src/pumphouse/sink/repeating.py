"""Whether an entry whose try failed is tried again, and what is said of it when it is not: rules.

An entry that failed is tried again

* when it was throttled or failed transiently, could not reach the service, or found no credentials:
  nothing was stored;
* when its outcome is unknown, if that can't double it (a FIFO queue, within the deduplication
  window), or the caller accepted that it may (`retry_unknown`).

Attempts and seconds are bounded by one `RetryPolicy` for each entry, from its first try. The bounds
are looked at twice, when a try is planned and when it begins: what is between the two (other
requests, a process that stands still) may take any time. The window is measured by the machine's
time of day as well, since a monotonic clock may stand still while the machine does.
"""

from __future__ import annotations

import random

from pumphouse.backoff import RetryPolicy
from pumphouse.errors import (
    ConfigError,
    MessageTooLargeError,
    NetworkError,
    NoCredentialsError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    RefusedError,
    ThrottledError,
    TransientError,
)
from pumphouse.sink.entry import Entry

DEDUPLICATION_SECONDS = 300.0
"""For how long a FIFO queue recognises a deduplication id ("Exactly-once processing" in the SQS
developer guide)."""
LEAVING_SECONDS = 60.0
"""What a request may take to leave once it has begun: the total time-out of `connect()`, unless
that was set higher."""


class Repeating:
    """The rules of one sink. Times are (monotonic, time of day) in seconds."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        fifo: bool,
        retry_unknown: bool,
        rng: random.Random,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        self.policy = policy
        self._remembered = DEDUPLICATION_SECONDS - max(leaving_seconds, LEAVING_SECONDS)
        self._unknown = fifo or retry_unknown
        self._window = fifo and not retry_unknown
        self._rng = rng

    def delay(
        self,
        entry: Entry,
        error: PumphouseError,
        now: tuple[float, float],
        draws: dict[int, float],
    ) -> float | None:
        """Seconds until the entry's next try, or None when there is none. `draws` are those of its
        request, shared, so that what failed together goes together again."""
        if isinstance(error, OutcomeUnknownError):
            if not self._unknown:
                return None
        elif not isinstance(error, _NOT_STORED):
            return None
        attempt = entry.tries
        if (wait := draws.get(attempt)) is None:
            wait = draws[attempt] = self.draw(attempt)
        if isinstance(error, ThrottledError):
            wait = max(wait, error.retry_after_seconds)
        return wait if self.may_begin(entry, now, wait) else None

    def may_begin(self, entry: Entry, now: tuple[float, float], wait: float = 0.0) -> bool:
        """Whether an entry that was tried may be tried again in `wait` seconds. One that was
        refused with its whole request may always go once by itself: nobody has looked at it."""
        monotonic, wall = now
        looked_at = not (entry.alone and isinstance(entry.error, RefusedError))
        if looked_at and not self.policy.allows(entry.tries, monotonic - entry.first_try + wait):
            return False
        if entry.first_unknown is None or not self._window:
            return True
        since, wall_since = entry.first_unknown
        passed = max(monotonic - since, wall - wall_since) + wait
        return passed <= self._remembered  # then the id may be forgotten

    def draw(self, attempt: int) -> float:
        """A delay after an attempt, from 1."""
        return self.policy.delay(attempt, self._rng)


def truth(entry: Entry, error: PumphouseError) -> PumphouseError:
    """The final word on an entry: unknown, when any of its tries was and none was confirmed."""
    if entry.first_unknown is None or isinstance(error, OutcomeUnknownError):
        return error
    unknown = OutcomeUnknownError(f"one try was not answered, and the last one brought: {error}")
    unknown.__cause__ = error
    return unknown


def kind_of(error: PumphouseError) -> str:
    """The word under which a failure is counted and written down."""
    for kind, name in _KINDS:
        if isinstance(error, kind):
            return name
    return "failed"


_NOT_STORED = (ThrottledError, TransientError, NetworkError, NoCredentialsError)
_KINDS: tuple[tuple[type[PumphouseError], str], ...] = (
    (OutcomeUnknownError, "unknown"),
    (ConfigError, "config_errors"),
    (MessageTooLargeError, "too_large"),
    (RefusedError, "refused"),
    (ThrottledError, "throttled"),
    (TransientError, "transient"),
    (NetworkError, "unreachable"),
    (NotSentError, "not_sent"),
)
