"""From the bytes of a body to what a handler's annotation asks for, and from a reply to a body.

`bytes` is the body as it was sent, `str` (and no annotation at all) its text; every other type is
read from JSON: msgspec reads dicts, lists, numbers, Structs, dataclasses, TypedDicts and unions of
them, pydantic its own models. A body that is not what the type says raises `UndecodableError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import msgspec.inspect

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError

Decoder = Callable[[bytes], Any]


def decoder_for(annotation: Any) -> Decoder:
    """A function from bytes to the annotated type. Raises `UsageError` for a type that no decoder
    knows."""
    if annotation is bytes:
        return _as_is
    if annotation is str or annotation is inspect.Parameter.empty:
        return _text
    if _is_pydantic_model(annotation):
        return _guard(annotation.model_validate_json, annotation)
    if _is_pydantic_dataclass(annotation):
        from pydantic import TypeAdapter

        return _guard(TypeAdapter(annotation).validate_json, annotation)
    try:
        decoder = msgspec.json.Decoder(annotation)
        if isinstance(msgspec.inspect.type_info(annotation), msgspec.inspect.CustomType):
            raise TypeError("a class of its own")
    except TypeError as error:
        raise UsageError(
            f"a payload can't be read as {annotation!r} ({error}); take bytes, str, dict, a "
            "msgspec Struct, a dataclass or a pydantic model"
        ) from None
    return _guard(decoder.decode, annotation)


def encode_reply(body: object) -> str | bytes:
    """A reply as a body: text and bytes as they are, everything else as JSON.

    Raises `UsageError` for what can't be written as JSON.
    """
    if isinstance(body, str | bytes):
        return body
    if _is_pydantic_model(type(body)):
        return str(body.model_dump_json())  # type: ignore[attr-defined]
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError) as error:
        raise UsageError(f"a reply of type {type(body).__name__} is no JSON: {error}") from error


def _as_is(body: bytes) -> bytes:
    return body


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the body is no text: {error}") from None


def _guard(read: Callable[[bytes], Any], annotation: Any) -> Decoder:
    name = getattr(annotation, "__name__", None) or str(annotation)

    def decode(body: bytes) -> Any:
        try:
            return read(body)
        except (ValueError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:300]
            raise UndecodableError(f"the body is no {name}: {reason}") from None

    return decode


def _is_pydantic_model(kind: Any) -> bool:
    return (
        isinstance(kind, type)
        and hasattr(kind, "__pydantic_validator__")
        and hasattr(kind, "model_validate_json")
    )


def _is_pydantic_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")
