"""From the bytes of a body to what a handler's annotation asks for, and from a value to a body.

`bytes` is the body as it was sent, `str` (and no annotation at all) its text; every other type is
read from JSON (`payloads.py`). A body that is not what the type says raises `UndecodableError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, is_typeddict

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.sink.outgoing import as_json, encode_body
from pumphouse.subscriber.payloads import reader_for, title

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
    plain = annotation in (str, bytes)
    name = title(annotation)
    kinds: tuple[type, ...] = ()
    if isinstance(annotation, type) and not is_typeddict(annotation):
        kinds = _ALSO.get(annotation, (annotation,))

    def encode(value: Any) -> str | bytes:
        if kinds and not isinstance(value, kinds):
            raise UsageError(f"it takes {name}, not {type(value).__name__}")
        body = encode_body(value) if plain else as_json(value)
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
    return b"null" if body is None else encode_body(body)


def _as_is(body: bytes) -> bytes:
    return body


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UndecodableError(f"the body is no text: {error}") from None
