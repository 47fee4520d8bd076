"""The reader of answers and the life of one connection, without a network."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pumphouse.clock import VirtualClock
from pumphouse.http.connection import (
    MAX_HEADER_BYTES,
    Answer,
    Connection,
    ExchangeFailed,
)

WHOLE = [
    b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-A: 1\r\n\r\n{"a":1}',
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    b'3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: y\r\n\r\n"
    b'HTTP/1.1 200 OK\r\nX-A: 1\r\ncontent-length: 7\r\n\r\n{"a":1}',
    b'HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n{"a":1}',
    b'HTTP/1.0 200 OK\r\nX-A: 1\r\nContent-Length: 7\r\n\r\n{"a":1}',
]


class Wire(asyncio.Transport):
    """A transport that writes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        self.limits = (high, low)

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


class Owner:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def released(self, connection: Connection) -> None:
        self.heard.append("released")

    def closed(self, connection: Connection) -> None:
        self.heard.append("closed")


def connection(clock: VirtualClock | None = None, max_body_bytes: int = 1000):
    owner, wire = Owner(), Wire()
    made = Connection(
        owner, clock or VirtualClock(), idle_seconds=20, max_body_bytes=max_body_bytes
    )
    made.connection_made(wire)
    return made, wire, owner


def feed(to: Connection, data: bytes) -> None:
    """What a transport does with what it reads."""
    while data and not to._transport.is_closing():  # type: ignore[union-attr]
        buffer = to.get_buffer(-1)
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        to.buffer_updated(count)
        data = data[count:]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 300), max_size=20))
@settings(max_examples=50, deadline=None)
def test_an_answer_may_be_split_at_any_byte(data: bytes, cuts: list[int]) -> None:
    async def main() -> None:
        made, _, owner = connection()
        waiter = made.exchange(b"POST", 0, 10, 60)
        for piece in pieces(data, cuts):
            feed(made, piece)
        if not waiter.done():
            made.eof_received()
        answer = await waiter
        assert (answer.status, answer.body, answer.headers["x-a"]) == (200, b'{"a":1}', "1")
        lasts = (b"1.1" in data and b"ength" in data) or b"chunked" in data
        assert owner.heard == (["released"] if lasts else ["closed"])

    asyncio.run(main())


pieces_of_http = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 204 No\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 999 x\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: -5\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffffff\r\n",
        b"X: " + b"y" * 3000 + b"\r\n",
        b"z" * 700,
        b"\n",
        b":",
    ]
)


@given(
    st.lists(st.one_of(pieces_of_http, st.binary(max_size=40)), max_size=20).map(b"".join),
    st.lists(st.integers(0, 5_000), max_size=8),
    st.sampled_from(["eof", "lost", "time"]),
)
@example(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 30_000, [], "eof")
@example(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, [], "eof")
@example(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, [], "time")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_arrives_ends_as_an_answer_or_a_declared_failure(
    data: bytes, cuts: list[int], end: str
) -> None:
    async def main() -> None:
        clock = VirtualClock()
        made, wire, owner = connection(clock)
        waiter = made.exchange(b"POST", 0, 10, 60)
        for piece in pieces(data, cuts):
            feed(made, piece)
        if end == "eof":
            made.eof_received()
        elif end == "lost":
            made.connection_lost(ConnectionResetError())
        else:
            await clock.advance(100)
        assert waiter.done()
        with contextlib.suppress(ExchangeFailed):
            answer = await waiter
            assert isinstance(answer, Answer)
            assert answer.status >= 200
            assert len(answer.body) <= 1000
            dict(answer.headers)
        assert wire.closing
        assert owner.heard.count("closed") == 1
        assert not made.usable(clock.monotonic())

    asyncio.run(main())


