"""How long to wait before trying again: exponential growth, full jitter, and a cap."""

from __future__ import annotations

import random
from contextvars import ContextVar
from dataclasses import dataclass

from pumphouse.errors import UsageError

_shared = random.Random()


def full_jitter(
    attempt: int,
    *,
    base_seconds: float = 0.1,
    cap_seconds: float = 20.0,
    rng: random.Random | None = None,
) -> float:
    """A delay in seconds, drawn evenly between 0 and `base * 2**(attempt-1)`, at most the cap.

    `attempt` is the number of the attempt that failed, from 1.
    """
    ceiling = min(cap_seconds, base_seconds * 2.0 ** min(max(attempt, 1) - 1, 62))
    return (rng or _shared).uniform(0.0, ceiling)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long in all, something that failed is tried again.

    The delay after attempt n is drawn evenly between 0 and `base_seconds * 2**(n-1)`, at most
    `cap_seconds` (full jitter). It ends after `max_attempts` tries, the first one included, and
    never waits past `budget_seconds` after the first try began; None for no such limit. A service
    that names a delay of its own is waited for at least that long.
    """

    base_seconds: float = 0.1
    cap_seconds: float = 20.0
    max_attempts: int | None = 8
    budget_seconds: float | None = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.base_seconds <= self.cap_seconds:
            raise UsageError(
                "a retry policy needs 0 <= base_seconds <= cap_seconds, "
                f"not {self.base_seconds} and {self.cap_seconds}"
            )
        if self.max_attempts is not None and self.max_attempts < 1:
            raise UsageError(f"max_attempts is {self.max_attempts}; it is at least 1, or None")
        if self.budget_seconds is not None and not self.budget_seconds >= 0:
            raise UsageError(f"budget_seconds is {self.budget_seconds}; it is at least 0, or None")

    def delay(self, attempt: int, rng: random.Random | None = None) -> float:
        """Seconds to wait after attempt number `attempt` (from 1) has failed."""
        return full_jitter(
            attempt, base_seconds=self.base_seconds, cap_seconds=self.cap_seconds, rng=rng
        )

    def next_delay(
        self,
        attempt: int,
        elapsed_seconds: float,
        *,
        at_least_seconds: float = 0.0,
        rng: random.Random | None = None,
    ) -> float | None:
        """Seconds to wait before the attempt after `attempt`, or None when it was the last one.

        `elapsed_seconds` is the time since the first try began; `at_least_seconds` what the
        service asked for.
        """
        wait = max(at_least_seconds, self.delay(attempt, rng))
        return wait if self.allows(attempt, elapsed_seconds + wait) else None

    def allows(self, attempt: int, until_seconds: float) -> bool:
        """Whether attempt number `attempt` may be followed by another that begins
        `until_seconds` after the first one began."""
        return (self.max_attempts is None or attempt < self.max_attempts) and (
            self.budget_seconds is None or until_seconds <= self.budget_seconds
        )


NO_RETRIES = RetryPolicy(max_attempts=1)
"""One try, and what it brings."""

one_try: ContextVar[bool] = ContextVar("pumphouse.one_try", default=False)
"""Set by whoever counts tries: backends called from this context then make one try of each call."""
