"""What can be observed of a subscription: listen with `app.hooks.on(Handled, …)`.

All are emitted on the event loop of the app. `queue` is the queue as the subscription names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Handled:
    """A handler ended, one way or another; `seconds` is how long it ran."""

    queue: str
    message_id: str
    outcome: Literal["ack", "retry", "drop", "reject", "stopped", "lost"]
    attempt: int
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """A lease ended before its message was settled; once for each lease."""

    queue: str
    message_id: str
    reason: str
    running: bool


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """SQS refused a delete or a release, or never confirmed it: the message may come again."""

    queue: str
    message_id: str
    intent: Literal["delete", "release"]
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The runtime carried a message to the dead-letter queue."""

    queue: str
    message_id: str
    dead_letter: str
    attempts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A body is not what the handler takes."""

    queue: str
    message_id: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReceivedAgain:
    """A message that is still held here came a second time: its lease had lapsed, or SQS delivered
    it twice. It isn't run twice; its newest receipt handle is used."""

    queue: str
    message_id: str


@dataclass(frozen=True, slots=True)
class PumpUnhealthy:
    """A receive failed; the next try is in `retry_in_seconds`. Emitted for each failure."""

    queue: str
    reason: str
    failures: int
    retry_in_seconds: float


@dataclass(frozen=True, slots=True)
class PumpHealed:
    """A receive succeeded again after failures."""

    queue: str
    after_failures: int


@dataclass(frozen=True, slots=True)
class LoopStalled:
    """The event loop was blocked: something ran that long without awaiting."""

    queue: str
    seconds: float
