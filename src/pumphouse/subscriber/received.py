"""A received message as its handler sees it, its fields worked out when they are first asked for.

Most handlers look at one or two fields of their message and many middlewares at none, and reading
all of them costs more than the rest of a call. What can change later is fixed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

from pumphouse.clock import Clock, epoch_of
from pumphouse.content import ENCODING_ATTRIBUTE, decode, headers_of
from pumphouse.model import Lease, Message
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.delivery import Delivery

_Source = tuple[ReceivedMessage, str, int, Delivery, Clock]
"""The message, its queue's name, the number of the attempt, its delivery, and the clock."""


class Received(Message):
    """A `Message`, for all that anybody can tell."""

    __slots__ = ("_source",)
    __qualname__ = "Message"

    _source: _Source

    def __getattr__(self, name: str) -> Any:
        """A field that nobody has asked for yet: its slot is empty."""
        read = _FIELDS.get(name)
        if read is None:
            raise AttributeError(
                f"a Message has no attribute {name!r}; what was sent is body (bytes) and text "
                "(str), and a parameter annotated dict, or with a class, gets it parsed"
            )
        value = read(self._source)
        object.__setattr__(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Message, tuple(getattr(self, each.name) for each in fields(Message))


def received(delivery: Delivery, queue: str, clock: Clock) -> Message:
    """The message of a delivery, in the attempt that it is now.

    Raises `UndecodableError` for a body that is marked as base64 and is not.
    """
    raw = delivery.restored or delivery.raw
    message = _new(Received)
    _put_source(message, (raw, queue, delivery.attempt, delivery, clock))
    attributes = raw.message_attributes
    if attributes and ENCODING_ATTRIBUTE in attributes:
        message.body  # noqa: B018 - it is read now, to find out whether it can be
    return message


# past `__setattr__`, which a frozen class forbids
_new = object.__new__
_put_source = Received.__dict__["_source"].__set__


def lease_of(delivery: Delivery, clock: Clock) -> Lease:
    """The lease that handlers see of a delivery: always the same one."""
    lease = delivery.lease
    if lease is None:
        lease = delivery.lease = Lease(delivery.lease_until + epoch_of(clock))
        lease.lost = delivery.lease_lost or delivery.given_back
    return lease


def _attribute(name: str) -> Callable[[_Source], Any]:
    return lambda source: source[0].attributes.get(name)


def _seconds(name: str) -> Callable[[_Source], Any]:
    return lambda source: int(source[0].attributes.get(name) or 0) / 1000


_FIELDS: dict[str, Callable[[_Source], Any]] = {
    "message_id": lambda source: source[0].message_id,
    "queue": lambda source: source[1],
    "body": lambda source: decode(source[0].body, source[0].message_attributes),
    "headers": lambda source: headers_of(source[0].message_attributes),
    "group_id": _attribute("MessageGroupId"),
    "attempt": lambda source: source[2],
    "receive_count": lambda source: int(source[0].attributes.get("ApproximateReceiveCount") or 1),
    "sent_at": _seconds("SentTimestamp"),
    "first_received_at": _seconds("ApproximateFirstReceiveTimestamp"),
    "sequence_number": _attribute("SequenceNumber"),
    "deduplication_id": _attribute("MessageDeduplicationId"),
    "attributes": lambda source: dict(source[0].attributes),
    "lease": lambda source: lease_of(source[3], source[4]),
}
