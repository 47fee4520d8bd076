"""The JSON document that SNS writes around a message, read and opened.

Its fields are those of "Parsing Amazon SNS message formats" in the SNS developer guide. Whether a
text is to be read as one is `reading.py`'s to say, and whether SNS wrote it `signatures.py`'s.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec.structs import replace

from pumphouse.content import UndecodableError
from pumphouse.protocol.attributes import base_data_type
from pumphouse.protocol.operations import Attributes, MessageAttributeValue, ReceivedMessage

NOTIFICATION = "Notification"
CONFIRMATION = "SubscriptionConfirmation"
UNSUBSCRIBED = "UnsubscribeConfirmation"


class _Shown(msgspec.Struct, frozen=True):
    """An attribute as the document shows it."""

    type: str = msgspec.field(name="Type")
    value: str = msgspec.field(name="Value")


class Notification(msgspec.Struct, frozen=True, rename="pascal"):
    """A document of SNS; `type` is one of the three constants above.

    `signing_cert_url` and `signature` are None on what a FIFO topic sends, `token` and
    `subscribe_url` on everything but a confirmation.
    """

    type: str
    message_id: str
    topic_arn: str
    message: str
    timestamp: str
    subject: str | None = None
    sequence_number: str | None = None
    signature_version: str | None = None
    signature: str | None = None
    signing_cert_url: str | None = msgspec.field(default=None, name="SigningCertURL")
    unsubscribe_url: str | None = msgspec.field(default=None, name="UnsubscribeURL")
    subscribe_url: str | None = msgspec.field(default=None, name="SubscribeURL")
    token: str | None = None
    message_attributes: dict[str, _Shown] = {}

    @property
    def complete(self) -> bool:
        """Whether it has everything that SNS writes into an envelope for a queue."""
        signed = self.signature and self.signature_version and self.signing_cert_url
        return bool(
            self.type == NOTIFICATION and self.unsubscribe_url and (signed or self.sequence_number)
        )

    def attributes(self) -> Attributes:
        """The message attributes as they were published. Raises `UndecodableError`."""
        found: Attributes = {}
        for name, shown in self.message_attributes.items():
            if base_data_type(shown.type) != "Binary":
                found[name] = MessageAttributeValue(shown.type, shown.value)
                continue
            try:
                data = base64.b64decode(shown.value, validate=True)
            except (binascii.Error, ValueError) as error:
                raise UndecodableError(
                    f"attribute {name!r} of the envelope is binary and no base64: {error}"
                ) from None
            found[name] = MessageAttributeValue(shown.type, binary_value=data)
        return found


_decoder = msgspec.json.Decoder(Notification)


def read(document: str | bytes) -> Notification:
    """Read a document. Raises `UndecodableError` for anything else."""
    try:
        return _decoder.decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UndecodableError(f"the body is no envelope of SNS: {error}") from None


def opened(raw: ReceivedMessage, envelope: Notification) -> ReceivedMessage:
    """A received message as raw delivery would have brought it: body and attributes out of the
    envelope. Attributes that were put beside the envelope later on, by whoever carried it to a
    dead-letter queue, stay."""
    attributes = {**(raw.message_attributes or {}), **envelope.attributes()}
    return replace(raw, body=envelope.message, message_attributes=attributes or None)
