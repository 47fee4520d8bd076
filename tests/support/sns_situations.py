"""The situations of SNS that real AWS was recorded in, as plays: topics, subscriptions, publishing,
fan-out to queues, filter policies.

`PLAYS` has each under the name it was recorded by; `NOT_ACTED_OUT` names the others and says why.
How they are acted out is `acting.py`'s. Where a recording had an SMS subscription only to set a
filter policy, a queue is subscribed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from itertools import count
from typing import Any

from support.acting import Answer, Call, Play, Wait
from support.recorded import Recording
from support.situations import TRACE, create

ACCOUNT = "000000000000"
ELSEWHERE = "eu-west-1"

_numbers = count(1)
Texts = Generator[Call | Wait, Answer, str]


def play(recording: Recording) -> Play:
    """What was done in a recorded situation."""
    situation = PLAYS[recording.name]
    return situation(recording.variant) if recording.variant else situation()


# --- shorthands ---------------------------------------------------------------------------------


def sns(action: str, label: str = "", region: str = "", **parameters: Any) -> Call:
    return Call(action, parameters, label, service="sns", region=region)


def name_of(prefix: str = "topic") -> str:
    return f"{prefix}-{next(_numbers)}"


def topic(name: str = "", label: str = "", region: str = "", **more: Any) -> Texts:
    fifo = more.get("Attributes", {}).get("FifoTopic") == "true"
    name = name or name_of() + (".fifo" if fifo else "")
    answer = yield sns("CreateTopic", label, region, Name=name, **more)
    return str(answer["TopicArn"])


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{url.rpartition('/')[2]}"


def subscribed(
    topic_arn: str, url: str, label: str = "", attributes: Mapping[str, str] | None = None
) -> Texts:
    more = {"Attributes": dict(attributes)} if attributes is not None else {}
    answer = yield sns(
        "Subscribe", label, TopicArn=topic_arn, Protocol="sqs", Endpoint=arn_of(url), **more
    )
    return str(answer.get("SubscriptionArn", ""))


def attributes_of(arn: str, label: str) -> Call:
    return sns("GetSubscriptionAttributes", label, SubscriptionArn=arn)


def set_one(arn: str, name: str, value: str, label: str = "") -> Call:
    return sns(
        "SetSubscriptionAttributes",
        label,
        SubscriptionArn=arn,
        AttributeName=name,
        AttributeValue=value,
    )


def publish(topic_arn: str, message: str, label: str = "", **more: Any) -> Call:
    return sns("Publish", label, TopicArn=topic_arn, Message=message, **more)


def receive(url: str, label: str = "", **more: Any) -> Call:
    return Call("ReceiveMessage", {"QueueUrl": url, **more}, label)


def received(url: str, label: str, delete: bool = True, **more: Any) -> Generator[Any, Any, None]:
    """Receive under a label, and delete what came."""
    answer = yield receive(url, label, **more)
    if delete:
        for message in answer.get("Messages", []):
            handle = message["ReceiptHandle"]
            yield Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle})


def number(text: str) -> dict[str, str]:
    return {"DataType": "Number", "StringValue": text}


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


BINARY = {"DataType": "Binary", "BinaryValue": b"\x02\x03\x04"}
ALL = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}

_TAGS = [{"Key": "k1", "Value": "v1"}, {"Key": "k2", "Value": "v2"}]


# --- topics -------------------------------------------------------------------------------------


def tags() -> Play:
    arn = yield from topic()
    twice = [*_TAGS, {"Key": "k2", "Value": "v2"}]
    yield sns("TagResource", "duplicate-key-error", ResourceArn=arn, Tags=twice)
    yield sns("TagResource", ResourceArn=arn, Tags=_TAGS)
    yield sns("ListTagsForResource", "list-created-tags", ResourceArn=arn)
    yield sns("UntagResource", ResourceArn=arn, TagKeys=["k1"])
    yield sns("ListTagsForResource", "list-after-delete-tags", ResourceArn=arn)
    yield sns("TagResource", ResourceArn=arn, Tags=[{"Key": "k2", "Value": "v2b"}])
    yield sns("ListTagsForResource", "list-after-update-tags", ResourceArn=arn)


def create_topic_arn() -> Play:
    arn = yield from topic(label="create-topic")
    yield sns("GetTopicAttributes", "get-topic-attrs", TopicArn=arn)
    yield sns("DeleteTopic", "delete-topic", TopicArn=arn)
    yield sns("GetTopicAttributes", "topic-not-exists", TopicArn=arn)


def duplicate_with_more_tags() -> Play:
    name = name_of()
    yield from topic(name)
    more = [{"Key": "key1", "Value": "value1"}]
    yield sns("CreateTopic", "exception-duplicate", Name=name, Tags=more)


def duplicate_idempotency() -> Play:
    name = name_of()
    both = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    yield from topic(name, "response-created", Tags=both)
    for index, these in enumerate((both, both[:1], [])):
        yield from topic(name, f"response-same-arn-{index}", Tags=these)


def create_after_delete() -> Play:
    name = name_of()
    arn = yield from topic(name, "topic-0", Tags=[{"Key": "Name", "Value": "pqr"}])
    yield sns("DeleteTopic", TopicArn=arn)
    yield from topic(name, "topic-1", Tags=[{"Key": "Name", "Value": "abc"}])


def tags_removed_after_deletion() -> Play:
    name = name_of()
    arn = yield from topic(name, Tags=_TAGS)
    yield sns("ListTagsForResource", "list-created-tags", ResourceArn=arn)
    yield sns("DeleteTopic", TopicArn=arn)
    arn = yield from topic(name)
    yield sns("ListTagsForResource", "list-empty-tags", ResourceArn=arn)


def delete_idempotency() -> Play:
    arn = yield from topic()
    yield sns("DeleteTopic", "delete-topic", TopicArn=arn)
    yield sns("DeleteTopic", "delete-topic-again", TopicArn=arn)


def create_idempotent() -> Play:
    name = name_of()
    arn = yield from topic(name)
    yield sns(
        "SetTopicAttributes",
        TopicArn=arn,
        AttributeName="DisplayName",
        AttributeValue="AlreadySet",
    )
    yield sns("GetTopicAttributes", "topic-attrs-idempotent-1", TopicArn=arn)
    arn = yield from topic(name)
    yield sns("GetTopicAttributes", "topic-attrs-idempotent-2", TopicArn=arn)


def name_constraints() -> Play:
    yield from topic("a" * 256, "valid-name-max-length")
    yield sns("CreateTopic", "name-too-short", Name="")
    yield sns("CreateTopic", "name-too-long", Name="a" * 257)
    yield sns("CreateTopic", "name-contains-fifo", Name="name.fifo")
    fifo = {"FifoTopic": "true"}
    yield sns("CreateTopic", "fifo-name-not-contains-fifo", Name="name", Attributes=fifo)
    for index, character in enumerate(":;!@|^% "):
        yield sns("CreateTopic", f"name-invalid-char-{index}", Name=f"bad{character}name")


def fifo_false() -> Play:
    arn = yield from topic(Attributes={"FifoTopic": "false"})
    yield sns("GetTopicAttributes", "get-attrs-standard-topic", TopicArn=arn)
    yield sns(
        "SetTopicAttributes",
        "set-fifo-false-after-creation",
        TopicArn=arn,
        AttributeName="FifoTopic",
        AttributeValue="false",
    )


def multiple_regions() -> Play:
    for region in ("", ELSEWHERE):  # what others have left
        listed = yield sns("ListTopics", region=region)
        for each in listed["Topics"]:
            yield sns("DeleteTopic", region=region, TopicArn=each["TopicArn"])
    name = name_of()
    east = yield from topic(name)
    west = yield from topic(name, region=ELSEWHERE)
    yield sns("ListTopics", "list-primary")
    yield sns("ListTopics", "list-secondary", ELSEWHERE)
    yield sns("GetTopicAttributes", "topic-east", TopicArn=east)
    yield sns("GetTopicAttributes", "topic-west", ELSEWHERE, TopicArn=west)


def _permission(arn: str, label: str = "", action: str = "Publish") -> Call:
    return sns(
        "AddPermission",
        label,
        TopicArn=arn,
        Label="test",
        AWSAccountId=[ACCOUNT],
        ActionName=[action],
    )


def _policy(arn: str, label: str) -> Call:
    return Call(
        "GetTopicAttributes",
        {"TopicArn": arn},
        label,
        lambda answer: answer["Attributes"]["Policy"],
        service="sns",
    )


def add_permission() -> Play:
    arn = yield from topic()
    yield _permission(arn, "add-permission-response")
    yield _policy(arn, "topic-policy-after-permission")


def remove_permission() -> Play:
    arn = yield from topic()
    yield _permission(arn)
    yield sns("RemovePermission", TopicArn=arn, Label="test")
    yield _policy(arn, "topic-policy")


def policy_overwritten() -> Play:
    arn = yield from topic()
    statement = {
        "Sid": "own",
        "Effect": "Allow",
        "Principal": "*",
        "Action": "SNS:Publish",
        "Resource": arn,
    }
    own = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    yield sns("SetTopicAttributes", TopicArn=arn, AttributeName="Policy", AttributeValue=own)
    answer = yield sns("GetTopicAttributes", TopicArn=arn)
    assert answer["Attributes"]["Policy"] == own
    yield _permission(arn)
    answer = yield sns("GetTopicAttributes", TopicArn=arn)
    statements = json.loads(answer["Attributes"]["Policy"])["Statement"]
    assert [each["Sid"] for each in statements] == ["own", "test"]


def permission_errors() -> Play:
    arn = yield from topic()
    yield _permission(arn)
    yield _permission(arn, "duplicate-label")
    yield _permission(f"{arn}-not-there", "topic-not-found")
    other = yield from topic()
    yield _permission(other, "invalid-action", "InvalidAction")


def different_attributes() -> Play:
    name = name_of()
    first = {"DisplayName": "Value1"}
    arn = yield from topic(name, "create-topic", Attributes=first)
    yield from topic(name, "create-topic-no-attrs")
    yield sns("GetTopicAttributes", "topic-attrs", TopicArn=arn)
    for label, attributes in (
        ("create-topic-diff-attrs", {"DisplayName": "Value2"}),
        ("create-topic-new-attrs-fifo", {"FifoTopic": "true"}),
        ("create-topic-new-attrs", {"SignatureVersion": "2"}),
        ("create-topic-new-and-same-attrs", {**first, "SignatureVersion": "2"}),
    ):
        yield sns("CreateTopic", label, Name=name, Attributes=attributes)


def cross_region() -> Play:
    arn = yield from topic()
    yield sns(
        "SetTopicAttributes",
        "set-topic-attrs",
        ELSEWHERE,
        TopicArn=arn,
        AttributeName="DisplayName",
        AttributeValue="x",
    )
    yield sns("GetTopicAttributes", "get-topic-attrs", ELSEWHERE, TopicArn=arn)
    yield sns("Publish", "cross-region-publish-forbidden", ELSEWHERE, TopicArn=arn, Message="m")
    yield sns(
        "Subscribe",
        "cross-region-subscribe",
        ELSEWHERE,
        TopicArn=arn,
        Protocol="sqs",
        Endpoint=f"arn:aws:sqs:us-east-1:{ACCOUNT}:queue",
    )
    yield sns("ListSubscriptionsByTopic", "list-subs", ELSEWHERE, TopicArn=arn)
    yield sns("DeleteTopic", "delete-topic", ELSEWHERE, TopicArn=arn)


# --- publishing ---------------------------------------------------------------------------------


def wrong_arn() -> Play:
    yield publish("randomstring", "Good news everyone!", "invalid-topic-arn")
    yield publish("randomstring:1", "Good news everyone!", "invalid-topic-arn-1")
    yield publish("", "Good news everyone!", "empty-topic")


def by_target_arn() -> Play:
    arn = yield from topic()
    url = yield from create()
    yield from subscribed(arn, url)
    more = {"MessageAttributeNames": ["All"], "VisibilityTimeout": 0}
    yield publish(arn, "test-msg-1")
    yield from received(url, "receive-topic-arn", **more)
    yield sns("Publish", TargetArn=arn, Message="test-msg-2")
    yield from received(url, "receive-target-arn", **more)


def no_such_target() -> Play:
    target = f"arn:aws:sns:us-east-1:{ACCOUNT}:endpoint/APNS/abcdef/0f7d5971-aa8b-4bd5-b585-x"
    yield sns("Publish", "non-existent-endpoint", TargetArn=target, Message="a push notification")


def empty_message() -> Play:
    arn = yield from topic()
    url = yield from create()
    yield from subscribed(arn, url)
    yield publish(arn, "", "empty-msg-error")
    names = ["ApproximateNumberOfMessages"]
    yield Call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": names}, "queue-attrs")


def too_long() -> Play:
    arn = yield from topic()
    yield publish(arn, "This is a test message" * 12000, "error")
    more = {"MessageAttributes": {"attr1": number("1")}}
    most = 262144 - len("attr1Number1")
    yield publish(arn, "a" * (most + 1), "error-with-attrs", **more)
    yield publish(arn, "a" * most, **more)


def structure_json_errors() -> Play:
    arn = yield from topic()
    for label, message in (
        ("missing-default-key", '{"sqs": "Test message"}'),
        ("invalid-json", '{"default": "This is a default message"} }'),
        ("duplicate-json-keys", '{"default": "a default message", "default": "Duplicate"}'),
        ("key-is-not-string", '{"default": {"object": "test"}}'),
    ):
        yield publish(arn, message, label, MessageStructure="json")


def structure_json_to_sqs() -> Play:
    arn = yield from topic()
    url = yield from create()
    yield from subscribed(arn, url)
    message = {"default": "default field", "sqs": json.dumps({"field": "value"})}
    yield publish(arn, json.dumps(message), MessageStructure="json")
    yield from received(url, "get-msg-json-sqs")
    message = {"default": "default field", "sqs": {"field": "value"}}  # type: ignore[dict-item]
    yield publish(arn, json.dumps(message), MessageStructure="json")
    yield from received(url, "get-msg-json-default")


def another_region() -> Play:
    arn = yield from topic()
    yield publish(arn, "This is a test message", "success")
    yield sns("Publish", "error", ELSEWHERE, TopicArn=arn, Message="This is a test message")
    entries = [{"Id": "1", "Message": "This is a test message"}]
    yield sns(
        "PublishBatch",
        "error-batch",
        ELSEWHERE,
        TopicArn=arn,
        PublishBatchRequestEntries=entries,
    )


def batch_without_topic() -> Play:
    arn = yield from topic()
    entries = [{"Id": "1", "Message": "Test Message", "Subject": "Subject"}]
    yield sns(
        "PublishBatch",
        "publish-batch-no-topic",
        TopicArn=f"{arn}fake-topic",
        PublishBatchRequestEntries=entries,
    )


WRONG_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "missing_string_attr": {"attr1": text("")},
    "fully_missing_string_attr": {"attr1": {"DataType": "String"}},
    "fully_missing_data_type": {"attr1": {"StringValue": "value"}},
    "missing_binary_attr": {"attr1": {"DataType": "Binary", "BinaryValue": b""}},
    "str_attr_binary_value": {"attr1": {"DataType": "String", "BinaryValue": b"123"}},
    "int_attr_binary_value": {"attr1": {"DataType": "Number", "BinaryValue": b"123"}},
    "binary_attr_string_value": {"attr1": text("123", "Binary")},
    "invalid_attr_string_value": {"attr1": text("123", "InvalidType")},
    "too_long_name": {"a" * 257: text("123")},
    "invalid_name": {"a^*?": text("123")},
    "invalid_name_2": {".abc": text("123")},
    "invalid_name_3": {"abc.": text("123")},
    "invalid_name_4": {"a..bc": text("123")},
}


def wrong_attributes() -> Play:
    arn = yield from topic()
    for label, attributes in WRONG_ATTRIBUTES.items():
        yield publish(arn, "test message", label, MessageAttributes=attributes)
        entries = [
            {"Id": "1", "Message": "test-batch", "MessageAttributes": attributes},
            {"Id": "3", "Message": "valid-batch"},
        ]
        yield sns(
            "PublishBatch", f"batch-{label}", TopicArn=arn, PublishBatchRequestEntries=entries
        )


def attribute_prefixes() -> Play:
    arn = yield from topic()
    for label, kind in (
        ("publish-error", "String."),
        ("publish-error-2", "Stringprefixed"),
        ("publish-ok-1", "String.prefixed"),
        ("publish-ok-2", "String.  prefixed."),
    ):
        attributes = {"attr1": text("prefixed-1", kind)}
        yield publish(arn, "test message", label, MessageAttributes=attributes)


# --- subscriptions ------------------------------------------------------------------------------


def invalid_protocol() -> Play:
    arn = yield from topic()
    yield sns("Subscribe", "exception", TopicArn=arn, Protocol="test-protocol", Endpoint="a@b.c")


def unsubscribe_twice(*labels: str) -> Callable[[], Play]:
    def situation() -> Play:
        arn = yield from topic()
        url = yield from create()
        subscription = yield from subscribed(arn, url)
        for label in labels:
            yield sns("Unsubscribe", label, SubscriptionArn=subscription)

    return situation


def not_found_after_unsubscribe() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url, "sub")
    yield attributes_of(subscription, "sub-attrs")
    yield sns("ListSubscriptionsByTopic", "subscriptions-for-topic-before-unsub", TopicArn=arn)
    yield sns("Unsubscribe", SubscriptionArn=subscription)
    yield set_one(subscription, "RawMessageDelivery", "true", "sub-not-found")
    yield sns("ListSubscriptionsByTopic", "subscriptions-for-topic-after-unsub", TopicArn=arn)


def set_attributes_validated() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    for label, name, value in (
        ("fake-attribute", "FakeAttribute", "test-value"),
        ("raw-message-wrong-value", "RawMessageDelivery", "test-ValUe"),
        ("raw-message-empty-value", "RawMessageDelivery", ""),
        ("fake-arn-redrive-policy", "RedrivePolicy", '{"deadLetterTargetArn": "fake-arn"}'),
        ("invalid-json-redrive-policy", "RedrivePolicy", "{invalidjson}"),
        ("invalid-json-filter-policy", "FilterPolicy", "{invalidjson}"),
    ):
        yield set_one(subscription, name, value, label)


def list_subscriptions() -> Play:
    made = []
    for _ in range(2):
        arn = yield from topic()
        for _ in range(3):
            url = yield from create()
            made.append((yield from subscribed(arn, url)))
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        answer = yield sns("ListSubscriptions", **token)
        found += [each["SubscriptionArn"] for each in answer["Subscriptions"]]
        if "NextToken" not in answer:
            break
        token = {"NextToken": answer["NextToken"]}
    assert set(made) <= set(found)
    assert len(found) == len(set(found))


def pagination() -> Play:
    arn = yield from topic()
    for suffix in range(101):
        yield from subscribed(arn, f"/queue-of-a-page-{suffix}")
    answer = yield sns("ListSubscriptionsByTopic", TopicArn=arn)
    assert len(answer["Subscriptions"]) == 100
    yield Call(
        "ListSubscriptionsByTopic",
        {"TopicArn": arn, "NextToken": answer["NextToken"]},
        "list-sub-per-topic-page-2",
        _as_sms,
        service="sns",
    )


def _as_sms(answer: Answer) -> Answer:
    """The recording's subscriptions were to telephones."""
    for each in answer["Subscriptions"]:
        assert each["Protocol"] == "sqs"
        each["Protocol"] = "sms"
    return answer


