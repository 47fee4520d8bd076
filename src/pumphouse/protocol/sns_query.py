"""SNS's query protocol, in both directions: forms and XML, written and read.

The client's side is `encode_request` and `decode_answer`, the served side `decode_request`,
`encode_answer` and `encode_error` ("Making a query request" in the API reference, and Smithy's
awsQuery). Lists stand under `member`, maps under `entry`; how a field is spelled is derived from
the type that holds it. XML from outside is read without declarations of documents or entities, and
with bounds on depth and number. HTTP itself, signatures and retries are left to `http/` and
`server/`.
"""

from __future__ import annotations

import base64
import binascii
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import quote_plus

from msgspec import NODEFAULT, Struct, structs

from pumphouse.errors import ServiceError, UsageError
from pumphouse.protocol.attributes import plain
from pumphouse.protocol.faults import fault, from_answer
from pumphouse.protocol.operations import DONE, Done, MessageAttributeValue, Operation, Result
from pumphouse.protocol.query import (
    READ,
    SHAPES,
    WRITE,
    Tree,
    action_of,
    error_document,
    in_order,
    invalid_action,
    parse_form,
    read_text,
)
from pumphouse.protocol.sns_operations import (
    OUTSIDE_THE_MODEL,
    SNS_OPERATIONS,
    PublishBatchResult,
)
from pumphouse.protocol.sqs_json import unexpected
from pumphouse.protocol.xml_reader import BadXmlError, Element, read_xml

R = TypeVar("R")

CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
ANSWER_TYPE = "text/xml"
VERSION = "2010-03-31"
NAMESPACE = f"http://sns.amazonaws.com/doc/{VERSION}/"


# --- how fields are spelled ---------------------------------------------------------------------


class _Member(NamedTuple):
    """A field of a structure: its name on the wire, and what it holds.

    `shape` is a scalar's, "list" or "map"; `inner` is the shape or the structure of a list's
    elements and of a map's values; `key` and `value` are what a map's entries call theirs.
    """

    field: str
    name: str
    shape: str
    inner: str | type[Struct]
    required: bool
    key: str
    value: str


_LEFT_OUT: dict[type[Struct], frozenset[str]] = {
    **OUTSIDE_THE_MODEL,
    MessageAttributeValue: frozenset({"string_list_values", "binary_list_values"}),  # SQS's own
}


@functools.cache
def _members(kind: type[Struct]) -> tuple[_Member, ...]:
    hints = get_type_hints(kind)
    left_out = _LEFT_OUT.get(kind, frozenset())
    return tuple(
        _member(field, hints[field.name])
        for field in structs.fields(kind)
        if field.name not in left_out
    )


def _member(field: structs.FieldInfo, hint: Any) -> _Member:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    name = field.encode_name
    if (origin := get_origin(hint)) is None:
        return _Member(field.name, name, SHAPES[hint], "", required, "", "")
    inner = get_args(hint)[-1]
    if inner in SHAPES:
        inner = SHAPES[inner]
    if origin is list:
        return _Member(field.name, name, "list", inner, required, "", "")
    named = ("Name", "Value") if name == "MessageAttributes" else ("key", "value")
    return _Member(field.name, name, "map", inner, required, *named)


# --- the client's side: requests ----------------------------------------------------------------


def encode_request(operation: Operation[Any]) -> tuple[str, bytes]:
    """The value of the header `X-Amz-Target`, which is none here, and the form.

    Raises `UsageError` for what has no form on the wire: text with a lone surrogate, a value that
    is no text, number or bytes. Nothing was sent then.
    """
    try:
        fields = [("Action", operation.action), ("Version", VERSION), *_fields(operation, "")]
        form = "&".join(f"{name}={quote_plus(value)}" for name, value in fields)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a text of {operation.action} holds the lone surrogate "
            f"U+{ord(error.object[error.start]):04X}, which SNS does not take"
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{operation.action} can't be written as a form: {error}") from None
    return "", form.encode("ascii")


