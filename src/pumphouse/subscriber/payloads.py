"""Which reader reads a payload type from JSON, and what it says of a body that does not fit.

msgspec reads its Structs, dataclasses, TypedDicts, collections and plain values; pydantic reads
whatever has something of pydantic in it. Unions are told apart by a tag: that of tagged Structs,
pydantic's discriminator, or a field of one name that is a `Literal` in every dataclass or
TypedDict. Errors name the field, and never repeat a whole body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
import msgspec.inspect

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError

Reader = Callable[[bytes], Any]
_LONGEST_REASON = 300


def reader_for(annotation: Any) -> Reader:
    """A function from JSON to a value of the type; it raises `UndecodableError` for what is not.

    Raises `UsageError` for a type that can't be read.
    """
    pydantic = has_pydantic(annotation)
    try:
        read = _with_pydantic(annotation) if pydantic else _with_msgspec(annotation)
    except Exception as error:  # pydantic's own errors, and those of the types' own code
        reason = " ".join(str(error).split()).partition(". ")[0]
        raise UsageError(
            f"a payload can't be read as {title(annotation)} ({reason}); take bytes, str, dict, a "
            "msgspec Struct, a dataclass, a TypedDict or a pydantic model"
        ) from None
    name, tagged = title(annotation), _tagged(annotation)

    def decode(body: bytes) -> Any:
        try:
            return read(body)
        except (ValueError, TypeError, RecursionError) as error:
            reason = _pydantic_reason(error) if pydantic else str(error)
            if tagged is not None and (tag := tagged(body)) is not None:
                reason = f"{tag}: {reason}"
            reason = " ".join(reason.split())[:_LONGEST_REASON]
            raise UndecodableError(f"the body is no {name}: {reason}") from None

    return decode


def has_pydantic(annotation: Any, _seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a type is one that pydantic has to read: a model of its own, or a type with one, or
    with its `Field`, inside."""
    kind = _bare(annotation)
    if is_pydantic(kind):
        return True
    if get_origin(kind) is Annotated and any(map(_of_pydantic, get_args(kind)[1:])):
        return True
    if any(has_pydantic(each, _seen) for each in get_args(kind) if not isinstance(each, str)):
        return True
    if not isinstance(kind, type) or not _has_fields(kind) or kind in _seen:
        return False
    seen = _seen | {kind}
    return any(has_pydantic(each, seen) for each in _fields(kind).values())


def is_pydantic(kind: Any) -> bool:
    """Whether a class is a model or a dataclass of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def title(kind: Any) -> str:
    """A type as errors name it."""
    kind = _bare(kind)
    if get_origin(kind) is Annotated:
        return title(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(title, get_args(kind)))
    if isinstance(kind, type) and not get_args(kind):
        return "None" if kind is type(None) else kind.__name__
    return re.sub(r"\b[\w.]+\.(?=\w)", "", str(kind).replace("<locals>.", ""))


# --- the two readers ------------------------------------------------------------------------------


def _with_pydantic(annotation: Any) -> Reader:
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise TypeError("it takes pydantic: pip install 'pumphouse[pydantic]'") from None
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        raise TypeError(
            "it is msgspec's, with something of pydantic's inside, and neither reads both"
        )
    if hasattr(annotation, "model_validate_json"):
        read: Reader = annotation.model_validate_json
        return read
    return TypeAdapter(annotation).validate_json


def _with_msgspec(annotation: Any) -> Reader:
    if read := _union_by_literal(annotation):
        return read
    decoder = msgspec.json.Decoder(annotation)
    if strange := _strange_class(msgspec.inspect.type_info(annotation), set()):
        raise TypeError(f"{strange.__name__} is a class of its own")
    return decoder.decode


def _strange_class(info: Any, seen: set[int]) -> type | None:
    """A class that no body can be read as."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if isinstance(info, list | tuple):
        return next(filter(None, (_strange_class(each, seen) for each in info)), None)
    if isinstance(info, msgspec.inspect.Field) and not info.required:
        return None  # its default does
    if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) or id(info) in seen:
        return None
    seen.add(id(info))
    inner = [getattr(info, name) for name in info.__struct_fields__]
    return _strange_class(inner, seen)


def _pydantic_reason(error: Any) -> str:
    """What pydantic found, each with its field and without the value."""
    if not hasattr(error, "errors"):
        return str(error)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for each in found[:3]:
        path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in each["loc"])
        lines.append(f"{path[1:] if path[:1] == '.' else path}: {each['msg']}".removeprefix(": "))
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(lines) + more


# --- unions ---------------------------------------------------------------------------------------


def _union_by_literal(annotation: Any) -> Reader | None:
    """A reader of a union of dataclasses or TypedDicts that have a field to tell them apart by."""
    members = [each for each in _members(annotation) if each is not type(None)]
    if len(members) < 2 or not all(is_dataclass(each) or is_typeddict(each) for each in members):
        return None
    name = next(iter(_shared_literals(members)), None)
    if name is None:
        raise TypeError(
            "nothing tells its members apart; give each a field of one name that is a Literal"
        )
    by_tag = {
        tag: msgspec.json.Decoder(member)
        for member in members
        for tag in _literals(_fields(member)[name])
    }
    tags = _tag_decoder(name, str | int)
    nothing = type(None) in _members(annotation)

    def read(body: bytes) -> Any:
        if nothing and body.strip() == b"null":
            return None
        tag = tags.decode(body).tag
        if tag not in by_tag:
            known = ", ".join(map(repr, by_tag))
            raise ValueError(f"Invalid value {tag!r} - at `$.{name}`, which is one of {known}")
        return by_tag[tag].decode(body)

    return read


def _shared_literals(members: list[Any]) -> Iterator[str]:
    """The fields that are a Literal in every member, with no value in two of them."""
    for name in _fields(members[0]):
        values = [_literals(_fields(member).get(name)) for member in members]
        every = [value for each in values for value in each]
        if all(values) and len(every) == len(set(every)):
            yield name


def _literals(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _tagged(annotation: Any) -> Callable[[bytes], str | None] | None:
    """A function that says which member of a union a body claims to be, in words."""
    members = [each for each in _members(annotation) if each is not type(None)]
    if len(members) < 2:
        return None
    if all(isinstance(each, type) and issubclass(each, msgspec.Struct) for each in members):
        name = members[0].__struct_config__.tag_field
    else:
        objects = all(is_dataclass(each) or is_typeddict(each) for each in members)
        name = next(iter(_shared_literals(members)), None) if objects else None
    if name is None:
        return None
    tags = _tag_decoder(name, Any)

    def tag_of(body: bytes) -> str | None:
        try:
            return f"{name} {tags.decode(body).tag!r:.80}"
        except (msgspec.MsgspecError, RecursionError):
            return None

    return tag_of


def _tag_decoder(name: str, kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct("Tag", [("tag", kind)], rename={"tag": name}))


def _members(annotation: Any) -> tuple[Any, ...]:
    kind = _bare(annotation)
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(member for each in get_args(kind) for member in _members(each))
    return (kind,)


# --- types ----------------------------------------------------------------------------------------


def _bare(kind: Any) -> Any:
    while True:
        if type(kind).__name__ == "TypeAliasType":  # `type X = …` of Python 3.12
            kind = kind.__value__
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return kind


def _of_pydantic(metadata: Any) -> bool:
    return type(metadata).__module__.partition(".")[0] in (
        "pydantic",
        "pydantic_core",
        "annotated_types",
    )


def _has_fields(kind: type) -> bool:
    return is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "__annotations__")


def _fields(kind: Any) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except Exception:  # what reads the type says what is wrong with it
        return {}
