"""Emptying a queue, for good."""

from __future__ import annotations

from dataclasses import dataclass

from pumphouse.addressing import QueueUrls
from pumphouse.backend import Backend
from pumphouse.errors import ConfigError
from pumphouse.protocol.operations import PurgeQueue
from pumphouse.queue_tools.overview import QueueOverview, look_at

TAKES_SECONDS = 60
"""SQS takes up to so long, and one purge of a queue in that time; what was sent shortly before or
is in flight may be there afterwards."""


@dataclass(frozen=True, slots=True)
class Purge:
    """A queue that may be purged: what is in it, and the deed."""

    backend: Backend
    queue: QueueOverview

    async def carry_out(self) -> None:
        """Delete all messages. Raises `PurgeQueueInProgress` within 60 s of another purge."""
        await self.backend.execute(PurgeQueue(self.queue.url))


async def purge_of(backend: Backend, queue: str) -> Purge:
    """Look at a queue before it is purged. Raises `ConfigError` where it can't be looked at."""
    found = await look_at(backend, await QueueUrls(backend).resolve(queue))
    if found.problem and "QueueDoesNotExist" in found.problem:
        raise ConfigError(found.problem)
    return Purge(backend, found)
