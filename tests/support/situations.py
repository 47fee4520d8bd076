"""The situations that real AWS was recorded in, as plays: what was done, for anyone to act out.

`PLAYS` has each under the name it was recorded by, and `play(recording)` is the one for a recording
with its variant. What AWS answered is in the recordings (`recorded.py`); a situation without
recorded answers asserts what AWS did instead. How they are acted out is `acting.py`'s.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

from support.acting import Answer, Call, Play, Refusal, Wait
from support.recorded import Recording

TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"

_numbers = count(1)
Urls = Generator[Call | Wait, Answer, str]


def unique(prefix: str = "queue") -> str:
    """A queue name that no other situation of this run has."""
    return f"{prefix}-{next(_numbers)}"


def play(recording: Recording) -> Play:
    """What was done in a recorded situation."""
    situation = PLAYS[recording.name]
    return situation(recording.variant) if recording.variant else situation()


# --- shorthands ---------------------------------------------------------------------------------


def create(attributes: dict[str, str] | None = None, name: str = "") -> Urls:
    fifo = (attributes or {}).get("FifoQueue", "").lower() == "true"
    name = name or unique() + (".fifo" if fifo else "")
    answer = yield Call("CreateQueue", {"QueueName": name, "Attributes": attributes or {}})
    return str(answer["QueueUrl"])


def create_fifo(**attributes: str) -> Urls:
    return (yield from create({"FifoQueue": "true", **attributes}))


def _arn(url: str) -> Urls:
    answer = yield Call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["QueueArn"]})
    return str(answer["Attributes"]["QueueArn"])


def send(
    url: str, body: str, group: str = "", dedup: str = "", label: str = "", **more: Any
) -> Call:
    parameters: dict[str, Any] = {"QueueUrl": url, "MessageBody": body, **more}
    if group:
        parameters["MessageGroupId"] = group
    if dedup:
        parameters["MessageDeduplicationId"] = dedup
    return Call("SendMessage", parameters, label)


def receive(
    url: str, label: str = "", pick: Callable[[Answer], Any] | None = None, **more: Any
) -> Call:
    return Call("ReceiveMessage", {"QueueUrl": url, **more}, label, pick)


def _delete(url: str, handle: str, label: str = "") -> Call:
    return Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle}, label)


def _attributes(url: str, *names: str, label: str = "") -> Call:
    return Call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": list(names)}, label)


def set_attributes(url: str, label: str = "", **attributes: str) -> Call:
    return Call("SetQueueAttributes", {"QueueUrl": url, "Attributes": attributes}, label)


def _first(answer: Answer) -> Any:
    return answer["Messages"][0]


def _handle(answer: Answer, position: int = 0) -> str:
    return str(answer["Messages"][position]["ReceiptHandle"])


def text_value(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


# --- messages -----------------------------------------------------------------------------------


def max_number_of_messages() -> Play:
    url = yield from create()
    yield send(url, "message")
    yield receive(url, "send_max_number_of_messages", MaxNumberOfMessages=11)


def wait_time_seconds() -> Play:
    url = yield from create()
    yield send(url, "message")
    yield send(url, "message")
    yield receive(url, "recieve_message_error_too_large", WaitTimeSeconds=21)
    yield receive(url, "recieve_message_error_too_small", WaitTimeSeconds=-1)
    yield receive(url, "empty_short_poll_by_default_resp", MaxNumberOfMessages=1)
    yield receive(url, "empty_short_poll_explicit_resp", MaxNumberOfMessages=1, WaitTimeSeconds=0)


def updated_maximum_message_size() -> Play:
    url = yield from create()
    yield set_attributes(url, MaximumMessageSize="1024")
    yield send(url, "a" * 1024)
    attributes = {"k": text_value("x")}
    body = "a" * (1024 - len("kStringx") + 1)
    yield send(url, body, label="send_oversized_message", MessageAttributes=attributes)


def batch_with_updated_maximum_message_size() -> Play:
    url = yield from create()
    yield set_attributes(url, MaximumMessageSize="2048")
    body = "a" * (2048 - len("kStringx"))
    yield Call(
        "SendMessageBatch",
        {
            "QueueUrl": url,
            "Entries": [
                {"Id": "1", "MessageBody": body, "MessageAttributes": {"k": text_value("x")}},
                {"Id": "2", "MessageBody": "a"},
            ],
        },
        "send_oversized_message_batch",
    )


def too_many_entries() -> Play:
    url = yield from create()
    entries = [{"Id": f"message-{i}", "MessageBody": f"messageBody-{i}"} for i in range(20)]
    yield Call(
        "SendMessageBatch",
        {"QueueUrl": url, "Entries": entries},
        "test_too_many_entries_in_batch_request",
    )


def invalid_batch_id() -> Play:
    url = yield from create()
    entries = [{"Id": "message:1", "MessageBody": "messageBody-1"}]
    yield Call("SendMessageBatch", {"QueueUrl": url, "Entries": entries}, "test_invalid_batch_id")


def batch_without_deduplication_id() -> Play:
    url = yield from create_fifo(ContentBasedDeduplication="false")
    first = {"Id": "message-1", "MessageBody": "messageBody", "MessageGroupId": "test-group"}
    entries = [
        {**first, "MessageDeduplicationId": "dedup-1"},
        {**first, "Id": "message-2"},
    ]
    yield Call(
        "SendMessageBatch",
        {"QueueUrl": url, "Entries": entries},
        "test_missing_deduplication_id_for_fifo_queue",
    )


def batch_without_group_id() -> Play:
    url = yield from create_fifo(ContentBasedDeduplication="false")
    first = {"Id": "message-1", "MessageBody": "messageBody", "MessageDeduplicationId": "dedup-1"}
    entries = [
        {**first, "MessageGroupId": "test-group"},
        {**first, "Id": "message-2", "MessageDeduplicationId": "dedup-2"},
    ]
    yield Call(
        "SendMessageBatch",
        {"QueueUrl": url, "Entries": entries},
        "test_missing_message_group_id_for_fifo_queue",
    )


def delete_batch_invalid_id(entry_id: str) -> Play:
    url = yield from create()
    entry_id = "" if entry_id == "empty" else entry_id
    entries = [{"Id": entry_id, "ReceiptHandle": "testHandle1"}]
    yield Call("DeleteMessageBatch", {"QueueUrl": url, "Entries": entries}, "error_response")


def _twenty_received(url: str) -> Generator[Call | Wait, Answer, list[str]]:
    for _ in range(2):
        entries = [{"Id": f"message-{i}", "MessageBody": f"messageBody-{i}"} for i in range(10)]
        yield Call("SendMessageBatch", {"QueueUrl": url, "Entries": entries})
    handles: list[str] = []
    while len(handles) < 20:
        answer = yield receive(url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        handles += [message["ReceiptHandle"] for message in answer["Messages"]]
    return handles


def delete_batch_too_large() -> Play:
    url = yield from create()
    handles = yield from _twenty_received(url)
    entries = [{"Id": str(i), "ReceiptHandle": handle} for i, handle in enumerate(handles)]
    yield Call("DeleteMessageBatch", {"QueueUrl": url, "Entries": entries}, "error_response")


def visibility_batch_too_large() -> Play:
    url = yield from create()
    handles = yield from _twenty_received(url)
    entries = [
        {"Id": str(i), "ReceiptHandle": handle, "VisibilityTimeout": 123}
        for i, handle in enumerate(handles)
    ]
    yield Call(
        "ChangeMessageVisibilityBatch", {"QueueUrl": url, "Entries": entries}, "error_response"
    )


def message_attribute_filters() -> Play:
    url = yield from create({"VisibilityTimeout": "0"})
    yield send(
        url,
        "msg",
        label="send_message_response",
        MessageAttributes={
            "Help.Me": text_value("Me"),
            "Hello": text_value("There"),
            "General": text_value("Kenobi"),
        },
    )
    for label, names, pick in (
        ("empty_filter", [], None),
        ("all_name", ["All"], None),
        ("all_wildcard_asterisk", ["*"], _first),
        ("all_wildcard", [".*"], _first),
        ("only_non_existing_names", ["Foo", "Help"], _first),
        ("only_existing", ["Hello", "General"], _first),
        ("existing_and_non_existing", ["Foo", "Hello"], _first),
        ("prefix_filter", ["Hel.*"], _first),
        ("illegal_name_1", ["AWS."], None),
        ("illegal_name_2", ["..foo"], None),
    ):
        yield receive(url, label, pick, WaitTimeSeconds=5, MessageAttributeNames=names)


def attribute_filters() -> Play:
    url = yield from create({"VisibilityTimeout": "0"})
    yield send(url, "msg", MessageAttributes={"Foo": text_value("Bar")})
    for label, names, message_names in (
        ("all_attributes", ["All"], []),
        ("all_system_and_message_attributes", ["All"], ["All"]),
        ("single_attribute", ["SenderId"], []),
        ("multiple_attributes", ["SenderId", "SequenceNumber"], []),
    ):
        yield receive(
            url,
            label,
            WaitTimeSeconds=5,
            AttributeNames=names,
            MessageAttributeNames=message_names,
        )


def system_attribute_names_with_attribute_names() -> Play:
    url = yield from create({"VisibilityTimeout": "0"})
    yield send(url, "msg", MessageAttributes={"Foo": text_value("Bar")})
    for label, names in (("same_values", ["All"]), ("different_values", ["SenderId"])):
        yield receive(
            url,
            label,
            WaitTimeSeconds=5,
            MessageSystemAttributeNames=["All"],
            AttributeNames=names,
        )


def trace_header() -> Play:
    url = yield from create()
    yield Call(
        "SendMessage",
        {
            "QueueUrl": url,
            "MessageBody": "test",
            "MessageAttributes": {
                "timestamp": {"StringValue": "1493147359900", "DataType": "Number"}
            },
        },
        headers={"X-Amzn-Trace-Id": TRACE},
    )
    yield receive(
        url,
        "xray-msg",
        _first,
        AttributeNames=["SentTimestamp", "AWSTraceHeader"],
        MaxNumberOfMessages=1,
        MessageAttributeNames=["All"],
        VisibilityTimeout=2,
        WaitTimeSeconds=2,
    )


def invalid_group_on_standard_queue(variant: str) -> Play:
    group = {"empty": "", "too_long": "a" * 129, "spaces": "group 123"}[variant]
    url = yield from create()
    yield Call(
        "SendMessage",
        {"QueueUrl": url, "MessageBody": "message", "MessageGroupId": group},
        "error-response",
    )


def delete_after_visibility_timeout() -> Play:
    url = yield from create({"VisibilityTimeout": "1"})
    yield send(url, "foobar")
    answer = yield receive(url)
    yield Wait(2)
    yield _delete(url, _handle(answer))
    yield receive(url, "delete_after_timeout_queue_empty")


# --- FIFO ---------------------------------------------------------------------------------------


def fifo_message_attributes() -> Play:
    url = yield from create_fifo(
        ContentBasedDeduplication="true",
        VisibilityTimeout="0",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
    )
    yield send(url, "message-body-1", "group-1", "dedup-1", "send_message")
    for label in ("receive_message_0", "receive_message_1"):
        yield receive(url, label, AttributeNames=["All"], WaitTimeSeconds=10)


def fifo_expired_handle() -> Play:
    url = yield from create_fifo(VisibilityTimeout="1", ContentBasedDeduplication="true")
    yield send(url, "g1-m1", "1")
    answer = yield receive(url)
    handle = _handle(answer)
    yield Wait(2)
    yield _delete(url, handle, "error")
    # recorded without its answers; AWS's words are those of the situation after this
    error = yield _delete(url, handle, "again")
    assert isinstance(error, Refusal), error
    assert error["Error"]["Code"] == "InvalidParameterValue"
    assert error["Error"]["Message"].endswith("Reason: The receipt handle has expired.")


def fifo_delete_after_visibility_timeout() -> Play:
    url = yield from create_fifo(VisibilityTimeout="1", ContentBasedDeduplication="true")
    yield send(url, "foobar", "1")
    answer = yield receive(url, "received_sqs_message")
    yield Wait(2)
    yield _delete(url, _handle(answer), "delete_after_timeout_fifo")


def fifo_delete_after_extension() -> Play:
    url = yield from create_fifo(VisibilityTimeout="2", ContentBasedDeduplication="true")
    yield send(url, "foobar", "1")
    answer = yield receive(url, "received_sqs_message")
    handle = _handle(answer)
    yield Call(
        "ChangeMessageVisibility",
        {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 10},
    )
    yield Wait(3)
    yield _delete(url, handle, "delete_after_timeout_fifo_extended")


def fifo_deduplication_after_delete(variant: str) -> Play:
    by_content = variant == "True"
    dedup = "" if by_content else "dedup1"
    url = yield from (
        create_fifo(ContentBasedDeduplication="true") if by_content else create_fifo()
    )
    body = '{"foo": "bar"}'
    yield send(url, body, "group-1", dedup)
    answer = yield receive(url, "get-messages", WaitTimeSeconds=3)
    yield _delete(url, _handle(answer))
    yield send(url, body, "group-1", dedup)
    yield receive(url, "get-messages-duplicate", WaitTimeSeconds=1)


def fifo_needs_group_and_deduplication() -> Play:
    url = yield from create_fifo()
    for suffix in ("", "-query"):  # both were recorded over JSON, whatever they are called
        protocol = "json" if suffix else ""
        without_dedup = send(url, "test", "group", label=f"invalid-parameter-value{suffix}")
        without_group = send(url, "test", dedup="dedup", label=f"missing-parameter{suffix}")
        for call in (without_dedup, without_group):
            yield Call(call.action, call.parameters, call.label, protocol=protocol)


def fifo_same_deduplication_id() -> Play:
    url = yield from create({"FifoQueue": "True", "ContentBasedDeduplication": "False"})
    yield send(url, "Test", "group1", "same-dedup")
    answer = yield receive(url, "same-dedup-different-grp-1")
    yield _delete(url, _handle(answer))
    yield send(url, "Test", "group2", "same-dedup")
    yield receive(url, "same-dedup-different-grp-2")


HIGH_THROUGHPUT = {
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


def fifo_high_throughput() -> Play:
    url = yield from create(
        {"FifoQueue": "True", "ContentBasedDeduplication": "False", **HIGH_THROUGHPUT}
    )
    yield send(url, "Test1", "group1", "same-dedup")
    answer = yield receive(url, "same-dedup-different-grp-1")
    yield _delete(url, _handle(answer))
    yield send(url, "Test2", "group2", "same-dedup")
    yield receive(url, "same-dedup-different-grp-2")


def fifo_to_high_throughput() -> Play:
    url = yield from create(
        {"FifoQueue": "True", "ContentBasedDeduplication": "False", "DeduplicationScope": "queue"}
    )
    yield send(url, "Test1", "group1", "same-dedup")
    answer = yield receive(url, "same-dedup-different-grp-1")
    yield _delete(url, _handle(answer))
    yield send(url, "Test2", "group2", "same-dedup")
    yield receive(url, "same-dedup-different-grp-2", VisibilityTimeout=0)
    yield set_attributes(url, **HIGH_THROUGHPUT)
    yield _attributes(url, "All", label="set-to-high-throughput")
    yield receive(url, "same-dedup-different-grp-high-throughput")
    yield send(url, "Test3", "group3", "same-dedup")
    yield receive(url, "same-dedup-different-grp-high-throughput-2")
    yield send(url, "Test4", "group4", "dedup_2")
    answer = yield receive(url, "new-dedup2-high-throughput")
    yield _delete(url, _handle(answer))
    yield send(url, "Test5", "group5", "dedup_2")
    yield receive(url, "same-dedup2-high-throughput")


def fifo_to_regular_throughput() -> Play:
    url = yield from create(
        {"FifoQueue": "True", "ContentBasedDeduplication": "False", **HIGH_THROUGHPUT}
    )
    yield send(url, "Test1", "group1", "same-dedup")
    answer = yield receive(url, "same-dedup-different-grp-1")
    yield _delete(url, _handle(answer))
    yield send(url, "Test2", "group2", "same-dedup")
    answer = yield receive(url, "same-dedup-different-grp-2")
    yield _delete(url, _handle(answer))
    yield set_attributes(url, DeduplicationScope="queue", FifoThroughputLimit="perQueue")
    yield _attributes(url, "All", label="set-to-regular-throughput")
    yield send(url, "Test3", "group3", "same-dedup")
    yield receive(url, "same-dedup-different-grp-regular-throughput")


def fifo_group_scope_alone() -> Play:
    url = yield from create(
        {
            "FifoQueue": "True",
            "ContentBasedDeduplication": "True",
            "DeduplicationScope": "messageGroup",
        }
    )
    yield send(url, "Test", "group1")
    answer = yield receive(url, "same-dedup-different-grp-1")
    yield _delete(url, _handle(answer))
    yield send(url, "Test", "group2")
    yield receive(url, "same-dedup-different-grp-2")


def fifo_zero_delay() -> Play:
    url = yield from create_fifo(ContentBasedDeduplication="true", DelaySeconds="2")
    yield send(url, "message-1", "1", label="send_message_result", DelaySeconds=0)
    yield receive(url, "receive_message_initial_result", WaitTimeSeconds=1)
    yield Wait(3)
    yield receive(url, "receive_message_after_delay_result", MaxNumberOfMessages=1)


def fifo_messages_not_visible() -> Play:
    """Recorded without answers; what is asserted is what AWS's documentation says of the counts."""
    url = yield from create_fifo(ContentBasedDeduplication="true")
    for body, group in (("g1-m1", "1"), ("g1-m2", "1"), ("g2-m1", "2"), ("g3-m1", "3")):
        yield send(url, body, group)
    answer = yield receive(url, MaxNumberOfMessages=3)
    assert [message["Body"] for message in answer["Messages"]] == ["g1-m1", "g1-m2", "g2-m1"]
    counts = yield _attributes(
        url, "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"
    )
    assert counts["Attributes"] == {
        "ApproximateNumberOfMessages": "1",
        "ApproximateNumberOfMessagesNotVisible": "3",
    }


