"""Large bodies apart from their messages: `ClaimCheck` and the stores that bodies go to.

A body that is larger than `inline_max_bytes` goes to a `BlobStore`, and the message carries a
ticket: the key, the size and the SHA-256 of what was stored. `restore` gives the body back and
checks it. With `bucket`, the ticket is the pointer of AWS's extended clients instead, so that their
Java and Python users and this one read each other's messages (that format has no checksum).

A body is stored before its message is sent, and a retry writes the same object again. The key says
which message it is (its id, its queue and whose it is) and what is in it, so that no message ever
writes over, or deletes, the body of another. A body is deleted only after its message was
(`delete_message`, and the runtime of subscribers does the same), and never by the sender: give the
store a rule that removes what nobody fetched. What goes to a topic is read by any number of queues:
its body lies under `shared/`, and no reader deletes it. S3 as a store is `http/s3.py`.

What a message says chooses what is read and deleted, so only keys under `prefix` are, and a claim
counts only where the message has the attributes that its writer puts beside it: a body that came
from outside and looks like a claim is just a body. Who may send to the queue, attributes and all,
can still name any key under the prefix that he knows. Keys can't be guessed, for they hold a hash
of the body; but those who don't trust each other should not share a prefix.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from anyio import to_thread

from pumphouse.backend import Backend
from pumphouse.content import UndecodableError
from pumphouse.errors import BlobDamagedError, BlobMissingError, UsageError
from pumphouse.protocol.operations import (
    Attributes,
    DeleteMessage,
    MessageAttributeValue,
    ReceivedMessage,
)

CLAIM_ATTRIBUTE = "pumphouse.claim"
"""Marks a body that is a ticket; its only value is `v1`."""
SIZE_ATTRIBUTE = "ExtendedPayloadSize"
LEGACY_SIZE_ATTRIBUTE = "SQSLargePayloadSize"
_POINTER_CLASS = "software.amazon.payloadoffloading.PayloadS3Pointer"
_LEGACY_POINTER_CLASS = "com.amazon.sqs.javamessaging.MessageS3Pointer"
_MARKERS = frozenset({CLAIM_ATTRIBUTE, SIZE_ATTRIBUTE, LEGACY_SIZE_ATTRIBUTE})
VERSION_ATTRIBUTE = "message_version"
"""How the name of the attribute ends that says that a body is an envelope."""
_SHARED = "shared/"
_LONGEST_ENVELOPE = 262_144  # without its body: ids and headers
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def carries_ticket(attributes: Attributes) -> bool:
    """Whether a message says that its body lies elsewhere: with us, or with AWS's extended
    clients."""
    return not _MARKERS.isdisjoint(attributes)


class BlobStore(Protocol):
    """Where large bodies are kept. Keys are relative paths of letters, digits, `-_./`; a prefix, or
    the pointers of AWS's clients, may bring others. A store that has a method `check_key(key)`,
    which raises `UsageError`, says for itself which it takes."""

    async def put(self, key: str, data: bytes) -> None:
        """Store under the key, in place of what is there; returns when it is safe."""

    async def get(self, key: str, max_bytes: int) -> bytes:
        """What is stored. Raises `BlobMissingError`, and `BlobDamagedError` above `max_bytes`."""
        ...

    async def delete(self, key: str) -> None:
        """Remove it; does nothing where there is none."""


class MemoryBlobStore:
    """Bodies in a dict, for tests."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self.blobs[key] = data

    async def get(self, key: str, max_bytes: int) -> bytes:
        if key not in self.blobs:
            raise BlobMissingError(f"no blob {key!r}")
        return _bounded(key, self.blobs[key], max_bytes)

    async def delete(self, key: str) -> None:
        self.blobs.pop(key, None)


