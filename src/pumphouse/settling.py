"""One request that deletes up to ten messages or changes their leases, and each entry's own answer.

An entry is confirmed only when the answer names it; one that the answer leaves out is unknown, and
a request that fails as a whole fails for each. Which entries travel together, when they are sent
again and what follows is for the callers to say. These schedule apart for a reason: in
`subscriber/settlement.py` a delivery keeps its own state and nobody waits for it, in
`transport/settling.py` a caller waits for each entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from pumphouse.backend import Backend
from pumphouse.errors import OutcomeUnknownError, PumphouseError
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchRequestEntry,
    ChangeMessageVisibilityBatchResult,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    DeleteMessageBatchResult,
)

_id = attrgetter("id")
_IDS = [str(number) for number in range(MAX_BATCH_ENTRIES)]

Failures = dict[int, PumphouseError]
"""What went wrong, by the position of the entry; empty when every entry is confirmed."""


async def delete(backend: Backend, queue_url: str, handles: Sequence[str]) -> Failures:
    """Delete the messages behind one to ten receipt handles; raises for a failure of the whole."""
    return _failures(
        await backend.execute(
            DeleteMessageBatch(
                queue_url,
                list(map(DeleteMessageBatchRequestEntry, _IDS, handles)),
            )
        ),
        len(handles),
    )


async def change_visibility(
    backend: Backend, queue_url: str, changes: Sequence[tuple[str, int]]
) -> Failures:
    """Let one to ten leases, by receipt handle, end in so many seconds; raises as `delete`."""
    return _failures(
        await backend.execute(
            ChangeMessageVisibilityBatch(
                queue_url,
                [
                    ChangeMessageVisibilityBatchRequestEntry(key, handle, seconds)
                    for key, (handle, seconds) in zip(_IDS, changes, strict=False)
                ],
            )
        ),
        len(changes),
    )


def _failures(
    answer: DeleteMessageBatchResult | ChangeMessageVisibilityBatchResult, count: int
) -> Failures:
    confirmed = set(map(_id, answer.successful))
    if not answer.failed and confirmed.issuperset(_IDS[:count]):
        return {}
    reasons = {
        entry.id: from_answer(
            entry.code,
            entry.message or "",
            status=400 if entry.sender_fault else 500,
            sender_fault=entry.sender_fault,
        )
        for entry in answer.failed
    }
    failures: Failures = {}
    for position, key in enumerate(_IDS[:count]):
        if key in reasons:
            failures[position] = reasons[key]
        elif key not in confirmed:
            failures[position] = OutcomeUnknownError(f"the answer says nothing of entry {key}")
    return failures
