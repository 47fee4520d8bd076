"""What AWS asks of every batch, and how an entry that failed is answered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES, is_entry_id
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import BatchResultErrorEntry

_is_entry_id = lru_cache(maxsize=1024)(is_entry_id)  # they are the same few in most batches


class Entry(Protocol):
    @property
    def id(self) -> str: ...


def check_batch(entries: Sequence[Entry], kind: str) -> None:
    """Raise AWS's error for a batch that is empty or too long, or whose ids it does not take.

    `kind` is AWS's name for an entry.
    """
    if not entries:
        raise fault("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > MAX_BATCH_ENTRIES:
        raise fault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {MAX_BATCH_ENTRIES}. "
            f"You have sent {len(entries)}.",
        )
    seen = set()
    for entry in entries:
        entry_id = entry.id
        if not _is_entry_id(entry_id):
            raise fault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
        if entry_id in seen:
            raise fault("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")
        seen.add(entry_id)


def no_value(where: str) -> ServiceError:
    """AWS's fault for a value of an entry that is empty."""
    return fault("EmptyValue", f"No Value Found for {where}.")


def failed_entry(entry_id: str, error: ServiceError) -> BatchResultErrorEntry:
    return BatchResultErrorEntry(entry_id, error.sender_fault, error.code, error.message)
