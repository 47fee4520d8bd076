"""How much may wait in a sink, and who comes in when there is room again: ceilings as plain code.

A sink holds a bounded number of entries and bytes, and a bounded number of entries of each tenant,
from their admission to their settlement. Those who wait for room are let in round-robin across
tenants, each tenant's in the order in which they came, and nobody passes the one whose turn it is.
Nor does anyone pass another of its own lane, whoever's that is: a lane's order holds outside, too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Generic

from pumphouse.sink.entry import DONE, PARKED, E, Limits


class _Guest(Generic[E]):
    """A tenant as the ceilings see it."""

    __slots__ = ("called", "inside", "name", "parked", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.inside = 0
        self.parked: deque[E] = deque()  # withdrawn ones among them
        self.waiting = 0  # those that are not
        self.called = False  # stands in the ring of those who may come in next


class Admission(Generic[E]):
    """Counts what is inside, and keeps those who wait outside."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guests: dict[str, _Guest[E]] = {}
        self._ring: deque[_Guest[E]] = deque()
        self._lines: dict[str, OrderedDict[int, E]] = {}  # those who wait, by lane
        self.inside = 0
        self.bytes = 0
        self.parked = 0

    def enter(self, entry: E) -> str | None:
        """Count an entry in; or say in words what keeps it out: a ceiling, or others who came
        first and wait for room."""
        limits = self._limits
        inside = self.inside
        size = entry.size
        if inside >= limits.batch_queue_max:
            return f"batch_queue_max: {limits.batch_queue_max} messages are waiting"
        if inside and self.bytes + size > limits.batch_queue_max_bytes:
            return f"batch_queue_max_bytes: {self.bytes} bytes are waiting"
        if self._ring:
            return "others wait for room"
        if self.parked and entry.lane in self._lines:
            return f"others of group {entry.lane!r} wait for room"
        tenant = entry.tenant
        guest = self._guests.get(tenant)
        if guest is None:
            guest = self._guests[tenant] = _Guest(tenant)
        elif guest.inside >= limits.batch_queue_tenant_max:
            return f"batch_queue_tenant_max: {guest.inside} messages of tenant {tenant!r} wait"
        elif guest.waiting:
            return f"others of tenant {tenant!r} wait for room"
        guest.inside += 1
        self.inside = inside + 1
        self.bytes += size
        return None

    def leave(self, entries: Iterable[E]) -> None:
        """Count entries out, which are done; `next` has who may come in for them."""
        for entry in entries:
            entry.state = DONE
            self.inside -= 1
            self.bytes -= entry.size
            guest = self._guests[entry.tenant]
            guest.inside -= 1
            if guest.parked:
                self._call(guest)
            elif not guest.inside and not guest.called:
                del self._guests[guest.name]

    def park(self, entry: E) -> None:
        """Let an entry wait for room."""
        guest = self._guests.get(entry.tenant)
        if guest is None:
            guest = self._guests[entry.tenant] = _Guest(entry.tenant)
        entry.state = PARKED
        guest.parked.append(entry)
        guest.waiting += 1
        self.parked += 1
        if entry.lane:
            self._lines.setdefault(entry.lane, OrderedDict())[id(entry)] = entry
        self._call(guest)

    def unpark(self, entry: E) -> None:
        """Take a waiting entry back."""
        entry.state = DONE
        self.parked -= 1
        guest = self._guests[entry.tenant]
        guest.waiting -= 1
        if len(guest.parked) > 2 * guest.waiting + 8:
            guest.parked = deque(e for e in guest.parked if e.state == PARKED)
        self._call(guest)
        self._out_of_line(entry)

    def resize(self, entry: E, size: int) -> None:
        """An entry that is inside has another size now; `next` has who may come in for that."""
        self.bytes += size - entry.size
        entry.size = size

    def next(self) -> Iterator[E]:
        """Those for whom there is room now, counted in."""
        ring = self._ring
        while ring:
            guest = ring[0]
            while guest.parked and guest.parked[0].state != PARKED:
                guest.parked.popleft()
            if (
                not guest.parked
                or guest.inside >= self._limits.batch_queue_tenant_max
                or not self._is_first(guest.parked[0])  # it is called when it is
            ):
                ring.popleft()
                guest.called = False
                if not guest.parked and not guest.inside:
                    self._guests.pop(guest.name, None)
                continue
            if not self._has_room(guest.parked[0].size):
                return
            entry = guest.parked.popleft()
            guest.waiting -= 1
            self.parked -= 1
            guest.inside += 1
            self.inside += 1
            self.bytes += entry.size
            ring.rotate(-1)
            self._out_of_line(entry)
            yield entry

    def drain(self) -> list[E]:
        """All who wait outside, taken away; what is inside is forgotten."""
        left = [e for guest in self._guests.values() for e in guest.parked if e.state == PARKED]
        self._guests.clear()
        self._ring.clear()
        self._lines.clear()
        self.inside = self.bytes = self.parked = 0
        return left

    def _has_room(self, size: int) -> bool:
        limits = self._limits
        return self.inside < limits.batch_queue_max and (
            not self.inside or self.bytes + size <= limits.batch_queue_max_bytes
        )

    def _is_first(self, entry: E) -> bool:
        line = self._lines.get(entry.lane)
        return line is None or next(iter(line)) == id(entry)

    def _out_of_line(self, entry: E) -> None:
        """One no longer waits outside: the next of its lane may be another tenant's."""
        if (line := self._lines.get(entry.lane)) is None:
            return
        del line[id(entry)]
        if line:
            self._call(self._guests[next(iter(line.values())).tenant])
        else:
            del self._lines[entry.lane]

    def _call(self, guest: _Guest[E]) -> None:
        if not guest.called and guest.inside < self._limits.batch_queue_tenant_max:
            guest.called = True
            self._ring.append(guest)
