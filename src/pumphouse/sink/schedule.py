"""Which entries leave together, and when: the batcher's decisions as plain code, without any IO.

Entries wait in *lanes*. On a FIFO queue a lane is a message group: one request in flight at a time,
and its entries leave in the order in which they were admitted; an entry that is tried again goes
back to the head of its lane and the lane waits with it. On a standard queue a lane is a tenant, any
number of requests may be in flight, and an entry that is tried again waits by itself. A lane is
offered under the tenant of its first entry, and batches are filled by going round the tenants, one
entry each, so what a tenant waits depends on the number of tenants and not on their backlogs.

An entry may be held until something else is done (its body is stored, say): it is let in and keeps
its place, in a line behind its lane, in which those of its lane that come later wait as well.

Every step costs the same however much is waiting: no scans. Who may come in at all is in
`admission.py`; who sends what is taken here is in `batcher.py`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Generic

from pumphouse.sink.admission import Admission
from pumphouse.sink.entry import DONE, HELD, LATER, PARKED, SENT, WAITING, E, Limits

NEVER = float("inf")


class _Lane(Generic[E]):
    __slots__ = ("busy", "bytes", "entries", "indexed", "live", "name", "offered")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: deque[E] = deque()  # withdrawn ones among them until they surface
        self.live = 0
        self.bytes = 0
        self.busy = False  # exclusive lanes: in flight, or waiting for a retry
        self.offered = False  # stands in some tenant's `lanes`
        self.indexed = False  # stands in the index of the oldest

    def head(self) -> E:
        while self.entries[0].state != WAITING:
            self.entries.popleft()
        return self.entries[0]


class _Tenant(Generic[E]):
    __slots__ = ("lanes", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: deque[_Lane[E]] = deque()


class Schedule(Generic[E]):
    """The entries of one queue, from their admission to their settlement.

    `exclusive` is True for a FIFO queue. Times are any monotonic seconds, given by the caller.
    """

    def __init__(self, limits: Limits, *, exclusive: bool) -> None:
        self.admission: Admission[E] = Admission(limits)
        self.limits = limits
        self._exclusive = exclusive
        self._order = itertools.count()
        self._lanes: dict[str, _Lane[E]] = {}
        self._tenants: dict[str, _Tenant[E]] = {}  # those in the ring
        self._ring: deque[_Tenant[E]] = deque()
        self._oldest: list[tuple[float, int, _Lane[E]]] = []
        self._later: list[tuple[float, int, _Lane[E] | E]] = []
        self._held: dict[str | int, OrderedDict[int, E]] = {}  # by lane, behind it
        self.called: deque[E] = deque()  # held ones that have just been let in
        self._ready = 0
        self._ready_bytes = 0
        self.inflight = 0

    # --- in ---------------------------------------------------------------------------------

    def admit(self, entry: E, now: float) -> str | None:
        """Let an entry in; or say in words what keeps it out."""
        if (reason := self.admission.enter(entry)) is None:
            entry.arrived = now
            if self._held or entry.held is not None:
                self._line_up(entry)
            else:
                self._put(entry)
        return reason

    def admit_parked(self, now: float) -> None:
        """Let in as many of those who wait for room as there is room for."""
        for entry in self.admission.next():
            entry.arrived = now
            self._line_up(entry)

    def ready(self, entry: E, size: int, now: float) -> None:
        """What held an entry is done, and it has this size now."""
        entry.held = None
        self.admission.resize(entry, size)
        self._advance(self._line_of(entry), now)
        self.admit_parked(now)

    # --- out --------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Whether enough is ready for a batch that need not wait."""
        limits = self.limits
        return (
            self._ready >= limits.batch_max_entries or self._ready_bytes >= limits.batch_max_bytes
        )

    def take(self, now: float, *, flush: bool = False) -> list[E] | None:
        """The entries of the next request, or None while there is none to be sent.

        There is one when a request slot is free and enough is ready to fill a batch, or the first
        of what is ready has lingered long enough, or `flush` is set.
        """
        limits = self.limits
        if not self._ready or self.inflight >= limits.batch_max_inflight:
            return None
        if not (flush or self.is_full()) and now < self._due():
            return None
        batch: list[E] = []
        touched: list[_Lane[E]] = []
        exclusive = self._exclusive
        most = limits.batch_max_entries
        room = limits.batch_max_bytes
        while len(batch) < most and (turn := self._next_turn()) is not None:
            tenant, lane, entry = turn
            if batch and (entry.size > room or entry.alone):
                break
            others = len(self._ring) > 1 or len(tenant.lanes) > 1  # with whom to take turns
            before, left = len(batch), room
            for place in range(1 if others or entry.alone else min(most - before, lane.live)):
                if place:
                    entry = lane.head()
                    if entry.size > room or entry.alone or entry.tenant != tenant.name:
                        break
                lane.entries.popleft()
                room -= entry.size
                entry.state = SENT
                batch.append(entry)
            lane.live -= len(batch) - before
            lane.bytes -= left - room
            if exclusive:
                touched.append(lane)
            self._ring.rotate(-1)
            if lane.live and (not exclusive or lane.head().tenant == tenant.name):
                if others:
                    tenant.lanes.rotate(-1)
            else:
                tenant.lanes.popleft()
                lane.offered = False
                if lane.live:
                    self._offer(lane)
                elif not exclusive:
                    del self._lanes[lane.name]
            if batch[-1].alone:
                break
        self._ready -= len(batch)
        self._ready_bytes -= limits.batch_max_bytes - room
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

    def finish(self, batch: Iterable[E], retries: Iterable[tuple[E, float]], now: float) -> None:
        """A request is over: every entry of it is settled but those to be tried again, each with
        the time from which it may be."""
        self.inflight -= 1
        again: dict[str, list[tuple[E, float]]] = {}
        for entry, when in retries:
            if self._exclusive:
                again.setdefault(entry.lane, []).append((entry, when))
            else:
                entry.state = LATER
                heapq.heappush(self._later, (when, next(self._order), entry))
        if self._exclusive:
            for name in dict.fromkeys(entry.lane for entry in batch):
                self._free(self._lanes[name], again.get(name, ()))
        self.admission.leave(entry for entry in batch if entry.state == SENT)
        if self._later:
            self.wake(now)
        if self.admission.parked:
            self.admit_parked(now)

    def wake(self, now: float) -> None:
        """Bring back what waited for its next try and may have it by now."""
        while self._later and self._later[0][0] <= now:
            item = heapq.heappop(self._later)[2]
            if isinstance(item, _Lane):
                self._open(item)
            elif item.state == LATER:
                self._put(item, first=True)

    def withdraw(self, entry: E, now: float) -> bool:
        """Take an entry back that no request is carrying; False where it is too late for that."""
        if entry.state == PARKED:
            self.admission.unpark(entry)
            self.admit_parked(now)  # it may have stood before others
            return True
        if entry.state == WAITING:
            lane = self._lanes[entry.lane if self._exclusive else entry.tenant]
            lane.live -= 1
            lane.bytes -= entry.size
            if not lane.busy:
                self._ready -= 1
                self._ready_bytes -= entry.size
            entry.state = DONE  # it stays in its lane until it surfaces
            if len(lane.entries) > 2 * lane.live + 8:
                lane.entries = deque(e for e in lane.entries if e.state == WAITING)
        elif entry.state == HELD:
            entry.state = DONE
            line = self._line_of(entry)
            del self._held[line][id(entry)]
            self._advance(line, now)
        elif entry.state != LATER:
            return False
        self.admission.leave((entry,))
        self.admit_parked(now)
        return True

    def drain(self) -> list[E]:
        """Everything that no request is carrying, taken out: for the end."""
        left = self.admission.drain()
        for lane in self._lanes.values():
            left += (entry for entry in lane.entries if entry.state == WAITING)
        for line in self._held.values():
            left += line.values()
        left += (e for _, _, e in self._later if not isinstance(e, _Lane) and e.state == LATER)
        for entry in left:
            entry.state = DONE
        self._lanes.clear()
        self._tenants.clear()
        self._held.clear()
        self.called.clear()
        for queue in (self._ring, self._oldest, self._later):
            queue.clear()
        self._ready = self._ready_bytes = 0
        return left

    def next_time(self) -> float:
        """When `wake` or `take` may have something that they don't have now; `NEVER` for when only
        an answer or an admission can bring it."""
        when = self._later[0][0] if self._later else NEVER
        if self._ready and self.inflight < self.limits.batch_max_inflight:
            when = min(when, self._due())
        return when

    # --- lanes, tenants and the index of the oldest -----------------------------------------

    def _line_of(self, entry: E) -> str | int:
        return entry.lane if self._exclusive else id(entry)  # where order is, others wait too

    def _line_up(self, entry: E) -> None:
        """Let an entry wait in its lane, or, while it is held or comes after one that is, behind
        it."""
        name = self._line_of(entry)
        line = self._held.get(name)
        if entry.held is not None:
            self.called.append(entry)
        elif line is None:
            self._put(entry)
            return
        entry.state = HELD
        if line is None:
            line = self._held[name] = OrderedDict()
        line[id(entry)] = entry

    def _advance(self, name: str | int, now: float) -> None:
        """Let those at the head of a line into their lane that nothing holds any more."""
        line = self._held[name]
        while line:
            entry = next(iter(line.values()))
            if entry.held is not None:
                return
            del line[id(entry)]
            entry.arrived = now
            self._put(entry)
        del self._held[name]

    def _put(self, entry: E, *, first: bool = False) -> None:
        """Let an entry wait in its lane, behind the others or before them."""
        name = entry.lane if self._exclusive else entry.tenant
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name)
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

    def _free(self, lane: _Lane[E], again: Iterable[tuple[E, float]]) -> None:
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

    def _open(self, lane: _Lane[E]) -> None:
        lane.busy = False
        if not lane.live:
            if not lane.offered:
                self._lanes.pop(lane.name, None)
            return
        self._ready += lane.live
        self._ready_bytes += lane.bytes
        if not lane.offered:
            self._offer(lane)
        if not lane.indexed:
            self._index(lane)

    def _offer(self, lane: _Lane[E]) -> None:
        name = lane.head().tenant
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(name)
            self._ring.append(tenant)
        tenant.lanes.append(lane)
        lane.offered = True

    def _next_turn(self) -> tuple[_Tenant[E], _Lane[E], E] | None:
        """The tenant whose turn it is, its next usable lane, which is in front, and the head of
        that; drops what is spent."""
        ring = self._ring
        while ring:
            tenant = ring[0]
            while tenant.lanes:
                lane = tenant.lanes[0]
                if lane.live and not lane.busy:
                    entry = lane.head()
                    if entry.tenant == tenant.name:
                        return tenant, lane, entry
                    tenant.lanes.popleft()
                    self._offer(lane)  # withdrawals changed whose turn its head is
                    continue
                tenant.lanes.popleft()
                lane.offered = False
                if not lane.live and not lane.busy:
                    self._lanes.pop(lane.name, None)
            ring.popleft()
            del self._tenants[tenant.name]
        return None

    def _index(self, lane: _Lane[E]) -> None:
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
                return arrived + self.limits.batch_linger
        return NEVER

    def __repr__(self) -> str:
        inside = self.admission
        return (
            f"Schedule(ready={self._ready}, inside={inside.inside}, inflight={self.inflight}, "
            f"parked={inside.parked}, lanes={len(self._lanes)})"
        )
