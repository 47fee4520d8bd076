"""Calls a handler with all that it is given: the graph, compiled into closures once for each run.

Dependencies are made in order, the handler is called, and what yields is left in reverse, whatever
happened meanwhile: a generator sees the exception at its `yield`, and can't make it unseen. A
plain handler runs in a thread, together with the plain dependencies that nothing on the event loop
needs. No signature is looked at here, and nothing is decoded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from inspect import isawaitable, iscoroutine
from operator import itemgetter
from typing import Any, Protocol

from pumphouse.subscriber.injection.graph import PAYLOAD, Arguments, Graph, Slot, Step
from pumphouse.subscriber.injection.signatures import How

_log = logging.getLogger("pumphouse.subscriber")

Values = list[Any]
Call = Callable[[Any, Any, tuple[Any, ...]], Awaitable[Any]]
"""Calls the handler with the payload, the message (None where nobody asks for it) and headers."""


class InThread(Protocol):
    """Runs a call in a thread and waits for its end, since a thread can't be stopped.

    Gives the result, and the cancellation that came meanwhile, if one did.
    """

    async def __call__(
        self, call: Callable[[], Any]
    ) -> tuple[Any, asyncio.CancelledError | None]: ...


def caller(
    function: Callable[..., Any],
    graph: Graph,
    providers: list[Callable[[], Any]],
    in_thread: InThread | None,
) -> Call:
    """The call of a handler; `in_thread` is given for a plain one."""
    place = _places(graph)
    handler = _invoke(function, graph.arguments, place)
    first = _first_values(providers)
    if in_thread is not None:
        return _threaded(handler, graph, place, first, in_thread)
    if any(step.how.cleans_up for step in graph.steps):
        return _guarded(handler, graph, place, first)
    if [slot for _, slot in graph.arguments.slots] == [PAYLOAD] and not graph.arguments.by_name:
        return lambda payload, message, headers: function(payload)
    steps = [
        (step.how is How.ASYNC, _invoke(step.call, step.arguments, place)) for step in graph.steps
    ]
    if any(awaited for awaited, _ in steps):

        async def call_awaiting(payload: Any, message: Any, headers: tuple[Any, ...]) -> Any:
            values = first(payload, message, headers)
            for awaited, make in steps:
                values.append(await make(values) if awaited else make(values))
            return await handler(values)

        return call_awaiting

    makers = [make for _, make in steps]

    def call(payload: Any, message: Any, headers: tuple[Any, ...]) -> Any:
        values = first(payload, message, headers)
        for make in makers:
            values.append(make(values))
        return handler(values)  # what is awaited is the handler itself

    return call


def _guarded(
    handler: Callable[[Values], Any],
    graph: Graph,
    place: Callable[[Slot], int],
    first: Callable[[Any, Any, tuple[Any, ...]], Values],
) -> Call:
    """An async handler, some of whose dependencies have to be left."""
    steps = [(step, _invoke(step.call, step.arguments, place)) for step in graph.steps]

    async def call(payload: Any, message: Any, headers: tuple[Any, ...]) -> Any:
        values = first(payload, message, headers)
        opened: list[_Opened] = []
        error: BaseException | None = None
        result = None
        try:
            for step, make in steps:
                if step.how is How.PLAIN:
                    values.append(make(values))
                elif step.how is How.ASYNC:
                    values.append(await make(values))
                elif step.how is How.GENERATOR:
                    values.append(_enter(step.name, make(values), opened))
                else:
                    values.append(await _enter_async(step.name, make(values), opened))
            result = await handler(values)
        except BaseException as raised:
            error = raised
        if opened:
            error = await _leave_all(opened, error, None)
        if error is not None:
            try:
                raise error
            finally:
                error = None  # it would hold this frame, and this frame it
        return result

    return call


def _threaded(
    handler: Callable[[Values], Any],
    graph: Graph,
    place: Callable[[Slot], int],
    first: Callable[[Any, Any, tuple[Any, ...]], Values],
    in_thread: InThread,
) -> Call:
    """A plain handler. What has to run on the loop, and what that needs, goes first."""
    ahead = _needed_on_loop(graph)
    # a value lands at the place of its step, in whichever order they are made
    steps = [
        (step, place(("step", number)), _invoke(step.call, step.arguments, place), number in ahead)
        for number, step in enumerate(graph.steps)
    ]
    on_loop = [each[:3] for each in steps if each[3]]
    with_handler = [each[:3] for each in steps if not each[3]]
    room = [None] * len(steps)

    def in_the_thread(values: Values) -> tuple[Any, list[_Opened]]:
        opened: list[_Opened] = []
        error: BaseException | None = None
        result = None
        try:
            for step, at, make in with_handler:
                values[at] = _make(step, make, values, opened)
            result = handler(values)
        except BaseException as raised:
            error = raised
        if error is None and isawaitable(result):
            return result, opened  # a plain function around an async one
        if opened:
            error = _leave_plain(opened, error)
        if error is not None:
            raise error
        return result, []

    async def call(payload: Any, message: Any, headers: tuple[Any, ...]) -> Any:
        values = first(payload, message, headers)
        values += room
        opened: list[_Opened] = []
        error: BaseException | None = None
        result = None
        try:
            for step, at, make in on_loop:
                if step.how is How.ASYNC:
                    values[at] = await make(values)
                elif step.how is How.ASYNC_GENERATOR:
                    values[at] = await _enter_async(step.name, make(values), opened)
                else:
                    work = partial(_make, step, make, values, opened)
                    values[at], cancelled = await in_thread(work)
                    if cancelled is not None:
                        raise cancelled
            (result, left), cancelled = await in_thread(partial(in_the_thread, values))
            opened += left
            if isawaitable(result):
                if cancelled is not None:  # nothing of it has begun
                    if iscoroutine(result):
                        result.close()
                    raise cancelled
                result = await result
        except BaseException as raised:
            error = raised
        if opened:
            error = await _leave_all(opened, error, in_thread)
        if error is not None:
            try:
                raise error
            finally:
                error = None  # it would hold this frame, and this frame it
        return result

    return call


def _needed_on_loop(graph: Graph) -> set[int]:
    """The steps that run on the event loop, and those whose values they need."""
    needed: set[int] = set()
    for number in range(len(graph.steps) - 1, -1, -1):
        step = graph.steps[number]
        if step.how.on_loop or number in needed:
            needed.add(number)
            needed.update(at for _, (section, at) in step.arguments.slots if section == "step")
    return needed


# --- values and arguments -------------------------------------------------------------------------


def _places(graph: Graph) -> Callable[[Slot], int]:
    """Where the value of a slot lies among the values of a call."""
    headers = 2
    injected = headers + len(graph.headers)
    steps = injected + len(graph.injected)
    begin = {"payload": 0, "message": 1, "header": headers, "injected": injected, "step": steps}
    return lambda slot: begin[slot[0]] + slot[1]


def _first_values(
    providers: list[Callable[[], Any]],
) -> Callable[[Any, Any, tuple[Any, ...]], Values]:
    if not providers:
        return lambda payload, message, headers: [payload, message, *headers]
    return lambda payload, message, headers: [
        payload,
        message,
        *headers,
        *[provide() for provide in providers],
    ]


def _invoke(
    function: Callable[..., Any], arguments: Arguments, place: Callable[[Slot], int]
) -> Callable[[Values], Any]:
    """A function of the values that calls with the arguments among them; without keywords, where
    no parameter needs one, as that is the quickest."""
    names = [name for name, _ in arguments.slots]
    places = [place(slot) for _, slot in arguments.slots]
    if not names:
        return lambda values: function()
    if arguments.by_name:
        return lambda values: function(
            **{name: values[at] for name, at in zip(names, places, strict=True)}
        )
    if len(places) == 1:
        (only,) = places
        return lambda values: function(values[only])
    chosen = itemgetter(*places)
    return lambda values: function(*chosen(values))


# --- what yields ----------------------------------------------------------------------------------

_Opened = tuple[str, "Generator[Any, Any, Any] | AsyncGenerator[Any, Any]"]


def _make(step: Step, make: Callable[[Values], Any], values: Values, opened: list[_Opened]) -> Any:
    """The value of a plain dependency, entered where it is a generator."""
    made = make(values)
    return made if step.how is How.PLAIN else _enter(step.name, made, opened)


def _enter(name: str, generator: Generator[Any, Any, Any], opened: list[_Opened]) -> Any:
    try:
        value = next(generator)
    except StopIteration:
        raise RuntimeError(f"dependency {name} yielded nothing") from None
    opened.append((name, generator))
    return value


async def _enter_async(
    name: str, generator: AsyncGenerator[Any, Any], opened: list[_Opened]
) -> Any:
    try:
        value = await anext(generator)
    except StopAsyncIteration:
        raise RuntimeError(f"dependency {name} yielded nothing") from None
    opened.append((name, generator))
    return value


async def _leave_all(
    opened: list[_Opened], error: BaseException | None, in_thread: InThread | None
) -> BaseException | None:
    """Leave everything, the last one first; returns what the call is to raise."""
    while opened:
        name, generator = opened.pop()
        try:
            if isinstance(generator, AsyncGenerator):
                await _leave_async(name, generator, error)
            elif in_thread is None:
                _leave(name, generator, error)
            else:
                await in_thread(partial(_leave, name, generator, error))
        except BaseException as raised:
            error = _after_leaving(name, error, raised)
    return error


def _leave_plain(opened: list[_Opened], error: BaseException | None) -> BaseException | None:
    while opened:
        name, generator = opened.pop()
        try:
            _leave(name, generator, error)  # type: ignore[arg-type]
        except BaseException as raised:
            error = _after_leaving(name, error, raised)
    return error


def _after_leaving(
    name: str, error: BaseException | None, raised: BaseException
) -> BaseException | None:
    if raised is not error and not isinstance(raised, asyncio.CancelledError):
        _log.error("the clean-up of dependency %s failed", name, exc_info=raised)
    return raised


def _leave(name: str, generator: Generator[Any, Any, Any], error: BaseException | None) -> None:
    try:
        if error is None:
            next(generator)
        else:
            generator.throw(error)
    except StopIteration as end:
        if end is error:
            raise
        return
    except RuntimeError as raised:
        if raised.__cause__ is error and isinstance(error, StopIteration):
            return  # Python's own translation
        raise
    generator.close()
    raise RuntimeError(f"dependency {name} yielded more than once")


async def _leave_async(
    name: str, generator: AsyncGenerator[Any, Any], error: BaseException | None
) -> None:
    try:
        if error is None:
            await anext(generator)
        else:
            await generator.athrow(error)
    except StopAsyncIteration as end:
        if end is error:
            raise
        return
    except RuntimeError as raised:
        if raised.__cause__ is error and isinstance(error, StopIteration | StopAsyncIteration):
            return
        raise
    await generator.aclose()
    raise RuntimeError(f"dependency {name} yielded more than once")
