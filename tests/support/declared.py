"""Apps of all kinds, for tests of what describes or checks an app: a strategy of hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
from hypothesis import strategies as st

from pumphouse import App, Queue, Reply, Retry, Topic, UsageError

ACCOUNT = "123456789012"
ARN = f"arn:aws:sqs:eu-west-1:{ACCOUNT}:"
URL = f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNT}/"


class Line(msgspec.Struct):
    article: str


class Order(msgspec.Struct):
    id: int
    lines: list[Line]
    pair: tuple[int, str] = (0, "")


class Created(msgspec.Struct, tag="created"):
    id: int


class Cancelled(msgspec.Struct, tag="cancelled"):
    id: int


@dataclass
class Parcel:
    weight: float
    inside: Line


class Note(TypedDict, total=False):
    text: str


class Tree(msgspec.Struct):
    below: list[Tree] = []


class Customer(pydantic.BaseModel):
    name: str
    friends: list[Customer] = []


@pydantic.dataclasses.dataclass
class Point:
    x: int


KINDS: list[Any] = [
    *(Order, Created | Cancelled, Parcel, Note, Tree, Customer, Point),
    *(bytes, str, dict, list[int], dict[str, Order], int | str, Order | None, tuple[int, str]),
]
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)


EVERY_WAY = ("", URL, ARN, "http://127.0.0.1:9324/000000000000/")
"""What goes before a name: nothing, or all that makes it a URL or an ARN."""


@st.composite
def queues(draw: st.DrawFn, references: tuple[str, ...], fifo: bool | None = None) -> str:
    name = draw(NAMES)
    if draw(st.booleans()) if fifo is None else fifo:
        name += ".fifo"
    return draw(st.sampled_from(references)) + name


@st.composite
def apps(draw: st.DrawFn, references: tuple[str, ...] = EVERY_WAY) -> App:
    """An app with subscribers and publishers of queues and topics, which are named so."""
    app = App(draw(st.text(min_size=1, max_size=20).filter(str.strip)))
    for queue in draw(st.lists(queues(references), max_size=5)):
        options: dict[str, Any] = {}
        if draw(st.booleans()):
            options["max_attempts"] = draw(st.integers(1, 900))
            options["dead_letter"] = draw(queues(references, queue.endswith(".fifo")))
            options["redrive"] = draw(st.sampled_from(["write", "check"]))
        if draw(st.booleans()):
            options["publish"] = draw(st.one_of(queues(references), st.builds(Topic, NAMES)))

        async def handle(body: Any) -> Any: ...

        handle.__doc__ = draw(st.none() | st.text(max_size=50))
        handle.__annotations__ = {
            "body": draw(st.sampled_from(KINDS)),
            "return": draw(st.sampled_from([*KINDS, None, Reply, list[Reply], Retry, Any])),
        }
        lease = draw(st.none() | st.integers(1, 43_200))
        try:
            app.subscriber(Queue(queue, visibility_timeout=lease), **options)(handle)
        except UsageError:  # a name twice, or its own dead-letter queue
            continue
    for _ in range(draw(st.integers(0, 4))):
        app.publisher(
            draw(st.one_of(queues(references), st.builds(Topic, NAMES))),
            draw(st.sampled_from([*KINDS, Any])),
        )
    return app
