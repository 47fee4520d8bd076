"""The JSON documents that SNS delivers: notifications, and confirmations to HTTP endpoints.

Fields, their order and their names are AWS's ("Parsing Amazon SNS message formats" in the developer
guide, and as recorded): a FIFO topic's notification has a sequence number and no signature.
"""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pumphouse.account.topics.signing import Signer
from pumphouse.account.topics.store import Topics
from pumphouse.account.topics.topic import Subscription, Topic
from pumphouse.protocol.operations import Attributes


def timestamp(seconds: float) -> str:
    """A time as SNS writes it: UTC, to the millisecond."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def document(fields: dict[str, Any]) -> str:
    """A document in SNS's layout: a line for each field."""
    lines = (f"  {json.dumps(name)} : {_written(value)}" for name, value in fields.items())
    return "{\n" + ",\n".join(lines) + "\n}"


def _written(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    items = (
        f"    {json.dumps(name, ensure_ascii=False)} : "
        + json.dumps(item, separators=(",", ":"), ensure_ascii=False)
        for name, item in value.items()
    )
    return "{\n" + ",\n".join(items) + "\n  }"


class Envelopes:
    """The envelopes of one message: what they share is written once, and signed once."""

    __slots__ = ("_after", "_before", "_links")

    def __init__(
        self,
        topics: Topics,
        topic: Topic,
        *,
        message_id: str,
        message: str,
        subject: str | None,
        attributes: Attributes | None,
        sent_at: float,
        sequence_number: str | None,
    ) -> None:
        fields: dict[str, Any] = {"Type": "Notification", "MessageId": message_id}
        if sequence_number is not None:
            fields["SequenceNumber"] = sequence_number
        fields["TopicArn"] = topic.arn
        if subject is not None:
            fields["Subject"] = subject
        fields["Message"] = message
        fields["Timestamp"] = timestamp(sent_at)
        if not topic.is_fifo:
            fields |= _signed(topics, topic, fields)
        self._before = document(fields).removesuffix("\n}")
        self._after = "\n}"
        if attributes:
            shown = {name: _shown(each) for name, each in attributes.items()}
            self._after = f',\n  "MessageAttributes" : {_written(shown)}\n}}'
        self._links = f"{topics.url(topic.name.region)}/?Action=Unsubscribe&SubscriptionArn="

    def to(self, subscription: Subscription) -> str:
        """The envelope for a subscription."""
        link = json.dumps(self._links + subscription.arn)
        return f'{self._before},\n  "UnsubscribeURL" : {link}{self._after}'


def _shown(attribute: Any) -> dict[str, str]:
    if attribute.binary_value is not None:
        value = b64encode(attribute.binary_value).decode()
    else:
        value = attribute.string_value or ""
    return {"Type": attribute.data_type, "Value": value}


def _signed(topics: Topics, topic: Topic, fields: dict[str, Any]) -> dict[str, str]:
    signer: Signer = topics.signer
    version = topic.settings.signature_version
    return {
        "SignatureVersion": version,
        "Signature": signer.sign(fields, version),
        "SigningCertURL": f"{topics.url(topic.name.region)}/{signer.file_name}",
    }


def confirmation(
    topics: Topics, subscription: Subscription, kind: str, message_id: str, sent_at: float
) -> str:
    """The document that asks an HTTP endpoint to confirm (`SubscriptionConfirmation`), or tells it
    that it was unsubscribed (`UnsubscribeConfirmation`)."""
    topic = subscription.topic
    if kind == "SubscriptionConfirmation":
        message = (
            f"You have chosen to subscribe to the topic {topic.arn}.\n"
            "To confirm the subscription, visit the SubscribeURL included in this message."
        )
    else:
        message = (
            f"You have chosen to deactivate subscription {subscription.arn}.\n"
            "To cancel this operation and restore the subscription, visit the SubscribeURL "
            "included in this message."
        )
    fields: dict[str, Any] = {
        "Type": kind,
        "MessageId": message_id,
        "Token": subscription.token,
        "TopicArn": topic.arn,
        "Message": message,
        "SubscribeURL": f"{topics.url(topic.name.region)}/?Action=ConfirmSubscription"
        f"&TopicArn={quote(topic.arn, safe=':')}&Token={subscription.token}",
        "Timestamp": timestamp(sent_at),
    }
    return document(fields | _signed(topics, topic, fields))