def fifo_group_visibility(variant: str) -> Play:
    """One of three messages of a group is extended; those after it stay invisible with it."""
    position = {"0-visible": 0, "1-visible": 1, "2-visible": 2}.get(variant)
    if position is None:  # how many of the group come before the one that is extended
        position = {"all-invisible": 0, "1-invisible": 1, "no-invisible": 2}[variant]
    url = yield from create_fifo(VisibilityTimeout="1")
    for body in ("foo", "bar", "baz"):
        yield send(url, body, "1", body)
    answer = yield receive(url, "receive_all_messages", MaxNumberOfMessages=5)
    yield Call(
        "ChangeMessageVisibility",
        {
            "QueueUrl": url,
            "ReceiptHandle": _handle(answer, position),
            "VisibilityTimeout": 4,
        },
    )
    yield Wait(2.5)
    yield receive(url, "some-messages-invisible", MaxNumberOfMessages=5)


def fifo_dead_letters() -> Play:
    """Recorded without answers; the assertions are what AWS was seen to do."""
    dead = yield from create_fifo(
        ContentBasedDeduplication="true", MessageRetentionPeriod="1209600"
    )
    dead_arn = yield from _arn(dead)
    url = yield from create_fifo(
        ContentBasedDeduplication="true",
        VisibilityTimeout="60",
        RedrivePolicy=json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": 2}),
    )
    sent = yield send(url, "foobar", "1")
    for _ in range(3):
        yield receive(url, WaitTimeSeconds=1, VisibilityTimeout=0)
    answer = yield receive(dead, WaitTimeSeconds=10)
    assert [(m["MessageId"], m["Body"]) for m in answer["Messages"]] == [
        (sent["MessageId"], "foobar")
    ]
    sent = yield send(url, "foobar2", "1")
    answer = yield receive(url, WaitTimeSeconds=1)
    assert _first(answer)["MessageId"] == sent["MessageId"]


