"""A dead letter: what is kept of a message that failed for good, and its line of JSON."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from pumphouse.addressing import Topic
from pumphouse.errors import PumphouseError, ServiceError
from pumphouse.protocol.operations import Attributes, MessageAttributeValue

KINDS = (
    *("refused", "config_errors", "too_large", "throttled", "transient", "unreachable"),
    *("unknown", "not_sent", "failed"),
)
"""The words for a failure. What is `unknown` may be in the queue."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good, as it went over the wire, and why.

    `queue` is where it was to go: a topic where `to_topic` is True.

    `kind` is the word for the failure, one of `KINDS`. `at` is in seconds since the epoch. `key` is
    this letter's own: a replay goes by it.
    """

    queue: str
    kind: str
    error: PumphouseError
    attempts: int
    at: float
    body: str
    attributes: Attributes | None = None
    id: str | None = None
    tenant: str | None = None
    source: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    replay_id: str | None = None
    delay: int | None = None
    to_topic: bool = False
    subject: str | None = None
    message_structure: str | None = None
    trace_header: str | None = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def to_json(self) -> bytes:
        """One line of a directory. There is one for every letter: what JSON can't carry of a text
        is escaped."""
        error: dict[str, Any] = {
            "class": type(self.error).__name__,
            "message": _text(str(self.error)),
        }
        if isinstance(self.error, ServiceError):
            error |= {"code": _text(self.error.code), "status": self.error.status}
        line: dict[str, Any] = {
            "v": 1,
            "key": self.key,
            "at": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds"),
            "queue": _text(self.queue),
            "kind": self.kind,
            "error": error,
            "attempts": self.attempts,
            "id": _text(self.id),
            "tenant": _text(self.tenant),
            "source": _text(self.source),
            "group_id": _text(self.group_id),
            "deduplication_id": _text(self.deduplication_id),
            "replay_id": _text(self.replay_id),
            "delay": self.delay,
            "body": _text(self.body),
            "attributes": {
                _text(name): {"type": _text(value.data_type), "text": _text(value.string_value)}
                if value.binary_value is None
                else {
                    "type": _text(value.data_type),
                    "base64": base64.b64encode(value.binary_value).decode(),
                }
                for name, value in (self.attributes or {}).items()
            },
        }
        if self.trace_header:
            line["trace_header"] = _text(self.trace_header)
        if self.to_topic:
            line |= {
                "to_topic": True,
                "subject": _text(self.subject),
                "message_structure": _text(self.message_structure),
            }
        return msgspec.json.encode(line) + b"\n"


def _text(value: Any) -> str | None:
    """A text as JSON carries it: of no class of its own, and in UTF-8."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    return text.encode(errors="backslashreplace").decode()


class _AttributeLine(msgspec.Struct):
    type: str
    text: str | None = None
    base64: bytes | None = None


class DeadLetterLine(msgspec.Struct):
    """A line of a directory, read back; what it says about the failure is for people."""

    v: int
    queue: str
    kind: str
    body: str
    key: str | None = None
    attributes: dict[str, _AttributeLine] = {}
    id: str | None = None
    tenant: str | None = None
    source: str | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    replay_id: str | None = None
    delay: int | None = None
    to_topic: bool = False
    subject: str | None = None
    message_structure: str | None = None
    trace_header: str | None = None

    @property
    def destination(self) -> str | Topic:
        """Where it was to go."""
        return Topic(self.queue) if self.to_topic else self.queue

    def message_attributes(self) -> dict[str, MessageAttributeValue]:
        return {
            name: MessageAttributeValue(line.type, line.text, line.base64)
            for name, line in self.attributes.items()
        }
