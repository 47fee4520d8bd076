"""What a FIFO queue remembers of the last five minutes, so that nothing is stored twice.

The window runs from the first send, whatever becomes of the message meanwhile. With the scope
`messageGroup` an id counts within its group only; the scope is that of the queue's creation, which
is what AWS goes by too when the attribute is changed later.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256

WINDOW_SECONDS = 300.0

Key = str | tuple[str, str]


class Deduplication:
    """The deduplication ids of one queue and the answers that they were given."""

    __slots__ = ("_expiry", "_known", "_per_group")

    def __init__(self, scope: str) -> None:
        self._per_group = scope == "messageGroup"
        self._known: dict[Key, tuple[str, str]] = {}
        self._expiry: deque[tuple[float, Key]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def lookup(self, group_id: str, deduplication_id: str, now: float) -> tuple[str, str] | None:
        """Message id and sequence number of the message that this would double, or None."""
        expiry = self._expiry
        while expiry and expiry[0][0] <= now:
            del self._known[expiry.popleft()[1]]
        key = (group_id, deduplication_id) if self._per_group else deduplication_id
        return self._known.get(key)

    def remember(
        self,
        group_id: str,
        deduplication_id: str,
        message_id: str,
        sequence_number: str,
        now: float,
    ) -> None:
        key = (group_id, deduplication_id) if self._per_group else deduplication_id
        self._known[key] = (message_id, sequence_number)
        self._expiry.append((now + WINDOW_SECONDS, key))

    def clear(self) -> None:
        """Forget everything, as a purge does."""
        self._known.clear()
        self._expiry.clear()


def content_id(body: bytes) -> str:
    """The deduplication id that a queue makes from a body: its SHA-256, attributes not counted."""
    return sha256(body).hexdigest()