class DirectoryBlobStore:
    """Bodies as files of a directory, which is made if need be. Writes are synced and atomic."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def path(self, key: str) -> Path:
        """The file of a key. Raises `UsageError` for a key that leads out of the directory."""
        _check_key(key)
        return self.directory.joinpath(*key.split("/"))

    async def put(self, key: str, data: bytes) -> None:
        await to_thread.run_sync(self._write, self.path(key), data)

    async def get(self, key: str, max_bytes: int) -> bytes:
        path = self.path(key)

        def read() -> bytes:
            with path.open("rb") as file:
                return file.read(max_bytes + 1)

        try:
            return _bounded(key, await to_thread.run_sync(read), max_bytes)
        except FileNotFoundError:
            raise BlobMissingError(f"no blob {key!r} in {self.directory}") from None

    async def delete(self, key: str) -> None:
        path = self.path(key)
        await to_thread.run_sync(lambda: path.unlink(missing_ok=True))

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        changed = [path.parent]  # the directories that get a name
        while not changed[-1].exists():
            changed.append(changed[-1].parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            for directory in changed:
                _sync(directory)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _sync(directory: Path) -> None:
    """Return when the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Ticket(NamedTuple):
    """Where a body is. `size` and `sha256` are None where the ticket does not say them."""

    key: str
    size: int | None = None
    sha256: str | None = None