# --- queues -------------------------------------------------------------------------------------


def tag_and_untag() -> Play:
    url = yield from create()
    tags = {"tag1": "value1", "tag2": "value2", "tag3": ""}
    yield Call("TagQueue", {"QueueUrl": url, "Tags": tags})
    yield Call("ListQueueTags", {"QueueUrl": url}, "get-tag-1")
    yield Call("UntagQueue", {"QueueUrl": url, "TagKeys": ["tag1", "tag3"]})
    yield Call("ListQueueTags", {"QueueUrl": url}, "get-tag-2")
    yield Call("UntagQueue", {"QueueUrl": url, "TagKeys": ["tag2"]})
    yield Call("ListQueueTags", {"QueueUrl": url}, "get-tag-after-untag")


def create_with_other_attributes() -> Play:
    name = unique() + ".fifo"
    yield from create({"FifoQueue": "true", "ContentBasedDeduplication": "true"}, name)
    yield Call(
        "CreateQueue",
        {
            "QueueName": name,
            "Attributes": {"FifoQueue": "true", "ContentBasedDeduplication": "false"},
        },
        "queue-already-exists",
    )


def create_and_update() -> Play:
    url = yield from create(
        {
            "MessageRetentionPeriod": "604800",
            "ReceiveMessageWaitTimeSeconds": "10",
            "VisibilityTimeout": "20",
        }
    )
    yield _attributes(url, "All", label="get_queue_attributes")
    yield set_attributes(url, MaximumMessageSize="2048", VisibilityTimeout="69", DelaySeconds="420")
    yield _attributes(url, "All", label="get_updated_queue_attributes")


