"""What Lambda hands to a function from SQS: its records, as messages that were received.

The shape is that of "Using Lambda with Amazon SQS" in Lambda's developer guide. It differs from
`ReceiveMessage`'s in its spelling only; Binary attributes are base64 here too. What is no such
event is an error, never an event without messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pumphouse.errors import UsageError
from pumphouse.protocol.names import parse_queue_arn
from pumphouse.protocol.operations import MessageAttributeValue, ReceivedMessage

SOURCE = "aws:sqs"


class _Attribute(msgspec.Struct, rename="camel"):
    data_type: str
    string_value: str | None = None
    binary_value: bytes | None = None


class _Record(msgspec.Struct):
    message_id: str = msgspec.field(name="messageId")
    receipt_handle: str = msgspec.field(name="receiptHandle")
    body: str
    attributes: dict[str, str]
    queue_arn: str = msgspec.field(name="eventSourceARN")
    source: str = msgspec.field(name="eventSource")
    message_attributes: dict[str, _Attribute] = msgspec.field(name="messageAttributes", default={})
    md5_of_body: str = msgspec.field(name="md5OfBody", default="")


def records_of(event: object) -> dict[str, list[ReceivedMessage]]:
    """The messages of an event by the ARN of their queue, in order.

    Raises `UsageError` for an event that is not SQS's, or holds no record.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not records:
        why = "its Records are empty" if records == [] else _described(event)
        raise UsageError(
            f"this is no event of an SQS queue: it has no list of Records ({why}); is the "
            "function's trigger an SQS event source mapping?"
        )
    found: dict[str, list[ReceivedMessage]] = {}
    for number, record in enumerate(records):
        source = record.get("eventSource") if isinstance(record, Mapping) else None
        if source != SOURCE:
            raise UsageError(
                f"record {number} of the event comes from {source!r}, and an app takes those of "
                f"{SOURCE!r}"
            )
        try:
            read = msgspec.convert(record, _Record)
            parse_queue_arn(read.queue_arn)
        except (msgspec.ValidationError, ValueError) as error:
            raise UsageError(f"record {number} of the event is no SQS record: {error}") from None
        if not read.message_id or not read.receipt_handle:
            raise UsageError(f"record {number} of the event has an empty id or receipt handle")
        found.setdefault(read.queue_arn, []).append(_received(read))
    return found


def _received(record: _Record) -> ReceivedMessage:
    return ReceivedMessage(
        record.message_id,
        record.receipt_handle,
        record.md5_of_body,
        record.body,
        record.attributes,
        None,
        {
            name: MessageAttributeValue(each.data_type, each.string_value, each.binary_value)
            for name, each in record.message_attributes.items()
        }
        or None,
    )


def record_of(message: ReceivedMessage, queue_arn: str) -> dict[str, Any]:
    """The record of Lambda's event for a message that was received: the way back."""
    attributes: dict[str, Any] = {}
    for name, value in (message.message_attributes or {}).items():
        attributes[name] = {
            **({"stringValue": value.string_value} if value.string_value is not None else {}),
            **(
                {"binaryValue": msgspec.to_builtins(value.binary_value)}
                if value.binary_value is not None
                else {}
            ),
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": value.data_type,
        }
    return {
        "messageId": message.message_id,
        "receiptHandle": message.receipt_handle,
        "body": message.body,
        "attributes": dict(message.attributes),
        "messageAttributes": attributes,
        "md5OfBody": message.md5_of_body,
        "eventSource": SOURCE,
        "eventSourceARN": queue_arn,
        "awsRegion": parse_queue_arn(queue_arn).region,
    }


def _described(event: object) -> str:
    if not isinstance(event, Mapping):
        return f"it is of type {type(event).__name__}"
    keys = ", ".join(sorted(str(key) for key in event)[:8])
    return f"its keys are {keys}" if keys else "it is empty"
