"""A FIFO queue: groups, each in order and one receive at a time.

A group hands out its messages from the front, up to the first that is not visible. So a group whose
first message is in flight or delayed hands out nothing, and several messages of one group may come
in one receive. A receive empties one group as far as it can before it goes on to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from operator import attrgetter

from pumphouse.account.attempts import Attempts
from pumphouse.account.deduplication import Deduplication
from pumphouse.account.message import GONE, TAKEN, VISIBLE, Message
from pumphouse.account.queue import Queue, is_delay
from pumphouse.account.settings import QueueSettings
from pumphouse.clock import Clock
from pumphouse.protocol.names import QueueName


class Group:
    """The messages of one group, in order; the first is not gone, later ones may be."""

    __slots__ = ("group_id", "messages", "ready")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.messages: deque[Message] = deque()
        self.ready = False
        """Whether it stands in the queue's line of groups that have something to hand out."""


class FifoQueue(Queue):
    """A queue that keeps the order within each group, and hands groups out in turn."""

    __slots__ = ("_ready", "attempts", "deduplication", "groups")

    is_fifo = True

    def __init__(
        self,
        name: QueueName,
        url: str,
        settings: QueueSettings,
        clock: Clock,
        move_to_dead_letters: Callable[[Queue, Message, float], bool],
    ) -> None:
        super().__init__(name, url, settings, clock, move_to_dead_letters)
        self.deduplication = Deduplication(settings.deduplication_scope)
        self.attempts = Attempts()
        self.groups: dict[str, Group] = {}
        self._ready: deque[Group] = deque()

    def add(self, message: Message, now: float, delay_seconds: float = 0) -> None:
        group_id = message.group_id or ""
        if (group := self.groups.get(group_id)) is None:
            group = self.groups[group_id] = Group(group_id)
        group.messages.append(message)
        super().add(message, now, delay_seconds)

    def remove(self, message: Message) -> None:
        super().remove(message)
        group = self.groups[message.group_id or ""]
        messages = group.messages
        while messages and messages[0].state is GONE:
            messages.popleft()
        if not group.ready:
            self._look_at(group)

    def _show(self, message: Message) -> None:
        message.state = VISIBLE
        self._visible += 1
        group = self.groups[message.group_id or ""]
        if not group.ready and group.messages[0] is message:
            self._look_at(group)

    def _look_at(self, group: Group) -> None:
        """Put a group in line if its first message can be handed out; forget it if it has none."""
        if not group.messages:
            del self.groups[group.group_id]
        elif group.messages[0].state is VISIBLE:
            group.ready = True
            self._ready.append(group)

    def _line(self) -> Generator[Message, None, None]:
        line = self._ready
        while line:
            group = line.popleft()
            messages = group.messages
            taken: list[Message] = []  # from the front, while the walk goes on
            try:
                while messages:
                    message = messages[0]
                    if message.state is VISIBLE:
                        yield message  # and look at this place again: it may be gone now
                    elif message.state is TAKEN:
                        taken.append(messages.popleft())
                    elif message.state is GONE:
                        messages.popleft()
                    else:
                        break
            finally:
                messages.extendleft(reversed(taken))
                group.ready = False
                self._look_at(group)

    def has_next(self) -> bool:
        return bool(self._ready)

    def configure(self, settings: QueueSettings, now: float) -> None:
        """Take other settings. Another delay holds for what is delayed already, as on AWS."""
        changed = settings.delay_seconds != self.settings.delay_seconds
        super().configure(settings, now)
        if not changed:
            return
        for message in sorted(self._delays.drain(is_delay), key=attrgetter("serial")):
            message.due = message.stored + settings.delay_seconds
            self._delays.push(message.due, message)
        self.settle(now)
        if self.parking.occupied:
            self.wake()

    def clear(self) -> None:
        super().clear()
        self.groups.clear()
        self._ready.clear()
        self.deduplication.clear()

    def _repr_parts(self) -> list[str]:
        return [f"{len(self.groups)} groups"]
