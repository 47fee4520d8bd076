"""SQS's JSON 1.0 protocol, in both directions: requests and answers, written and read.

The client's side is `encode_request` and `decode_answer`, the served side `decode_request`,
`encode_answer` and `encode_error`. What is read is what AWS documents ("Making a query API request
with AWS JSON protocol" and the awsQueryCompatible trait of Smithy) and a little more: a field that
is null is a field that is absent, and a number may be written as text. HTTP itself, signatures and
retries are left to `http/` and `server/`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from pumphouse.errors import ServiceError, UnexpectedAnswerError, UsageError
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    DONE,
    ChangeMessageVisibilityBatchResult,
    DeleteMessageBatchResult,
    Done,
    Operation,
    SendMessageBatchResult,
)

R = TypeVar("R")

CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."
EXCERPT_BYTES = 200
"""How much of an unreadable answer an error shows."""

_BATCH_RESULTS = (
    SendMessageBatchResult,
    DeleteMessageBatchResult,
    ChangeMessageVisibilityBatchResult,
)

_encode = msgspec.json.Encoder().encode


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _read(kind: type[R], body: bytes) -> R:
    """A struct from an answer. Raises `msgspec.DecodeError` or its subclass `ValidationError`."""
    try:
        try:
            return cast(R, _decoder(kind).decode(body))
        except msgspec.ValidationError:
            # Some endpoints send null for what they leave out.
            return msgspec.convert(_without_nulls(msgspec.json.decode(body)), kind, strict=False)
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

    Raises `UsageError` for text with a lone surrogate, which has no form on the wire.
    """
    try:
        return TARGET_PREFIX + operation.action, _encode(operation)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a text of {operation.action} holds the lone surrogate "
            f"U+{ord(error.object[error.start]):04X}, which SQS does not take"
        ) from None


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
        result = _read(kind, body)
    except msgspec.DecodeError as error:
        raise unexpected(status, body, str(error)) from None
    if isinstance(result, _BATCH_RESULTS) and not result.successful and not result.failed:
        raise unexpected(status, body, "neither `Successful` nor `Failed`")
    return cast(R, result)


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
