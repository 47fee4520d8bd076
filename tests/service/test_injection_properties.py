"""Dependencies of any shape: made once, after what they need, left in reverse, whatever fails."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Annotated, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pumphouse import Depends
from support.injecting import dead_app, reasons

KINDS = ("plain", "async", "generator", "async generator")

Graph = list[tuple[str, list[int]]]
"""The kind of each dependency, and which of those before it it needs."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 7))
    return [
        (
            draw(st.sampled_from(KINDS)),
            sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else [],
        )
        for number in range(size)
    ]


def dependency(
    number: int, kind: str, needs: list[Any], log: list[tuple[str, int]], fails: str
) -> Callable[..., Any]:
    def make(given: dict[str, Any]) -> int:
        assert sorted(given.values()) == sorted(each for each, _ in needs)
        if fails == f"make {number}":
            log.append(("failed", number))
            raise LookupError(fails)
        log.append(("made", number))
        return number

    def leave() -> None:
        log.append(("left", number))
        if fails == f"leave {number}":
            raise LookupError(fails)

    def plain(**given: Any) -> Any:
        return make(given)

    async def awaited(**given: Any) -> Any:
        await asyncio.sleep(0)
        return make(given)

    def generator(**given: Any) -> Any:
        value = make(given)
        try:
            yield value
        finally:
            leave()

    async def async_generator(**given: Any) -> Any:
        value = make(given)
        try:
            yield value
        finally:
            await asyncio.sleep(0)
            leave()

    function = dict(zip(KINDS, (plain, awaited, generator, async_generator), strict=True))[kind]
    return asking(function, [each for _, each in needs])


def asking(function: Callable[..., Any], dependencies: list[Any]) -> Callable[..., Any]:
    """The function, with a parameter for each of the dependencies."""
    asked = {f"d{place}": Annotated[int, Depends(each)] for place, each in enumerate(dependencies)}
    function.__annotations__ = dict(asked)
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            for name, kind in asked.items()
        ]
    )
    return function


def needed(graph: Graph, wanted: set[int]) -> set[int]:
    found = set(wanted)
    for number in range(len(graph) - 1, -1, -1):
        if number in found:
            found.update(graph[number][1])
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.booleans(), st.data())
def test_any_graph_is_made_in_order_and_left_in_reverse(
    graph: Graph, plain_handler: bool, data: st.DataObject
) -> None:
    wanted = data.draw(st.sets(st.integers(0, len(graph) - 1), min_size=1), label="wanted")
    reached = needed(graph, wanted)
    number = data.draw(st.sampled_from(sorted(reached)), label="number")
    cleans_up = "generator" in graph[number][0]
    fails = data.draw(
        st.sampled_from(
            ["", "handler", f"make {number}", *([f"leave {number}"] if cleans_up else [])]
        ),
        label="fails",
    )
    log: list[tuple[str, int]] = []
    functions: list[Any] = []
    for each, (kind, needs) in enumerate(graph):
        inner = [(need, functions[need]) for need in needs]
        functions.append(dependency(each, kind, inner, log, fails))

    def handle(given: dict[str, Any]) -> None:
        assert sorted(given.values()) == sorted(wanted)
        log.append(("handled", -1))
        if fails == "handler":
            raise LookupError(fails)

    async def on_loop(**given: Any) -> None:
        handle(given)

    def in_thread(**given: Any) -> None:
        handle(given)

    app, subscriber = dead_app(max_attempts=1)
    subscriber(
        asking(in_thread if plain_handler else on_loop, [functions[each] for each in wanted])
    )

    async def run() -> Any:
        async with app.in_process() as account:
            await account.send("q", "a")
            await account.settle()
        return account

    account = asyncio.run(run())
    assert reasons(account) == ([f"LookupError: {fails}"] if fails else [])
    made = [each for what, each in log if what == "made"]
    left = [each for what, each in log if what == "left"]
    assert len(made) == len(set(made)) <= len(reached)
    for place, each in enumerate(made):
        assert set(graph[each][1]) <= set(made[:place]), "it was made before what it needs"
    assert left == [each for each in reversed(made) if "generator" in graph[each][0]]
    assert (("handled", -1) in log) == (not fails.startswith("make"))
    if not fails.startswith("make"):
        assert set(made) == reached
        at = log.index(("handled", -1))
        assert all(what == "made" for what, _ in log[:at])
        assert all(what == "left" for what, _ in log[at + 1 :])
