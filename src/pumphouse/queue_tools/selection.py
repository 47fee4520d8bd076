"""Which messages of a queue are meant: conditions such as `reason~Timeout` or `body.order.id=5`.

A condition is a place, an operator and a value, no more: nothing is evaluated, and no pattern can
take long. Several conditions must all hold. A place that a message does not have holds for no
operator but `!=` and `!~`.

| Place | Is |
|---|---|
| `body` | the body as text |
| `body.order.id` | what is at that path in a body of JSON; a number leads into a list |
| `attr.tenant` | a message attribute |
| `reason` | why it is a dead letter (`pumphouse.reason`, or `pumphouse.error_message` of a sink) |
| `source` | the queue that it came from, by name |
| `group`, `id`, `receives` | its group, its message id, how often it was received |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from pumphouse.errors import UsageError
from pumphouse.protocol.names import (
    QueueName,
    is_arn,
    is_queue_url,
    parse_queue_arn,
    parse_queue_url,
)
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.dead_letters import REASON, SOURCE

SINK_REASON = "pumphouse.error_message"
SINK_QUEUE = "pumphouse.queue"
MAX_CHARACTERS = 1_000

_CONDITION = re.compile(r"(?P<place>[^=~!]+)(?P<operator>!=|!~|=|~)(?P<value>.*)", re.DOTALL)
_NOTHING = object()
_PLAIN_PLACES = ("body", "reason", "source", "group", "id", "receives")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a message; `operator` is `=`, `!=`, `~` (contains) or `!~`."""

    place: str
    operator: str
    value: str

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether a message is one that is meant."""
        found = _at(message, self.place)
        if self.operator in ("=", "!="):
            return (found is not _NOTHING and self._equals(found)) == (self.operator == "=")
        contained = found is not _NOTHING and self.value in _text(found)
        return contained == (self.operator == "~")

    def _equals(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.value
        try:
            value = msgspec.json.decode(self.value)
        except msgspec.DecodeError:
            return False
        if isinstance(value, bool) or isinstance(found, bool):  # 1 is not true
            return value is found
        return bool(value == found)

    def __str__(self) -> str:
        return f"{self.place}{self.operator}{self.value}"


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises `UsageError` for what is none, naming what there is."""
    match = _CONDITION.fullmatch(text) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise UsageError(
            f"{text[:80]!r} is no condition; it is a place, one of = != ~ !~ and a value, for "
            "example reason~Timeout, attr.tenant=acme or body.order.id=5"
        )
    place, operator, value = match.group("place", "operator", "value")
    if place != place.strip():  # is what is behind the operator a part of the value, or not?
        raise UsageError(
            f"{text[:80]!r} has a space before its {operator}; write it without, and what follows "
            f"the {operator} is the value as it stands"
        )
    if value[:1] in ("=", "~"):  # taken as a value it would hold for nothing, or with ! for all
        raise UsageError(
            f"{operator + value[0]!r} is no operator; there are = (is), != (is not), ~ (contains) "
            "and !~ (does not contain), and no value begins with = or ~"
        )
    first, _, rest = place.partition(".")
    if place not in _PLAIN_PLACES and not (first in ("body", "attr") and rest):
        raise UsageError(
            f"{place!r} is no place in a message; there are body, body.KEY, attr.NAME, "
            f"{', '.join(_PLAIN_PLACES[1:-1])} and {_PLAIN_PLACES[-1]}"
        )
    if place == "source":
        value = queue_of(value).name
    elif place == "receives" and operator in ("=", "!=") and not value.isdecimal():
        raise UsageError(f"receives is a whole number, not {value[:80]!r}")
    return Condition(place, operator, value)


def all_hold(conditions: Iterable[Condition]) -> Callable[[ReceivedMessage], bool]:
    """A function that says whether every condition holds."""
    wanted = tuple(conditions)
    return lambda message: all(condition.holds(message) for condition in wanted)


def _at(message: ReceivedMessage, place: str) -> Any:
    match place:
        case "body":
            return message.body
        case "reason":
            found = attribute_text(message, REASON)
            return _or_nothing(attribute_text(message, SINK_REASON) if found is None else found)
        case "source":
            source = source_of(message)
            return _NOTHING if source is None else queue_of(source).name
        case "group":
            return _or_nothing(message.attributes.get("MessageGroupId"))
        case "id":
            return message.message_id
        case "receives":
            return int(message.attributes.get("ApproximateReceiveCount") or 0)
    kind, _, rest = place.partition(".")
    if kind == "attr":
        return _or_nothing(attribute_text(message, rest))
    try:
        return _down(msgspec.json.decode(message.body), rest)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


def _or_nothing(value: str | None) -> Any:
    return _NOTHING if value is None else value


def attribute_text(message: ReceivedMessage, name: str) -> str | None:
    """A message attribute as text; bytes as far as they are text."""
    attribute = (message.message_attributes or {}).get(name)
    if attribute is None:
        return None
    if attribute.binary_value is not None:
        return attribute.binary_value.decode(errors="replace")
    return attribute.string_value


def source_of(message: ReceivedMessage) -> str | None:
    """The queue whose dead letter a message is, by ARN, URL or name: as SQS says, which moved it,
    or as it was noted by the runtime, which carried it, or by the sink that could not send it."""
    return (
        message.attributes.get("DeadLetterQueueSourceArn")
        or attribute_text(message, SOURCE)
        or attribute_text(message, SINK_QUEUE)
    )


def queue_of(reference: str) -> QueueName:
    """What a noted reference says: name, account and region, as far as it does."""
    try:
        if is_queue_url(reference):
            return parse_queue_url(reference)
        if is_arn(reference):
            return parse_queue_arn(reference)
    except ValueError:
        pass
    return QueueName(reference)


def _down(value: Any, path: str) -> Any:
    """What is at a dotted path; the whole rest of a path wins as a key over its parts."""
    if isinstance(value, dict) and path in value:
        return value[path]
    first, dot, rest = path.partition(".")
    if isinstance(value, dict) and first in value:
        found = value[first]
    elif isinstance(value, list) and first.isascii() and first.isdigit() and len(first) < 10:
        found = value[int(first)] if int(first) < len(value) else _NOTHING
    else:
        return _NOTHING
    if not dot:
        return found
    return _down(found, rest)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
