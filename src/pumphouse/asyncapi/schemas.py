"""JSON Schema of payload types, as an AsyncAPI document has it.

msgspec describes what it reads, pydantic what it reads. Classes go into the components, each once,
also where both describe it, as a TypedDict that is a payload and inside of a model as well. A class
stands under its name, or with its module where two classes have one name. Both libraries write JSON
Schema 2020-12, and AsyncAPI is read as draft 07: what differs is rewritten here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
import msgspec.inspect

from pumphouse.asyncapi.plain import plain, plain_values
from pumphouse.subscriber.kinds import same_type
from pumphouse.subscriber.payloads import has_pydantic

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/"
_EMPTY = inspect.Parameter.empty
_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf")
_ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not")
_ONE_MORE = ("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties")
_SHARED = (
    msgspec.inspect.DataclassType,
    msgspec.inspect.TypedDictType,
    msgspec.inspect.NamedTupleType,
    msgspec.inspect.EnumType,
)
_SCHEMAS = frozenset((*_ONE, *_ONE_MORE))


@dataclass(slots=True)
class Schemas:
    """The schemas of some types, and the components that they refer to.

    A type that no schema can be made for is described by the empty schema, which is that of
    anything.
    """

    components: dict[str, Schema] = field(default_factory=dict)
    _made: list[tuple[Any, Schema]] = field(default_factory=list)

    def of(self, kind: Any) -> Schema:
        """The schema of one of the types."""
        return next((dict(schema) for known, schema in self._made if same_type(known, kind)), {})

    def add(
        self,
        kinds: list[Any],
        schemas: list[Schema],
        components: dict[str, Schema],
        known: dict[str, str],
    ) -> None:
        """Take the schemas of some types in. A component whose name is taken gets another; `known`
        are names for components that are here under another one."""
        names = dict(known)
        for name in components:
            free, count = name, 1
            while free in self.components:
                count += 1
                free = f"{name}-{count}"
            names[name] = free
        for name, component in components.items():
            self.components[names[name]] = _renamed(component, names)
        self._made += zip(kinds, (_renamed(schema, names) for schema in schemas), strict=True)


def schemas_of(kinds: Iterable[Any]) -> Schemas:
    """The schemas of types: those of payloads and headers."""
    found = Schemas()
    distinct: list[Any] = []
    for kind in kinds:
        if not any(same_type(kind, known) for known in distinct):
            distinct.append(kind)
    of_msgspec, of_pydantic = [], []
    for kind in distinct:
        if kind is _EMPTY or kind is str:
            found.add([kind], [{"type": "string"}], {}, {})
        elif kind is bytes:
            found.add([kind], [{"type": "string", "format": "binary"}], {}, {})
        elif kind is Any or kind is None:
            found.add([kind], [{}], {}, {})
        elif has_pydantic(kind):
            of_pydantic.append(kind)
        else:
            of_msgspec.append(kind)
    named = _add_msgspec(found, of_msgspec)
    if of_pydantic:
        _add_pydantic(found, of_pydantic, named)
    return found


def _add_msgspec(found: Schemas, kinds: list[Any]) -> list[tuple[Any, str]]:
    """Describe types with msgspec; return the classes in them, each with its component."""
    kinds = [kind for kind in kinds if _describes(_msgspec, [kind])]
    classes: list[Any] = []
    for each in _classes_in(msgspec.inspect.multi_type_info(kinds), set()):
        if not any(same_type(each, other) for other in classes):
            classes.append(each)
    schemas, components = _msgspec([*kinds, *classes])
    found.add(kinds, schemas[: len(kinds)], components, {})
    return list(zip(classes, map(_component_of, schemas[len(kinds) :]), strict=True))


def _classes_in(info: Any, seen: set[int]) -> Iterator[Any]:
    """The classes that msgspec puts into components and that pydantic could describe as well."""
    if isinstance(info, list | tuple):
        for each in info:
            yield from _classes_in(each, seen)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        if isinstance(info, _SHARED):
            yield info.cls
        for name in info.__struct_fields__:
            yield from _classes_in(getattr(info, name), seen)


def _msgspec(kinds: list[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    schemas, components = msgspec.json.schema_components(
        kinds, schema_hook=lambda kind: {}, ref_template=REFERENCE + "{name}"
    )
    return [draft7(each) for each in schemas], _all_draft7(components)


def _add_pydantic(found: Schemas, kinds: list[Any], named: list[tuple[Any, str]]) -> None:
    """Describe types with pydantic, but for the classes in them that have a component already. It
    is asked about those as well, as only its answer says what it calls them."""
    kinds = [kind for kind in kinds if _describes(_pydantic, [kind])]
    named = [each for each in named if _describes(_pydantic, [each[0]])]
    schemas, components = _pydantic([*kinds, *(kind for kind, _ in named)])
    known = {
        _component_of(schema): component
        for schema, (_, component) in zip(schemas[len(kinds) :], named, strict=True)
    }
    wanted = _referred(schemas[: len(kinds)], components, known.keys())
    found.add(
        kinds,
        schemas[: len(kinds)],
        {name: component for name, component in components.items() if name in wanted},
        known,
    )


def _component_of(schema: Schema) -> str:
    """The component that a schema is a reference to, or ""."""
    return str(schema.get("$ref", "")).removeprefix(REFERENCE)


def _referred(
    schemas: list[Schema], components: dict[str, Schema], but: Collection[str]
) -> set[str]:
    """The components that schemas refer to, by others as well, without some."""
    found: set[str] = set()
    new: list[Any] = list(schemas)
    while new:
        each = new.pop()
        if isinstance(each, list):
            new += each
        elif isinstance(each, dict):
            new += each.values()
            name = _component_of(each) if isinstance(each.get("$ref"), str) else ""
            if name in components and name not in but and name not in found:
                found.add(name)
                new.append(components[name])
    return found


def _pydantic(kinds: list[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    from pydantic import TypeAdapter

    asked = [(place, "validation", TypeAdapter(kind)) for place, kind in enumerate(kinds)]
    schemas, definitions = TypeAdapter.json_schemas(
        asked,  # type: ignore[arg-type, unused-ignore]
        ref_template=REFERENCE + "{model}",
    )
    return [draft7(schemas[place, "validation"]) for place in range(len(kinds))], _all_draft7(
        definitions.get("$defs", {})
    )


def _describes(describe: Any, kinds: list[Any]) -> bool:
    try:
        describe(kinds)
    except Exception:  # each library has its own for types that have no schema
        return False
    return True


# --- draft 07 -------------------------------------------------------------------------------------


def _all_draft7(components: dict[str, Schema]) -> dict[str, Schema]:
    return {name: draft7(component) for name, component in components.items()}


def draft7(schema: Any) -> Any:
    """A schema of 2020-12 as one of draft 07, without anything in its words that tells where a
    service runs. Tuples are `items` and `additionalItems`; a `discriminator` that is an object is
    left out, as the members of its union tell themselves apart by their constants."""
    if not isinstance(schema, dict):
        return schema
    found: Schema = {}
    for key, value in schema.items():
        if key in _MAPS:
            found[key] = _all_draft7(value)
        elif key in _LISTS:
            found[key] = [draft7(each) for each in value]
        elif key in _SCHEMAS:
            found[key] = draft7(value)
        elif key in ("description", "title") and isinstance(value, str):
            found[key] = plain(value)
        elif key in ("default", "examples"):
            found[key] = plain_values(value)
        elif key == "prefixItems" or (key == "discriminator" and isinstance(value, dict)):
            continue
        else:
            found[key] = value
    if "prefixItems" in schema:
        rest = found.pop("items", None)
        if schema["prefixItems"]:
            found["items"] = [draft7(each) for each in schema["prefixItems"]]
            if rest is not None:
                found["additionalItems"] = rest
        elif rest not in (None, False):
            found["items"] = rest
    return found


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    """A schema whose references follow components to their names."""
    if isinstance(schema, list):
        return [_renamed(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _renamed(value, names) for key, value in schema.items()}
    reference = found.get("$ref")
    if isinstance(reference, str) and reference.startswith(REFERENCE):
        name = reference.removeprefix(REFERENCE)
        found["$ref"] = REFERENCE + names.get(name, name)
    return found


def name_of(kind: Any) -> str:
    """What a type is called in the document: letters, digits, `_`, `.` and `-`."""
    if kind is _EMPTY or kind is str:
        return "text"
    if kind is Any or kind is None:
        return "message"
    if isinstance(kind, type) and not get_args(kind):
        name = kind.__name__
    else:
        name = re.sub(r"\b(?:\w+\.)+(\w)", r"\1", str(kind))
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.") or "message"
