"""From the bytes of a body to what a handler's annotation asks for, and from a value to a body.

`bytes` is the body as it was sent, `str` (and no annotation at all) its text; every other type is
read from JSON (`payloads.py`). A body that is not what the type says raises `UndecodableError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, is_typeddict

import msgspec

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.subscriber.payloads import is_pydantic, reader_for

Decoder = Callable[[bytes], Any]
Encoder = Callable[[Any], str | bytes]


def decoder_for(annotation: Any) -> Decoder:
    """A function from bytes to the annotated type. Raises `UsageError` for a type that no decoder
    knows."""
    if annotation is bytes:
        return _as_is
    if annotation is str or annotation is inspect.Parameter.empty:
        return _text
    return reader_for(annotation)


def encoder_for(annotation: Any) -> Encoder:
    """A function that checks a value against a type and makes a body of it, which `decoder_for` the
    same type reads again. It raises `UsageError` for a value that is not of the type, naming what
    is wrong with it; and so does this one for a type that no decoder knows.
    """
    if annotation is Any or annotation is inspect.Parameter.empty:
        return encode_reply
    read = decoder_for(annotation)
    as_json = annotation not in (str, bytes)
    name = getattr(annotation, "__name__", None) or str(annotation)
    kinds: tuple[type, ...] = ()
    if isinstance(annotation, type) and not is_typeddict(annotation):
        kinds = _ALSO.get(annotation, (annotation,))

    def encode(value: Any) -> str | bytes:
        if kinds and not isinstance(value, kinds):
            raise UsageError(f"it takes {name}, not {type(value).__name__}")
        body = _json(value) if as_json else encode_reply(value)
        try:
            read(body.encode(errors="surrogatepass") if isinstance(body, str) else body)
        except UndecodableError as error:
            raise UsageError(str(error)) from None
        return body

    return encode


_ALSO: dict[Any, tuple[type, ...]] = {
    float: (float, int),
    bytes: (bytes, bytearray, memoryview),
}


def encode_reply(body: object) -> str | bytes:
    """A reply as a body: text and bytes as they are, everything else as JSON.

    Raises `UsageError` for what can't be written as JSON.
    """
    if isinstance(body, str | bytes):
        return body
    return bytes(body) if isinstance(body, bytearray | memoryview) else _json(body)


def _json(value: object) -> str | bytes:
    try:
        if _is_pydantic_model(type(value)):
            return str(value.model_dump_json(by_alias=True, warnings="error"))  # type: ignore[attr-defined]
        if is_pydantic(type(value)):
            from pydantic import TypeAdapter

            return TypeAdapter(type(value)).dump_json(value, by_alias=True, warnings="error")
        return msgspec.json.encode(value, enc_hook=_inner)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"a value of type {type(value).__name__} can't be written as JSON: {reason}"
        ) from error


def _inner(value: object) -> object:
    """A pydantic model inside of something else."""
    if _is_pydantic_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, warnings="error")  # type: ignore[attr-defined]
    raise TypeError(f"{type(value).__name__} is not supported")


def _as_is(body: bytes) -> bytes:
    return body


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the body is no text: {error}") from None


def _is_pydantic_model(kind: Any) -> bool:
    return is_pydantic(kind) and hasattr(kind, "model_validate_json")
