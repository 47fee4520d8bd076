"""Every operation of SQS by botocore, an independent client, against a listening endpoint, in both
of its protocols."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from pumphouse.protocol.operations import SQS_OPERATIONS
from support.serving import Served

Unique = Callable[[str], str]

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": 'tab\t lf\n é 🚰 <&>"'},
    "number": {"DataType": "Number.int", "StringValue": "42"},
    "bytes": {"DataType": "Binary.png", "BinaryValue": bytes(range(256))},
}


def _arn(sqs: Any, url: str) -> str:
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(answer["Attributes"]["QueueArn"])


def _code(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_all_23_operations_are_called_here() -> None:
    source = Path(__file__).read_text()
    called = {
        action
        for action in SQS_OPERATIONS
        if f"sqs.{''.join('_' + c.lower() if c.isupper() else c for c in action)[1:]}(" in source
    }
    assert called == SQS_OPERATIONS.keys()
    assert len(called) == 23


def test_a_message_is_sent_received_and_deleted(sqs: Any, queue: str) -> None:
    body = 'line one\r\nline two\t é 🚰 <a href="&">'
    sent = sqs.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=ATTRIBUTES)
    assert sent["MD5OfMessageBody"] == md5(body.encode()).hexdigest()
    (message,) = sqs.receive_message(
        QueueUrl=queue, AttributeNames=["All"], MessageAttributeNames=["All"], WaitTimeSeconds=1
    )["Messages"]
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    counts = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_batches(sqs: Any, queue: str) -> None:
    sent = sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "good", "MessageBody": "one", "MessageAttributes": ATTRIBUTES},
            {"Id": "late", "MessageBody": "two", "DelaySeconds": 901},
        ],
    )
    assert [entry["Id"] for entry in sent["Successful"]] == ["good"]
    (failed,) = sent["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == (
        "late",
        "InvalidParameterValue",
        True,
    )
    handle = sqs.receive_message(QueueUrl=queue)["Messages"][0]["ReceiptHandle"]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue, Entries=[{"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 60}]
    )
    assert changed["Successful"] == [{"Id": "a"}]
    deleted = sqs.delete_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": handle},
            {"Id": "b", "ReceiptHandle": "not a handle"},
        ],
    )
    assert deleted["Successful"] == [{"Id": "a"}]
    assert [entry["Id"] for entry in deleted["Failed"]] == ["b"]


def test_visibility_is_changed(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="again")
    first = sqs.receive_message(QueueUrl=queue)["Messages"][0]
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    sqs.change_message_visibility(
        QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0
    )
    again = sqs.receive_message(QueueUrl=queue)["Messages"][0]
    assert again["MessageId"] == first["MessageId"]
    with pytest.raises(ClientError) as caught:
        sqs.change_message_visibility(
            QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=43_201
        )
    assert _code(caught) == ("InvalidParameterValue", 400)


def test_a_fifo_queue(sqs: Any, unique: Unique) -> None:
    url = sqs.create_queue(
        QueueName=unique("orders") + ".fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
        tags={"team": "pumps", "empty": ""},
    )["QueueUrl"]
    one = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    two = sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    assert one["SequenceNumber"] == two["SequenceNumber"]
    assert len(one["SequenceNumber"]) == 20
    (message,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])[
        "Messages"
    ]
    assert message["Attributes"]["MessageGroupId"] == "g"
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "pumps", "empty": ""}


def test_queues_are_found_listed_purged_and_deleted(
    sqs: Any, unique: Unique, served: Served
) -> None:
    name = unique("found")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{served.url}/000000000000/{name}"
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="gone")
    sqs.purge_queue(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix=name)


def test_lists_of_queues_come_in_pages(sqs: Any, unique: Unique) -> None:
    prefix = unique("page")
    for number in range(5):
        sqs.create_queue(QueueName=f"{prefix}-{number}")
    pages = list(
        sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix=prefix, PaginationConfig={"PageSize": 2}
        )
    )
    assert [len(page["QueueUrls"]) for page in pages] == [2, 2, 1]


def test_attributes_and_tags_are_set(sqs: Any, queue: str) -> None:
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "7"})
    answer = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])
    assert answer["Attributes"] == {"VisibilityTimeout": "7"}
    sqs.tag_queue(QueueUrl=queue, Tags={"a": "1", "b": "2"})
    sqs.untag_queue(QueueUrl=queue, TagKeys=["a"])
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"b": "2"}


def test_permissions(sqs: Any, queue: str) -> None:
    sqs.add_permission(
        QueueUrl=queue,
        Label="share",
        AWSAccountIds=["111111111111", "222222222222"],
        Actions=["SendMessage", "ReceiveMessage"],
    )
    policy = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["Policy"])["Attributes"]
    (statement,) = json.loads(policy["Policy"])["Statement"]
    assert statement["Sid"] == "share"
    assert len(statement["Principal"]["AWS"]) == 2
    assert len(statement["Action"]) == 2
    sqs.remove_permission(QueueUrl=queue, Label="share")
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["Policy"])


def test_dead_letters_are_moved_back(sqs: Any, unique: Unique) -> None:
    dead = sqs.create_queue(QueueName=unique("dead"))["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": _arn(sqs, dead), "maxReceiveCount": 1})
    source = sqs.create_queue(
        QueueName=unique("source"),
        Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"},
    )["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [source]
    sqs.send_message(QueueUrl=source, MessageBody="bad")
    sqs.receive_message(QueueUrl=source)
    assert "Messages" not in sqs.receive_message(QueueUrl=source)
    task = sqs.start_message_move_task(SourceArn=_arn(sqs, dead))["TaskHandle"]
    message = sqs.receive_message(QueueUrl=source, WaitTimeSeconds=5)["Messages"][0]
    assert message["Body"] == "bad"
    (shown,) = sqs.list_message_move_tasks(SourceArn=_arn(sqs, dead))["Results"]
    assert shown["Status"] in ("RUNNING", "COMPLETED")
    assert shown["SourceArn"] == _arn(sqs, dead)
    with pytest.raises(ClientError) as caught:
        sqs.cancel_message_move_task(TaskHandle=task + "x")
    assert _code(caught)[1] in (400, 404)


def test_a_long_poll_ends_when_a_message_comes(sqs: Any, queue: str) -> None:
    from threading import Timer
    from time import monotonic

    later = Timer(0.2, lambda: sqs.send_message(QueueUrl=queue, MessageBody="now"))
    later.start()
    began = monotonic()
    assert sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"][0]["Body"] == "now"
    assert monotonic() - began < 10
    later.join()
