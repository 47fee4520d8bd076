"""Message bodies and attributes: their MD5s, their sizes, and the rules for names and values.

Pure functions. What is wrong is said in AWS's words by `account/` and in ours, before any request,
by those who send. The rules are those of "Amazon SQS message metadata" and the `SendMessage` page
of the API reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import md5
from struct import pack
from typing import Any
from unicodedata import category

from pumphouse.protocol.operations import MessageAttributeValue

MAX_MESSAGE_BYTES = 1_048_576
"""The largest message, and the largest batch, that SQS takes: 1 MiB."""
MAX_BATCH_ENTRIES = 10
MAX_ATTRIBUTES = 10
MAX_VISIBILITY_SECONDS = 43_200
MAX_DELAY_SECONDS = 900
MAX_WAIT_SECONDS = 20
MAX_SUBJECT = 100

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_TAKEN_BYTES = bytes(0xFF if _FORBIDDEN.match(chr(code)) else code for code in range(256))
# AWS also takes the accented letters of Latin-1 and Latin Extended-A, whatever its guide says.
_NAME_TEXT = re.compile(r"[A-Za-z0-9_.\-\u00c0-\u017f]+")
_RESERVED_PREFIX = re.compile(r"(?:aws\.|amazon\.)", re.IGNORECASE)
_DATA_TYPE = re.compile(r"(String|Number|Binary)(?:\..*)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

# controls, halves of characters, and what breaks a line
_NOT_IN_SUBJECTS = frozenset({"Cc", "Cs", "Zl", "Zp"})

_STRING, _BINARY = b"\x01", b"\x02"


def md5_of_body(body: str) -> str:
    """The hexadecimal MD5 of a body, as SQS answers it in `MD5OfMessageBody`."""
    return md5(body.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, MessageAttributeValue] | None) -> str | None:
    """The MD5 of message attributes as SQS computes it, or None where there are none.

    Names in order; for each name, data type and value: the length in four bytes, then the bytes;
    before the value one byte that tells text from binary ("Calculating the MD5 message digest for
    message attributes" in the developer guide).
    """
    if not attributes:
        return None
    return md5_of_parts(*(digest_part(name, value) for name, value in attributes.items()))


DIGEST_FRAMING = 13
"""What stands in a `digest_part` beside name, data type and value, in bytes: three lengths and the
byte of the kind."""


def digest_part(name: str, attribute: MessageAttributeValue) -> bytes:
    """What an attribute adds to the digest."""
    data_type = attribute.data_type
    if data_type.startswith("Binary"):
        data = attribute.binary_value or b""
    else:
        data = (attribute.string_value or "").encode()
    return b"%b%b%b" % (_preamble(name, data_type), pack(">I", len(data)), data)


def md5_of_parts(*parts: bytes) -> str:
    """The digest of attributes whose parts these are, in any order."""
    in_order: list[bytes] = sorted(parts, key=_name)
    return md5(b"".join(in_order), usedforsecurity=False).hexdigest()


def _name(part: bytes) -> bytes:
    """The name that a part begins with, behind its length."""
    return part[4 : 4 + int.from_bytes(part[:4])]


@lru_cache(maxsize=1024)
def _preamble(name: str, data_type: str) -> bytes:
    """What stands before an attribute's value in the digest; the same names come again."""
    kind = _BINARY if data_type.startswith("Binary") else _STRING
    texts = (text.encode() for text in (name, data_type))
    return b"".join(pack(">I", len(data)) + data for data in texts) + kind


def attributes_size(attributes: Mapping[str, MessageAttributeValue] | None) -> int:
    """What attributes add to a message's size: name, data type and value of each, in bytes."""
    if not attributes:
        return 0
    size = 0
    for name, attribute in attributes.items():
        size += text_size(name) + text_size(attribute.data_type)
        if attribute.binary_value is not None:
            size += len(attribute.binary_value)
        elif attribute.string_value is not None:
            size += text_size(attribute.string_value)
    return size


def text_size(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def message_size(body: str, attributes: Mapping[str, MessageAttributeValue] | None = None) -> int:
    """A message's size as SQS counts it against its limits: body and attributes, in bytes."""
    return text_size(body) + attributes_size(attributes)


def forbidden_character(text: str) -> str | None:
    """The first character that SQS does not take in a body or a value, or None.

    Taken are #x9, #xA, #xD, #x20 to #xD7FF, #xE000 to #xFFFD and #x10000 to #x10FFFF.
    """
    # nearly all texts are told to be good without the slow search
    if len(text) <= 64:
        if text.isprintable():
            return None
    elif "\ufffe" not in text and "\uffff" not in text:
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            raw = b""  # the search finds the surrogate
        if raw and raw.translate(_TAKEN_BYTES) == raw:
            return None
    found = _FORBIDDEN.search(text)
    return found.group() if found else None


@lru_cache(maxsize=1024)
def attribute_name_fault(name: str) -> str | None:
    """Why SQS takes no attribute of this name, or None where it does."""
    if not name:
        return "is empty"
    if len(name) > 256:
        return "is longer than 256 characters"
    if not is_name_text(name):
        return "may hold only letters, digits, underscore, hyphen and period"
    if _RESERVED_PREFIX.match(name):
        return "starts with AWS. or Amazon., which AWS keeps for itself"
    if name.startswith(".") or name.endswith(".") or ".." in name:
        return "may not start or end with a period, nor hold two in a row"
    return None


@lru_cache(maxsize=1024)
def is_name_text(text: str) -> bool:
    """Whether a text holds nothing but what may stand in an attribute's name."""
    return _NAME_TEXT.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def base_data_type(data_type: str) -> str | None:
    """`String`, `Number` or `Binary` of a data type with or without a label, or None."""
    if not isinstance(data_type, str) or len(data_type) > 256 or forbidden_character(data_type):
        return None
    found = _DATA_TYPE.fullmatch(data_type)
    return found.group(1) if found else None


def plain(value: object) -> Any:
    """A text, bytes or a number of a class of its own as the plain value it is; `TypeError` for
    all else. Such are members of a `StrEnum`, escaped texts of templates, numbers of arrays.

    What is sent is never more than that, and readers get no more either.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not supported")


def is_number(text: str) -> bool:
    """Whether a text can be the value of a `Number`: an integer or a decimal, with an exponent or
    without."""
    return _NUMBER.fullmatch(text) is not None


def is_token(text: str) -> bool:
    """Whether a text can be a message group id or a deduplication id: 1 to 128 of A-Z, a-z, 0-9
    and ASCII punctuation."""
    return 0 < len(text) <= 128 and text.isascii() and text.isprintable() and " " not in text


def is_subject(text: str) -> bool:
    """Whether a text can be the subject of a message to a topic: 1 to 100 characters, none of them
    a control or a line break ("Publish" in the API reference of SNS)."""
    return 0 < len(text) <= MAX_SUBJECT and not any(
        category(character) in _NOT_IN_SUBJECTS for character in text
    )


def is_entry_id(text: str) -> bool:
    """Whether a text can be the id of a batch entry: 1 to 80 of A-Z, a-z, 0-9, `-` and `_`."""
    return _ENTRY_ID.fullmatch(text) is not None
