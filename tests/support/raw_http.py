"""A connection that sends exactly the bytes it is told to, and reads one answer at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple


class RawAnswer(NamedTuple):
    """An answer as it came; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """Bytes out, answers in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, head: bool = False) -> RawAnswer:
        async with asyncio.timeout(20):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:] if line)
            }
            length = 0 if head else int(headers.get("content-length", "0"))
            return RawAnswer(
                int(lines[0].split()[1]), headers, await self.reader.readexactly(length)
            )

    async def ended(self) -> bool:
        """Whether the server closes without a further byte."""
        async with asyncio.timeout(20):
            return await self.reader.read(1) == b""

    def abort(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def post(
    body: bytes | str | dict[str, Any],
    *,
    target: str | None = None,
    path: str = "/",
    headers: dict[str, str] | None = None,
) -> bytes:
    """A POST with its length; JSON with a target, where one is given."""
    if isinstance(body, dict):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    fields = {"Host": "127.0.0.1", "Content-Length": str(len(body))}
    if target is not None:
        fields["Content-Type"] = "application/x-amz-json-1.0"
        fields["X-Amz-Target"] = target
    fields |= headers or {}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def ask(port: int, request: bytes) -> RawAnswer:
    """One request on a connection of its own."""
    async with connect(port) as connection:
        await connection.send(request)
        return await connection.answer()
