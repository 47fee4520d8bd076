"""What the account refuses about messages: AWS's code, words and blame, alone and in a batch."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.errors import (
    ConfigError,
    QueueDoesNotExist,
    RefusedError,
    ServiceError,
    UsageError,
)
from pumphouse.protocol.operations import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    MessageAttributeValue,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from support.a_queue import AQueue


def string(value: str | None, data_type: str = "String") -> MessageAttributeValue:
    return MessageAttributeValue(data_type, value)


CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF"
)
TOKEN = "can only include alphanumeric and punctuation characters. 1 to 128 in length."

MESSAGES = [
    ({"message_body": "a\x00"}, "InvalidMessageContents", CHARACTERS),
    ({"message_body": "\ufffe"}, "InvalidMessageContents", CHARACTERS),
    ({"message_body": "\ud800"}, "InvalidMessageContents", CHARACTERS),
    (
        {"message_body": "x" * 1025},
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    (
        {"message_body": "é" * 508, "message_attributes": {"ab": string("d")}},
        "InvalidParameterValue",
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    (
        {"delay_seconds": 901},
        "InvalidParameterValue",
        "Value 901 for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    (
        {"delay_seconds": -1},
        "InvalidParameterValue",
        "Value -1 for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    (
        {"message_deduplication_id": "x"},
        "InvalidParameterValue",
        "Value x for parameter MessageDeduplicationId is invalid. "
        "Reason: The request includes a parameter that is not valid for this queue type.",
    ),
    (
        {"message_group_id": "a b"},
        "InvalidParameterValue",
        f"Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId {TOKEN}",
    ),
    (
        {"message_attributes": {f"n{number}": string("v") for number in range(11)}},
        "InvalidParameterValue",
        "Number of message attributes [11] exceeds the allowed maximum [10].",
    ),
    (
        {"message_attributes": {"n": string("")}},
        "InvalidParameterValue",
        "Message (user) attribute 'n' must contain a non-empty value of type 'String'.",
    ),
    (
        {"message_attributes": {"n": string(None, "Number")}},
        "InvalidParameterValue",
        "Message (user) attribute 'n' must contain a non-empty value of type 'Number'.",
    ),
    (
        {"message_attributes": {"n": MessageAttributeValue("Binary", binary_value=b"")}},
        "InvalidParameterValue",
        "Message (user) attribute 'n' must contain a non-empty value of type 'Binary'.",
    ),
    (
        {"message_attributes": {"n": string("v", "Strange")}},
        "InvalidParameterValue",
        "The type of message (user) attribute 'n' is invalid. You must use only the following "
        "supported type prefixes: Binary, Number, String.",
    ),
    (
        {"message_attributes": {"n": string("v", "")}},
        "InvalidParameterValue",
        "The message (user) attribute 'n' must contain a non-empty message attribute type.",
    ),
    (
        {"message_attributes": {"n": string("v", "Binary")}},
        "InvalidParameterValue",
        "Message (user) attribute 'n' with type 'Binary' must use field 'Binary'.",
    ),
    (
        {"message_attributes": {"n": string("four", "Number.int")}},
        "InvalidParameterValue",
        "Can't cast the value of message (user) attribute 'n' to a number.",
    ),
    ({"message_attributes": {"n": string("\x08")}}, "InvalidParameterValue", CHARACTERS),
    (
        {"message_attributes": {"n": MessageAttributeValue("String", string_list_values=["v"])}},
        "UnsupportedOperation",
        "Message attribute list values in SendMessage operation are not supported.",
    ),
    (
        {"message_attributes": {"aWs.n": string("v")}},
        "InvalidParameterValue",
        "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings "
        "are reserved for internal use. Additionally, they cannot start or end with '.'.",
    ),
    (
        {"message_attributes": {"a b": string("v")}},
        "InvalidParameterValue",
        "Message (user) attributes name can only contain upper and lower score characters, "
        "digits, periods, hyphens and underscores. ",
    ),
    (
        {"message_system_attributes": {"Other": string("v")}},
        "InvalidParameterValue",
        "Message system attribute name 'Other' is invalid.",
    ),
]


@pytest.mark.parametrize(("request_", "code", "message"), MESSAGES)
async def test_a_message_is_refused_alone_and_as_an_entry(
    account: Account, request_: dict[str, Any], code: str, message: str
) -> None:
    queue = await AQueue.create(account, MaximumMessageSize=1024)
    bad = {"message_body": "body", **request_}
    with pytest.raises(RefusedError) as caught:
        await account.execute(SendMessage(queue.url, **bad))
    error = caught.value
    assert (error.code, error.message) == (code, message)
    assert (error.status, error.sender_fault) == (400, True)
    answer = await account.execute(
        SendMessageBatch(
            queue.url,
            [
                SendMessageBatchRequestEntry("before", "fine"),
                SendMessageBatchRequestEntry("bad", **bad),
                SendMessageBatchRequestEntry("after", "fine"),
            ],
        )
    )
    assert [entry.id for entry in answer.successful] == ["before", "after"]
    [failed] = answer.failed
    assert (failed.id, failed.code, failed.message) == ("bad", code, message)
    assert failed.sender_fault
    assert await queue.counts() == (2, 0, 0)


@pytest.mark.parametrize(
    "request_",
    [
        {"message_body": "x" * 1024},
        {"message_body": "é" * 508, "message_attributes": {"a": string("b")}},
        {"message_body": "\t\r\n \ud7ff\ue000\ufffd\U0001f600"},
        {"delay_seconds": 900},
        {"message_group_id": "!" * 128},
        {"message_attributes": {"a" * 256: string("v")}},
        {"message_attributes": {"attr.1øßä": string("v")}},
        {"message_attributes": {"n": string("-1.5e10", "Number.float")}},
        {"message_attributes": {"n": MessageAttributeValue("Binary.png", binary_value=b"\x00")}},
        {"message_attributes": {}},
        {"message_system_attributes": {"AWSTraceHeader": string("Root=1-1-1")}},
    ],
)
async def test_a_message_at_the_edge_is_taken(account: Account, request_: dict[str, Any]) -> None:
    queue = await AQueue.create(account, MaximumMessageSize=1024)
    message = {"message_body": "body", **request_}
    sent = await account.execute(SendMessage(queue.url, **message))
    stored = account.queue("q").messages[1]
    assert stored.message_id == sent.message_id
    assert stored.body == message["message_body"]


async def test_the_trace_header_comes_back(account: Account) -> None:
    queue = await AQueue.create(account)
    sent = await queue.send(message_system_attributes={"AWSTraceHeader": string("Root=1-1-1")})
    assert sent.md5_of_message_system_attributes is not None
    [message] = await queue.receive(attribute_names=["AWSTraceHeader"])
    assert message.attributes == {"AWSTraceHeader": "Root=1-1-1"}


async def test_an_empty_body_is_worded_in_two_ways(account: Account) -> None:
    queue = await AQueue.create(account)
    with pytest.raises(RefusedError) as caught:
        await queue.send("")
    assert (caught.value.code, caught.value.message) == (
        "MissingParameter",
        "The request must contain the parameter MessageBody.",
    )
    answer = await queue.send_batch("fine", "")
    [failed] = answer.failed
    assert (failed.id, failed.code, failed.sender_fault) == ("1", "EmptyValue", True)
    assert failed.message == "No Value Found for SendMessageBatchRequestEntry.2.MessageBody."


@pytest.mark.parametrize(
    ("more", "alone", "in_a_batch"),
    [
        (
            {"message_group_id": None},
            "MissingParameter: The request must contain the parameter MessageGroupId.",
            "InvalidParameterValue: The request must contain the parameter MessageGroupId.",
        ),
        (
            {"message_deduplication_id": None},
            "InvalidParameterValue: The queue should either have ContentBasedDeduplication "
            "enabled or MessageDeduplicationId provided explicitly",
            "InvalidParameterValue: The queue should either have ContentBasedDeduplication "
            "enabled or MessageDeduplicationId provided explicitly",
        ),
    ],
)
async def test_what_a_fifo_queue_must_be_told(
    account: Account, more: dict[str, Any], alone: str, in_a_batch: str
) -> None:
    queue = await AQueue.create(account, "q.fifo")
    with pytest.raises(RefusedError) as caught:
        await queue.send("a", **more)
    assert str(caught.value) == alone
    with pytest.raises(RefusedError) as caught:
        await queue.send_batch("a", "b", **more)
    assert str(caught.value) == in_a_batch
    assert await queue.counts() == (0, 0, 0)


BATCHES: list[tuple[str, type[Any], type[Any], dict[str, Any]]] = [
    (
        "SendMessageBatchRequestEntry",
        SendMessageBatch,
        SendMessageBatchRequestEntry,
        {"message_body": "b"},
    ),
    (
        "DeleteMessageBatchRequestEntry",
        DeleteMessageBatch,
        DeleteMessageBatchRequestEntry,
        {"receipt_handle": "h"},
    ),
    (
        "ChangeMessageVisibilityBatchRequestEntry",
        ChangeMessageVisibilityBatch,
        ChangeMessageVisibilityBatchRequestEntry,
        {"receipt_handle": "h", "visibility_timeout": 1},
    ),
]


@pytest.mark.parametrize(("name", "operation", "entry", "more"), BATCHES)
async def test_batches_as_such(
    account: Account, name: str, operation: type[Any], entry: type[Any], more: dict[str, Any]
) -> None:
    queue = await AQueue.create(account)
    for ids, code, message in (
        ([], "EmptyBatchRequest", f"There should be at least one {name} in the request."),
        (
            [str(number) for number in range(11)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct", "Id a repeated."),
        (
            ["a", "b.c"],
            "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
        ),
    ):
        with pytest.raises(RefusedError) as caught:
            await account.execute(operation(queue.url, [entry(each, **more) for each in ids]))
        assert (caught.value.code, caught.value.message) == (code, message)
    assert await queue.counts() == (0, 0, 0)


async def test_a_batch_has_one_mebibyte_in_all(account: Account) -> None:
    queue = await AQueue.create(account)
    full = 1_048_576 // 4
    answer = await queue.send_batch(*["x" * full] * 4)
    assert len(answer.successful) == 4
    with pytest.raises(RefusedError) as caught:
        await queue.send_batch(*["x" * full] * 3, "x" * (full + 1))
    assert (caught.value.code, caught.value.message) == (
        "BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"max_number_of_messages": 0},
            "Value 0 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        (
            {"max_number_of_messages": 2.5},
            "Value 2.5 for parameter MaxNumberOfMessages is invalid. "
            "Reason: Must be between 1 and 10, if provided.",
        ),
        (
            {"wait_time_seconds": 21},
            "Value 21 for parameter WaitTimeSeconds is invalid. "
            "Reason: Must be >= 0 and <= 20, if provided.",
        ),
        (
            {"visibility_timeout": 43_201},
            "Value 43201 for parameter VisibilityTimeout is invalid. "
            "Reason: Must be >= 0 and <= 43200, if provided.",
        ),
    ],
)
async def test_a_receive_is_refused(account: Account, more: dict[str, Any], message: str) -> None:
    queue = await AQueue.create(account)
    with pytest.raises(RefusedError) as caught:
        await account.execute(ReceiveMessage(queue.url, **more))
    assert (caught.value.code, caught.value.message) == ("InvalidParameterValue", message)


async def test_visibility_out_of_range(account: Account) -> None:
    queue = await AQueue.create(account)
    await queue.send()
    [message] = await queue.receive()
    for seconds in (-1, 43_201):
        with pytest.raises(RefusedError) as caught:
            await queue.change(message, seconds)
        assert (caught.value.code, caught.value.message) == (
            "InvalidParameterValue",
            f"Value {seconds} for parameter VisibilityTimeout is invalid. "
            "Reason: VisibilityTimeout must be an integer between 0 and 43200.",
        )


NOWHERE = "https://sqs.us-east-1.amazonaws.com/000000000000/nowhere"


@pytest.mark.parametrize(
    "operation",
    [
        SendMessage(NOWHERE, "b"),
        SendMessageBatch(NOWHERE, [SendMessageBatchRequestEntry("a", "b")]),
        ReceiveMessage(NOWHERE),
        DeleteMessage(NOWHERE, "h"),
        DeleteMessageBatch(NOWHERE, []),
        ChangeMessageVisibility(NOWHERE, "h", 1),
    ],
)
async def test_there_is_no_such_queue(account: Account, operation: Any) -> None:
    with pytest.raises(QueueDoesNotExist) as caught:
        await account.execute(operation)
    assert caught.value.message == "The specified queue does not exist."
    assert caught.value.query_code == "AWS.SimpleQueueService.NonExistentQueue"


async def test_which_urls_name_a_queue(account: Account) -> None:
    await AQueue.create(account)
    other = account.within(region="eu-west-1", account_id="111122223333")
    await AQueue.create(other)
    for url in (
        "https://sqs.us-east-1.amazonaws.com/000000000000/q",
        "https://queue.amazonaws.com/000000000000/q",
        "http://127.0.0.1:4566/000000000000/q",
        "http://127.0.0.1/q",
        "q",
    ):
        await account.execute(SendMessage(url, "b"))
    assert await AQueue(account, "q").counts() == (5, 0, 0)
    with pytest.raises(ConfigError) as caught:  # another region than that of the endpoint
        await account.execute(
            SendMessage("https://sqs.eu-west-1.amazonaws.com/000000000000/q", "b")
        )
    assert isinstance(caught.value, ServiceError)
    assert (caught.value.code, caught.value.status) == ("InvalidAddress", 404)
    across = account.within(region="eu-west-1", account_id="999999999999")
    await across.execute(SendMessage("https://sqs.eu-west-1.amazonaws.com/111122223333/q", "b"))
    [message] = await AQueue(other, "q").receive(attribute_names=["SenderId"])
    assert message.attributes == {"SenderId": "999999999999"}


async def test_a_handle_that_is_empty(account: Account) -> None:
    queue = await AQueue.create(account)
    for operation in (DeleteMessage(queue.url, ""), ChangeMessageVisibility(queue.url, "", 1)):
        with pytest.raises(RefusedError) as caught:
            await account.execute(operation)
        assert (caught.value.code, caught.value.message) == (
            "MissingParameter",
            "The request must contain the parameter ReceiptHandle.",
        )
    entries = [DeleteMessageBatchRequestEntry("a", "x"), DeleteMessageBatchRequestEntry("b", "")]
    answer = await account.execute(DeleteMessageBatch(queue.url, entries))
    assert [entry.code for entry in answer.failed] == ["ReceiptHandleIsInvalid", "EmptyValue"]
    assert answer.failed[1].message == (
        "No Value Found for DeleteMessageBatchRequestEntry.2.ReceiptHandle."
    )
    assert answer.failed[1].sender_fault


@pytest.mark.parametrize("ledger_room", [0, 10])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda url: SendMessage(url, b"b"), "Expected `str`, got `bytes` - at `$.MessageBody`"),
        (lambda url: SendMessage(None, "b"), "got `null` - at `$.QueueUrl`"),
        (lambda url: SendMessage(url, "b", delay_seconds="5"), "at `$.DelaySeconds`"),
        (lambda url: SendMessage(url, "b", message_attributes={"a": "b"}), "MessageAttributes"),
        (lambda url: SendMessage(url, object()), "SendMessage: Encoding objects of type object"),
        (lambda url: ReceiveMessage(url, wait_time_seconds="5"), "at `$.WaitTimeSeconds`"),
        (lambda url: "SendMessage", "'SendMessage' is no operation"),
    ],
)
async def test_a_value_of_another_type_is_named(ledger_room: int, make: Any, what: str) -> None:
    account = Account(ledger_room=ledger_room)
    queue = await AQueue.create(account)
    with pytest.raises(UsageError, match=re.escape(what)):
        await account.execute(make(queue.url))


async def test_a_batch_with_a_value_of_another_type_stores_nothing(account: Account) -> None:
    queue = await AQueue.create(account)
    text = MessageAttributeValue("Binary", binary_value="text")  # type: ignore[arg-type]
    entries = [
        SendMessageBatchRequestEntry("a", "fine"),
        SendMessageBatchRequestEntry("b", "b", message_attributes={"n": text}),
    ]
    with pytest.raises(UsageError, match=r"got `str` - at `\$.Entries\[1\].MessageAttributes"):
        await account.execute(SendMessageBatch(queue.url, entries))
    assert await queue.counts() == (0, 0, 0)
