"""Receives that may be asked for again: `ReceiveRequestAttemptId` of FIFO queues.

For five minutes a receive can be repeated under its id, for a caller that lost the answer: it gets
the same messages under the same handles, and their leases begin anew. That holds as long as nothing
has happened to them: none is deleted, none had its visibility changed or its lease end.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from pumphouse.account.message import IN_FLIGHT, Message

WINDOW_SECONDS = 300.0


class Attempt(Struct, gc=False):
    """What one receive handed out: each message with the number of its receive."""

    messages: list[tuple[Message, int]]
    due: float
    """When the leases end, if nothing happens to them."""

    def is_repeatable(self) -> bool:
        return all(
            message.state is IN_FLIGHT
            and message.receive_count == count
            and message.due == self.due
            for message, count in self.messages
        )


class Attempts:
    """The receives of one queue that had an id and brought messages, for five minutes each."""

    __slots__ = ("_by_id", "_expiry")

    def __init__(self) -> None:
        self._by_id: dict[str, Attempt] = {}
        self._expiry: deque[tuple[float, str]] = deque()

    def get(self, attempt_id: str, now: float) -> Attempt | None:
        while self._expiry and self._expiry[0][0] <= now:
            del self._by_id[self._expiry.popleft()[1]]
        return self._by_id.get(attempt_id)

    def add(self, attempt_id: str, messages: list[Message], due: float, now: float) -> None:
        """Remember a receive under an id that is not known."""
        received = [(message, message.receive_count) for message in messages]
        self._by_id[attempt_id] = Attempt(received, due)
        self._expiry.append((now + WINDOW_SECONDS, attempt_id))
