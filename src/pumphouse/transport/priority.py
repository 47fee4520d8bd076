"""`PriorityTransport`: levels of priority over SQS, with one FIFO queue for each level.

A group belongs to one level at a time: the priority of its first publish counts, and later ones are
ignored for as long as the group has messages. That keeps its order and its one in flight, which SQS
gives within a queue and not across queues. `Levels` remembers which level that is; what each level
does is for `LeaseTransport` to say.

`LocalLevels` knows what this process publishes and claims. With it the rule is exact for groups
that are always published with one priority, and for groups whose publishers share a process. SQS
has no place where processes could agree on more; where several of them publish to one group with
different priorities at once, give the transport `Levels` over a store that they share.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from pumphouse.addressing import check_queue
from pumphouse.backend import Backend
from pumphouse.clock import Clock
from pumphouse.errors import ClosedError, ConfigError, PumphouseError, RefusedError, UsageError
from pumphouse.model import Receipt
from pumphouse.protocol.names import FIFO_SUFFIX
from pumphouse.transport.holding import Holding
from pumphouse.transport.lease import Duration, Lease, whole_seconds
from pumphouse.transport.lease_transport import LeaseTransport
from pumphouse.transport.opening import fifo_name
from pumphouse.transport.tasks import Tasks
from pumphouse.transport.waiting import MAX_WAIT_SECONDS

E = TypeVar("E")

CONFLICT_DELAY_SECONDS = 1

_log = logging.getLogger("pumphouse.transport")


class Levels(Protocol):
    """Which level a group is on, for as long as it has messages; `key` names a message.

    Each method must be atomic where processes share a store, and may be repeated.
    """

    async def enter(self, group_id: str, level: int, key: str) -> int:
        """A message is about to be published, or was found on `level`: remember it, and return the
        level of its group, which is `level` if nothing of the group was known."""
        ...

    async def leave(self, group_id: str, key: str) -> None:
        """A message is gone, or was never stored; with the last one, the group's level is."""


class LocalLevels:
    """`Levels` in this process's memory, for the `max_messages` messages that came last.

    A message that was published here and acked elsewhere keeps its group on its level until it is
    forgotten. That delays a change of priority, and harms no order.
    """

    def __init__(self, max_messages: int = 100_000) -> None:
        self._max_messages = max_messages
        self._messages = 0
        self._groups: OrderedDict[str, tuple[int, OrderedDict[str, None]]] = OrderedDict()

    async def enter(self, group_id: str, level: int, key: str) -> int:
        level, keys = self._groups.pop(group_id, (level, OrderedDict()))
        self._messages += key not in keys
        keys[key] = None
        self._groups[group_id] = (level, keys)  # now the one that was used last
        while self._messages > self._max_messages:
            self._forget()
        return level

    async def leave(self, group_id: str, key: str) -> None:
        if group_id not in self._groups:
            return
        _, keys = self._groups[group_id]
        if key in keys:
            del keys[key]
            self._messages -= 1
        if not keys:
            del self._groups[group_id]

    def _forget(self) -> None:
        """Forget the oldest message of the group that was used the longest ago."""
        group_id = next(iter(self._groups))
        _, keys = self._groups[group_id]
        keys.popitem(last=False)
        self._messages -= 1
        if not keys:
            del self._groups[group_id]

    def __len__(self) -> int:
        return self._messages