class ClaimCheck:
    """Takes large bodies out of messages, and puts them back.

    `inline_max_bytes` is the largest body that stays in its message (64 KiB); `max_bytes` bounds
    what is read back (256 MiB); `prefix` begins every key, and only keys that begin with it are
    read or deleted. `bucket` writes AWS's pointer format with this bucket's name, `legacy` with the
    older attribute name, `SQSLargePayloadSize`. Both formats are read in any case; a pointer to
    another bucket than `bucket` is refused, since what a message says must not choose what is read.

    A stored body is deleted after its message. A standard queue may hold a message twice (SQS
    delivers it again, or `retry_unknown` sent it again), and both have one body: who reads the
    second after the first was handled gets `BlobMissingError`. `delete_after_handling=False` leaves
    every body to a rule of the store's (a lifecycle of the bucket, longer than the queue keeps
    messages): for readers that have to see each copy, and for queues that share messages.
    """

    def __init__(
        self,
        store: BlobStore,
        *,
        inline_max_bytes: int = 65_536,
        max_bytes: int = 268_435_456,
        prefix: str = "",
        bucket: str | None = None,
        legacy: bool = False,
        delete_after_handling: bool = True,
    ) -> None:
        if not all(callable(getattr(store, name, None)) for name in ("put", "get", "delete")):
            raise UsageError(
                f"the store of a claim check is {store!r}; it is a BlobStore, as "
                "DirectoryBlobStore(Path(…)) or S3BlobStore(…)"
            )
        if inline_max_bytes < 0:
            raise UsageError(f"inline_max_bytes is {inline_max_bytes}; it is at least 0")
        if max_bytes < 1:
            raise UsageError(f"max_bytes is {max_bytes}; it is at least 1")
        if not isinstance(prefix, str):
            raise UsageError(f"prefix is {prefix!r}; it is text")
        if bucket is not None and not isinstance(bucket, str):
            raise UsageError(f"bucket is {bucket!r}; it is text")
        self.store = store
        self.inline_max_bytes = inline_max_bytes
        self.max_bytes = max_bytes
        self.prefix = prefix
        self.bucket = bucket
        self.legacy = legacy
        self.delete_after_handling = delete_after_handling
        try:
            getattr(store, "check_key", _check_key)(self.key("0" * 90, "", shared=True))
        except UsageError as error:
            raise UsageError(
                f"prefix is {prefix!r}, and no key can begin with it: {error}"
            ) from None

    def wants(self, size: int) -> bool:
        """Whether a body of this many bytes goes to the store."""
        return size > self.inline_max_bytes

    def key(self, message_id: str, sha256: str, *scope: str | None, shared: bool = False) -> str:
        """The key for a message's body: the same one whenever the same message is sent again.

        `scope` says whose message it is and where it goes: another queue's message of the same id
        has a body of its own, which is deleted with it. One that is `shared` is never deleted.
        """
        parts = (sha256, message_id, *(part or "" for part in scope))
        told = "\0".join(parts).encode(errors="surrogatepass")
        digest = hashlib.sha256(told).hexdigest()[:32]
        safe = len(message_id) <= 90 and _SAFE.fullmatch(message_id) is not None
        where = f"{self.prefix}{_SHARED}" if shared else self.prefix
        return f"{where}{message_id}-{digest}" if safe else f"{where}{digest}"

    async def check_in(
        self, message_id: str, data: bytes, *scope: str | None, shared: bool = False
    ) -> Ticket:
        """Store a body and return its ticket."""
        sha256 = hashlib.sha256(data).hexdigest()
        key = self.key(message_id, sha256, *scope, shared=shared)
        await self.store.put(key, data)
        return Ticket(key, len(data), sha256)

    async def redeem(self, ticket: Ticket) -> bytes:
        """The body of a ticket. Raises `BlobMissingError`, `BlobDamagedError` where it is not the
        one that was stored, and `UndecodableError` for a key that is not of this claim check."""
        if (fault := self._fault(ticket.key)) is not None:
            raise UndecodableError(fault)
        try:
            data = await self.store.get(ticket.key, self.max_bytes)
        except UsageError as error:
            raise UndecodableError(f"the message names a body that can't be: {error}") from None
        if ticket.sha256 is not None and hashlib.sha256(data).hexdigest() != ticket.sha256:
            raise BlobDamagedError(f"the blob {ticket.key!r} is not the body that was sent")
        return data

    def _fault(self, key: str) -> str | None:
        """Why what a key names is neither read nor deleted here, or None where it is."""
        if not key.startswith(self.prefix) or {".", ".."} & set(key.split("/")):
            return (
                f"the message names the body {key!r}, and this claim check knows only those under "
                f"its prefix {self.prefix!r}"
            )
        return None

    # --- messages ---------------------------------------------------------------------------

    async def offload(
        self,
        text: str,
        attributes: Attributes,
        message_id: str,
        *scope: str | None,
        shared: bool = False,
    ) -> tuple[str, Attributes]:
        """The body and attributes to send in place of these, the body stored."""
        data = text.encode()
        key, size, sha256 = await self.check_in(message_id, data, *scope, shared=shared)
        if self.bucket is None:
            body: Any = {"v": 1, "claim": key, "size": size, "sha256": sha256}
            marker = {CLAIM_ATTRIBUTE: MessageAttributeValue("String", "v1")}
        else:
            body = [_POINTER_CLASS, {"s3BucketName": self.bucket, "s3Key": key}]
            name = LEGACY_SIZE_ATTRIBUTE if self.legacy else SIZE_ATTRIBUTE
            marker = {name: MessageAttributeValue("Number", str(len(data)))}
        return msgspec.json.encode(body).decode(), {**attributes, **marker}

    def ticket(self, text: str, attributes: Attributes | None) -> Ticket | None:
        """The ticket in a received message, or None for a message that carries its own body.

        Raises `UndecodableError` for a marked body that is no ticket, and for a pointer to a
        bucket that is not ours.
        """
        attributes = attributes or {}
        if CLAIM_ATTRIBUTE in attributes:
            found = _json(text)
            if isinstance(found, dict) and found.get("v") == 1:
                key, size, digest = found.get("claim"), found.get("size"), found.get("sha256")
                if isinstance(key, str) and isinstance(size, int) and isinstance(digest, str):
                    return Ticket(key, size, digest)
            raise UndecodableError("the body is marked as a claim ticket and is none")
        if SIZE_ATTRIBUTE in attributes or LEGACY_SIZE_ATTRIBUTE in attributes:
            match _json(text):
                case [str(name), {"s3BucketName": str(bucket), "s3Key": str(key)}] if name in (
                    _POINTER_CLASS,
                    _LEGACY_POINTER_CLASS,
                ):
                    if bucket != self.bucket:
                        raise UndecodableError(
                            f"the message points to the bucket {bucket!r}, "
                            f"and this claim check reads {self.bucket!r}"
                        )
                    return Ticket(key)
            raise UndecodableError("the body is marked as an S3 pointer and is none")
        return None

    async def restore(
        self, text: str, attributes: Attributes | None
    ) -> tuple[str, Attributes | None]:
        """The body and attributes as they were before `offload`; a message that carries its own
        body comes back as it is. Raises what `ticket` and `redeem` raise."""
        if (ticket := self.ticket(text, attributes)) is None:
            return text, attributes
        data = await self.redeem(ticket)
        left = {n: value for n, value in (attributes or {}).items() if n not in _MARKERS}
        try:
            return data.decode(), left or None
        except UnicodeDecodeError:
            raise BlobDamagedError(f"the blob {ticket.key!r} is no text") from None

    def has_ticket(self, text: str, attributes: Attributes | None) -> bool:
        """Whether a message may have a body in the store: a quick look, without reading it."""
        if attributes and carries_ticket(attributes):
            return True
        return bool(attributes) and '"claim":' in text and len(text) < _LONGEST_ENVELOPE

    async def discard(self, text: str, attributes: Attributes | None) -> None:
        """Delete the stored body of a message that is deleted for certain: of one with a ticket, or
        of an envelope with its attributes. Does nothing for a message that carries its own body, or
        names one that is not of this claim check or is shared, or without
        `delete_after_handling`."""
        if not self.delete_after_handling or not self.has_ticket(text, attributes):
            return
        try:
            ticket = self.ticket(text, attributes)
        except UndecodableError:
            return
        key = _claim_of(text, attributes or {}) if ticket is None else ticket.key
        if key is None or self._fault(key) is not None or _is_shared(key, self.prefix):
            return
        with suppress(UsageError):  # the store can't have it
            await self.store.delete(key)

    async def delete_message(
        self, backend: Backend, queue_url: str, message: ReceivedMessage
    ) -> None:
        """Delete a received message, and then, once SQS has confirmed that, its stored body."""
        await backend.execute(DeleteMessage(queue_url, message.receipt_handle))
        await self.discard(message.body, message.message_attributes)

    def __repr__(self) -> str:
        return f"ClaimCheck({type(self.store).__name__}, above {self.inline_max_bytes} bytes)"


