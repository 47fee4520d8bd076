"""Which entries leave together, and when: the batcher's decisions as plain code, without IO or tasks.

Entries wait in *lanes*. On a FIFO queue a lane is a message group: one request in flight at a time,
and its entries leave in the order in which they were admitted; an entry that is tried again goes
back to the head of its lane and the lane waits with it. On a standard queue a lane is a tenant, any
number of requests may be in flight, and an entry that is tried again waits by itself. A lane is
offered under the tenant of its first entry, and batches are filled by going round the tenants, one
entry each, so what a tenant waits depends on the number of tenants and not on their backlogs.

Every step costs the same however much is waiting: no scans. Who sends what is taken here, and what
an answer means, is in `batcher.py` and `confirmation.py`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES, MAX_MESSAGE_BYTES

NEVER = float("inf")

# where an entry is
NEW, PARKED, WAITING, LATER, SENT, DONE = range(6)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large batches are, how long they fill, and how much may wait. Bytes are counted as SQS
    counts them: body and attributes."""

    batch_max_entries: int = MAX_BATCH_ENTRIES
    batch_max_bytes: int = 262_144
    batch_linger: float = 0.02
    batch_max_inflight: int = 8
    batch_queue_max: int = 4_096
    batch_queue_max_bytes: int = 134_217_728
    batch_queue_tenant_max: int = 1_024


class Entry:
    """One message on its way: what is scheduled, sent and settled.

    A base class: what is in the message is for `outgoing.py` to add. `done` is what the caller
    waits on, and `error` what the latest try brought (both opaque here); `tries` counts the
    requests that carried it.
    """

    __slots__ = (
        "alone",
        "arrived",
        "done",
        "error",
        "first_try",
        "first_unknown",
        "lane",
        "size",
        "state",
        "tenant",
        "tries",
    )

    def __init__(self, done: Any, size: int, tenant: str, lane: str) -> None:
        self.done = done
        self.size = size
        self.tenant = tenant
        self.lane = lane
        self.state = NEW
        self.arrived = 0.0
        self.tries = 0
        self.first_try = 0.0
        self.first_unknown: float | None = None
        self.error: BaseException | None = None
        self.alone = False

    def __repr__(self) -> str:
        state = ("new", "parked", "waiting", "later", "sent", "done")[self.state]
        return f"Entry({state}, lane={self.lane!r}, {self.size} bytes, tries={self.tries})"


class _Lane:
    __slots__ = ("busy", "bytes", "entries", "indexed", "live", "name", "offered")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: deque[Entry] = deque()  # withdrawn ones among them until they surface
        self.live = 0
        self.bytes = 0
        self.busy = False  # exclusive lanes: in flight, or waiting for a retry
        self.offered = False  # stands in some tenant's `lanes`
        self.indexed = False  # stands in the index of the oldest

    def head(self) -> Entry:
        while self.entries[0].state != WAITING:
            self.entries.popleft()
        return self.entries[0]


