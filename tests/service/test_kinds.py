"""What annotations say about payloads and replies."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Optional, TypedDict, TypeVar, Union

import msgspec
import pydantic
import pytest

from pumphouse import Ack, Drop, Reject, Reply, Retry
from pumphouse.subscriber.handler import Handler
from pumphouse.subscriber.kinds import is_record, members_of, returns_of, same_type
from pumphouse.subscriber.outcomes import Outcome

T = TypeVar("T")


class Order(msgspec.Struct):
    id: int


class Parcel(pydantic.BaseModel):
    id: int


@dataclass
class Point:
    x: int


class Note(TypedDict):
    text: str


def returning(annotation: Any) -> Any:
    def handle() -> Any: ...

    handle.__annotations__ = {"return": annotation}
    return handle


@pytest.mark.parametrize(
    ("annotation", "kinds", "unknown"),
    [
        (None, (), False),
        (Order, (Order,), False),
        (Order | None, (Order,), False),
        (Optional[Order], (Order,), False),  # noqa: UP045
        (Union[Order, Point, Retry], (Order, Point), False),  # noqa: UP007
        (Ack | Retry | Drop | Reject, (), False),
        (Outcome, (), False),
        (type[Ack] | Order, (Order,), False),
        (Reply, (), True),
        (list[Reply], (), True),
        (list[Reply] | None, (), True),
        (tuple[Reply, ...], (), True),
        (list[Order], (list[Order],), False),
        (Awaitable[Order], (Order,), False),
        (Any, (), True),
        (object, (), True),
        (T, (), True),
        (Annotated[Order, "words"], (Annotated[Order, "words"],), False),
        (Annotated[Order | Point, "words"], (Annotated[Order | Point, "words"],), False),
        (Annotated[Order | Ack, "words"], (Order,), False),
        (Annotated[Reply, "words"], (), True),
        ("NotKnown", (), True),
        (str | bytes, (str, bytes), False),
    ],
)
def test_replies(annotation: Any, kinds: tuple[Any, ...], unknown: bool) -> None:
    found = returns_of(returning(annotation))
    assert found.types == kinds
    assert found.unknown is unknown


def test_no_annotation_says_nothing() -> None:
    def handle():  # type: ignore[no-untyped-def]
        return None

    class Handles:
        def __call__(self, order: dict) -> Order:
            return Order(1)

    assert returns_of(handle).unknown
    assert returns_of(Handles()).types == (Order,)


@pytest.mark.parametrize("kind", [Order, Parcel, Point, Note])
def test_records(kind: Any) -> None:
    assert is_record(kind)


@pytest.mark.parametrize("kind", [dict, str, bytes, int, list[Order], Order | None, Any, None])
def test_what_is_no_record(kind: Any) -> None:
    assert not is_record(kind)


def test_a_union_of_records_is_its_members() -> None:
    assert members_of(Order | Point) == [Order, Point]
    assert members_of(Annotated[Order | Point, "words"]) == [Order, Point]
    assert members_of(Order | None) == [Order | None]
    assert members_of(int | str) == [int | str]
    assert members_of(Order) == [Order]


def test_the_same_type() -> None:
    assert same_type(list[Order], list[Order])
    assert not same_type(list[Order], list[Point])
    assert not same_type(True, 1)


@pytest.mark.parametrize(
    ("annotation", "several"),
    [
        (list[Reply], True),
        (tuple[Reply, ...], True),
        (list[Reply] | None, True),
        (Annotated[list[Reply], "all"], True),
        (list[list[Reply]], True),  # of a batch
        (list[Reply | Ack], True),
        (Sequence[Reply], True),
        (Reply, False),
        (list[Order], False),
        (list[str], False),
        (None, False),
        (Any, False),
    ],
)
def test_whether_several_replies_are_returned(annotation: Any, several: bool) -> None:
    assert returns_of(returning(annotation)).several is several
    assert Handler(returning(annotation)).several_replies is several


class Answering:
    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    async def __call__(self, body: str) -> list[Reply]:
        return []

    async def method(self, body: str) -> list[Reply]:
        return []


@pytest.mark.parametrize(
    "function", [Answering(), Answering().method, partial(Answering().method), partial(Answering())]
)
def test_the_annotation_of_any_callable_is_read(function: Any) -> None:
    assert returns_of(function).several


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is newer")
def test_an_alias_is_what_it_stands_for() -> None:
    names: dict[str, Any] = {"Reply": Reply}
    exec("type One = Reply\ntype Many = list[One]", names)  # older Pythons can't read it
    assert returns_of(returning(names["Many"])).several
    assert returns_of(returning(names["One"])).unknown
