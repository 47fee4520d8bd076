"""SQS's older query protocol, the served side: forms become operations, results become XML.

Older SDKs speak it, and so does a browser or curl. A request is a form (or a query string) of
dotted names such as `SendMessageBatchRequestEntry.1.MessageBody`; an answer is an XML document in
the namespace of API version 2012-11-05 ("Making query API requests" in the developer guide). How a
field is spelled is derived from the operation's type. Lists and
maps may come flattened, as AWS documents them, or under `member` and `entry`.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from msgspec import NODEFAULT, Struct, structs

from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault, lookup
from pumphouse.protocol.operations import (
    DONE,
    SQS_OPERATIONS,
    Operation,
    ReceivedMessage,
    ReceiveMessage,
    Result,
)
from pumphouse.protocol.sqs_json import missing_parameter

CONTENT_TYPE = "text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
MAX_FIELDS = 20_000
MAX_DEPTH = 8

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")

Tree = dict[str, "Tree | str"]


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


_SCALARS = {str: "text", int: "integer", bool: "flag", bytes: "blob"}
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
        return _Member(field.name, name, element, _SCALARS[hint], "", required, key)
    inner = get_args(hint)[-1]
    if inner in _SCALARS:
        inner = _SCALARS[inner]
    elif origin is list:
        element = _STRUCTURES.get(inner, inner.__name__)
    shape = "list" if origin is list else "map"
    return _Member(field.name, name, element, shape, inner, required, key)


# --- requests -----------------------------------------------------------------------------------


def decode_request(form: bytes, queue_url: str = "") -> Operation[Any]:
    """The operation that a form asks for; `queue_url` stands where the form names no queue.

    Raises the fault that AWS answers with: `InvalidAction`, `MissingParameter`,
    `InvalidParameterValue`, `MalformedQueryString`.
    """
    try:
        pairs = parse_qsl(
            form.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError:
        raise fault("MalformedQueryString", "The query string contains a syntax error.") from None
    tree = _tree(pairs)
    action = tree.get("Action")
    if not action:
        raise fault("MissingAction", "The request must contain the parameter Action.")
    kind = SQS_OPERATIONS.get(action) if isinstance(action, str) else None
    if kind is None:
        name = action if isinstance(action, str) else "Action"
        raise fault("InvalidAction", f"The action {name} is not valid for this endpoint.")
    if queue_url:
        tree.setdefault("QueueUrl", queue_url)
    operation = cast("Operation[Any]", _structure(kind, tree, ""))
    if isinstance(operation, ReceiveMessage) and operation.attribute_names:
        # As recorded from AWS: here the older of the two lists wins.
        return structs.replace(operation, message_system_attribute_names=None)
    return operation


def _tree(pairs: Iterable[tuple[str, str]]) -> Tree:
    """Dotted names as nested dictionaries. A name that is both text and branch is a fault."""
    root: Tree = {}
    for name, value in pairs:
        parts = name.split(".", MAX_DEPTH)
        node = root
        for part in parts[:-1]:
            child = node.setdefault(part, {})
            if isinstance(child, str):
                raise _ambiguous(name)
            node = child
        if isinstance(node.get(parts[-1]), dict):
            raise _ambiguous(name)
        node[parts[-1]] = value
    return root


def _ambiguous(name: str) -> ServiceError:
    return fault("MalformedQueryString", f"The parameter {name} is given in two forms.")


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
        return None if text is None else _READ[member.shape](text, path + member.name)
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
    for index in sorted(node, key=_index):
        name = f"{path}{member.element}.{index}"
        items.append(
            _entry(member, node[index], name)
            if member.shape == "map"
            else _item(member.inner, node[index], name)
        )
    return dict(items) if member.shape == "map" else items


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise fault("MalformedQueryString", f"{text} is no index of a list.")
    return int(text)


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
    return _text(key, f"{path}.{member.key}"), _item(member.inner, value, f"{path}.Value")


def _item(inner: str | type[Struct], node: Tree | str, path: str) -> Any:
    if isinstance(inner, str):
        return _READ[inner](node, path)
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path} is no structure.")
    return _structure(inner, node, path + ".")


def _text(node: Tree | str, name: str) -> str:
    if isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {name} has parts and takes none.")
    return node


def _integer(node: Tree | str, name: str) -> int:
    text = _text(node, name)
    if not _INTEGER.fullmatch(text):
        raise fault(
            "InvalidParameterValue",
            f"Value {text} for parameter {name} is invalid. Reason: Must be an integer.",
        )
    return int(text)


def _blob(node: Tree | str, name: str) -> bytes:
    try:
        return base64.b64decode(_text(node, name), validate=True)
    except (binascii.Error, ValueError):
        raise fault(
            "InvalidParameterValue",
            f"Value for parameter {name} is invalid. Reason: Must be base64.",
        ) from None


_READ: dict[str, Callable[[Tree | str, str], Any]] = {
    "text": _text,
    "integer": _integer,
    "blob": _blob,
}


# --- answers ------------------------------------------------------------------------------------

_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}


def _escape(text: str) -> str:
    """Text for XML; what XML 1.0 can't hold at all (in an echo, say) becomes U+FFFD."""
    return _SPECIAL.sub(lambda found: _ESCAPED.get(found[0], "\ufffd"), text)


_WRITE: dict[str, Callable[[Any], str]] = {
    "text": _escape,
    "integer": str,
    "flag": lambda value: "true" if value else "false",
    "blob": lambda value: base64.b64encode(value).decode(),
}


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
                parts.append(f"<{member.element}><{member.key}>{_escape(key)}</{member.key}>")
                _element(parts, "Value", member.inner, item)
                parts.append(f"</{member.element}>")
        else:
            _element(parts, member.name, member.shape, content)


def _element(parts: list[str], name: str, inner: str | type[Struct], content: Any) -> None:
    if isinstance(inner, str):
        parts.append(f"<{name}>{_WRITE[inner](content)}</{name}>")
    else:
        parts.append(f"<{name}>")
        _write(parts, content)
        parts.append(f"</{name}>")


def encode_error(error: ServiceError, request_id: str) -> bytes:
    """The XML document for an error, worded as the query protocol words it."""
    row = lookup(error.code)
    message = error.message
    if row is not None and row.query_message and message == row.message:
        message = row.query_message
    blame = "Sender" if error.sender_fault else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{blame}</Type>'
        f"<Code>{_escape(error.query_code)}</Code><Message>{_escape(message)}</Message><Detail/>"
        f"</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()
