"""What is being handled: known to everything that a handler calls, in its task and its thread.

The runner sets it for each message, and publishing takes from it what a message hands on to those
that are published while it is handled.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import msgspec

from pumphouse.model import CORRELATION_HEADER, correlation_of
from pumphouse.protocol.operations import ReceivedMessage


class Handling(msgspec.Struct, frozen=True):
    """`of` is the message, or its correlation id, or None for a batch of messages that don't share
    one. `place` is where the handler's subscription was declared (`publishers.Place`)."""

    of: ReceivedMessage | str | None
    place: Any

    @property
    def correlation_id(self) -> str | None:
        return correlation_of_raw(self.of) if isinstance(self.of, ReceivedMessage) else self.of


handling: ContextVar[Handling | None] = ContextVar("pumphouse.handling", default=None)


def current_correlation_id() -> str | None:
    """The correlation id of the message that is being handled, or None."""
    now = handling.get()
    return now.correlation_id if now is not None else None


def correlation_of_raw(raw: ReceivedMessage) -> str:
    """The correlation id of a received message."""
    attributes = raw.message_attributes
    header = attributes.get(CORRELATION_HEADER) if attributes else None
    return correlation_of(header.string_value if header else None, raw.message_id)
