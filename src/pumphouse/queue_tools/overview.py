"""The queues of an account, with what their attributes say: `overview`.

Everything comes from `ListQueues` and one `GetQueueAttributes` for each; nothing is received. The
numbers are SQS's own, approximate ones. The age of the oldest message is no attribute of a queue
(AWS publishes it to CloudWatch only), so it is known only where a queue can be looked into.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from pumphouse.backend import Backend
from pumphouse.clock import RealClock
from pumphouse.errors import ConfigError, PumphouseError, UsageError
from pumphouse.protocol.names import parse_queue_arn, parse_queue_url
from pumphouse.protocol.operations import GetQueueAttributes, ListQueues, ReceivedMessage
from pumphouse.queue_tools.reading import Look
from pumphouse.subscriber.setup import redrive_policy_of

PAGE = 1_000
_MOST_PAGES = 1_000
_ATTRIBUTES = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "QueueArn",
    "RedrivePolicy",
]


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """One queue. The numbers are None where its attributes could not be read, and `problem` says
    why; `oldest_seconds` is the age of the oldest visible message, None where it is not known;
    `dead_letter` and `max_receives` are its redrive policy's."""

    name: str
    url: str
    kind: Literal["standard", "fifo"]
    arn: str = ""
    visible: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    oldest_seconds: float | None = None
    dead_letter: str | None = None
    max_receives: int | None = None
    problem: str = ""


async def overview(
    backend: Backend, prefix: str = "", *, concurrency: int = 16, look: Look | None = None
) -> list[QueueOverview]:
    """Every queue whose name begins with the prefix, by name; with `look`, the age of its oldest
    message too, where it can be had.

    Raises what listing them raises; a queue whose attributes can't be read has a `problem`.
    """
    if not 1 <= concurrency <= 100:
        raise UsageError(f"concurrency is 1 to 100, not {concurrency}")
    room = asyncio.Semaphore(concurrency)

    async def one(url: str) -> QueueOverview:
        async with room:
            return await look_at(backend, url, look)

    urls = await _urls(backend, prefix)
    async with asyncio.TaskGroup() as tasks:
        looking = [tasks.create_task(one(url)) for url in urls]
    return sorted((each.result() for each in looking), key=lambda queue: queue.name)


async def _urls(backend: Backend, prefix: str) -> list[str]:
    urls: dict[str, None] = {}
    token: str | None = None
    for _ in range(_MOST_PAGES):
        page = await backend.execute(ListQueues(prefix or None, token, PAGE))
        urls.update(dict.fromkeys(page.queue_urls))
        token = page.next_token
        if token is None:
            return list(urls)
    raise ConfigError(f"there are more than {len(urls):,} queues; name a prefix")


async def look_at(backend: Backend, url: str, look: Look | None = None) -> QueueOverview:
    """One queue by its URL; a failure is in its `problem`."""
    name = parse_queue_url(url).name
    kind: Literal["standard", "fifo"] = "fifo" if name.endswith(".fifo") else "standard"
    try:
        answer = await backend.execute(GetQueueAttributes(url, _ATTRIBUTES))
        attributes = answer.attributes
        policy = redrive_policy_of(attributes, name)
        visible, in_flight, delayed = (int(attributes[each]) for each in _ATTRIBUTES[:3])
        oldest = await look(url, 1) if look is not None and visible else None
    except (PumphouseError, KeyError, ValueError) as error:
        return QueueOverview(name, url, kind, problem=str(error) or type(error).__name__)
    target = None
    if policy is not None:
        try:
            target = parse_queue_arn(policy.dead_letter_target_arn).name
        except ValueError:
            target = policy.dead_letter_target_arn
    return QueueOverview(
        name,
        url,
        kind,
        attributes.get("QueueArn", ""),
        visible,
        in_flight,
        delayed,
        _age(backend, oldest[0]) if oldest else None,
        target,
        policy.max_receive_count if policy else None,
    )


def _age(backend: Backend, message: ReceivedMessage) -> float:
    now: float = getattr(backend, "clock", RealClock()).now()
    return max(0.0, round(now - int(message.attributes.get("SentTimestamp") or 0) / 1000, 3))
