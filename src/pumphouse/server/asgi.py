"""The endpoint as a plain ASGI application, for any ASGI server.

`pumphouse serve` does without the detour (`connection.py`); what the two have in common is the
`Endpoint`. Here a body is read no further than is allowed, and a request is given up when its
client goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

from pumphouse.server.wire import Endpoint, Request, Response

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Application:
    """An `Endpoint` for an ASGI server."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise RuntimeError(f"the endpoint speaks HTTP, and no {scope['type']}")

    async def _http(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        body, whole = await self._read(receive)
        fields = scope["headers"]
        host, port = (scope.get("server") or ("127.0.0.1", 80))[:2]
        request = Request(
            scope["method"],
            scope["path"],
            (scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
            scope["query_string"],
            dict(fields),
            fields,
            body,
            f"{scope.get('scheme', 'http')}://{host}:{port}",
        )
        if whole:
            response = await _while_connected(self.endpoint.answer(request), receive)
        else:
            response = self.endpoint.too_large(request)
            response.headers.append((b"connection", b"close"))
        if response is None:
            return
        status, headers, content = response
        headers.append((b"content-length", b"%d" % len(content)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _read(self, receive: _Receive) -> tuple[bytes, bool]:
        """The body, and whether it is all of it: no more is read than is allowed."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            chunk = message.get("body", b"")
            chunks.append(chunk)
            size += len(chunk)
            if size > self.endpoint.max_body_bytes:
                return b"", False
            if not message.get("more_body"):
                return b"".join(chunks), True


async def _while_connected(work: Awaitable[Response], receive: _Receive) -> Response | None:
    """The outcome of `work`, or None where the client went away first: then it is cancelled."""
    loop = asyncio.get_running_loop()
    worker = cast("asyncio.Task[Any]", asyncio.current_task())
    gone = False
    watcher: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        worker.cancel()

    def start() -> None:
        nonlocal watcher
        watcher = loop.create_task(watch())

    # Work that never waits is over before the watcher would start.
    starting = loop.call_soon(start)
    try:
        return await work
    except asyncio.CancelledError:
        if not gone or worker.uncancel():
            raise
        return None
    finally:
        starting.cancel()
        if watcher is not None:
            watcher.cancel()


async def _lifespan(receive: _Receive, send: _Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