def subscribe_idempotency() -> Play:
    arn = yield from topic()
    url = yield from create()
    both = {"RawMessageDelivery": "true", "FilterPolicyScope": "MessageAttributes"}
    first = yield from subscribed(arn, url, "subscribe", {"RawMessageDelivery": "True"})
    yield attributes_of(first, "get-sub-attrs")
    for label, attributes in (
        ("subscribe-exact-same-raw", {"RawMessageDelivery": "true"}),
        ("subscribe-idempotent", both),
        ("subscribe-idempotent-no-attributes", None),
        ("subscribe-idempotent-empty-attributes", {}),
        ("subscribe-missing-attributes", {"FilterPolicyScope": "MessageAttributes"}),
        (
            "subscribe-diff-attributes",
            {"RawMessageDelivery": "false", "FilterPolicyScope": "MessageBody"},
        ),
    ):
        yield from subscribed(arn, url, label, attributes)


def unsubscribe_wrong_arn() -> Play:
    for index, arn in enumerate(
        ("randomstring", "arn:aws:sns:us-east-1:random", f"arn:aws:sns:us-east-1:{ACCOUNT}:random"),
        1,
    ):
        yield sns("Unsubscribe", f"invalid-unsubscribe-arn-{index}", SubscriptionArn=arn)
    yield sns("Unsubscribe", "invalid-unsubscribe-arn-4")


