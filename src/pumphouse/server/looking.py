"""The messages of a queue for whoever looks without receiving, as `pumphouse peek` does.

An address of our own beside SQS's wire: `/_pumphouse/messages/ARN/NUMBER`. It shows nothing of a
backend that can't be looked into.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import json

from pumphouse.errors import UsageError
from pumphouse.protocol.operations import ReceivedMessage

LOOK_PATH = "/_pumphouse/messages/"
MAX_MESSAGES = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""So much is shown of bodies at most; what would be more is left out at the end."""

Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
_NOT_HERE: Answer = (404, [(b"content-type", b"text/plain")], b"")


@runtime_checkable
class Open(Protocol):
    """A backend whose messages can be looked at without receiving them: `Account` is one."""

    async def look(self, queue: str, number: int) -> list[ReceivedMessage]:
        """The first visible messages of a queue. Raises `UsageError` where there is none."""
        ...


async def looked(method: str, path: str, backend: object) -> Answer:
    """Status, headers and body for a request to this address."""
    queue, _, number = path.removeprefix(LOOK_PATH).rpartition("/")
    if not isinstance(backend, Open) or not number.isdecimal():
        return _NOT_HERE
    if method not in ("GET", "HEAD"):
        return 405, [(b"allow", b"GET, HEAD")], b""
    try:
        found = await backend.look(queue, min(int(number[:6]), MAX_MESSAGES))
    except UsageError:
        return _NOT_HERE
    size = 0
    for place, message in enumerate(found):
        size += len(message.body)
        if place and size > MAX_BYTES:
            del found[place:]
            break
    return 200, [(b"content-type", b"application/json")], json.encode(found)
