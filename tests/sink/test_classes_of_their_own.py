"""Texts, bytes and numbers of classes of their own, and whatever else stands where text should.

Such values come from templates, frameworks, arrays and enumerations. Each message is stored as the
plain value or told what is wrong with it, and no message of its batch is any the worse.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumphouse import Topic
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import MessageTooLargeError, UsageError
from pumphouse.http import HttpBackend
from pumphouse.model import Receipt
from pumphouse.protocol import sns_query, sqs_json
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueUrl,
    MessageAttributeValue,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from pumphouse.protocol.sigv4 import Keys
from pumphouse.protocol.sns_operations import CreateTopic, Publish
from pumphouse.sink import Sink
from pumphouse.sink.composer import Composer
from pumphouse.sink.options import settings as sink_settings
from pumphouse.sink.outgoing import as_json
from support.sending import bodies, outcomes
from support.serving import Served

from .conftest import MakeSink


class Text(str):
    """A text as template engines have it: it is itself in whatever is made of it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not the text"


class Kind(enum.StrEnum):
    NEW = "new"


class OldKind(str, enum.Enum):  # noqa: UP042 - it says another text of itself than it is
    NEW = "new"


class Data(bytes):
    """Bytes of a class of their own."""

    def __bytes__(self) -> bytes:
        return b"not the bytes"


class Real(float):
    """As the numbers of arrays, it does not say just the number of itself."""

    def __repr__(self) -> str:
        return f"Real({float(self)})"


class Whole(int):
    def __repr__(self) -> str:
        return f"Whole({int(self)})"


OPTIONS: list[dict[str, Any]] = [
    {"attributes": {"a": Text("v")}},
    {"attributes": {"a": Kind.NEW}},
    {"attributes": {"a": OldKind.NEW}},
    {"attributes": {Text("a"): "v"}},
    {"attributes": {Kind.NEW: "v"}},
    {"attributes": {"a": Data(b"v")}},
    {"attributes": {"a": Real(1.5)}},
    {"attributes": {"a": Whole(7)}},
    {"attributes": {Text("a"): MessageAttributeValue(Text("String.x"), OldKind.NEW)}},
    {"attributes": {"a": MessageAttributeValue("Binary", binary_value=Data(b"v"))}},
    {"headers": {Text("a"): Text("v")}},
    {"headers": {"a": Data(b"v")}},
    {"group_id": OldKind.NEW},
    {"tenant": Text("t"), "source": Text("s"), "id": OldKind.NEW, "replay_id": Text("r")},
    {"trace_header": Text("Root=1-5759e988-bd862e3fe1be46a994272793")},
]
BODIES = [Text("x"), Kind.NEW, OldKind.NEW, Data(b"x"), {"a": Text("b"), Text("c"): Real(1.5)}]
CASES: list[tuple[object, dict[str, Any]]] = [("x", options) for options in OPTIONS]
CASES += [(body, {}) for body in BODIES]


@pytest.fixture
async def wire() -> AsyncIterator[tuple[Account, HttpBackend]]:
    account = Account()
    await account.execute(CreateQueue("orders"))
    await account.execute(CreateQueue("orders.fifo", {"FifoQueue": "true"}))
    await account.execute(CreateTopic("orders"))
    served = Served(account)
    served.start()
    async with HttpBackend(
        region="us-east-1", endpoint_url=served.url, credentials=Keys("x", "y")
    ) as backend:
        yield account, backend
    served.stop()


@pytest.mark.parametrize("to", ["orders", "orders.fifo", Topic("orders")], ids=str)
async def test_they_are_stored_as_what_they_are_with_their_whole_batch(
    wire: tuple[Account, HttpBackend], to: str | Topic
) -> None:
    account, backend = wire
    group: dict[str, Any] = {} if to == "orders" else {"group_id": "g"}
    if isinstance(to, Topic):
        group = {}
    async with Sink(to, backend, batch_linger=0.2) as sink:
        results = await asyncio.gather(
            *(sink.send(body, **group | options) for body, options in CASES),
            *(sink.send(f"good {n}", **group) for n in range(10)),
            return_exceptions=True,
        )
    assert [each for each in results if not isinstance(each, Receipt)] == []
    if not isinstance(to, Topic):
        stored = bodies(account, str(to))
        assert sorted(stored) == sorted(
            ["x"] * len(OPTIONS)
            + ["x", "new", "new", "x", '{"a":"b","c":1.5}']
            + [f"good {n}" for n in range(10)]
        )


