"""SQS's JSON 1.0 protocol, in both directions: requests and answers, written and read.

The client's side is `encode_request` and `decode_answer`, the served side `decode_request`,
`encode_answer` and `encode_error` ("Making requests with AWS JSON protocol" in the developer guide,
and Smithy's awsJson1_0 and awsQueryCompatible). A field that is null is a field that is absent. An
answer may hold a number as text, a request may not: AWS refuses that. HTTP itself, signatures and
retries are left to `http/` and `server/`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from pumphouse.errors import ServiceError, UnexpectedAnswerError, UsageError
from pumphouse.protocol.attributes import plain
from pumphouse.protocol.faults import fault, from_answer, lookup
from pumphouse.protocol.operations import (
    DONE,
    SQS_OPERATIONS,
    ChangeMessageVisibilityBatchResult,
    DeleteMessageBatchResult,
    Done,
    Operation,
    Result,
    SendMessageBatchResult,
)

R = TypeVar("R")

CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."
EXCERPT_BYTES = 200
"""How much of an unreadable answer an error shows."""

_BATCH_RESULTS = frozenset(
    {SendMessageBatchResult, DeleteMessageBatchResult, ChangeMessageVisibilityBatchResult}
)

_encode = msgspec.json.Encoder(enc_hook=plain).encode


@functools.cache
def _decoder(kind: Any, strict: bool) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, strict=strict).decode


def _read(kind: Any, body: bytes, *, strict: bool = False) -> Any:
    """A struct from JSON. Raises `msgspec.DecodeError` or its subclass `ValidationError`."""
    try:
        try:
            return _decoder(kind, strict)(body)
        except msgspec.ValidationError:
            # Some writers send null for what they leave out.
            return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind, strict=strict)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


# --- the client's side --------------------------------------------------------------------------


def encode_request(operation: Operation[Any]) -> tuple[str, bytes]:
    """The value of the header `X-Amz-Target`, and the body.

    Raises `UsageError` for what has no form on the wire: text with a lone surrogate, a value that
    is no text, number or bytes. Nothing was sent then.
    """
    try:
        return TARGET_PREFIX + operation.action, _encode(operation)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a text of {operation.action} holds the lone surrogate "
            f"U+{ord(error.object[error.start]):04X}, which SQS does not take"
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"{operation.action} can't be written as JSON: {error}") from None


def decode_answer(
    operation: Operation[R], status: int, headers: Mapping[str, str], body: bytes
) -> R:
    """The result that an answer holds; the names in `headers` are in lower case.

    Raises the `ServiceError` that an error document means, and `UnexpectedAnswerError` for what is
    no document of SQS: a proxy's page, a cut body, a result without its required fields.
    """
    if not 200 <= status < 300:
        raise _read_error(status, headers, body)
    kind: type[Any] = operation.result
    if kind is Done and not body and "html" not in headers.get("content-type", ""):
        return cast(R, DONE)
    try:
        answer = _read_batch(kind, body) if kind in _BATCH_RESULTS else _read(kind, body)
    except msgspec.DecodeError as error:
        raise unexpected(status, body, str(error)) from None
    if kind in _BATCH_RESULTS and not (answer.successful or answer.failed):
        raise unexpected(status, body, "neither `Successful` nor `Failed`")
    result: R = answer
    return result


def _read_batch(kind: type[Any], body: bytes) -> Any:
    """The result of a batch. An entry that can't be read is left out, and the others stand: about
    that one the answer says nothing."""
    try:
        return _read(kind, body)
    except msgspec.ValidationError:
        document = _without_nulls(msgspec.json.decode(body))
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        if not isinstance(document, dict):
            raise
        for name in kinds.keys() & document.keys():
            if not isinstance(entries := document[name], list):
                raise
            document[name] = [each for each in entries if _readable(each, kinds[name])]
        return msgspec.convert(document, kind, strict=False)


def _readable(entry: Any, kinds: Any) -> bool:
    try:
        msgspec.convert([entry], kinds, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def unexpected(status: int, body: bytes, reason: str) -> UnexpectedAnswerError:
    """The error for an answer that is none, with the beginning of its body."""
    return UnexpectedAnswerError(status, body[:EXCERPT_BYTES].decode(errors="replace"), reason)


class _ErrorDocument(msgspec.Struct):
    type: str = msgspec.field(default="", name="__type")
    lower_message: str | None = msgspec.field(default=None, name="message")
    upper_message: str | None = msgspec.field(default=None, name="Message")


def _read_error(status: int, headers: Mapping[str, str], body: bytes) -> ServiceError:
    """The error of an answer; raises `UnexpectedAnswerError` where it names none."""
    query_code, _, blame = headers.get("x-amzn-query-error", "").partition(";")
    try:
        document = _read(_ErrorDocument, body) if body else _ErrorDocument()
    except msgspec.DecodeError as error:
        raise unexpected(status, body, str(error)) from None
    code = document.type or headers.get("x-amzn-errortype", "").partition(":")[0] or query_code
    if not code:
        raise unexpected(status, body, "no error code")
    return from_answer(
        code,
        document.lower_message or document.upper_message or "",
        status=status,
        sender_fault=blame == "Sender" if blame else None,
        query_code=query_code,
        request_id=headers.get("x-amzn-requestid", ""),
    )


# --- the served side ----------------------------------------------------------------------------

_KINDS = {TARGET_PREFIX + action: kind for action, kind in SQS_OPERATIONS.items()}

_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$(.*)`)?")
_MISMATCH = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_INDEX = re.compile(r"\.Entries\[(\d+)\]")

# How AWS's parser names what it met and what it wanted.
_MET = {"str": "STRING_VALUE", "int": "NUMBER_VALUE", "float": "NUMBER_VALUE", "bool": "TRUE_VALUE"}
_WANTED = {"str": "a String", "int": "an Integer", "bool": "a Boolean", "bytes": "a Blob"}


def decode_request(target: str, body: bytes) -> Operation[Any]:
    """The operation that a request asks for, by its header `X-Amz-Target`.

    Raises the fault that AWS answers with: `UnknownOperationException`, `SerializationException`
    for what is no JSON or of the wrong types, and `MissingParameter`.
    """
    kind = _KINDS.get(target)
    if kind is None:
        raise fault("UnknownOperationException")
    try:
        operation: Operation[Any] = _read(kind, body or b"{}", strict=True)
        return operation
    except msgspec.ValidationError as error:
        raise _explain(kind, str(error)) from None
    except msgspec.DecodeError as error:
        raise fault("SerializationException", f"The request is no JSON document: {error}") from None


def _explain(kind: type[Operation[Any]], text: str) -> ServiceError:
    """AWS's fault for what the decoder says is wrong with a JSON document."""
    if missing := _MISSING.match(text):
        name, path = missing[1], missing[2] or ""
        if entry := _INDEX.match(path):
            name = f"{kind.action}RequestEntry.{int(entry[1]) + 1}.{name}"
        return missing_parameter(name)
    if mismatch := _MISMATCH.match(text):
        wanted, met = mismatch[1], mismatch[2]
        if wanted in _WANTED and met in _MET:
            text = f"{_MET[met]} can not be converted to {_WANTED[wanted]}"
        elif met == "array":
            text = "Start of list found where not expected"
        elif met == "object":
            text = "Start of structure or map found where not expected."
        else:
            text = f"Expected {'list' if wanted == 'array' else 'map'} or null"
    return fault("SerializationException", text)


def missing_parameter(name: str) -> ServiceError:
    """The fault for a required parameter that a request leaves out."""
    return fault("MissingParameter", f"The request must contain the parameter {name}.")


def encode_answer(result: Result) -> bytes:
    """The body of an answer: empty where an action answers nothing but that it was done."""
    return b"" if result is DONE or type(result) is Done else _encode(result)


def encode_error(error: ServiceError) -> tuple[str, bytes]:
    """The value of the header `x-amzn-query-error`, and the body of an error document."""
    row = lookup(error.code)
    document = {"__type": row.json_type if row else error.code}
    if error.message:
        document["message"] = error.message.encode(errors="replace").decode()
    blame = "Sender" if error.sender_fault else "Receiver"
    return f"{error.query_code};{blame}", _encode(document)