class _Claiming(msgspec.Struct):
    """What tells an envelope whose body is in a store (`envelope.py`)."""

    v: Literal[1]
    id: str
    source_id: str
    received_at: int
    size: int
    sha256: str
    claim: str


def _claim_of(text: str, attributes: Attributes) -> str | None:
    """The key that an envelope names; None for what only looks like one."""
    try:
        found = msgspec.json.decode(text, type=_Claiming)
    except msgspec.DecodeError:
        return None
    return None if envelope_prefix(attributes, found.id) is None else found.claim


def envelope_prefix(attributes: Mapping[str, MessageAttributeValue], id: str) -> str | None:  # noqa: A002
    """What the attributes of an envelope with this id begin with; None where they are not there."""
    for name in attributes:
        prefix = name.removesuffix(VERSION_ATTRIBUTE)
        if prefix != name and (own := attributes.get(f"{prefix}id")) and own.string_value == id:
            return prefix
    return None


def _is_shared(key: str, prefix: str) -> bool:
    return key.startswith(_SHARED, len(prefix)) or f"/{_SHARED}" in key


def _check_key(key: str) -> None:
    """Raise `UsageError` unless a key is a relative path of safe names."""
    if not all(_SAFE.fullmatch(part) for part in key.split("/")):
        raise UsageError(
            f"{key!r} is no key for a blob: a path of letters, digits, '-', '_' and '.'"
        )


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _bounded(key: str, data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise BlobDamagedError(f"the blob {key!r} is larger than the {max_bytes} bytes allowed")
    return data
