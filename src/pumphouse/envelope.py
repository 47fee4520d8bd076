"""`Envelope`: one format for messages that came in from outside, whatever carries them on.

A versioned JSON document with the body, base64-encoded, or the key under which a claim check keeps
it; with the size and SHA-256 of the body either way. A reader ignores keys that it does not know;
`v` changes only when a key changes its meaning. `Sink.send` takes an `Envelope` as a body and adds
`attributes()`; `open_envelope` reads one back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from pumphouse.claim_check import VERSION_ATTRIBUTE, ClaimCheck, Ticket, envelope_prefix
from pumphouse.content import UndecodableError
from pumphouse.errors import BlobDamagedError, UsageError
from pumphouse.protocol.attributes import MAX_ATTRIBUTES, plain
from pumphouse.protocol.operations import MessageAttributeValue

VERSION = 1
TELLING_ATTRIBUTES = 2
"""How many attributes tell that a message is an envelope: the first of `attributes()`."""

NEVER_FORWARDED = frozenset(
    {
        *("authorization", "proxy-authorization", "proxy-authenticate", "www-authenticate"),
        *("cookie", "cookie2", "set-cookie", "set-cookie2", "x-api-key"),
        *("host", "content-length", "content-type", "expect"),
        *("connection", "proxy-connection", "keep-alive", "te", "trailer", "trailers"),
        *("transfer-encoding", "upgrade"),
    }
)
"""Request headers that stay where they came in: secrets, framing, hop-by-hop, and what has a field
of its own. So do those that `Connection` names, and all that begin with our own prefix."""
OWN_HEADER_PREFIX = "x-pumphouse-"
_OURS = (
    OWN_HEADER_PREFIX,
    "pumphouse.",
    "pumphouse_",
)  # and what our message attributes begin with


def forwarded_headers(
    headers: Mapping[str, str] | Sequence[tuple[str, str]], only: Iterable[str] | None = None
) -> dict[str, str]:
    """The headers of a request that may travel on: names in lower case, repeated ones joined.

    `only` names those that are wanted; what is never forwarded stays out even then. Raises
    `UsageError` for headers that are no text, naming the one.
    """
    try:
        given = headers.items() if isinstance(headers, Mapping) else headers
        named = [(name, value) for name, value in given]
    except (TypeError, ValueError) as error:
        raise UsageError(f"headers are a mapping or pairs of name and value: {error}") from None
    pairs = [(_text("a header's name", name), value) for name, value in named]
    wanted = None if only is None else {name.lower() for name in only}
    hops = {
        hop.strip().lower()
        for name, value in pairs
        if name.lower() == "connection"
        for hop in _text(f"header {name!r}", value).split(",")
    }
    found: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        if name in NEVER_FORWARDED or name in hops or name.startswith(_OURS):
            continue
        if wanted is None or name in wanted:
            value = _text(f"header {name!r}", value)
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _text(what: str, value: object) -> str:
    """A text as a document can hold it. Raises `UsageError`, naming it, for anything else."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is of type {type(value).__name__}; it is text")
    text = str(plain(value))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} holds the lone surrogate U+{ord(text[error.start]):04X}, which no document "
            "can hold; it comes of bytes that were decoded in another encoding than theirs"
        ) from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message with where it came from.

    `id` is the message's own, and its deduplication id on a FIFO queue; `tenant_id` and `source_id`
    are its default group. `dedupe_key` is what its origin calls it, `replay_id` the replay that
    sends it again. `received_at` has milliseconds. Of `headers`, only those that
    `forwarded_headers` lets through are kept. `body` is None while it lies in a claim check
    (`claim`, with `size` and `sha256`). Raises `UsageError` for what is no text, or is text that no
    document can hold, naming the field or the header.
    """

    id: str
    source_id: str
    body: bytes | None = None
    tenant_id: str | None = None
    received_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    content_type: str | None = None
    dedupe_key: str | None = None
    replay_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    claim: str | None = None
    size: int = -1
    sha256: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not self.id or not isinstance(self.id, str):
            raise UsageError(f"the envelope's id is {self.id!r}; it is text, and not empty")
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None or name in _ALWAYS:
                put(self, name, _text(f"the envelope's {name}", value))
        if (self.body is None) == (self.claim is None):
            raise UsageError("an envelope has a body or a claim, one of the two")
        if self.body is not None:
            if not isinstance(self.body, bytes | bytearray | memoryview):
                raise UsageError(
                    f"the envelope's body is of type {type(self.body).__name__}; it is bytes"
                )
            put(self, "body", bytes(memoryview(self.body)))
            put(self, "size", len(self.body))
            put(self, "sha256", hashlib.sha256(self.body).hexdigest())
        if not isinstance(self.received_at, datetime):
            raise UsageError(f"received_at is {self.received_at!r}; it is a datetime")
        if self.received_at.tzinfo is None:
            raise UsageError("received_at has no time zone; use datetime.now(UTC)")
        put(self, "received_at", _from_milliseconds(_milliseconds(self.received_at)))
        put(self, "headers", forwarded_headers(self.headers))

    @property
    def idempotency_key(self) -> str:
        """What tells a consumer that it has seen this message: the origin's own key within tenant
        and source where there is one, the id otherwise. A replay does not change it."""
        if self.dedupe_key:
            return f"{self.tenant_id or 'default'}:{self.source_id}:{self.dedupe_key}"
        return self.id

    def attributes(self, prefix: str = "pumphouse_") -> dict[str, str]:
        """The message attributes that go with it, at most eight; an empty value is left out."""
        found = {
            f"{prefix}id": self.id,
            f"{prefix}{VERSION_ATTRIBUTE}": str(VERSION),  # these tell that it is one
            f"{prefix}source_id": self.source_id,
            f"{prefix}tenant_id": self.tenant_id,
            f"{prefix}idempotency_key": self.idempotency_key,
            "content_type": "application/json",
            f"{prefix}dedupe_key": self.dedupe_key,
            f"{prefix}replay_id": self.replay_id,
        }
        return {name: value for name, value in found.items() if value}

    def to_json(self) -> bytes:
        """The document."""
        document: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "source_id": self.source_id,
            "tenant_id": self.tenant_id,
            "received_at": _milliseconds(self.received_at),
            "content_type": self.content_type,
            "size": self.size,
            "dedupe_key": self.dedupe_key,
            "replay_id": self.replay_id,
            "headers": dict(self.headers),
            "sha256": self.sha256,
        }
        if self.body is not None:
            document["body_base64"] = base64.b64encode(self.body).decode()
        else:
            document["claim"] = self.claim
        return msgspec.json.encode(document)

    async def offloaded(
        self, check: ClaimCheck, queue: str = "", *, shared: bool = False
    ) -> Envelope:
        """The same message, its body in the claim check when it is one for it; `queue` is where
        the message goes, and `shared` that more than one queue gets it."""
        if self.body is None or not check.wants(len(self.body)):
            return self
        whose = (self.tenant_id, self.source_id, self.replay_id, queue)
        ticket = await check.check_in(self.id, self.body, *whose, shared=shared)
        return replace(self, body=None, claim=ticket.key)


_ALWAYS = ("id", "source_id", "sha256")
_TEXTS = (*_ALWAYS, "tenant_id", "content_type", "dedupe_key", "replay_id", "claim")


class _Document(msgspec.Struct):
    """What is read of a document; other keys are ignored."""

    v: int
    id: str
    source_id: str
    received_at: int
    size: int
    sha256: str
    tenant_id: str | None = None
    content_type: str | None = None
    dedupe_key: str | None = None
    replay_id: str | None = None
    headers: dict[str, str] = {}
    body_base64: str | None = None
    claim: str | None = None


_decoder = msgspec.json.Decoder(_Document)


async def open_envelope(document: str | bytes, check: ClaimCheck | None = None) -> Envelope:
    """Read a document, fetch its body from the claim check if it lies there, and check it.

    Raises `UndecodableError` for what is no envelope of a known version, `BlobMissingError` for a
    body that is gone, `BlobDamagedError` for a body of another size or SHA-256.
    """
    try:
        read = _decoder.decode(document)
        if read.v != VERSION:
            raise UndecodableError(f"envelope version {read.v} is not known here, only {VERSION}")
        if (read.body_base64 is None) == (read.claim is None):
            raise UndecodableError("an envelope has body_base64 or claim, one of the two")
        if read.body_base64 is not None:
            body = base64.b64decode(read.body_base64, validate=True)
        elif check is None:
            raise UndecodableError("the body is in a claim check, and none was given to read it")
        else:
            body = await check.redeem(Ticket(read.claim or "", read.size, read.sha256))
        if len(body) != read.size or hashlib.sha256(body).hexdigest() != read.sha256:
            raise BlobDamagedError(f"the body of envelope {read.id!r} is not the one that was sent")
        return Envelope(
            id=read.id,
            source_id=read.source_id,
            body=body,
            tenant_id=read.tenant_id,
            received_at=_from_milliseconds(read.received_at),
            content_type=read.content_type,
            dedupe_key=read.dedupe_key,
            replay_id=read.replay_id,
            headers=read.headers,
        )
    except (msgspec.DecodeError, binascii.Error, OverflowError, UsageError) as error:
        raise UndecodableError(f"this is no envelope: {error}") from None


def replayed(
    body: str, attributes: Mapping[str, MessageAttributeValue], replay_id: str
) -> tuple[str, dict[str, MessageAttributeValue]]:
    """Body and attributes of a message that is sent again on purpose: where it is an envelope, they
    say so (`replay_id`); everything else comes back as it is."""
    changed = dict(attributes)
    if not any(name.endswith(VERSION_ATTRIBUTE) for name in attributes):
        return body, changed
    try:
        read = _decoder.decode(body)
        document: dict[str, Any] = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body, changed
    prefix = envelope_prefix(attributes, read.id)
    if read.v != VERSION or prefix is None:
        return body, changed
    document["replay_id"] = replay_id
    name = f"{prefix}replay_id"
    if name in changed or len(changed) < MAX_ATTRIBUTES:
        changed[name] = MessageAttributeValue("String", replay_id)
    return msgspec.json.encode(document).decode(), changed


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _milliseconds(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(milliseconds=1)


def _from_milliseconds(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
