"""One GET over HTTPS or HTTP, of a small document: `fetch`, for the certificates of SNS.

A connection of its own for each, no redirects, no credentials, a bound on size and time. Where it
may be sent is for the caller to have checked.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

import httptools

from pumphouse.errors import NetworkError
from pumphouse.http.dial import tls_context

FETCH_SECONDS = 10.0
_CHUNK_BYTES = 16_384


class _Reading:
    def __init__(self, max_bytes: int) -> None:
        self.body = bytearray()
        self.complete = False
        self._most = max_bytes

    def on_body(self, data: bytes) -> None:
        self.body += data[: self._most + 1 - len(self.body)]

    def on_message_complete(self) -> None:
        self.complete = True


async def fetch(url: str, max_bytes: int) -> bytes:
    """The body of a URL. Raises `NetworkError` where it can't be had within ten seconds, or is no
    answer of status 200."""
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await _get(url, max_bytes)
    except (OSError, TimeoutError, ValueError, httptools.HttpParserError) as error:
        raise NetworkError(f"{url} can't be fetched: {error or type(error).__name__}") from error


async def _get(url: str, max_bytes: int) -> bytes:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host = parts.hostname or ""
    context = await asyncio.to_thread(tls_context, None) if secure else None
    reader, writer = await asyncio.open_connection(
        host, parts.port or (443 if secure else 80), ssl=context
    )
    try:
        target = parts.path or "/"
        if any(character.isspace() for character in url):
            raise ValueError("the URL holds a space")
        writer.write(
            f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: */*\r\n"
            "Connection: close\r\n\r\n".encode("ascii")
        )
        await writer.drain()
        reading = _Reading(max_bytes)
        parser = httptools.HttpResponseParser(reading)
        heard = 0
        while not reading.complete and (chunk := await reader.read(_CHUNK_BYTES)):
            heard += len(chunk)
            if heard > max_bytes + 65_536:
                raise ValueError("the answer is too long")
            parser.feed_data(chunk)
        if parser.get_status_code() != 200:
            raise ValueError(f"the answer is {parser.get_status_code() or 'cut'}")
        if len(reading.body) > max_bytes:
            raise ValueError(f"the answer is longer than {max_bytes} bytes")
        if not reading.complete:
            raise ValueError("the answer is cut")
        return bytes(reading.body)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            await writer.wait_closed()
