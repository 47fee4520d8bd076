"""What a function's signature says: its parameters, their types and marks, and how it is called.

Reading only, once for each function; which value a parameter gets is decided in `graph.py`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.subscriber.injection.markers import MARKS, MISSING, UNCALLED

EMPTY = inspect.Parameter.empty
_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class How(Enum):
    """How a function comes to its value."""

    PLAIN = "plain"
    ASYNC = "async"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async generator"

    @property
    def on_loop(self) -> bool:
        """Whether it has to run on the event loop."""
        return self in (How.ASYNC, How.ASYNC_GENERATOR)

    @property
    def cleans_up(self) -> bool:
        return self in (How.GENERATOR, How.ASYNC_GENERATOR)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `kind` is its type, with all of `Annotated` but our own marks, or `EMPTY`.

    `default` is `MISSING` without one; a default that is a mark is no default.
    """

    name: str
    kind: Any
    mark: Any
    default: Any
    keyword_only: bool


def name_of(function: Any) -> str:
    """What a function is called in errors and logs."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(origin := get_origin(function), type):
        function = origin
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return name.replace("<locals>.", "")


def how_called(function: Any, where: str) -> How:
    """How a dependency is called. Raises `UsageError` for a generator that is wrapped up."""
    target = target_of(function)
    for candidate in (function, target):
        if inspect.isasyncgenfunction(candidate):
            return How.ASYNC_GENERATOR
        if inspect.iscoroutinefunction(candidate):
            return How.ASYNC
        if inspect.isgeneratorfunction(candidate):
            return How.GENERATOR
    inner = inspect.unwrap(target)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(
            f"{where} is decorated, and calling it does not yield; a dependency with clean-up is "
            "the generator itself, so take @contextmanager, or what else it is, off"
        )
    return How.ASYNC if inspect.iscoroutinefunction(inner) else How.PLAIN


def is_async(function: Any) -> bool:
    """Whether calling a handler gives something to await."""
    return inspect.iscoroutinefunction(target_of(function)) or inspect.iscoroutinefunction(function)


def yields(function: Any) -> bool:
    target = target_of(function)
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


def check_plain(what: str, function: Any) -> None:
    """Raise `UsageError` for an async function, or one that yields, where `what` is called for its
    value: nobody would await that."""
    call = type(function).__call__  # of an object that is called
    if is_async(function) or yields(function) or is_async(call):
        raise UsageError(
            f"{what} is a plain function that returns its value, and {name_of(function)} is not: "
            "it is async, or yields"
        )


def parameters_of(function: Any, where: str) -> list[Parameter]:
    """The parameters that have to be filled; `where` begins the errors.

    Raises `UsageError` for a signature or an annotation that can't be read, for a parameter that
    can't be named, and for marks that contradict each other.
    """
    try:
        origin = get_origin(function)
        signature = inspect.signature(origin if isinstance(origin, type) else function)
    except (ValueError, TypeError, NameError) as error:
        raise UsageError(f"{where}: its signature can't be read: {error}") from error
    hints = _hints(function, where)
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        at = f"{where}: parameter {parameter.name!r}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"{at} can't be named, since it is positional-only; take the / away")
        found.append(_read(parameter, hints.get(parameter.name, EMPTY), at))
    return found


def takes_anything(function: Any) -> bool:
    """Whether a function has nothing but `*args` and `**kwargs`, which no value is given to."""
    return inspect.isroutine(function) and {
        each.kind for each in inspect.signature(function).parameters.values()
    } in ({_ARGS}, {_KWARGS}, {_ARGS, _KWARGS})


def without_none(kind: Any) -> tuple[Any, bool]:
    """A type without its None, and whether None was part of it."""
    kind = value_of_alias(kind)
    if get_origin(kind) not in (Union, UnionType):
        return kind, False
    rest = tuple(each for each in get_args(kind) if each is not type(None))
    if len(rest) == len(get_args(kind)):
        return kind, False
    return Union[rest], True  # noqa: UP007 - it is made, not written


def _read(parameter: inspect.Parameter, hint: Any, at: str) -> Parameter:
    default = MISSING if parameter.default is EMPTY else parameter.default
    hint = value_of_alias(hint)
    marks = []
    kind = hint
    if get_origin(hint) is Annotated:
        kind, *metadata = get_args(hint)
        kind = value_of_alias(kind)
        for each in metadata:
            if isinstance(each, MARKS):
                marks.append(each)
            elif mistake := _mistaken(each):
                raise UsageError(f"{at}: {mistake}")
        if rest := tuple(each for each in metadata if not isinstance(each, MARKS)):
            kind = Annotated[(kind, *rest)]  # type: ignore[valid-type, unused-ignore]
    elif get_origin(hint) in (Union, UnionType) and any(map(_has_mark, get_args(hint))):
        raise UsageError(
            f"{at}: the mark belongs around the whole type: Annotated[… | None, Header()]"
        )
    if isinstance(default, MARKS):
        marks.append(default)
        default = MISSING
    elif default is not MISSING and (mistake := _mistaken(default)):
        raise UsageError(f"{at}: {mistake}")
    if len(marks) > 1:
        raise UsageError(f"{at} has more than one mark: {', '.join(map(repr, marks))}")
    mark = marks[0] if marks else None
    if mark is None and (plain := _given_by_type(kind)) is not None:
        kind, mark = plain, _own_mark(plain)
    return Parameter(
        name=parameter.name,
        kind=kind,
        mark=mark,
        default=default,
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
    )


def _given_by_type(kind: Any) -> Any:
    """`Message`, messages of a batch, or a type that has a mark of its own, also where None is
    allowed beside it (so that a handler can be called without it) or something is noted about it;
    otherwise None."""
    while get_origin(kind := value_of_alias(kind)) is Annotated:
        kind = get_args(kind)[0]
    kind = value_of_alias(without_none(kind)[0])
    known = kind is Message or kind == list[Message] or _own_mark(kind) is not None
    return kind if known else None


def _own_mark(kind: Any) -> Any:
    return getattr(kind, "__pumphouse_mark__", None) if isinstance(kind, type) else None


def _has_mark(kind: Any) -> bool:
    kind = value_of_alias(kind)
    return get_origin(kind) is Annotated and any(isinstance(m, MARKS) for m in get_args(kind)[1:])


def _mistaken(value: Any) -> str | None:
    """What someone meant who wrote something near to a mark."""
    try:
        if value in UNCALLED:
            return f"{UNCALLED[value]} is called where it marks: {UNCALLED[value]}()"
    except TypeError:  # it can't be hashed
        return None
    kind = type(value)
    if kind.__name__ in UNCALLED.values() or kind.__name__ == "Dependant":
        return f"{kind.__name__} is that of {kind.__module__}; take the one of pumphouse"
    return None


def value_of_alias(kind: Any) -> Any:
    """What an alias of Python 3.12 (`type X = …`, also `X[int]`) stands for; anything else is
    itself."""
    while type(alias := get_origin(kind) or kind).__name__ == "TypeAliasType":
        of = dict(zip(alias.__type_params__, get_args(kind), strict=False))
        kind = alias.__value__
        if of and (names := getattr(kind, "__parameters__", ())):
            kind = kind[tuple(of.get(name, name) for name in names)]
    return kind


def target_of(function: Any) -> Any:
    """The function behind a callable, where its annotations stand."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(origin := get_origin(function), type):  # Repository[Order]
        return origin
    if isinstance(function, type) or inspect.isroutine(function):
        return function
    return type(function).__call__


def _hints(function: Any, where: str) -> dict[str, Any]:
    target = target_of(function)
    sources = [target]
    if isinstance(target, type):
        init = inspect.getattr_static(target, "__init__")
        sources = [each for each in (target, init) if hasattr(each, "__annotations__")]
    hints: dict[str, Any] = {}
    for source in sources:
        try:
            hints.update(get_type_hints(source, include_extras=True))
        except Exception as error:
            place = _unreadable(source)
            if isinstance(error, UsageError):  # of a mark in it
                raise UsageError(f"{where}: {place}: {error}") from None
            raise UsageError(
                f"{where}: the annotation of {place} can't be read ({type(error).__name__}: "
                f"{error}); it has to be known in the module when the handler is declared, at its "
                "top level and not only for type checkers"
            ) from error
    return hints


def _unreadable(source: Any) -> str:
    """Where the annotation is that can't be read."""
    namespace = getattr(inspect.unwrap(source), "__globals__", None)
    for name, annotation in getattr(source, "__annotations__", {}).items():
        try:
            get_type_hints(SimpleNamespace(__annotations__={name: annotation}), namespace)
        except Exception:
            return "what it returns" if name == "return" else f"parameter {name!r}"
    return "a parameter"


Function = Callable[..., Any]
