"""The options of a `Sink`: their names, defaults and ranges in one place, checked before use."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from pumphouse.addressing import check_queue
from pumphouse.backoff import RetryPolicy
from pumphouse.claim_check import ClaimCheck
from pumphouse.clock import Clock, RealClock
from pumphouse.errors import UsageError
from pumphouse.hooks import Hooks
from pumphouse.protocol.attributes import (
    MAX_BATCH_ENTRIES,
    MAX_MESSAGE_BYTES,
    attribute_name_fault,
)
from pumphouse.sink.dead_letters import DeadLetterTarget
from pumphouse.sink.entry import Limits
from pumphouse.sink.outgoing import AttributeValue, Outgoing, check_id

GroupOf = str | Callable[[Outgoing], str]
AddAttributes = Callable[[Outgoing], Mapping[str, AttributeValue]]


class SinkOptions(TypedDict, total=False):
    """What `Sink` takes beside a queue and a backend; `Settings` says what each means."""

    group_id: GroupOf | None
    batch: bool
    batch_linger: float | timedelta
    batch_max_entries: int
    batch_max_bytes: int
    batch_max_inflight: int
    batch_queue_max: int
    batch_queue_max_bytes: int
    batch_queue_tenant_max: int
    wait: bool
    retry: RetryPolicy
    retry_unknown: bool
    max_message_bytes: int | None
    hash_ids: bool
    attribute_prefix: str
    add_attributes: AddAttributes | None
    claim_check: ClaimCheck | None
    on_dead_letter: DeadLetterTarget | None
    close_timeout_seconds: float
    clock: Clock
    hooks: Hooks
    rng: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options with their defaults. Durations in seconds, or `timedelta`; sizes in bytes.

    * `group_id`: the group of messages that are sent without one; a text, or a function of the
      message. On a FIFO queue the default is `tenant/source`; on a standard queue a group is sent
      only where there is one (fair queues).
    * `batch`: False sends every message in a `SendMessage` of its own.
    * `batch_linger`: how long a batch waits to fill, 0 to 60; 0 sends what is there whenever one of
      the `batch_max_inflight` requests is free.
    * `batch_max_entries` (1 to 10), `batch_max_bytes` (to 1 MiB): the size of a batch. A message
      that is larger by itself travels alone.
    * `batch_queue_max`, `batch_queue_max_bytes`, `batch_queue_tenant_max`: how many messages and
      bytes may be waiting and in flight, in all and for one tenant. Past them `send` raises
      `ThrottledError`, or waits for room where `wait` is True (in order, round-robin across
      tenants).
    * `retry`: attempts and budget of each message; nothing else retries a send.
    * `retry_unknown`: whether a message whose answer was lost is sent again although the queue may
      then hold it twice: on a standard queue always, on a FIFO queue beyond the deduplication
      window. False raises `OutcomeUnknownError` instead.
    * `max_message_bytes`: the largest body with attributes; None asks the queue, where that is
      permitted (once, and again before a message is refused for what was asked a minute ago), and
      takes 1 MiB otherwise.
    * `hash_ids`: send the SHA-256 of group and deduplication ids that SQS does not take.
    * `attribute_prefix`: what the message attributes of an `Envelope` begin with.
    * `add_attributes`: gives optional attributes (of tracing, for example), which are left out
      where the message's own and they would be more than ten.
    * `claim_check`: where bodies above its size go.
    * `on_dead_letter`: who gets what failed for good; see `dead_letters.py`.
    * `close_timeout_seconds`: how long leaving `async with` may take.
    """

    group_id: GroupOf | None = None
    batch: bool = True
    batch_linger: float | timedelta = 0.02
    batch_max_entries: int = MAX_BATCH_ENTRIES
    batch_max_bytes: int = 262_144
    batch_max_inflight: int = 8
    batch_queue_max: int = 4_096
    batch_queue_max_bytes: int = 134_217_728
    batch_queue_tenant_max: int = 1_024
    wait: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    retry_unknown: bool = False
    max_message_bytes: int | None = None
    hash_ids: bool = False
    attribute_prefix: str = "pumphouse_"
    add_attributes: AddAttributes | None = None
    claim_check: ClaimCheck | None = None
    on_dead_letter: DeadLetterTarget | None = None
    close_timeout_seconds: float = 30.0
    clock: Clock = field(default_factory=RealClock)
    hooks: Hooks = field(default_factory=Hooks)
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        for name in ("batch", "wait", "retry_unknown", "hash_ids"):
            if not isinstance(value := getattr(self, name), bool):
                raise UsageError(f"{name} is {value!r}; it is True or False")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name} is {value!r}; it is a whole number")
            if value < low or (high is not None and value > high):
                upto = f"{low} to {high}" if high is not None else f"at least {low}"
                raise UsageError(f"{name} is {value}; it is {upto}")
        _seconds("batch_linger", self.batch_linger, 60)
        _seconds("close_timeout_seconds", self.close_timeout_seconds, None)
        limit = self.max_message_bytes
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MIB
        ):
            raise UsageError(f"max_message_bytes is {limit!r}; it is 1 to {_MIB}, or None")
        if not isinstance(self.retry, RetryPolicy):
            raise UsageError(f"retry is {self.retry!r}; it is a RetryPolicy")
        prefix = self.attribute_prefix
        fault = attribute_name_fault(f"{prefix}id") if isinstance(prefix, str) else "is no text"
        if fault is not None:
            raise UsageError(f"attribute_prefix is {prefix!r}; a name that begins with it {fault}")
        group = self.group_id
        if isinstance(group, str):
            check_id("group_id", group, hashed=self.hash_ids)
        elif group is not None and (not callable(group) or inspect.iscoroutinefunction(group)):
            raise UsageError(f"group_id is {group!r}; it is text, or a function of the message")
        add = self.add_attributes
        if add is not None and (not callable(add) or inspect.iscoroutinefunction(add)):
            raise UsageError(f"add_attributes is {add!r}; it is a function of the message")
        for name, kind in _TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (value is None and name == "claim_check"):
                raise UsageError(f"{name} is {value!r}; it is a {kind.__name__}")
        if not callable(getattr(self.clock, "monotonic", None)):
            raise UsageError(f"clock is {self.clock!r}; it is a Clock")
        _check_target(self.on_dead_letter)

    def describe(self) -> dict[str, Any]:
        """What a reader of a document wants to know of them, as plain values without a secret."""
        limits = self.limits()
        return {
            "batch": {
                "enabled": self.batch,
                "linger_seconds": limits.batch_linger,
                "max_entries": limits.batch_max_entries,
                "max_bytes": limits.batch_max_bytes,
                "max_inflight": limits.batch_max_inflight,
            },
            "ceilings": {
                "entries": limits.batch_queue_max,
                "bytes": limits.batch_queue_max_bytes,
                "entries_per_tenant": limits.batch_queue_tenant_max,
            },
            "max_message_bytes": self.max_message_bytes,
            "group_id": self.group_id if isinstance(self.group_id, str) else None,
            "claim_check_above_bytes": check.inline_max_bytes
            if (check := self.claim_check)
            else None,
            "dead_letters": self.on_dead_letter is not None,
        }

    def limits(self, batch_bytes: int = MAX_MESSAGE_BYTES) -> Limits:
        """What the schedule has to know, for a destination that takes batches of so many bytes."""
        return Limits(
            batch_max_entries=self.batch_max_entries if self.batch else 1,
            batch_max_bytes=min(self.batch_max_bytes, batch_bytes),
            batch_linger=_seconds("batch_linger", self.batch_linger, 60) if self.batch else 0.0,
            batch_max_inflight=self.batch_max_inflight,
            batch_queue_max=self.batch_queue_max,
            batch_queue_max_bytes=self.batch_queue_max_bytes,
            batch_queue_tenant_max=self.batch_queue_tenant_max,
        )