def unsupported_attribute_standard() -> Play:
    url = yield from create()
    yield set_attributes(url, "invalid-attr-name-1", FifoQueue="true")
    yield set_attributes(url, "invalid-attr-name-2", FifoQueue="false")


def unsupported_attribute_fifo() -> Play:
    url = yield from create()
    yield set_attributes(url, "invalid-attr-name-1", FifoQueue="true")
    url = yield from create_fifo()
    yield set_attributes(url, FifoQueue="true")
    yield set_attributes(url, "invalid-attr-name-2", FifoQueue="false")


def fifo_attributes_on_standard_queue() -> Play:
    for name, value, what in (
        ("FifoQueue", "false", "fifo-queue"),
        ("ContentBasedDeduplication", "false", "content-based-deduplication"),
        ("DeduplicationScope", "queue", "deduplication-scope"),
        ("FifoThroughputLimit", "perQueue", "throughput-limit"),
    ):
        yield Call(
            "CreateQueue",
            {"QueueName": unique(), "Attributes": {name: value}},
            f"invalid-attribute-{what}",
        )


def encryption() -> Play:
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    url = yield from create()
    yield set_attributes(
        url,
        KmsMasterKeyId="testKeyId",
        KmsDataKeyReusePeriodSeconds="6000",
        SqsManagedSseEnabled="false",
    )
    yield _attributes(url, *names, label="sse_kms_attributes")
    url = yield from create()
    yield set_attributes(url, SqsManagedSseEnabled="true")
    yield _attributes(url, *names, label="sse_sqs_attributes")


