"""Which messages a topic takes, alone and in batches, and what each protocol is told."""

from __future__ import annotations

import json

import pytest

from pumphouse.account import Account
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    CreateQueue,
    MessageAttributeValue,
    ReceiveMessage,
)
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    Subscribe,
)

QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"
RAW = {"RawMessageDelivery": "true"}
CHARACTERS = (
    "Message Reason: Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


async def make(account: Account, **attributes: str) -> str:
    await account.execute(CreateQueue("queue"))
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    await account.execute(Subscribe(topic, "sqs", QUEUE, attributes))
    return topic


async def bodies(account: Account) -> list[str]:
    answer = await account.execute(ReceiveMessage("queue", max_number_of_messages=10))
    return [message.body for message in answer.messages]


# --- subjects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["s", "x" * 100, " s", "Grüße", "件名 \U0001f600", "a b"])
async def test_a_subject(account: Account, subject: str) -> None:
    topic = await make(account)
    await account.execute(Publish("m", topic, subject=subject))
    [body] = await bodies(account)
    assert json.loads(body)["Subject"] == subject


@pytest.mark.parametrize(
    "subject", ["", "x" * 101, "a\nb", "a\rb", "a\tb", "\x7f", "a\x85b", "a\u2028b", "\ud800"]
)
async def test_no_subject(account: Account, subject: str) -> None:
    topic = await make(account)
    with pytest.raises(RefusedError) as raised:
        await account.execute(Publish("m", topic, subject=subject))
    assert (raised.value.code, raised.value.message) == (
        "InvalidParameter",
        "Invalid parameter: Subject",
    )


# --- a message for each protocol ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "Message Structure - JSON message body failed to parse"),
        ('{"default": "d", "http": NaN}', "Message Structure - JSON message body failed to parse"),
        ("[" * 100_000, "Message Structure - JSON message body failed to parse"),
        ("[]", "Message Structure - No default entry in JSON message body"),
        ('[["default", "d"]]', "Message Structure - No default entry in JSON message body"),
        ('"default"', "Message Structure - No default entry in JSON message body"),
        ("{}", "Message Structure - No default entry in JSON message body"),
        ('{"default": 1}', "Message Structure - No default entry in JSON message body"),
        ('{"default": "\\u0000"}', CHARACTERS),
        ('{"default": "d", "sqs": "\\ud800"}', CHARACTERS),
        ('{"default": "d", "http": "\\uffff"}', CHARACTERS),
    ],
)
async def test_messages_that_can_not_be(account: Account, text: str, words: str) -> None:
    topic = await make(account)
    with pytest.raises(RefusedError) as raised:
        await account.execute(Publish(text, topic, message_structure="json"))
    assert raised.value.message == f"Invalid parameter: {words}"
    assert not await bodies(account)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"default": "d"}', "d"),
        ('{"default": "d", "sqs": "s"}', "s"),
        ('{"default": "d", "sqs": ""}', ""),
        ('{"default": ""}', ""),
        ('{"default": "d", "default": "e"}', "e"),
        ('{"default": "d", "sqs": 5}', "d"),
        ('{"default": "d", "sqs": {"a": "b", "a": "c"}}', "d"),
        ('{"default": "\\ud83d\\ude00"}', "\U0001f600"),
    ],
)
async def test_the_message_for_a_queue(account: Account, text: str, message: str) -> None:
    topic = await make(account)
    await account.execute(Publish(text, topic, message_structure="json"))
    [body] = await bodies(account)
    assert json.loads(body)["Message"] == message


async def test_an_empty_message_is_no_body_of_a_queue(account: Account) -> None:
    topic = await make(account, **RAW)
    await account.execute(Publish('{"default": ""}', topic, message_structure="json"))
    assert not await bodies(account)
    [lost] = account.topics.undelivered
    assert lost.reason == "the queue refuses the message: it is empty"


# --- batches ------------------------------------------------------------------------------------


async def test_an_entry_that_is_refused_fails_alone(account: Account) -> None:
    topic = await make(account, **RAW)
    entries = [
        PublishBatchRequestEntry("1", "one", subject="s"),
        PublishBatchRequestEntry("2", "two", subject="a\nb"),
        PublishBatchRequestEntry("3", ""),
        PublishBatchRequestEntry("4", "four", message_structure="json"),
        PublishBatchRequestEntry("5", "f\x00ive"),
        PublishBatchRequestEntry("6", "six"),
    ]
    answer = await account.execute(PublishBatch(topic, entries))
    assert [each.id for each in answer.successful] == ["1", "6"]
    assert [(each.id, each.message) for each in answer.failed] == [
        ("2", "Invalid parameter: Subject"),
        ("3", "Invalid parameter: Empty message"),
        ("4", "Invalid parameter: Message Structure - JSON message body failed to parse"),
        ("5", f"Invalid parameter: {CHARACTERS}"),
    ]
    assert answer.failed[0] == BatchResultErrorEntry(
        "2", True, "InvalidParameter", "Invalid parameter: Subject"
    )
    assert await bodies(account) == ["one", "six"]


async def test_wrong_attributes_refuse_a_batch(account: Account) -> None:
    topic = await make(account, **RAW)
    wrong = {"a": MessageAttributeValue("Nothing", "x")}
    entries = [
        PublishBatchRequestEntry("1", "one"),
        PublishBatchRequestEntry("2", "two", message_attributes=wrong),
    ]
    with pytest.raises(RefusedError) as raised:
        await account.execute(PublishBatch(topic, entries))
    assert raised.value.code == "ParameterValueInvalid"
    assert not await bodies(account)


@pytest.mark.parametrize(
    "data_type", ["String.\ud800", "String.\x00", "Binary.\uffff", "String.", "T"]
)
async def test_a_type_that_is_none(account: Account, data_type: str) -> None:
    topic = await make(account, **RAW)
    wrong = {"a": MessageAttributeValue(data_type, "x", b"x")}
    with pytest.raises(RefusedError, match="has an invalid message attribute type") as raised:
        await account.execute(Publish("m", topic, message_attributes=wrong))
    assert raised.value.code == "ParameterValueInvalid"
    assert not await bodies(account)
