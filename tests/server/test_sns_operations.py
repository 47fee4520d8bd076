"""boto3's SNS client runs every operation against `pumphouse serve`, a process of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name

from pumphouse.protocol.sns_operations import SNS_OPERATIONS
from support.query_model import client
from support.serve_process import serve
from support.sns_clients import sns_client


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve() as url:
        yield url


@pytest.fixture(scope="module")
def sns(url: str) -> Iterator[Any]:
    made = sns_client(url, validate=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def sqs(url: str) -> Iterator[Any]:
    made = client("json", endpoint_url=url)
    yield made
    made.close()


@pytest.fixture
def topic(sns: Any, unique: Callable[[str], str]) -> str:
    arn: str = sns.create_topic(Name=unique("served"), Tags=[{"Key": "k", "Value": "v"}])[
        "TopicArn"
    ]
    return arn


def test_topics(sns: Any, topic: str) -> None:
    assert topic in [each["TopicArn"] for each in sns.list_topics()["Topics"]]
    sns.set_topic_attributes(TopicArn=topic, AttributeName="DisplayName", AttributeValue="Name")
    assert sns.get_topic_attributes(TopicArn=topic)["Attributes"]["DisplayName"] == "Name"
    sns.delete_topic(TopicArn=topic)
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.get_topic_attributes(TopicArn=topic)


def test_tags(sns: Any, topic: str) -> None:
    sns.tag_resource(ResourceArn=topic, Tags=[{"Key": "l", "Value": "w"}])
    sns.untag_resource(ResourceArn=topic, TagKeys=["k"])
    tags = sns.list_tags_for_resource(ResourceArn=topic)["Tags"]
    assert tags == [{"Key": "l", "Value": "w"}]


def test_permissions(sns: Any, topic: str) -> None:
    more = {"AWSAccountId": ["123456789012"], "ActionName": ["Publish", "Subscribe"]}
    sns.add_permission(TopicArn=topic, Label="mine", **more)
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.add_permission(TopicArn=topic, Label="mine", **more)
    sns.remove_permission(TopicArn=topic, Label="mine")
    policy = json.loads(sns.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"])
    assert [each["Sid"] for each in policy["Statement"]] == ["__default_statement_ID"]


def test_subscriptions_and_publishing(
    sns: Any, sqs: Any, topic: str, unique: Callable[[str], str]
) -> None:
    queue = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:000000000000:{queue.rpartition('/')[2]}"
    subscription = sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)["SubscriptionArn"]
    sns.set_subscription_attributes(
        SubscriptionArn=subscription, AttributeName="RawMessageDelivery", AttributeValue="true"
    )
    shown = sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
    assert shown["RawMessageDelivery"] == "true"
    for answer in (sns.list_subscriptions(), sns.list_subscriptions_by_topic(TopicArn=topic)):
        assert subscription in [each["SubscriptionArn"] for each in answer["Subscriptions"]]
    attributes = {"b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}}
    sns.publish(TopicArn=topic, Message="one & <two>", MessageAttributes=attributes)
    batch = [{"Id": str(number), "Message": f"m{number}"} for number in range(10)]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=batch)
    assert [each["Id"] for each in answer["Successful"]] == [each["Id"] for each in batch]
    bodies = []
    while len(bodies) < 11:
        for message in sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )["Messages"]:
            bodies.append(message["Body"])
            if message["Body"] == "one & <two>":
                assert message["MessageAttributes"] == attributes
    assert sorted(bodies) == sorted(["one & <two>", *(each["Message"] for each in batch)])
    sns.unsubscribe(SubscriptionArn=subscription)
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.get_subscription_attributes(SubscriptionArn=subscription)


def test_confirmations(sns: Any, topic: str) -> None:
    with pytest.raises(sns.exceptions.InvalidParameterException, match="Token"):
        sns.confirm_subscription(TopicArn=topic, Token="0" * 288)


def test_every_operation_is_called() -> None:
    """By a method of the client somewhere above, in whatever process that runs."""
    called = set(re.findall(r"\bsns\.([a-z_]+)\(", Path(__file__).read_text()))
    assert called == {xform_name(action) for action in SNS_OPERATIONS}
