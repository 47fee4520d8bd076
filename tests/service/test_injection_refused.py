"""Declarations that can't work: each is refused, and names handler, dependency and parameter.

Without `from __future__ import annotations`, so that handlers inside of tests can be annotated with
what stands there.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from pumphouse import App, Depends, Header, Message, State
from pumphouse.errors import UsageError
from support.injecting import dead_app


def refused(handler: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        App().subscriber("q", **options)(handler)
    text = str(caught.value)
    assert f"handler {handler.__qualname__.replace('<locals>.', '')}" in text
    return text


def _unannotated(thing):  # type: ignore[no-untyped-def]
    return thing


def _positional(thing: str, /) -> str:
    return thing


def _number(number: int) -> int:
    return number


def _goes_round(b: "Annotated[int, Depends(_goes_on)]") -> int:
    return b


def _goes_on(a: "Annotated[int, Depends(_goes_round)]") -> int:
    return a


@contextmanager
def _managed() -> Iterator[int]:
    yield 1


@asynccontextmanager
async def _async_managed() -> AsyncIterator[int]:
    yield 1


class _Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> int:
        return 1


def _nested(one: Annotated[int, Depends(_number)]) -> int:
    return one


@pytest.mark.parametrize(
    ("dependency", "says"),
    [
        (_unannotated, "dependency _unannotated: parameter 'thing' has no annotation"),
        (_positional, "dependency _positional: parameter 'thing' can't be named"),
        (_number, "dependency _number: parameter 'number' is neither the payload nor a Message"),
        (_nested, "dependency _nested → _number: parameter 'number' is neither"),
        (_goes_round, "in a circle: _goes_round → _goes_on → _goes_round"),
        (_managed, "dependency _managed is decorated"),
        (_async_managed, "dependency _async_managed is decorated"),
        (_Unhashable(), "parameter 'one': the dependency can't be hashed"),
        (dict, "dependency dict: its signature can't be read"),
    ],
)
def test_dependencies_that_can_not_be_called(dependency: Any, says: str) -> None:
    async def handle(body: str, one: Annotated[Any, Depends(dependency)]) -> None: ...

    assert says in refused(handle)


def test_handlers_that_can_not_be_called() -> None:
    async def positional(body: str, /) -> None: ...

    async def uncalled(body: str, tenant: Annotated[str, Header]) -> None: ...

    async def uncalled_default(body: str, tenant: str = Header) -> None: ...  # type: ignore[assignment]

    async def two(body: str, x: Annotated[str, Header(), Depends(_managed)]) -> None: ...

    async def both(body: str, x: Annotated[str, Header()] = Depends(_managed)) -> None: ...

    async def inside(body: str, x: Annotated[str, Header()] | None) -> None: ...

    async def defaults(body: str, x: Annotated[str, Header(default="a")] = "b") -> None: ...

    async def kind(body: str, x: Annotated[list[str], Header()]) -> None: ...

    async def no_type(body: str, x=Depends()) -> None: ...  # type: ignore[no-untyped-def] # noqa: B008

    async def unfilled(body: str, other: int) -> None: ...

    async def unknown(body: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    async def either(body: str, x: Annotated[list[str] | None, Depends()]) -> None: ...

    async def wrapper(*args: Any, **kwargs: Any) -> None: ...

    async def returns(body: str) -> "Nowhere": ...  # type: ignore[name-defined] # noqa: F821

    async def no_name(body: str, x: "Annotated[str, Header('a b')]") -> None: ...

    async def own_name(body: str, μήκος: Annotated[int, Header()]) -> None: ...

    async def not_a_function(body: str, x: "Annotated[str, Depends(1)]") -> None: ...  # type: ignore[arg-type]

    assert "parameter 'x': Depends() calls the parameter's type" in refused(either)
    assert "needs functools.wraps" in refused(wrapper)
    assert refused(not_a_function).endswith(
        "parameter 'x': Depends takes a function or a class, not 1"
    )
    assert "parameter 'x': no message can have a header 'a b'" in refused(no_name)
    assert "parameter 'μήκος': no message can have a header 'μήκος'" in refused(own_name)
    assert "the annotation of what it returns can't be read (NameError" in refused(returns)
    assert "parameter 'body' can't be named" in refused(positional)
    assert "parameter 'tenant': Header is called where it marks: Header()" in refused(uncalled)
    assert "Header is called where it marks" in refused(uncalled_default)
    assert "parameter 'x' has more than one mark" in refused(two)
    assert "parameter 'x' has more than one mark" in refused(both)
    assert "the mark belongs around the whole type" in refused(inside)
    assert "parameter 'x' has two defaults" in refused(defaults)
    assert "a header can't be read as list[str]" in refused(kind)
    assert "parameter 'x': Depends() calls the parameter's type" in refused(no_type)
    assert "parameter 'other' is neither the payload nor a Message" in refused(unfilled)
    assert "the annotation of parameter 'body' can't be read (NameError" in refused(unknown)


def test_handlers_of_batches_that_can_not_be_called() -> None:
    async def message(bodies: list[str], message: Message) -> None: ...

    async def header(bodies: list[str], tenant: Annotated[str, Header()]) -> None: ...

    async def default(bodies: list[str], t: Annotated[list[str], Header()] = []) -> None: ...  # noqa: B006

    assert "in a batch the messages are a list[Message]" in refused(message, batch=10)
    assert "Annotated[list[str], Header(…)]" in refused(header, batch=10)
    assert "in a batch a header's default is Header(default=…)" in refused(default, batch=10)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Depends(1), "Depends takes a function or a class, not 1"),
        (lambda: Header(""), "Header takes the name of a header"),
        (lambda: Header(1), "Header takes the name of a header"),
        (
            lambda: Header("AWS.trace"),
            "no message can have a header 'AWS.trace', as its name starts",
        ),
        (lambda: State(1), "State takes the name"),
    ],
)
def test_marks_check_what_they_are_given(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


async def test_another_frameworks_mark_is_pointed_out() -> None:
    foreign = type("Depends", (), {"__module__": "fastapi.params"})()

    async def handle(body: str, one: Annotated[int, foreign]) -> None: ...

    assert "Depends is that of fastapi.params; take the one of pumphouse" in refused(handle)


async def test_a_direct_call_of_the_handler_is_the_functions_own() -> None:
    _, subscriber = dead_app()

    @subscriber
    async def handle(body: str, tenant: Annotated[str, Header()] = "none") -> str:
        return f"{body} {tenant}"

    assert await handle("a", "t") == "a t"
    assert await handle("a") == "a none"
