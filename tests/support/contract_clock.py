"""The clock of harel's contract tests, as pumphouse's account and transports take one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pumphouse.clock import Timer


class ContractClock:
    """Tells the time of a function, which a test moves; timers and waits are the event loop's."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> float:
        return 1_700_000_000.0 + self._now()

    def monotonic(self) -> float:
        return self._now()

    def call_later(self, delay_seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, delay_seconds), callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
