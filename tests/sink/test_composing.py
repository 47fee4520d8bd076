"""What a message carries: body, attributes, group, ids and delay, and what is refused locally."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from pumphouse import content
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import UsageError
from pumphouse.protocol.attributes import md5_of_attributes, message_size
from pumphouse.protocol.operations import MessageAttributeValue
from pumphouse.sink import Draft, Sink
from pumphouse.sink.composer import Composer
from pumphouse.sink.options import settings
from pumphouse.sink.outgoing import encode_body
from support.sending import bodies, outcomes

from .conftest import MakeSink


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Order(msgspec.Struct):
    number: int


class Model(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("text", "text"),
        (b"bytes", "bytes"),
        (bytearray(b"more"), "more"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([1, 2], "[1,2]"),
        (7, "7"),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Order(5), '{"number":5}'),
        (Model(name="n"), '{"name":"n"}'),
        ("tab\tLF\nCR\r 😀", "tab\tLF\nCR\r 😀"),
    ],
)
async def test_bodies(
    make: MakeSink, account: Account, clock: VirtualClock, body: object, text: str
) -> None:
    await outcomes(clock, [make().send(body)])
    assert bodies(account, "orders") == [text]


@pytest.mark.parametrize("body", [b"\xff\xfe\x00", "nul \x00", "lone \ud800", "￾"])
async def test_what_sqs_takes_not_as_text_travels_as_marked_base64(
    make: MakeSink, account: Account, clock: VirtualClock, body: str | bytes
) -> None:
    [receipt] = await outcomes(clock, [make().send(body)])
    assert receipt.message_id
    [sent] = account.sent("orders")
    raw = body if isinstance(body, bytes) else body.encode(errors="surrogatepass")
    assert content.decode(sent.body, sent.attributes) == raw
    assert list(sent.attributes or {}) == ["pumphouse.encoding"]


@pytest.mark.parametrize("body", ["", b"", None, object(), {1j}])
async def test_bodies_that_are_none(make: MakeSink, clock: VirtualClock, body: object) -> None:
    [error] = await outcomes(clock, [make().send(body)])
    assert isinstance(error, UsageError)


async def test_headers_and_attributes_are_message_attributes_and_nothing_is_invented(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    await outcomes(
        clock,
        [
            make().send(
                "x",
                headers={"h": "text", "b": b"\x00\xff", "gone": None},  # type: ignore[dict-item]
                attributes={
                    "n": 3,
                    "f": 1.5,
                    "own": MessageAttributeValue("String.label", "v"),
                    "none": None,
                },
            ),
            make().send("plain"),
        ],
    )
    first, plain = sorted(account.sent("orders"), key=lambda sent: len(sent.body))
    attributes = first.attributes or {}
    assert {name: value.data_type for name, value in attributes.items()} == {
        "h": "String",
        "b": "Binary",
        "n": "Number",
        "f": "Number",
        "own": "String.label",
    }
    assert plain.attributes is None
    assert plain.group_id is None
    assert plain.deduplication_id is None


@pytest.mark.parametrize(
    "options",
    [
        {"attributes": {"a": ""}},
        {"attributes": {"a": b""}},
        {"attributes": {"a": "nul\x00"}},
        {"attributes": {"a": True}},
        {"attributes": {"AWS.x": "y"}},
        {"attributes": {"a b": "y"}},
        {"attributes": {str(n): "x" for n in range(11)}},
        {"headers": {"a": 1}},
        {"headers": {"a": "1"}, "attributes": {"a": "2"}},
        {"delay": -1},
        {"delay": 901},
        {"delay": 0.5},
        {"delay": "5"},
        {"delay": timedelta(hours=1)},
        {"group_id": ""},
        {"group_id": "a b"},
        {"group_id": "x" * 129},
        {"deduplication_id": "on a standard queue"},
        {"attributes": 5},
        {"attributes": {5: "x"}},
        {"attributes": {"a": MessageAttributeValue("String", 5)}},  # type: ignore[arg-type]
        {"attributes": {"a": MessageAttributeValue("String", "x" * 5, b"x")}, "headers": "h"},
        {"attributes": {"a": MessageAttributeValue("String.\ud800", "x")}},
        {"attributes": {"a": MessageAttributeValue(5, "x")}},  # type: ignore[arg-type]
        {"headers": [("a", "b")]},
        {"headers": {5: "b"}},
        {"trace_header": 5},
        {"trace_header": "a\x00"},
    ],
)
async def test_what_is_refused_locally_fails_alone(
    make: MakeSink, account: Account, clock: VirtualClock, options: dict[str, Any]
) -> None:
    sink = make()
    sends = [sink.send(str(n), **(options if n == 4 else {})) for n in range(10)]
    results = await outcomes(clock, sends)
    assert isinstance(results[4], UsageError)
    assert len(bodies(account, "orders")) == 9


async def test_the_default_group_is_tenant_and_source(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    await outcomes(
        clock,
        [
            sink.send("1", tenant="acme", source="stripe", id="evt1"),
            sink.send("2", source="stripe", id="evt2"),
            sink.send("3", tenant="acme", source="stripe", id="evt1", replay_id="r9"),
            sink.send("4", group_id="given", deduplication_id="given"),
        ],
    )
    assert sorted(
        (s.body, s.group_id, s.deduplication_id) for s in account.sent("orders.fifo")
    ) == [
        ("1", "acme/stripe", "evt1"),
        ("2", "/stripe", "evt2"),
        ("3", "acme/stripe", "evt1:replay:r9"),
        ("4", "given", "given"),
    ]


async def test_the_group_can_be_a_text_or_a_function_of_the_message(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    by_function = make("orders.fifo", group_id=lambda message: message.original["who"])
    by_text = make("orders.fifo", group_id="all")
    await outcomes(clock, [by_function.send({"who": "me"}), by_text.send("x", tenant="t")])
    assert {sent.group_id for sent in account.sent("orders.fifo")} == {"me", "all"}


@pytest.mark.parametrize("option", ["group_id", "add_attributes"])
async def test_a_function_that_raises_hurts_its_message_and_its_group_and_is_named(
    make: MakeSink, account: Account, clock: VirtualClock, option: str
) -> None:
    def of(message: Any) -> Any:
        if message.original == "bad":
            raise KeyError("who")
        return "g" if option == "group_id" else {}

    sink = make("orders.fifo", **({"group_id": "g"} | {option: of}))
    [results] = await outcomes(clock, [sink.send_many(["a", "bad", "b"])])
    after = "Receipt" if option == "group_id" else "NotSentError"  # whose group was it?
    assert [type(result).__name__ for result in results] == ["Receipt", "UsageError", after]
    assert f"{option}: the function raised KeyError('who')" in str(results[1])


def test_a_draft_with_an_option_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="groupid"):
        Draft("x", groupid="g")  # type: ignore[call-arg]


async def test_an_empty_id_is_refused_and_not_replaced(make: MakeSink, clock: VirtualClock) -> None:
    [error] = await outcomes(clock, [make("orders.fifo").send("x", id="", group_id="g")])
    assert isinstance(error, UsageError)


async def test_a_fifo_message_with_no_group_at_all_is_refused(
    make: MakeSink, clock: VirtualClock
) -> None:
    [error] = await outcomes(clock, [make("orders.fifo").send("x")])
    assert isinstance(error, UsageError)
    assert "group_id" in str(error)


async def test_a_message_sent_again_with_its_id_is_stored_once_and_a_replay_again(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    for replay in (None, None, "r1"):
        await outcomes(clock, [sink.send("x", id="e1", group_id="g", replay_id=replay)])
    assert "2 visible" in repr(account.queue("orders.fifo"))


async def test_after_five_minutes_the_same_id_can_be_stored_again(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    await outcomes(clock, [sink.send("x", id="e1", group_id="g")])
    await clock.advance(301)
    await outcomes(clock, [sink.send("x", id="e1", group_id="g")])
    assert "2 visible" in repr(account.queue("orders.fifo"))


async def test_on_a_standard_queue_a_group_goes_out_only_when_set(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    await outcomes(
        clock,
        [
            make().send("1", tenant="t", source="s", id="i"),
            make().send("2", group_id="fair"),
            make(group_id="always").send("3"),
        ],
    )
    assert sorted((s.body, s.group_id, s.deduplication_id) for s in account.sent("orders")) == [
        ("1", None, None),
        ("2", "fair", None),
        ("3", "always", None),
    ]


async def test_a_delay_on_a_standard_queue(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    delays = (None, 0, 5, timedelta(minutes=15))
    await outcomes(clock, [make().send(str(n), delay=d) for n, d in enumerate(delays)])
    found = sorted((s.body, s.delay_seconds) for s in account.sent("orders"))
    assert found == [("0", None), ("1", None), ("2", 5), ("3", 900)]


# --- many ---------------------------------------------------------------------------------------


async def test_send_many_gives_every_outcome_in_order(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    drafts = [Draft("a", attributes={"k": "v"}), "b", Draft("c", delay=-1), b"d"]
    [results] = await outcomes(clock, [sink.send_many(drafts)])
    assert [type(result).__name__ for result in results] == [
        *("Receipt", "Receipt", "UsageError", "Receipt")
    ]
    assert sorted(bodies(account, "orders")) == ["a", "b", "d"]


async def test_send_many_keeps_a_groups_order_whatever_fails(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.fail_entries(
        "SendMessageBatch",
        lambda entry: entry.message_body == "A2",
        "InvalidMessageContents",
        times=None,
    )
    sink = make("orders.fifo")
    drafts = [Draft(f"{g}{n}", group_id=g) for n in range(1, 5) for g in "AB"]
    [results] = await outcomes(clock, [sink.send_many(drafts)])
    by_body = {d.body: type(r).__name__ for d, r in zip(drafts, results, strict=True)}
    assert by_body == {
        "A1": "Receipt",
        "A2": "RefusedError",
        "A3": "NotSentError",
        "A4": "NotSentError",
        **dict.fromkeys(("B1", "B2", "B3", "B4"), "Receipt"),
    }
    assert bodies(account, "orders.fifo") == ["A1", "B1", "B2", "B3", "B4"]


async def test_send_many_unordered_lets_a_group_travel_together(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    drafts = [Draft(str(n), group_id="g") for n in range(30)]
    [results] = await outcomes(clock, [sink.send_many(drafts, ordered=False)])
    assert len(results) == 30
    assert sink.stats["requests"] == 3
    assert bodies(account, "orders.fifo") == [str(n) for n in range(30)]


def test_describe_holds_no_credentials(account: Account) -> None:
    class Secretive(Account):
        secret_access_key = "do not tell"

    sink = Sink("orders", Secretive())
    assert "do not tell" not in f"{sink.describe()}{sink!r}"
    assert msgspec.json.encode(sink.describe())


def test_a_model_is_written_as_its_readers_expect_it() -> None:
    """With the aliases of its fields, inside of other things too; not with what it may not hold."""

    class Inner(pydantic.BaseModel):
        order_id: int = pydantic.Field(alias="orderId")

    @pydantic.dataclasses.dataclass
    class Held:
        order_id: int = pydantic.Field(alias="orderId")

    for body, text in (
        (Inner(orderId=1), '{"orderId":1}'),
        ([Inner(orderId=2)], '[{"orderId":2}]'),
        (Held(orderId=3), '{"orderId":3}'),
    ):
        assert encode_body(body) in (text, text.encode())
    with pytest.raises(UsageError, match=r"type Inner can't be written as JSON: .*order_id"):
        encode_body(Inner.model_construct(order_id="x"))


async def test_messages_with_the_same_attributes_share_nothing() -> None:
    composer = Composer("orders", settings({}), fifo=False)
    given = {"event": "push", content.ENCODING_ATTRIBUTE: "gzip"}
    marked = composer.compose(b"\xff", attributes=given)
    (first := composer.compose("a", attributes=given)).attributes["event"] = _text("changed")  # type: ignore[index]
    second = composer.compose("b", attributes=dict(given))
    assert marked.attributes == {
        "event": _text("push"),
        content.ENCODING_ATTRIBUTE: _text("base64"),
    }
    assert second.attributes == {k: _text(v) for k, v in given.items()}
    for message in (marked, second):
        assert message.md5_of_attributes == md5_of_attributes(message.attributes)
        assert message.size == message_size(message.body, message.attributes)
    assert first.md5_of_attributes == second.md5_of_attributes  # what it was composed with


def _text(value: str) -> MessageAttributeValue:
    return MessageAttributeValue("String", value)


@pytest.mark.parametrize("attributes", [{"n": 1}, {"n": True}, {"n": 1.0}, {"n": b"1"}])
async def test_values_of_other_kinds_are_not_taken_for_texts(attributes: dict[str, Any]) -> None:
    composer = Composer("orders", settings({}), fifo=False)
    composer.compose("a", attributes={"n": "1"})
    if attributes["n"] is True:
        with pytest.raises(UsageError, match="'n' is of type bool"):
            composer.compose("a", attributes=attributes)
    else:
        composed = composer.compose("a", attributes=attributes).attributes or {}
        assert composed["n"].data_type == ("Binary" if attributes["n"] == b"1" else "Number")
