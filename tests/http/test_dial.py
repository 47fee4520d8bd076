"""Opening connections: TLS that verifies, SNI, IPv6, and proxies."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from pumphouse.backoff import NO_RETRIES
from pumphouse.errors import ConfigError, NetworkError, OutcomeUnknownError
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.dial import Origin, parse_proxy, proxy_for, tls_context
from pumphouse.protocol.operations import SendMessage
from support.fault_server import FaultServer
from support.tls import Proxy, certificates

KEYS = Keys("AKIDEXAMPLE", "secret")
AWS = Origin("https", "sqs.eu-west-1.amazonaws.com", 443)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "no_proxy", "all_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def client(url: str, **options) -> HttpBackend:
    options.setdefault("retry", NO_RETRIES)
    return HttpBackend(region="us-east-1", endpoint_url=url, credentials=KEYS, **options)


def named(url: str) -> str:
    """The URL with the address's name, so that there is one to send in SNI."""
    return url.replace("127.0.0.1", "localhost")


async def test_tls_is_verified_and_the_name_is_sent(tmp_path: Path) -> None:
    server_tls, client_tls, asked = certificates(tmp_path, "localhost")
    async with FaultServer(tls=server_tls) as server:
        async with client(named(server.url), tls_context=client_tls) as backend:
            await backend.execute(SendMessage(server.queue, "m"))
            await backend.execute(SendMessage(server.queue, "n"))
        assert asked == ["localhost"]
        assert server.ledger.connections == 1
        async with client(named(server.url)) as backend:
            with pytest.raises(NetworkError, match="is not trusted"):
                await backend.execute(SendMessage(server.queue, "x"))
        async with client(server.url, tls_context=client_tls) as backend:
            with pytest.raises(NetworkError, match="is not trusted"):  # another name
                await backend.execute(SendMessage(server.queue, "x"))
        assert server.ledger.stored == {"m": 1, "n": 1}


async def test_a_ca_bundle_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_tls, _, _ = certificates(tmp_path, "localhost")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
    async with FaultServer(tls=server_tls) as server, client(named(server.url)) as backend:
        await backend.execute(SendMessage(server.queue, "m"))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    async with client("https://localhost:1") as backend:
        with pytest.raises(ConfigError, match=r"missing\.pem"):
            await backend.execute(SendMessage("q", "m"))


def test_the_default_context_verifies() -> None:
    context = tls_context(None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


async def test_every_fault_of_the_socket_is_the_same_over_tls(tmp_path: Path) -> None:
    server_tls, client_tls, _ = certificates(tmp_path, "localhost")
    plays = iter(["trickle", "chunked", "close", "until_end", "reset_after", "ok", "lost", "ok"])
    async with (
        FaultServer(lambda request: next(plays), tls=server_tls) as server,
        client(named(server.url), tls_context=client_tls) as backend,
    ):
        for number in range(6):
            await backend.execute(SendMessage(server.queue, f"{number}"))
            await asyncio.sleep(0.002)
        with pytest.raises(OutcomeUnknownError):
            await backend.execute(SendMessage(server.queue, "lost"))
        assert sum(server.ledger.stored.values()) == 7


async def test_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 on this machine")
    async with FaultServer(host="::1") as server, client(server.url) as backend:
        assert "[::1]" in server.url
        await backend.execute(SendMessage(server.queue, "m"))
        assert server.ledger.requests[0].headers["host"].startswith("[::1]:")


async def test_connecting_has_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    async with client("http://127.0.0.1:9", connect_timeout_seconds=0.02) as backend:
        with pytest.raises(NetworkError, match=r"no connection to .* in 0\.02 seconds"):
            await backend.execute(SendMessage("q", "m"))


async def test_a_name_that_does_not_exist_is_a_network_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", unknown)
    async with client("http://nowhere.invalid") as backend:
        with pytest.raises(NetworkError, match=r"nowhere\.invalid:80: .*not known"):
            await backend.execute(SendMessage("q", "m"))


# --- proxies --------------------------------------------------------------------------------------


async def test_https_goes_through_the_proxys_tunnel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_tls, client_tls, asked = certificates(tmp_path, "queues.example")
    async with FaultServer(tls=server_tls) as server, Proxy(server.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        async with client("https://queues.example", tls_context=client_tls) as backend:
            await backend.execute(SendMessage(server.queue, "m"))
            await backend.execute(SendMessage(server.queue, "n"))
        assert server.ledger.stored == {"m": 1, "n": 1}
        [head] = proxy.asked
        assert head.startswith("CONNECT queues.example:443 HTTP/1.1\r\nHost: queues.example:443")
        assert "Proxy-Authorization: Basic bWU6cEBzcw==" in head  # me:p@ss
        assert asked == ["queues.example"]
        assert "proxy-authorization" not in server.ledger.requests[0].headers


async def test_the_proxy_itself_may_speak_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_tls, client_tls, _ = certificates(tmp_path, "queues.example", "localhost")
    async with (
        FaultServer(tls=server_tls) as server,
        Proxy(server.url, tls=server_tls) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"https://localhost:{proxy.port}")
        async with client("https://queues.example", tls_context=client_tls) as backend:
            await backend.execute(SendMessage(server.queue, "m"))
        assert server.ledger.stored == {"m": 1}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n", "407, it wants other credentials"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\nbad", "HTTP 502"),
        (b"", "closed the connection"),
        (b"SSH-2.0-x\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "too long"),
        (b"HTTP/1.1 200 OK\r\n\r\nno TLS", r"through the proxy http://127\.0\.0\.1:\d+: \w"),
    ],
)
async def test_a_proxy_that_refuses(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, words: str
) -> None:
    async with Proxy("http://127.0.0.1:9", answer=answer) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:hidden@127.0.0.1:{proxy.port}")
        async with client("https://queues.example") as backend:
            with pytest.raises(NetworkError, match=words) as caught:
                await backend.execute(SendMessage("q", "m"))
            assert "hidden" not in str(caught.value)


def test_which_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for(AWS) is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    found = proxy_for(AWS)
    assert found is not None
    assert found.origin == Origin("http", "proxy.example", 3128)
    assert proxy_for(Origin("http", "127.0.0.1", 9324)) is None
    for bypass in ("amazonaws.com", ".amazonaws.com", "*", "a.b,sqs.eu-west-1.amazonaws.com:443"):
        monkeypatch.setenv("NO_PROXY", bypass)
        assert proxy_for(AWS) is None
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert proxy_for(AWS) is not None


@pytest.mark.parametrize(
    "url",
    ["socks5://x:1", "http://", "http://x:port", "http://me:hidden@[x", "http://me:hidden@x:99999"],
)
def test_a_proxy_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY") as caught:
        parse_proxy(url)
    assert "hidden" not in str(caught.value)


def test_a_proxys_credentials_are_in_no_repr() -> None:
    proxy = parse_proxy("me:hidden@proxy.example:3128")
    assert "hidden" not in repr(proxy)
    assert proxy.authorization not in repr(proxy)
