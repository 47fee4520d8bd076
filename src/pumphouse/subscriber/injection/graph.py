"""What a handler needs, all the way down: which value each parameter gets, in which order.

The handler's parameters and those of its dependencies are resolved into one list of slots: the
payload, the message, headers, values of the app, and what each dependency gives. Every slot is
filled once for a message, in order, so "cached" needs no cache. Reading and checking only;
`calling.py` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isabstract
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.subscriber.injection.headers import HeaderNeed, header_need
from pumphouse.subscriber.injection.markers import (
    MISSING,
    Dependency,
    HeaderField,
    Injected,
)
from pumphouse.subscriber.injection.signatures import (
    EMPTY,
    How,
    Parameter,
    how_called,
    name_of,
    parameters_of,
    takes_anything,
)

Slot = tuple[str, int]
"""A section ("payload", "message", "header", "injected", "step") and a place in it."""
PAYLOAD, MESSAGE = ("payload", 0), ("message", 0)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Where a call's arguments come from: parameter names and slots. `by_name` where they can't be
    given by their places alone."""

    slots: tuple[tuple[str, Slot], ...] = ()
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class InjectedNeed:
    """A value of the app that is asked for: by which mark, as which type, and where."""

    mark: Injected
    kind: Any
    where: str


@dataclass(frozen=True, slots=True)
class Step:
    """One dependency: what is called, how, and with what."""

    call: Callable[..., Any]
    how: How
    name: str
    arguments: Arguments


@dataclass(slots=True)
class Graph:
    """All that a handler is given. `steps` stand in the order in which they can be made."""

    payload: Parameter | None
    arguments: Arguments = field(default_factory=Arguments)
    headers: list[HeaderNeed] = field(default_factory=list)
    injected: list[InjectedNeed] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    wants_message: bool = False


def graph_of(
    function: Callable[..., Any],
    *,
    batch: bool,
    overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None,
) -> Graph:
    """Resolve a handler. Raises `UsageError`, which names handler, dependency and parameter, for
    what can't be resolved."""
    return _Resolver(function, batch, overrides or {}).graph