def encryption_of_two_kinds() -> Play:
    url = yield from create()
    yield set_attributes(url, "error", KmsMasterKeyId="testKeyId", SqsManagedSseEnabled="true")


def permissions() -> Play:
    url = yield from create()
    account = url.split("/")[-2]
    label = "crossaccountpermission"

    def add(accounts: list[str], name: str, kept: str = "") -> Call:
        return Call(
            "AddPermission",
            {
                "QueueUrl": url,
                "AWSAccountIds": accounts,
                "Actions": ["ReceiveMessage"],
                "Label": name,
            },
            kept,
        )

    def remove(name: str, kept: str = "") -> Call:
        return Call("RemovePermission", {"QueueUrl": url, "Label": name}, kept)

    def policy(kept: str) -> Call:
        return _attributes(url, "Policy", label=f"get-queue-policy-attribute{kept}")

    yield add(["668614515564", account], label, "add-permission-response")
    yield policy("")
    yield remove(label, "remove-permission-response")
    yield policy("-after-removal")
    yield add([account], label)
    yield policy("-first-account-same-label")
    yield add(["668614515564"], label, "get-queue-policy-attribute-second-account-same-label")
    yield add([account], label + "2")
    yield policy("-second-account-different-label")
    yield remove(label)
    yield policy("-delete-first-permission")
    yield remove(label + "2")
    yield policy("-delete-second-permission")
    yield remove(label + "2", "get-queue-policy-attribute-delete-non-existent-label")


