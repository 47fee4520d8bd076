"""What the account carried out: every operation with its time and its outcome, for tests to read.

It keeps the latest entries only, and counts all. An account whose ledger has no room keeps none and
pays nothing for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, overload

from msgspec import Struct

from pumphouse.protocol.names import QueueName, is_queue_url, parse_queue_url
from pumphouse.protocol.operations import (
    Attributes,
    Operation,
    Result,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageResult,
)


class Entry(Struct, frozen=True):
    """One operation that was executed.

    `started_at` is in seconds since the epoch. `result` or `error` is what the caller got, also
    where a fault made it up. Both are set where the operation was carried out and the answer lost
    or given up; the error of one that was given up is its `CancelledError`.
    """

    started_at: float
    region: str
    account_id: str
    operation: Operation[Any]
    result: Result | None
    error: BaseException | None

    @property
    def action(self) -> str:
        """AWS's name of the operation."""
        return self.operation.action


class Ledger:
    """The latest operations in the order in which they ended; `len`, iteration and indexing work.

    `counts` has the number of operations by action, of all that there were.
    """

    def __init__(self, room: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=max(0, room))
        self.counts: Counter[str] = Counter()

    @property
    def room(self) -> int:
        """How many entries it keeps; 0 means that it is off."""
        return self._entries.maxlen or 0

    def record(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.counts[entry.operation.action] += 1

    def of(self, action: str | type[Operation[Any]]) -> list[Entry]:
        """The entries of one action, by its name or its operation."""
        name = action if isinstance(action, str) else action.action
        return [entry for entry in self._entries if entry.operation.action == name]

    def clear(self) -> None:
        """Forget everything, the counts too."""
        self._entries.clear()
        self.counts.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            return list(self._entries)[index]
        return self._entries[index]

    def __repr__(self) -> str:
        total = sum(self.counts.values())
        counts = ", ".join(f"{count} {action}" for action, count in self.counts.most_common(5))
        return f"<Ledger: {total} operations{': ' if counts else ''}{counts}>"


class Sent(Struct, frozen=True, gc=False):
    """A message that was stored in a queue."""

    message_id: str
    body: str
    sent_at: float
    attributes: Attributes | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    delay_seconds: int | None = None
    sequence_number: str | None = None


def sent_to(queue: QueueName, ledger: Ledger) -> list[Sent]:
    """The messages that the ledger's sends stored in a queue, each once."""
    found: dict[str, Sent] = {}
    for entry in ledger:
        operation, result = entry.operation, entry.result
        if not isinstance(operation, SendMessage | SendMessageBatch):
            continue
        if _name_of(operation.queue_url, entry) != queue:
            continue
        if isinstance(operation, SendMessage) and isinstance(result, SendMessageResult):
            pairs: list[tuple[SendMessage | SendMessageBatchRequestEntry, str, str | None]] = [
                (operation, result.message_id, result.sequence_number)
            ]
        elif isinstance(operation, SendMessageBatch) and isinstance(result, SendMessageBatchResult):
            requests = {request.id: request for request in operation.entries}
            pairs = [
                (requests[done.id], done.message_id, done.sequence_number)
                for done in result.successful
            ]
        else:
            continue
        for request, message_id, sequence_number in pairs:
            sent = Sent(
                message_id,
                request.message_body,
                entry.started_at,
                request.message_attributes,
                request.message_group_id,
                request.message_deduplication_id,
                request.delay_seconds,
                sequence_number,
            )
            found.setdefault(message_id, sent)  # a double is answered with the first's id
    return list(found.values())


def _name_of(url: str, entry: Entry) -> QueueName:
    name = QueueName(url)
    if is_queue_url(url):
        with suppress(ValueError):
            name = parse_queue_url(url)
    return QueueName(name.name, name.account_id or entry.account_id, entry.region)