def _fields(value: Struct, path: str) -> Iterator[tuple[str, str]]:
    for member in _members(type(value)):
        content = getattr(value, member.field)
        if content is None:
            continue
        name = path + member.name
        if member.shape == "list":
            if not content:
                yield name, ""
            for number, item in enumerate(content, 1):
                yield from _item_fields(member.inner, item, f"{name}.member.{number}")
        elif member.shape == "map":
            for number, (key, item) in enumerate(content.items(), 1):
                entry = f"{name}.entry.{number}"
                yield f"{entry}.{member.key}", key
                yield from _item_fields(member.inner, item, f"{entry}.{member.value}")
        else:
            yield from _item_fields(member.shape, content, name)


def _item_fields(inner: str | type[Struct], item: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(inner, str):
        yield name, _SCALAR[inner](item)
    else:
        yield from _fields(item, name + ".")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(plain(value))
    raise TypeError(f"a text is of type {type(value).__name__}")


_SCALAR: dict[str, Callable[[Any], str]] = {**WRITE, "text": _text}


# --- the client's side: answers -----------------------------------------------------------------


def decode_answer(
    operation: Operation[R], status: int, headers: Mapping[str, str], body: bytes
) -> R:
    """The result that an answer holds.

    Raises the `ServiceError` that an error document means, and `UnexpectedAnswerError` for what is
    no document of SNS: a proxy's page, a cut body, a result without its required fields.
    """
    try:
        root = read_xml(body)
    except BadXmlError as error:
        raise unexpected(status, body, str(error)) from None
    if not 200 <= status < 300:
        raise _read_error(root, status, headers, body)
    if root.name != f"{operation.action}Response":
        raise unexpected(status, body, f"a document of {root.name}")
    kind: type[Any] = operation.result
    if kind is Done:
        return cast(R, DONE)
    found = root.child(f"{operation.action}Result")
    try:
        if found is None:
            raise _BadAnswerError(f"no {operation.action}Result")
        result = _from_xml(kind, found)
    except _BadAnswerError as error:
        raise unexpected(status, body, str(error)) from None
    if isinstance(result, PublishBatchResult) and not result.successful and not result.failed:
        raise unexpected(status, body, "neither `Successful` nor `Failed`")
    return cast(R, result)


class _BadAnswerError(Exception):
    """A document is XML and not the answer that it should be."""


def _read_error(
    root: Element, status: int, headers: Mapping[str, str], body: bytes
) -> ServiceError:
    """The error of an answer; `UnexpectedAnswerError` where it names none."""
    error = root.child("Error")
    code = error.text_of("Code") if error is not None else ""
    if error is None or not code:
        raise unexpected(status, body, "no error code")
    blame = error.text_of("Type")
    return from_answer(
        code,
        error.text_of("Message"),
        status=status,
        sender_fault=blame == "Sender" if blame else None,
        request_id=root.text_of("RequestId") or headers.get("x-amzn-requestid", ""),
        service="sns",
    )


def _from_xml(kind: type[Struct], element: Element) -> Struct:
    values: dict[str, Any] = {}
    for member in _members(kind):
        found = element.child(member.name)
        if found is None:
            if member.required:
                raise _BadAnswerError(f"no {member.name}")
        elif member.shape == "list":
            values[member.field] = [_read(member.inner, each) for each in found.children]
        elif member.shape == "map":
            values[member.field] = dict(_entry_of(member, each) for each in found.children)
        else:
            values[member.field] = _read(member.shape, found)
    return kind(**values)


def _entry_of(member: _Member, element: Element) -> tuple[str, Any]:
    key, value = element.child(member.key), element.child(member.value)
    if key is None or value is None:
        raise _BadAnswerError(f"an entry of {member.name} without its key or value")
    return key.text, _read(member.inner, value)


def _read(inner: str | type[Struct], element: Element) -> Any:
    if not isinstance(inner, str):
        return _from_xml(inner, element)
    text = element.text
    try:
        if inner == "integer":
            return int(text)
        if inner == "blob":
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise _BadAnswerError(f"{element.name} is no {inner}") from None
    return text == "true" if inner == "flag" else text


# --- the served side ----------------------------------------------------------------------------


def decode_request(form: bytes) -> Operation[Any]:
    """The operation that a form asks for.

    Raises the fault that AWS answers with: `InvalidAction`, `InvalidParameter` for a required
    parameter that is left out, `MalformedQueryString`.
    """
    tree = parse_form(form)
    action = action_of(tree)
    kind = SNS_OPERATIONS.get(action)
    if kind is None:
        raise invalid_action(action)
    return cast("Operation[Any]", _structure(kind, tree, ""))


def _structure(kind: type[Struct], tree: Tree, path: str) -> Struct:
    values: dict[str, Any] = {}
    for member in _members(kind):
        value = _value(member, tree, path)
        if value is not None:
            values[member.field] = value
        elif member.required:
            raise missing_parameter(member.name, path)
    return kind(**values)


def missing_parameter(name: str, path: str = "") -> ServiceError:
    """The fault for a required parameter that a request leaves out."""
    if not path:
        text = f"Invalid parameter: {name} Reason: no value for required parameter"
        return fault("InvalidParameter", text, "sns")
    owner, _, index = path.removesuffix(".").rpartition(".member.")
    where = f"{owner[0].lower()}{owner[1:]}.{index}.member.{name[0].lower()}{name[1:]}"
    return fault(
        "ValidationError",
        f"1 validation error detected: Value null at '{where}' failed to satisfy constraint: "
        "Member must not be null",
        "sns",
    )


def _value(member: _Member, tree: Tree, path: str) -> Any:
    """What a form holds for a field; None where it holds nothing."""
    node = tree.get(member.name)
    if member.shape not in ("list", "map"):
        return None if node is None else READ[member.shape](node, path + member.name)
    if node is None:
        # A batch without entries is for the service to refuse.
        return [] if member.required and member.shape == "list" else None
    if node == "":  # how an empty list is written
        node = {}
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path}{member.name} is no list.")
    wrapped = node.get("member" if member.shape == "list" else "entry", {})
    if not isinstance(wrapped, dict):
        raise fault("MalformedQueryString", f"The parameter {path}{member.name} is no list.")
    if member.shape == "list":
        name = f"{path}{member.name}.member."
        return [_item(member.inner, wrapped[each], name + each) for each in in_order(wrapped)]
    return dict(
        _entry(member, wrapped[each], f"{path}{member.name}.entry.{each}")
        for each in in_order(wrapped)
    )