async def test_a_message_holds_plain_values_only() -> None:
    composer = Composer("orders.fifo", sink_settings({}), fifo=True)
    plain = {str, bytes, int, type(None)}
    for body, options in CASES:
        message = composer.compose(body, **{"group_id": Text("g")} | options)
        fields = ("body", "id", "tenant", "source", "replay_id", "group_id", "deduplication_id")
        assert {type(getattr(message, name)) for name in fields} <= plain
        for name, value in (message.attributes or {}).items() | (
            message.system_attributes or {}
        ).items():
            assert type(name) is str
            assert {type(value.data_type), type(value.string_value)} <= plain
            assert type(value.binary_value) in plain
    number = composer.compose("x", group_id="g", attributes={"a": Real(1.5)}).attributes
    assert number == {"a": MessageAttributeValue("Number", "1.5")}
    plainly = composer.compose("x", group_id="g", attributes={"a": "b"})
    known = composer.compose("x", group_id="g", attributes={Text("a"): "b"})
    assert plainly.attributes == known.attributes
    assert [type(name) for name in known.attributes or {}] == [str]


@pytest.mark.parametrize("name", ["id", "tenant", "source", "replay_id", "group_id"])
@pytest.mark.parametrize("value", [5, ["a"], b"a", {"a": 1}])
async def test_what_is_no_text_is_refused_by_name(
    make: MakeSink, account: Account, clock: VirtualClock, name: str, value: object
) -> None:
    sink = make()
    [bad, good] = await outcomes(clock, [sink.send("x", **{name: value}), sink.send("good")])
    assert isinstance(bad, UsageError)
    assert name.replace("_id", "") in str(bad)
    assert type(value).__name__ in str(bad)
    assert isinstance(good, Receipt)
    assert bodies(account, "orders") == ["good"]


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (MessageAttributeValue(["String"], "x"), "data type"),  # type: ignore[arg-type]
        (MessageAttributeValue("String", "x", b"y"), "one of the two"),
        (MessageAttributeValue("String", "x", object()), "one of the two"),  # type: ignore[arg-type]
        (MessageAttributeValue("String", "x", string_list_values=["y"]), "is a list"),
    ],
)
async def test_attributes_that_no_service_takes(
    make: MakeSink, clock: VirtualClock, attribute: MessageAttributeValue, reason: str
) -> None:
    [result] = await outcomes(clock, [make().send("x", attributes={"a": attribute})])
    assert isinstance(result, UsageError)
    assert reason in str(result)


# --- operations ---------------------------------------------------------------------------------


def test_operations_are_written_as_plain_values() -> None:
    assert sqs_json.encode_request(GetQueueUrl(Text("q")))[1] == b'{"QueueName":"q"}'
    written = sqs_json.encode_request(
        SendMessage("u", OldKind.NEW, message_attributes={Text("a"): _binary(Data(b"v"))})
    )[1]
    assert written == (
        b'{"QueueUrl":"u","MessageBody":"new",'
        b'"MessageAttributes":{"a":{"DataType":"Binary","BinaryValue":"dg=="}}}'
    )
    assert sns_query.encode_request(Publish(OldKind.NEW))[1].endswith(b"&Message=new")


def _binary(data: bytes) -> MessageAttributeValue:
    return MessageAttributeValue("Binary", binary_value=data)


async def test_an_operation_that_can_not_be_written_is_refused_before_any_request(
    wire: tuple[Account, HttpBackend],
) -> None:
    account, backend = wire
    executed = len(account.ledger)
    bad: Any = object()
    for operation in (
        SendMessageBatch("u", [SendMessageBatchRequestEntry("0", bad)]),
        SendMessage("u", "x", message_attributes={"a": bad}),
        Publish(bad),
        Publish("x", message_attributes={"a": bad}),
        Publish("x", message_attributes={bad: MessageAttributeValue("String", "x")}),
    ):
        with pytest.raises(UsageError, match="can't be written"):
            await backend.execute(operation)
    assert len(account.ledger) == executed


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (math.nan, r"\$ is NaN"),
        ({"amount": math.nan}, r"\$\.amount is NaN"),
        ({"none": None, "lines": [1, {"price": -math.inf}]}, r"\$\.lines\[1\]\.price is"),
        ({"amount": Real(math.inf)}, r"\$\.amount is"),
    ],
)
def test_json_has_no_nan_and_no_infinity(body: object, where: str) -> None:
    with pytest.raises(UsageError, match=where):
        as_json(body)


