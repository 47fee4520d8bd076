"""Creating, finding, listing, tagging, purging and deleting queues."""

from __future__ import annotations

import asyncio
import json

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    RefusedError,
)
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListQueues,
    ListQueueTags,
    PurgeQueue,
    ReceiveMessage,
    SendMessage,
    TagQueue,
    UntagQueue,
)
from support.a_queue import AQueue

NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
FIFO_NAME_RULE = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length."
)
FIFO = {"FifoQueue": "true"}


async def create(account: Account, name: str, **attributes: str) -> str:
    return (await account.execute(CreateQueue(name, attributes))).queue_url


@pytest.mark.parametrize(
    ("name", "attributes", "words"),
    [
        ("", {}, "Queue name cannot be empty"),
        ("a.b", {}, NAME_RULE),
        ("a/b", {}, NAME_RULE),
        ("ä", {}, NAME_RULE),
        ("x" * 81, {}, NAME_RULE),
        ("q.fifo", {}, NAME_RULE),
        ("q.fifo", {"FifoQueue": "false"}, NAME_RULE),
        ("q", FIFO, FIFO_NAME_RULE),
        ("q.ifo", FIFO, FIFO_NAME_RULE),
        (".fifo", FIFO, FIFO_NAME_RULE),
        ("x" * 76 + ".fifo", FIFO, FIFO_NAME_RULE),
    ],
)
async def test_names(account: Account, name: str, attributes: dict[str, str], words: str) -> None:
    with pytest.raises(RefusedError) as raised:
        await account.execute(CreateQueue(name, attributes))
    assert (raised.value.code, raised.value.message) == ("InvalidParameterValue", words)
    assert not account.queues


async def test_urls(account: Account) -> None:
    url = await create(account, "orders")
    assert url == "https://sqs.us-east-1.amazonaws.com/000000000000/orders"
    assert (await account.execute(GetQueueUrl("orders"))).queue_url == url
    with pytest.raises(QueueDoesNotExist):
        await account.execute(GetQueueUrl("Orders"))
    with pytest.raises(RefusedError) as raised:
        await account.execute(GetQueueUrl(""))
    assert raised.value.message == (
        "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9324/000000000000/orders",
        "https://queue.amazonaws.com/000000000000/orders",
        "orders",
    ],
)
async def test_e7_any_url_that_names_the_queue_is_taken(account: Account, url: str) -> None:
    await create(account, "orders")
    await account.execute(SendMessage(url, "x"))


@pytest.mark.parametrize(
    "url", ["nowhere", "https://sqs.us-east-1.amazonaws.com/123456789012/orders"]
)
async def test_e6_a_queue_that_is_not_there(account: Account, url: str) -> None:
    await create(account, "orders")
    with pytest.raises(QueueDoesNotExist) as raised:
        await account.execute(SendMessage(url, "x"))
    assert raised.value.query_code == "AWS.SimpleQueueService.NonExistentQueue"
    assert raised.value.status == 400


async def test_region_and_account_are_part_of_a_queue(account: Account) -> None:
    elsewhere = account.within(region="eu-west-1")
    other = account.within(account_id="123456789012")
    urls = {await create(account, "q")}
    for backend in (elsewhere, other):
        urls.add((await backend.execute(CreateQueue("q"))).queue_url)
    assert len(urls) == 3
    assert len((await account.execute(ListQueues())).queue_urls) == 1
    found = await account.execute(GetQueueUrl("q", queue_owner_aws_account_id="123456789012"))
    assert found.queue_url == "https://sqs.us-east-1.amazonaws.com/123456789012/q"
    await account.execute(SendMessage(found.queue_url, "to the other account"))
    answer = await other.execute(ReceiveMessage("q"))
    assert [message.body for message in answer.messages] == ["to the other account"]
    with pytest.raises(QueueDoesNotExist):
        await elsewhere.execute(GetQueueUrl("q", queue_owner_aws_account_id="123456789012"))


async def test_an_arn_knows_its_partition(account: Account) -> None:
    backend = account.within(region="cn-north-1")
    url = (await backend.execute(CreateQueue("q"))).queue_url
    attributes = (await backend.execute(GetQueueAttributes(url, ["QueueArn"]))).attributes
    assert attributes == {"QueueArn": "arn:aws-cn:sqs:cn-north-1:000000000000:q"}


# --- lists --------------------------------------------------------------------------------------


async def pages(account: Account, size: int, prefix: str = "") -> list[list[str]]:
    found, token = [], None
    while True:
        page = await account.execute(ListQueues(prefix or None, token, size))
        found.append([url.rpartition("/")[2] for url in page.queue_urls])
        if (token := page.next_token) is None:
            return found


