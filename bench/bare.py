"""What the machine charges by itself: the same tasks and round trips, with nothing in between.

Requests are bytes made beforehand, answers are counted and thrown away; nothing is encoded, signed,
parsed or checked. What is left is asyncio, the kernel and waking the stub: no client in asyncio can
go below that, and it tells how far the figures of two machines can be compared.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

NAME = "bare asyncio"
TASKS = 32
_AUTHORIZATION = b"x" * 300


class Exchanges(asyncio.BufferedProtocol):
    """A connection that brings answers of known length to requests, one after the other."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(65_536))
        self._missing = 0
        self._transport: Any = None
        self._lengths: dict[bytes, int] = {}
        self._request = b""
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def exchange(self, request: bytes) -> asyncio.Future[None]:
        """Write a request; the future is done when the answer has arrived."""
        self._answered = asyncio.get_running_loop().create_future()
        self._request = request
        self._missing = self._lengths.get(request, 0)
        self._transport.write(request)
        return self._answered

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._missing:  # the first answer of its kind; those that follow are as long
            head, _, body = bytes(self._buffer[:nbytes]).partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self._missing = self._lengths[self._request] = nbytes - len(body) + length
        self._missing -= nbytes
        if not self._missing and self._answered is not None:
            self._answered.set_result(None)

    def close(self) -> None:
        self._transport.close()


def raw_request(action: str, body: bytes) -> bytes:
    """The bytes of a request that the stub takes, about as long as a signed one."""
    return (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-amz-json-1.0\r\n"
        b"X-Amz-Target: AmazonSQS.%b\r\nAuthorization: %b\r\nContent-Length: %d\r\n\r\n%b"
        % (action.encode(), _AUTHORIZATION, len(body), body)
    )


async def connect(url: str) -> Exchanges:
    where = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Exchanges, where.hostname or "", where.port or 80)
    return connection


async def round_trips(url: str, requests: Sequence[bytes], calls: int) -> float:
    """CPU seconds of so many calls from 32 tasks, each call these requests one after another."""

    async def task(connection: Exchanges, count: int) -> None:
        for _ in range(count):
            for each in requests:
                await connection.exchange(each)

    connections = [await connect(url) for _ in range(TASKS)]
    try:
        await asyncio.gather(*(task(each, 2) for each in connections))
        began = time.process_time()
        await asyncio.gather(*(task(each, calls // TASKS) for each in connections))
        return (time.process_time() - began) * calls / (calls // TASKS * TASKS)
    finally:
        for each in connections:
            each.close()


async def shared_round_trips(url: str, request: bytes, sends: int, share: int = 10) -> float:
    """CPU seconds of so many sends from 32 tasks that share a round trip in tens."""
    idle = [await connect(url) for _ in range(TASKS)]
    connections = tuple(idle)
    waiting: list[asyncio.Future[None]] = []
    loop = asyncio.get_running_loop()

    def leave() -> None:
        batch, waiting[:] = waiting[:], []
        connection = idle.pop()

        def answered(_: object) -> None:
            idle.append(connection)
            for each in batch:
                each.set_result(None)

        connection.exchange(request).add_done_callback(answered)

    async def send() -> None:
        sent = loop.create_future()
        waiting.append(sent)
        if len(waiting) >= share:
            leave()
        await sent

    async def task(count: int) -> None:
        for _ in range(count):
            await send()

    async def run(count: int) -> None:
        senders = asyncio.gather(*(task(count) for _ in range(TASKS)))
        while not senders.done():
            await asyncio.wait([senders], timeout=0.02)
            if waiting:  # what does not fill a batch has to go as well
                leave()
        await senders

    try:
        await run(10)
        began = time.process_time()
        await run(sends // TASKS)
        return (time.process_time() - began) * sends / (sends // TASKS * TASKS)
    finally:
        for each in connections:
            each.close()
