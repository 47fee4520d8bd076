"""Leases for the length of a block, and leases as they come: over any transport that can claim.

`LeaseTransport` and `PriorityTransport` both offer these; here is what they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, Protocol, TypeVar

from pumphouse.clock import Clock, Timer
from pumphouse.errors import ClosedError, PumphouseError
from pumphouse.transport.lease import Duration, Lease, whole_seconds
from pumphouse.transport.tasks import Tasks
from pumphouse.transport.waiting import MAX_WAIT_SECONDS

E = TypeVar("E")

_log = logging.getLogger("pumphouse.transport")


class Claiming(Protocol[E]):
    """What a transport does, as far as it is needed here."""

    async def claim(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
    ) -> Lease[E] | None: ...

    async def ack(self, lease: Lease[E]) -> None: ...

    async def nack(self, lease: Lease[E], delay: Duration = 0) -> None: ...

    async def extend(self, lease: Lease[E], visibility: Duration) -> None: ...

    @property
    def closed(self) -> bool: ...


class Keeper(Generic[E]):
    """Extends a lease to its full time whenever half of it is gone: `async with Keeper(…)`.

    It stops when the block ends, when the lease is settled or lost, and when SQS refuses to extend
    it further (12 hours after the receive); the lease then ends, and says so itself.
    """

    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        transport: Claiming[E],
        lease: Lease[E],
        visibility: Duration,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._transport = transport
        self._lease = lease
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
            await self._transport.extend(self._lease, self._visibility)
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


async def leases(
    transport: Claiming[E],
    worker_id: str,
    visibility: Duration,
    min_priority: int,
    wait_seconds: Duration,
) -> AsyncIterator[Lease[E]]:
    """Claim until the transport is closed."""
    while not transport.closed:
        lease = await transport.claim(
            worker_id, visibility, min_priority, wait_seconds=wait_seconds
        )
        if lease is not None:
            yield lease


@asynccontextmanager
async def claimed(
    transport: Claiming[E],
    worker_id: str,
    visibility: Duration,
    min_priority: int,
    wait_seconds: Duration | None,
    nack_delay: Duration,
    clock: Clock,
    tasks: Tasks,
) -> AsyncIterator[Lease[E]]:
    """Claim, keep, and settle by how the block ends."""
    whole_seconds(nack_delay, "nack_delay")
    wait = MAX_WAIT_SECONDS if wait_seconds is None else wait_seconds
    while True:
        lease = await transport.claim(worker_id, visibility, min_priority, wait_seconds=wait)
        if lease is not None:
            break
        if transport.closed:
            raise ClosedError("the transport was closed while a block waited for a lease")
        if wait_seconds is not None:
            raise TimeoutError(f"nothing to claim within {wait_seconds} seconds")
    try:
        async with Keeper(clock, tasks, transport, lease, visibility):
            yield lease
    except BaseException:
        if not lease.over:
            with suppress(PumphouseError):  # the block's own error is the one to hear of
                await asyncio.shield(transport.nack(lease, nack_delay))
        raise
    if not lease.settled:
        await transport.ack(lease)