async def test_bounds_on_header_and_body() -> None:
    made, _, _ = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (MAX_HEADER_BYTES // 6 + 1))
    with pytest.raises(ExchangeFailed, match="header of the answer is longer than"):
        await waiter
    made, _, _ = connection(max_body_bytes=10)
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n01234567890")
    with pytest.raises(ExchangeFailed, match="longer than 10 bytes"):
        await waiter
    made, _, _ = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    for number in range(200):  # a trailer is read past, and nothing of it kept
        feed(made, b"trailer-%d: %b\r\n" % (number, b"x" * 100))
    assert len(b"".join(made._head)) < 200
    feed(made, b"\r\n")
    assert (await waiter).body == b""


@pytest.mark.parametrize(
    "endless", [b"2\r\n{}\r\n0\r\nx: ", b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 100, b"2;q="]
)
async def test_chunking_without_an_end_is_read_no_further(endless: bytes) -> None:
    made, wire, _ = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + endless)
    more = b"x: y\r\n" if b"\r\nx: y" in endless else b"xxxxxx"
    for _ in range(MAX_HEADER_BYTES // 600 + 2):
        feed(made, more * 100)
    with pytest.raises(ExchangeFailed, match="chunking of the answer is longer than"):
        await waiter
    assert wire.is_closing()


async def test_a_body_in_chunks_of_one_byte_is_taken() -> None:
    made, _, _ = connection(max_body_bytes=50_000)
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    feed(made, b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
    assert (await waiter).body == b"x" * 50_000


async def test_silence_and_the_deadline_are_counted_from_what_arrived_last() -> None:
    clock = VirtualClock()
    made, _, _ = connection(clock)
    waiter = made.exchange(b"POST", clock.monotonic(), 10, 35)
    for byte in b"HTT":
        await clock.advance(9.5)
        feed(made, bytes([byte]))
    assert not waiter.done()
    await clock.advance(6.6)  # no silence of ten seconds, but 35 in all
    with pytest.raises(ExchangeFailed, match="whole call") as caught:
        await waiter
    assert (caught.value.left, caught.value.answered, caught.value.silent) == (True, True, True)

    made, _, _ = connection(clock)
    waiter = made.exchange(b"POST", clock.monotonic(), 10, clock.monotonic() + 60)
    await clock.advance(9.9)
    assert not waiter.done()
    await clock.advance(0.2)
    with pytest.raises(ExchangeFailed, match="nothing arrived for 10 seconds"):
        await waiter


async def test_an_idle_connection_ends_by_itself_and_one_timer_does_it_all() -> None:
    clock = VirtualClock()
    made, wire, owner = connection(clock)
    for _ in range(100):
        waiter = made.exchange(b"POST", clock.monotonic(), 10, clock.monotonic() + 60)
        feed(made, WHOLE[0])
        await waiter
        await clock.advance(0.5)
    assert sum(not timer.cancelled for _, _, timer in clock._timers) == 1
    assert not wire.closing
    await clock.advance(21)
    assert wire.closing
    assert owner.heard == ["released"] * 100 + ["closed"]


async def test_what_comes_unasked_closes() -> None:
    made, wire, _ = connection()
    feed(made, b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n")
    assert wire.closing
    made, wire, owner = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, WHOLE[0] + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert (await waiter).body == b'{"a":1}'
    assert owner.heard == ["closed"]  # a second answer follows the first: never used again


async def test_whether_the_last_byte_left_is_known() -> None:
    made, _, _ = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    made.pause_writing()  # the kernel took a part
    made.connection_lost(BrokenPipeError())
    with pytest.raises(ExchangeFailed) as caught:
        await waiter
    assert not caught.value.left

    made, _, _ = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    made.pause_writing()
    made.resume_writing()  # and then the rest
    made.connection_lost(ConnectionResetError())
    with pytest.raises(ExchangeFailed) as caught:
        await waiter
    assert caught.value.left

    made, wire, _ = connection()
    wire.write = lambda data: wire.abort()  # type: ignore[method-assign]  # the kernel took nothing
    with pytest.raises(ExchangeFailed) as caught:
        await made.exchange(b"POST", 0, 10, 60)
    assert not caught.value.left


async def test_an_abandoned_exchange_closes_and_a_finished_one_does_not() -> None:
    made, wire, owner = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, WHOLE[0][:30])
    waiter.cancel()
    made.abandon(waiter)
    assert wire.closing
    made, wire, owner = connection()
    waiter = made.exchange(b"POST", 0, 10, 60)
    feed(made, WHOLE[0])
    made.abandon(waiter)  # cancelled after the answer had come: nothing is half
    assert not wire.closing
    assert owner.heard == ["released"]


async def test_the_repr_tells_the_state() -> None:
    made, _, _ = connection()
    assert repr(made) == "<Connection idle, 0 answers>"
    waiter = made.exchange(b"POST", 0, 10, 60)
    assert repr(made) == "<Connection busy, 0 answers>"
    feed(made, WHOLE[0])
    await waiter
    made.abort()
    assert repr(made) == "<Connection closed, 1 answers>"
