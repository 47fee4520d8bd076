"""What AWS says about the queues and topics of a service: asked once each, and nothing changed.

Only `Get…` and `List…` operations are executed. A queue that is missing and a call that is not
permitted are facts; everything else that goes wrong (network, credentials) is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pumphouse.addressing import QueueUrls, Topic, TopicArns
from pumphouse.backend import Backend
from pumphouse.backoff import one_try
from pumphouse.errors import (
    PumphouseError,
    QueueDoesNotExist,
    ServiceError,
    SubscriptionDoesNotExist,
    TopicDoesNotExist,
)
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES
from pumphouse.protocol.names import FIFO_SUFFIX, QueueName, is_arn, is_queue_url
from pumphouse.protocol.operations import GetQueueAttributes
from pumphouse.protocol.sns_operations import (
    GetSubscriptionAttributes,
    GetTopicAttributes,
    ListSubscriptions,
)
from pumphouse.sink.destination import TOPIC_MESSAGE_BYTES
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.setup import RedrivePolicy, redrive_policy_of

MOST_PAGES = 100
"""Of a hundred subscriptions: what is looked through for those of the service's queues."""

_REFUSALS = frozenset({"AccessDenied", "AuthorizationError", "NotAuthorized", "InvalidSecurity"})
_NOT_HERE = frozenset({"InvalidAddress"})
"""What SQS answers to the URL of a queue in another region."""


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that these credentials may not do that, and would be good otherwise."""
    return isinstance(error, ServiceError) and error.code in _REFUSALS


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue as it is, or (`planned`) as the start will create it. `refused` is the action of IAM
    that was not permitted, or ""; `other_kind` the name of a queue that exists where this one
    doesn't, with or without `.fifo`."""

    name: str
    url: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    planned: bool = False
    missing: bool = False
    refused: str = ""
    other_kind: str = ""

    @property
    def known(self) -> bool:
        """Whether its attributes are known."""
        return self.planned or bool(self.attributes)

    @property
    def arn(self) -> str:
        return self.attributes.get("QueueArn", "")

    @property
    def redrive(self) -> RedrivePolicy | None:
        return redrive_policy_of(self.attributes, self.name)

    @property
    def key(self) -> str:
        """The customer's or AWS's key that it is encrypted with; "" for SQS's own encryption."""
        return self.attributes.get("KmsMasterKeyId", "")

    @property
    def lease_seconds(self) -> int:
        return self.number("VisibilityTimeout", 30)

    @property
    def retention_seconds(self) -> int:
        return self.number("MessageRetentionPeriod", 345_600)

    @property
    def largest_bytes(self) -> int:
        return self.number("MaximumMessageSize", MAX_MESSAGE_BYTES)

    def number(self, attribute: str, default: int) -> int:
        text = self.attributes.get(attribute, "")
        return int(text) if text.isdecimal() else default

    def document(self, attribute: str) -> dict[str, Any]:
        """An attribute that is a JSON map; empty where there is none or it is something else."""
        try:
            value = msgspec.json.decode(self.attributes.get(attribute, "") or "{}")
        except msgspec.DecodeError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is; `refused` and `other_kind` as of a queue."""

    name: str
    arn: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    missing: bool = False
    refused: str = ""
    other_kind: str = ""

    @property
    def largest_bytes(self) -> int:
        return int(self.attributes.get("MaximumMessageSize") or TOPIC_MESSAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Delivering:
    """A subscription that brings the messages of a topic to a queue."""

    topic_arn: str
    queue_arn: str
    raw: bool | None  # None where it could not be looked at

    @property
    def topic(self) -> str:
        return self.topic_arn.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The subscriptions of some queues. `refused` is the action that was not permitted, `cut` that
    there are more subscriptions in the account than were looked through."""

    found: tuple[Delivering, ...] = ()
    refused: str = ""
    cut: bool = False


