"""One HTTP request to an endpoint on this machine, for a topic: the body out, a status in.

What is sent, when and how often is the account's (`account/topics/`); this is the function that it
is given. Each request has a connection of its own, and no redirect is followed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

import httptools

from pumphouse.account.topics.notifying import HttpDelivery, is_loopback

MAX_ANSWER_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024


async def deliver(delivery: HttpDelivery) -> int:
    """POST a delivery and return the status of the answer.

    Raises `OSError` where there is no connection or no whole answer, and for an endpoint that is
    not on this machine.
    """
    if not is_loopback(delivery.url):
        raise ConnectionRefusedError(f"{delivery.url} is not on this machine")
    request = _request(delivery)
    parts = urlsplit(delivery.url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    # The name is not looked up: where it leads is known.
    address = "127.0.0.1" if host == "localhost" else host
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(
        address, port, ssl=secure or None, server_hostname=host if secure else None
    )
    try:
        writer.write(request)
        await writer.drain()
        return await _status(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _request(delivery: HttpDelivery) -> bytes:
    parts = urlsplit(delivery.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}"]
    lines += [f"{name}: {value}" for name, value in delivery.headers.items()]
    lines += [f"Content-Length: {len(delivery.body)}", "Connection: close", "", ""]
    head = "\r\n".join(lines)
    if any(character in line for line in lines for character in "\r\n"):
        raise ConnectionRefusedError("a header or the address holds a line break")
    return head.encode("latin-1", "replace") + delivery.body


class _Answer:
    """What the parser is told of an answer."""

    def __init__(self) -> None:
        self.complete = False

    def on_message_complete(self) -> None:
        self.complete = True


async def _status(reader: asyncio.StreamReader) -> int:
    answer = _Answer()
    parser = httptools.HttpResponseParser(answer)
    size = 0
    while not answer.complete:
        chunk = await reader.read(_CHUNK_BYTES)
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ConnectionAbortedError("the answer is too long")
        if not chunk:
            break
        try:
            parser.feed_data(chunk)
        except httptools.HttpParserError as error:
            raise ConnectionAbortedError(f"the answer is no HTTP: {error}") from None
    if not size:
        raise ConnectionResetError("the endpoint closed the connection without an answer")
    status = parser.get_status_code()
    if not status:
        raise ConnectionResetError("the answer is cut")
    return int(status)
