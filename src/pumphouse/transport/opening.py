"""Making sure of a FIFO queue, and learning what a transport must know of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

from pumphouse.addressing import QueueUrls, check_queue
from pumphouse.backend import Backend
from pumphouse.clock import Clock
from pumphouse.errors import QueueDeletedRecently, RefusedConfigError, UsageError
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES
from pumphouse.protocol.names import FIFO_SUFFIX, is_arn, is_queue_url
from pumphouse.protocol.operations import CreateQueue, GetQueueAttributes, Operation
from pumphouse.transport.settling import PASSING

R = TypeVar("R")

_log = logging.getLogger("pumphouse.transport")


@dataclass(frozen=True, slots=True)
class OpenedQueue:
    """A FIFO queue that exists."""

    url: str
    has_dead_letters: bool
    max_message_bytes: int


def fifo_name(queue: str) -> str:
    """The reference of a FIFO queue; `.fifo` is appended to a name that lacks it.

    Raises `UsageError` for a URL or an ARN of a queue that is not FIFO.
    """
    queue = check_queue(queue)
    if queue.endswith(FIFO_SUFFIX):
        return queue
    if is_queue_url(queue) or is_arn(queue):
        raise UsageError(
            f"{queue!r} is no FIFO queue, and only groups give one message in flight; its name "
            "would end in .fifo"
        )
    return check_queue(queue + FIFO_SUFFIX)


class _Patient:
    """A backend that waits for an endpoint that is not there yet."""

    def __init__(self, backend: Backend, clock: Clock, retries: int, delay_seconds: float) -> None:
        self._backend = backend
        self._clock = clock
        self._left = retries
        self._delay = delay_seconds

    async def execute(self, operation: Operation[R]) -> R:
        while True:
            try:
                return await self._backend.execute(operation)
            except (*PASSING, QueueDeletedRecently):
                self._left -= 1
                if self._left < 0:
                    raise
            await self._clock.sleep(self._delay)

    async def aclose(self) -> None:
        """The backend belongs to someone else."""


async def open_queue(
    queue: str,
    backend: Backend,
    clock: Clock,
    *,
    attributes: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    connect_retries: int = 30,
    retry_delay_seconds: float = 1.0,
) -> OpenedQueue:
    """Create the queue where only its name is known, and read its attributes.

    Someone who may not create queues gets one that is there; someone who may not read attributes
    gets the careful assumption that messages can die. Raises as `LeaseTransport.create` says.
    """
    name = fifo_name(queue)
    patient = _Patient(backend, clock, connect_retries, retry_delay_seconds)
    if is_queue_url(name) or is_arn(name):
        url = await QueueUrls(patient).resolve(name)
    else:
        try:
            created = await patient.execute(
                CreateQueue(name, {"FifoQueue": "true", **(attributes or {})}, tags)
            )
            url = created.queue_url
        except RefusedConfigError as error:
            if error.code != "AccessDenied":
                raise
            url = await QueueUrls(patient).resolve(name)
    try:
        found = await patient.execute(
            GetQueueAttributes(url, ["RedrivePolicy", "MaximumMessageSize"])
        )
    except RefusedConfigError as error:
        if error.code != "AccessDenied":
            raise
        _log.warning("%s: attributes can't be read (%s); one message per receive", url, error)
        return OpenedQueue(url, True, MAX_MESSAGE_BYTES)
    return OpenedQueue(
        url,
        bool(found.attributes.get("RedrivePolicy")),
        int(found.attributes.get("MaximumMessageSize", MAX_MESSAGE_BYTES)),
    )
