"""Who may start next: lanes, one for each group, and the order among them. No I/O, no clock.

Within a lane one delivery runs at a time, in the order of the sequence numbers, and the lane stays
taken until the runtime says that the delivery is done with (`done`) or that it comes back (`wait`,
then `wake`). Lanes take turns: a lane that has been served goes to the end. A delivery without a
key is a lane of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from pumphouse.subscriber.delivery import Delivery


class _Lane:
    __slots__ = ("busy", "key", "queue", "turn")

    def __init__(self, key: str) -> None:
        self.key = key
        self.queue: deque[Delivery] = deque()
        self.busy = 0  # deliveries of it that are running, waiting or being carried away
        self.turn = False  # it stands in the line of those that may start


class Lanes:
    """The deliveries that wait, by lane.

    `startable` is how many handlers could start something now (lanes, and deliveries without one),
    `available` how many deliveries one batch could take, `waiting` how many wait in all, those
    behind a busy head included.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        self._line: deque[Delivery | _Lane] = deque()
        self.waiting = 0
        self.available = 0

    @property
    def startable(self) -> int:
        return len(self._line)

    @property
    def first_came(self) -> float:
        """When the first in line was received."""
        first = self._line[0]
        return (first if isinstance(first, Delivery) else first.queue[0]).received_at

    def add(self, delivery: Delivery) -> None:
        """A delivery arrives."""
        self.waiting += 1
        if delivery.key is None:
            self.available += 1
            self._line.append(delivery)
            return
        lane = self._lanes.get(delivery.key)
        if lane is None:
            lane = self._lanes[delivery.key] = _Lane(delivery.key)
        if not lane.busy:
            self.available += 1
        queue = lane.queue
        if queue and queue[-1].sequence > delivery.sequence:
            behind = sum(other.sequence <= delivery.sequence for other in queue)
            queue.insert(behind, delivery)
        else:
            queue.append(delivery)
        self._line_up(lane)

    def take(self) -> Delivery | None:
        """The next delivery to start, or None; its lane is busy from here on."""
        line = self._line
        while line:
            first = line.popleft()
            if isinstance(first, Delivery):
                self.waiting -= 1
                self.available -= 1
                return first
            first.turn = False
            if first.queue and not first.busy:
                self.waiting -= 1
                self.available -= len(first.queue)
                first.busy = 1
                return first.queue.popleft()
        return None

    def take_many(self, most: int) -> list[Delivery]:
        """Up to `most` deliveries for one batch: of each free lane all that it has, in order."""
        taken: list[Delivery] = []
        while len(taken) < most and (head := self.take()) is not None:
            taken.append(head)
            if head.key is not None:
                lane = self._lanes[head.key]
                while lane.queue and len(taken) < most:
                    taken.append(lane.queue.popleft())
                    lane.busy += 1
                    self.waiting -= 1
        return taken

    def done(self, delivery: Delivery) -> None:
        """The lane's delivery is out of the way; the next one may start."""
        if delivery.key is None:
            return
        lane = self._lanes[delivery.key]
        lane.busy -= 1
        if not lane.busy:
            if lane.queue:
                self.available += len(lane.queue)
                self._line_up(lane)
            else:
                del self._lanes[delivery.key]

    def again(self, delivery: Delivery) -> None:
        """A delivery that was taken and whose delay is over goes back to the head of its lane."""
        self.waiting += 1
        if delivery.key is None:
            self.available += 1
            self._line.append(delivery)
            return
        lane = self._lanes[delivery.key]
        lane.busy -= 1
        queue = lane.queue
        queue.insert(sum(other.sequence < delivery.sequence for other in queue), delivery)
        if not lane.busy:
            self.available += len(queue)
        self._line_up(lane)

    def followers(self, delivery: Delivery) -> list[Delivery]:
        """Take out all that wait behind a delivery, in order."""
        if delivery.key is None or (lane := self._lanes.get(delivery.key)) is None:
            return []
        followers = list(lane.queue)
        lane.queue.clear()
        self.waiting -= len(followers)
        if not lane.busy:
            self.available -= len(followers)
            self._drop_if_empty(lane)
        return followers

    def cut(self, delivery: Delivery) -> list[Delivery]:
        """Take out one delivery that waits and all that wait behind it; returns the latter."""
        if delivery.key is None:
            self._line.remove(delivery)
            self.waiting -= 1
            self.available -= 1
            return []
        lane = self._lanes[delivery.key]
        behind: list[Delivery] = []
        while (last := lane.queue.pop()) is not delivery:
            behind.append(last)
        self.waiting -= len(behind) + 1
        if not lane.busy:
            self.available -= len(behind) + 1
            self._drop_if_empty(lane)
        return behind[::-1]

    def clear(self) -> list[Delivery]:
        """Take out everything that waits."""
        waiting = list(self)
        self._line.clear()
        for lane in list(self._lanes.values()):
            lane.queue.clear()
            lane.turn = False
            if not lane.busy:
                del self._lanes[lane.key]
        self.waiting = self.available = 0
        return waiting

    def __iter__(self) -> Iterator[Delivery]:
        yield from (first for first in self._line if isinstance(first, Delivery))
        for lane in self._lanes.values():
            yield from lane.queue

    def _line_up(self, lane: _Lane) -> None:
        if not lane.busy and not lane.turn and lane.queue:
            lane.turn = True
            self._line.append(lane)

    def _drop_if_empty(self, lane: _Lane) -> None:
        if not lane.queue and not lane.busy:
            del self._lanes[lane.key]
            if lane.turn:
                self._line.remove(lane)
