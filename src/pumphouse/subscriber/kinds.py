"""What annotations say about payloads and replies, for those who describe a service.

What a handler takes is decided by its plan, and what becomes of a value that it returned by the
value. Only an empty list does not say whether it is one reply or none (`several`).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec

from pumphouse.subscriber.injection.signatures import target_of, value_of_alias
from pumphouse.subscriber.outcomes import Ack, Drop, Outcome, Reject, Reply, Retry

_OUTCOMES = (Ack, Retry, Drop, Reject)
_UNIONS = (Union, types.UnionType)


@dataclass(frozen=True, slots=True)
class Returns:
    """`types` are those of plain replies, in the order of the annotation; `unknown` that there may
    be others: a `Reply` says nothing of its body, and neither does a missing annotation. `replies`
    is whether a `Reply` is among what is returned, and `several` whether a list or tuple of them
    is."""

    types: tuple[Any, ...] = ()
    unknown: bool = False
    several: bool = False
    replies: bool = False


def is_record(kind: Any) -> bool:
    """Whether a type is a class with fields of its own."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or is_typeddict(kind)
        or hasattr(kind, "__pydantic_validator__")
    )


def same_type(one: Any, other: Any) -> bool:
    """Whether two annotations mean one type."""
    return one is other or (type(one) is type(other) and bool(one == other))


def members_of(kind: Any) -> list[Any]:
    """The members of a union of records; any other type by itself."""
    plain = kind
    while get_origin(plain) is Annotated:
        plain = get_args(plain)[0]
    if get_origin(plain) in _UNIONS and all(map(is_record, get_args(plain))):
        return list(get_args(plain))
    return [kind]


def returns_of(function: Callable[..., Any]) -> Returns:
    """What the replies of a handler are."""
    try:
        annotation = get_type_hints(target_of(function), include_extras=True).get("return", Any)
    except Exception:  # it was read at the declaration, as far as the parameters go
        annotation = Any
    found: list[Any] = []
    unknown = several = replies = False
    for each in _parts(annotation):
        if each is Any or each is object or isinstance(each, TypeVar) or _is_reply(each):
            unknown = True
            replies |= _is_reply(each)
            several |= each is not Reply and _is_reply(each)
        elif each not in found:
            found.append(each)
    return Returns(tuple(found), unknown, several, replies)


def _parts(annotation: Any) -> list[Any]:
    """The members of a union, without what is no reply."""
    annotation = value_of_alias(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = _parts(arguments[0])
        # what it says of the whole union holds only where all of it is a reply
        whole = get_args(arguments[0]) if get_origin(arguments[0]) in _UNIONS else (arguments[0],)
        return inner if len(inner) != len(whole) or any(map(_is_reply, inner)) else [annotation]
    if origin in _UNIONS:
        return [part for argument in arguments for part in _parts(argument)]
    if origin in (Awaitable, Coroutine):
        return _parts(arguments[-1])
    if annotation is None or annotation is types.NoneType:
        return []
    if annotation in _OUTCOMES or annotation == Outcome:
        return []
    if origin is type and arguments and arguments[0] in _OUTCOMES:
        return []
    return [annotation]


def _is_reply(kind: Any) -> bool:
    """A `Reply`, or a list or tuple (or `Sequence`) of them, or of lists of them."""
    kind = value_of_alias(kind)
    if kind is Reply:
        return True
    origin = get_origin(kind)
    if origin in _UNIONS or origin is Annotated:
        return any(map(_is_reply, get_args(kind)))
    return (
        isinstance(origin, type)
        and (issubclass(list, origin) or issubclass(tuple, origin))
        and any(map(_is_reply, get_args(kind)))
    )
