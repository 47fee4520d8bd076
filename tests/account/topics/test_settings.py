"""What topics and subscriptions can be set to, and AWS's words for what they can't."""

from __future__ import annotations

import json

import pytest

from pumphouse.account import Account
from pumphouse.errors import RefusedError
from pumphouse.protocol.sns_operations import (
    AddTopicPermission,
    CreateTopic,
    DeleteTopic,
    GetSubscriptionAttributes,
    GetTopicAttributes,
    RemoveTopicPermission,
    SetSubscriptionAttributes,
    SetTopicAttributes,
    Subscribe,
)

FIFO = {"FifoTopic": "true"}
QUEUE = "arn:aws:sqs:us-east-1:000000000000:queue"


def statement(**more: object) -> str:
    one = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sns:Publish", "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [one | more]})


async def refusal(account: Account, operation: object) -> tuple[str, str]:
    with pytest.raises(RefusedError) as raised:
        await account.execute(operation)  # type: ignore[arg-type]
    return raised.value.code, raised.value.message


# --- topics -------------------------------------------------------------------------------------

RATE = "SQSSuccessFeedbackSampleRate"

REFUSED = [
    (RATE, "500", f"{RATE}: 500 value provided is not an integer between 0-100"),
    (RATE, "101", f"{RATE}: 101 value provided is not an integer between 0-100"),
    (RATE, "-1", f"{RATE}: -1 value provided is not an integer between 0-100"),
    (RATE, "", f"{RATE}: value provided is not an integer between 0-100"),
    (
        "DeliveryPolicy",
        '{"http": {"defaultHealthyRetryPolicy": {"numRetries": 300}}}',
        "DeliveryPolicy: http.defaultHealthyRetryPolicy.numRetries must be less than or equal to "
        "100",
    ),
    ("Policy", "nonsense", "Policy Error: null"),
    ("Policy", "{}", "Policy Error: null"),
    ("Policy", '{"Statement": []}', "Policy Error: null"),
    ("Policy", statement(Condition={"NumericEquals": {"a": float("nan")}}), "Policy Error: null"),
    ("Policy", '{"Statement": [1]}', "Policy Error: null"),
    ("Policy", statement(Effect="Maybe"), "Policy Error: null"),
    ("Policy", statement(Action=[1]), "Policy Error: null"),
    ("Policy", statement(Action="SNS:Publishx"), "Policy statement action out of service scope!"),
    (
        "Policy",
        statement(Action=["sns:Publish", "sqs:SendMessage"]),
        "Policy statement action out of service scope!",
    ),
    ("SignatureVersion", "3", "SignatureVersion: Invalid value [3]. Must be 1 or 2."),
    ("TracingConfig", "on", "TracingConfig: Invalid value [on]. Must be PassThrough or Active."),
    ("MaximumMessageSize", "1023", "MaximumMessageSize: Must be between 1024 and 1048576."),
    ("MaximumMessageSize", "1048577", "MaximumMessageSize: Must be between 1024 and 1048576."),
]


@pytest.mark.parametrize(("name", "text", "words"), REFUSED)
async def test_a_topic_that_can_not_be_set_so(
    account: Account, name: str, text: str, words: str
) -> None:
    assert await refusal(account, CreateTopic("topic", {name: text})) == (
        "InvalidParameter",
        f"Invalid parameter: Attributes Reason: {words}",
    )
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    before = (await account.execute(GetTopicAttributes(topic))).attributes
    assert await refusal(account, SetTopicAttributes(topic, name, text)) == (
        "InvalidParameter",
        f"Invalid parameter: {words}",
    )
    assert (await account.execute(GetTopicAttributes(topic))).attributes == before


@pytest.mark.parametrize(
    "name", ["ContentBasedDeduplication", "FifoThroughputScope", "ArchivePolicy", "Nonsense", ""]
)
async def test_an_attribute_that_a_standard_topic_has_not(account: Account, name: str) -> None:
    assert (await refusal(account, CreateTopic("topic", {name: "true"})))[1] == (
        f"Invalid parameter: Attributes Reason: Unknown attribute {name}"
    )
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    assert (await refusal(account, SetTopicAttributes(topic, name, "true")))[1] == (
        "Invalid parameter: AttributeName"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (RATE, "0"),
        (RATE, "100"),
        ("TracingConfig", "Active"),
        ("Policy", statement(Action=["SNS:Receive", "sns:Get*", "*"])),
        ("Policy", json.dumps({"Statement": json.loads(statement())["Statement"][0]})),
        ("KmsMasterKeyId", "alias/aws/sns"),
    ],
)
async def test_what_is_set_is_shown(account: Account, name: str, text: str) -> None:
    topic = (await account.execute(CreateTopic("topic", {name: text}))).topic_arn
    await account.execute(SetTopicAttributes(topic, name, text))
    assert (await account.execute(GetTopicAttributes(topic))).attributes[name] == text


