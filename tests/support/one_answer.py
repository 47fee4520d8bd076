"""An HTTP server on loopback that gives every request the same answer, and counts them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class OneAnswer:
    """`async with OneAnswer(503, b"busy") as server:`; `server.url`, `server.requests`."""

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = (
            b"HTTP/1.1 %d Whatever\r\ncontent-type: text/html\r\nlocation: /elsewhere\r\n"
            b"content-length: %d\r\n\r\n%b" % (status, len(body), body)
        )
        self.requests = 0
        self._open = 0
        self._none_open = asyncio.Event()
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                self.requests += 1
                writer.write(self._answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def drained(self) -> None:
        """Wait until every connection was closed by the other side."""
        await self._none_open.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        await self._server.wait_closed()
