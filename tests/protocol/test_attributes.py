"""MD5s against what AWS answered and against a second computation; sizes; names and values."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.content import measure
from pumphouse.protocol.attributes import (
    attribute_name_fault,
    attributes_size,
    base_data_type,
    forbidden_character,
    is_entry_id,
    is_number,
    is_token,
    md5_of_attributes,
    md5_of_body,
    message_size,
    text_size,
)
from pumphouse.protocol.operations import MessageAttributeValue


def text(value: str, kind: str = "String") -> MessageAttributeValue:
    return MessageAttributeValue(kind, value)


def data(value: bytes, kind: str = "Binary") -> MessageAttributeValue:
    return MessageAttributeValue(kind, binary_value=value)


# What real AWS answered for these attributes.
FROM_AWS = [
    ({"k": text("x")}, "a45daa70926828a2f0a1db3418e6feb4"),
    ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ({"Hello": text("There")}, "a311262e065454b75da111d535b8dacd"),
    (
        {"Hello": text("There"), "General": text("Kenobi")},
        "fca026605781cb4126a1e9044df24232",
    ),
    (
        {"Help.Me": text("Me"), "Hello": text("There"), "General": text("Kenobi")},
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    ({"timestamp": text("1493147359900", "Number")}, "235c5c510d26fb653d073faed50ae77c"),
    (
        {"attr1": data(b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01")},
        "8cbe4db156db8a94db8b801b7addb984",
    ),
    (
        {
            "AWSTraceHeader": text(
                "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
            )
        },
        "5ae4d5d7636402d80f4eb6d213245a88",
    ),
]


def by_the_guide(attributes: dict[str, MessageAttributeValue]) -> str:
    """The developer guide's steps, written down a second time and as plainly as can be."""
    encoded = bytearray()

    def put(part: bytes) -> None:
        encoded.extend(len(part).to_bytes(4, "big"))
        encoded.extend(part)

    for name, attribute in sorted(attributes.items()):
        put(name.encode("utf-8"))
        put(attribute.data_type.encode("utf-8"))
        if attribute.binary_value is not None:
            encoded.append(2)
            put(attribute.binary_value)
        else:
            encoded.append(1)
            put((attribute.string_value or "").encode("utf-8"))
    return hashlib.md5(bytes(encoded)).hexdigest()


@pytest.mark.parametrize(("attributes", "md5"), FROM_AWS)
def test_e1_the_md5_is_awss(attributes: dict[str, MessageAttributeValue], md5: str) -> None:
    assert md5_of_attributes(attributes) == md5
    assert by_the_guide(attributes) == md5


labels = st.sampled_from(["", ".int", ".bigint", ".png", ".größe"])
values = st.one_of(
    st.builds(
        lambda value, label: text(value, "String" + label),
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
        labels,
    ),
    st.builds(lambda value, label: text(str(value), "Number" + label), st.integers(), labels),
    st.builds(lambda value, label: data(value, "Binary" + label), st.binary(min_size=1), labels),
)


@given(st.dictionaries(st.text("abcXYZ0123._-", min_size=1), values, min_size=1, max_size=10))
def test_any_attributes_and_any_order(attributes: dict[str, MessageAttributeValue]) -> None:
    md5 = md5_of_attributes(attributes)
    assert md5 == by_the_guide(attributes)
    assert md5_of_attributes(dict(reversed(attributes.items()))) == md5


def test_a_label_counts() -> None:
    assert md5_of_attributes({"n": text("1", "Number")}) != md5_of_attributes(
        {"n": text("1", "Number.int")}
    )


def test_no_attributes_have_no_md5() -> None:
    assert md5_of_attributes(None) is None
    assert md5_of_attributes({}) is None


def test_md5_of_a_body() -> None:
    assert md5_of_body("message") == "78e731027d8fd50ed642340b7c9a63b3"
    assert md5_of_body("größe \U0001f600") == hashlib.md5("größe \U0001f600".encode()).hexdigest()