async def test_a_policy_of_one_statement_takes_others(account: Account) -> None:
    [own] = json.loads(statement(Sid="own"))["Statement"]
    topic = (
        await account.execute(CreateTopic("topic", {"Policy": json.dumps({"Statement": own})}))
    ).topic_arn
    await account.execute(AddTopicPermission(topic, "more", ["111122223333"], ["Publish"]))
    await account.execute(RemoveTopicPermission(topic, "own"))
    policy = json.loads((await account.execute(GetTopicAttributes(topic))).attributes["Policy"])
    assert [each["Sid"] for each in policy["Statement"]] == ["more"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("nonsense", "Unable to parse JSON"),
        ("", "Unable to parse JSON"),
        ('{"Days": 3}', "JSON is missing required fields"),
        ('{"MessageRetentionPeriod": 0}', "MessageRetentionPeriod value is invalid"),
        ('{"MessageRetentionPeriod": "366"}', "MessageRetentionPeriod value is invalid"),
        ('{"MessageRetentionPeriod": true}', "MessageRetentionPeriod value is invalid"),
    ],
)
async def test_an_archive_that_can_not_be(account: Account, policy: str, words: str) -> None:
    topic = (await account.execute(CreateTopic("topic.fifo", FIFO))).topic_arn
    assert (await refusal(account, SetTopicAttributes(topic, "ArchivePolicy", policy)))[1] == (
        f"Invalid parameter: ArchivePolicy: {words}"
    )


async def test_a_topic_with_an_archive_is_not_deleted(account: Account) -> None:
    archive = {"ArchivePolicy": '{"MessageRetentionPeriod": "14"}'}
    topic = (await account.execute(CreateTopic("topic.fifo", FIFO | archive))).topic_arn
    assert await refusal(account, DeleteTopic(topic)) == (
        "InvalidState",
        "Invalid state: Cannot delete a topic with an ArchivePolicy",
    )
    shown = (await account.execute(GetTopicAttributes(topic))).attributes
    assert shown["ArchivePolicy"] == archive["ArchivePolicy"]
    await account.execute(SetTopicAttributes(topic, "ArchivePolicy", "{}"))
    assert "ArchivePolicy" not in (await account.execute(GetTopicAttributes(topic))).attributes
    await account.execute(DeleteTopic(topic))


# --- subscriptions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            {"deadLetterTargetArn": QUEUE, "maxReceiveCount": 3},
            "invalid JSON. Attribute maxReceiveCount is unknown.",
        ),
        ({}, "Missing deadLetterTargetArn attribute"),
        ({"deadLetterTargetArn": 5}, "deadLetterTargetArn is an invalid arn"),
        ({"deadLetterTargetArn": "queue"}, "deadLetterTargetArn is an invalid arn"),
        (
            {"deadLetterTargetArn": QUEUE.replace("sqs", "sns")},
            "deadLetterTargetArn must be a SQS queue",
        ),
        (
            {"deadLetterTargetArn": QUEUE.replace("us-east-1", "eu-west-1")},
            "deadLetterTargetArn must be in the same region as the subscription",
        ),
    ],
)
async def test_dead_letters_that_can_not_be(
    account: Account, policy: dict[str, object], words: str
) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    attributes = {"RedrivePolicy": json.dumps(policy)}
    assert await refusal(account, Subscribe(topic, "sqs", QUEUE, attributes)) == (
        "InvalidParameter",
        f"Invalid parameter: Attributes Reason: RedrivePolicy: {words}",
    )
    arn = str((await account.execute(Subscribe(topic, "sqs", QUEUE))).subscription_arn)
    change = SetSubscriptionAttributes(arn, "RedrivePolicy", attributes["RedrivePolicy"])
    assert (await refusal(account, change))[1] == f"Invalid parameter: RedrivePolicy: {words}"
    shown = (await account.execute(GetSubscriptionAttributes(arn))).attributes
    assert "RedrivePolicy" not in shown


async def test_raw_delivery_by_mail(account: Account) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    raw = {"RawMessageDelivery": "true"}
    asked = Subscribe(topic, "email", "someone@example.com", raw)
    assert (await refusal(account, asked))[1] == (
        "Invalid parameter: Attributes Reason: "
        "Delivery protocol [email] does not support raw message delivery."
    )


@pytest.mark.parametrize(
    ("protocol", "endpoint", "words"),
    [
        ("email", "this is not an email", "Email address"),
        ("email-json", "a@b@c", "Email address"),
        ("https", "http://example.com/", "Endpoint must match the specified protocol"),
        ("http", "http://", "Endpoint"),
        ("http", "http:///path", "Endpoint"),
        ("http", "http://[::1/", "Endpoint"),
        ("http", "http://127.0.0.1:99999/", "Endpoint"),
        ("http", "http://127.0.0.1:x/", "Endpoint"),
        ("http", "http://127.0.0.1/a b", "Endpoint"),
        ("http", "http://127.0.0.1/\r\nX: y", "Endpoint"),
        ("http", "http://127.0.0.1/é", "Endpoint"),
        ("sqs", "https://sqs.us-east-1.amazonaws.com/000000000000/queue", "SQS endpoint ARN"),
    ],
)
async def test_an_endpoint_that_is_none(
    account: Account, protocol: str, endpoint: str, words: str
) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    assert await refusal(account, Subscribe(topic, protocol, endpoint)) == (
        "InvalidParameter",
        f"Invalid parameter: {words}",
    )
    assert not account.topics.subscriptions
