"""Spent heads on their way to the dead-letter queue, and what of their batch waits behind them.

From the decision to carry a delivery until it is there, or is known not to get there; that is
logged, counted and told to the owner. How it is sent is `dead_letters.py`'s, which deliveries are
carried and what becomes of them afterwards `exits.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pumphouse.backend import Backend
from pumphouse.backoff import one_try
from pumphouse.clock import Clock
from pumphouse.subscriber.dead_letters import DeadLetters
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.judging import Stopped
from pumphouse.subscriber.outcomes import Outcome, describe
from pumphouse.subscriber.reports import Reports
from pumphouse.subscriber.setup import Ready

Ran = tuple[Delivery, Outcome | Stopped]
"""One of a batch, and what came of its handler."""
Behind = Sequence[Ran]
"""Those that ran behind a head of theirs, in order."""


class Owner(Protocol):
    """Who is told what became of a delivery that was carried."""

    def on_carried(self, delivery: Delivery, behind: Behind) -> None:
        """It is in the dead-letter queue, and still in its own."""

    def on_not_carried(
        self, delivery: Delivery, behind: Behind, problem: str, *, ran: bool
    ) -> None:
        """It can't go there now; `ran` as in `Carrying.carry`."""


class Carrying:
    """The deliveries of one subscription that are being carried away."""

    def __init__(
        self,
        ready: Ready,
        backend: Backend,
        clock: Clock,
        reports: Reports,
        owner: Owner,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._target = ready.dead_letter_name
        self._reports = reports
        self._owner = owner
        self._tasks = tasks
        self._dead_letters = (
            DeadLetters(backend, ready.dead_letter_url, clock, ready.queue_arn or reports.name)
            if ready.dead_letter_url
            else None
        )

    @property
    def requests(self) -> int:
        return self._dead_letters.requests if self._dead_letters is not None else 0

    def carry(self, delivery: Delivery, reason: str, behind: Behind, *, ran: bool) -> None:
        """Carry it away, while those in `behind` wait; `ran` for one that just had an attempt."""
        self._tasks.create_task(self._carry(delivery, reason, behind, ran))

    async def _carry(self, delivery: Delivery, reason: str, behind: Behind, ran: bool) -> None:
        one_try.set(True)  # `dead_letters.py` tries again
        attempts = delivery.attempt if ran else delivery.attempt - 1
        problem = await self._send(delivery, reason, attempts)
        if not problem:
            delivery.carried = True
            self._reports.carried(delivery, self._target, attempts, reason)
        if not delivery.live:
            self._reports.lost_while_carried(delivery)
        if problem:
            self._owner.on_not_carried(delivery, behind, problem, ran=ran)
        else:
            self._owner.on_carried(delivery, behind)

    async def _send(self, delivery: Delivery, reason: str, attempts: int) -> str:
        """Send it; returns why it could not be, empty when it is there."""
        if self._dead_letters is None:
            return "there is no dead-letter queue"
        try:
            await self._dead_letters.send(delivery, reason, attempts)
        except Exception as error:
            return describe(error)
        return ""
