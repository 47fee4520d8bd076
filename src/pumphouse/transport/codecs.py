"""How an event becomes a message body, and a body an event again.

A codec is anything with `encode(event) -> str | bytes` and `decode(body: bytes) -> event`. One is
made from what the events are: `codec_for(None)` is JSON, `codec_for(bytes)` and `codec_for(str)`
leave the body as it is, and `codec_for(Order)` takes a pydantic model, a msgspec struct, or any
type that msgspec reads (dataclasses, TypedDicts, unions of structs).
"""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar, cast

import msgspec

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError

E = TypeVar("E")


class Codec(Protocol[E]):
    """Turns events into bodies and back. An error of either method reaches the caller."""

    def encode(self, event: E, /) -> str | bytes:
        """The body of an event. Bytes that are no text that SQS takes travel as base64."""
        ...

    def decode(self, body: bytes, /) -> E:
        """The event of a body."""
        ...


class JsonCodec:
    """JSON text for what `json` writes: dicts, lists, strings, numbers, booleans and None.

    NaN and the infinities are refused, because JSON has none.
    """

    def encode(self, event: Any, /) -> str:
        try:
            return json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise UsageError(f"the event can't be written as JSON: {error}") from None

    def decode(self, body: bytes, /) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            raise UndecodableError(f"the body is no JSON: {error}") from None


class BytesCodec:
    """Bytes as they are."""

    def encode(self, event: bytes, /) -> bytes:
        if not isinstance(event, bytes | bytearray | memoryview):
            raise UsageError(f"the event is {type(event).__name__}, and the codec takes bytes")
        return bytes(event)

    def decode(self, body: bytes, /) -> bytes:
        return body


class TextCodec:
    """Text as it is."""

    def encode(self, event: str, /) -> str:
        if not isinstance(event, str):
            raise UsageError(f"the event is {type(event).__name__}, and the codec takes str")
        return event

    def decode(self, body: bytes, /) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise UndecodableError(f"the body is no UTF-8 text: {error}") from None


class StructCodec:
    """JSON for a type that msgspec reads and checks."""

    def __init__(self, kind: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(kind)

    def encode(self, event: Any, /) -> bytes:
        try:
            return self._encoder.encode(event)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the event can't be written as JSON: {error}") from None

    def decode(self, body: bytes, /) -> Any:
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise UndecodableError(f"the body is not what was expected: {error}") from None


class PydanticCodec:
    """JSON for a pydantic model, written and checked by pydantic."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def encode(self, event: Any, /) -> str:
        if not isinstance(event, self._model):
            raise UsageError(
                f"the event is {type(event).__name__}, and the codec takes {self._model.__name__}"
            )
        return cast(str, event.model_dump_json())

    def decode(self, body: bytes, /) -> Any:
        try:
            return self._model.model_validate_json(body)
        except ValueError as error:
            raise UndecodableError(f"the body is not what was expected: {error}") from None


def codec_for(events: Any) -> Codec[Any]:
    """The codec for what the events are: None (JSON), a type, or a codec, which is taken as it is.

    Raises `UsageError` for what is none of these.
    """
    if events is None:
        return JsonCodec()
    if events is bytes:
        return BytesCodec()
    if events is str:
        return TextCodec()
    if not isinstance(events, type) and hasattr(events, "encode") and hasattr(events, "decode"):
        return cast("Codec[Any]", events)
    if hasattr(events, "model_validate_json"):
        return PydanticCodec(events)
    try:
        return StructCodec(events)
    except TypeError as error:
        raise UsageError(
            f"no codec for {events!r}: {error}; pass a pydantic model, a type that msgspec reads, "
            "bytes, str, or an object with encode and decode"
        ) from None
