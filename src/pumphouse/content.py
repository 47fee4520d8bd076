"""What a message carries, and how it lies on the wire: body and headers, attributes and base64.

A body that SQS takes as text travels as it is. Any other body travels as base64, and the marker
attribute `pumphouse.encoding` says so. Headers are message attributes, one each: `String` for str,
`Binary` for bytes. Nothing else is added.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import lru_cache
from hashlib import md5
from typing import NamedTuple

from pumphouse.errors import PumphouseError, UsageError
from pumphouse.protocol.attributes import (
    DIGEST_FRAMING,
    MAX_ATTRIBUTES,
    attribute_name_fault,
    base_data_type,
    digest_part,
    forbidden_character,
    is_number,
    md5_of_parts,
    plain,
)
from pumphouse.protocol.operations import Attributes, MessageAttributeValue

ENCODING_ATTRIBUTE = "pumphouse.encoding"
"""The marker attribute; its only value is `base64`."""

SHORT_TEXT = 128
"""What is known of attributes whose texts have at most so many characters is kept."""

_BASE64 = MessageAttributeValue("String", "base64")

Headers = Mapping[str, str | bytes]


class UndecodableError(PumphouseError):
    """A received body is not what its marker or the handler's type says that it is."""


def encode(body: str | bytes, attributes: Attributes | None = None) -> tuple[str, Attributes]:
    """The body as SQS takes it, and the attributes with the marker where the body needed one.

    Raises `UsageError` for an empty body (SQS takes none), for an attribute that SQS would refuse,
    and for more than ten attributes, the marker included.
    """
    attributes = dict(attributes or {})
    text = lay_out(body, attributes)
    check_attributes(attributes)
    return text, attributes


def lay_out(body: str | bytes, attributes: Attributes) -> str:
    """The body as SQS takes it; where that is base64, the marker is put among the attributes.

    Raises `UsageError` for an empty body. The attributes are for `measure` to check.
    """
    if not body:
        raise UsageError("the body is empty, and no empty message can be sent")
    if isinstance(body, str):
        if type(body) is not str:
            body = str(plain(body))
        if forbidden_character(body) is None:
            return body
        raw = body.encode(errors="surrogatepass")
    else:
        raw = body
        try:
            text = body.decode()
        except UnicodeDecodeError:
            pass
        else:
            if forbidden_character(text) is None:
                return text
    attributes[ENCODING_ATTRIBUTE] = _BASE64
    return base64.b64encode(raw).decode()


def decode(text: str, attributes: Attributes | None = None) -> bytes:
    """The body that was sent; `UndecodableError` where the marker says base64 and it isn't."""
    marker = (attributes or {}).get(ENCODING_ATTRIBUTE)
    if marker is None or marker.string_value != "base64":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UndecodableError(f"the body is marked as base64 and is not: {error}") from None


def header_attributes(headers: Headers | None) -> Attributes:
    """Headers as message attributes; a header of None is left out."""
    found: Attributes = {}
    if headers is not None and not isinstance(headers, Mapping):
        raise UsageError(
            f"headers are of type {type(headers).__name__}; they are names with values"
        )
    for name, value in (headers or {}).items():
        if value is None:
            continue
        if isinstance(value, bytes):
            found[plain_name(name)] = MessageAttributeValue("Binary", binary_value=plain(value))
        elif isinstance(value, str):
            found[plain_name(name)] = MessageAttributeValue("String", plain(value))
        else:
            raise UsageError(
                f"header {name!r} is of type {type(value).__name__}; headers are str or bytes"
            )
    return found


def plain_name(name: str) -> str:
    """The name of an attribute as plain text; `weigh` refuses what is none."""
    return str(plain(name)) if isinstance(name, str) else name


def headers_of(attributes: Attributes | None) -> dict[str, str | bytes]:
    """The headers of a received message: every attribute but the marker, by name."""
    return {
        name: attribute.binary_value
        if attribute.binary_value is not None
        else attribute.string_value or ""
        for name, attribute in (attributes or {}).items()
        if name != ENCODING_ATTRIBUTE
    }