def subscribe_wrong_topic() -> Play:
    arn = yield from topic()
    for label, wrong in (
        ("invalid-subscribe-arn-1", "randomstring"),
        ("invalid-subscribe-arn-2", "arn:aws:sns:us-east-1:random"),
        ("non-existent-topic", f"{arn}aaa"),
    ):
        yield sns("Subscribe", label, TopicArn=wrong, Protocol="email", Endpoint="a@b.c")


def subscribe_unknown_topic() -> Play:
    arn = f"arn:aws:sns:us-east-1:{ACCOUNT}:unknown"
    yield sns(
        "Subscribe", "subscribe-unknown-topic", TopicArn=arn, Protocol="sqs", Endpoint="whatever"
    )


def subscribe_unknown_queue() -> Play:
    arn = yield from topic()
    yield from subscribed(arn, "/unknown-queue", "subscribe-unknown-sqs")
    yield sns(
        "Subscribe",
        "subscribe-unknown-sqs-invalid_arn",
        TopicArn=arn,
        Protocol="sqs",
        Endpoint="unknown",
    )


def subscribe_url(label: str) -> Callable[[], Play]:
    def situation() -> Play:
        arn = yield from topic()
        url = yield from create()
        yield sns("Subscribe", label, TopicArn=arn, Protocol="sqs", Endpoint=url)

    return situation


