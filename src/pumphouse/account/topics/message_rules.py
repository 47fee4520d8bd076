"""What AWS refuses about one message that is published, in AWS's words.

The rules are those of "Publish" in the API reference and of "Amazon SNS message attributes" in the
developer guide; the words are AWS's own. What a FIFO topic must be told is here too.
"""

from __future__ import annotations

import json
import re

from pumphouse.account.topics.references import invalid
from pumphouse.account.topics.topic import Topic
from pumphouse.errors import ServiceError
from pumphouse.protocol.attributes import (
    attributes_size,
    forbidden_character,
    is_number,
    is_subject,
    is_token,
    text_size,
)
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import MessageAttributeValue
from pumphouse.protocol.sns_operations import Publish, PublishBatchRequestEntry

Request = Publish | PublishBatchRequestEntry

_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(?:\..+)?", re.DOTALL)
_CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
    "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


def check_parameters(topic: Topic, request: Request, where: str = "messageAttributes") -> None:
    """Raise AWS's error for attributes that it does not take, and for a group id or deduplication
    id that the topic can't have or lacks. A batch is refused as a whole for them.

    `where` is how AWS's validation names the message's attributes.
    """
    for name, attribute in (request.message_attributes or {}).items():
        _check_attribute(name, attribute, where)
    if request.message_group_id is not None:
        _check_token("MessageGroupId", request.message_group_id)
    if request.message_deduplication_id is not None:
        _check_token("MessageDeduplicationId", request.message_deduplication_id)
    if topic.is_fifo:
        _check_fifo(topic, request)
    elif request.message_deduplication_id is not None:
        raise invalid(
            "MessageDeduplicationId Reason: The request includes MessageDeduplicationId "
            "parameter that is not valid for this topic type"
        )


def checked_messages(request: Request) -> dict[str, str]:
    """The message for each protocol, under `default` the one for all others.

    Raises AWS's error for a message or a subject that it does not take, which in a batch is that of
    the entry alone. Sizes are counted elsewhere.
    """
    if not request.message:
        raise invalid("Empty message")
    if forbidden_character(request.message) is not None:
        raise invalid(f"Message Reason: {_CHARACTERS}")
    if request.subject is not None and not is_subject(request.subject):
        raise invalid("Subject")
    if request.message_structure is None:
        return {"default": request.message}
    if request.message_structure != "json":
        raise invalid("MessageStructure Reason: Must be json")
    return _by_protocol(request.message)


def _check_fifo(topic: Topic, request: Request) -> None:
    if not request.message_group_id:
        raise invalid("The MessageGroupId parameter is required for FIFO topics")
    if request.message_deduplication_id is None and not topic.settings.content_based_deduplication:
        raise invalid(
            "The topic should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def size_of(request: Request) -> int:
    """A message's size as SNS counts it: body and attributes, in bytes."""
    return text_size(request.message) + attributes_size(request.message_attributes)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _by_protocol(text: str) -> dict[str, str]:
    """The messages of a JSON object; members that are no texts are passed over."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise invalid("Message Structure - JSON message body failed to parse") from None
    if not isinstance(found, dict) or not isinstance(found.get("default"), str):
        raise invalid("Message Structure - No default entry in JSON message body")
    messages = {name: each for name, each in found.items() if isinstance(each, str)}
    if any(forbidden_character(each) is not None for each in messages.values()):
        raise invalid(f"Message Reason: {_CHARACTERS}")
    return messages


def _check_token(parameter: str, text: str) -> None:
    if not is_token(text):
        raise invalid(
            f"{parameter} Reason: {parameter} can only include alphanumeric and punctuation "
            "characters. 1 to 128 in length"
        )


def _check_attribute(name: str, attribute: MessageAttributeValue, where: str) -> None:
    if not attribute.data_type:
        raise fault(
            "ValidationError",
            f"1 validation error detected: Value null at '{where}.{name}.member.dataType' failed "
            "to satisfy constraint: Member must not be null",
            "sns",
        )
    _check_name(name)
    data_type, text, data = attribute.data_type, attribute.string_value, attribute.binary_value
    found = _DATA_TYPE.fullmatch(data_type)
    if found is None or len(data_type) > 256 or forbidden_character(data_type) is not None:
        raise _refused(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    base = found.group(1)
    if not text and not data:
        raise _refused(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{data_type}'."
        )
    if (data if base == "Binary" else text) is None:
        field = "Binary" if base == "Binary" else "String"
        raise _refused(
            f"The message attribute '{name}' with type '{data_type}' must use field '{field}'."
        )
    if text is not None and forbidden_character(text) is not None:
        raise _refused(_CHARACTERS)
    if data_type == "Number" and not is_number(text or ""):
        raise _refused(f"Could not cast message attribute '{name}' value to number.")


def _check_name(name: str) -> None:
    if not name:
        raise _refused("The message attribute name must not be empty.")
    if len(name) > 256:
        raise _refused("Length of message attribute name must be less than 256 bytes.")
    if bad := _NAME_CHARACTER.search(name):
        raise _refused(
            f"Invalid non-alphanumeric character '#x{ord(bad[0]):X}' was found in the message "
            "attribute name. Can only include alphanumeric characters, hyphens, underscores, or "
            "dots."
        )
    if name.startswith("."):
        raise _refused("Invalid message attribute name starting with character '.' was found.")
    if name.endswith("."):
        raise _refused("Invalid message attribute name ending with character '.' was found.")
    if ".." in name:
        raise _refused("Message attribute name can not have successive '.' character.")
    if name.lower().startswith(("aws.", "amazon.")):
        raise _refused(
            "Message attribute name can not start with 'AWS.' or 'Amazon.', which are reserved."
        )


def _refused(message: str) -> ServiceError:
    return fault("ParameterValueInvalid", message, "sns")
