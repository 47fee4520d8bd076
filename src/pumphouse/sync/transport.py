"""`LeaseTransport` and `PriorityTransport` for threads: the same calls, without `await`.

Each call runs the async object in the portal's loop (`portal.py`), so claims of many threads share
receives, and their acks requests. A lease is extended there too, also while its thread computes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

from pumphouse import transport as aio
from pumphouse.model import Receipt
from pumphouse.sync.portal import Portal, Twin, shared
from pumphouse.transport.lease import Duration, Lease
from pumphouse.transport.waiting import MAX_WAIT_SECONDS

E = TypeVar("E")


class _Twin(Twin, Generic[E]):
    """What both twins do: every call is the async object's, and means what it says there."""

    def __init__(
        self,
        transport: aio.LeaseTransport[E] | aio.PriorityTransport[E],
        portal: Portal | None = None,
    ) -> None:
        super().__init__(transport.close, portal)
        self.transport = transport

    def publish(
        self, group_id: str, event: E, priority: int = 0, *, deduplication_id: str | None = None
    ) -> Receipt:
        """As the async `publish`."""
        return self._portal.call(
            self.transport.publish, group_id, event, priority, deduplication_id=deduplication_id
        )

    def claim(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
    ) -> Lease[E] | None:
        """As the async `claim`. Ctrl-C ends it, and takes no message."""
        return self._portal.call(
            self.transport.claim, worker_id, visibility, min_priority, wait_seconds=wait_seconds
        )

    def leases(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration = MAX_WAIT_SECONDS,
    ) -> Iterator[Lease[E]]:
        """As the async `leases`: `for lease in …`."""
        while lease := self._portal.call(
            self.transport.next_lease,
            worker_id,
            visibility,
            min_priority,
            wait_seconds=wait_seconds,
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
    ) -> AbstractContextManager[Lease[E]]:
        """As the async `claimed`: `with …`."""
        return self._entered(
            lambda: self.transport.claimed(
                worker_id,
                visibility,
                min_priority,
                wait_seconds=wait_seconds,
                nack_delay=nack_delay,
            )
        )

    def keep(
        self, lease: Lease[E], visibility: Duration, *, nack_delay: Duration = 0
    ) -> AbstractContextManager[Lease[E]]:
        """As the async `keep`: `with …`."""
        return self._entered(lambda: self.transport.keep(lease, visibility, nack_delay=nack_delay))

    @contextmanager
    def _entered(self, make: Callable[[], Any]) -> Iterator[Lease[E]]:
        scope = make()
        lease = self._portal.call(scope.__aenter__)
        try:
            yield lease
        except BaseException as error:
            if not self._portal.call(scope.__aexit__, type(error), error, error.__traceback__):
                raise
        else:
            self._portal.call(scope.__aexit__, None, None, None)

    def ack(self, lease: Lease[E]) -> None:
        """As the async `ack`."""
        self._portal.call(self.transport.ack, lease)

    def nack(self, lease: Lease[E], delay: Duration = 0) -> None:
        """As the async `nack`."""
        self._portal.call(self.transport.nack, lease, delay)

    def extend(self, lease: Lease[E], visibility: Duration) -> None:
        """As the async `extend`."""
        self._portal.call(self.transport.extend, lease, visibility)

    def stop(self) -> None:
        """As the async `stop`. A signal handler may call it."""

        async def stop() -> None:
            self.transport.stop()

        self._portal.call(stop)

    def __repr__(self) -> str:
        return f"<sync {self.transport!r}>"


def _made(
    portal: Portal, create: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any
) -> Any:
    async def make() -> Any:
        return await create(*args, **options)

    return portal.call(make)


class LeaseTransport(_Twin[E]):
    """`pumphouse.transport.LeaseTransport` for threads."""

    @classmethod
    def create(cls, *args: Any, portal: Portal | None = None, **options: Any) -> LeaseTransport[E]:
        """As the async `create`. A backend that is passed in must live in the portal's loop."""
        portal = portal or shared()
        return cls(_made(portal, aio.LeaseTransport.create, *args, **options), portal)


class PriorityTransport(_Twin[E]):
    """`pumphouse.transport.PriorityTransport` for threads."""

    @classmethod
    def create(
        cls, *args: Any, portal: Portal | None = None, **options: Any
    ) -> PriorityTransport[E]:
        """As the async `create`. A backend that is passed in must live in the portal's loop."""
        portal = portal or shared()
        return cls(_made(portal, aio.PriorityTransport.create, *args, **options), portal)
