"""Bodies and headers, there and back, and what is refused before any request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.content import (
    ENCODING_ATTRIBUTE,
    UndecodableError,
    check_attributes,
    decode,
    encode,
    header_attributes,
    headers_of,
)
from pumphouse.errors import UsageError
from pumphouse.protocol.attributes import forbidden_character
from pumphouse.protocol.operations import MessageAttributeValue


@given(st.binary(min_size=1))
def test_any_bytes_come_back(body: bytes) -> None:
    text, attributes = encode(body)
    assert forbidden_character(text) is None
    assert decode(text, attributes) == body


@given(st.text(min_size=1))
def test_any_text_comes_back(body: str) -> None:
    text, attributes = encode(body)
    assert forbidden_character(text) is None
    assert decode(text, attributes) == body.encode(errors="surrogatepass")


@pytest.mark.parametrize("body", ["plain", "tab\tline\r\n\U0001f600", b"plain"])
def test_what_sqs_takes_as_it_is_travels_as_it_is(body: str | bytes) -> None:
    text, attributes = encode(body)
    assert text == (body if isinstance(body, str) else body.decode())
    assert attributes == {}


@pytest.mark.parametrize("body", ["\x00", "\ud800", "￾", b"\xff\xfe"])
def test_what_sqs_does_not_take_is_marked(body: str | bytes) -> None:
    _, attributes = encode(body, {"k": MessageAttributeValue("String", "v")})
    assert attributes[ENCODING_ATTRIBUTE].string_value == "base64"
    assert attributes["k"].string_value == "v"


def test_the_given_attributes_are_not_changed() -> None:
    given_attributes = {"k": MessageAttributeValue("String", "v")}
    encode(b"\xff", given_attributes)
    assert list(given_attributes) == ["k"]


@pytest.mark.parametrize("body", ["", b""])
def test_an_empty_body_is_refused(body: str | bytes) -> None:
    with pytest.raises(UsageError, match="empty"):
        encode(body)


def test_a_marked_body_that_is_not_base64() -> None:
    marked = {ENCODING_ATTRIBUTE: MessageAttributeValue("String", "base64")}
    with pytest.raises(UndecodableError, match="marked as base64"):
        decode("not base64!", marked)
    assert decode("not base64!") == b"not base64!"
    other = {ENCODING_ATTRIBUTE: MessageAttributeValue("String", "gzip")}
    assert decode("text", other) == b"text"


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (MessageAttributeValue("String", ""), "empty"),
        (MessageAttributeValue("String"), "empty"),
        (MessageAttributeValue("Binary", binary_value=b""), "empty"),
        (MessageAttributeValue("Binary", "text"), "empty"),
        (MessageAttributeValue("Strange", "x"), "data type"),
        (MessageAttributeValue("String", "a\x00b"), r"U\+0000"),
        (MessageAttributeValue("Number", "twelve"), "number"),
    ],
)
def test_attributes_that_sqs_would_refuse(attribute: MessageAttributeValue, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        check_attributes({"fine": MessageAttributeValue("String", "x"), "bad": attribute})
    assert "'bad'" in str(raised.value)


@pytest.mark.parametrize("number", ["1", "-1.5", "+3", ".5", "1e10", "12345678901234567890"])
def test_numbers_that_sqs_takes(number: str) -> None:
    check_attributes({"n": MessageAttributeValue("Number.big", number)})


def test_a_bad_name_is_named() -> None:
    with pytest.raises(UsageError, match=r"'AWS\.x'"):
        check_attributes({"AWS.x": MessageAttributeValue("String", "x")})


def test_b5_the_marker_counts_as_one_of_ten() -> None:
    ten = {f"k{i}": MessageAttributeValue("String", "x") for i in range(10)}
    encode("text", ten)
    with pytest.raises(UsageError, match="at most 10"):
        encode(b"\xff", ten)


def test_b6_a_header_of_none_is_left_out_and_an_empty_one_refused() -> None:
    headers = {"a": "x", "b": b"\x01", "c": None}
    attributes = header_attributes(headers)  # type: ignore[arg-type]
    assert headers_of(attributes) == {"a": "x", "b": b"\x01"}
    for empty in ("", b""):
        with pytest.raises(UsageError, match="empty"):
            encode("text", header_attributes({"a": empty}))


def test_headers_are_text_or_bytes() -> None:
    with pytest.raises(UsageError, match="'n' is of type int"):
        header_attributes({"n": 1})  # type: ignore[dict-item]


def test_the_marker_is_no_header() -> None:
    _, attributes = encode(b"\xff", header_attributes({"a": "x"}))
    assert headers_of(attributes) == {"a": "x"}
    assert headers_of(None) == {}
