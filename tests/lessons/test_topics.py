"""Lessons about topics, as far as the account goes: what arrives through raw and enveloped
subscriptions, and what is refused by size and by number of attributes."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from pumphouse.account import Account
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import (
    Attributes,
    CreateQueue,
    MessageAttributeValue,
    ReceivedMessage,
    ReceiveMessage,
    SetQueueAttributes,
)
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    GetTopicAttributes,
    Publish,
    SetTopicAttributes,
    Subscribe,
)

NUMBERS = ("1", "-0.50", "1e3")


def text(value: str) -> MessageAttributeValue:
    return MessageAttributeValue("String", value)


async def _topic(account: Account, **queues: bool) -> str:
    """A topic with queues; whether each is subscribed raw."""
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    for name, raw in queues.items():
        await account.execute(CreateQueue(name))
        arn = f"arn:aws:sqs:us-east-1:000000000000:{name}"
        attributes = {"RawMessageDelivery": "true"} if raw else None
        await account.execute(Subscribe(topic, "sqs", arn, attributes))
    return topic


async def _received(account: Account, queue: str) -> list[ReceivedMessage]:
    operation = ReceiveMessage(queue, message_attribute_names=["All"], max_number_of_messages=10)
    return (await account.execute(operation)).messages


def _opened(message: ReceivedMessage) -> tuple[str, Attributes]:
    """Body and attributes of an envelope."""
    envelope = json.loads(message.body)
    attributes = {
        name: MessageAttributeValue(each["Type"], binary_value=b64decode(each["Value"]))
        if each["Type"].startswith("Binary")
        else MessageAttributeValue(each["Type"], each["Value"])
        for name, each in envelope.get("MessageAttributes", {}).items()
    }
    return envelope["Message"], attributes


@pytest.mark.parametrize(
    "body",
    [
        "plain",
        'ü \U0001f600 " \\ / \n\r\t',
        '{"Type": "Notification", "Message": "not an envelope"}',
        '{"default": "x"}',
        " ",
    ],
)
async def test_l13_raw_and_enveloped_bring_the_same(account: Account, body: str) -> None:
    topic = await _topic(account, raw=True, enveloped=False)
    attributes = {
        "text": text("ä\n"),
        "bytes": MessageAttributeValue("Binary.png", binary_value=bytes(range(256))),
        **{f"n{n}": MessageAttributeValue("Number", value) for n, value in enumerate(NUMBERS)},
    }
    await account.execute(Publish(body, topic, message_attributes=attributes))
    [raw] = await _received(account, "raw")
    [enveloped] = await _received(account, "enveloped")
    assert (raw.body, raw.message_attributes) == (body, attributes)
    assert _opened(enveloped) == (body, attributes)
    assert enveloped.message_attributes is None


async def test_l13_a_payload_that_looks_like_an_envelope_is_left_alone(account: Account) -> None:
    topic = await _topic(account, raw=True)
    body = json.dumps({"Type": "Notification", "Message": "m", "TopicArn": topic})
    await account.execute(Publish(body, topic))
    [message] = await _received(account, "raw")
    assert message.body == body


async def test_b4_a_topic_takes_256_kib_until_told_otherwise(account: Account) -> None:
    topic = await _topic(account, raw=True)
    most = 262_144
    assert "MaximumMessageSize" not in (await account.execute(GetTopicAttributes(topic))).attributes
    await account.execute(Publish("x" * most, topic))
    with pytest.raises(RefusedError, match="Message too long"):
        await account.execute(Publish("x" * (most + 1), topic))
    with pytest.raises(RefusedError, match="Message too long"):
        await account.execute(Publish("x" * most, topic, message_attributes={"k": text("v")}))
    await account.execute(SetTopicAttributes(topic, "MaximumMessageSize", "1048576"))
    await account.execute(Publish("x" * 1_048_576, topic))
    shown = (await account.execute(GetTopicAttributes(topic))).attributes
    assert shown["MaximumMessageSize"] == "1048576"
    assert [len(message.body) for message in await _received(account, "raw")] == [most, 1_048_576]


async def test_b4_a_queue_smaller_than_its_topic_loses_nothing_in_silence(
    account: Account,
) -> None:
    topic = await _topic(account, raw=True, other=True)
    await account.execute(SetQueueAttributes("raw", {"MaximumMessageSize": "65536"}))
    await account.execute(Publish("x" * 65_537, topic))
    assert await _received(account, "raw") == []
    assert len(await _received(account, "other")) == 1
    [lost] = account.topics.undelivered
    assert "Message must be shorter than 65536 bytes" in lost.reason


async def test_b5_an_eleventh_attribute_gets_through_an_envelope_and_not_raw(
    account: Account,
) -> None:
    topic = await _topic(account, raw=True, enveloped=False)
    for count in (10, 11):
        attributes = {f"k{number:02}": text("v") for number in range(count)}
        await account.execute(Publish(str(count), topic, message_attributes=attributes))
    assert [message.body for message in await _received(account, "raw")] == ["10"]
    opened = [_opened(message) for message in await _received(account, "enveloped")]
    assert [(body, len(found)) for body, found in opened] == [("10", 10), ("11", 11)]
    [lost] = account.topics.undelivered
    assert "exceeds the allowed maximum [10]" in lost.reason