class PriorityTransport(Holding[E]):
    """Lease transports by level of priority, 0 the lowest, as one.

    `publish(…, priority=n)` puts an event on level n (above the highest: on the highest).
    `claim(…, min_priority=n)` takes only from level n and above (above the highest: from it); all
    of these count alike, in turn, so that a full high level never starves a low one. Workers that
    should prefer high levels claim with a `min_priority` first, or for a share of their claims.

    An empty claim costs one receive for each level that counts. Make one with
    `await PriorityTransport.create("jobs", levels=3)`.
    """

    def __init__(
        self, transports: Sequence[LeaseTransport[E]], *, group_levels: Levels | None = None
    ) -> None:
        if not transports:
            raise UsageError("a PriorityTransport has at least one level")
        self.transports = tuple(transports)
        self.group_levels = LocalLevels() if group_levels is None else group_levels
        self._out: WeakValueDictionary[str, Lease[E]] = WeakValueDictionary()
        self._turns: Counter[int] = Counter()
        self.clock = self.transports[0].clock
        self._tasks = Tasks()
        self._closed = False

    @classmethod
    async def create(
        cls,
        queue: str,
        backend: Backend | None = None,
        *,
        levels: int = 5,
        group_levels: Levels | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> PriorityTransport[E]:
        """A transport with the queues `queue-p0.fifo` to `queue-pN.fifo`, made sure to exist.

        `levels` is 1 to 10; the other options are those of `LeaseTransport.create`.
        """
        if isinstance(levels, bool) or not isinstance(levels, int) or not 1 <= levels <= 10:
            raise UsageError(f"levels is {levels!r}; it is a number from 1 to 10")
        stem = check_queue(queue).removesuffix(FIFO_SUFFIX)
        names = [fifo_name(f"{stem}-p{level}{FIFO_SUFFIX}") for level in range(levels)]
        transports: list[LeaseTransport[E]] = []
        try:
            for name in names:
                # The first level makes the backend, if there is none, and closes it.
                transport: LeaseTransport[E] = await LeaseTransport.create(
                    name, backend, clock=clock, **options
                )
                backend, clock = transport.backend, transport.clock
                transports.append(transport)
        except BaseException:
            for transport in reversed(transports):
                await transport.close()
            raise
        return cls(transports, group_levels=group_levels)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def stopped(self) -> bool:
        """Whether `stop` or `close` was called: no more work is taken."""
        return self.transports[0].stopped

    @property
    def _background(self) -> Tasks:
        return self._tasks

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self.transports)

    async def publish(
        self, group_id: str, event: E, priority: int = 0, *, deduplication_id: str | None = None
    ) -> Receipt:
        """Put an event at the end of its group, on the level where the group is.

        Raises `UsageError` for a priority that is no number from 0, and what
        `LeaseTransport.publish` raises.
        """
        level = min(_priority(priority, "priority"), self.levels - 1)
        key = deduplication_id or uuid4().hex
        level = await self.group_levels.enter(group_id, level, key)
        try:
            return await self.transports[level].publish(group_id, event, deduplication_id=key)
        except (UsageError, RefusedError, ConfigError, ClosedError):  # nothing was stored
            await self.group_levels.leave(group_id, key)
            raise

    async def claim(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
    ) -> Lease[E] | None:
        """Lease the next message of some group on level `min_priority` or above.

        The levels are asked one after the other, a different one first each time; where all are
        empty, they are waited for together. Otherwise as `LeaseTransport.claim`.
        """
        if self._closed:
            raise ClosedError("the transport is closed")
        whole_seconds(visibility, "visibility")
        wait = self.transports[0].wait_seconds
        if wait_seconds is not None:
            wait = whole_seconds(wait_seconds, "wait_seconds", MAX_WAIT_SECONDS)
        lowest = min(_priority(min_priority, "min_priority"), self.levels - 1)
        levels = range(lowest, self.levels)
        start = self._turns[lowest] % len(levels)
        self._turns[lowest] += 1
        try:
            for level in (*levels[start:], *levels[:start]):
                if lease := await self._claim(level, worker_id, visibility, 0):
                    return lease
            return await self._first(worker_id, visibility, levels, wait) if wait else None
        except ClosedError:
            if not self._closed:
                raise
            return None  # closed meanwhile

    async def _first(
        self, worker_id: str, visibility: Duration, levels: Sequence[int], wait: int
    ) -> Lease[E] | None:
        """Wait on all levels; the first message counts."""
        claims = [
            asyncio.ensure_future(self._claim(level, worker_id, visibility, wait))
            for level in levels
        ]
        found: Lease[E] | None = None
        pending = set(claims)
        try:
            while pending and found is None:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for claim in done:
                    if found is None:
                        found = claim.result()
            return found
        finally:
            for claim in claims:
                claim.cancel()
            self._tasks.spawn(self._end(claims, found))

    async def _end(
        self, claims: Sequence[asyncio.Future[Lease[E] | None]], found: Lease[E] | None
    ) -> None:
        """Give back what came for the claims that were cancelled, or not needed any more."""
        for came in await asyncio.gather(*claims, return_exceptions=True):
            if isinstance(came, Lease) and came is not found:
                await self._give_back(came, 0)

    async def _claim(
        self, level: int, worker_id: str, visibility: Duration, wait: int
    ) -> Lease[E] | None:
        """Claim from one level. What comes is not handed out while its group is out on another
        level, where another process must have put it: then it waits its turn."""
        lease = await self.transports[level].claim(worker_id, visibility, wait_seconds=wait)
        if lease is None:
            return None
        other = self._out.get(lease.group_id)
        if other is not None and other.queue_url != lease.queue_url and not other.over:
            _log.warning(
                "group %r has messages on two levels: it was published with two priorities by "
                "processes that share no levels",
                lease.group_id,
            )
            self._tasks.spawn(self._give_back(lease, CONFLICT_DELAY_SECONDS))
            return None
        self._out[lease.group_id] = lease
        try:
            await self.group_levels.enter(lease.group_id, level, lease.deduplication_id)
        except BaseException:  # cancelled, or the store of the levels failed: nobody gets it
            self._tasks.spawn(self._give_back(lease, 0))
            raise
        return lease

    async def _give_back(self, lease: Lease[E], delay: int) -> None:
        with suppress(PumphouseError):  # its lease ends by itself then
            await self._of(lease).nack(lease, delay)

    async def ack(self, lease: Lease[E]) -> None:
        """As `LeaseTransport.ack`."""
        await self._tasks.finish(self._acked(lease))

    async def _acked(self, lease: Lease[E]) -> None:
        await self._of(lease).ack(lease)
        try:
            await self.group_levels.leave(lease.group_id, lease.deduplication_id)
        except Exception:  # the message is deleted, whatever the store of the levels says
            _log.exception("the level of group %r was not left", lease.group_id)

    async def nack(self, lease: Lease[E], delay: Duration = 0) -> None:
        """As `LeaseTransport.nack`."""
        await self._of(lease).nack(lease, delay)

    async def extend(self, lease: Lease[E], visibility: Duration) -> None:
        """As `LeaseTransport.extend`."""
        await self._of(lease).extend(lease, visibility)

    def _of(self, lease: Lease[E]) -> LeaseTransport[E]:
        for transport in self.transports:
            if isinstance(lease, Lease) and transport.queue_url == lease.queue_url:
                return transport
        raise UsageError(f"{lease!r} is no lease of this transport")

    def stop(self) -> None:
        """Stop every level, as `LeaseTransport.stop`."""
        for transport in self.transports:
            transport.stop()

    async def close(self) -> None:
        """Close every level, as `LeaseTransport.close`."""
        self._closed = True
        self.stop()
        await self._tasks.idle()
        await asyncio.gather(*(transport.close() for transport in self.transports[1:]))
        await self.transports[0].close()  # the last, because it may own the backend

    def __repr__(self) -> str:
        return f"<PriorityTransport of {self.levels} levels: {list(self.transports)!r}>"


def _priority(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{what} is {value!r}; it is a number from 0, the lowest priority")
    return value
