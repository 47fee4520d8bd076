"""What workers do with leases, over any transport that can claim, ack, nack and extend.

`Holding` is what `LeaseTransport` and `PriorityTransport` have in common: the next lease, leases as
they come, and a lease for the length of a block.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from pumphouse.backoff import full_jitter
from pumphouse.clock import Clock, Timer
from pumphouse.errors import ClosedError, PumphouseError
from pumphouse.transport.lease import Duration, Lease, whole_seconds
from pumphouse.transport.settling import PASSING
from pumphouse.transport.tasks import Tasks
from pumphouse.transport.waiting import MAX_WAIT_SECONDS

E = TypeVar("E")

_log = logging.getLogger("pumphouse.transport")


class Holding(ABC, Generic[E]):
    """See the module."""

    clock: Clock

    @abstractmethod
    async def claim(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
    ) -> Lease[E] | None: ...

    @abstractmethod
    async def ack(self, lease: Lease[E]) -> None: ...

    @abstractmethod
    async def nack(self, lease: Lease[E], delay: Duration = 0) -> None: ...

    @abstractmethod
    async def extend(self, lease: Lease[E], visibility: Duration) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @property
    @abstractmethod
    def stopped(self) -> bool: ...

    @property
    @abstractmethod
    def _background(self) -> Tasks:
        """Where what goes on beside a block runs, until `close`."""

    async def next_lease(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration = MAX_WAIT_SECONDS,
    ) -> Lease[E] | None:
        """Claim for as long as it takes; None when the transport is stopped or closed.

        Failures that may pass are logged and waited out, with backoff; others are raised, as by
        `claim`. `wait_seconds` is how long one receive waits.
        """
        failures = 0
        while not self.stopped:
            try:
                lease = await self.claim(
                    worker_id, visibility, min_priority, wait_seconds=wait_seconds
                )
            except PASSING as error:
                failures += 1
                pause = max(full_jitter(failures), getattr(error, "retry_after_seconds", 0.0))
                _log.warning("%r claims again in %.1f s: %s", self, pause, error)
                await self.clock.sleep(pause)
            else:
                if lease is not None:
                    return lease
                failures = 0
        return None

    async def leases(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration = MAX_WAIT_SECONDS,
    ) -> AsyncGenerator[Lease[E], None]:
        """Leases as they come, until the transport is stopped or closed: `async for lease in …`.

        Each lease is the body's to ack, nack or extend; it may be handed to a task and settled
        there. `wait_seconds` is how long one receive waits, and so how long `close()` may take.
        Failures that may pass are waited out; others end the loop, as `next_lease` says.
        """
        while lease := await self.next_lease(
            worker_id, visibility, min_priority, wait_seconds=wait_seconds
        ):
            yield lease

    def claimed(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
        nack_delay: Duration = 0,
    ) -> AbstractAsyncContextManager[Lease[E]]:
        """A lease for the length of a block: extended while it is held, acked when the block ends,
        nacked with `nack_delay` when it raises or is cancelled.

        Waits for a lease as long as it takes, or raises `TimeoutError` after `wait_seconds`, and
        `ClosedError` when the transport is stopped meanwhile. A block that settles its lease itself
        is left alone. When the lease is lost, `lease.lost` says so during the block, and the ack at
        its end raises `LeaseLostError`.
        """
        whole_seconds(nack_delay, "nack_delay")
        return self._claimed(worker_id, visibility, min_priority, wait_seconds, nack_delay)

    @asynccontextmanager
    async def _claimed(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int,
        wait_seconds: Duration | None,
        nack_delay: Duration,
    ) -> AsyncIterator[Lease[E]]:
        if wait_seconds is None:
            lease = await self.next_lease(worker_id, visibility, min_priority)
        else:
            lease = await self.claim(worker_id, visibility, min_priority, wait_seconds=wait_seconds)
        if lease is None:
            if self.stopped:
                raise ClosedError("the transport was stopped while a block waited for a lease")
            raise TimeoutError(f"nothing to claim within {wait_seconds} seconds")
        async with self.keep(lease, visibility, nack_delay=nack_delay):
            yield lease

    @asynccontextmanager
    async def keep(
        self, lease: Lease[E], visibility: Duration, *, nack_delay: Duration = 0
    ) -> AsyncIterator[Lease[E]]:
        """`claimed` for a lease that is there: extended to `visibility` whenever half of that is
        gone, acked when the block ends, nacked with `nack_delay` when it raises or is cancelled."""
        whole_seconds(nack_delay, "nack_delay")
        try:
            async with _Keeper(self, lease, visibility):
                yield lease
        except BaseException:
            if lease.in_hand:
                with suppress(PumphouseError):  # the block's own error is the one to hear of
                    await self._background.finish(self.nack(lease, nack_delay))
            raise
        if lease.in_hand or lease.lost:
            await self.ack(lease)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _Keeper(Generic[E]):
    """Extends a lease to its full time whenever half of it is gone: `async with _Keeper(…)`.

    It stops when the block ends, when the lease is settled or lost, and when SQS refuses to extend
    it further (12 hours after the receive); the lease then ends, and says so itself.
    """

    def __init__(self, transport: Holding[E], lease: Lease[E], visibility: Duration) -> None:
        self._transport = transport
        self._tasks = transport._background
        self._lease = lease
        self._visibility = visibility
        self._pause = whole_seconds(visibility, "visibility") / 2
        self._timer: Timer | None = None

    def _arm(self) -> None:
        self._timer = self._transport.clock.call_later(self._pause, self._due)

    def _due(self) -> None:
        if self._lease.in_hand:
            self._tasks.spawn(self._keep())

    async def _keep(self) -> None:
        try:
            await self._transport.extend(self._lease, self._visibility)
        except PumphouseError as error:
            if self._lease.in_hand or self._lease.lost:
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
