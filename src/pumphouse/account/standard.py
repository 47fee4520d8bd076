"""A standard queue: messages in the order in which they became visible, and fair to quiet tenants.

AWS promises no order; this queue keeps one, so that a test gives the same result each time. A
message that becomes visible again comes after those that were visible before it.

Groups on a standard queue are tenants ("fair queues"). A tenant is noisy while more than half of
what is in flight is its, and at least ten messages; the messages of others then go before its own.
AWS does not say from where on it counts a tenant as noisy; the figures are ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

from pumphouse.account.message import VISIBLE, Message
from pumphouse.account.queue import Queue
from pumphouse.account.settings import QueueSettings
from pumphouse.clock import Clock
from pumphouse.protocol.names import QueueName

NOISY_FROM = 10
_LOOK_AHEAD = 100  # messages of noisy tenants that one receive passes over


class StandardQueue(Queue):
    """A queue whose messages are handed out whatever else of their group is in flight."""

    __slots__ = ("_passed_over", "_ready", "_tenants")

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
        self._passed_over: deque[Message] = deque()  # of noisy tenants, older than what is ready
        self._tenants: dict[str, int] = {}  # how many messages of each are in flight

    def _show(self, message: Message) -> None:
        message.state = VISIBLE
        self._visible += 1
        self._ready.append(message)

    def _line(self) -> Generator[Message, None, None]:
        if self._tenants or self._passed_over:
            return self._fair_line()
        return self._through(self._ready)

    def _fair_line(self) -> Generator[Message, None, None]:
        ready, passed_over = self._ready, self._passed_over
        yield from self._through(passed_over, self._is_noisy)
        for _ in range(_LOOK_AHEAD):
            yield from self._through(ready, self._is_noisy)
            if not ready:
                break
            passed_over.append(ready.popleft())
        yield from self._through(passed_over)
        yield from self._through(ready)

    def _through(
        self, line: deque[Message], stop_at: Callable[[Message], bool] | None = None
    ) -> Generator[Message, None, None]:
        """Hand out a line from its front; what is looked at and left stays there."""
        message = None
        try:
            while line and (stop_at is None or not stop_at(line[0])):
                message = line.popleft()
                if message.state is VISIBLE:
                    yield message
        finally:
            if message is not None and message.state is VISIBLE:
                line.appendleft(message)

    def has_next(self) -> bool:
        return self._visible > 0

    def clear(self) -> None:
        super().clear()
        self._ready.clear()
        self._passed_over.clear()
        self._tenants.clear()

    # --- tenants --------------------------------------------------------------------------------

    def _is_noisy(self, message: Message) -> bool:
        if message.group_id is None:
            return False
        held = self._tenants.get(message.group_id, 0)
        return held >= NOISY_FROM and 2 * held > self._in_flight

    def _lease(self, messages: list[Message]) -> None:
        super()._lease(messages)
        tenants = self._tenants
        for message in messages:
            if (group_id := message.group_id) is not None:
                tenants[group_id] = tenants.get(group_id, 0) + 1

    def _release(self, message: Message) -> None:
        self._in_flight -= 1
        if (group_id := message.group_id) is not None:
            held = self._tenants[group_id] - 1
            if held:
                self._tenants[group_id] = held
            else:
                del self._tenants[group_id]
