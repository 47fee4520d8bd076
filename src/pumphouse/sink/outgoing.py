"""A message on its way out: `Outgoing`, and `encode_body` for what a caller hands in as a body.

The checks of single values are here (ids, delays, attribute values); how a body becomes SQS's text
is `content.py`'s, and what the whole message may weigh is the sink's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from pumphouse.content import plain_name
from pumphouse.errors import UsageError
from pumphouse.protocol.attributes import (
    MAX_ATTRIBUTES,
    MAX_DELAY_SECONDS,
    MAX_SUBJECT,
    attribute_name_fault,
    forbidden_character,
    is_subject,
    is_token,
    plain,
)
from pumphouse.protocol.operations import (
    Attributes,
    MessageAttributeValue,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from pumphouse.sink.entry import Entry

if TYPE_CHECKING:
    from pydantic import TypeAdapter

AttributeValue = str | bytes | int | float | MessageAttributeValue | None


class Outgoing(Entry, eq=False):
    """An `Entry` with the message that it stands for.

    What a function that picks a message's group may look at: `original` (what was given to
    `send`), `tenant`, `source`, `id`, `replay_id`, `attributes`.
    """

    original: object = None
    body: str = ""
    attributes: Attributes | None = None
    md5_of_body: str = ""
    md5_of_attributes: str | None = None
    system_attributes: Attributes | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    delay: int | None = None
    id: str | None = None
    source: str | None = None
    replay_id: str | None = None
    subject: str | None = None
    message_structure: str | None = None


class SendOptions(TypedDict, total=False):
    """What `send` takes beside a body.

    * `id`: the message's own id; on a FIFO queue its deduplication id (128 characters), so that
      sending it again within five minutes stores nothing. One is made up where none is given.
    * `tenant`: whose message it is; batches are filled by going round the tenants.
    * `source`: the second half of the default group, `tenant/source`.
    * `group_id`, `deduplication_id`: as SQS has them, in place of the defaults.
    * `replay_id`: says that this is a deliberate repetition: `id:replay:<replay id>` is the
      deduplication id, and the message is stored once more.
    * `attributes`: message attributes by name: text, bytes, numbers, `MessageAttributeValue`.
    * `headers`: more of them, text or bytes. At most ten in all, those of a marker included.
    * `delay`: seconds (0 to 900, whole) or a `timedelta`; standard queues only.
    * `trace_header`: X-Ray's header, sent as the system attribute `AWSTraceHeader`; to a topic it
      is sent for a whole request, and left out where the messages of a batch don't share it.
    * `subject`: topics only; 1 to 100 characters, without controls and line breaks.
    * `message_structure`: topics only; "json" says that the body is an object of texts by protocol,
      one of them under `default`.
    """

    id: str | None
    tenant: str | None
    source: str | None
    group_id: str | None
    deduplication_id: str | None
    replay_id: str | None
    attributes: Mapping[str, AttributeValue] | None
    headers: Mapping[str, str | bytes] | None
    delay: float | timedelta | None
    trace_header: str | None
    subject: str | None
    message_structure: str | None


class Draft:
    """A body with the options of its `send`, for `send_many`."""

    __slots__ = ("body", "options")

    def __init__(self, body: object, **options: Unpack[SendOptions]) -> None:
        check_options(options)
        self.body = body
        self.options = options


def check_options(options: Mapping[str, object]) -> None:
    """Raise `UsageError` for an option that no message has."""
    if unknown := sorted(options.keys() - SendOptions.__annotations__.keys()):
        raise UsageError(
            f"a message has no option {', '.join(unknown)}; "
            f"its options are {', '.join(sorted(SendOptions.__annotations__))}"
        )


def kept(options: SendOptions) -> SendOptions:
    """Options that were checked, as they are now, whatever their caller does with them later."""
    copy = options.copy()
    if (attributes := options.get("attributes")) is not None:
        copy["attributes"] = dict(attributes)
    if (headers := options.get("headers")) is not None:
        copy["headers"] = dict(headers)
    return copy


ENTRY_IDS = tuple(str(position) for position in range(10))


def send_message(queue_url: str, message: Outgoing) -> SendMessage:
    """The request that carries one message by itself."""
    return SendMessage(
        queue_url,
        message.body,
        message.delay,
        message.attributes,
        message.system_attributes,
        message.deduplication_id,
        message.group_id,
    )


def send_message_batch(queue_url: str, messages: list[Outgoing]) -> SendMessageBatch:
    """The request that carries up to ten; the ids of its entries are their positions."""
    return SendMessageBatch(
        queue_url,
        [
            SendMessageBatchRequestEntry(
                entry_id,
                message.body,
                message.delay,
                message.attributes,
                message.system_attributes,
                message.deduplication_id,
                message.group_id,
            )
            for entry_id, message in zip(ENTRY_IDS, messages, strict=False)
        ],
    )


def encode_body(body: object) -> str | bytes:
    """Text and bytes as they are; anything else as JSON: dicts, lists, dataclasses, numbers, and
    the models of `msgspec` and `pydantic`. Raises `UsageError` for what is none of these."""
    if isinstance(body, (str, bytes)):
        return body
    if isinstance(body, (bytearray, memoryview)):
        return bytes(body)
    if body is None:
        raise UsageError("the body is None; send text, bytes, or an object that JSON can carry")
    return as_json(body)


def as_json(value: object) -> str | bytes:
    """A value as JSON, with the aliases of pydantic's fields, as a reader of its type expects them.

    Raises `UsageError` for what can't be written, for NaN and the infinities, which JSON has not,
    and for what is not what its own model says.
    """
    kind: Any = type(value)
    try:
        if not hasattr(kind, "__pydantic_validator__"):
            text = msgspec.json.encode(value, enc_hook=_inner)
            if b"null" in text:  # as what JSON has not is written
                _refuse_lost(msgspec.to_builtins(value, enc_hook=_inner), text)
            return text
        if callable(dump := getattr(value, "model_dump_json", None)):
            text = str(dump(by_alias=True, warnings="error")).encode()
        else:
            text = _adapter(kind).dump_json(value, by_alias=True, warnings="error")
        if b"null" in text or b"NaN" in text or b"Infinity" in text:
            _refuse_lost(_adapter(kind).dump_python(value, by_alias=True, warnings=False), text)
        return text
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"a value of type {kind.__name__} can't be written as JSON: {reason}"
        ) from None


def _refuse_lost(value: object, text: bytes) -> None:
    """Raise `ValueError`, which says where, for a number that the text does not hold."""
    try:
        written = msgspec.json.decode(text)
    except msgspec.DecodeError:  # a model may choose to write the bare word
        raise ValueError("it holds NaN or an infinity, which JSON has not") from None
    if lost := _lost(value, written, "$"):
        raise ValueError(f"{lost} is NaN or infinite, which JSON has not")


def _lost(value: object, written: object, path: str) -> str | None:
    """Where a value holds a number for which null was written."""
    if isinstance(value, float):
        return path if written is None and not isfinite(value) else None
    pairs: Iterable[tuple[str, object, object]] = ()
    if isinstance(value, Mapping) and isinstance(written, dict):
        pairs = (
            (f".{name}", inner, other)
            for inner, (name, other) in zip(value.values(), written.items(), strict=False)
        )
    elif isinstance(value, list | tuple | set | frozenset) and isinstance(written, list):
        pairs = (
            (f"[{at}]", inner, other)
            for at, (inner, other) in enumerate(zip(value, written, strict=False))
        )
    found = (_lost(inner, other, path + step) for step, inner, other in pairs)
    return next(filter(None, found), None)


def _inner(value: object) -> object:
    """A model of pydantic's inside of something else, or a text or number of a class of its own."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json", by_alias=True, warnings="error")
    return plain(value)


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def attribute_values(given: Mapping[str, AttributeValue]) -> Attributes:
    """Message attributes from plain values: text is a String, a number a Number, bytes Binary.

    None leaves an attribute out.
    """
    found: Attributes = {}
    if not isinstance(given, dict) and not isinstance(given, Mapping):
        raise UsageError(
            f"attributes are of type {type(given).__name__}; they are names with values"
        )
    for name, value in given.items():
        if type(name) is not str:
            name = plain_name(name)
        if isinstance(value, str):
            found[name] = MessageAttributeValue("String", plain(value))
        elif isinstance(value, MessageAttributeValue):
            found[name] = _plain_attribute(value)
        elif isinstance(value, bytes):
            found[name] = MessageAttributeValue("Binary", binary_value=plain(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = MessageAttributeValue("Number", str(plain(value)))
        elif value is not None:
            raise UsageError(
                f"attribute {name!r} is of type {type(value).__name__}; "
                "it can be text, bytes, a number or a MessageAttributeValue"
            )
    return found


_PLAIN = (str, bytes, type(None))


def _plain_attribute(given: MessageAttributeValue) -> MessageAttributeValue:
    """The attribute without classes of its values' own; `content.weigh` refuses what is wrong."""
    values = (given.data_type, given.string_value, given.binary_value)
    if all(type(value) in _PLAIN for value in values):
        return given
    data_type, text, data = (
        plain(value) if isinstance(value, str | bytes) else value for value in values
    )
    return msgspec.structs.replace(given, data_type=data_type, string_value=text, binary_value=data)


def add_optional(
    attributes: Attributes, more: Mapping[str, AttributeValue], places: int = 0
) -> None:
    """Add attributes of ours behind the user's: where there is a place (ten, less `places`), where
    the name is free, and where SQS takes the value."""
    for name, value in attribute_values(more).items():
        text = value.string_value
        if (
            len(attributes) < MAX_ATTRIBUTES - places
            and name not in attributes
            and (text or value.binary_value)
            and not (text and forbidden_character(text))
            and attribute_name_fault(name) is None
        ):
            attributes[name] = value


def plain_text(what: str, text: object) -> str:
    """A text of whatever class as plain text. Raises `UsageError`, naming it, for anything else."""
    if not isinstance(text, str):
        raise UsageError(f"the {what} is of type {type(text).__name__}; it is text")
    return str(plain(text))


def check_id(what: str, given: object, *, hashed: bool) -> str:
    """A group or deduplication id as SQS takes it: 1 to 128 of letters, digits and punctuation.

    With `hashed`, one that SQS does not take is replaced by its SHA-256, never cut; without,
    `UsageError`.
    """
    text = given if type(given) is str else plain_text(what, given)
    if is_token(text):
        return text
    if hashed and text:
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    shown = text if len(text) <= 64 else f"{text[:64]}… ({len(text)} characters)"
    raise UsageError(
        f"the {what} {shown!r} is not 1 to 128 characters of A-Z, a-z, 0-9 and punctuation; "
        "hash_ids=True sends the SHA-256 of such ids"
    )


def check_delay(delay: float | timedelta | None, *, fifo: bool) -> int | None:
    """A delay in whole seconds, or None for none. Raises `UsageError` outside 0 to 900, and for
    any on a FIFO queue."""
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(f"the delay is of type {type(delay).__name__}; it is seconds")
    if not 0 <= seconds <= MAX_DELAY_SECONDS or seconds != int(seconds):
        raise UsageError(f"the delay is {seconds} s; SQS takes 0 to {MAX_DELAY_SECONDS}, whole")
    if seconds and fifo:
        raise UsageError(
            "a FIFO queue takes no delay for a single message; set the queue's DelaySeconds, "
            "or leave the delay out"
        )
    return int(seconds) or None


def check_for_topic(
    message: Outgoing, name: str, kind: str, subject: str | None, structure: str | None
) -> None:
    """Give a message to a topic its subject and structure. Raises `UsageError` for what SNS does
    not take, and for either of them on its way to a queue."""
    if kind != "topic":
        raise UsageError(
            f"{name} is a queue; subject and message_structure are for messages to a Topic"
        )
    if message.delay:
        raise UsageError(f"{name} is a topic, which delays nothing; set the queues' DelaySeconds")
    if subject is not None and not (isinstance(subject, str) and is_subject(subject)):
        raise UsageError(
            f"the subject is {subject!r}; it is 1 to {MAX_SUBJECT} characters, without controls "
            "and line breaks"
        )
    if structure is not None:
        _check_structure(message, structure)
    message.subject = subject if subject is None else plain(subject)
    message.message_structure = structure if structure is None else plain(structure)


def _check_structure(message: Outgoing, structure: str) -> None:
    if structure != "json":
        raise UsageError(f"message_structure is {structure!r}; it is 'json', or left out")
    try:
        found = msgspec.json.decode(message.body)
    except msgspec.DecodeError as error:
        raise UsageError(f"with message_structure='json' the body is JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("default"), str):
        raise UsageError(
            "with message_structure='json' the body is an object with a text under 'default'"
        )