_MIB = MAX_MESSAGE_BYTES
_RANGES: dict[str, tuple[int, int | None]] = {
    "batch_max_entries": (1, MAX_BATCH_ENTRIES),
    "batch_max_bytes": (1, _MIB),
    "batch_max_inflight": (1, 1_000),
    "batch_queue_max": (1, None),
    "batch_queue_max_bytes": (1, None),
    "batch_queue_tenant_max": (1, None),
}
_TYPES: dict[str, type] = {"claim_check": ClaimCheck, "hooks": Hooks, "rng": random.Random}
_NAMES = frozenset(each.name for each in fields(Settings))


def _seconds(name: str, value: object, high: float | None) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(f"{name} is {value!r}; it is seconds, or a timedelta")
    if not seconds >= 0 or (high is not None and seconds > high):
        upto = f"0 to {high:g}" if high is not None else "at least 0"
        raise UsageError(f"{name} is {seconds:g} seconds; it is {upto}")
    return float(seconds)


def _check_target(target: object) -> None:
    """Raise `UsageError` for what can't be `on_dead_letter`."""
    if target is None or isinstance(target, Path) or callable(target):
        return
    if not isinstance(target, str):
        raise UsageError(
            f"on_dead_letter is {target!r}; it is a function, a queue (text) or a directory (Path)"
        )
    try:
        name = check_queue(target)
    except UsageError as error:
        raise UsageError(f"on_dead_letter: {error}") from None
    if name != target:
        raise UsageError(
            f"on_dead_letter is {target!r}, which is no queue; a directory is Path({target!r})"
        )


def settings(options: Mapping[str, Any]) -> Settings:
    """The options with their defaults. Raises `UsageError` naming the key that can't be used."""
    if not isinstance(options, Mapping):
        raise UsageError(
            f"options are of type {type(options).__name__}; they are names with values"
        )
    if unknown := sorted(map(str, set(options) - _NAMES)):
        raise UsageError(
            f"a sink has no option {', '.join(unknown)}; "
            f"its options are {', '.join(sorted(_NAMES))}"
        )
    return Settings(**options)


def validate_options(options: Mapping[str, Any]) -> None:
    """Raise `UsageError`, naming the key, unless a `Sink` can be made with these options.

    For configuration loaders: a bad value fails when it is loaded, and not with the first message.
    """
    settings(options)
