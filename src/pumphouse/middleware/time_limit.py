"""A limit on what is inside of it: the handler, its replies, and further middleware."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from pumphouse.clock import Clock, RealClock, timeout
from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.subscriber.chain import CallNext, CallNextBatch, Surroundings
from pumphouse.subscriber.outcomes import Outcome

T = TypeVar("T")


class TimeLimit:
    """Cancels what takes longer than `seconds` (or a `timedelta`), which is a failed attempt: the
    middleware outside of it sees a `TimeoutError`.

    A plain function runs in a thread, and a thread can't be cancelled: its message waits, with its
    lease kept, until it ends. What it returns then counts, and an error is the time-out's.
    The time is that of the app's clock. Raises `UsageError` for what is no time above 0.
    """

    def __init__(self, seconds: float | timedelta) -> None:
        limit = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
            raise UsageError(f"TimeLimit takes seconds (more than 0), not {seconds!r}")
        self.seconds = float(limit)
        self._clock: Clock = RealClock()

    def bind(self, surroundings: Surroundings) -> TimeLimit:
        """The same, on the app's clock."""
        bound = copy.copy(self)
        bound._clock = surroundings.clock
        return bound

    async def receive(self, message: Message, call_next: CallNext) -> Outcome:
        """Around one message."""
        return await self._limited(call_next(message))

    async def receive_batch(
        self, messages: list[Message], call_next: CallNextBatch
    ) -> list[Outcome]:
        """Around one batch, as a whole."""
        return await self._limited(call_next(messages))

    async def _limited(self, call: Awaitable[T]) -> T:
        scope: asyncio.Timeout | None = None
        try:
            async with timeout(self._clock, self.seconds) as scope:
                return await call
        except TimeoutError as error:
            if scope is not None and scope.expired():
                raise TimeoutError(f"it took longer than {self.seconds:g} s") from error
            raise

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds:g})"