def test_models_hold_no_lost_numbers_either() -> None:
    import pydantic

    class Price(pydantic.BaseModel):
        amount: float | None = pydantic.Field(serialization_alias="sum")

    class Spoken(Price, ser_json_inf_nan="strings"):
        pass

    class Bare(Price, ser_json_inf_nan="constants"):
        pass

    assert as_json(Price(amount=None)) in ('{"sum":null}', b'{"sum":null}')
    assert as_json(Spoken(amount=math.nan)) in ('{"sum":"NaN"}', b'{"sum":"NaN"}')
    for value, where in (
        (Price(amount=math.nan), r"\$\.sum is NaN"),
        ([None, Price(amount=math.inf)], r"\$\[1\]\.sum is NaN"),
        (Bare(amount=math.inf), "JSON has not"),
    ):
        with pytest.raises(UsageError, match=where):
            as_json(value)


# --- anything -----------------------------------------------------------------------------------

any_text = st.one_of(
    st.text(max_size=5),
    st.text(st.characters(categories=["Cs", "Cc", "Cn", "Ll"]), max_size=3),
    st.sampled_from(["", "x" * 200, "y" * 70_000, "é" * 128, "ok", "a b"]),
)
anything = st.one_of(
    any_text,
    any_text.map(Text),
    st.sampled_from([Kind.NEW, OldKind.NEW]),
    st.binary(max_size=4).map(Data),
    st.floats(),
    st.floats().map(Real),
    st.integers(),
    st.none(),
    st.booleans(),
    st.lists(st.just("a"), max_size=1),
    st.builds(object),
)
names = st.one_of(any_text, any_text.map(Text), st.just(Kind.NEW), st.integers(), st.none())
mapping = st.dictionaries(names, anything, max_size=3)
value = st.builds(MessageAttributeValue, anything, anything, anything)
attributes: st.SearchStrategy[Any] = st.one_of(
    mapping, st.dictionaries(st.just("a"), value, max_size=1), anything
)
drafts = st.tuples(
    st.one_of(anything, mapping),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("id", "tenant", "source", "group_id", "deduplication_id"), anything),
            **dict.fromkeys(("replay_id", "trace_header", "delay", "subject"), anything),
            **dict.fromkeys(("attributes", "headers"), attributes),
        },
    ),
)


async def _hurts_no_neighbour(sink: Sink, account: Account, made: list[Any]) -> None:
    queue = sink.queue
    before = len(account.sent(queue))
    group: dict[str, Any] = {"group_id": "g"} if sink.fifo else {}
    results = await asyncio.gather(
        sink.send("good", **group),
        *(sink.send(body, **group | options) for body, options in made),
        sink.send("good", **group),
        return_exceptions=True,
    )
    told = [each for each in results if not isinstance(each, Receipt)]
    assert [each for each in told if not isinstance(each, UsageError | MessageTooLargeError)] == []
    assert all(str(each) for each in told)
    assert isinstance(results[0], Receipt)
    assert isinstance(results[-1], Receipt)
    assert [sent.body for sent in account.sent(queue)[before:]].count("good") >= 2
    stored = {each.message_id for each in results if isinstance(each, Receipt)}
    assert stored <= {sent.message_id for sent in account.sent(queue)}


@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=st.lists(drafts, min_size=1, max_size=6))
def test_whatever_is_sent_is_stored_or_told_and_hurts_no_neighbour(
    queue: str, made: list[Any]
) -> None:
    async def run() -> None:
        account = Account()
        await account.execute(CreateQueue(queue, {"FifoQueue": "true"} if "fifo" in queue else {}))
        async with Sink(queue, account, batch_linger=0) as sink:
            await _hurts_no_neighbour(sink, account, made)

    asyncio.run(run())


@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=st.lists(drafts, min_size=1, max_size=6))
def test_over_the_wire_too(served_account: Served, queue: str, made: list[Any]) -> None:
    async def run() -> None:
        account = served_account.backend
        assert isinstance(account, Account)
        async with (
            HttpBackend(
                region="us-east-1", endpoint_url=served_account.url, credentials=Keys("x", "y")
            ) as backend,
            Sink(queue, backend, batch_linger=0) as sink,
        ):
            await _hurts_no_neighbour(sink, account, made)

    asyncio.run(run())


@pytest.fixture(scope="module")
def served_account() -> Any:
    account = Account()
    served = Served(account)
    served.start()

    async def create() -> None:
        await account.execute(CreateQueue("orders"))
        await account.execute(CreateQueue("orders.fifo", {"FifoQueue": "true"}))

    asyncio.run(create())
    yield served
    served.stop()
