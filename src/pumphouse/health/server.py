"""Probes over HTTP: `/live`, `/ready` and `/health`, answered by a thread of their own.

As they have their own thread and event loop they are answered also while a handler blocks the
app's. A connection gets one answer and is closed; a request has `MAX_REQUEST_BYTES` and
`REQUEST_SECONDS`, and more than `MAX_CONNECTIONS` at once are turned away.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, Self

import httptools
import msgspec

from pumphouse.errors import ConfigError, UsageError
from pumphouse.health.state import Snapshot

MAX_REQUEST_BYTES = 8 * 1024
REQUEST_SECONDS = 5.0
MAX_CONNECTIONS = 64
_LOOK_SECONDS = 1.0


class HasSnapshots(Protocol):
    """What is served: a `Monitor`, or whatever has the same method; called in another thread."""

    def snapshot(self) -> Snapshot:
        """The app now."""
        ...


class HealthServer:
    """Serves how an app is for as long as its `with` block runs.

    - `host`: 127.0.0.1 by default, which only this machine reaches.
    - `port`: 0 takes any that is free; `port` says which it is.

    Raises `UsageError` for a port that is none and `ConfigError` where it can't be listened on.
    """

    def __init__(self, source: HasSnapshots, *, port: int, host: str = "127.0.0.1") -> None:
        self._source = source
        self._listening = _bind(host, port)
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._closing = False
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="pumphouse-health", daemon=True)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering."""
        self._closing = True  # for a thread that has not got so far yet
        loop, ended = self._loop, self._ended
        if loop is not None and ended is not None:
            with contextlib.suppress(RuntimeError):  # it is closed already
                loop.call_soon_threadsafe(ended.set)
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._listening.close()

    # --- in its thread --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(
            self._answer, sock=self._listening, limit=MAX_REQUEST_BYTES
        )
        async with server:
            while not (self._closing or self._ended.is_set()):
                self._source.snapshot()  # it measures from one to the next
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._ended.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if self._open <= MAX_CONNECTIONS:
                    writer.write(await _one(reader, self._source.snapshot))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()


class _Head:
    """What httptools found in a request."""

    def __init__(self) -> None:
        self.url = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_headers_complete(self) -> None:
        self.complete = True


async def _one(reader: asyncio.StreamReader, snapshot: Callable[[], Snapshot]) -> bytes:
    """Read one request and make its answer."""
    head = _Head()
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        return _response(431, b"")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return _response(400, b"")
    if not head.complete:
        return _response(400, b"")
    method = parser.get_method()
    if method not in (b"GET", b"HEAD"):
        return _response(405, b"", b"allow: GET, HEAD\r\n")
    status, body = answer(head.url.partition(b"?")[0].decode("latin-1"), snapshot)
    return _response(status, body, head=method == b"HEAD")


def answer(path: str, snapshot: Callable[[], Snapshot]) -> tuple[int, bytes]:
    """The status and the JSON of a path."""
    if path not in ("/live", "/ready", "/health"):
        return 404, b'{"error":"there is /live, /ready and /health"}'
    now = snapshot()
    if path == "/health":
        found = {"ready": not now.not_ready, "reason": now.not_ready, **msgspec.structs.asdict(now)}
        return 200, msgspec.json.encode(found)
    good = now.live if path == "/live" else not now.not_ready
    reason = now.not_ready if path == "/ready" or not good else ""
    return (200 if good else 503), msgspec.json.encode({path[1:]: good, "reason": reason})


def _response(status: int, body: bytes, more: bytes = b"", *, head: bool = False) -> bytes:
    return b"".join(
        (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode(),
            b"content-type: application/json\r\ncache-control: no-store\r\nconnection: close\r\n",
            more,
            b"content-length: %d\r\n\r\n" % len(body),
            b"" if head else body,
        )
    )


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise UsageError(f"the health port {port} is not between 0 and 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(
            f"the health host {host!r} can't be listened on: {error.strerror}"
        ) from None
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{host}:{port} can't be listened on: {error.strerror}; "
            "give another health port, or 0 for any that is free"
        ) from None
    bound.setblocking(False)
    return bound