class Look:
    """Looks things up over a backend, each once."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._urls = QueueUrls(backend)
        self._arns = TopicArns(backend)
        self._queues: dict[tuple[str, bool], QueueFacts] = {}
        self._topics: dict[Topic, TopicFacts] = {}

    async def queue(self, queue: Queue) -> QueueFacts:
        """The facts of a queue by its name, URL or ARN."""
        key = (queue.name, queue.create_if_missing)
        if (known := self._queues.get(key)) is None:
            known = self._queues[key] = await self._queue(queue)
        return known

    async def _queue(self, queue: Queue) -> QueueFacts:
        name = queue.known_as.name
        try:
            url = await self._urls.resolve(queue.name)
        except QueueDoesNotExist:
            if queue.create_if_missing:
                return QueueFacts(name, attributes=queue.creation_attributes(), planned=True)
            other = await self._exists(_other_kind(queue.known_as))
            return QueueFacts(name, missing=True, other_kind=other)
        except ServiceError as error:
            if not is_refusal(error):
                raise
            return QueueFacts(name, refused="sqs:GetQueueUrl")
        try:
            answer = await self._backend.execute(GetQueueAttributes(url, ["All"]))
        except ServiceError as error:
            if isinstance(error, QueueDoesNotExist) or error.code in _NOT_HERE:
                return QueueFacts(name, url, missing=True)
            if not is_refusal(error):
                raise
            return QueueFacts(name, url, refused="sqs:GetQueueAttributes")
        return QueueFacts(name, url, answer.attributes)

    async def _exists(self, name: str) -> str:
        try:
            await self._urls.resolve(name)
        except ServiceError as error:
            if not is_refusal(error) and not isinstance(error, QueueDoesNotExist):
                raise
            return ""
        return name

    async def topic(self, topic: Topic) -> TopicFacts:
        """The facts of a topic by its name or ARN."""
        if (known := self._topics.get(topic)) is None:
            known = self._topics[topic] = await self._topic(topic)
        return known

    async def _topic(self, topic: Topic) -> TopicFacts:
        try:
            arn = await self._arns.resolve(topic)
        except TopicDoesNotExist:
            other = Topic(_other_kind(QueueName(topic.name)))
            try:
                await self._arns.resolve(other)
            except TopicDoesNotExist:
                return TopicFacts(topic.name, missing=True)
            return TopicFacts(topic.name, missing=True, other_kind=other.name)
        except ServiceError as error:
            if not is_refusal(error):
                raise
            return TopicFacts(topic.name, refused="sns:ListTopics")
        try:
            answer = await self._backend.execute(GetTopicAttributes(arn))
        except TopicDoesNotExist:
            return TopicFacts(topic.name, arn, missing=True)
        except ServiceError as error:
            if not is_refusal(error):
                raise
            return TopicFacts(topic.name, arn, refused="sns:GetTopicAttributes")
        return TopicFacts(topic.name, arn, answer.attributes)

    async def deliveries(self, queue_arns: set[str], *, needed: bool) -> Deliveries:
        """The subscriptions of these queues.

        Where they are not `needed` it is enough to have tried: an endpoint may speak no SNS.
        """
        if needed:
            return await self._deliveries(queue_arns)
        token = one_try.set(True)
        try:
            return await self._deliveries(queue_arns)
        except PumphouseError:
            return Deliveries()
        finally:
            one_try.reset(token)

    async def _deliveries(self, queue_arns: set[str]) -> Deliveries:
        found: list[Delivering] = []
        next_token: str | None = None
        for _ in range(MOST_PAGES):
            try:
                page = await self._backend.execute(ListSubscriptions(next_token))
            except ServiceError as error:
                if not is_refusal(error):
                    raise
                return Deliveries(refused="sns:ListSubscriptions")
            for each in page.subscriptions:
                if each.protocol == "sqs" and each.endpoint in queue_arns:
                    raw = await self._is_raw(each.subscription_arn)
                    found.append(Delivering(each.topic_arn, each.endpoint, raw))
            if (next_token := page.next_token) is None:
                return Deliveries(tuple(found))
        return Deliveries(tuple(found), cut=True)

    async def _is_raw(self, subscription_arn: str) -> bool | None:
        if not is_arn(subscription_arn):
            return None  # it waits for its confirmation, or has been deleted
        try:
            answer = await self._backend.execute(GetSubscriptionAttributes(subscription_arn))
        except SubscriptionDoesNotExist:
            return None
        except ServiceError as error:
            if not is_refusal(error):
                raise
            return None
        return answer.attributes.get("RawMessageDelivery", "false").lower() == "true"


def named_by_url(queue: Queue) -> bool:
    """Whether a queue is named so that nothing has to be looked up to reach it."""
    return is_queue_url(queue.name)


def _other_kind(name: QueueName) -> str:
    return name.name.removesuffix(FIFO_SUFFIX) if name.is_fifo else name.name + FIFO_SUFFIX
