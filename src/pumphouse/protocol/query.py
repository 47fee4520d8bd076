"""What the query protocols of SQS and SNS have in common: forms, and the text of XML documents.

A form's dotted names (`Entry.1.Name`) become nested dictionaries with bounds on their number and
depth; scalars are read and written as both services do. How an operation is spelled in them is
`sqs_query.py`'s and `sns_query.py`'s.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault, lookup

MAX_FIELDS = 20_000
MAX_DEPTH = 8

Tree = dict[str, "Tree | str"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


# --- forms --------------------------------------------------------------------------------------


def parse_form(form: bytes) -> Tree:
    """The fields of a form or a query string. Raises AWS's `MalformedQueryString`."""
    try:
        pairs = parse_qsl(
            form.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError:
        raise fault("MalformedQueryString", "The query string contains a syntax error.") from None
    return _tree(pairs)


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


def action_of(tree: Tree) -> str:
    """The action that a form asks for. Raises AWS's `MissingAction`."""
    action = tree.get("Action")
    if not action or not isinstance(action, str):
        raise fault("MissingAction", "The request must contain the parameter Action.")
    return action


def invalid_action(action: str) -> ServiceError:
    return fault("InvalidAction", f"The action {action} is not valid for this endpoint.")


def index_of(text: str) -> int:
    """The number that stands for an element of a list."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise fault("MalformedQueryString", f"{text} is no index of a list.")
    return int(text)


def in_order(node: Tree) -> list[str]:
    """The indexes of a list, in the order of its elements."""
    return sorted(node, key=index_of)


# --- scalars ------------------------------------------------------------------------------------


def read_text(node: Tree | str, name: str) -> str:
    if isinstance(node, dict):
        raise fault("MalformedQueryString", f"The parameter {name} has parts and takes none.")
    return node


def _integer(node: Tree | str, name: str) -> int:
    text = read_text(node, name)
    if not _INTEGER.fullmatch(text):
        raise fault(
            "InvalidParameterValue",
            f"Value {text} for parameter {name} is invalid. Reason: Must be an integer.",
        )
    return int(text)


def _flag(node: Tree | str, name: str) -> bool:
    text = read_text(node, name).lower()
    if text not in ("true", "false"):
        raise fault(
            "InvalidParameterValue",
            f"Value {text} for parameter {name} is invalid. Reason: Must be a boolean.",
        )
    return text == "true"


def _blob(node: Tree | str, name: str) -> bytes:
    try:
        return base64.b64decode(read_text(node, name), validate=True)
    except (binascii.Error, ValueError):
        raise fault(
            "InvalidParameterValue",
            f"Value for parameter {name} is invalid. Reason: Must be base64.",
        ) from None


READ: dict[str, Callable[[Tree | str, str], Any]] = {
    "text": read_text,
    "integer": _integer,
    "flag": _flag,
    "blob": _blob,
}
"""How a scalar is read, by its shape."""

SHAPES = {str: "text", int: "integer", bool: "flag", bytes: "blob"}
"""The shapes of scalars, by the type of their values."""

_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}


def escape(text: str) -> str:
    """Text for XML; what XML 1.0 can't hold at all (in an echo, say) becomes U+FFFD."""
    return _SPECIAL.sub(lambda found: _ESCAPED.get(found[0], "\ufffd"), text)


WRITE: dict[str, Callable[[Any], str]] = {
    "text": escape,
    "integer": str,
    "flag": lambda value: "true" if value else "false",
    "blob": lambda value: base64.b64encode(value).decode(),
}
"""How a scalar stands in an XML document, by its shape."""


def error_document(error: ServiceError, request_id: str, namespace: str, detail: str = "") -> bytes:
    """The XML document for an error, worded as the query protocol words it."""
    row = lookup(error.code)
    message = error.message
    if row is not None and row.query_message and message == row.message:
        message = row.query_message
    blame = "Sender" if error.sender_fault else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{namespace}"><Error><Type>{blame}</Type>'
        f"<Code>{escape(error.query_code)}</Code><Message>{escape(message)}</Message>{detail}"
        f"</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()
