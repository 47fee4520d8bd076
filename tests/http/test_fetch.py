"""One GET of a small document: bounded, verified, and by the way that every request goes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pumphouse.errors import NetworkError
from pumphouse.http import fetch as module
from pumphouse.http.fetch import fetch
from support.tls import Proxy, certificates

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy", "all_proxy", "http_proxy", "aws_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@asynccontextmanager
async def answering(
    answer: bytes, *, tls: ssl.SSLContext | None = None, silent: bool = False
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers everybody so, then closes, or stays and says nothing more."""
    heads: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if silent:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], heads
        over.set()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(GOOD, id="with a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", id="until the end"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            id="in chunks",
        ),
    ],
)
async def test_a_document_is_its_body(answer: bytes) -> None:
    async with answering(answer) as (port, heads):
        assert await fetch(f"http://127.0.0.1:{port}/a/b.pem", 5) == b"hello"
        [head] = heads
        lines = head.decode().split("\r\n")
        assert lines[0] == "GET /a/b.pem HTTP/1.1"
        assert f"Host: 127.0.0.1:{port}" in lines
        assert not any("authorization" in line.lower() for line in lines)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "the answer is 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n", "the answer is 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!", "longer than 5 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "closed by the other side"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP answer"),
        (b"", "closed by the other side"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "header of the answer is longer"),
    ],
)
async def test_anything_else_is_one_error_that_names_the_url(answer: bytes, says: str) -> None:
    async with answering(answer) as (port, _):
        with pytest.raises(NetworkError, match=says) as caught:
            await fetch(f"http://127.0.0.1:{port}/c.pem", 5)
        assert f"http://127.0.0.1:{port}/c.pem can't be fetched" in str(caught.value)


async def test_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_SECONDS", 0.05)
    async with answering(b"HTTP/1.1 200 OK\r\n", silent=True) as (port, _):
        with pytest.raises(NetworkError, match="can't be fetched"):
            await fetch(f"http://127.0.0.1:{port}/c.pem", 5)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a b", "http://127.0.0.1:1/a\r\nX: y"])
async def test_a_url_is_no_place_for_more_headers(url: str) -> None:
    with pytest.raises(NetworkError):
        await fetch(url, 5)


async def test_nobody_is_there() -> None:
    with pytest.raises(NetworkError, match="no connection to"):
        await fetch("http://127.0.0.1:1/c.pem", 5)


async def test_certificates_are_verified_with_the_bundle_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_tls, _, asked = certificates(tmp_path, "localhost")
    async with answering(GOOD, tls=server_tls) as (port, _):
        url = f"https://localhost:{port}/c.pem"
        with pytest.raises(NetworkError, match="is not trusted"):
            await fetch(url, 5)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        assert await fetch(url, 5) == b"hello"
        assert asked == ["localhost"] * 2
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
        with pytest.raises(NetworkError, match=r"the CA bundle .*missing\.pem"):
            await fetch(url, 5)


async def test_a_proxy_of_the_environment_is_asked_for_a_tunnel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_tls, _, _ = certificates(tmp_path, "localhost")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
    async with (
        answering(GOOD, tls=server_tls) as (port, _),
        Proxy(f"https://127.0.0.1:{port}") as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert await fetch(f"https://localhost:{port}/c.pem", 5) == b"hello"
        [head] = proxy.asked
        assert head.startswith(f"CONNECT localhost:{port} ")
        monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1")
        with pytest.raises(NetworkError, match="HTTPS_PROXY"):
            await fetch(f"https://localhost:{port}/c.pem", 5)
