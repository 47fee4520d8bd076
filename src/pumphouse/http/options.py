"""The options of the wire client, checked when it is made: a bad one is named."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from pumphouse.backoff import RetryPolicy
from pumphouse.errors import UsageError

RETRY = RetryPolicy(base_seconds=0.1, cap_seconds=5.0, max_attempts=4, budget_seconds=None)
"""Four tries within the total time-out."""


@dataclass(frozen=True)
class Options:
    """Bounds of time, number and size; see `HttpBackend` for what each means."""

    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 10.0
    total_timeout_seconds: float = 60.0
    idle_timeout_seconds: float = 20.0
    max_connections: int = 64
    max_poll_connections: int = 256
    max_answer_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_seconds"):
                good = (
                    isinstance(value, (int, float))
                    and not isinstance(value, bool)
                    and math.isfinite(value)
                    and value > 0
                )
                wanted = "a number of seconds above 0"
            else:
                good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
                wanted = "a whole number of at least 1"
            if not good:
                raise UsageError(f"{field.name} is {value!r}; it has to be {wanted}")
        if self.read_timeout_seconds > self.total_timeout_seconds:
            raise UsageError(
                f"read_timeout_seconds ({self.read_timeout_seconds:g}) is more than "
                f"total_timeout_seconds ({self.total_timeout_seconds:g}) and so without effect"
            )
