"""The rows of the lessons that topics have, as users meet them: L13 in the runtime, B4 and B5 in a
sink to a topic."""

from __future__ import annotations

from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.addressing import Topic
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import MessageTooLargeError, UsageError
from pumphouse.model import Message, Receipt
from pumphouse.notifications import subscribe_queue_to_topic
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    GetTopicAttributes,
    Publish,
    PublishBatch,
    SetTopicAttributes,
)
from pumphouse.sink import Sink
from pumphouse.subscriber.queue import Queue
from support.sending import outcomes

ARN = "arn:aws:sns:us-east-1:000000000000:t"


async def _handled(account: Account, clock: VirtualClock, **modes: Any) -> dict[str, list[Message]]:
    """What the handlers get of the queues, each read in its mode."""
    got: dict[str, list[Message]] = {name: [] for name in modes}
    app = App("t")

    def declare(name: str, mode: Any) -> None:
        async def note(message: Message) -> None:
            got[name].append(message)

        app.subscriber(Queue(name, sns=mode))(note)

    for name, mode in modes.items():
        declare(name, mode)
    async with app.running(account):
        await clock.advance(3)
    return got


@pytest.fixture
async def topic(account: Account) -> Topic:
    """A topic with a raw and an enveloped queue."""
    await account.execute(CreateTopic("t"))
    for name, raw in (("raw", True), ("wrapped", False)):
        await account.execute(CreateQueue(name))
        await subscribe_queue_to_topic(account, name, Topic("t"), raw_message_delivery=raw)
    return Topic("t")


@pytest.mark.parametrize("mode", ["envelope", "auto"])
@pytest.mark.parametrize(
    "body", ["plain", b"\x00\xff", "ü \U0001f600\r\n", '{"Type": "Notification"}', " "]
)
async def test_l13_a_handler_gets_the_same_body_headers_and_attributes(
    account: Account, clock: VirtualClock, topic: Topic, body: Any, mode: Any
) -> None:
    attributes = {"text": "ä\n", "bytes": bytes(range(256)), "number": 7.5}
    async with Sink(topic, account, clock=clock) as sink:
        [receipt] = await outcomes(clock, [sink.send(body, attributes=attributes)])
    assert isinstance(receipt, Receipt)
    got = await _handled(account, clock, raw="raw", wrapped=mode)
    [raw], [wrapped] = got["raw"], got["wrapped"]
    assert raw.body == wrapped.body == (body if isinstance(body, bytes) else body.encode())
    assert raw.headers == wrapped.headers
    assert raw.headers == {"text": "ä\n", "bytes": bytes(range(256)), "number": "7.5"}


@pytest.mark.parametrize("mode", ["raw", "auto"])
async def test_l13_a_payload_of_type_notification_is_left_alone_on_a_raw_queue(
    account: Account, clock: VirtualClock, topic: Topic, mode: Any
) -> None:
    whole = {
        "Type": "Notification",
        "MessageId": "1",
        "TopicArn": ARN,
        "Message": "inner",
        "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "c2ln",
        "SigningCertURL": "https://sns.us-east-1.amazonaws.com/x.pem",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/",
    }
    payloads: list[Any] = ['{"Type": "Notification"}', whole]
    async with Sink(topic, account, clock=clock) as sink:
        await outcomes(clock, [sink.send(payload) for payload in payloads])
        sent = [
            entry.message
            for record in account.ledger.of(PublishBatch)
            for entry in record.operation.publish_batch_request_entries
        ]
    got = await _handled(account, clock, raw=mode)
    assert [message.text for message in got["raw"]] == sent
    assert len(sent) == 2


async def test_b4_a_topics_limit_is_read_and_oversize_refused_before_the_request(
    account: Account, clock: VirtualClock, topic: Topic
) -> None:
    await account.execute(SetTopicAttributes(ARN, "MaximumMessageSize", "65536"))
    account.ledger.clear()
    async with Sink(topic, account, clock=clock) as sink:
        got = await outcomes(clock, [sink.send("x" * 65_536), sink.send("x" * 65_537)])
    assert isinstance(got[0], Receipt)
    assert isinstance(got[1], MessageTooLargeError)
    assert got[1].limit == 65_536
    assert len(account.ledger.of(GetTopicAttributes)) == 1
    assert len(account.ledger.of(PublishBatch)) == 1


async def test_b4_a_configured_limit_is_taken_and_the_topic_is_not_asked(
    account: Account, clock: VirtualClock, topic: Topic
) -> None:
    account.ledger.clear()
    async with Sink(topic, account, clock=clock, max_message_bytes=100) as sink:
        [error] = await outcomes(clock, [sink.send("x" * 101)])
        await outcomes(clock, [sink.send("x" * 100)])
    assert isinstance(error, MessageTooLargeError)
    assert not account.ledger.of(GetTopicAttributes)


async def test_b5_ten_of_the_user_win_and_an_eleventh_is_refused_before_the_request(
    account: Account, clock: VirtualClock, topic: Topic
) -> None:
    tracing = {"traceparent": "00-1-2-03", "tracestate": "a=b"}
    ten = {f"k{n}": "v" for n in range(10)}
    async with Sink(topic, account, clock=clock, add_attributes=lambda _: tracing) as sink:
        await outcomes(clock, [sink.send("ten", attributes=ten)])
        await outcomes(clock, [sink.send("nine", attributes=dict(list(ten.items())[:9]))])
        account.ledger.clear()
        with pytest.raises(UsageError, match="11 message attributes") as refused:
            await sink.send("eleven", attributes={**ten, "k10": "v"})
        assert "between a topic and a queue that it is delivered to raw" in str(refused.value)
        for body, attributes in (("", {}), ("x", {"empty": ""}), ("x", {"bell": "\a"})):
            with pytest.raises(UsageError) as refused:
                await sink.send(body, attributes=attributes)
            assert "SQS" not in str(refused.value), "it is SNS that was addressed"
    assert not account.ledger.of(PublishBatch)
    assert not account.ledger.of(Publish)
    got = await _handled(account, clock, raw="raw", wrapped="envelope")
    for messages in got.values():
        assert [set(message.headers) for message in messages] == [
            set(ten),
            {*list(ten)[:9], "traceparent"},
        ]