def pending_subscription() -> Play:
    arn = yield from topic()
    yield sns(
        "Subscribe",
        "create-subscription",
        TopicArn=arn,
        Protocol="http",
        Endpoint="http://example.com/",
    )


def http_answers() -> Play:
    arn = yield from topic()
    yield Call(
        "GetTopicAttributes",
        {"TopicArn": arn},
        "topic-arn",
        lambda answer: {"TopicArn": answer["Attributes"]["TopicArn"]},
        service="sns",
    )
    more = {"TopicArn": arn, "Protocol": "http"}
    yield sns("Subscribe", "subscription", Endpoint="http://example.com/a", **more)
    yield sns(
        "Subscribe",
        "subscription-with-arn",
        Endpoint="http://example.com/b",
        ReturnSubscriptionArn=True,
        **more,
    )


def subscription_attributes(
    label: str, raw: bool = False, gone: bool = False
) -> Callable[[], Play]:
    def situation() -> Play:
        arn = yield from topic()
        url = yield from create()
        subscription = yield from subscribed(arn, url)
        if raw:
            yield set_one(subscription, "RawMessageDelivery", "true")
        if gone:
            yield sns("DeleteTopic", TopicArn=arn)
        yield attributes_of(subscription, label)

    return situation


def unknown_subscription() -> Play:
    arn = yield from topic()
    yield attributes_of(f"{arn}:66a4f4be-0000", "get-sub-attrs-nonexistent")


# --- to queues ----------------------------------------------------------------------------------


def unicode() -> Play:
    arn = yield from topic()
    url = yield from create()
    yield from subscribed(arn, url)
    yield publish(arn, 'ö§a1"_!?,. £$-')
    yield receive(url, "received-message", VisibilityTimeout=0)


def raw_attribute() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url, attributes={"RawMessageDelivery": "true"})
    yield attributes_of(subscription, "subscription-attributes")
    yield publish(arn, "This is a test message", MessageAttributes={"store": BINARY})
    yield receive(url, "messages-response", MessageAttributeNames=["All"], VisibilityTimeout=0)


def raw_and_enveloped() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    for raw, value, target in (("true", "99.12", "TopicArn"), ("false", "100.12", "TargetArn")):
        yield set_one(subscription, "RawMessageDelivery", raw)
        yield attributes_of(subscription, f"sub-attrs-raw-{raw}")
        attributes = {"attr1": number(value)}
        parameters: dict[str, Any] = {"Message": "Test msg", "MessageAttributes": attributes}
        yield sns("Publish", **{target: arn}, **parameters)
        yield from received(
            url, f"message-raw-{raw}", MessageAttributeNames=["All"], VisibilityTimeout=0
        )


def trace_header() -> Play:
    arn = yield from topic()
    url = yield from create()
    yield from subscribed(arn, url)
    yield Call(
        "Publish",
        {"TargetArn": arn, "Message": "X-Ray propagation test msg"},
        headers={"X-Amzn-Trace-Id": TRACE},
        service="sns",
    )
    yield Call(
        "ReceiveMessage",
        {
            "QueueUrl": url,
            "AttributeNames": ["SentTimestamp", "AWSTraceHeader"],
            "MessageAttributeNames": ["All"],
        },
        "xray-msg",
        lambda answer: answer["Messages"][0],
    )


def redrive(variant: str) -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    dead = yield from create()
    yield set_one(subscription, "RedrivePolicy", json.dumps({"deadLetterTargetArn": arn_of(dead)}))
    if variant == "True":
        yield set_one(subscription, "RawMessageDelivery", "true")
    yield Call("DeleteQueue", {"QueueUrl": url})
    attributes = {"attr1": number("111"), "attr2": BINARY}
    yield publish(arn, "test_dlq_after_sqs_endpoint_deleted", MessageAttributes=attributes)
    yield receive(dead, "messages", **ALL)


def attributes_not_missing() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    attributes = {"an-attribute-key": text("an-attribute-value"), "binary-attribute": BINARY}
    for raw, kind in (("true", "raw"), ("false", "json")):
        yield set_one(subscription, "RawMessageDelivery", raw)
        yield publish(arn, "text", f"publish-msg-{kind}", MessageAttributes=attributes)
        yield from received(url, f"{kind}-delivery-msg-attrs", **ALL)


