"""A standard queue: messages in the order in which they became visible.

AWS promises no order; this queue keeps one, so that a test gives the same result each time. A
message that becomes visible again comes after those that were visible before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

from pumphouse.account.message import VISIBLE, Message
from pumphouse.account.queue import Queue
from pumphouse.account.settings import QueueSettings
from pumphouse.clock import Clock
from pumphouse.protocol.names import QueueName


class StandardQueue(Queue):
    """A queue whose messages are handed out without regard to their group."""

    __slots__ = ("_ready",)

    def __init__(
        self,
        name: QueueName,
        url: str,
        settings: QueueSettings,
        clock: Clock,
        move_to_dead_letters: Callable[[Queue, Message, float], bool],
    ) -> None:
        super().__init__(name, url, settings, clock, move_to_dead_letters)
        self._ready: deque[Message] = deque()

    def _show(self, message: Message) -> None:
        message.state = VISIBLE
        self.visible += 1
        self._ready.append(message)

    def _line(self) -> Generator[Message, None, None]:
        ready = self._ready
        message = None
        try:
            while ready:
                message = ready.popleft()
                if message.state is VISIBLE:
                    yield message
        finally:
            if message is not None and message.state is VISIBLE:
                ready.appendleft(message)  # it was looked at and left

    def has_next(self) -> bool:
        return self.visible > 0

    def clear(self) -> None:
        super().clear()
        self._ready.clear()
