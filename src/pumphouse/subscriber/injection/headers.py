"""Headers as handlers ask for them: from a message attribute to a value of the parameter's type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
import msgspec.inspect as known

from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.protocol.attributes import attribute_name_fault
from pumphouse.protocol.operations import Attributes, MessageAttributeValue
from pumphouse.subscriber.injection.markers import MISSING
from pumphouse.subscriber.injection.signatures import EMPTY, without_none

_READABLE = (
    *(known.IntType, known.FloatType, known.BoolType, known.StrType, known.EnumType),
    *(known.LiteralType, known.UUIDType, known.DecimalType),
    *(known.DateTimeType, known.DateType, known.TimeType, known.TimeDeltaType),
)


@dataclass(frozen=True, slots=True)
class HeaderNeed:
    """A header that a handler, or a dependency of it, asks for.

    `kind` is the type that it is read as, `default` what stands for it when it is missing, or
    `MISSING`: then a message without it is undecodable.
    """

    name: str
    kind: Any
    default: Any = MISSING

    @property
    def required(self) -> bool:
        return self.default is MISSING


def header_need(name: str, kind: Any, default: Any, where: str) -> HeaderNeed:
    """What a parameter asks for. Raises `UsageError` for a type that no header can be read as, and
    for a name that no message can have a header of."""
    if fault := attribute_name_fault(name):
        raise UsageError(f"{where}: no message can have a header {name!r}, as its name {fault}")
    kind, optional = without_none(str if kind is EMPTY else kind)
    if default is MISSING and optional:
        default = None
    if kind is not bytes and set(get_args(kind)) != {str, bytes}:
        try:
            fine = _is_readable(known.type_info(kind))
        except TypeError:
            fine = False
        if not fine:
            raise UsageError(
                f"{where} is a header, and a header can't be read as {kind!r}; take str, bytes, "
                "int, float, bool, an enum, a Literal, UUID, Decimal, or a date or time"
            )
    return HeaderNeed(name, kind, default)


def _is_readable(info: known.Type) -> bool:
    if isinstance(info, known.UnionType):
        return all(map(_is_readable, info.types))
    if isinstance(info, known.Metadata):
        return _is_readable(info.type)
    return isinstance(info, _READABLE)


def header_reader(needs: Sequence[HeaderNeed]) -> Callable[[Attributes | None], tuple[Any, ...]]:
    """A function that reads all of them from the attributes of a message, in order.

    It raises `UndecodableError`, which names the header, for one that is missing or that can't be
    read as its type. The value is not in the error, as it may be a secret.
    """
    readers = [_reader(need) for need in needs]
    if len(readers) == 1:
        (only,) = readers
        return lambda attributes: (only(attributes),)
    return lambda attributes: tuple([read(attributes) for read in readers])


def _reader(need: HeaderNeed) -> Callable[[Attributes | None], Any]:
    name, default, plain = need.name, need.default, need.kind is str
    convert = _converter(need)

    def read(attributes: Attributes | None) -> Any:
        if attributes is None or (attribute := attributes.get(name)) is None:
            if default is MISSING:
                raise UndecodableError(f"header {name!r} is missing")
            return default
        if plain and attribute.binary_value is None:
            return attribute.string_value or ""
        return convert(attribute)

    return read


def _converter(need: HeaderNeed) -> Callable[[MessageAttributeValue], Any]:
    kind, name = need.kind, need.name
    if kind is str:
        return lambda attribute: _text(attribute, name)
    if kind is bytes:
        return _bytes
    if set(get_args(kind)) == {str, bytes}:
        return _as_sent

    def convert(attribute: MessageAttributeValue) -> Any:
        try:
            return msgspec.convert(_text(attribute, name), kind, strict=False)
        except msgspec.ValidationError:
            title = getattr(kind, "__name__", None) or str(kind)
            raise UndecodableError(f"header {name!r} can't be read as {title}") from None

    return convert


def _text(attribute: MessageAttributeValue, name: str) -> str:
    data = attribute.binary_value
    if data is None:
        return attribute.string_value or ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UndecodableError(f"header {name!r} is Binary and no text; take it as bytes") from None


def _bytes(attribute: MessageAttributeValue) -> bytes:
    data = attribute.binary_value
    return (attribute.string_value or "").encode() if data is None else data


def _as_sent(attribute: MessageAttributeValue) -> str | bytes:
    data = attribute.binary_value
    return (attribute.string_value or "") if data is None else data