def _entry(member: _Member, node: Tree | str, path: str) -> tuple[str, Any]:
    """One entry of a map: `Attributes.entry.1.key` and `Attributes.entry.1.value`."""
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path} is no entry of a map.")
    key, value = node.get(member.key), node.get(member.value)
    if key is None or value is None:
        lacking = member.key if key is None else member.value
        raise fault("MalformedQueryString", f"The parameter {path}.{lacking} is missing.")
    name = read_text(key, f"{path}.{member.key}")
    if isinstance(member.inner, str):
        return name, READ[member.inner](value, f"{path}.{member.value}")
    return name, _item(member.inner, value, f"{path}.{member.value}")


def _item(inner: str | type[Struct], node: Tree | str, path: str) -> Any:
    if isinstance(inner, str):
        return READ[inner](node, path)
    if not isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {path} is no structure.")
    return _structure(inner, node, path + ".")


def encode_answer(action: str, result: Result, request_id: str) -> bytes:
    """The XML document for a result."""
    parts = [f'<{action}Response xmlns="{NAMESPACE}">']
    if type(result) is not Done:
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
        parts.append(f"<{member.name}>")
        if member.shape == "list":
            for item in content:
                _element(parts, "member", member.inner, item)
        elif member.shape == "map":
            for key, item in content.items():
                parts.append("<entry>")
                _element(parts, member.key, "text", key)
                _element(parts, member.value, member.inner, item)
                parts.append("</entry>")
        else:
            parts.append(WRITE[member.shape](content))
        parts.append(f"</{member.name}>")


def _element(parts: list[str], name: str, inner: str | type[Struct], content: Any) -> None:
    parts.append(f"<{name}>")
    if isinstance(inner, str):
        parts.append(WRITE[inner](content))
    else:
        _write(parts, content)
    parts.append(f"</{name}>")


def encode_error(error: ServiceError, request_id: str) -> bytes:
    """The XML document for an error."""
    return error_document(error, request_id, NAMESPACE)
