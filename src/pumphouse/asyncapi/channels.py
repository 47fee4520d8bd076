"""What a service reads from and writes to, before it is a document: channels, and the messages that
travel through them.

A channel is a queue or a topic, whatever it is called (name, URL, ARN), and stands there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pumphouse.addressing import Topic, destination
from pumphouse.asyncapi.schemas import name_of
from pumphouse.protocol.names import is_arn, parse_topic_arn
from pumphouse.sink.options import settings
from pumphouse.subscriber.injection.headers import HeaderNeed
from pumphouse.subscriber.kinds import members_of, returns_of, same_type
from pumphouse.subscriber.queue import Queue, as_queue, same_queue
from pumphouse.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pumphouse.app import App


@dataclass(slots=True)
class Channel:
    """A queue or topic. `receives` and `sends` are the types of what is read and written, `sinks`
    says how publishers of the app write, and `replies` is the channel that its handler's replies go
    to."""

    to: Queue | Topic
    id: str = ""
    subscription: Subscription | None = None
    receives: list[Any] = field(default_factory=list)
    sends: list[Any] = field(default_factory=list)
    sinks: list[dict[str, Any]] = field(default_factory=list)
    replies: Channel | None = None
    reply_types: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.to.name if isinstance(self.to, Topic) else self.to.known_as.name

    @property
    def headers(self) -> tuple[HeaderNeed, ...]:
        return () if self.subscription is None else self.subscription.plan.headers

    @property
    def kinds(self) -> list[Any]:
        """The types of its messages, each once."""
        found: list[Any] = []
        _add(found, [*self.receives, *self.sends])
        return found


def channels_of(app: App) -> list[Channel]:
    """The channels of an app, by their ids."""
    found: list[Channel] = []
    for subscription in app.subscriptions:
        channel = _channel(found, subscription.queue)
        channel.to = subscription.queue  # what is declared of a queue stands with its reader
        channel.subscription = subscription
        plan = subscription.plan
        _add(channel.receives, members_of(plan.payload_type if plan.payload else Any))
        _replies(found, channel, subscription)
    for publisher in app.publishers:
        to = publisher.queue or _target(publisher.destination)
        channel = _channel(found, to)
        _add(channel.sends, members_of(publisher.payload_type))
        described = settings(publisher.options).describe()
        if described not in channel.sinks:
            channel.sinks.append(described)
    for channel in found:
        channel.sinks.sort(key=msgspec.json.encode)  # whatever the order of declarations is
    found.sort(key=lambda channel: (_base(channel), *_place(channel.to)))
    taken: dict[str, int] = {}
    for channel in found:
        base = _base(channel)
        taken[base] = count = taken.get(base, 0) + 1
        channel.id = base if count == 1 else f"{base}.{count}"
    return found


def _replies(found: list[Channel], channel: Channel, subscription: Subscription) -> None:
    """Note where the replies of a handler go. The operation has room for one of the channels; what
    is sent to the others are messages like any."""
    for publisher in subscription.handler.publishers if subscription.handler else ():
        channel.replies = _channel(found, _target(publisher.destination_from(subscription.place)))
        channel.reply_types = members_of(publisher.payload_type)
        _add(channel.replies.sends, channel.reply_types)
    if subscription.publish is not None:
        returns = returns_of(subscription.plan.function)
        replied = [each for kind in returns.types for each in members_of(kind)]
        if returns.unknown or not replied:
            replied.append(Any)
        channel.replies = _channel(found, _target(subscription.publish))
        channel.reply_types = replied
        _add(channel.replies.sends, replied)


def _target(to: str | Topic) -> Queue | Topic:
    to = destination(to) if isinstance(to, str) else to
    return to if isinstance(to, Topic) else as_queue(to)


def _channel(found: list[Channel], to: Queue | Topic) -> Channel:
    for channel in found:
        if _is_same(channel.to, to):
            return channel
    found.append(Channel(to))
    return found[-1]


def _is_same(one: Queue | Topic, other: Queue | Topic) -> bool:
    if isinstance(one, Topic) and isinstance(other, Topic):
        mine, theirs = _place(one), _place(other)
        return one.name == other.name and all(
            not a or not b or a == b for a, b in zip(mine, theirs, strict=True)
        )
    return isinstance(one, Queue) and isinstance(other, Queue) and same_queue(one, other)


def _place(to: Queue | Topic) -> tuple[str, str]:
    """Region and account, as far as they are known."""
    if isinstance(to, Queue):
        return to.known_as.region, to.known_as.account_id
    if not is_arn(to.reference):
        return "", ""
    name = parse_topic_arn(to.reference)
    return name.region, name.account_id


def regions_of(channels: Iterable[Channel]) -> set[str]:
    """The regions that the channels' references tell."""
    return {region for channel in channels if (region := _place(channel.to)[0])}


def _base(channel: Channel) -> str:
    """A name that no queue can have for a topic, so that the two never get in each other's way."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", channel.name)
    return f"{name}.topic" if isinstance(channel.to, Topic) else name


# --- messages -------------------------------------------------------------------------------------


def _add(kinds: list[Any], more: list[Any]) -> None:
    for kind in more:
        if not any(same_type(kind, known) for known in kinds):
            kinds.append(kind)


def message_names(kinds: list[Any]) -> dict[int, str]:
    """A name for each of a channel's messages, by its place; two types of one name are counted."""
    names: dict[int, str] = {}
    taken: dict[str, int] = {}
    for place, kind in enumerate(kinds):
        name = name_of(kind)
        taken[name] = count = taken.get(name, 0) + 1
        names[place] = name if count == 1 else f"{name}-{count}"
    return names
