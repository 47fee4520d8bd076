"""One HTTP connection of the endpoint: reading requests, writing answers, and the bounds on both.

Made for uvicorn, which calls it a protocol class: `runner.py` gives it to uvicorn's server. Where
uvicorn's own would start an ASGI conversation, this one calls `Endpoint.answer` with the whole
request and writes the answer in one piece, which costs less than half.

A connection answers its requests one after the other, in order. It is always in one of three
states, and `_since` says since when: idle, reading a request, or answering one; `_closing` says
that it takes no other. Time is looked at once a second, by `check_pace`, so no
request needs a timer of its own. Nothing more is read while a request waits for its turn, or while
the client does not read its answers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from pumphouse.errors import OutcomeUnknownError
from pumphouse.server.asgi import Application
from pumphouse.server.wire import Request, Response

MAX_HEADER_BYTES = 64 * 1024
"""The largest request line and headers together."""
MAX_FRAMING = 8
"""How many bytes of chunking may stand around each byte of a body; chunks of one byte have five."""
READ_SECONDS = 30.0
"""How long a client may take to send one request."""
KEEP_ALIVE_SECONDS = 75.0
"""How long a connection may be idle between two requests."""

_log = logging.getLogger("pumphouse.server")

_STATUS_LINE = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


if sys.version_info >= (3, 12):

    def _start(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """A task that runs at once as far as it can."""
        return asyncio.Task(work, loop=loop, eager_start=True)

else:

    def _start(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        return loop.create_task(work)


class Connection(asyncio.Protocol):
    """HTTP/1.1 for an `Endpoint`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._endpoint = cast(Application, config.app).endpoint
        self._state = server_state
        self._loop = _loop or asyncio.get_event_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._origin = ""
        # what is being read
        self._reading = False
        self._in_body = False
        self._bytes = 0  # of this request so far, its framing included
        self._body_bytes = 0
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._chunks: list[bytes] = []
        # what is being answered
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._answering = False
        self._task: asyncio.Task[None] | None = None
        # the state of the connection
        self._since = self._loop.time()
        self._held = False  # nothing is read for now
        self._blocked = False  # the client does not read
        self._closing = False

    def __repr__(self) -> str:
        state = "answering" if self._answering else "reading" if self._reading else "idle"
        return f"<Connection {state}{', closing' if self._closing else ''}>"

    # --- called by the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._state.connections.add(cast(Any, self))
        secure = transport.get_extra_info("sslcontext") is not None
        host, port = (transport.get_extra_info("sockname") or ("127.0.0.1", 80))[:2]
        host = f"[{host}]" if ":" in host else host
        self._origin = f"{'https' if secure else 'http'}://{host}:{port}"

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(cast(Any, self))
        self._closing = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()  # whoever asked is gone, and must be given no message

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return  # what a refused client still sends
        self._bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
        else:
            if self._bytes > MAX_HEADER_BYTES + MAX_FRAMING * self._body_bytes:
                self._refuse(431)

    def pause_writing(self) -> None:
        self._blocked = True
        self._hold()

    def resume_writing(self) -> None:
        self._blocked = False
        self._next()

    # --- called by uvicorn's server and by `runner.py` ---

    def shutdown(self) -> None:
        """Close once what has been asked is answered."""
        self._closing = True
        if not self._answering:
            self._transport.close()

    def check_pace(self, now: float) -> None:
        """Part with a client that is too slow, or has nothing more to ask."""
        seconds = now - self._since
        if self._blocked or self._closing:
            if seconds > READ_SECONDS and not self._answering:
                self._transport.abort()
        elif self._reading:
            if seconds > READ_SECONDS and not self._answering:
                self._refuse(408)
        elif seconds > KEEP_ALIVE_SECONDS and not self._answering:
            self._transport.close()

    # --- called by the parser ---

    def on_message_begin(self) -> None:
        self._reading = True
        self._body_bytes = 0
        self._url = b""
        self._fields = []
        self._chunks = []
        if not self._answering:
            self._since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # a trailer says nothing of a request that is read by its header
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_body = True
        if self._bytes > MAX_HEADER_BYTES and self._head_bytes() > MAX_HEADER_BYTES:
            self._refuse(431)
        waits = False
        for name, value in self._fields:
            if name == b"content-length" and int(value) > self._endpoint.max_body_bytes:
                self._refuse(413)
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                self._refuse(501)
            elif name == b"expect":
                waits = value.strip().lower() == b"100-continue"
        if waits and not (self._answering or self._closing or self._is_1_0()):
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _head_bytes(self) -> int:
        """The size of what was read of this request, however much came with it."""
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._fields)

    def _is_1_0(self) -> bool:
        return bool(self._parser.get_http_version() == "1.0")  # which has no interim answers

    def on_body(self, body: bytes) -> None:
        if self._closing:
            return
        self._chunks.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._endpoint.max_body_bytes:
            self._refuse(413)

    def on_message_complete(self) -> None:
        if self._closing:
            return
        self._reading = False
        self._in_body = False
        self._bytes = 0
        self._waiting.append((self._request(), self._parser.should_keep_alive()))
        if self._answering or self._blocked:
            self._hold()
        else:
            self._next()

    def _request(self) -> Request:
        url, chunks = self._url, self._chunks
        if not url.startswith(b"/"):  # in its absolute form, or `*`
            url = b"/" + url.partition(b"://")[2].partition(b"/")[2]
        path, _, query = url.partition(b"?")
        raw_path = path.decode("latin-1")
        return Request(
            self._parser.get_method().decode("ascii"),
            unquote(raw_path) if "%" in raw_path else raw_path,
            raw_path,
            query,
            dict(self._fields),
            self._fields,
            chunks[0] if len(chunks) == 1 else b"".join(chunks),
            self._origin,
        )

    # --- answering ---

    def _next(self) -> None:
        """Answer what waits; read on when nothing does."""
        while self._waiting and not (self._answering or self._blocked):
            request, keep_alive = self._waiting.popleft()
            self._answering = True
            self._since = self._loop.time()
            task = _start(self._loop, self._answer(request, keep_alive))
            if self._answering:
                self._task = task
                self._state.tasks.add(task)
        if self._held and not (self._waiting or self._blocked or self._closing):
            self._held = False
            self._transport.resume_reading()

    def _hold(self) -> None:
        if not (self._held or self._closing):
            self._held = True
            self._transport.pause_reading()

    async def _answer(self, request: Request, keep_alive: bool) -> None:
        response = None
        try:
            response = await self._endpoint.answer(request)
        except OutcomeUnknownError as error:
            _log.info("an answer is lost: %s", error)
        finally:
            self._answering = False
            had_waited = self._task is not None
            if self._task is not None:
                self._state.tasks.discard(self._task)
                self._task = None
        self._state.total_requests += 1
        self._since = self._loop.time()
        if response is None:
            self._closing = True
            self._transport.abort()
            return
        last = self._closing or not keep_alive
        self._write(response, head=request.method == "HEAD", last=last)
        if last:
            self._closing = True
            self._waiting.clear()
            self._transport.close()
        elif had_waited and (self._waiting or self._held):
            self._next()

    def _write(self, response: Response, *, head: bool = False, last: bool = False) -> None:
        status, headers, body = response
        parts = [_STATUS_LINE[status]]
        for name, value in self._state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if last:
            parts.append(b"connection: close\r\n")
        parts.append(b"content-length: %d\r\n\r\n" % len(body))
        if not head:
            parts.append(body)
        self._transport.write(b"".join(parts))

    def _refuse(self, status: int) -> None:
        """Answer a request that can't be read to its end, and take no other.

        The connection is closed in one direction only: a client that is still sending would not
        see the answer otherwise.
        """
        if self._closing:
            return
        self._closing = True
        self._waiting.clear()
        if self._answering:
            return  # the answer that is under way is the last one
        if status == 413:
            response = self._endpoint.too_large(self._request())
        else:
            response = Response(status, [], b"")
        self._write(response, last=True)
        self._since = self._loop.time()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
