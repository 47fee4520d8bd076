"""One run of the fan-out: a topic, three queues with a filter each, and who got what.

The filters are made for the events at hand: by exact values, by `anything-but`, and over the body
with `$or`. What each queue should get is worked out apart from SNS, by a plain function of the
event, and compared line by line with what its handler got. One of the queues is enveloped, so that
both ways of delivery are seen to bring the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumphouse.account import Account
from pumphouse.addressing import Topic
from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.demo.service import STALL_SECONDS
from pumphouse.errors import PumphouseError
from pumphouse.jsonl import Event
from pumphouse.model import Message
from pumphouse.notifications import subscribe_queue_to_topic
from pumphouse.protocol.attributes import forbidden_character
from pumphouse.protocol.operations import CreateQueue, GetQueueAttributes, GetQueueUrl
from pumphouse.protocol.sns_operations import CreateTopic
from pumphouse.sink import Sink
from pumphouse.subscriber.queue import Queue

TOPIC = "demo-events"
_SENT_AT_ONCE = 1_000
_TICK_SECONDS = 0.02
_COUNTS = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the filters look at in an event: None for what it does not say."""

    kind: str | None
    source: str | None
    action: str | None

    @classmethod
    def of(cls, event: Event) -> Facts:
        try:
            found: Any = msgspec.json.decode(event.body)
        except msgspec.DecodeError:
            found = None
        top = found if isinstance(found, dict) else {}
        payload = top.get("payload")
        inner = payload if isinstance(payload, dict) else {}
        return cls(_text(top.get("event")), _text(top.get("source")), _text(inner.get("action")))

    def attributes(self) -> dict[str, str]:
        """The message attributes that an event is published with."""
        found = {"event": self.kind, "source": self.source}
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True, slots=True)
class Branch:
    """A subscribed queue: its filter as SNS is told, in words, and as a plain function."""

    queue: str
    words: str
    policy: Mapping[str, Any]
    wants: Callable[[Facts], bool]
    over_body: bool = False
    enveloped: bool = False


@dataclass(slots=True)
class Delivered:
    """What a queue should get and what it got, by the lines of the events."""

    branch: Branch
    expected: set[int]
    got: Counter[int] = field(default_factory=Counter)
    damaged: list[int] = field(default_factory=list)

    @property
    def missing(self) -> list[int]:
        return sorted(self.expected - self.got.keys())

    @property
    def unwanted(self) -> list[int]:
        return sorted(self.got.keys() - self.expected)

    @property
    def twice(self) -> list[int]:
        return sorted(line for line, times in self.got.items() if times > 1)

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unwanted or self.twice or self.damaged)