class _Tenant:
    __slots__ = ("called", "lanes", "name", "offered", "parked", "unsettled", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: deque[_Lane] = deque()
        self.offered = False  # stands in the ring of batches
        self.unsettled = 0
        self.parked: deque[Entry] = deque()  # withdrawn ones among them
        self.waiting = 0  # the parked ones that are not withdrawn
        self.called = False  # stands in the ring of those who wait for room


class Schedule:
    """The entries of one queue, from their admission to their settlement.

    `exclusive` is True for a FIFO queue. Times are any monotonic seconds, given by the caller.
    """

    def __init__(self, limits: Limits, *, exclusive: bool) -> None:
        self._limits = limits
        self._exclusive = exclusive
        self._order = itertools.count()
        self._lanes: dict[str, _Lane] = {}
        self._tenants: dict[str, _Tenant] = {}
        self._ring: deque[_Tenant] = deque()
        self._room_ring: deque[_Tenant] = deque()
        self._oldest: list[tuple[float, int, _Lane]] = []
        self._later: list[tuple[float, int, _Lane | Entry]] = []
        self._ready = 0
        self._ready_bytes = 0
        self.unsettled = 0
        self.unsettled_bytes = 0
        self.parked = 0
        self.inflight = 0

    # --- in ---------------------------------------------------------------------------------

    def refusal(self, tenant: str, size: int) -> str | None:
        """What keeps an entry out (a ceiling, or others who came first and wait for room), in
        words; None where there is room."""
        limits = self._limits
        if self.unsettled >= limits.batch_queue_max:
            return f"batch_queue_max: {limits.batch_queue_max} entries are waiting"
        if self.unsettled and self.unsettled_bytes + size > limits.batch_queue_max_bytes:
            return f"batch_queue_max_bytes: {self.unsettled_bytes} bytes are waiting"
        if self._room_ring:
            return "others wait for room"
        found = self._tenants.get(tenant)
        if found is None:
            return None
        if found.unsettled >= limits.batch_queue_tenant_max:
            return (
                f"batch_queue_tenant_max: {found.unsettled} entries of tenant {tenant!r} "
                "are waiting"
            )
        if found.waiting:
            return f"others of tenant {tenant!r} wait for room"
        return None

    def admit(self, entry: Entry, now: float) -> None:
        """Let an entry in. Whether there is room is asked with `refusal` first."""
        tenant = self._tenant(entry.tenant)
        tenant.unsettled += 1
        self.unsettled += 1
        self.unsettled_bytes += entry.size
        entry.arrived = now
        name = entry.lane if self._exclusive else entry.tenant
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
        self._enter(lane, entry)

    def park(self, entry: Entry) -> None:
        """Let an entry wait for room; `unpark` admits it, round-robin across tenants."""
        tenant = self._tenant(entry.tenant)
        entry.state = PARKED
        tenant.parked.append(entry)
        tenant.waiting += 1
        self.parked += 1
        self._call(tenant)

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        return self.unsettled < limits.batch_queue_max and (
            not self.unsettled or self.unsettled_bytes + size <= limits.batch_queue_max_bytes
        )

    def unpark(self, now: float) -> None:
        """Admit as many of those who wait for room as there is room for."""
        ring = self._room_ring
        while ring:
            tenant = ring[0]
            while tenant.parked and tenant.parked[0].state != PARKED:
                tenant.parked.popleft()
            if not tenant.parked or tenant.unsettled >= self._limits.batch_queue_tenant_max:
                ring.popleft()
                tenant.called = False
                self._forget(tenant)
                continue
            if not self._has_room(tenant.parked[0].size):
                return  # nobody passes the one whose turn it is
            entry = tenant.parked.popleft()
            tenant.waiting -= 1
            self.parked -= 1
            self.admit(entry, now)
            ring.rotate(-1)

    # --- out --------------------------------------------------------------------------------

    def take(self, now: float, *, flush: bool = False) -> list[Entry] | None:
        """The entries of the next request, or None while there is none to be sent.

        There is one when a request slot is free and enough is ready to fill a batch, or the first
        of what is ready has lingered long enough, or `flush` is set.
        """
        limits = self._limits
        if not self._ready or self.inflight >= limits.batch_max_inflight:
            return None
        if (
            self._ready < limits.batch_max_entries
            and self._ready_bytes < limits.batch_max_bytes
            and not flush
            and now < self._due()
        ):
            return None
        batch: list[Entry] = []
        touched: list[_Lane] = []
        room = limits.batch_max_bytes
        ring = self._ring
        while len(batch) < limits.batch_max_entries and (tenant := self._next_tenant()) is not None:
            lane = tenant.lanes[0]
            entry = lane.head()
            if batch and (entry.size > room or entry.alone):
                break
            lane.entries.popleft()
            lane.live -= 1
            lane.bytes -= entry.size
            self._ready -= 1
            self._ready_bytes -= entry.size
            entry.state = SENT
            batch.append(entry)
            room -= entry.size
            if self._exclusive:
                touched.append(lane)
            ring.rotate(-1)
            if lane.live and lane.head().tenant == tenant.name:
                if len(tenant.lanes) > 1:
                    tenant.lanes.rotate(-1)
            else:
                tenant.lanes.popleft()
                lane.offered = False
                if lane.live:
                    self._offer(lane)
                elif not self._exclusive:
                    del self._lanes[lane.name]
            if entry.alone:
                break
        for lane in touched:
            if not lane.busy:
                lane.busy = True
                self._ready -= lane.live
                self._ready_bytes -= lane.bytes
        if not self._ready:
            for _, _, lane in self._oldest:
                lane.indexed = False
            self._oldest.clear()
        self.inflight += 1
        return batch

    def finish(
        self, batch: Iterable[Entry], retries: Iterable[tuple[Entry, float]], now: float
    ) -> None:
        """A request is over: every entry of it is settled but those to be tried again, each with
        the time from which it may be."""
        self.inflight -= 1
        again: dict[str, list[tuple[Entry, float]]] = {}
        for entry, when in retries:
            if self._exclusive:
                again.setdefault(entry.lane, []).append((entry, when))
            else:
                entry.state = LATER
                heapq.heappush(self._later, (when, next(self._order), entry))
        done: set[str] = set()
        for entry in batch:
            if self._exclusive and entry.lane not in done:
                done.add(entry.lane)
                self._free(self._lanes[entry.lane], again.get(entry.lane, ()))
            if entry.state == SENT:
                self._settle(entry)
        self.wake(now)
        self.unpark(now)

    def wake(self, now: float) -> None:
        """Bring back what waited for its next try and may have it by now."""
        while self._later and self._later[0][0] <= now:
            item = heapq.heappop(self._later)[2]
            if isinstance(item, _Lane):
                self._open(item)
            elif item.state == LATER:
                lane = self._lanes.get(item.tenant)
                if lane is None:
                    lane = self._lanes[item.tenant] = _Lane(item.tenant)
                self._enter(lane, item, first=True)

    def withdraw(self, entry: Entry, now: float) -> bool:
        """Take an entry back that no request is carrying; False where it is too late for that."""
        if entry.state == PARKED:
            entry.state = DONE
            self.parked -= 1
            tenant = self._tenants[entry.tenant]
            tenant.waiting -= 1
            if len(tenant.parked) > 2 * tenant.waiting + 8:
                tenant.parked = deque(e for e in tenant.parked if e.state == PARKED)
            self._call(tenant)
            self.unpark(now)  # it may have stood before others
            return True
        if entry.state == WAITING:
            lane = self._lanes[entry.lane if self._exclusive else entry.tenant]
            lane.live -= 1
            lane.bytes -= entry.size
            if not lane.busy:
                self._ready -= 1
                self._ready_bytes -= entry.size
            entry.state = DONE
            if len(lane.entries) > 2 * lane.live + 8:
                lane.entries = deque(e for e in lane.entries if e.state == WAITING)
        elif entry.state != LATER:
            return False
        self._settle(entry)
        self.unpark(now)
        return True

    def drain(self) -> list[Entry]:
        """Everything that no request is carrying, taken out: for the end."""
        left: list[Entry] = []
        for tenant in self._tenants.values():
            left += (entry for entry in tenant.parked if entry.state == PARKED)
        for lane in self._lanes.values():
            left += (entry for entry in lane.entries if entry.state == WAITING)
        left += (e for _, _, e in self._later if isinstance(e, Entry) and e.state == LATER)
        for entry in left:
            entry.state = DONE
        self._lanes.clear()
        self._tenants.clear()
        for queue in (self._ring, self._room_ring, self._oldest, self._later):
            queue.clear()
        self._ready = self._ready_bytes = self.parked = 0
        self.unsettled = self.unsettled_bytes = 0
        return left

    def next_time(self) -> float:
        """When `wake` or `take` may have something that they don't have now; `NEVER` for when only
        an answer or an admission can bring it."""
        when = self._later[0][0] if self._later else NEVER
        if self._ready and self.inflight < self._limits.batch_max_inflight:
            when = min(when, self._due())
        return when

    # --- lanes, tenants and the index of the oldest -----------------------------------------

    def _enter(self, lane: _Lane, entry: Entry, *, first: bool = False) -> None:
        entry.state = WAITING
        if first:
            lane.entries.appendleft(entry)
        else:
            lane.entries.append(entry)
        lane.live += 1
        lane.bytes += entry.size
        if not lane.busy:
            self._ready += 1
            self._ready_bytes += entry.size
            if not lane.offered:
                self._offer(lane)
            if not lane.indexed or first:
                self._index(lane)

    def _free(self, lane: _Lane, again: Iterable[tuple[Entry, float]]) -> None:
        """The request that carried entries of an exclusive lane is over."""
        until = -NEVER
        for entry, when in reversed(list(again)):
            entry.state = WAITING
            lane.entries.appendleft(entry)
            lane.live += 1
            lane.bytes += entry.size
            until = max(until, when)
        if until > -NEVER:
            heapq.heappush(self._later, (until, next(self._order), lane))
        else:
            self._open(lane)

    def _open(self, lane: _Lane) -> None:
        lane.busy = False
        if not lane.live:
            if not lane.offered:
                self._lanes.pop(lane.name, None)
            return
        self._ready += lane.live
        self._ready_bytes += lane.bytes
        if not lane.offered:
            self._offer(lane)
        self._index(lane)

    def _offer(self, lane: _Lane) -> None:
        tenant = self._tenant(lane.head().tenant)
        tenant.lanes.append(lane)
        lane.offered = True
        if not tenant.offered:
            tenant.offered = True
            self._ring.append(tenant)

    def _next_tenant(self) -> _Tenant | None:
        """The tenant whose turn it is, its next usable lane in front; drops what is spent."""
        ring = self._ring
        while ring:
            tenant = ring[0]
            while tenant.lanes:
                lane = tenant.lanes[0]
                if lane.live and not lane.busy:
                    if lane.head().tenant == tenant.name:
                        return tenant
                    tenant.lanes.popleft()
                    self._offer(lane)  # withdrawals changed whose turn its head is
                    continue
                tenant.lanes.popleft()
                lane.offered = False
                if not lane.live and not lane.busy:
                    self._lanes.pop(lane.name, None)
            ring.popleft()
            tenant.offered = False
            self._forget(tenant)
        return None

    def _index(self, lane: _Lane) -> None:
        lane.indexed = True
        oldest = self._oldest
        heapq.heappush(oldest, (lane.head().arrived, next(self._order), lane))
        if len(oldest) > 2 * len(self._lanes) + 64:  # much of it is spent: make it anew
            oldest.clear()
            for lane in self._lanes.values():
                lane.indexed = lane.live > 0 and not lane.busy
                if lane.indexed:
                    oldest.append((lane.head().arrived, next(self._order), lane))
            heapq.heapify(oldest)

    def _due(self) -> float:
        """When the first of what is ready has lingered long enough."""
        oldest = self._oldest
        while oldest:
            arrived, _, lane = oldest[0]
            if lane.busy or not lane.live:
                heapq.heappop(oldest)
                lane.indexed = False
            elif (since := lane.head().arrived) > arrived:
                heapq.heapreplace(oldest, (since, next(self._order), lane))
            else:
                return arrived + self._limits.batch_linger
        return NEVER

    def _settle(self, entry: Entry) -> None:
        entry.state = DONE
        self.unsettled -= 1
        self.unsettled_bytes -= entry.size
        tenant = self._tenants[entry.tenant]
        tenant.unsettled -= 1
        if tenant.parked:
            self._call(tenant)
        elif not tenant.unsettled:
            self._forget(tenant)

    def _call(self, tenant: _Tenant) -> None:
        if not tenant.called and tenant.unsettled < self._limits.batch_queue_tenant_max:
            tenant.called = True
            self._room_ring.append(tenant)

    def _tenant(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name)
        return tenant

    def _forget(self, tenant: _Tenant) -> None:
        """Drop a tenant that has nothing here any more."""
        if not (tenant.unsettled or tenant.offered or tenant.called or tenant.parked):
            self._tenants.pop(tenant.name, None)

    def __repr__(self) -> str:
        return (
            f"Schedule(ready={self._ready}, unsettled={self.unsettled}, "
            f"inflight={self.inflight}, parked={self.parked}, tenants={len(self._tenants)})"
        )
