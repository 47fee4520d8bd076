"""Codecs: what goes in comes out, through the queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.transport import LeaseTransport, codec_for

Go = Callable[[Awaitable[Any]], Awaitable[Any]]


class Order(pydantic.BaseModel):
    number: int
    note: str = ""


class Paid(msgspec.Struct, tag=True):
    amount: float


class Cancelled(msgspec.Struct, tag=True):
    why: str


@dataclass
class Point:
    x: int
    y: int


class Reversed:
    """A codec of a user's own."""

    def encode(self, event: str) -> str:
        return event[::-1]

    def decode(self, body: bytes) -> str:
        return body.decode()[::-1]


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (None, {"a": [1, 2.5, None, True, "ü\n"]}),
        (None, ""),
        (Order, Order(number=7, note="für dich")),
        (Paid | Cancelled, Cancelled("no")),
        (Point, Point(1, 2)),
        (bytes, b"\x00\xff"),
        (bytes, b"text"),
        (str, "just text"),
        (str, "\x00 no text for SQS"),
        (Reversed(), "abc"),
    ],
)
async def test_an_event_comes_out_as_it_went_in(
    account: Account, go: Go, kind: Any, event: Any
) -> None:
    transport: LeaseTransport[Any] = await LeaseTransport.create("jobs", account, events=kind)
    await transport.publish("A", event)
    lease = await go(transport.claim("w", 30))
    assert lease.event == event
    assert lease.event is lease.event
    await go(transport.ack(lease))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(JSON)
def test_json_is_the_same_after_the_way_there_and_back(value: Any) -> None:
    codec = codec_for(None)
    encoded = codec.encode(value)
    assert isinstance(encoded, str)
    assert codec.decode(encoded.encode(errors="surrogatepass")) == value


@pytest.mark.parametrize(
    ("kind", "event"), [(bytes, "text"), (str, b"bytes"), (Order, Point(1, 2)), (None, {1, 2})]
)
def test_an_event_of_another_kind_is_refused(kind: Any, event: Any) -> None:
    with pytest.raises(UsageError):
        codec_for(kind).encode(event)


@pytest.mark.parametrize(
    ("kind", "body"),
    [(None, b"{"), (Order, b'{"number":"x"}'), (Paid, b'{"type":"Other"}'), (str, b"\xff")],
)
def test_a_body_of_another_kind_is_undecodable(kind: Any, body: bytes) -> None:
    with pytest.raises(UndecodableError):
        codec_for(kind).decode(body)


def test_what_can_be_no_codec_is_refused() -> None:
    with pytest.raises(UsageError, match="no codec"):
        codec_for(42)
