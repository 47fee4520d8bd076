"""Keeps one lease alive while a block of code holds it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pumphouse.clock import Clock, Timer
from pumphouse.errors import PumphouseError
from pumphouse.transport.lease import Duration, Lease, whole_seconds
from pumphouse.transport.tasks import Tasks

_log = logging.getLogger("pumphouse.transport")


class Keeper:
    """Extends a lease to its full time whenever half of it is gone: `async with Keeper(…)`.

    It stops when the block ends, when the lease is settled or lost, and when SQS refuses to extend
    it further (12 hours after the receive); the lease then ends, and says so itself.
    """

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        lease: Lease[Any],
        extend: Callable[[Lease[Any], Duration], Awaitable[None]],
        visibility: Duration,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._lease = lease
        self._extend = extend
        self._visibility = visibility
        self._pause = whole_seconds(visibility, "visibility") / 2
        self._timer: Timer | None = None

    def _arm(self) -> None:
        self._timer = self._clock.call_later(self._pause, self._due)

    def _due(self) -> None:
        if not self._lease.lost and not self._lease.settled:
            self._tasks.spawn(self._keep())

    async def _keep(self) -> None:
        try:
            await self._extend(self._lease, self._visibility)
        except PumphouseError as error:
            if not self._lease.settled:
                _log.warning("%r is not extended any more: %s", self._lease, error)
        else:
            if self._timer is not None:
                self._arm()

    async def __aenter__(self) -> None:
        self._arm()

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
