"""Where a sink sends: a queue of SQS or a topic of SNS, and all that differs between the two.

A destination looks its address up, knows the largest message that it takes, and makes the requests;
`stored` says what its answers mean (`confirmation.py`). Batching, retries, order and fairness know
nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pumphouse.addressing import QueueUrls, Topic, TopicArns, check_queue
from pumphouse.backend import Backend
from pumphouse.confirmation import Judge, stored_in_queue, stored_in_topic
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES
from pumphouse.protocol.names import FIFO_SUFFIX
from pumphouse.protocol.operations import (
    GetQueueAttributes,
    Operation,
    SendMessage,
    SendMessageBatch,
)
from pumphouse.protocol.sns_operations import (
    GetTopicAttributes,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
)
from pumphouse.sink.outgoing import ENTRY_IDS, Outgoing, send_message, send_message_batch

TOPIC_MESSAGE_BYTES = 262_144
"""The largest message, and the largest batch, that a topic takes unless it says otherwise: 256 KiB
("Amazon SNS endpoints and quotas" in the general reference)."""
_SIZE = "MaximumMessageSize"


class Destination(Protocol):
    """A queue or a topic. `largest` is what it takes at most where it says nothing, in bytes."""

    name: str
    fifo: bool
    kind: str
    largest: int
    stored: Judge

    async def look_up(self) -> str:
        """The URL or the ARN. Raises `QueueDoesNotExist` or `TopicDoesNotExist`."""
        ...

    async def limit(self, address: str) -> int:
        """The largest message that it takes, in bytes. Raises what the backend raises."""
        ...

    def batch_bytes(self, limit: int | None) -> int:
        """The largest batch, in bytes, where `limit` is the largest message, if that is known."""
        ...

    def forget(self) -> None:
        """It is not there: look it up again next time."""

    def one(self, address: str, message: Outgoing) -> Operation[Any]:
        """The request that carries one message by itself."""
        ...

    def batch(self, address: str, messages: list[Outgoing]) -> Operation[Any]:
        """The request that carries up to ten; the ids of its entries are their positions."""
        ...


class QueueDestination:
    """A queue, by name, URL or ARN."""

    kind = "queue"
    largest = MAX_MESSAGE_BYTES

    def __init__(self, queue: str, backend: Backend) -> None:
        self.stored: Judge = stored_in_queue
        self.name = check_queue(queue)
        self.fifo = self.name.endswith(FIFO_SUFFIX)
        self._backend = backend
        self._urls = QueueUrls(backend)

    async def look_up(self) -> str:
        return await self._urls.resolve(self.name)

    async def limit(self, address: str) -> int:
        answer = await self._backend.execute(GetQueueAttributes(address, [_SIZE]))
        return int(answer.attributes.get(_SIZE, self.largest))

    def batch_bytes(self, limit: int | None) -> int:
        return MAX_MESSAGE_BYTES  # whatever the queue's own limit on a message is

    def forget(self) -> None:
        self._urls.forget(self.name)

    def one(self, address: str, message: Outgoing) -> SendMessage:
        return send_message(address, message)

    def batch(self, address: str, messages: list[Outgoing]) -> SendMessageBatch:
        return send_message_batch(address, messages)


class TopicDestination:
    """A topic, by name or ARN."""

    kind = "topic"
    largest = TOPIC_MESSAGE_BYTES

    def __init__(self, topic: Topic, backend: Backend) -> None:
        self.stored: Judge = stored_in_topic
        self.topic = topic
        self.name = topic.reference
        self.fifo = topic.is_fifo
        self._backend = backend
        self._arns = TopicArns(backend)

    async def look_up(self) -> str:
        return await self._arns.resolve(self.topic)

    async def limit(self, address: str) -> int:
        answer = await self._backend.execute(GetTopicAttributes(address))
        return int(answer.attributes.get(_SIZE, self.largest))

    def batch_bytes(self, limit: int | None) -> int:
        return limit or self.largest  # all together may be as large as one

    def forget(self) -> None:
        self._arns.forget(self.topic)

    def one(self, address: str, message: Outgoing) -> Publish:
        return Publish(
            message.body,
            address,
            subject=message.subject,
            message_structure=message.message_structure,
            message_attributes=message.attributes,
            message_deduplication_id=message.deduplication_id,
            message_group_id=message.group_id,
            trace_header=_trace([message]),
        )

    def batch(self, address: str, messages: list[Outgoing]) -> PublishBatch:
        return PublishBatch(
            address,
            [
                PublishBatchRequestEntry(
                    entry_id,
                    message.body,
                    message.subject,
                    message.message_structure,
                    message.attributes,
                    message.deduplication_id,
                    message.group_id,
                )
                for entry_id, message in zip(ENTRY_IDS, messages, strict=False)
            ],
            _trace(messages),
        )


def _trace(messages: Sequence[Outgoing]) -> str | None:
    """The trace header of a request: SNS takes one for all of a batch, so that what its messages
    don't share is left out."""
    found = {
        header.string_value
        if (header := (message.system_attributes or {}).get("AWSTraceHeader"))
        else None
        for message in messages
    }
    return found.pop() if len(found) == 1 else None


def destination_of(to: str | Topic, backend: Backend) -> Destination:
    """The destination of what `Sink` was given. Raises `UsageError`."""
    if isinstance(to, Topic):
        return TopicDestination(to, backend)
    return QueueDestination(to, backend)
