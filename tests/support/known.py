"""More that is known of AWS's answers: faults that the recordings do not hold.

Each is a play of one labelled call, with the error that AWS answers: both codes, the words, the
status. The words are AWS's, from its documentation, its model and what its users saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.acting import Call, Play
from support.situations import (
    create,
    create_fifo,
    receive,
    send,
    set_attributes,
    text_value,
    unique,
)

SIMPLE = "AWS.SimpleQueueService."
LABEL = "refused"


@dataclass(frozen=True)
class Known:
    """What is done, and what AWS says to it."""

    title: str
    play: Callable[[], Play]
    code: str
    shape: str
    message: str
    status: int = 400

    @property
    def answer(self) -> dict[str, Any]:
        """The error in the shape of botocore's."""
        return {
            "Error": {
                "Code": self.code,
                "QueryErrorCode": self.shape,
                "Message": self.message,
                "Type": "Sender",
            },
            "ResponseMetadata": {"HTTPStatusCode": self.status},
        }


def _value(title: str, play: Callable[[], Play], message: str) -> Known:
    return Known(title, play, "InvalidParameterValue", "InvalidParameterValueException", message)


def _missing(title: str, play: Callable[[], Play], parameter: str) -> Known:
    return Known(
        title,
        play,
        "MissingParameter",
        "MissingRequiredParameterException",
        f"The request must contain the parameter {parameter}.",
    )


def _simple(
    title: str, play: Callable[[], Play], name: str, message: str, status: int = 400
) -> Known:
    return Known(title, play, SIMPLE + name, name, message, status)


def _on_a_queue(call: Callable[[str], Call], *, fifo: bool = False) -> Callable[[], Play]:
    """A play of one call on a new queue."""

    def play() -> Play:
        url = yield from (create_fifo() if fifo else create())
        made = call(url)
        yield Call(made.action, made.parameters, LABEL)

    return play


def _batch(action: str, entries: list[dict[str, Any]]) -> Callable[[], Play]:
    return _on_a_queue(lambda url: Call(action, {"QueueUrl": url, "Entries": entries}))


def purged_twice() -> Play:
    url = yield from create(name="purged-twice-" + unique())
    yield Call("PurgeQueue", {"QueueUrl": url})
    yield Call("PurgeQueue", {"QueueUrl": url}, LABEL)


def created_again_at_once() -> Play:
    name = unique()
    url = yield from create(name=name)
    yield Call("DeleteQueue", {"QueueUrl": url})
    yield Call("CreateQueue", {"QueueName": name}, LABEL)


def created_otherwise() -> Play:
    name = unique()
    yield from create({"DelaySeconds": "1", "ReceiveMessageWaitTimeSeconds": "1"}, name)
    yield from create(name=name)
    yield from create({"DelaySeconds": "1"}, name)
    attributes = {"ReceiveMessageWaitTimeSeconds": "1", "DelaySeconds": "2"}
    yield Call("CreateQueue", {"QueueName": name, "Attributes": attributes}, LABEL)


def visibility_of_a_deleted_message() -> Play:
    url = yield from create()
    yield send(url, "foo")
    answer = yield receive(url, WaitTimeSeconds=5)
    handle = answer["Messages"][0]["ReceiptHandle"]
    yield Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle})
    yield Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle})
    yield Call(
        "ChangeMessageVisibility",
        {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 42},
        LABEL,
    )


BAD_REDRIVE = '{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}'
MEBIBYTE = 1_048_576
NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length."
)


def _create_call(name: str, **attributes: str) -> Callable[[], Play]:
    def play() -> Play:
        yield Call("CreateQueue", {"QueueName": name, "Attributes": attributes}, LABEL)

    return play


