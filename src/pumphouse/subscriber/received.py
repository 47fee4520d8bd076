"""A received message as its handler sees it, its fields worked out when they are first asked for.

Most handlers look at one or two fields of their message and many middlewares at none, and reading
all of them costs more than the rest of a call. What can change later is fixed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

from pumphouse.content import ENCODING_ATTRIBUTE, decode, headers_of
from pumphouse.model import Lease, Message
from pumphouse.protocol.operations import ReceivedMessage


class Received(Message):
    """A `Message`, for all that anybody can tell."""

    __slots__ = ("_raw",)
    __qualname__ = "Message"

    _raw: ReceivedMessage

    def __getattr__(self, name: str) -> Any:
        """A field that nobody has asked for yet: its slot is empty."""
        read = _FIELDS.get(name)
        if read is None:
            raise AttributeError(f"a Message has no attribute {name!r}")
        value = read(self._raw)
        object.__setattr__(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, tuple(getattr(self, each.name) for each in fields(Message))


def received(raw: ReceivedMessage, queue: str, attempt: int, lease: Lease) -> Message:
    """The message that was received, as attempt number `attempt`.

    Raises `UndecodableError` for a body that is marked as base64 and is not.
    """
    message = _new(Received)
    _put_raw(message, raw)
    _put_queue(message, queue)
    _put_attempt(message, attempt)
    _put_lease(message, lease)
    if raw.message_attributes and ENCODING_ATTRIBUTE in raw.message_attributes:
        _put_body(message, decode(raw.body, raw.message_attributes))
    return message


# past `__setattr__`, which a frozen class forbids and which takes longer
_new = object.__new__
_put_raw = Received.__dict__["_raw"].__set__
_put_queue = Message.__dict__["queue"].__set__
_put_attempt = Message.__dict__["attempt"].__set__
_put_lease = Message.__dict__["lease"].__set__
_put_body = Message.__dict__["body"].__set__


def _seconds(raw: ReceivedMessage, name: str) -> float:
    return int(raw.attributes.get(name) or 0) / 1000


_FIELDS: dict[str, Callable[[ReceivedMessage], Any]] = {
    "message_id": lambda raw: raw.message_id,
    "body": lambda raw: decode(raw.body, raw.message_attributes),
    "headers": lambda raw: headers_of(raw.message_attributes),
    "group_id": lambda raw: raw.attributes.get("MessageGroupId"),
    "receive_count": lambda raw: int(raw.attributes.get("ApproximateReceiveCount") or 1),
    "sent_at": lambda raw: _seconds(raw, "SentTimestamp"),
    "first_received_at": lambda raw: _seconds(raw, "ApproximateFirstReceiveTimestamp"),
    "sequence_number": lambda raw: raw.attributes.get("SequenceNumber"),
    "deduplication_id": lambda raw: raw.attributes.get("MessageDeduplicationId"),
    "attributes": lambda raw: dict(raw.attributes),
}