@dataclass(frozen=True, slots=True)
class FanOut:
    """The outcome of a run; `unconfirmed` has the reason by line, `left` what lay in the queues."""

    events: int
    published: int
    unconfirmed: Mapping[int, str]
    branches: Sequence[Delivered]
    left: int
    requests: Mapping[str, int]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every event was published, and each queue got exactly what its filter lets by."""
        every = self.published == self.events and not self.unconfirmed and not self.left
        return every and all(each.ok for each in self.branches)


def branches_for(facts: Sequence[Facts]) -> list[Branch]:
    """Three filters that part these events."""
    kinds = [kind for kind, _ in Counter(f.kind for f in facts if f.kind).most_common(3)] or ["?"]
    sources = Counter(f.source for f in facts if f.source).most_common(1)
    source = sources[0][0] if sources else "?"
    prefix = kinds[0][: max(1, min(len(kinds[0]), 4))]
    return [
        Branch(
            "demo-frequent",
            f"event is {', '.join(kinds)}",
            {"event": kinds},
            lambda fact: fact.kind in kinds,
        ),
        Branch(
            "demo-elsewhere",
            f"source is anything but {source}",
            {"source": [{"anything-but": [source]}]},
            lambda fact: fact.source is not None and fact.source != source,
            enveloped=True,
        ),
        Branch(
            "demo-body",
            f"the body's event begins with {prefix}, or its action is created",
            {"$or": [{"event": [{"prefix": prefix}]}, {"payload": {"action": ["created"]}}]},
            lambda fact: (
                (fact.kind is not None and fact.kind.startswith(prefix)) or fact.action == "created"
            ),
            over_body=True,
        ),
    ]


async def run(
    events: Sequence[Event],
    *,
    account: Account | None = None,
    stall_seconds: float = STALL_SECONDS,
) -> FanOut:
    """Publish the events to a topic, handle what its queues get, and report.

    Without an account the run has one of its own, on the real clock. After `stall_seconds` without
    any message what is missing counts as lost.
    """
    account = account or Account(ledger_room=1)  # for its counts
    began = account.clock.monotonic()
    facts = [Facts.of(event) for event in events]
    delivered = [
        Delivered(branch, {e.line for e, f in zip(events, facts, strict=True) if branch.wants(f)})
        for branch in branches_for(facts)
    ]
    await _set_up(account, [each.branch for each in delivered])
    app = _app(events, delivered)
    async with app.running(account):
        unconfirmed = await _publish(events, facts, account)
        await _handled(account, delivered, stall_seconds)
    return FanOut(
        events=len(events),
        published=len(events) - len(unconfirmed),
        unconfirmed=unconfirmed,
        branches=delivered,
        left=await _left(account, delivered),
        requests=dict(account.ledger.counts.most_common()),
        seconds=account.clock.monotonic() - began,
    )


async def _set_up(backend: Backend, branches: Sequence[Branch]) -> None:
    await backend.execute(CreateTopic(TOPIC))
    for branch in branches:
        await backend.execute(CreateQueue(branch.queue))
        await subscribe_queue_to_topic(
            backend,
            branch.queue,
            Topic(TOPIC),
            raw_message_delivery=not branch.enveloped,
            filter_policy=branch.policy,
            filter_policy_scope="MessageBody" if branch.over_body else "MessageAttributes",
        )


def _app(events: Sequence[Event], delivered: Sequence[Delivered]) -> App:
    """An app with a handler for each queue, which notes what it gets."""
    bodies = {event.line: event.body for event in events}
    app = App("fan-out")

    def declare(each: Delivered) -> None:
        async def note(message: Message) -> None:
            line = int(message.headers["line"])
            each.got[line] += 1
            if message.text != bodies[line]:
                each.damaged.append(line)

        app.subscriber(Queue(each.branch.queue, sns="auto"), concurrency=32)(note)

    for each in delivered:
        declare(each)
    return app


async def _publish(
    events: Sequence[Event], facts: Sequence[Facts], backend: Account
) -> dict[int, str]:
    """Publish everything, many at a time; returns what was not confirmed."""
    unconfirmed: dict[int, str] = {}

    async def send(event: Event, fact: Facts) -> None:
        try:
            attributes = fact.attributes() | {"line": str(event.line)}
            await sink.send(event.body, attributes=attributes, wait=True)
        except PumphouseError as error:
            unconfirmed[event.line] = str(error)

    async with Sink(Topic(TOPIC), backend, clock=backend.clock) as sink:
        for start in range(0, len(events), _SENT_AT_ONCE):
            end = start + _SENT_AT_ONCE
            async with asyncio.TaskGroup() as tasks:
                for event, fact in zip(events[start:end], facts[start:end], strict=True):
                    tasks.create_task(send(event, fact))
    return unconfirmed


async def _handled(account: Account, delivered: Sequence[Delivered], stall_seconds: float) -> None:
    """Wait until the queues are empty, or nothing has come for `stall_seconds`."""
    clock = account.clock
    seen, since = -1, clock.monotonic()
    while await _left(account, delivered):
        await clock.sleep(_TICK_SECONDS)
        now = sum(each.got.total() for each in delivered)
        if now > seen:
            seen, since = now, clock.monotonic()
        elif clock.monotonic() - since >= stall_seconds:
            return


async def _left(backend: Backend, delivered: Sequence[Delivered]) -> int:
    """How many messages lie in the queues, visible, delayed or in flight."""
    left = 0
    for each in delivered:
        url = (await backend.execute(GetQueueUrl(each.branch.queue))).queue_url
        answer = await backend.execute(GetQueueAttributes(url, _COUNTS))
        left += sum(int(count) for count in answer.attributes.values())
    return left


def _text(value: object) -> str | None:
    """A value that can be an attribute, or None."""
    fits = isinstance(value, str) and 0 < len(value) <= 256 and not forbidden_character(value)
    return value if fits and isinstance(value, str) else None
