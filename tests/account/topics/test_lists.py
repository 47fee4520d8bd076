"""Lists of topics and subscriptions, page by page, and how many there may be."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.account.topics import store
from pumphouse.errors import RefusedConfigError, RefusedError, ServiceError
from pumphouse.protocol.operations import CreateQueue, DeleteQueue, ReceiveMessage
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    DeleteTopic,
    ListSubscriptions,
    ListSubscriptionsByTopic,
    ListTagsForResource,
    ListTopics,
    Publish,
    Subscribe,
    Tag,
    TagResource,
    Unsubscribe,
)

FIFO = {"FifoTopic": "true"}


def queue(number: int) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:queue-{number}"


async def subscriptions(account: Account, number: int) -> tuple[str, list[str]]:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    made = [await account.execute(Subscribe(topic, "sqs", queue(each))) for each in range(number)]
    return topic, [str(each.subscription_arn) for each in made]


# --- pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (100, [100]), (101, [100, 1]), (200, [100, 100])]
)
async def test_topics_come_in_pages_of_a_hundred(
    account: Account, count: int, sizes: list[int]
) -> None:
    for number in range(count):
        await account.execute(CreateTopic(f"topic-{number}"))
    found: list[str] = []
    token = None
    for size in sizes:
        page = await account.execute(ListTopics(token))
        assert len(page.topics) == size
        found += [each.topic_arn for each in page.topics]
        token = page.next_token
    assert token is None
    assert len(set(found)) == count


async def test_what_is_deleted_between_two_pages_hides_nothing(account: Account) -> None:
    for number in range(250):
        await account.execute(CreateTopic(f"topic-{number}"))
    token, pages = None, 0
    while pages == 0 or token:
        page = await account.execute(ListTopics(token))
        for each in page.topics:
            await account.execute(DeleteTopic(each.topic_arn))
        token, pages = page.next_token, pages + 1
    assert (await account.execute(ListTopics())).topics == []


@pytest.mark.parametrize("by_topic", [False, True])
async def test_subscriptions_that_end_between_two_pages_hide_nothing(
    account: Account, by_topic: bool
) -> None:
    topic, arns = await subscriptions(account, 250)
    found: list[str] = []
    token, pages = None, 0
    while pages == 0 or token:
        operation: Any = (
            ListSubscriptionsByTopic(topic, token) if by_topic else ListSubscriptions(token)
        )
        page = await account.execute(operation)
        for each in page.subscriptions:
            found.append(each.subscription_arn)
            await account.execute(Unsubscribe(each.subscription_arn))
        token, pages = page.next_token, pages + 1
    assert found == arns
    assert (pages, len(account.topics.subscriptions)) == (3, 0)


@pytest.mark.parametrize(
    "token",
    [
        "nonsense",
        "\udc00",
        "é",
        urlsafe_b64encode(b"-5").decode(),
        urlsafe_b64encode(b"after:").decode(),
        urlsafe_b64encode(b"\xff").decode(),
    ],
)
async def test_a_token_that_is_none(account: Account, token: str) -> None:
    topic, _ = await subscriptions(account, 1)
    for operation in (
        ListTopics(token),
        ListSubscriptions(token),
        ListSubscriptionsByTopic(topic, token),
    ):
        with pytest.raises(RefusedError, match="Invalid parameter: NextToken"):
            await account.execute(operation)


# --- how many there may be ----------------------------------------------------------------------


async def test_a_fifo_topic_has_a_hundred_subscriptions(account: Account) -> None:
    topic = (await account.execute(CreateTopic("topic.fifo", FIFO))).topic_arn
    for number in range(100):
        await account.execute(Subscribe(topic, "sqs", queue(number)))
    with pytest.raises(RefusedConfigError) as raised:
        await account.execute(Subscribe(topic, "sqs", queue(100)))
    assert (raised.value.code, raised.value.status) == ("SubscriptionLimitExceeded", 403)
    await account.execute(Subscribe(topic, "sqs", queue(7)))  # it has this one
    assert len(account.topics.subscriptions) == 100


async def test_queues_and_topics_that_are_gone_are_let_go_of(account: Account) -> None:
    elsewhere = account.within(account_id="111122223333")
    for number in range(20):
        topic = (await account.execute(CreateTopic("topic"))).topic_arn
        url = (await account.execute(CreateQueue(f"queue-{number}"))).queue_url
        await account.execute(Subscribe(topic, "sqs", queue(number)))
        await elsewhere.execute(Publish("m", topic))
        for name in (url, f"queue-{number}"):
            assert (await account.execute(ReceiveMessage(name, visibility_timeout=0))).messages
        await account.execute(DeleteTopic(topic))
        await account.execute(DeleteQueue(url))
    home = account.within()
    kept = [home.known, home.topics_by_arn, elsewhere.topics_by_arn, account.topics.known_queues]
    assert kept == [{}, {}, {}, {}]


async def test_queues_that_are_known_by_many_names_are_bounded(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.account.topics.queues.KNOWN_QUEUES", 10)
    assert store.KNOWN_QUEUES >= 1000
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    for number in range(50):
        await account.execute(CreateQueue(f"queue-{number}"))
        await account.execute(Subscribe(topic, "sqs", queue(number)))
    await account.execute(Publish("m", topic))
    assert len(account.topics.known_queues) <= 10


# --- tags ---------------------------------------------------------------------------------------

_LENGTH = "failed to satisfy constraint: Member must have length"


@pytest.mark.parametrize(
    ("tags", "code", "words"),
    [
        (
            [Tag("a", "b"), Tag("k" * 129, "v")],
            "ValidationError",
            f"1 validation error detected: Value '{'k' * 129}' at 'tags.2.member.key' {_LENGTH} "
            "less than or equal to 128",
        ),
        (
            [Tag("k", "v" * 257)],
            "ValidationError",
            f"1 validation error detected: Value '{'v' * 257}' at 'tags.1.member.value' {_LENGTH} "
            "less than or equal to 256",
        ),
        (
            [Tag("", "v")],
            "ValidationError",
            f"1 validation error detected: Value '' at 'tags.1.member.key' {_LENGTH} "
            "greater than or equal to 1",
        ),
        (
            [Tag("k", "a,b")],
            "InvalidParameter",
            "Invalid parameter: Tags Reason: The given tag(s) contain invalid characters",
        ),
        (
            [Tag(str(number), "") for number in range(51)],
            "TagLimitExceeded",
            "Could not complete request: tag quota of per resource exceeded",
        ),
    ],
)
async def test_tags_that_can_not_be(
    account: Account, tags: list[Tag], code: str, words: str
) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    for operation in (CreateTopic("other", tags=tags), TagResource(topic, tags)):
        with pytest.raises(ServiceError) as raised:
            await account.execute(operation)
        assert (raised.value.code, raised.value.message) == (code, words)
    assert (await account.execute(ListTagsForResource(topic))).tags == []
    assert len((await account.execute(ListTopics())).topics) == 1


async def test_tags_at_their_limits(account: Account) -> None:
    tags = [Tag("k" * 128, "v" * 256), Tag("Größe 1_.:/=+-@", "")]
    tags += [Tag(str(number), "") for number in range(48)]
    topic = (await account.execute(CreateTopic("topic", tags=tags))).topic_arn
    await account.execute(TagResource(topic, [Tag("1", "again")]))
    assert len((await account.execute(ListTagsForResource(topic))).tags) == 50