def no_such_queue() -> Play:
    name = unique()
    url = yield from create(name=name)
    yield Call("DeleteQueue", {"QueueUrl": url})
    yield Call("GetQueueAttributes", {"QueueUrl": url}, "queue-does-not-exist", protocol="json")
    yield Call("GetQueueUrl", {"QueueName": name}, "queue-does-not-exist-url", protocol="json")
    yield Call(
        "GetQueueAttributes", {"QueueUrl": url}, "queue-does-not-exist-query", protocol="query"
    )


def list_queues_in_pages() -> Play:
    prefix = "7f7df0f5"
    for number in range(10):
        yield from create(name=f"{prefix}-test-queue-{number}")

    def as_recorded(answer: Answer) -> Answer:
        """With the URLs' host as the recording has it, and a token as a token."""
        shown = dict(answer)
        shown["QueueUrls"] = [
            "http://sqs.us-east-1.localhost.localstack.cloud:4566/" + "/".join(url.split("/")[-2:])
            for url in answer["QueueUrls"]
        ]
        if token := shown.pop("NextToken", ""):
            assert isinstance(token, str)
            last = "http://sqs.<region>.localhost.localstack.cloud:4566/111111111111/"
            last += answer["QueueUrls"][-1].split("/")[-1]
            shown["NextToken"] = base64.b64encode(last.encode()).decode()
        return shown

    everything = {"QueueNamePrefix": prefix}
    yield Call("ListQueues", everything, "list_all", as_recorded)
    page = yield Call("ListQueues", {**everything, "MaxResults": 2}, "list_two_max", as_recorded)
    yield Call(
        "ListQueues",
        {**everything, "MaxResults": 10, "NextToken": page["NextToken"]},
        "list_remaining",
        as_recorded,
    )


# --- moving messages back -----------------------------------------------------------------------


def _pipe(dead: str = "") -> Generator[Call | Wait, Answer, tuple[str, str]]:
    """A queue whose dead letters go to another after one receive; the URLs of both."""
    dead = dead or (yield from create())
    arn = yield from _arn(dead)
    url = yield from create(
        {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}
    )
    return url, dead


def _kill(url: str, bodies: list[str]) -> Generator[Call | Wait, Answer, None]:
    """Send messages and receive them until each is a dead letter."""
    for body in bodies:
        yield send(url, body)
    for _ in range(2 * len(bodies)):
        yield receive(url, VisibilityTimeout=0)


def _start(source: str, label: str = "", **more: Any) -> Call:
    return Call("StartMessageMoveTask", {"SourceArn": source, **more}, label)


