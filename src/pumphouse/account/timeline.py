"""Which messages to look at when: deadlines in order, at constant cost where they come in order.

Deadlines that are pushed in order (a constant lease, delay or retention) go to a plain queue, the
others to a heap. An entry is a hint to look at a message at a time, not the truth about it: the
message's own `due` and state are. So nothing is ever searched for and removed; what is out of date
is passed over, and cleared when it outweighs the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf

from pumphouse.account.message import Message

_SLACK = 64  # out-of-date entries that are not worth clearing


class Timeline:
    """Hints `(due, message)`; `next_due` is the earliest, or infinity."""

    __slots__ = ("_heap", "_order", "_ordered", "next_due")

    def __init__(self) -> None:
        self._ordered: deque[tuple[float, Message]] = deque()
        self._heap: list[tuple[float, int, Message]] = []
        self._order = 0
        self.next_due = inf

    def __len__(self) -> int:
        return len(self._ordered) + len(self._heap)

    def push(self, due: float, message: Message) -> None:
        ordered = self._ordered
        if not ordered or due >= ordered[-1][0]:
            ordered.append((due, message))
        else:
            self._order += 1
            heappush(self._heap, (due, self._order, message))
        if due < self.next_due:
            self.next_due = due

    def push_all(self, due: float, messages: list[Message]) -> None:
        """The same due for each of them."""
        ordered = self._ordered
        if ordered and due < ordered[-1][0]:
            for message in messages:
                self.push(due, message)
            return
        ordered.extend([(due, message) for message in messages])
        if messages and due < self.next_due:
            self.next_due = due

    def pop(self) -> Message:
        """The message of the earliest hint; there must be one."""
        heap, ordered = self._heap, self._ordered
        if heap and (not ordered or heap[0][0] < ordered[0][0]):
            message = heappop(heap)[2]
        else:
            message = ordered.popleft()[1]
        self._find_next()
        return message

    def prune(self, live: int, is_current: Callable[[float, Message], bool]) -> None:
        """Clear what is out of date once it outweighs the `live` entries; cheap otherwise."""
        most = 2 * live + _SLACK
        if len(self) <= most:
            return
        ordered = self._ordered
        while ordered and not is_current(*ordered[0]):  # what goes first mostly came first
            ordered.popleft()
        if len(self) <= most:
            self._find_next()
            return
        self._ordered = deque(entry for entry in self._ordered if is_current(*entry))
        self._heap = [entry for entry in self._heap if is_current(entry[0], entry[2])]
        heapify(self._heap)
        self._find_next()

    def drain(self, is_current: Callable[[float, Message], bool]) -> list[Message]:
        """The messages of all hints that are not out of date, which are cleared; in no order."""
        messages = [each for due, each in self._ordered if is_current(due, each)]
        messages += [each for due, _, each in self._heap if is_current(due, each)]
        self.clear()
        return messages

    def clear(self) -> None:
        self._ordered.clear()
        self._heap.clear()
        self.next_due = inf

    def _find_next(self) -> None:
        due = self._ordered[0][0] if self._ordered else inf
        if self._heap and self._heap[0][0] < due:
            due = self._heap[0][0]
        self.next_due = due
