"""Topics: making, finding, changing and deleting them, subscriptions, and what a publish brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pumphouse.backend import Backend
from pumphouse.errors import RefusedError, SubscriptionDoesNotExist, TopicDoesNotExist
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteMessage,
    DeleteQueue,
    GetQueueAttributes,
    MessageAttributeValue,
    ReceivedMessage,
    ReceiveMessage,
)
from pumphouse.protocol.sns_operations import (
    AddTopicPermission,
    ConfirmSubscription,
    CreateTopic,
    DeleteTopic,
    GetSubscriptionAttributes,
    GetTopicAttributes,
    ListSubscriptions,
    ListSubscriptionsByTopic,
    ListTagsForResource,
    ListTopics,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    RemoveTopicPermission,
    SetSubscriptionAttributes,
    SetTopicAttributes,
    Subscribe,
    Tag,
    TagResource,
    Unsubscribe,
    UntagResource,
)

Unique = Callable[[str], str]
Entry = PublishBatchRequestEntry

RAW = {"RawMessageDelivery": "true"}


def text(value: str) -> MessageAttributeValue:
    return MessageAttributeValue("String", value)


@pytest.fixture
async def topic(backend: Backend, unique: Unique) -> str:
    return (await backend.execute(CreateTopic(unique("topic")))).topic_arn


@pytest.fixture
async def fifo_topic(backend: Backend, unique: Unique) -> str:
    attributes = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
    return (await backend.execute(CreateTopic(unique("topic") + ".fifo", attributes))).topic_arn


async def _arn(backend: Backend, url: str) -> str:
    answer = await backend.execute(GetQueueAttributes(url, ["QueueArn"]))
    return answer.attributes["QueueArn"]


async def _subscribe(backend: Backend, topic: str, url: str, **attributes: str) -> str:
    operation = Subscribe(topic, "sqs", await _arn(backend, url), attributes or None)
    arn = (await backend.execute(operation)).subscription_arn
    assert arn is not None
    return arn


async def _received(backend: Backend, url: str) -> list[ReceivedMessage]:
    answer = await backend.execute(
        ReceiveMessage(
            url,
            message_attribute_names=["All"],
            attribute_names=["All"],
            max_number_of_messages=10,
        )
    )
    for message in answer.messages:
        await backend.execute(DeleteMessage(url, message.receipt_handle))
    return answer.messages


async def _bodies(backend: Backend, url: str) -> list[str]:
    return [message.body for message in await _received(backend, url)]


# --- topics -------------------------------------------------------------------------------------


async def test_a_topic_is_made_found_and_deleted(backend: Backend, unique: Unique) -> None:
    name = unique("found")
    arn = (await backend.execute(CreateTopic(name))).topic_arn
    assert arn.startswith("arn:aws:sns:us-east-1:")
    assert arn.endswith(f":{name}")
    assert (await backend.execute(CreateTopic(name))).topic_arn == arn
    assert arn in [each.topic_arn for each in (await backend.execute(ListTopics())).topics]
    await backend.execute(DeleteTopic(arn))
    assert arn not in [each.topic_arn for each in (await backend.execute(ListTopics())).topics]
    with pytest.raises(TopicDoesNotExist):
        await backend.execute(GetTopicAttributes(arn))


@pytest.mark.moto_differs("the name is not checked as AWS checks it")
async def test_a_name_that_is_none(backend: Backend) -> None:
    for name, attributes in (("a.fifo", None), ("a", {"FifoTopic": "true"}), ("a" * 257, None)):
        with pytest.raises(RefusedError) as raised:
            await backend.execute(CreateTopic(name, attributes))
        assert raised.value.message == "Invalid parameter: Topic Name"


async def test_attributes_are_set_and_shown(backend: Backend, topic: str) -> None:
    await backend.execute(SetTopicAttributes(topic, "DisplayName", "Shown"))
    shown = (await backend.execute(GetTopicAttributes(topic))).attributes
    assert shown["DisplayName"] == "Shown"
    assert shown["TopicArn"] == topic
    assert shown["SubscriptionsConfirmed"] == "0"
    assert json.loads(shown["Policy"])["Id"] == "__default_policy_ID"


@pytest.mark.moto_differs("the policy lacks its outermost object")
async def test_the_delivery_policy_in_effect(backend: Backend, topic: str) -> None:
    shown = (await backend.execute(GetTopicAttributes(topic))).attributes
    policy = json.loads(shown["EffectiveDeliveryPolicy"])["http"]
    assert policy["defaultHealthyRetryPolicy"]["numRetries"] == 3


@pytest.mark.moto_differs("any attribute is taken")
async def test_an_attribute_that_is_none(backend: Backend, topic: str) -> None:
    with pytest.raises(RefusedError, match="AttributeName"):
        await backend.execute(SetTopicAttributes(topic, "Nonsense", "x"))


async def test_tags(backend: Backend, topic: str) -> None:
    await backend.execute(TagResource(topic, [Tag("a", "1"), Tag("b", "2")]))
    await backend.execute(TagResource(topic, [Tag("b", "3")]))
    await backend.execute(UntagResource(topic, ["a"]))
    assert (await backend.execute(ListTagsForResource(topic))).tags == [Tag("b", "3")]


async def test_permissions(backend: Backend, topic: str) -> None:
    async def labels() -> list[str]:
        shown = (await backend.execute(GetTopicAttributes(topic))).attributes
        return [each["Sid"] for each in json.loads(shown["Policy"])["Statement"]]

    await backend.execute(AddTopicPermission(topic, "mine", ["123456789012"], ["Publish"]))
    assert await labels() == ["__default_statement_ID", "mine"]
    with pytest.raises(RefusedError, match="Statement already exists"):
        await backend.execute(AddTopicPermission(topic, "mine", ["123456789012"], ["Publish"]))
    await backend.execute(RemoveTopicPermission(topic, "mine"))
    assert await labels() == ["__default_statement_ID"]


# --- subscriptions ------------------------------------------------------------------------------


async def test_a_subscription_is_made_listed_and_ended(
    backend: Backend, topic: str, queue: str
) -> None:
    arn = await _subscribe(backend, topic, queue)
    assert await _subscribe(backend, topic, queue) == arn
    [listed] = (await backend.execute(ListSubscriptionsByTopic(topic))).subscriptions
    assert (listed.subscription_arn, listed.protocol) == (arn, "sqs")
    assert listed.endpoint == await _arn(backend, queue)
    every = (await backend.execute(ListSubscriptions())).subscriptions
    assert arn in [each.subscription_arn for each in every]
    await backend.execute(Unsubscribe(arn))
    assert (await backend.execute(ListSubscriptionsByTopic(topic))).subscriptions == []
    await backend.execute(Publish("m", topic))
    assert await _bodies(backend, queue) == []
    with pytest.raises(SubscriptionDoesNotExist):
        await backend.execute(GetSubscriptionAttributes(arn))


async def test_subscription_attributes(backend: Backend, topic: str, queue: str) -> None:
    policy = json.dumps({"k": ["v"]})
    arn = await _subscribe(backend, topic, queue, FilterPolicy=policy)
    await backend.execute(SetSubscriptionAttributes(arn, "RawMessageDelivery", "true"))
    shown = (await backend.execute(GetSubscriptionAttributes(arn))).attributes
    assert shown["RawMessageDelivery"] == "true"
    assert json.loads(shown["FilterPolicy"]) == {"k": ["v"]}
    assert shown["FilterPolicyScope"] == "MessageAttributes"
    assert shown["PendingConfirmation"] == "false"
    with pytest.raises(RefusedError, match="AttributeName"):
        await backend.execute(SetSubscriptionAttributes(arn, "Nonsense", "x"))


@pytest.mark.moto_differs("any value is taken")
async def test_subscription_attributes_are_checked(
    backend: Backend, topic: str, queue: str
) -> None:
    arn = await _subscribe(backend, topic, queue)
    for name, value in (
        ("RawMessageDelivery", "maybe"),
        ("FilterPolicyScope", "Elsewhere"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "x"}'),
    ):
        with pytest.raises(RefusedError, match=name):
            await backend.execute(SetSubscriptionAttributes(arn, name, value))


@pytest.mark.moto_differs("the text of a wrong policy is not the one that AWS answers")
async def test_a_filter_policy_is_refused_with_its_place(
    backend: Backend, topic: str, queue: str
) -> None:
    operation = Subscribe(
        topic, "sqs", await _arn(backend, queue), {"FilterPolicy": '{"key": [{"suffix": 100}]}'}
    )
    with pytest.raises(RefusedError) as raised:
        await backend.execute(operation)
    assert raised.value.message == (
        "Invalid parameter: Attributes Reason: FilterPolicy: suffix match pattern must be a string"
        '\n at [Source: (String)"{"key":[{"suffix":100}]}"; line: 1, column: 22]'
    )


@pytest.mark.moto_differs("any token is taken")
async def test_a_token_that_is_none(backend: Backend, topic: str) -> None:
    with pytest.raises(RefusedError, match="Invalid parameter: Token"):
        await backend.execute(ConfirmSubscription(topic, "nonsense"))


@pytest.mark.moto_differs("any protocol is taken")
async def test_a_protocol_that_is_none(backend: Backend, topic: str) -> None:
    with pytest.raises(RefusedError):
        await backend.execute(Subscribe(topic, "pigeon", "loft"))


# --- publishing ---------------------------------------------------------------------------------


async def test_a_publish_arrives_in_its_envelope(backend: Backend, topic: str, queue: str) -> None:
    await _subscribe(backend, topic, queue)
    attributes = {"k": text("v"), "n": MessageAttributeValue("Number", "1")}
    sent = await backend.execute(
        Publish("häll\u00f6 \U0001f600\n", topic, subject="subject", message_attributes=attributes)
    )
    [message] = await _received(backend, queue)
    envelope: dict[str, Any] = json.loads(message.body)
    assert envelope["Type"] == "Notification"
    assert envelope["MessageId"] == sent.message_id
    assert (envelope["TopicArn"], envelope["Subject"]) == (topic, "subject")
    assert envelope["Message"] == "häll\u00f6 \U0001f600\n"
    assert envelope["MessageAttributes"] == {
        "k": {"Type": "String", "Value": "v"},
        "n": {"Type": "Number", "Value": "1"},
    }
    assert {"Timestamp", "Signature", "SignatureVersion", "UnsubscribeURL"} <= envelope.keys()
    assert message.message_attributes is None


async def test_a_raw_publish_arrives_as_it_is(backend: Backend, topic: str, queue: str) -> None:
    await _subscribe(backend, topic, queue, **RAW)
    attributes = {"k": text("v"), "n": MessageAttributeValue("Number", "1.50")}
    await backend.execute(Publish('{"Type": "Notification"}', topic, message_attributes=attributes))
    [message] = await _received(backend, queue)
    assert message.body == '{"Type": "Notification"}'
    assert message.message_attributes == attributes


@pytest.mark.moto_differs("a receive of a Binary attribute fails")
async def test_bytes_arrive_raw(backend: Backend, topic: str, queue: str) -> None:
    await _subscribe(backend, topic, queue, **RAW)
    attributes = {"b": MessageAttributeValue("Binary", binary_value=b"\x00\xff")}
    await backend.execute(Publish("m", topic, message_attributes=attributes))
    [message] = await _received(backend, queue)
    assert message.message_attributes == attributes


async def test_filters_choose(backend: Backend, topic: str, unique: Unique) -> None:
    urls = {}
    for name, policy in (
        ("exact", {"kind": ["a"]}),
        ("prefix", {"kind": [{"prefix": "b"}]}),
        ("numeric", {"price": [{"numeric": [">=", 10, "<", 20]}]}),
        ("not", {"kind": [{"anything-but": ["a"]}]}),
        ("absent", {"kind": [{"exists": False}]}),
        ("or", {"$or": [{"kind": ["a"]}, {"price": [1]}]}),
    ):
        urls[name] = (await backend.execute(CreateQueue(unique("queue")))).queue_url
        await _subscribe(backend, topic, urls[name], FilterPolicy=json.dumps(policy), **RAW)
    for body, attributes in (
        ("a", {"kind": text("a")}),
        ("b", {"kind": text("bb")}),
        ("10", {"price": MessageAttributeValue("Number", "10.0")}),
        ("1", {"price": MessageAttributeValue("Number", "1")}),
    ):
        await backend.execute(Publish(body, topic, message_attributes=attributes))
    found = {name: sorted(await _bodies(backend, url)) for name, url in urls.items()}
    assert found == {
        "exact": ["a"],
        "prefix": ["b"],
        "numeric": ["10"],
        "not": ["b"],
        "absent": ["1", "10"],
        "or": ["1", "a"],
    }


async def test_filters_read_bodies(backend: Backend, topic: str, queue: str) -> None:
    policy = json.dumps({"order": {"state": ["paid"]}})
    more = {"FilterPolicyScope": "MessageBody", "FilterPolicy": policy, **RAW}
    await _subscribe(backend, topic, queue, **more)
    for state in ("open", "paid"):
        await backend.execute(Publish(json.dumps({"order": {"state": state}}), topic))
    assert await _bodies(backend, queue) == ['{"order": {"state": "paid"}}']


async def test_a_message_for_each_protocol(backend: Backend, topic: str, queue: str) -> None:
    await _subscribe(backend, topic, queue, **RAW)
    message = json.dumps({"default": "for all", "sqs": "for queues", "http": "for others"})
    await backend.execute(Publish(message, topic, message_structure="json"))
    assert await _bodies(backend, queue) == ["for queues"]


async def test_a_batch(backend: Backend, topic: str, queue: str) -> None:
    await _subscribe(backend, topic, queue, **RAW)
    entries = [Entry(str(number), f"m{number}") for number in range(10)]
    answer = await backend.execute(PublishBatch(topic, entries))
    assert [each.id for each in answer.successful] == [str(number) for number in range(10)]
    assert not answer.failed
    assert sorted(await _bodies(backend, queue)) == [f"m{number}" for number in range(10)]


async def test_batches_that_are_refused(backend: Backend, topic: str) -> None:
    for entries, code in (
        ([Entry(str(number), "m") for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([Entry("1", "m"), Entry("1", "m")], "BatchEntryIdsNotDistinct"),
    ):
        with pytest.raises(RefusedError) as raised:
            await backend.execute(PublishBatch(topic, entries))
        assert raised.value.code == code


@pytest.mark.moto_differs("batches of nothing, and of more than a topic takes, are taken")
async def test_batches_that_aws_refuses(backend: Backend, topic: str) -> None:
    for entries, code in (
        ([], "EmptyBatchRequest"),
        ([Entry("1", "x" * 200_000), Entry("2", "x" * 200_000)], "BatchRequestTooLong"),
        ([Entry("a b", "m")], "InvalidBatchEntryId"),
    ):
        with pytest.raises(RefusedError) as raised:
            await backend.execute(PublishBatch(topic, entries))
        assert raised.value.code == code


async def test_what_is_refused_of_a_publish(backend: Backend, topic: str) -> None:
    with pytest.raises(RefusedError, match="Message too long"):
        await backend.execute(Publish("x" * 262_145, topic))
    with pytest.raises(TopicDoesNotExist):
        await backend.execute(Publish("m", f"{topic}-nowhere"))


@pytest.mark.moto_differs("a number that is none, a subject with a line break are taken")
async def test_what_aws_refuses_of_a_publish(backend: Backend, topic: str) -> None:
    for operation in (
        Publish("", topic),
        Publish("m", topic, subject="a\nb"),
        Publish("m", topic, subject="x" * 101),
        Publish("m", topic, message_attributes={"n": MessageAttributeValue("Number", "one")}),
        Publish("m", topic, message_attributes={"a^": text("v")}),
        Publish("m", topic, message_structure="json"),
        Publish("m", topic, message_deduplication_id="d"),
    ):
        with pytest.raises(RefusedError):
            await backend.execute(operation)


async def test_dead_letters_of_a_subscription(
    backend: Backend, topic: str, queue: str, unique: Unique
) -> None:
    dead = (await backend.execute(CreateQueue(unique("dead")))).queue_url
    policy = json.dumps({"deadLetterTargetArn": await _arn(backend, dead)})
    arn = await _subscribe(backend, topic, queue)
    await backend.execute(SetSubscriptionAttributes(arn, "RedrivePolicy", policy))
    shown = (await backend.execute(GetSubscriptionAttributes(arn))).attributes
    assert json.loads(shown["RedrivePolicy"]) == json.loads(policy)


@pytest.mark.moto_differs("a message for a queue that is gone fails the publish")
async def test_a_message_for_a_queue_that_is_gone(
    backend: Backend, topic: str, queue: str, unique: Unique
) -> None:
    dead = (await backend.execute(CreateQueue(unique("dead")))).queue_url
    policy = json.dumps({"deadLetterTargetArn": await _arn(backend, dead)})
    await _subscribe(backend, topic, queue, RedrivePolicy=policy, **RAW)
    await backend.execute(DeleteQueue(queue))
    await backend.execute(Publish("m", topic))
    assert await _bodies(backend, dead) == ["m"]


# --- FIFO ---------------------------------------------------------------------------------------


async def test_a_fifo_topic_keeps_the_order(backend: Backend, fifo_topic: str, fifo: str) -> None:
    await _subscribe(backend, fifo_topic, fifo, **RAW)
    for number in range(5):
        await backend.execute(Publish(f"m{number}", fifo_topic, message_group_id="g"))
    assert await _bodies(backend, fifo) == [f"m{number}" for number in range(5)]


@pytest.mark.moto_differs("a topic notices no doubles, and gives no sequence numbers")
async def test_a_fifo_topic_notices_doubles(backend: Backend, fifo_topic: str, queue: str) -> None:
    await _subscribe(backend, fifo_topic, queue, **RAW)
    first = await backend.execute(Publish("m", fifo_topic, message_group_id="g"))
    second = await backend.execute(Publish("m", fifo_topic, message_group_id="g"))
    assert second == first
    assert first.sequence_number is not None
    assert await _bodies(backend, queue) == ["m"]


async def test_a_fifo_topic_wants_a_group(backend: Backend, fifo_topic: str) -> None:
    with pytest.raises(RefusedError, match="MessageGroupId"):
        await backend.execute(Publish("m", fifo_topic))
