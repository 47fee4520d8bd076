"""SQS's older query protocol, the served side: forms become operations, results become XML.

Older SDKs speak it, and so does a browser or curl. A request is a form (or a query string) of
dotted names such as `SendMessageBatchRequestEntry.1.MessageBody`; an answer is an XML document in
the namespace of API version 2012-11-05 ("Making query API requests" in the developer guide). How a
field is spelled is derived from the operation's type. Lists and
maps may come flattened, as AWS documents them, or under `member` and `entry`.
"""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, structs

from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    DONE,
    SQS_OPERATIONS,
    Operation,
    ReceivedMessage,
    ReceiveMessage,
    Result,
)
from pumphouse.protocol.query import (
    READ,
    SHAPES,
    WRITE,
    Tree,
    action_of,
    error_document,
    escape,
    in_order,
    invalid_action,
    parse_form,
    read_text,
)
from pumphouse.protocol.sqs_json import missing_parameter

CONTENT_TYPE = "text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

# --- how fields are spelled ---------------------------------------------------------------------


class _Member(NamedTuple):
    """A field of a structure: its names on the wire, and what it holds.

    `shape` is "text", "integer", "flag", "blob", "list" or "map"; `inner` is the shape or the
    structure of a list's elements and of a map's values.
    """

    field: str
    name: str
    element: str  # the name of one element of a list or a map
    shape: str
    inner: str | type[Struct]
    required: bool
    key: str  # what a map's entries call their key


_ELEMENTS = {"Actions": "ActionName"}
_STRUCTURES: dict[type[Struct], str] = {ReceivedMessage: "Message"}


@functools.cache
def _members(kind: type[Struct]) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    return tuple(_member(field, hints[field.name]) for field in structs.fields(kind))


def _member(field: structs.FieldInfo, hint: Any) -> _Member:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    name = field.encode_name
    element = _ELEMENTS.get(name) or (name[0].upper() + name[1:]).removesuffix("s")
    key = "Key" if element == "Tag" else "Name"
    if (origin := get_origin(hint)) is None:
        return _Member(field.name, name, element, SHAPES[hint], "", required, key)
    inner = get_args(hint)[-1]
    if inner in SHAPES:
        inner = SHAPES[inner]
    elif origin is list:
        element = _STRUCTURES.get(inner) or str(inner.__name__)
    shape = "list" if origin is list else "map"
    return _Member(field.name, name, element, shape, inner, required, key)


# --- requests -----------------------------------------------------------------------------------


def decode_request(form: bytes, queue_url: str = "") -> Operation[Any]:
    """The operation that a form asks for; `queue_url` stands where the form names no queue.

    Raises the fault that AWS answers with: `InvalidAction`, `MissingParameter`,
    `InvalidParameterValue`, `MalformedQueryString`.
    """
    tree = parse_form(form)
    action = action_of(tree)
    kind = SQS_OPERATIONS.get(action)
    if kind is None:
        raise invalid_action(action)
    if queue_url:
        tree.setdefault("QueueUrl", queue_url)
    operation = cast("Operation[Any]", _structure(kind, tree, ""))
    if isinstance(operation, ReceiveMessage) and operation.attribute_names:
        # As recorded from AWS: here the older of the two lists wins.
        return structs.replace(operation, message_system_attribute_names=None)
    return operation


def _structure(kind: type[Struct], tree: Tree, path: str) -> Struct:
    values: dict[str, Any] = {}
    for member in _members(kind):
        value = _value(member, tree, path)
        if value is not None:
            values[member.field] = value
        elif member.required:
            raise missing_parameter(path + member.name)
    return kind(**values)


def _value(member: _Member, tree: Tree, path: str) -> Any:
    """What a form holds for a field; None where it holds nothing."""
    if member.shape not in ("list", "map"):
        text = tree.get(member.name)
        return None if text is None else READ[member.shape](text, path + member.name)
    node = tree.get(member.element)
    if node is None and (node := tree.get(member.name)) is None:
        # A batch without entries is for the service to refuse.
        return [] if member.required and member.shape == "list" else None
    if node == "":  # how an empty list is written
        node = {}
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path}{member.element} is no list.")
    if isinstance(wrapped := node.get("member", node.get("entry")), dict):
        node = wrapped
    items = []
    for index in in_order(node):
        name = f"{path}{member.element}.{index}"
        items.append(
            _entry(member, node[index], name)
            if member.shape == "map"
            else _item(member.inner, node[index], name)
        )
    return dict(items) if member.shape == "map" else items


def _entry(member: _Member, node: Tree | str, path: str) -> tuple[str, Any]:
    """One entry of a map: `Attribute.1.Name` and `Attribute.1.Value`."""
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path} is no entry of a map.")
    key = node.get(member.key, node.get("key"))
    if key is None:
        raise missing_parameter(f"{path}.{member.key}")
    value = node.get("Value", node.get("value"))
    if value is None:
        raise missing_parameter(f"{path}.Value")
    return read_text(key, f"{path}.{member.key}"), _item(member.inner, value, f"{path}.Value")


def _item(inner: str | type[Struct], node: Tree | str, path: str) -> Any:
    if isinstance(inner, str):
        return READ[inner](node, path)
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path} is no structure.")
    return _structure(inner, node, path + ".")


# --- answers ------------------------------------------------------------------------------------


def encode_answer(action: str, result: Result, request_id: str) -> bytes:
    """The XML document for a result."""
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">']
    if result is not DONE and _members(type(result)):
        parts.append(f"<{action}Result>")
        _write(parts, result)
        parts.append(f"</{action}Result>")
    parts.append(
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        f"</{action}Response>"
    )
    return "".join(parts).encode()


def _write(parts: list[str], value: Struct) -> None:
    for member in _members(type(value)):
        content = getattr(value, member.field)
        if content is None:
            continue
        if member.shape == "list":
            for item in content:
                _element(parts, member.element, member.inner, item)
        elif member.shape == "map":
            for key, item in content.items():
                parts.append(f"<{member.element}><{member.key}>{escape(key)}</{member.key}>")
                _element(parts, "Value", member.inner, item)
                parts.append(f"</{member.element}>")
        else:
            _element(parts, member.name, member.shape, content)


def _element(parts: list[str], name: str, inner: str | type[Struct], content: Any) -> None:
    if isinstance(inner, str):
        parts.append(f"<{name}>{WRITE[inner](content)}</{name}>")
    else:
        parts.append(f"<{name}>")
        _write(parts, content)
        parts.append(f"</{name}>")


def encode_error(error: ServiceError, request_id: str) -> bytes:
    """The XML document for an error, worded as the query protocol words it."""
    return error_document(error, request_id, NAMESPACE, "<Detail/>")