async def test_lists_in_pages(account: Account) -> None:
    for name in ("b2", "a1", "b1", "a2", "b3"):
        await create(account, name)
    assert await pages(account, 2) == [["a1", "a2"], ["b1", "b2"], ["b3"]]
    assert await pages(account, 2, "b") == [["b1", "b2"], ["b3"]]
    assert await pages(account, 3, "b") == [["b1", "b2", "b3"]]
    assert await pages(account, 1000) == [["a1", "a2", "b1", "b2", "b3"]]
    assert await pages(account, 10, "c") == [[]]


async def test_a_page_goes_on_where_queues_come_and_go(account: Account) -> None:
    for name in ("a", "c", "d"):
        await create(account, name)
    first = await account.execute(ListQueues(max_results=1))
    await account.execute(DeleteQueue(first.queue_urls[0]))
    await create(account, "b")
    rest = await account.execute(ListQueues(None, first.next_token, 10))
    assert [url.rpartition("/")[2] for url in rest.queue_urls] == ["b", "c", "d"]


@pytest.mark.parametrize("size", [-1, 1001])
async def test_sizes_of_pages(account: Account, size: int) -> None:
    url = await create(account, "q")
    for operation in (
        ListQueues(max_results=size),
        ListDeadLetterSourceQueues(url, max_results=size),
    ):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        assert raised.value.message == (
            "Value for parameter MaxResults is invalid. "
            "Reason: MaxResults must be an integer between 1 and 1000."
        )


@pytest.mark.parametrize("token", ["invalidtoken", "YWZ0ZXI6", "é", "====", "b3RoZXI6eA=="])
async def test_a_token_that_was_never_given(account: Account, token: str) -> None:
    url = await create(account, "q")
    for operation in (
        ListQueues(next_token=token),
        ListDeadLetterSourceQueues(url, next_token=token),
    ):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        assert raised.value.message == "Invalid or expired next token."


async def test_a_thousand_without_a_size(account: Account) -> None:
    for number in range(1001):
        await create(account, f"q{number:04}")
    answer = await account.execute(ListQueues())
    assert len(answer.queue_urls) == 1000
    assert answer.next_token is None
    answer = await account.execute(ListQueues(max_results=1000))
    assert answer.next_token is not None


async def test_sources_of_dead_letters(account: Account) -> None:
    dead = await create(account, "dead")
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
    urls = [await create(account, f"q{i}", RedrivePolicy=policy) for i in range(3)]
    await create(account, "other")
    answer = await account.execute(ListDeadLetterSourceQueues(dead))
    assert (answer.queue_urls, answer.next_token) == (urls, None)
    first = await account.execute(ListDeadLetterSourceQueues(dead, max_results=2))
    second = await account.execute(ListDeadLetterSourceQueues(dead, first.next_token, 2))
    assert first.queue_urls + second.queue_urls == urls
    assert second.next_token is None
    assert (await account.execute(ListDeadLetterSourceQueues(urls[0]))).queue_urls == []


# --- tags ---------------------------------------------------------------------------------------


async def test_tags(account: Account) -> None:
    url = (await account.execute(CreateQueue("q", tags={"a": "1", "b": ""}))).queue_url
    await account.execute(TagQueue(url, {"a": "2", "A": "3"}))
    await account.execute(UntagQueue(url, ["b", "never"]))
    assert (await account.execute(ListQueueTags(url))).tags == {"a": "2", "A": "3"}


async def test_what_is_listed_is_a_copy(account: Account) -> None:
    url = await create(account, "q")
    (await account.execute(ListQueueTags(url))).tags["a"] = "1"
    assert (await account.execute(ListQueueTags(url))).tags == {}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({}, "The request must contain the parameter Tags."),
        ({f"k{i}": "" for i in range(51)}, "Too many tags added for queue q."),
        ({"": "x"}, "Tag keys must be between 1 and 128 characters in length."),
        ({"k" * 129: "x"}, "Tag keys must be between 1 and 128 characters in length."),
        ({"k": "x" * 257}, "Tag values must be between 0 and 256 characters in length."),
        ({"AWS:k": "x"}, "aws: is reserved"),
        ({"k;": "x"}, "can only include"),
        ({"k": "x;"}, "can only include"),
    ],
)
async def test_tags_that_are_refused(account: Account, tags: dict[str, str], words: str) -> None:
    url = await create(account, "q")
    with pytest.raises(RefusedError) as raised:
        await account.execute(TagQueue(url, {"fine": "1", **tags} if tags else {}))
    assert words in raised.value.message
    assert (await account.execute(ListQueueTags(url))).tags == {}
    if tags:
        with pytest.raises(RefusedError):
            await account.execute(CreateQueue("other", tags=tags))
        with pytest.raises(QueueDoesNotExist):
            await account.execute(GetQueueUrl("other"))


