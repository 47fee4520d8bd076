"""Queues: making, finding, changing and deleting them, and where their dead letters go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from pumphouse.backend import Backend
from pumphouse.errors import QueueDoesNotExist, QueueNameExists, RefusedError
from pumphouse.protocol.operations import (
    AddPermission,
    CancelMessageMoveTask,
    CreateQueue,
    DeleteMessage,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListMessageMoveTasks,
    ListQueues,
    ListQueueTags,
    PurgeQueue,
    ReceiveMessage,
    RemovePermission,
    SendMessage,
    SetQueueAttributes,
    StartMessageMoveTask,
    TagQueue,
    UntagQueue,
)

Unique = Callable[[str], str]


async def _arn(backend: Backend, url: str) -> str:
    answer = await backend.execute(GetQueueAttributes(url, ["QueueArn"]))
    return answer.attributes["QueueArn"]


async def test_a_queue_is_made_found_and_deleted(backend: Backend, unique: Unique) -> None:
    name = unique("found")
    url = (await backend.execute(CreateQueue(name))).queue_url
    assert url.endswith(f"/{name}")
    assert (await backend.execute(GetQueueUrl(name))).queue_url == url
    assert (await backend.execute(ListQueues(name))).queue_urls == [url]
    assert await _arn(backend, url) == f"arn:aws:sqs:us-east-1:{url.split('/')[-2]}:{name}"
    await backend.execute(DeleteQueue(url))
    assert (await backend.execute(ListQueues(name))).queue_urls == []
    with pytest.raises(QueueDoesNotExist):
        await backend.execute(GetQueueUrl(name))


async def test_any_url_that_names_the_queue_is_taken(backend: Backend, queue: str) -> None:
    path = "/".join(queue.split("/")[-2:])
    for host in ("https://sqs.us-east-1.amazonaws.com", "http://localhost:4566"):
        await backend.execute(SendMessage(f"{host}/{path}", "x"))
    counts = await backend.execute(GetQueueAttributes(queue, ["ApproximateNumberOfMessages"]))
    assert counts.attributes["ApproximateNumberOfMessages"] == "2"


async def test_making_a_queue_again(backend: Backend, unique: Unique) -> None:
    name = unique("again")
    one = await backend.execute(CreateQueue(name, {"VisibilityTimeout": "7"}))
    assert await backend.execute(CreateQueue(name, {"VisibilityTimeout": "7"})) == one
    assert await backend.execute(CreateQueue(name)) == one
    with pytest.raises(QueueNameExists) as caught:
        await backend.execute(CreateQueue(name, {"VisibilityTimeout": "8"}))
    assert caught.value.query_code == "QueueAlreadyExists"


@pytest.mark.parametrize("name", ["no spaces", "x" * 81, "dot.dot"])
async def test_names_that_no_queue_can_have(backend: Backend, name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        await backend.execute(CreateQueue(name))
    assert caught.value.code == "InvalidParameterValue"


async def test_attributes(backend: Backend, queue: str) -> None:
    await backend.execute(SetQueueAttributes(queue, {"VisibilityTimeout": "7"}))
    answer = await backend.execute(GetQueueAttributes(queue, ["VisibilityTimeout"]))
    assert answer.attributes == {"VisibilityTimeout": "7"}
    every = (await backend.execute(GetQueueAttributes(queue, ["All"]))).attributes
    assert {"QueueArn", "CreatedTimestamp", "DelaySeconds", "MaximumMessageSize"} <= every.keys()
    assert (await backend.execute(GetQueueAttributes(queue))).attributes == {}
    with pytest.raises(RefusedError) as caught:
        await backend.execute(GetQueueAttributes(queue, ["Nothing"]))
    assert caught.value.code == "InvalidAttributeName"


@pytest.mark.moto_differs("it takes values that are out of range")
async def test_attributes_that_a_queue_can_not_have(backend: Backend, queue: str) -> None:
    for attributes, code in (
        ({"Nothing": "1"}, "InvalidAttributeName"),
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "soon"}, "InvalidAttributeValue"),
    ):
        with pytest.raises(RefusedError) as caught:
            await backend.execute(SetQueueAttributes(queue, attributes))
        assert caught.value.code == code, attributes


async def test_tags(backend: Backend, queue: str) -> None:
    assert (await backend.execute(ListQueueTags(queue))).tags == {}
    await backend.execute(TagQueue(queue, {"a": "1", "b": ""}))
    await backend.execute(UntagQueue(queue, ["a"]))
    assert (await backend.execute(ListQueueTags(queue))).tags == {"b": ""}


async def test_pages(backend: Backend, unique: Unique) -> None:
    prefix = unique("page")
    for number in range(5):
        await backend.execute(CreateQueue(f"{prefix}-{number}"))
    first = await backend.execute(ListQueues(prefix, max_results=3))
    assert len(first.queue_urls) == 3
    rest = await backend.execute(ListQueues(prefix, first.next_token, max_results=3))
    assert len(rest.queue_urls) == 2
    assert rest.next_token is None


async def test_a_purge(backend: Backend, queue: str) -> None:
    await backend.execute(SendMessage(queue, "x"))
    await backend.execute(PurgeQueue(queue))
    assert (await backend.execute(ReceiveMessage(queue))).messages == []


async def test_permissions(backend: Backend, queue: str) -> None:
    await backend.execute(AddPermission(queue, "share", ["111111111111"], ["SendMessage"]))
    policy = (await backend.execute(GetQueueAttributes(queue, ["Policy"]))).attributes["Policy"]
    assert [each["Sid"] for each in json.loads(policy)["Statement"]] == ["share"]
    await backend.execute(RemovePermission(queue, "share"))
    with pytest.raises(RefusedError):
        await backend.execute(RemovePermission(queue, "share"))


async def _with_dead_letters(backend: Backend, unique: Unique) -> tuple[str, str]:
    """A dead-letter queue, and a queue whose messages go there after one receive."""
    dead = (await backend.execute(CreateQueue(unique("dead")))).queue_url
    policy = json.dumps({"deadLetterTargetArn": await _arn(backend, dead), "maxReceiveCount": "1"})
    attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    source = await backend.execute(CreateQueue(unique("source"), attributes))
    return dead, source.queue_url


@pytest.mark.moto_differs("it does not say where a dead letter comes from")
async def test_a_dead_letter_says_where_it_comes_from(backend: Backend, unique: Unique) -> None:
    dead, source = await _with_dead_letters(backend, unique)
    await backend.execute(SendMessage(source, "bad"))
    for _ in range(2):
        await backend.execute(ReceiveMessage(source))
    (message,) = (await backend.execute(ReceiveMessage(dead, ["All"]))).messages
    assert message.attributes["DeadLetterQueueSourceArn"] == await _arn(backend, source)


async def test_dead_letters(backend: Backend, unique: Unique) -> None:
    dead, source = await _with_dead_letters(backend, unique)
    assert (await backend.execute(ListDeadLetterSourceQueues(dead))).queue_urls == [source]
    await backend.execute(SendMessage(source, "bad"))
    assert len((await backend.execute(ReceiveMessage(source))).messages) == 1
    assert (await backend.execute(ReceiveMessage(source))).messages == []
    (message,) = (
        await backend.execute(ReceiveMessage(dead, ["All"], visibility_timeout=0))
    ).messages
    assert message.body == "bad"


@pytest.mark.moto_differs("it has no message move tasks")
async def test_dead_letters_are_moved_back(backend: Backend, unique: Unique) -> None:
    dead, source = await _with_dead_letters(backend, unique)
    await backend.execute(SendMessage(source, "bad"))
    for _ in range(2):
        await backend.execute(ReceiveMessage(source))
    task = await backend.execute(StartMessageMoveTask(await _arn(backend, dead)))
    assert task.task_handle
    async with asyncio.timeout(20):
        while not (  # noqa: ASYNC110 - the state of another process or thread
            back := (await backend.execute(ReceiveMessage(source))).messages
        ):
            await asyncio.sleep(0.05)
    assert back[0].body == "bad"
    await backend.execute(DeleteMessage(source, back[0].receipt_handle))
    shown = (await backend.execute(ListMessageMoveTasks(await _arn(backend, dead)))).results
    assert shown[0].source_arn == await _arn(backend, dead)


@pytest.mark.moto_differs("it has no message move tasks")
async def test_a_task_that_never_was(backend: Backend) -> None:
    with pytest.raises(RefusedError):
        await backend.execute(CancelMessageMoveTask("no task"))