def after_failure() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    dead = yield from create()
    yield attributes_of(subscription, "subscriptions-attrs")
    yield publish(arn, "test_dlq_before_sqs_endpoint_deleted")
    yield from received(url, "messages-before-delete")
    yield Call("DeleteQueue", {"QueueUrl": url})
    yield publish(arn, "test_dlq_after_sqs_endpoint_deleted")
    yield sns("ListSubscriptionsByTopic", "subscriptions", TopicArn=arn)
    yield set_one(subscription, "RedrivePolicy", json.dumps({"deadLetterTargetArn": arn_of(dead)}))
    yield attributes_of(subscription, "subscriptions-attrs-with-redrive")
    for index in range(2):
        yield publish(arn, f"test_dlq_after_sqs_endpoint_deleted_{index}")
        yield from received(dead, f"message-{index}-after-delete")


def signature(variant: str) -> Play:
    arn = yield from topic(
        Attributes={"DisplayName": "TestTopicSignature", "SignatureVersion": variant}
    )
    url = yield from create()
    yield from subscribed(arn, url)
    attributes = {"attr1": number("1")}
    yield publish(arn, "test signature value with attributes", MessageAttributes=attributes)
    yield receive(url, "messages", **ALL)


# --- FIFO ---------------------------------------------------------------------------------------

_FIFO_TOPIC = {"FifoTopic": "true"}
_FIFO_QUEUE = {"FifoQueue": "true"}
_CONTENT = {"ContentBasedDeduplication": "true"}


def fifo(variant: str) -> Play:
    content = _CONTENT if variant == "True" else {}
    arn = yield from topic(Attributes=_FIFO_TOPIC | content)
    url = yield from create(_FIFO_QUEUE | content)
    yield from subscribed(arn, url)
    more = {"MessageGroupId": "message-group-id-1"}
    if not content:
        more["MessageDeduplicationId"] = "message-deduplication-id-1"
    yield publish(arn, "Test", **more)
    yield from received(url, "messages", AttributeNames=["All"])
    yield publish(arn, "Test", **more)
    yield receive(url, "dedup-messages", AttributeNames=["All"])


def fifo_topic_deduplication() -> Play:
    arn = yield from topic(Attributes=_FIFO_TOPIC | _CONTENT)
    url = yield from create(_FIFO_QUEUE)
    yield from subscribed(arn, url)
    yield publish(arn, "Test", MessageGroupId="message-group-id-1")
    yield from received(url, "messages", AttributeNames=["All"])
    yield publish(arn, "Test", MessageGroupId="message-group-id-1")
    yield receive(url, "dedup-messages", AttributeNames=["All"])


def _entries(first_id: int | None) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for message, attributes in (
        ("Test Message with two attributes", {"attr1": number("99.12"), "attr2": number("109.12")}),
        ("Test Message with one attribute", {"attr1": number("19.12")}),
        ("Test Message without attribute", {}),
    ):
        entry: dict[str, Any] = {
            "Id": str(len(entries) + 1),
            "MessageGroupId": "complexMessageGroupId",
            "Message": message,
            "Subject": "Subject",
        }
        if attributes:
            entry["MessageAttributes"] = attributes
        if first_id is not None:
            entry["MessageDeduplicationId"] = f"MessageDeduplicationId-{first_id + len(entries)}"
        entries.append(entry)
    return entries


def _only_messages(answer: Answer) -> Answer:
    return {"Messages": answer["Messages"]}


def _received_together(url: str, label: str) -> Generator[Any, Any, None]:
    parameters = {"QueueUrl": url, "MaxNumberOfMessages": 10, **ALL}
    answer = yield Call("ReceiveMessage", parameters, label, _only_messages)
    for message in answer["Messages"]:
        handle = message["ReceiptHandle"]
        yield Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle})


def _batch(arn: str, entries: list[dict[str, Any]], label: str) -> Call:
    return sns("PublishBatch", label, TopicArn=arn, PublishBatchRequestEntries=entries)


def fifo_to_dead_letters(variant: str) -> Play:
    arn = yield from topic(Attributes=_FIFO_TOPIC)
    yield sns("GetTopicAttributes", "topic-attrs", TopicArn=arn)
    url = yield from create(_FIFO_QUEUE)
    subscription = yield from subscribed(arn, url)
    if variant == "True":
        yield set_one(subscription, "RawMessageDelivery", "true")
    dead = yield from create(_FIFO_QUEUE)
    yield set_one(subscription, "RedrivePolicy", json.dumps({"deadLetterTargetArn": arn_of(dead)}))
    yield Call("DeleteQueue", {"QueueUrl": url})
    yield _batch(arn, _entries(1), "publish-batch-response-fifo")
    yield from _received_together(dead, "batch-messages-in-dlq")
    yield publish(
        arn,
        "test-message",
        "publish-response-fifo",
        MessageGroupId="message-group-id-1",
        MessageDeduplicationId="message-deduplication-id-1",
    )
    yield from _received_together(dead, "messages-in-dlq")


def fifo_batch(variant: str) -> Play:
    content = _CONTENT if variant == "True" else {}
    arn = yield from topic(Attributes=_FIFO_TOPIC | content)
    yield sns("GetTopicAttributes", "topic-attrs", TopicArn=arn)
    url = yield from create(_FIFO_QUEUE | content)
    subscription = yield from subscribed(arn, url)
    yield set_one(subscription, "RawMessageDelivery", "true")
    yield attributes_of(subscription, "sub-attrs-raw-true")
    entries = _entries(None if content else 0)
    yield _batch(arn, entries, "publish-batch-response-fifo")
    yield from _received_together(url, "messages")
    yield _batch(arn, entries, "republish-batch-response-fifo")
    yield receive(url, "duplicate-messages", **ALL)


def fifo_ordering() -> Play:
    arn = yield from topic(Attributes=_FIFO_TOPIC | _CONTENT)
    url = yield from create(_FIFO_QUEUE)
    yield from subscribed(arn, url, attributes={"RawMessageDelivery": "true"})
    for index in range(10):
        yield publish(arn, f"message-{index}", MessageGroupId="group")
    answer = yield receive(url, MaxNumberOfMessages=10)
    bodies = [message["Body"] for message in answer["Messages"]]
    assert bodies == [f"message-{index}" for index in range(10)]


# --- filter policies ----------------------------------------------------------------------------


def refused_policies(policies: Mapping[str, tuple[Any, str]]) -> Callable[[], Play]:
    """Each policy under its label, at a subscription, with its scope."""

    def situation() -> Play:
        arn = yield from topic()
        for index, (label, (policy, scope)) in enumerate(policies.items()):
            attributes = {"FilterPolicy": json.dumps(policy)}
            if scope:
                attributes["FilterPolicyScope"] = scope
            yield from subscribed(arn, f"/queue-of-a-policy-{index}", label, attributes)

    return situation


