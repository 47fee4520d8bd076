"""Messages: what every backend does with them, and what it refuses."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pumphouse.backend import Backend
from pumphouse.errors import (
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
    RefusedError,
)
from pumphouse.protocol.attributes import md5_of_attributes, md5_of_body
from pumphouse.protocol.operations import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    GetQueueAttributes,
    MessageAttributeValue,
    Operation,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)

ATTRIBUTES = {
    "text": MessageAttributeValue("String", "tab\t lf\n é 🚰 <&>"),
    "number": MessageAttributeValue("Number.int", "42"),
    "bytes": MessageAttributeValue("Binary.png", binary_value=bytes(range(256))),
}
BODY = 'line one\r\nline two\t é 🚰 <a href="&">'


def _entries(*bodies: str) -> list[SendMessageBatchRequestEntry]:
    return [SendMessageBatchRequestEntry(str(i), body) for i, body in enumerate(bodies)]


async def _code(backend: Backend, operation: Operation[object]) -> str:
    with pytest.raises(RefusedError) as caught:
        await backend.execute(operation)
    assert caught.value.sender_fault
    assert 400 <= caught.value.status < 500
    return caught.value.code


async def test_a_message_goes_through_whole(backend: Backend, queue: str) -> None:
    sent = await backend.execute(SendMessage(queue, BODY, message_attributes=ATTRIBUTES))
    assert sent.md5_of_message_body == md5_of_body(BODY)
    assert sent.md5_of_message_attributes == md5_of_attributes(ATTRIBUTES)
    (message,) = (
        await backend.execute(
            ReceiveMessage(queue, ["All"], message_attribute_names=["All"], wait_time_seconds=1)
        )
    ).messages
    assert (message.message_id, message.body) == (sent.message_id, BODY)
    assert message.md5_of_body == sent.md5_of_message_body
    assert message.message_attributes == ATTRIBUTES
    assert message.md5_of_message_attributes == sent.md5_of_message_attributes
    assert message.attributes["ApproximateReceiveCount"] == "1"
    assert message.attributes["SentTimestamp"].isdigit()
    await backend.execute(DeleteMessage(queue, message.receipt_handle))
    counts = (await backend.execute(GetQueueAttributes(queue, ["All"]))).attributes
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


async def test_nothing_to_receive(backend: Backend, queue: str) -> None:
    assert (await backend.execute(ReceiveMessage(queue))).messages == []


async def test_attributes_that_nobody_asked_for_are_left_out(backend: Backend, queue: str) -> None:
    sent = await backend.execute(SendMessage(queue, "x", message_attributes=ATTRIBUTES))
    assert sent.md5_of_message_attributes
    (message,) = (await backend.execute(ReceiveMessage(queue))).messages
    assert not message.attributes
    assert not message.message_attributes
    assert message.md5_of_message_attributes is None


async def test_each_entry_of_a_batch_has_its_own_end(backend: Backend, queue: str) -> None:
    late = SendMessageBatchRequestEntry("late", "x", delay_seconds=901)
    answer = await backend.execute(SendMessageBatch(queue, [*_entries("a", "b"), late]))
    assert {entry.id for entry in answer.successful} == {"0", "1"}
    assert {entry.md5_of_message_body for entry in answer.successful} == {
        md5_of_body("a"),
        md5_of_body("b"),
    }
    (failed,) = answer.failed
    assert (failed.id, failed.code, failed.sender_fault) == ("late", "InvalidParameterValue", True)


async def test_settling_in_batches(backend: Backend, queue: str) -> None:
    await backend.execute(SendMessageBatch(queue, _entries("a", "b", "c")))
    received: list[str] = []
    while len(received) < 3:
        answer = await backend.execute(ReceiveMessage(queue, max_number_of_messages=10))
        received += [message.receipt_handle for message in answer.messages]
    changed = await backend.execute(
        ChangeMessageVisibilityBatch(
            queue, [ChangeMessageVisibilityBatchRequestEntry("one", received[0], 60)]
        )
    )
    assert [entry.id for entry in changed.successful] == ["one"]
    deleted = await backend.execute(
        DeleteMessageBatch(
            queue,
            [
                DeleteMessageBatchRequestEntry("good", received[0]),
                DeleteMessageBatchRequestEntry("bad", "not a handle"),
            ],
        )
    )
    assert [entry.id for entry in deleted.successful] == ["good"]
    assert [(entry.id, entry.code) for entry in deleted.failed] == [
        ("bad", "ReceiptHandleIsInvalid")
    ]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        (_entries(*"abcdefghijk"), "TooManyEntriesInBatchRequest"),
        ([*_entries("a"), *_entries("b")], "BatchEntryIdsNotDistinct"),
        ([SendMessageBatchRequestEntry("no spaces", "a")], "InvalidBatchEntryId"),
    ],
)
async def test_batches_that_are_refused_as_a_whole(
    backend: Backend, queue: str, entries: list[SendMessageBatchRequestEntry], code: str
) -> None:
    assert await _code(backend, SendMessageBatch(queue, entries)) == code


async def test_a_batch_that_is_too_long_in_all(backend: Backend, queue: str) -> None:
    entries = _entries(*("x" * 200_000 for _ in range(6)))
    assert await _code(backend, SendMessageBatch(queue, entries)) == "BatchRequestTooLong"


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (ReceiveMessage("", max_number_of_messages=11), "InvalidParameterValue"),
        (ReceiveMessage("", wait_time_seconds=21), "InvalidParameterValue"),
        (SendMessage("", "x" * 1_048_577), "InvalidParameterValue"),
    ],
    ids=["eleven messages", "waits too long", "too large"],
)
async def test_requests_that_are_refused(
    backend: Backend, queue: str, operation: Operation[object], code: str
) -> None:
    assert await _code(backend, msgspec.structs.replace(operation, queue_url=queue)) == code


async def test_a_delay_that_is_too_long(backend: Backend, queue: str) -> None:
    operation = SendMessage(queue, "x", delay_seconds=901)
    assert await _code(backend, operation) == "InvalidParameterValue"


async def test_a_visibility_timeout_that_is_too_long(backend: Backend, queue: str) -> None:
    operation = ReceiveMessage(queue, visibility_timeout=43_201)
    assert await _code(backend, operation) == "InvalidParameterValue"


@pytest.mark.moto_differs("it takes characters that SQS does not")
async def test_a_character_that_sqs_does_not_take(backend: Backend, queue: str) -> None:
    assert await _code(backend, SendMessage(queue, "\x00")) == "InvalidMessageContents"


@pytest.mark.moto_differs("it takes any number of attributes")
async def test_more_than_ten_attributes(backend: Backend, queue: str) -> None:
    many = {f"a{number}": MessageAttributeValue("String", "x") for number in range(11)}
    operation = SendMessage(queue, "x", message_attributes=many)
    assert await _code(backend, operation) == "InvalidParameterValue"


@pytest.mark.moto_differs("it takes empty attributes")
async def test_an_empty_attribute(backend: Backend, queue: str) -> None:
    operation = SendMessage(
        queue, "x", message_attributes={"a": MessageAttributeValue("String", "")}
    )
    assert await _code(backend, operation) == "InvalidParameterValue"


async def test_a_message_comes_back_when_it_is_let_go(backend: Backend, queue: str) -> None:
    await backend.execute(SendMessage(queue, "again"))
    (first,) = (await backend.execute(ReceiveMessage(queue))).messages
    assert (await backend.execute(ReceiveMessage(queue))).messages == []
    await backend.execute(ChangeMessageVisibility(queue, first.receipt_handle, 0))
    (again,) = (await backend.execute(ReceiveMessage(queue, ["All"], wait_time_seconds=2))).messages
    assert again.message_id == first.message_id
    assert again.attributes["ApproximateReceiveCount"] == "2"
    assert again.receipt_handle != first.receipt_handle


@pytest.mark.moto_differs("it takes the handle of a deleted message for none at all")
async def test_the_visibility_of_what_is_gone(backend: Backend, queue: str) -> None:
    await backend.execute(SendMessage(queue, "x"))
    (message,) = (await backend.execute(ReceiveMessage(queue))).messages
    await backend.execute(DeleteMessage(queue, message.receipt_handle))
    operation = ChangeMessageVisibility(queue, message.receipt_handle, 10)
    assert await _code(backend, operation) == "InvalidParameterValue"


async def test_a_handle_that_was_never_one(backend: Backend, queue: str) -> None:
    with pytest.raises(ReceiptHandleIsInvalid):
        await backend.execute(DeleteMessage(queue, "not a handle"))


async def test_a_long_poll_ends_with_the_message(backend: Backend, queue: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        poll = group.create_task(backend.execute(ReceiveMessage(queue, wait_time_seconds=20)))
        await asyncio.sleep(0.05)
        await backend.execute(SendMessage(queue, "here"))
    assert [message.body for message in poll.result().messages] == ["here"]
    assert loop.time() - began < 10


async def test_a_queue_that_is_not_there(backend: Backend, queue: str) -> None:
    for operation in (
        SendMessage(queue + "-not", "x"),
        ReceiveMessage(queue + "-not"),
        DeleteMessage(queue + "-not", "handle"),
        SendMessageBatch(queue + "-not", _entries("a")),
    ):
        with pytest.raises(QueueDoesNotExist) as caught:
            await backend.execute(operation)
        assert caught.value.code == "QueueDoesNotExist"
        assert caught.value.query_code == "AWS.SimpleQueueService.NonExistentQueue"
        assert caught.value.status == 400


# --- FIFO ---------------------------------------------------------------------------------------


async def test_a_group_keeps_its_order_and_is_held_while_one_is_out(
    backend: Backend, fifo: str
) -> None:
    for body in ("a1", "a2", "b1"):
        await backend.execute(SendMessage(fifo, body, message_group_id=body[0]))
    (first,) = (await backend.execute(ReceiveMessage(fifo))).messages
    assert first.body == "a1"
    others = (await backend.execute(ReceiveMessage(fifo, max_number_of_messages=10))).messages
    assert [message.body for message in others] == ["b1"]
    await backend.execute(DeleteMessage(fifo, first.receipt_handle))
    (second,) = (await backend.execute(ReceiveMessage(fifo, ["All"]))).messages
    assert second.body == "a2"
    assert second.attributes["MessageGroupId"] == "a"


@pytest.mark.moto_differs("it gives no sequence numbers")
async def test_sequence_numbers_grow(backend: Backend, fifo: str) -> None:
    numbers = [
        (await backend.execute(SendMessage(fifo, body, message_group_id="g"))).sequence_number
        for body in "abc"
    ]
    assert all(number is not None and len(number) == 20 for number in numbers)
    assert numbers == sorted(set(numbers))
    answer = await backend.execute(ReceiveMessage(fifo, ["All"]))
    assert answer.messages[0].attributes["SequenceNumber"] == numbers[0]


@pytest.mark.moto_differs("it answers a duplicate with an id of its own")
async def test_what_is_sent_twice_is_stored_once(backend: Backend, fifo: str) -> None:
    one = await backend.execute(SendMessage(fifo, "x", message_group_id="g"))
    two = await backend.execute(SendMessage(fifo, "x", message_group_id="g"))
    assert (one.message_id, one.sequence_number) == (two.message_id, two.sequence_number)
    answer = await backend.execute(ReceiveMessage(fifo, max_number_of_messages=10))
    assert len(answer.messages) == 1


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (SendMessage("", "x"), "MissingParameter"),
        (SendMessage("", "x", 1, message_group_id="g"), "InvalidParameterValue"),
    ],
    ids=["no group", "delay"],
)
async def test_what_a_fifo_queue_refuses(
    backend: Backend, fifo: str, operation: SendMessage, code: str
) -> None:
    assert await _code(backend, msgspec.structs.replace(operation, queue_url=fifo)) == code


@pytest.mark.moto_differs("it takes any text as a group or a deduplication id")
async def test_ids_that_are_none(backend: Backend, fifo: str) -> None:
    spaces = SendMessage(fifo, "x", message_group_id="no spaces")
    assert await _code(backend, spaces) == "InvalidParameterValue"
    long = SendMessage(fifo, "x", message_group_id="g", message_deduplication_id="x" * 129)
    assert await _code(backend, long) == "InvalidParameterValue"