def _drain(url: str, number: int) -> Generator[Call | Wait, Answer, list[str]]:
    bodies: list[str] = []
    for _ in range(60):
        answer = yield receive(url, WaitTimeSeconds=5, MaxNumberOfMessages=1)
        for message in answer.get("Messages", []):
            bodies.append(message["Body"])
            yield _delete(url, message["ReceiptHandle"])
        if len(bodies) >= number:
            return bodies
    raise AssertionError(f"{len(bodies)} messages instead of {number}")


def move_needs_dead_letter_queue() -> Play:
    source = yield from _arn((yield from create()))
    destination = yield from _arn((yield from create()))
    yield _start(source, "error", DestinationArn=destination)


def move_cancel_bad_handle() -> Play:
    yield Call("CancelMessageMoveTask", {"TaskHandle": "foobared"}, "error")


def move_cancel_no_such_task() -> Play:
    source = yield from _arn((yield from create()))
    handle = {"taskId": "10f57157-fc38-4da9-a113-4de7e12d05aa", "sourceArn": source}
    text = base64.b64encode(json.dumps(handle, separators=(",", ":")).encode()).decode()
    yield Call("CancelMessageMoveTask", {"TaskHandle": text}, "error")


def move_no_such_destination() -> Play:
    _, dead = yield from _pipe()
    source = yield from _arn(dead)
    destination = yield from _arn((yield from create()))
    yield _start(source, "error", DestinationArn=destination + "doesntexist")


def move_workflow() -> Play:
    url, dead = yield from _pipe()
    source = yield from _arn(dead)
    target = yield from create()
    destination = yield from _arn(target)
    yield from _kill(url, ["message-1", "message-2"])
    yield _start(source, "start-message-move-task-response", DestinationArn=destination)
    bodies = yield from _drain(target, 2)
    assert set(bodies) == {"message-1", "message-2"}
    yield Call("ListMessageMoveTasks", {"SourceArn": source}, "list-message-move-task-response")
    answer = yield receive(dead, WaitTimeSeconds=1)
    assert not answer.get("Messages")


def move_to_the_original_sources() -> Play:
    first, dead = yield from _pipe()
    second, _ = yield from _pipe(dead)
    source = yield Call(
        "GetQueueAttributes",
        {"QueueUrl": dead, "AttributeNames": ["QueueArn"]},
        "source-arn",
        lambda answer: answer["Attributes"]["QueueArn"],
    )
    for number, url in (("1", first), ("2", second)):
        yield Call(
            "GetQueueAttributes",
            {"QueueUrl": url, "AttributeNames": ["QueueArn"]},
            f"original-source-{number}",
            lambda answer: answer["Attributes"]["QueueArn"],
        )
    source_arn = source["Attributes"]["QueueArn"]
    yield from _kill(first, ["message-1-1", "message-1-2"])
    yield from _kill(second, ["message-2-1", "message-2-2"])
    yield _start(source_arn, "start-message-move-task-response")
    assert set((yield from _drain(first, 2))) == {"message-1-1", "message-1-2"}
    assert set((yield from _drain(second, 2))) == {"message-2-1", "message-2-2"}
    yield Call("ListMessageMoveTasks", {"SourceArn": source_arn}, "list-message-move-task-response")


def _slow_move(number: int, label: str = "") -> Generator[Call | Wait, Answer, tuple[str, ...]]:
    """Start moving `number` messages, one a second: source and destination ARN, target URL,
    handle."""
    url, dead = yield from _pipe()
    source = yield from _arn(dead)
    target = yield from create()
    destination = yield from _arn(target)
    yield from _kill(url, [f"message-{i}" for i in range(number)])
    started = yield _start(
        source, label, DestinationArn=destination, MaxNumberOfMessagesPerSecond=1
    )
    return source, destination, target, started["TaskHandle"]


def move_with_limit() -> Play:
    _, _, target, _ = yield from _slow_move(4, "start-message-move-task-response")
    bodies = yield from _drain(target, 4)
    assert set(bodies) == {f"message-{i}" for i in range(4)}


def move_cancel() -> Play:
    source, _, target, handle = yield from _slow_move(10)
    yield from _drain(target, 2)
    yield Call("ListMessageMoveTasks", {"SourceArn": source}, "list-while")
    yield Call("CancelMessageMoveTask", {"TaskHandle": handle}, "cancel")

    def settled(answer: Answer) -> Answer:
        """How many were moved before the cancelling took hold is chance: 8 were, on AWS."""
        [task] = answer["Results"]
        assert 2 <= task["ApproximateNumberOfMessagesMoved"] < 10, task
        return {**answer, "Results": [{**task, "ApproximateNumberOfMessagesMoved": 8}]}

    yield Call("ListMessageMoveTasks", {"SourceArn": source}, "list-after", settled)


