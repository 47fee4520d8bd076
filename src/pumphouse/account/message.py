"""A message as a queue holds it, and the states it goes through.

    DELAYED --> VISIBLE <--> IN_FLIGHT --> GONE

A message is `GONE` once it was deleted, moved, purged or has outlived its retention; whatever still
refers to it passes over it.
"""

from __future__ import annotations

from msgspec import Struct

from pumphouse.protocol.operations import Attributes

DELAYED, VISIBLE, IN_FLIGHT, GONE = "delayed", "visible", "in flight", "gone"
TAKEN = "taken"
"""Between visible and in flight, while one receive is being put together."""


class Message(Struct, gc=False, eq=False):
    """One stored message. Times are the clock's: `*_at` since the epoch, the others monotonic.

    It must never refer to anything that leads back to it: the garbage collector does not look at
    it, so that a million of them cost it nothing.
    """

    message_id: str
    body: str
    md5_of_body: str
    sender_id: str
    sent_at: float
    stored: float
    """When retention began to run."""
    attributes: Attributes | None = None
    md5_of_attributes: str | None = None
    trace_header: str | None = None
    md5_of_system_attributes: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    sequence_number: str | None = None
    source_arn: str | None = None
    """The queue whose dead letter it is."""
    state: str = VISIBLE
    handle: str = ""
    """The receipt handle of its latest receive."""
    serial: int = 0
    """Its number in the queue that holds it."""
    due: float = 0.0
    """When the delay or the lease ends, while there is one."""
    received: float = 0.0
    """When it was received last."""
    first_received_at: float = 0.0
    receive_count: int = 0
    """How often it was received from the queue that holds it."""
    received_before: int = 0
    """How often it was received from other queues, before it became a dead letter."""