def check_attributes(attributes: Attributes) -> None:
    """Raise `UsageError` for attributes that SQS would refuse, naming the one."""
    measure("", attributes)


def measure(
    body: str, attributes: Attributes | None, known: Weighed | None = None
) -> tuple[int, str, str | None]:
    """The size of a message as SQS counts it, the MD5 of its body, and that of its attributes.

    `known` is what was weighed before: where the attributes are just those, that is not done again.
    Raises `UsageError` for attributes that SQS would refuse, naming the one.
    """
    raw = body.encode()
    md5_of_body = md5(raw, usedforsecurity=False).hexdigest()
    if not attributes:
        return len(raw), md5_of_body, None
    if known is None or attributes != known.attributes:
        known = weigh(attributes)
    return len(raw) + known.size, md5_of_body, known.md5


class Weighed(NamedTuple):
    """Attributes with what they add to a message's size, in bytes, and their MD5."""

    attributes: Attributes
    size: int
    md5: str


def weigh(attributes: Attributes) -> Weighed:
    """Size and MD5 of attributes, of which there is one at least. Raises `UsageError` as `measure`
    does."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise UsageError(
            f"{len(attributes)} message attributes ({', '.join(sorted(map(str, attributes)))}), "
            f"and a message has at most {MAX_ATTRIBUTES}: a queue takes no more, and what has more "
            "is lost between a topic and a queue that it is delivered to raw"
        )
    parts = [_part(name, attribute) for name, attribute in attributes.items()]
    size = sum(map(len, parts)) - DIGEST_FRAMING * len(parts)
    return Weighed(attributes, size, md5_of_parts(*parts))


def short_texts(given: Mapping[str, object]) -> Weighed | None:
    """Values that are short texts, as the attributes that they are; None where others are among
    them.

    They come again with most messages, and are weighed once. The attributes are shared: copy them.
    """
    for value in given.values():
        if type(value) is not str or len(value) > SHORT_TEXT:
            return None
    return _short_texts(*given, *given.values())


@lru_cache(maxsize=1024)
def _short_texts(*names_and_values: str) -> Weighed:
    count = len(names_and_values) // 2
    pairs = zip(names_and_values[:count], names_and_values[count:], strict=True)
    return weigh({plain_name(name): MessageAttributeValue("String", text) for name, text in pairs})


def _part(name: str, attribute: MessageAttributeValue) -> bytes:
    """What a good attribute adds to the digest."""
    if (fault := _attribute_fault(name, attribute)) is not None:
        raise UsageError(fault)
    return digest_part(name, attribute)


def _attribute_fault(name: str, attribute: MessageAttributeValue) -> str | None:
    """What SQS would refuse an attribute for, or None."""
    if not isinstance(name, str):
        return f"the attribute name {name!r} is of type {type(name).__name__}"
    if fault := attribute_name_fault(name):
        return f"attribute name {name!r} {fault}"
    data_type, text, data = attribute.data_type, attribute.string_value, attribute.binary_value
    kind = base_data_type(data_type) if isinstance(data_type, str) else None
    value, other = (data, text) if kind == "Binary" else (text, data)
    if kind is None:
        return (
            f"attribute {name!r} has the data type {data_type!r}; "
            "it is String, Number or Binary, with or without a label"
        )
    if not value:
        return f"attribute {name!r} is empty, and no empty value can be sent"
    if not isinstance(value, bytes if kind == "Binary" else str):
        return f"attribute {name!r} is a {kind}, and its value is of type {type(value).__name__}"
    if other is not None:
        return f"attribute {name!r} has a text and bytes; it is one of the two"
    if attribute.string_list_values is not None or attribute.binary_list_values is not None:
        return f"attribute {name!r} is a list, and SQS and SNS take none"
    if isinstance(value, str) and (bad := forbidden_character(value)):
        return f"attribute {name!r} holds U+{ord(bad):04X}, which no message can carry"
    if kind == "Number" and not is_number(str(value)):
        return f"attribute {name!r} is a Number, and {value!r} is no number"
    return None