def move_twice() -> Play:
    source, destination, _, _ = yield from _slow_move(10)
    yield _start(source, "error", DestinationArn=destination)


PLAYS: dict[str, Callable[..., Play]] = {
    "test_aws_trace_header_propagation": trace_header,
    "test_basic_move_task_workflow": move_workflow,
    "test_cancel_with_invalid_task_handle": move_cancel_bad_handle,
    "test_cancel_with_invalid_task_id_in_task_handle": move_cancel_no_such_task,
    "test_change_message_visibility_batch_with_too_large_batch": visibility_batch_too_large,
    "test_create_and_update_queue_attributes": create_and_update,
    "test_create_fifo_queue_with_different_attributes_raises_error": create_with_other_attributes,
    "test_create_standard_queue_with_fifo_attribute_raises_error": (
        fifo_attributes_on_standard_queue
    ),
    "test_dead_letter_queue_with_fifo_and_content_based_deduplication": fifo_dead_letters,
    "test_delete_after_visibility_timeout": delete_after_visibility_timeout,
    "test_delete_message_batch_invalid_msg_id": delete_batch_invalid_id,
    "test_delete_message_batch_with_too_large_batch": delete_batch_too_large,
    "test_destination_needs_to_exist": move_no_such_destination,
    "test_fifo_approximate_number_of_messages_not_visible": fifo_messages_not_visible,
    "test_fifo_change_to_high_throughput_after_creation": fifo_to_high_throughput,
    "test_fifo_change_to_regular_throughput_after_creation": fifo_to_regular_throughput,
    "test_fifo_deduplication_arrives_once_after_delete": fifo_deduplication_after_delete,
    "test_fifo_delete_after_visibility_timeout": fifo_delete_after_visibility_timeout,
    "test_fifo_delete_after_visibility_timeout_extended": fifo_delete_after_extension,
    "test_fifo_delete_message_with_expired_receipt_handle": fifo_expired_handle,
    "test_fifo_group_visibility_extends_with_change_message_visibility": fifo_group_visibility,
    "test_fifo_high_throughput_ordering": fifo_high_throughput,
    "test_fifo_message_attributes": fifo_message_attributes,
    "test_fifo_queue_send_message_with_zero_delay_defaults_to_queue_delay": fifo_zero_delay,
    "test_invalid_batch_id": invalid_batch_id,
    "test_list_queues_pagination": list_queues_in_pages,
    "test_message_system_attribute_names_with_attribute_names": (
        system_attribute_names_with_attribute_names
    ),
    "test_move_task_cancel": move_cancel,
    "test_move_task_with_throughput_limit": move_with_limit,
    "test_move_task_workflow_with_multiple_sources_as_default_destination": (
        move_to_the_original_sources
    ),
    "test_non_existent_queue": no_such_queue,
    "test_posting_to_fifo_requires_deduplicationid_group_id": fifo_needs_group_and_deduplication,
    "test_receive_message_attribute_names_filters": attribute_filters,
    "test_receive_message_message_attribute_names_filters": message_attribute_filters,
    "test_send_batch_missing_deduplication_id_for_fifo_queue": batch_without_deduplication_id,
    "test_send_batch_missing_message_group_id_for_fifo_queue": batch_without_group_id,
    "test_send_message_batch_with_oversized_contents_with_updated_maximum_message_size": (
        batch_with_updated_maximum_message_size
    ),
    "test_send_message_to_standard_queue_with_invalid_message_group_id": (
        invalid_group_on_standard_queue
    ),
    "test_send_message_with_updated_maximum_message_size": updated_maximum_message_size,
    "test_send_receive_max_number_of_messages": max_number_of_messages,
    "test_send_receive_wait_time_seconds": wait_time_seconds,
    "test_set_unsupported_attribute_fifo": unsupported_attribute_fifo,
    "test_set_unsupported_attribute_standard": unsupported_attribute_standard,
    "test_source_needs_redrive_policy": move_needs_dead_letter_queue,
    "test_sqs_fifo_message_group_scope_no_throughput_setting": fifo_group_scope_alone,
    "test_sqs_fifo_same_dedup_id_different_message_groups": fifo_same_deduplication_id,
    "test_sqs_permission_lifecycle": permissions,
    "test_sse_kms_and_sqs_are_mutually_exclusive": encryption_of_two_kinds,
    "test_sse_queue_attributes": encryption,
    "test_start_multiple_move_tasks": move_twice,
    "test_tag_untag_queue": tag_and_untag,
    "test_too_many_entries_in_batch_request": too_many_entries,
}
