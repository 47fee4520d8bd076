"""Who may start next: lanes, one for each group, and the order among them. No I/O, no clock.

Within a lane one delivery runs at a time, in the order of the sequence numbers, and the lane stays
taken until the runtime says that the delivery is done with (`done`) or that it comes back (`wait`,
then `wake`). Lanes take turns: a lane that has been served goes to the end. A delivery without a
key is a lane of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

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

    `line` has what handlers could start now, in turn: lanes, and deliveries without one.
    """

    def __init__(self) -> None:
        self.line: deque[Delivery | _Lane] = deque()
        self._lanes: dict[str, _Lane] = {}
        self._behind = 0  # deliveries of lanes in line that stand behind the first of their lane

    @property
    def available(self) -> int:
        """How many deliveries one batch could take."""
        return len(self.line) + self._behind

    @property
    def first_came(self) -> float:
        """When the first in line was received."""
        first = self.line[0]
        return (first if isinstance(first, Delivery) else first.queue[0]).received_at

    def add(self, *deliveries: Delivery) -> None:
        """Deliveries arrive."""
        line = self.line
        for delivery in deliveries:
            if delivery.key is None:
                line.append(delivery)
                continue
            lane = self._lanes.get(delivery.key)
            if lane is None:
                lane = self._lanes[delivery.key] = _Lane(delivery.key)
            queue = lane.queue
            if queue and queue[-1].sequence > delivery.sequence:
                behind = sum(other.sequence <= delivery.sequence for other in queue)
                queue.insert(behind, delivery)
            else:
                queue.append(delivery)
            self._line_up(lane)

    def take(self) -> Delivery:
        """The next delivery to start, of those in line; its lane is busy from here on."""
        first = self.line.popleft()
        if isinstance(first, Delivery):
            return first
        self._behind -= len(first.queue) - 1
        first.turn = False
        first.busy = 1
        return first.queue.popleft()

    def take_many(self, most: int) -> list[Delivery]:
        """Up to `most` deliveries for one batch: of each free lane all that it has, in order."""
        taken: list[Delivery] = []
        while len(taken) < most and self.line:
            head = self.take()
            taken.append(head)
            if head.key is not None:
                lane = self._lanes[head.key]
                while lane.queue and len(taken) < most:
                    taken.append(lane.queue.popleft())
                    lane.busy += 1
        return taken

    def done(self, delivery: Delivery) -> None:
        """The lane's delivery is out of the way; the next one may start."""
        if delivery.key is None:
            return
        lane = self._lanes[delivery.key]
        lane.busy -= 1
        if lane.queue:
            self._line_up(lane)
        elif not lane.busy:
            del self._lanes[delivery.key]

    def again(self, delivery: Delivery) -> None:
        """A delivery that was taken and whose delay is over goes back to the head of its lane."""
        if delivery.key is None:
            self.line.append(delivery)
            return
        lane = self._lanes[delivery.key]
        lane.busy -= 1
        queue = lane.queue
        queue.insert(sum(other.sequence < delivery.sequence for other in queue), delivery)
        self._line_up(lane)

    def behind(self, delivery: Delivery) -> Iterable[Delivery]:
        """All that wait behind a delivery."""
        if delivery.key is None or (lane := self._lanes.get(delivery.key)) is None:
            return ()
        return lane.queue

    def followers(self, delivery: Delivery) -> list[Delivery]:
        """Take out all that wait behind a delivery, in order."""
        if delivery.key is None or (lane := self._lanes.get(delivery.key)) is None:
            return []
        followers = list(lane.queue)
        lane.queue.clear()
        self._taken_out(lane, len(followers))
        return followers

    def cut(self, delivery: Delivery) -> list[Delivery]:
        """Take out one delivery that waits and all that wait behind it; returns the latter."""
        if delivery.key is None:
            self.line.remove(delivery)
            return []
        lane = self._lanes[delivery.key]
        behind: list[Delivery] = []
        while (last := lane.queue.pop()) is not delivery:
            behind.append(last)
        self._taken_out(lane, len(behind) + 1)
        return behind[::-1]

    def clear(self) -> list[Delivery]:
        """Take out everything that waits."""
        waiting = list(self)
        self.line.clear()
        self._behind = 0
        for lane in list(self._lanes.values()):
            lane.queue.clear()
            lane.turn = False
            if not lane.busy:
                del self._lanes[lane.key]
        return waiting

    def __iter__(self) -> Iterator[Delivery]:
        yield from (first for first in self.line if isinstance(first, Delivery))
        for lane in self._lanes.values():
            yield from lane.queue

    def _line_up(self, lane: _Lane) -> None:
        """A lane that has got one more, or has become free."""
        if lane.turn:
            self._behind += 1
        elif not lane.busy:
            lane.turn = True
            self.line.append(lane)
            self._behind += len(lane.queue) - 1

    def _taken_out(self, lane: _Lane, count: int) -> None:
        """So many that waited in a lane are gone from it."""
        if lane.turn:
            self._behind -= count
        if not lane.queue and not lane.busy:
            del self._lanes[lane.key]
            if lane.turn:
                self.line.remove(lane)
                self._behind += 1