class _Resolver:
    def __init__(
        self,
        function: Callable[..., Any],
        batch: bool,
        overrides: Mapping[Callable[..., Any], Callable[..., Any]],
    ) -> None:
        self._batch = batch
        self._overrides = overrides
        self._made: dict[Callable[..., Any], Slot] = {}
        self._handler = f"handler {name_of(function)}"
        parameters = parameters_of(function, self._handler)
        if takes_anything(function):
            raise UsageError(
                f"{self._handler} takes *args or **kwargs alone, and they are given nothing; the "
                "wrapper that a decorator puts around a handler needs functools.wraps"
            )
        payload = self._payload_among(parameters)
        self.graph = Graph(payload)
        self.graph.arguments = self._arguments(parameters, self._handler, ())

    def _payload_among(self, parameters: list[Parameter]) -> Parameter | None:
        """The first parameter that is nothing else."""
        for parameter in parameters:
            optional = parameter.keyword_only and parameter.default is not MISSING
            if parameter.mark is None and not optional and not self._is_message(parameter):
                return parameter
        return None

    def _is_message(self, parameter: Parameter) -> bool:
        if self._batch:
            kind = parameter.kind
            return get_origin(kind) is list and get_args(kind) == (Message,)
        return parameter.kind is Message

    def _arguments(
        self, parameters: list[Parameter], where: str, chain: tuple[Callable[..., Any], ...]
    ) -> Arguments:
        found: list[tuple[str, Slot]] = []
        by_name = left_out = False
        for parameter in parameters:
            slot = self._slot(parameter, where, chain)
            if slot is None:
                left_out = True
                continue
            if slot == MESSAGE and any(other == MESSAGE for _, other in found):
                raise UsageError(f"{where} asks for the message twice")
            found.append((parameter.name, slot))
            by_name |= left_out or parameter.keyword_only
        return Arguments(tuple(found), by_name)

    def _slot(
        self, parameter: Parameter, where: str, chain: tuple[Callable[..., Any], ...]
    ) -> Slot | None:
        at = f"{where}: parameter {parameter.name!r}"
        mark, graph = parameter.mark, self.graph
        if isinstance(mark, Dependency):
            return self._dependency(mark, parameter, at, chain)
        if isinstance(mark, HeaderField):
            need = self._header(mark, parameter, at)
            if need not in graph.headers:
                graph.headers.append(need)
            return "header", graph.headers.index(need)
        if isinstance(mark, Injected):
            if fault := mark.fault(parameter.kind):
                raise UsageError(f"{at}: {fault}")
            if parameter.kind is EMPTY:
                raise UsageError(f"{at} has no annotation, so it can't be said what it gets")
            graph.injected.append(InjectedNeed(mark, parameter.kind, at))
            return "injected", len(graph.injected) - 1
        if self._is_message(parameter):
            graph.wants_message = True
            return MESSAGE
        if self._is_payload(parameter, chain):
            return PAYLOAD
        if parameter.default is not MISSING:
            return None
        raise UsageError(self._unfilled(parameter, at, chain))

    def _is_payload(self, parameter: Parameter, chain: tuple[Callable[..., Any], ...]) -> bool:
        payload = self.graph.payload
        if not chain or payload is None or parameter.default is not MISSING:
            return parameter is payload
        return parameter.kind is not EMPTY and parameter.kind == payload.kind

    def _unfilled(
        self, parameter: Parameter, at: str, chain: tuple[Callable[..., Any], ...]
    ) -> str:
        if self._batch and parameter.kind is Message:
            return f"{at}: in a batch the messages are a list[Message]"
        if chain and parameter.kind is EMPTY:
            return f"{at} has no annotation; a dependency's parameters need one, or a default"
        return (
            f"{at} is neither the payload nor a Message, and nothing says where it comes from: "
            "mark it with Depends, Header or State, or give it a default"
        )

    def _header(self, mark: HeaderField, parameter: Parameter, at: str) -> HeaderNeed:
        kind, default = parameter.kind, parameter.default
        if self._batch:
            if default is not MISSING:
                raise UsageError(f"{at}: in a batch a header's default is Header(default=…)")
            if get_origin(kind) is not list:
                raise UsageError(
                    f"{at} is a header in a batch, so it is a list, one for each message: "
                    f"Annotated[list[{getattr(kind, '__name__', 'str')}], Header(…)]"
                )
            (kind,) = get_args(kind)
        if default is MISSING:
            default = mark.default
        elif mark.default is not MISSING:
            raise UsageError(f"{at} has two defaults")
        return header_need(mark.name or parameter.name.replace("_", "-"), kind, default, at)

    def _dependency(
        self,
        mark: Dependency,
        parameter: Parameter,
        at: str,
        chain: tuple[Callable[..., Any], ...],
    ) -> Slot:
        original = mark.call
        if original is None:
            original = _called_for(parameter.kind)
            if original is None:
                raise UsageError(f"{at}: Depends() calls the parameter's type, which is no class")
        try:
            if mark.use_cache and original in self._made:
                return self._made[original]
            call = self._overrides.get(original, original)
        except TypeError as error:
            raise UsageError(f"{at}: the dependency can't be hashed: {original!r}") from error
        name = name_of(call)
        if original in chain:
            way = " → ".join(map(name_of, (*chain[chain.index(original) :], original)))
            raise UsageError(f"{self._handler}: dependencies go round in a circle: {way}")
        inner = " → ".join(map(name_of, (*(self._named(each) for each in chain), call)))
        inside = f"{self._handler}: dependency {inner}"
        how = how_called(call, inside)
        arguments = self._arguments(parameters_of(call, inside), inside, (*chain, original))
        self.graph.steps.append(Step(call, how, name, arguments))
        slot = ("step", len(self.graph.steps) - 1)
        if mark.use_cache:
            self._made[original] = slot
        return slot

    def _named(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._overrides.get(original, original)


def _called_for(kind: Any) -> Any:
    """What is called to make a value of a type: a class, or one like `Box[int]`; otherwise None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    made = get_origin(kind) or kind
    fine = isinstance(made, type) and made not in (EMPTY, UnionType) and not isabstract(made)
    return kind if fine else None