async def test_fifty_tags_and_no_more(account: Account) -> None:
    url = await create(account, "q")
    await account.execute(TagQueue(url, {f"k{i}": "x" for i in range(50)}))
    await account.execute(TagQueue(url, {"k0": "other"}))
    with pytest.raises(RefusedError, match="Too many tags"):
        await account.execute(TagQueue(url, {"one": "more"}))
    with pytest.raises(RefusedError, match="Tag keys"):
        await account.execute(UntagQueue(url, []))


# --- purging and deleting -----------------------------------------------------------------------


async def test_a_purge_takes_everything(account: Account, clock: VirtualClock) -> None:
    url = await create(account, "q")
    await account.execute(SendMessage(url, "in flight"))
    handle = (await account.execute(ReceiveMessage(url))).messages[0].receipt_handle
    await account.execute(SendMessage(url, "visible"))
    await account.execute(SendMessage(url, "delayed", delay_seconds=5))
    await account.execute(PurgeQueue(url))
    await clock.advance(60)
    assert not (await account.execute(ReceiveMessage(url))).messages
    await account.execute(SendMessage(url, "after"))
    assert [m.body for m in (await account.execute(ReceiveMessage(url))).messages] == ["after"]
    assert handle


async def test_e5_one_purge_in_sixty_seconds(account: Account, clock: VirtualClock) -> None:
    url = await create(account, "q")
    other = await create(account, "other")
    await account.execute(PurgeQueue(url))
    await account.execute(PurgeQueue(other))
    await clock.advance(59)
    with pytest.raises(PurgeQueueInProgress) as raised:
        await account.execute(PurgeQueue(url))
    assert raised.value.message == (
        "Only one PurgeQueue operation on q is allowed every 60 seconds."
    )
    assert raised.value.status == 403
    account.sixty_second_rules = False
    await account.execute(PurgeQueue(url))
    account.sixty_second_rules = True
    await clock.advance(60)
    await account.execute(PurgeQueue(url))


async def test_a_purge_forgets_deduplication_ids(account: Account) -> None:
    url = await create(account, "q.fifo", FifoQueue="true")
    send = SendMessage(url, "x", message_group_id="g", message_deduplication_id="d")
    await account.execute(send)
    await account.execute(PurgeQueue(url))
    await account.execute(send)
    assert len((await account.execute(ReceiveMessage(url))).messages) == 1


async def test_e5_a_name_is_free_sixty_seconds_after(account: Account, clock: VirtualClock) -> None:
    url = await create(account, "q")
    await account.execute(SendMessage(url, "gone with it"))
    await account.execute(DeleteQueue(url))
    with pytest.raises(QueueDoesNotExist):
        await account.execute(DeleteQueue(url))
    await clock.advance(59)
    with pytest.raises(QueueDeletedRecently) as raised:
        await create(account, "q")
    assert raised.value.message == (
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name."
    )
    await account.within(region="eu-west-1").execute(CreateQueue("q"))
    await clock.advance(1)
    assert await create(account, "q") == url
    assert not (await account.execute(ReceiveMessage(url))).messages


async def test_e5_the_rule_can_be_switched_off(account: Account) -> None:
    account.sixty_second_rules = False
    url = await create(account, "q")
    await account.execute(DeleteQueue(url))
    assert await create(account, "q") == url


async def test_names_of_deleted_queues_are_not_kept_for_ever(
    account: Account, clock: VirtualClock
) -> None:
    scope = account.within()
    for number in range(50):
        await account.execute(DeleteQueue(await create(account, f"q{number}")))
        await clock.advance(10)
    assert len(scope.deleted) <= 7


async def test_e3_whoever_waits_for_a_deleted_queue_is_told(
    account: Account, clock: VirtualClock
) -> None:
    url = await create(account, "q")
    waiting = [
        asyncio.create_task(account.execute(ReceiveMessage(url, wait_time_seconds=20)))
        for _ in range(3)
    ]
    await clock.advance(1)
    await account.execute(DeleteQueue(url))
    await clock.settle()
    for task in waiting:
        with pytest.raises(QueueDoesNotExist):
            await task
    assert clock.next_timer is None


async def test_what_was_deleted_long_ago_is_forgotten(clock: VirtualClock) -> None:
    account = Account(clock=clock, sixty_second_rules=False)
    for name in "abcb":
        queue = await AQueue.create(account, name)
        await account.execute(DeleteQueue(queue.url))
        await clock.advance(20)
    deleted = account.within().deleted
    assert list(deleted) == ["c", "b"]  # `b` since it was deleted last
    await clock.advance(60)
    queue = await AQueue.create(account, "d")
    await account.execute(DeleteQueue(queue.url))
    assert list(deleted) == ["d"]