def test_sizes_count_bytes_of_body_names_types_and_values() -> None:
    assert text_size("abc") == 3
    assert text_size("größe") == 7
    assert text_size("\U0001f600") == 4
    assert attributes_size(None) == 0
    assert attributes_size({"k": text("x")}) == len("k" + "String" + "x")
    assert attributes_size({"k": data(b"\x00" * 5, "Binary.png")}) == 1 + 10 + 5
    assert message_size("größe", {"ü": text("ö")}) == 7 + 2 + 6 + 2


def test_a_lone_surrogate_has_a_size_and_is_forbidden() -> None:
    assert text_size("\ud800") == 3
    assert forbidden_character("a\ud800b") == "\ud800"


@pytest.mark.parametrize(
    "code",
    [*range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF],
)
@pytest.mark.parametrize("around", ["", "x" * 100, "ü" * 100, "\u4e00" * 100, "\U0001f600" * 100])
def test_b7_characters_that_sqs_does_not_take(code: int, around: str) -> None:
    assert forbidden_character(f"a{around}{chr(code)}b") == chr(code)


@pytest.mark.parametrize(
    "code", [0x09, 0x0A, 0x0D, 0x20, 0x7F, 0x85, 0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x1F600, 0x10FFFF]
)
@pytest.mark.parametrize("around", ["", "x" * 100, "ü" * 100, "\u4e00" * 100, "\U0001f600" * 100])
def test_b7_characters_that_sqs_takes(code: int, around: str) -> None:
    assert forbidden_character(f"a{around}{chr(code)}b") is None


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 256, "awsome", "amazonas", "größe"])
def test_names_that_sqs_takes(name: str) -> None:
    assert attribute_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        ("x" * 257, "longer than 256"),
        ("a b", "only"),
        ("a!", "only"),
        ("a\n", "only"),
        ("日本", "only"),
        ("AWS.x", "AWS"),
        ("aWs.x", "AWS"),
        ("Amazon.x", "Amazon"),
        (".a", "period"),
        ("a.", "period"),
        ("a..b", "two in a row"),
    ],
)
def test_names_that_sqs_refuses(name: str, fault: str) -> None:
    assert fault in (attribute_name_fault(name) or "")


@pytest.mark.parametrize(
    ("data_type", "base"),
    [
        ("String", "String"),
        ("Number.int", "Number"),
        ("Binary.png", "Binary"),
        ("String.", "String"),
        ("String.with.dots", "String"),
        ("Strings", None),
        ("string", None),
        ("", None),
        ("Number." + "x" * 249, "Number"),
        ("Number." + "x" * 250, None),
    ],
)
def test_data_types(data_type: str, base: str | None) -> None:
    assert base_data_type(data_type) == base


@pytest.mark.parametrize(
    ("number", "taken"),
    [
        ("1", True),
        ("-1.5", True),
        (".5", True),
        ("5.", True),
        ("1e-7", True),
        ("", False),
        (".", False),
        ("1,5", False),
        ("0x10", False),
        ("1 ", False),
        ("\u0661", False),
        ("NaN", False),
    ],
)
def test_numbers(number: str, taken: bool) -> None:
    assert is_number(number) is taken


@pytest.mark.parametrize(
    ("token", "taken"),
    [
        ("a", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ("a\n", False),
        ("ä", False),
        ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", True),
    ],
)
def test_tokens(token: str, taken: bool) -> None:
    assert is_token(token) is taken


@pytest.mark.parametrize(
    ("entry_id", "taken"),
    [
        ("a-B_9", True),
        ("x" * 80, True),
        ("x" * 81, False),
        ("", False),
        ("a:b", False),
        ("é", False),
    ],
)
def test_entry_ids(entry_id: str, taken: bool) -> None:
    assert is_entry_id(entry_id) is taken


@pytest.mark.parametrize("body", ["x", "ü😀", "y" * 1000])
@pytest.mark.parametrize(
    "attributes",
    [
        None,
        {},
        {"b": MessageAttributeValue("String", "ü"), "a": MessageAttributeValue("Number.int", "7")},
        {"bin": MessageAttributeValue("Binary.png", binary_value=b"\x00\xff")},
    ],
)
def test_measuring_in_one_go_is_measuring_one_by_one(body: str, attributes: Any) -> None:
    assert measure(body, attributes) == (
        message_size(body, attributes),
        md5_of_body(body),
        md5_of_attributes(attributes),
    )
