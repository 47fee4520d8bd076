"""How a type differs from a shape of AWS's model."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from botocore.model import Shape

from pumphouse.protocol.operations import Done

_PLAIN = {"string": str, "integer": int, "long": int, "boolean": bool, "blob": bytes}


def without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        [kind] = [each for each in typing.get_args(kind) if each is not type(None)]
    return kind


def differences(
    shape: Shape | None,
    kind: Any,
    where: str,
    left_out: Mapping[Any, Collection[str]] | None = None,
) -> list[str]:
    """What differs, one line each; `left_out` are fields by type that are not compared."""
    left_out = left_out or {}
    kind = without_none(kind)
    if shape is None:
        return [] if kind is Done else [f"{where}: {kind} where AWS answers nothing"]
    if shape.type_name == "structure":
        members = {
            field.encode_name: field
            for field in msgspec.structs.fields(kind)
            if field.name not in left_out.get(kind, ())
        }
        found = [f"{where}.{name}: missing" for name in shape.members.keys() - members.keys()]
        found += [f"{where}.{name}: not AWS's" for name in members.keys() - shape.members.keys()]
        for name in shape.members.keys() & members.keys():
            found += differences(
                shape.members[name], members[name].type, f"{where}.{name}", left_out
            )
        return found
    if shape.type_name == "list":
        [item] = typing.get_args(kind)
        return differences(shape.member, item, f"{where}[]", left_out)
    if shape.type_name == "map":
        key, value = typing.get_args(kind)
        return differences(shape.key, key, f"{where}{{key}}", left_out) + differences(
            shape.value, value, f"{where}{{value}}", left_out
        )
    expected = _PLAIN[shape.type_name]
    return [] if kind is expected else [f"{where}: {kind} instead of {expected}"]
