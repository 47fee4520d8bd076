"""From what a user calls a queue or a topic to the URL or the ARN that AWS wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumphouse.backend import Backend, R
from pumphouse.errors import (
    ConfigError,
    QueueDoesNotExist,
    TopicDoesNotExist,
    UsageError,
    told_of,
)
from pumphouse.protocol.attributes import plain
from pumphouse.protocol.names import (
    FIFO_SUFFIX,
    is_arn,
    is_queue_name,
    is_queue_url,
    is_topic_name,
    parse_queue_arn,
    parse_topic_arn,
    safe_queue_name,
)
from pumphouse.protocol.operations import GetQueueUrl, Operation
from pumphouse.protocol.sns_operations import ListTopics


def check_queue(queue: str) -> str:
    """The reference as it will be used: a name's forbidden characters become `-`.

    Raises `UsageError` for an empty reference, a name that is too long or nothing but `.fifo`, a
    broken ARN, or a URL with a user or a password in it, which are not repeated.
    """
    if not isinstance(queue, str) or not queue.strip():
        raise UsageError("a queue needs a name, a URL or an ARN")
    queue = str(plain(queue))
    if is_queue_url(queue):
        if "@" in queue.partition("://")[2].partition("/")[0]:
            raise UsageError("the queue's URL holds a user; credentials are for the backend")
        return queue
    if is_arn(queue):
        try:
            parse_queue_arn(queue)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return queue
    name = safe_queue_name(queue)
    if name == FIFO_SUFFIX:
        raise UsageError(f"the queue name {queue!r} is empty before {FIFO_SUFFIX}")
    if not is_queue_name(name):
        raise UsageError(f"the queue name {queue!r} is longer than the 80 characters of SQS")
    return name


def missing(error: QueueDoesNotExist, queue: str) -> QueueDoesNotExist:
    """The error with the name of the queue, which AWS does not say."""
    return told_of(error, f"there is no queue {queue!r} in the account and region of the backend")


class QueueUrls:
    """Looks up queue URLs over a backend and remembers them until they are forgotten."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, str] = {}

    async def resolve(self, queue: str) -> str:
        """The URL of a queue. Raises `QueueDoesNotExist` where there is none of that name."""
        queue = check_queue(queue)
        if is_queue_url(queue):
            return queue
        if (url := self._known.get(queue)) is None:
            if is_arn(queue):
                name = parse_queue_arn(queue)
                lookup = GetQueueUrl(name.name, name.account_id or None)
            else:
                lookup = GetQueueUrl(queue)
            try:
                url = (await self._backend.execute(lookup)).queue_url
            except QueueDoesNotExist as error:
                raise missing(error, queue) from error.__cause__
            self._known[queue] = url
        return url

    async def execute(self, queue: str, make: Callable[[str], Operation[R]]) -> R:
        """Execute the operation that `make` makes for the queue's URL.

        Where a remembered URL is answered with `QueueDoesNotExist`, the queue is looked up anew,
        and the operation is executed again if it has another URL now.
        """
        known = self._known.get(check_queue(queue))
        url = await self.resolve(queue)
        try:
            return await self._backend.execute(make(url))
        except QueueDoesNotExist as error:
            self.forget(queue)
            if known is None or (again := await self.resolve(queue)) == url:
                raise missing(error, queue) from error.__cause__
            return await self._backend.execute(make(again))

    def forget(self, queue: str) -> None:
        """Look the queue up again next time; for after a `QueueDoesNotExist`."""
        self._known.pop(check_queue(queue), None)


# --- topics -------------------------------------------------------------------------------------

_MOST_PAGES = 1_000  # of a hundred topics; SNS has at most 100,000 of them in a region


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of SNS, by name or ARN: a reference, which makes no topic.

    A name means the topic of the backend's own account and region; with an ARN nothing has to be
    looked up. It is FIFO if its name ends in `.fifo`. Raises `UsageError` for what can't be one.
    """

    reference: str

    def __post_init__(self) -> None:
        reference = self.reference
        if not isinstance(reference, str) or not reference.strip():
            raise UsageError("a topic needs a name or an ARN")
        reference = str(plain(reference))
        object.__setattr__(self, "reference", reference)
        name = reference
        if is_arn(reference):
            try:
                name = parse_topic_arn(reference).name
            except ValueError as error:
                raise UsageError(str(error)) from None
        if not is_topic_name(name):
            raise UsageError(
                f"{name!r} is no name of a topic: 1 to 256 letters, digits, hyphens and "
                "underscores, with .fifo at the end or not"
            )

    @property
    def name(self) -> str:
        """The name, of an ARN too."""
        return self.reference.rpartition(":")[2]

    @property
    def is_fifo(self) -> bool:
        """Whether it is a FIFO topic: whether its name ends in `.fifo`."""
        return self.reference.endswith(FIFO_SUFFIX)

    def __str__(self) -> str:
        return self.reference


def destination(reference: str) -> str | Topic:
    """A `Topic` where the text is the ARN of one, otherwise the text, which names a queue."""
    if is_arn(reference) and reference.split(":")[2:3] == ["sns"]:
        return Topic(reference)
    return reference


class TopicArns:
    """Looks up the ARNs of topics over a backend and remembers them until they are forgotten.

    The way from a name to an ARN is `ListTopics`, page by page: SNS has no call that answers it
    for one topic, and `CreateTopic`, which would, makes the topic where there is none.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, str] = {}

    async def resolve(self, topic: Topic) -> str:
        """The ARN of a topic; one that was given is taken as it is.

        Raises `TopicDoesNotExist` where there is none of that name.
        """
        if is_arn(topic.reference):
            return topic.reference
        if (arn := self._known.get(topic.reference)) is None:
            arn = self._known[topic.reference] = await self._find(topic.reference)
        return arn

    async def _find(self, name: str) -> str:
        token: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._backend.execute(ListTopics(token))
            for found in page.topics:
                if found.topic_arn.rpartition(":")[2] == name:
                    return found.topic_arn
            token = page.next_token
            if token is None:
                raise TopicDoesNotExist(
                    f"there is no topic {name!r} in the account and region of the backend",
                    code="NotFound",
                    status=404,
                    sender_fault=True,
                )
        raise ConfigError(f"the topic {name!r} was not found in {_MOST_PAGES} pages; give its ARN")

    def forget(self, topic: Topic) -> None:
        """Look the topic up again next time; for after a `TopicDoesNotExist`."""
        self._known.pop(topic.reference, None)
