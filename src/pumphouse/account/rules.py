"""What AWS refuses about one message, in AWS's words.

The rules are those of "Amazon SQS message metadata" and the `SendMessage` page of the API
reference; the words are AWS's own. A sender's own checks, worded for it, are in `content.py`.
"""

from __future__ import annotations

from pumphouse.account.settings import QueueSettings
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    MAX_ATTRIBUTES,
    MAX_DELAY_SECONDS,
    base_data_type,
    forbidden_character,
    is_name_text,
    is_number,
    is_token,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    Attributes,
    MessageAttributeValue,
    SendMessage,
    SendMessageBatchRequestEntry,
)

Request = SendMessage | SendMessageBatchRequestEntry

TRACE_HEADER = "AWSTraceHeader"

_LONGEST = 256
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\r"})
_CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


def invalid(parameter: str, value: object, reason: str) -> ServiceError:
    """AWS's fault for a parameter that has a value it can't have."""
    return fault(
        "InvalidParameterValue",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


def check_fifo(settings: QueueSettings, request: Request, missing: str) -> None:
    """What a FIFO queue must be told; `missing` is AWS's code for a group id that is not there.

    A batch is refused as a whole where one of its entries fails here.
    """
    if not request.message_group_id:
        raise fault(missing, "The request must contain the parameter MessageGroupId.")
    if request.message_deduplication_id is None and not settings.content_based_deduplication:
        raise fault(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )


def check_message(settings: QueueSettings, request: Request, body: bytes, size: int) -> None:
    """Everything else that AWS refuses about a message of `size` bytes; its body is not empty, and
    `body` is it in UTF-8."""
    if size > settings.maximum_message_size:
        raise fault(
            "InvalidParameterValue",
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{settings.maximum_message_size} bytes.",
        )
    if len(body.translate(None, _CONTROLS)) != len(body) or (
        not body.isascii() and forbidden_character(request.message_body) is not None
    ):
        raise fault("InvalidMessageContents", _CHARACTERS)
    if request.message_attributes:
        _check_attributes(request.message_attributes)
    if request.message_system_attributes:
        _check_system_attributes(request.message_system_attributes)
    delay = request.delay_seconds
    if delay is not None and not 0 <= delay <= MAX_DELAY_SECONDS:
        raise invalid(
            "DelaySeconds", delay, f"DelaySeconds must be >= 0 and <= {MAX_DELAY_SECONDS}."
        )
    if delay and settings.fifo:
        raise invalid(
            "DelaySeconds",
            delay,
            "The request include parameter that is not valid for this queue type.",
        )
    if request.message_group_id is not None:
        check_token("MessageGroupId", request.message_group_id)
    if request.message_deduplication_id is not None:
        if not settings.fifo:
            raise invalid(
                "MessageDeduplicationId",
                request.message_deduplication_id,
                "The request includes a parameter that is not valid for this queue type.",
            )
        check_token("MessageDeduplicationId", request.message_deduplication_id)


def check_token(parameter: str, text: str) -> None:
    """Raise AWS's fault for a text that can't be a group id, deduplication id or attempt id."""
    if not is_token(text):
        raise invalid(
            parameter,
            text,
            f"{parameter} can only include alphanumeric and punctuation characters. "
            "1 to 128 in length.",
        )


def _check_attributes(attributes: Attributes) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise _refused(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum "
            f"[{MAX_ATTRIBUTES}]."
        )
    for name, attribute in attributes.items():
        _check_name(name)
        _check_value("(user)", name, attribute)


def _check_system_attributes(attributes: Attributes) -> None:
    for name, attribute in attributes.items():
        if name != TRACE_HEADER:
            raise _refused(f"Message system attribute name '{name}' is invalid.")
        _check_value("system", name, attribute)
        if attribute.data_type != "String":
            raise _refused(
                f"The type of message system attribute '{name}' is invalid. "
                "You must use only the following supported type prefixes: String."
            )


def _check_name(name: str) -> None:
    if not name:
        raise _refused("The request must contain non-empty message (user) attribute names.")
    if len(name) > _LONGEST:
        raise _refused(f"Message (user) attribute name must be shorter than {_LONGEST} bytes.")
    if not is_name_text(name):
        raise _refused(
            "Message (user) attributes name can only contain upper and lower score characters, "
            "digits, periods, hyphens and underscores. "
        )
    if name.lower().startswith(("aws.", "amazon.")) or name[0] == "." or name[-1] == ".":
        raise _refused(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
            "strings are reserved for internal use. Additionally, they cannot start or end with "
            "'.'."
        )
    if ".." in name:
        raise _refused("Message (user) attribute name must not have successive '.' characters.")


def _check_value(kind: str, name: str, attribute: MessageAttributeValue) -> None:
    data_type, text, data = attribute.data_type, attribute.string_value, attribute.binary_value
    if not data_type:
        raise _refused(
            f"The message {kind} attribute '{name}' must contain a non-empty message attribute "
            f"{'value' if text is None and data is None else 'type'}."
        )
    if len(data_type) > _LONGEST:
        raise _refused(f"Message {kind} attribute type must be shorter than {_LONGEST} bytes.")
    base = base_data_type(data_type)
    if base is None:
        raise _refused(
            f"The type of message {kind} attribute '{name}' is invalid. "
            "You must use only the following supported type prefixes: Binary, Number, String."
        )
    if attribute.string_list_values or attribute.binary_list_values:
        raise fault(
            "UnsupportedOperation",
            "Message attribute list values in SendMessage operation are not supported.",
        )
    if text is not None and data is not None:
        raise _refused(f"Message {kind} attribute '{name}' must have a single value.")
    if not text and not data:
        raise _refused(
            f"Message {kind} attribute '{name}' must contain a non-empty value of type "
            f"'{data_type}'."
        )
    if (data if base == "Binary" else text) is None:
        field = "Binary" if base == "Binary" else "String"
        raise _refused(
            f"Message {kind} attribute '{name}' with type '{data_type}' must use field '{field}'."
        )
    if text is not None and forbidden_character(text) is not None:
        raise _refused(_CHARACTERS)
    if base == "Number" and not is_number(text or ""):
        raise _refused(f"Can't cast the value of message {kind} attribute '{name}' to a number.")


def _refused(message: str) -> ServiceError:
    return fault("InvalidParameterValue", message)
