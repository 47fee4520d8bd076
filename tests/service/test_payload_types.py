"""Payload types as handlers annotate them, and what is said of a body that does not fit."""

import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NewType, TypedDict

import msgspec
import pydantic
import pytest
import typing_extensions
from pydantic import Field

from pumphouse import App
from pumphouse.errors import UsageError
from support.injecting import dead_app, reasons, run


class Paid(msgspec.Struct, tag="paid"):
    amount: int


class Shipped(msgspec.Struct, tag="shipped", tag_field="type"):
    parcels: list[int] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    legs: list[int]


class Opened(TypedDict):
    kind: Literal["opened"]
    by: str


class Closed(TypedDict):
    kind: Literal["closed", "cancelled"]
    reason: str


@dataclasses.dataclass
class Deposit:
    kind: Literal["deposit"]
    amount: int


@dataclasses.dataclass
class Transfer:
    kind: Literal["transfer"]
    amount: int
    to: str


@dataclasses.dataclass
class Shelter:
    cat: Cat
    places: Annotated[int, Field(gt=3)] = 4


class Limits(typing_extensions.TypedDict):
    most: Annotated[int, Field(gt=3)]


class Node(msgspec.Struct):
    child: "Node | None" = None


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
OrderId = NewType("OrderId", int)


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        (Paid | Shipped, '{"type":"paid","amount":3}', Paid(3)),
        (Paid | Shipped, '{"type":"shipped","parcels":[1]}', Shipped([1])),
        (Pet, '{"kind":"dog","legs":[4]}', Dog(kind="dog", legs=[4])),
        (Cat | Dog, '{"kind":"cat","lives":9}', Cat(kind="cat", lives=9)),
        (Opened | Closed, '{"kind":"opened","by":"ada"}', {"kind": "opened", "by": "ada"}),
        (
            Opened | Closed,
            '{"kind":"cancelled","reason":"late"}',
            {"kind": "cancelled", "reason": "late"},
        ),
        (Deposit | Transfer, '{"kind":"deposit","amount":1}', Deposit("deposit", 1)),
        (Deposit | Transfer | None, "null", None),
        (Shelter, '{"cat":{"kind":"cat","lives":1}}', Shelter(Cat(kind="cat", lives=1))),
        (Limits, '{"most":5}', {"most": 5}),
        (list[Cat], '[{"kind":"cat","lives":1}]', [Cat(kind="cat", lives=1)]),
        (Cat | None, "null", None),
        (Node, '{"child":{}}', Node(Node())),
        (OrderId, "7", 7),
        (Annotated[int, msgspec.Meta(gt=3)], "4", 4),
        (datetime, '"2026-01-02T03:04:05Z"', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (dict[str, list[int]], '{"a":[1]}', {"a": [1]}),
    ],
    ids=str,
)
async def test_payloads_are_read_as_the_annotation_says(kind: Any, body: str, value: Any) -> None:
    app, subscriber = dead_app()
    seen: list[Any] = []

    @subscriber
    async def handle(payload: kind) -> None:
        seen.append(payload)

    assert reasons(await run(app, body)) == []
    assert seen == [value]
    assert type(seen[0]) is type(value)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (
            Paid | Shipped,
            '{"type":"paid","amount":"x"}',
            "the body is no Paid | Shipped: type 'paid': Expected `int`, got `str` - at `$.amount`",
        ),
        (Paid | Shipped, '{"type":"lost"}', "Invalid value 'lost' - at `$.type`"),
        (Paid | Shipped, "{}", "Object missing required field `type`"),
        (
            Pet,
            '{"kind":"dog","legs":[1,"x"]}',
            "the body is no Cat | Dog: dog.legs[1]: Input should be a valid integer, "
            "unable to parse string as an integer",
        ),
        (Pet, '{"kind":"cow"}', "Input tag 'cow' found using 'kind' does not match any of the"),
        (Pet, "{}", "Unable to extract tag using discriminator 'kind'"),
        (Pet, "{", "Invalid JSON: EOF while parsing"),
        (
            Opened | Closed,
            '{"kind":"closed","reason":1}',
            "kind 'closed': Expected `str`, got `int` - at `$.reason`",
        ),
        (
            Deposit | Transfer,
            '{"kind":"gift"}',
            "kind 'gift': Invalid value 'gift' - at `$.kind`, which is one of 'deposit', 'tr",
        ),
        (Deposit | Transfer, '{"amount":1}', "Object missing required field `kind`"),
        (Shelter, '{"cat":{"kind":"cat"},"places":1}', "cat.lives: Field required; places: Input"),
        (list[Cat], '[{"kind":"cat"}]', "the body is no list[Cat]: [0].lives: Field required"),
        (Limits, '{"most":1}', "most: Input should be greater than 3"),
        (Deposit, '{"kind":"deposit"}', "the body is no Deposit: Object missing required field"),
        (list[dict[str, int]], '[{"a":"b"}]', "Expected `int`, got `str` - at `$[0][...]`"),
    ],
    ids=str,
)
async def test_a_body_that_does_not_fit_names_the_field(kind: Any, body: str, reason: str) -> None:
    app, subscriber = dead_app(undecodable="reject")

    @subscriber
    async def handle(payload: kind) -> None: ...

    (said,) = reasons(await run(app, body))
    assert reason in said


async def test_the_value_of_a_field_is_not_in_the_reason() -> None:
    app, subscriber = dead_app(undecodable="reject")

    @subscriber
    async def handle(payload: Cat) -> None: ...

    (said,) = reasons(await run(app, {"kind": "cat", "lives": "swordfish"}))
    assert "lives" in said
    assert "swordfish" not in said


async def test_lists_of_payloads_in_a_batch() -> None:
    app, subscriber = dead_app(batch=10, undecodable="reject")
    seen: list[Any] = []

    @subscriber
    async def handle(pets: list[Pet]) -> None:
        seen.extend(pets)

    account = await run(
        app, '{"kind":"cat","lives":1}', '{"kind":"cow"}', '{"kind":"dog","legs":[]}'
    )
    assert sorted(each.kind for each in seen) == ["cat", "dog"]
    (said,) = reasons(account)
    assert "'cow'" in said


class _Plain: ...


class _Mixed(msgspec.Struct):
    cat: Cat


class _Untagged(msgspec.Struct):
    x: int


class _AlsoUntagged(msgspec.Struct):
    y: int


class _NoTag(TypedDict):
    by: str


class _Inside(msgspec.Struct):
    thing: _Plain


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (_Plain, "can't be read as _Plain (_Plain is a class of its own)"),
        (list[_Plain], "can't be read as list[_Plain]"),
        (_Inside, "can't be read as _Inside (_Plain is a class of its own)"),
        (_Mixed, "it is msgspec's, with something of pydantic's inside"),
        (_Untagged | _AlsoUntagged, "all Struct types must be tagged"),
        (Opened | _NoTag, "give each a field of one name that is a Literal"),
    ],
    ids=str,
)
def test_types_that_no_body_can_be_read_as(kind: Any, says: str) -> None:
    async def handle(payload: kind) -> None: ...

    with pytest.raises(UsageError) as caught:
        App().subscriber("q")(handle)
    assert says in str(caught.value)
    assert "handle: parameter 'payload'" in str(caught.value)