KNOWN = (
    _simple(
        "purged twice",
        purged_twice,
        "PurgeQueueInProgress",
        "Only one PurgeQueue operation on <queue-name> is allowed every 60 seconds.",
        403,
    ),
    _simple(
        "created again at once",
        created_again_at_once,
        "QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name.",
    ),
    Known(
        "created otherwise",
        created_otherwise,
        "QueueAlreadyExists",
        "QueueNameExists",
        "A queue already exists with the same name and a different value for attribute "
        "DelaySeconds",
    ),
    _value("a name with a slash", _create_call("queue/1/"), NAME),
    _value("a standard queue with a FIFO name", _create_call("queue.fifo"), NAME),
    _value("a FIFO queue with a standard name", _create_call("q", FifoQueue="true"), FIFO_NAME),
    Known(
        "an attribute that is none",
        _on_a_queue(lambda url: set_attributes(url, Foobar="1")),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "Unknown Attribute Foobar.",
    ),
    Known(
        "asking for an attribute that is none",
        _on_a_queue(
            lambda url: Call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["Foobar"]})
        ),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "Unknown Attribute Foobar.",
    ),
    Known(
        "a value out of range",
        _on_a_queue(lambda url: set_attributes(url, VisibilityTimeout="43201")),
        "InvalidAttributeValue",
        "InvalidAttributeValue",
        "Invalid value for the parameter VisibilityTimeout.",
    ),
    _value(
        "a dead-letter queue that is no ARN",
        _on_a_queue(lambda url: set_attributes(url, RedrivePolicy=BAD_REDRIVE)),
        f"Value {BAD_REDRIVE} for parameter RedrivePolicy is invalid. "
        "Reason: Invalid value for deadLetterTargetArn.",
    ),
    _value(
        "a redrive policy without a count",
        _on_a_queue(lambda url: set_attributes(url, RedrivePolicy=json.dumps({}))),
        "Value {} for parameter RedrivePolicy is invalid. "
        "Reason: Redrive policy does not contain mandatory attribute: maxReceiveCount.",
    ),
    _missing("an empty message", _on_a_queue(lambda url: send(url, "")), "MessageBody"),
    Known(
        "a body with a control character",
        _on_a_queue(lambda url: send(url, "a\x01b")),
        "InvalidMessageContents",
        "InvalidMessageContents",
        "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
        "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
    ),
    _value(
        "a message that is too large",
        _on_a_queue(
            lambda url: send(
                url,
                "a" * (MEBIBYTE - len("kStringx") + 1),
                MessageAttributes={"k": text_value("x")},
            )
        ),
        f"One or more parameters are invalid. Reason: Message must be shorter than {MEBIBYTE} "
        "bytes.",
    ),
    _simple(
        "a batch that is too large",
        _batch(
            "SendMessageBatch",
            [
                {
                    "Id": "1",
                    "MessageBody": "a" * (MEBIBYTE - len("kStringx")),
                    "MessageAttributes": {"k": text_value("x")},
                },
                {"Id": "2", "MessageBody": "a"},
            ],
        ),
        "BatchRequestTooLong",
        f"Batch requests cannot be longer than {MEBIBYTE} bytes. "
        f"You have sent {MEBIBYTE + 1} bytes.",
    ),
    _simple(
        "an id twice in a batch",
        _batch("SendMessageBatch", [{"Id": "x", "MessageBody": "1"}] * 2),
        "BatchEntryIdsNotDistinct",
        "Id x repeated.",
    ),
    _value(
        "a delay on a FIFO queue",
        _on_a_queue(lambda url: send(url, "m", "g", "d", DelaySeconds=2), fifo=True),
        "Value 2 for parameter DelaySeconds is invalid. "
        "Reason: The request include parameter that is not valid for this queue type.",
    ),
    _value(
        "a delay that is too long",
        _on_a_queue(lambda url: send(url, "m", DelaySeconds=901)),
        "Value 901 for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    _value(
        "an empty attribute",
        _on_a_queue(lambda url: send(url, "m", MessageAttributes={"ErrorDetails": text_value("")})),
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'.",
    ),
    _value(
        "a number that is none",
        _on_a_queue(
            lambda url: send(
                url,
                "m",
                MessageAttributes={"Hello": {"DataType": "Number", "StringValue": "world"}},
            )
        ),
        "Can't cast the value of message (user) attribute 'Hello' to a number.",
    ),
    Known(
        "a handle that is none",
        _on_a_queue(
            lambda url: Call("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": "garbage"})
        ),
        "ReceiptHandleIsInvalid",
        "ReceiptHandleIsInvalid",
        'The input receipt handle "garbage" is not a valid receipt handle.',
        404,
    ),
    _value(
        "the visibility of a deleted message",
        visibility_of_a_deleted_message,
        "Value <receipt-handle:1> for parameter ReceiptHandle is invalid. Reason: Message does "
        "not exist or is not available for visibility timeout change.",
    ),
    Known(
        "eight actions",
        _on_a_queue(
            lambda url: Call(
                "AddPermission",
                {
                    "QueueUrl": url,
                    "Label": "l",
                    "AWSAccountIds": ["123456789012"],
                    "Actions": ["SendMessage"] * 8,
                },
            )
        ),
        "OverLimit",
        "OverLimit",
        "8 Actions were found, maximum allowed is 7.",
        403,
    ),
    Known(
        "a source that is not there",
        _on_a_queue(
            lambda url: Call(
                "StartMessageMoveTask",
                {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:nowhere"},
            )
        ),
        "ResourceNotFoundException",
        "ResourceNotFoundException",
        "The resource that you specified for the SourceArn parameter doesn't exist.",
        404,
    ),
)