def _of(operators: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    return {label: ({"key": value}, "") for label, value in operators.items()}


BAD_POLICIES = _of(
    {
        "error-condition-list": [["value"]],
        "error-condition-operator": [{"wrong-operator": True}],
        "error-condition-two-operators": [{"suffix": "value", "prefix": "value2"}],
    }
)
BAD_TEXT_OPERATORS = _of(
    {
        "error-condition-empty-array": [],
        "error-condition-is-numeric": [{"suffix": 100}],
        "error-condition-is-none": [{"suffix": None}],
        "error-condition-is-not-list-and-operator": {"suffix": "value"},
        "error-condition-empty-list": [{"suffix": []}],
        "error-condition-list-wrong-type": [{"suffix": ["test", "test2"]}],
        "error-condition-is-not-list-two-ops": {"suffix": "value", "prefix": "value"},
        "error-condition-is-not-list-and-no-operator": {"not-an-operator": "value"},
        "error-condition-bad-type": [{"cidr": ["bad-filter"]}],
        "error-condition-bad-cidr-str": [{"cidr": "bad-filter"}],
        "error-condition-bad-cidr-str-slash": [{"cidr": "bad-filter/64"}],
        "error-condition-bad-cidr-str-slash-2": [{"cidr": "bad-filter/bad-filter"}],
        "error-condition-bad-cidr-v4": [{"cidr": "xx.11.xx/8"}],
        "error-condition-bad-cidr-v6": [{"cidr": "xxxx:db8:1234:1a00::/64"}],
    }
)
BAD_NUMERIC = _of(
    {
        "error-numeric-empty": [{"numeric": []}],
        "error-numeric-wrong-operator": [{"numeric": ["operator"]}],
        "error-numeric-operator-order": [{"numeric": [1, "<="]}],
        "error-numeric-type": [{"numeric": ["=", "000"]}],
        "error-numeric-missing-value": [{"numeric": [">="]}],
        "error-numeric-wrong-range-order": [{"numeric": ["<", 100, ">", 10]}],
        "error-numeric-wrong-range-operators": [{"numeric": [">=", 1, ">", 2]}],
        "error-numeric-wrong-value-order": [{"numeric": [">", 3, "<", 1]}],
        "error-numeric-missing-range-value": [{"numeric": [">", 20, "<="]}],
        "error-numeric-missing-range-operator": [{"numeric": [">", 20, 30]}],
        "error-numeric-wrong-second-range-operator": [{"numeric": [">", 20, "test"]}],
        "error-numeric-wrong-range-value-1-type": [{"numeric": [">", "20", "<", "30"]}],
        "error-numeric-wrong-range-value-2-type": [{"numeric": [">", 20, "<", "30"]}],
        "error-numeric-too-many-range": [{"numeric": [">", 20, "<", 30, "<", 50]}],
    }
)
BAD_EXISTS = _of(
    {
        "error-condition-none": [{"exists": None}],
        "error-condition-string": [{"exists": "no"}],
    }
)
TOO_COMPLEX = {
    "error-complexity-or-flat": (  # 4*6 + 4*4*4 + 4*4*4 = 152
        {
            "source": ["a", "b", "c", "d"],
            "$or": [
                {"metricName": ["1", "2", "3", "4", "5", "6"]},
                {
                    "metricType": ["1", "2", "3", "4"],
                    "$or": [{"metricId": [1, 2, 3, 4]}, {"spaceId": [1, 2, 3, 4]}],
                },
            ],
        },
        "MessageAttributes",
    ),
    "error-complexity-or-nested": (  # 3*4*2 + 3*4*6 + 2*4*2 + 2*4*6 = 160
        {
            "$or": [{"metricName": ["1", "2", "3"]}, {"namespace": ["1", "2"]}],
            "detail": {
                "scope": ["Service", "Test"],
                "$or": [{"source": ["aws.cloudwatch"]}, {"type": ["1", "2", "3"]}],
            },
        },
        "MessageBody",
    ),
}


def nested_policy() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    policy = json.dumps({"object": {"key": [{"prefix": "auto-"}]}})
    yield set_one(subscription, "FilterPolicy", policy, "sub-filter-policy-nested-error")
    yield set_one(subscription, "FilterPolicyScope", "MessageBody")
    yield set_one(subscription, "FilterPolicy", policy)
    yield attributes_of(subscription, "sub-attrs-after-setting-nested-policy")


def policy_scope() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    yield attributes_of(subscription, "sub-attrs-default")
    yield set_one(subscription, "FilterPolicyScope", "MessageBody")
    yield attributes_of(subscription, "sub-attrs-filter-scope-body")
    yield set_one(subscription, "FilterPolicyScope", "RandomValue", "sub-attrs-filter-scope-error")
    yield set_one(subscription, "FilterPolicy", json.dumps({"attr": ["match-this"]}))
    yield attributes_of(subscription, "sub-attrs-after-setting-policy")


def exists_policy() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from subscribed(arn, url)
    store, other = {"store": number("99")}, {"def": number("99")}
    yield set_one(subscription, "FilterPolicy", json.dumps({"store": [{"exists": True}]}))
    yield attributes_of(subscription, "subscription-attributes-policy-1")
    look = {"VisibilityTimeout": 0}
    yield receive(url, "messages-0", **look)
    yield publish(arn, "message-1", MessageAttributes=other | store)
    yield receive(url, "messages-1", **look)
    yield publish(arn, "message-2", MessageAttributes={"attr1": number("111")})
    yield from received(url, "messages-2", **look)
    yield set_one(subscription, "FilterPolicy", json.dumps({"store": [{"exists": False}]}))
    yield attributes_of(subscription, "subscription-attributes-policy-2")
    yield publish(arn, "message-3", MessageAttributes=other)
    yield receive(url, "messages-3", **look)
    yield publish(arn, "message-4", MessageAttributes=other | store)
    yield receive(url, "messages-4", **look)


def _filtered(arn: str, url: str, scope: str, policy: Any) -> Texts:
    subscription = yield from subscribed(arn, url)
    yield set_one(subscription, "FilterPolicyScope", scope)
    yield set_one(subscription, "FilterPolicy", json.dumps(policy))
    yield set_one(subscription, "RawMessageDelivery", "true")
    return subscription


def array_attributes() -> Play:
    arn = yield from topic()
    url = yield from create()
    subscription = yield from _filtered(arn, url, "MessageAttributes", {"store": ["value1"]})
    yield attributes_of(subscription, "subscription-attributes-policy")
    yield receive(url, "messages-init", VisibilityTimeout=0)
    for index, attribute in enumerate(
        (
            text("value1"),
            text('["value1", "value2"]', "String.Array"),
            text('["value2", "value3"]', "String.Array"),
        ),
        1,
    ):
        yield publish(arn, f"message-{index}", MessageAttributes={"store": attribute})
        yield from received(url, f"messages-{index}", VisibilityTimeout=0)


def on_body(variant: str) -> Play:
    arn = yield from topic()
    url = yield from create()
    policy = {
        "object": {
            "key": [{"prefix": "auto-"}, "hardcodedvalue"],
            "nested_key": [{"exists": False}],
        },
        "test": [{"exists": False}],
    }
    subscription = yield from _filtered(arn, url, "MessageBody", policy)
    if variant == "False":
        yield set_one(subscription, "RawMessageDelivery", "false")
    yield receive(url, "recv-init", VisibilityTimeout=0)
    for index, value in enumerate(("auto-test", "hardcodedvalue")):
        yield publish(arn, json.dumps({"object": {"key": value}}))
        yield from received(url, f"recv-passed-msg-{index}", VisibilityTimeout=0)
    for message in (
        {"object": {"key": "test-auto"}},
        {"object": {"key": "auto-test"}, "test": "just-exists"},
        {"object": {"key": "auto-test", "nested_key": "just-exists"}},
        {"object": {"test": "auto-test"}},
        {"test": "auto-test"},
        "Regular string message",
    ):
        yield publish(arn, json.dumps(message))
    yield publish(arn, "Regular string message")
    answer = yield receive(url)
    assert not answer.get("Messages")


def _sorted_by_body(answer: Answer) -> Answer:
    return {"Messages": sorted(answer["Messages"], key=lambda message: str(message["Body"]))}


def _all_of(url: str, label: str) -> Call:
    parameters = {"QueueUrl": url, "MaxNumberOfMessages": 10, **ALL}
    return Call("ReceiveMessage", parameters, label, _sorted_by_body)


def body_arrays() -> Play:
    arn = yield from topic()
    urls = []
    for name in ("queue1", "queue2"):
        url = yield from create()
        yield from _filtered(arn, url, "MessageBody", {"headers": {"route-to": [name]}})
        urls.append(url)
    for names in (["queue3"], ["queue1"], ["queue2"], ["queue1", "queue2"]):
        yield publish(arn, json.dumps({"headers": {"route-to": names}}))
    for index, url in enumerate(urls):
        yield _all_of(url, f"messages-queue-{index}")


def body_arrays_of_objects() -> Play:
    arn = yield from topic()
    url = yield from create()
    policy = {
        "Records": {
            "s3": {"object": {"key": [{"prefix": "auto-"}]}},
            "eventName": [{"prefix": "ObjectCreated:"}],
        }
    }
    yield from _filtered(arn, url, "MessageBody", policy)

    def record(event: str, thing: str) -> dict[str, Any]:
        return {
            "Records": [
                {
                    "eventSource": "aws:s3",
                    "eventTime": "2022-11-21T03:41:29.743Z",
                    "eventName": event,
                    "s3": {
                        "bucket": {"name": "demo", "arn": "arn:aws:s3:::demo"},
                        "object": {"key": f"{thing}-insurance-2314.xml", "size": 17},
                    },
                }
            ]
        }

    auto = {"key": "auto-insurance-2314.xml", "size": 17}
    home = {"key": "home-insurance-2314.xml", "size": 17}
    several = {
        "Records": [
            {
                "eventSource": "aws:s3",
                "eventName": "ObjectCreated:Put",
                "s3": {"object": [[auto]]},
            },
            {
                "eventSource": "aws:s3",
                "eventName": "ObjectRemoved:Delete",
                "s3": {"object": home},
            },
        ]
    }
    for message in (
        several,
        record("ObjectRemoved:Delete", "auto"),
        record("ObjectCreated:Put", "home"),
        record("ObjectCreated:Put", "auto"),
    ):
        yield publish(arn, json.dumps(message))
    yield _all_of(url, "messages")


def empty_array() -> Play:
    arn = yield from topic()
    url = yield from create()
    policy = {"detail": {"eventVersion": [""]}}
    yield from _filtered(arn, url, "MessageBody", policy)
    message = {
        "version": "0",
        "id": "3e3c153a-8339-4e30-8c35-687ebef853fe",
        "detail-type": "EC2 Instance Launch Successful",
        "source": "aws.autoscaling",
        "account": "123456789012",
        "time": "2015-11-11T21:31:47.000Z",
        "region": "my-region",
        "resources": [],
        "detail": {"eventVersion": "", "responseElements": None},
    }
    yield publish(arn, json.dumps(message))
    yield _all_of(url, "messages-queue")


def large_payload() -> Play:
    arn = yield from topic()
    url = yield from create()
    policy = {"records": {"kind": ["wanted"], "parts": {"name": [{"prefix": "part-"}]}}}
    yield from _filtered(arn, url, "MessageBody", policy)

    def message(last: str) -> str:
        parts = [{"name": f"other-{index}"} for index in range(40)] + [{"name": last}]
        records = [{"kind": f"kind-{index}", "parts": parts} for index in range(40)]
        return json.dumps({"records": [*records, {"kind": "wanted", "parts": parts}]})

    yield publish(arn, message("part-1"))
    yield publish(arn, message("another"))
    answer = yield receive(url, MaxNumberOfMessages=10)
    assert [each["Body"] for each in answer["Messages"]] == [message("part-1")]


PLAYS: dict[str, Callable[..., Play]] = {
    "test_add_permission_errors": permission_errors,
    "test_attribute_raw_subscribe": raw_attribute,
    "test_create_duplicate_topic_check_idempotency": duplicate_idempotency,
    "test_create_duplicate_topic_with_more_tags": duplicate_with_more_tags,
    "test_create_topic_after_delete_with_new_tags": create_after_delete,
    "test_create_topic_different_attrs": different_attributes,
    "test_create_topic_in_multiple_regions": multiple_regions,
    "test_create_topic_name_constraints": name_constraints,
    "test_create_topic_should_be_idempotent": create_idempotent,
    "test_create_topic_test_arn": create_topic_arn,
    "test_creating_subscription": pending_subscription,
    "test_cross_region_access": cross_region,
    "test_delete_subscriptions_on_delete_topic": subscription_attributes(
        "get-sub-after-topic-delete", raw=True, gone=True
    ),
    "test_delete_topic_idempotency": delete_idempotency,
    "test_empty_or_wrong_message_attributes": wrong_attributes,
    "test_empty_sns_message": empty_message,
    "test_exists_filter_policy": exists_policy,
    "test_exists_filter_policy_attributes_array": array_attributes,
    "test_filter_policy_empty_array_payload": empty_array,
    "test_filter_policy_large_complex_payload": large_payload,
    "test_filter_policy_on_message_body": on_body,
    "test_filter_policy_on_message_body_array_attributes": body_arrays,
    "test_filter_policy_on_message_body_array_of_object_attributes": body_arrays_of_objects,
    "test_get_subscription_attributes_error_not_exists": unknown_subscription,
    "test_http_subscription_response": http_answers,
    "test_list_subscriptions": list_subscriptions,
    "test_list_subscriptions_by_topic_pagination": pagination,
    "test_message_attributes_not_missing": attributes_not_missing,
    "test_message_attributes_prefixes": attribute_prefixes,
    "test_message_structure_json_exc": structure_json_errors,
    "test_message_structure_json_to_sqs": structure_json_to_sqs,
    "test_message_to_fifo_sqs": fifo,
    "test_message_to_fifo_sqs_ordering": fifo_ordering,
    "test_not_found_error_on_set_subscription_attributes": not_found_after_unsubscribe,
    "test_policy_complexity_with_or": refused_policies(TOO_COMPLEX),
    "test_publish_batch_messages_from_fifo_topic_to_fifo_queue": fifo_batch,
    "test_publish_batch_messages_without_topic": batch_without_topic,
    "test_publish_fifo_messages_to_dlq": fifo_to_dead_letters,
    "test_publish_message_by_target_arn": by_target_arn,
    "test_publish_non_existent_target": no_such_target,
    "test_publish_sqs_from_sns": raw_and_enveloped,
    "test_publish_sqs_from_sns_with_xray_propagation": trace_header,
    "test_publish_sqs_verify_signature": signature,
    "test_publish_to_fifo_topic_deduplication_on_topic_level": fifo_topic_deduplication,
    "test_publish_too_long_message": too_long,
    "test_publish_unicode_chars": unicode,
    "test_publish_wrong_arn_format": wrong_arn,
    "test_redrive_policy_sqs_queue_subscription": redrive,
    "test_set_subscription_attributes": subscription_attributes(
        "set-subscription-attributes", raw=True
    ),
    "test_set_subscription_filter_policy_scope": policy_scope,
    "test_sub_filter_policy_nested_property": nested_policy,
    "test_subscribe_attributes": subscription_attributes("get-subscription-attributes"),
    "test_subscribe_idempotency": subscribe_idempotency,
    "test_subscribe_sqs_queue_url": subscribe_url("subscribe-sqs-via-url-error"),
    "test_subscribe_to_sqs_with_queue_url": subscribe_url("sub-queue-url"),
    "test_subscribe_unknown_sqs_queue": subscribe_unknown_queue,
    "test_subscribe_unknown_topic": subscribe_unknown_topic,
    "test_subscribe_with_invalid_protocol": invalid_protocol,
    "test_subscribe_with_invalid_topic": subscribe_wrong_topic,
    "test_subscription_after_failure_to_deliver": after_failure,
    "test_tags": tags,
    "test_tags_removed_after_deletion": tags_removed_after_deletion,
    "test_topic_add_permission": add_permission,
    "test_topic_get_attributes_with_fifo_false": fifo_false,
    "test_topic_policy_overwrite_lifecycle": policy_overwritten,
    "test_topic_publish_another_region": another_region,
    "test_topic_remove_permission": remove_permission,
    "test_unsubscribe_from_non_existing_subscription": unsubscribe_twice("", "empty-unsubscribe"),
    "test_unsubscribe_idempotency": unsubscribe_twice("unsubscribe-1", "unsubscribe-2"),
    "test_unsubscribe_wrong_arn_format": unsubscribe_wrong_arn,
    "test_validate_policy": refused_policies(BAD_POLICIES),
    "test_validate_policy_exists_operator": refused_policies(BAD_EXISTS),
    "test_validate_policy_numeric_operator": refused_policies(BAD_NUMERIC),
    "test_validate_policy_string_operators": refused_policies(BAD_TEXT_OPERATORS),
    "test_validate_set_sub_attributes": set_attributes_validated,
}

ELSEWHERE_ACTED_OUT = {
    "test_publish_by_path_parameters": "a request by hand: tests/server/test_sns_links.py",
    "test_subscribe_external_http_endpoint": "an HTTP endpoint: tests/server/test_sns_links.py",
    "test_confirm_subscription": "needs the token of a message: tests/server/test_sns_links.py",
}

_SMS = "text messages are out of scope"
_PUSH = "platform applications are out of scope"
_LAMBDA = "Lambda functions are out of scope"

NOT_ACTED_OUT = {
    "test_check_not_opted_out": _SMS,
    "test_create_platform_application": _PUSH,
    "test_create_platform_application_invalid_name": _PUSH,
    "test_create_platform_endpoint_double_custom_data": _PUSH,
    "test_create_platform_endpoint_idempotency": _PUSH,
    "test_create_platform_endpoint_non_existent_app": _PUSH,
    "test_create_platform_endpoint_with_invalid_attributes": _PUSH,
    "test_data_protection_policy_crud": "data protection policies are out of scope",
    "test_delete_endpoints_of_deleted_app": _PUSH,
    "test_delete_platform_endpoint": _PUSH,
    "test_delete_platform_endpoint_with_subscription": _PUSH,
    "test_delivery_lambda": _LAMBDA,
    "test_get_platform_application_attributes": _PUSH,
    "test_get_platform_application_attributes_invalid_arn": _PUSH,
    "test_get_platform_endpoint_attributes": _PUSH,
    "test_get_platform_endpoint_attributes_non_existent_endpoint": _PUSH,
    "test_get_sms_attributes_from_unmodified_region": _SMS,
    "test_is_phone_number_opted_out": _SMS,
    "test_list_phone_numbers_opted_out": _SMS,
    "test_list_platform_applications": _PUSH,
    "test_opt_in_phone_number": _SMS,
    "test_publish_lambda_verify_signature": _LAMBDA,
    "test_publish_wrong_phone_format": _SMS,
    "test_python_lambda_subscribe_sns_topic": _LAMBDA,
    "test_set_get_sms_attributes": _SMS,
    "test_set_invalid_sms_attributes": _SMS,
    "test_set_platform_application_attributes": _PUSH,
    "test_set_platform_application_attributes_invalid_arn": _PUSH,
    "test_set_platform_application_attributes_non_existing_app": _PUSH,
    "test_set_platform_endpoint_attributes": _PUSH,
    "test_set_platform_endpoint_attributes_invalid_arn": _PUSH,
    "test_set_platform_endpoint_attributes_invalid_attributes": _PUSH,
    "test_set_platform_endpoint_attributes_non_existent_endpoint": _PUSH,
    "test_subscribe_external_http_endpoint_lambda_url_sig_validation": _LAMBDA,
    "test_subscribe_invalid_sms": _SMS,
    "test_subscribe_sms": _SMS,
    "test_subscribe_sms_endpoint": _SMS,
    "test_subscribe_sms_obscure_phone_number": _SMS,
}
