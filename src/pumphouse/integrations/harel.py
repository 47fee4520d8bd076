"""harel's transports over pumphouse: `HarelTransport` and `AsyncHarelTransport`.

Both have the shape of `harel.engine.transport.base`, and `create` takes what harel's own SQS
transports take, so one can stand in for the other. They add what those lack: priorities (with
`levels`), fewer requests, and an ack that fails when the lease is lost. harel's events are its
pydantic model `Event`, on the wire as harel itself writes it, so both kinds can share a queue.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from harel.engine.transport.base import Lease as HarelLease
from harel.spec.states import Event

from pumphouse.backend import Backend
from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.protocol.sigv4 import Keys
from pumphouse.sync.portal import Portal, Twin, shared
from pumphouse.transport import Lease, LeaseTransport, PriorityTransport

_log = logging.getLogger("pumphouse.transport")

Transport = LeaseTransport[Event] | PriorityTransport[Event]


@dataclass
class _HarelLease(HarelLease):  # type: ignore[misc]
    """harel's lease, with the one of pumphouse behind it."""

    behind: Lease[Event] | None = field(default=None, repr=False, compare=False)


class AsyncHarelTransport:
    """harel's `AsyncTransport`, over a `LeaseTransport` or a `PriorityTransport` of `Event`s."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @classmethod
    async def create(
        cls,
        endpoint_url: str | None = None,
        queue_name: str = "harel.fifo",
        region: str = "us-east-1",
        connect_retries: int = 30,
        retry_delay: float = 1.0,
        wait_seconds: float = 1,
        *,
        levels: int = 1,
        backend: Backend | None = None,
        **options: Any,
    ) -> AsyncHarelTransport:
        """A transport on a FIFO queue that is made sure to exist; `endpoint_url` None is AWS.

        With `levels` above 1 there is one queue for each level of priority (harel has five, 0 to
        4). Other options are those of `LeaseTransport.create`, with what it raises.
        """
        options |= {
            "endpoint_url": endpoint_url,
            "region": region,
            "connect_retries": connect_retries,
            "retry_delay_seconds": retry_delay,
            "wait_seconds": wait_seconds,
            "events": Event,
        }
        if endpoint_url is not None:  # as harel does: an endpoint of one's own takes any keys
            options.setdefault("credentials", Keys("test", "test"))
        if levels == 1:
            return cls(await LeaseTransport.create(queue_name, backend, **options))
        return cls(await PriorityTransport.create(queue_name, backend, levels=levels, **options))

    async def publish(self, group_id: str, event: Event, priority: int = 0) -> None:
        """Put an event at the end of a group. Raises `ValueError` for a priority without levels."""
        await self.transport.publish(group_id, event, priority)

    async def claim(
        self, worker_id: str, visibility: float, min_priority: int = 0
    ) -> HarelLease | None:
        """Lease the next message of a group with nothing in flight, or None.

        A message that is no event of harel is logged as an error, and left in flight until its
        lease ends: then its group tries again with it, as order asks. Raised, it would end harel's
        worker, and with it all other groups.
        """
        lease = await self.transport.claim(worker_id, visibility, min_priority)
        if lease is None:
            return None
        try:
            event = lease.event
        except UndecodableError:
            _log.exception("%r is no event of harel, and is left until its lease ends", lease)
            return None
        return _HarelLease(0, lease.group_id, event, token=lease.token, behind=lease)

    async def ack(self, lease: HarelLease) -> None:
        """Delete the message. Raises `LeaseLostError` when the lease has ended."""
        await self.transport.ack(_behind(lease))

    async def nack(self, lease: HarelLease, delay: float = 0.0) -> None:
        """Give the message back, or park it for `delay` seconds."""
        await self.transport.nack(_behind(lease), delay)

    async def extend(self, lease: HarelLease, visibility: float) -> None:
        """Let the lease end `visibility` seconds from now."""
        await self.transport.extend(_behind(lease), visibility)

    async def close(self) -> None:
        """As `LeaseTransport.close`."""
        await self.transport.close()


class HarelTransport(Twin):
    """harel's `Transport`: `AsyncHarelTransport` for threads, over pumphouse's portal."""

    def __init__(self, transport: AsyncHarelTransport, portal: Portal | None = None) -> None:
        super().__init__(transport.close, portal)
        self.transport = transport

    @classmethod
    def create(cls, *args: Any, portal: Portal | None = None, **options: Any) -> HarelTransport:
        """As `AsyncHarelTransport.create`."""
        portal = portal or shared()

        async def create() -> AsyncHarelTransport:
            return await AsyncHarelTransport.create(*args, **options)

        return cls(portal.call(create), portal)

    def publish(self, group_id: str, event: Event, priority: int = 0) -> None:
        """As `AsyncHarelTransport.publish`."""
        self._portal.call(self.transport.publish, group_id, event, priority)

    def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> HarelLease | None:
        """As `AsyncHarelTransport.claim`."""
        return self._portal.call(self.transport.claim, worker_id, visibility, min_priority)

    def ack(self, lease: HarelLease) -> None:
        """As `AsyncHarelTransport.ack`."""
        self._portal.call(self.transport.ack, lease)

    def nack(self, lease: HarelLease, delay: float = 0.0) -> None:
        """As `AsyncHarelTransport.nack`."""
        self._portal.call(self.transport.nack, lease, delay)

    def extend(self, lease: HarelLease, visibility: float) -> None:
        """As `AsyncHarelTransport.extend`."""
        self._portal.call(self.transport.extend, lease, visibility)


def _behind(lease: HarelLease) -> Lease[Event]:
    if not isinstance(lease, _HarelLease) or lease.behind is None:
        raise UsageError(f"{lease!r} was not claimed from this transport")
    return lease.behind
