"""One HTTP/1.1 connection: it writes a request, reads the answer, and knows what it can prove.

A connection is *idle*, *busy* with one exchange, or *closed*. It leaves each exchange in one of two
ways: with a whole answer (and then it is idle again, or closed where it can't be used again), or
with an `ExchangeFailed` that says how far things got (and then it is closed). So no connection ever
waits in a pool with half an answer. What that means for the caller is decided in `retry.py`;
opening connections is `dial.py`, keeping them `pool.py`.

The proof of "not processed" is that the last byte of the request never left this process: the
signature covers the whole body, so nobody can act on a part of it. The transport's write buffer is
given a high-water mark of one byte; `_unsent` is true from the moment bytes stay in it until it has
drained.

Each connection has one timer. It is moved forward only when it fires, so an exchange sets none.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator, Mapping
from typing import Protocol, cast

import httptools
import msgspec

from pumphouse.clock import Clock, Timer

READ_BYTES = 65_536
MAX_HEADER_BYTES = 65_536
MAX_FRAMING = 8
"""How many bytes of chunking may stand around each byte of a body; chunks of one byte have five."""
PROBE_AFTER_SECONDS = 1.0
"""A connection that was idle for this long is looked at before it is used again."""

_NEVER = float("inf")


class Headers(Mapping[str, str]):
    """The headers of an answer, by their names in lower case; of several alike, the first.

    Few callers look at them, so they are read out of the answer's bytes when someone does.
    """

    __slots__ = ("_bytes", "_read")

    def __init__(self, received: list[bytes]) -> None:
        self._bytes = received
        self._read: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._read is None:
            section, _, rest = b"".join(self._bytes).partition(b"\r\n\r\n")
            while section[9:10] == b"1" and rest:  # an interim answer; the one that counts follows
                section, _, rest = rest.partition(b"\r\n\r\n")
            self._read = {}
            for line in section.decode("latin-1").split("\r\n")[1:]:
                name, _, value = line.partition(":")
                self._read.setdefault(name.strip().lower(), value.strip())
            self._bytes = []
        return self._read

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"Headers({self._all()})"


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ExchangeFailed(Exception):
    """There was no whole answer.

    `left` is whether the whole request may have left this process; `answered` whether a byte of an
    answer arrived; `silent` whether it was time that ran out.
    """

    def __init__(
        self, reason: str, *, left: bool, answered: bool = False, silent: bool = False
    ) -> None:
        self.reason = reason
        self.left = left
        self.answered = answered
        self.silent = silent
        super().__init__(reason)


class Owner(Protocol):
    """Who hears what becomes of a connection; called from the loop, never in an exchange."""

    def released(self, connection: Connection) -> None:
        """The connection has answered and is idle."""

    def closed(self, connection: Connection) -> None:
        """The connection is closed; called once."""


class Connection(asyncio.BufferedProtocol):
    """A protocol for asyncio's transports; `exchange` is for one caller at a time."""

    def __init__(
        self, owner: Owner, clock: Clock, *, idle_seconds: float, max_body_bytes: int
    ) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._monotonic = clock.monotonic
        self._idle_seconds = idle_seconds
        self._max_body_bytes = max_body_bytes
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._closed = False
        self._unsent = False
        self.exchanges = 0
        """How many answers it has brought."""
        # time: when it has to have answered, or to be used again
        self._timer: Timer | None = None
        self._timer_due = _NEVER
        self._due = _NEVER
        self._deadline = _NEVER
        self._silence_seconds = _NEVER
        self._idle_since = self._monotonic()
        # the answer so far
        self._head: list[bytes] = []  # what arrived until the header was whole, if anything did
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._bytes = 0  # of this answer so far, its framing included
        self._status = 0  # 0 until the header of the last answer is whole
        self._complete = False
        self._keep_alive = False

    # --- for the pool and the caller ------------------------------------------------------------

    def usable(self, now: float) -> bool:
        """Whether a request can be written to it, as far as can be told here and now."""
        if self._closed or self._waiter is not None or self._unsent:
            return False
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        idle = now - self._idle_since
        if idle >= self._idle_seconds:
            return False
        return idle < PROBE_AFTER_SECONDS or not _readable(transport)

    @property
    def idle_since(self) -> float:
        """When, on the monotonic clock, it last became idle."""
        return self._idle_since

    def exchange(
        self, request: bytes, now: float, silence_seconds: float, deadline: float
    ) -> asyncio.Future[Answer]:
        """Write a request; the future brings the answer or `ExchangeFailed`.

        It fails when nothing arrives for `silence_seconds`, and at `deadline` in any case. A caller
        that stops waiting has to `abandon()` the exchange.
        """
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        transport = self._transport
        if self._waiter is not None:
            raise RuntimeError("a connection carries one exchange at a time")
        if self._closed or transport is None or transport.is_closing():
            waiter.set_exception(ExchangeFailed("the connection was closed meanwhile", left=False))
            return waiter
        self._waiter = waiter
        self._silence_seconds = silence_seconds
        self._deadline = deadline
        due = now + silence_seconds
        self._wait_until(due if due < deadline else deadline)
        transport.write(request)
        if transport.is_closing():  # the very first write failed: the kernel took nothing
            self._unsent = True
            self._fail("the connection was closed before the request could be written")
        return waiter

    def abandon(self, waiter: asyncio.Future[Answer]) -> None:
        """The caller of an exchange waits no longer: the connection is of no use any more."""
        if self._waiter is waiter:
            self._fail("nobody waits for the answer")

    def abort(self, reason: str = "the connection was closed") -> None:
        """Close at once; an exchange that is under way fails."""
        self._fail(reason)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "busy" if self._waiter is not None else "idle"
        return f"<Connection {state}, {self.exchanges} answers>"

    # --- time -----------------------------------------------------------------------------------

    def _wait_until(self, due: float) -> None:
        self._due = due
        if due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        self._timer_due = self._due
        self._timer = self._clock.call_later(self._due - self._monotonic(), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._timer_due = _NEVER
        if self._closed:
            return
        now = self._monotonic()
        if now < self._due - 0.0005:
            self._arm()
        elif self._waiter is None:
            self._fail("idle for too long")
        elif now >= self._deadline - 0.0005:
            self._fail("the time for the whole call is over", silent=True)
        else:
            self._fail(f"nothing arrived for {self._silence_seconds:g} seconds", silent=True)

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=1, low=0)
        self._transport = stream
        self._idle_since = self._monotonic()
        self._wait_until(self._idle_since + self._idle_seconds)

    def pause_writing(self) -> None:
        self._unsent = True

    def resume_writing(self) -> None:
        self._unsent = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._waiter is None:
            self._fail("data came that nobody had asked for")
            return
        data: bytes | memoryview = self._buffer[:nbytes]
        if not self._status:
            data = bytes(data)
            self._head.append(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._fail(f"what arrived is no HTTP answer: {_reason(error)}")
                return
            self._keep_alive = False  # something follows the answer, and it is not for us
        if self._complete:
            self._succeed()
            return
        self._bytes += nbytes
        if self._bytes > MAX_HEADER_BYTES + MAX_FRAMING * self._body_bytes:
            what = "chunking" if self._status else "header"
            self._fail(f"the {what} of the answer is longer than {MAX_HEADER_BYTES} bytes")
        else:
            self._due = min(self._monotonic() + self._silence_seconds, self._deadline)

    def eof_received(self) -> bool:
        if self._waiter is not None and self._status and not self._complete and self._ends_at_eof():
            self._complete = True
            self._keep_alive = False
            self._succeed()
        else:
            self._fail("the connection was closed by the other side")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        detail = f": {type(exc).__name__}" if exc is not None else ""
        self._fail(f"the connection was lost{detail}")

    # --- the parser's side ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a second answer")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
        elif status == 101:  # other interim answers are passed over; the one that counts follows
            raise ValueError("the other side speaks another protocol")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            raise ValueError(f"the body is longer than {self._max_body_bytes} bytes")
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    def _ends_at_eof(self) -> bool:
        """Whether the answer has no length but the connection's end."""
        headers = Headers(self._head.copy())
        return "content-length" not in headers and "transfer-encoding" not in headers

    # --- the two ways out of an exchange ----------------------------------------------------------

    def _succeed(self) -> None:
        waiter, self._waiter = self._waiter, None
        chunks = self._chunks
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        answer = Answer(self._status, Headers(self._head), body)
        self.exchanges += 1
        if self._keep_alive and not self._unsent:
            self._head = []
            if chunks:
                self._chunks = []
            self._body_bytes = self._bytes = self._status = 0
            self._complete = False
            self._idle_since = now = self._monotonic()
            self._wait_until(now + self._idle_seconds)
            self._owner.released(self)
        else:
            self._close()
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _fail(self, reason: str, *, silent: bool = False) -> None:
        waiter, self._waiter = self._waiter, None
        left = not self._unsent
        self._close()
        if waiter is not None and not waiter.done():
            waiter.set_exception(
                ExchangeFailed(reason, left=left, answered=bool(self._head), silent=silent)
            )

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._owner.closed(self)


def _reason(error: Exception) -> str:
    cause = error.__context__ if error.__context__ is not None else error
    return str(cause) or type(cause).__name__


def _readable(transport: asyncio.Transport) -> bool:
    """Whether something came while nobody asked: the other side's end, or an error."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock.fileno()], [], [], 0)[0])
