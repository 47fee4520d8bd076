"""One GET over HTTPS or HTTP, of a small document: `fetch`, for the certificates of SNS.

A connection of its own for each, no redirects, no credentials, a bound on size and time. What is
trusted and the proxy are those of every other request (`AWS_CA_BUNDLE`, `HTTPS_PROXY`). Where it
may be sent is for the caller to have checked.
"""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from pumphouse.clock import RealClock
from pumphouse.errors import ConfigError, NetworkError
from pumphouse.http.connection import Connection, ExchangeFailed
from pumphouse.http.dial import Origin, dial, proxy_for, tls_context
from pumphouse.http.endpoint import Configuration

FETCH_SECONDS = 10.0


class _Alone:
    """The owner of a connection that carries one exchange."""

    def released(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection) -> None:
        pass


async def fetch(url: str, max_bytes: int) -> bytes:
    """The body of a URL. Raises `NetworkError` where it can't be had within ten seconds, or is no
    answer of status 200."""
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            return await _get(url, max_bytes)
    except (ExchangeFailed, ConfigError, TimeoutError, ValueError) as error:
        raise NetworkError(f"{url} can't be fetched: {error or type(error).__name__}") from error


async def _get(url: str, max_bytes: int) -> bytes:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    origin = Origin(parts.scheme, parts.hostname or "", parts.port or (443 if secure else 80))
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("the URL holds what no URL can hold")
    request = (
        f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: */*\r\n"
        "Connection: close\r\n\r\n"
    ).encode()
    clock = RealClock()

    def make() -> Connection:
        return Connection(_Alone(), clock, idle_seconds=FETCH_SECONDS, max_body_bytes=max_bytes)

    connection = await dial(
        make,
        origin,
        tls=await asyncio.to_thread(_trusted) if secure else None,
        proxy=proxy_for(origin),
        clock=clock,
        timeout_seconds=FETCH_SECONDS,
    )
    try:
        now = clock.monotonic()
        answer = await connection.exchange(request, now, FETCH_SECONDS, now + FETCH_SECONDS)
    finally:
        connection.abort()
    if answer.status != 200:
        raise ValueError(f"the answer is {answer.status}")
    return answer.body


def _trusted() -> ssl.SSLContext:
    return tls_context(Configuration(region=None, endpoint_url=None, profile=None).ca_bundle())
