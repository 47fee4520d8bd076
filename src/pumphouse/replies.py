"""What a handler returned, as the messages that are to be published for it.

Each reply goes to its own `to`, or to everything that the subscription publishes to: its `publish=`
and the publishers that decorate the handler. What is worked out here does not depend on how often
the message is handled, so that on a FIFO queue a reply is stored once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from pumphouse.addressing import Topic, destination
from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.publishers import Outgoing, Publisher, is_fifo
from pumphouse.subscriber.decoding import encode_reply
from pumphouse.subscriber.outcomes import Reply
from pumphouse.subscriber.subscription import Subscription


class ToSend(NamedTuple):
    """One message as it was made, and the publisher that it belongs to, if any. `group_id` and
    `deduplication_id` are what it gets at a FIFO destination where it has none."""

    outgoing: Outgoing
    publisher: Publisher[Any] | None = None
    group_id: str | None = None
    deduplication_id: str | None = None

    def fitted(self, outgoing: Outgoing) -> Outgoing:
        """The message with the ids that its destination takes. A middleware may have moved it to
        one of the other kind: standard queues and topics know no deduplication, so the id is left
        out that it had for a FIFO one; one that was given for a standard one is refused there."""
        if is_fifo(outgoing.destination):
            group = outgoing.group_id or self.group_id
            deduplication = outgoing.deduplication_id or self.deduplication_id
            if (group, deduplication) == (outgoing.group_id, outgoing.deduplication_id):
                return outgoing
            return replace(outgoing, group_id=group, deduplication_id=deduplication)
        if outgoing.deduplication_id is not None and is_fifo(self.outgoing.destination):
            return replace(outgoing, deduplication_id=None)
        return outgoing


def replies_of(subscription: Subscription, value: object, message: Message) -> list[ToSend] | None:
    """The messages, in order; None where the subscription has no use for the value.

    Raises `UsageError` for a `Reply` that has nowhere to go, or that can't be encoded.
    """
    several = isinstance(value, list | tuple) and any(isinstance(each, Reply) for each in value)
    if isinstance(value, list | tuple) and several:
        if not all(isinstance(each, Reply) for each in value):
            raise UsageError("a list of replies has a Reply for each of them, and nothing else")
        replies = list(value)
    elif isinstance(value, list | tuple) and not value and subscription.several_replies:
        return []
    elif isinstance(value, Reply):
        replies = [value]
    elif subscription.publish is None and not _publishers(subscription):
        return None
    else:
        replies = [Reply(value)]
    return [
        _with_ids(each, message, number)
        for number, each in enumerate(
            each for reply in replies for each in _targets(subscription, reply)
        )
    ]


def _targets(subscription: Subscription, reply: Reply) -> Iterator[ToSend]:
    """The messages of one reply, without what depends on the message that it replies to."""
    place = subscription.place
    if isinstance(reply.to, Publisher):
        yield _message(reply, reply.to.destination_from(place), reply.to)
        return
    if reply.to is not None:
        to = destination(reply.to) if isinstance(reply.to, str) else reply.to
        if not isinstance(to, str | Topic):
            raise UsageError(f"Reply(to=…) is a queue's name, a Topic or a Publisher, not {to!r}")
        yield _message(reply, place.named(to) if place is not None else to)
        return
    publishers = _publishers(subscription)
    if subscription.publish is None and not publishers:
        raise UsageError(
            "nothing says where it goes: give Reply(to=…), or the subscription publish=…"
        )
    if subscription.publish is not None:
        yield _message(reply, subscription.publish)
    for publisher in publishers:
        yield _message(reply, publisher.destination_from(place), publisher)


def _message(reply: Reply, to: Any, publisher: Publisher[Any] | None = None) -> ToSend:
    body = encode_reply(reply.body) if publisher is None else publisher.encode(reply.body)
    outgoing = Outgoing(
        to,
        body,
        headers=reply.headers or {},
        group_id=reply.group_id,
        deduplication_id=reply.deduplication_id,
        delay_seconds=reply.delay_seconds,
        tenant=reply.tenant,
    )
    return ToSend(outgoing, publisher)


def _publishers(subscription: Subscription) -> tuple[Publisher[Any], ...]:
    """Those that decorate the handler."""
    return subscription.handler.publishers if subscription.handler is not None else ()


def _with_ids(reply: ToSend, message: Message, number: int) -> ToSend:
    """With the ids for a FIFO destination: the group of the message, and a deduplication id that
    every attempt makes anew."""
    nth = f"-{number}" if number else ""
    made_anew = f"reply-{message.message_id}{nth}"
    made = ToSend(reply.outgoing, reply.publisher, message.group_id, made_anew)
    fitted = made.fitted(made.outgoing)
    return made if fitted is made.outgoing else made._replace(outgoing=fitted)
