"""Opening a connection: name, TCP, the proxy's tunnel, TLS. What is sent over it is not known here.

Whatever goes wrong here is a `NetworkError`: no byte of a request has left yet. A proxy comes from
`HTTPS_PROXY` and `NO_PROXY` (in either case), is used for `https` endpoints only, and is asked for
a tunnel with CONNECT; plain `http` endpoints are reached directly. No message says a proxy's user
or password.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import httptools

from pumphouse.clock import Clock, timeout
from pumphouse.errors import ConfigError, NetworkError
from pumphouse.http.connection import MAX_HEADER_BYTES, Connection

P = TypeVar("P", bound=asyncio.BaseProtocol)

PROBE_SECONDS = 10
"""After how long without traffic TCP asks whether the other side is still there."""


class Origin(NamedTuple):
    """Where requests go."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; the header that opens it is in no repr."""

    origin: Origin
    authorization: str | None = field(default=None, repr=False)


def proxy_for(origin: Origin) -> Proxy | None:
    """The proxy that the environment names for an origin. Raises `ConfigError` for a broken one."""
    if origin.scheme != "https":
        return None
    import urllib.request

    proxies = urllib.request.getproxies_environment()
    url = proxies.get("https") or proxies.get("all")
    # the type stubs leave this function out
    bypassed: Callable[..., bool] = vars(urllib.request)["proxy_bypass_environment"]
    if not url or bypassed(f"{origin.host}:{origin.port}", proxies):
        return None
    return parse_proxy(url)


def parse_proxy(url: str) -> Proxy:
    """`http://user:password@host:port`; without a scheme it is http."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigError("HTTPS_PROXY is no URL, or its port is no number") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("HTTPS_PROXY has to be http://[user:password@]host:port, or https://…")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    default = 443 if parts.scheme == "https" else 80
    return Proxy(Origin(parts.scheme, parts.hostname, port or default), authorization)


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """A context that verifies: against the bundle, the system's certificates, or botocore's."""
    if ca_bundle is None:
        paths = ssl.get_default_verify_paths()
        if paths.cafile is None and paths.capath is None:  # a bare container
            import botocore

            ca_bundle = os.path.join(os.path.dirname(botocore.__file__), "cacert.pem")
    try:
        if ca_bundle is not None and os.path.isdir(ca_bundle):
            context = ssl.create_default_context(capath=ca_bundle)
        else:
            context = ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise ConfigError(f"the CA bundle {ca_bundle!r} can't be read: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


async def dial(
    make: Callable[[], Connection],
    origin: Origin,
    *,
    tls: ssl.SSLContext | None,
    proxy: Proxy | None,
    clock: Clock,
    timeout_seconds: float,
) -> Connection:
    """Open a connection to an origin, within `timeout_seconds`. Raises `NetworkError`."""
    where = f"{origin}" if proxy is None else f"{origin} through the proxy {proxy.origin}"
    try:
        async with timeout(clock, timeout_seconds):
            if proxy is None:
                return await _direct(make, origin, tls)
            return await _tunnelled(make, origin, tls or tls_context(None), proxy)
    except TimeoutError:
        raise NetworkError(f"no connection to {where} in {timeout_seconds:g} seconds") from None
    except ssl.SSLCertVerificationError as error:
        raise NetworkError(f"{where} is not trusted: {error.verify_message}") from error
    except (OSError, UnicodeError) as error:  # the latter for a name that can be none
        reason = str(error) or type(error).__name__
        raise NetworkError(f"no connection to {where}: {reason}") from error


async def _direct(
    make: Callable[[], Connection], origin: Origin, tls: ssl.SSLContext | None
) -> Connection:
    transport, connection = await _connect(make, origin, tls)
    tune(transport)
    return connection


async def _connect(
    make: Callable[[], P], origin: Origin, tls: ssl.SSLContext | None
) -> tuple[asyncio.Transport, P]:
    loop = asyncio.get_running_loop()
    secure = origin.scheme == "https"
    hurry: Any = {}
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_address(origin.host):
        # the standard loop can try IPv6 and IPv4 side by side; others try one after the other
        hurry = {"happy_eyeballs_delay": 0.25}
    return await loop.create_connection(
        make,
        origin.host,
        origin.port,
        ssl=tls if secure else None,
        server_hostname=origin.host if secure else None,
        **hurry,
    )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _tunnelled(
    make: Callable[[], Connection], origin: Origin, tls: ssl.SSLContext, proxy: Proxy
) -> Connection:
    transport, tunnel = await _connect(Tunnel, proxy.origin, tls)
    try:
        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        target = f"{host}:{origin.port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.authorization:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        transport.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        status = await tunnel.status
        if not 200 <= status < 300:
            hint = ", it wants other credentials" if status == 407 else ""
            raise NetworkError(
                f"the proxy {proxy.origin} answered CONNECT with HTTP {status}{hint}"
            )
        connection = make()
        loop = asyncio.get_running_loop()
        secure = await loop.start_tls(transport, connection, tls, server_hostname=origin.host)
        if secure is None:
            raise NetworkError(f"the proxy {proxy.origin} closed the tunnel")
    except BaseException:
        transport.abort()
        raise
    tune(transport)
    connection.connection_made(secure)
    return connection


class Tunnel(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._received = 0

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("the proxy's answer to CONNECT is no HTTP")
        if self._received > MAX_HEADER_BYTES:
            self._fail("the proxy's answer to CONNECT is too long")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and not self.status.done():
            self.status.set_result(status)

    def eof_received(self) -> bool:
        self._fail("the proxy closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection to the proxy was lost")

    def _fail(self, reason: str) -> None:
        if not self.status.done():
            self.status.set_exception(NetworkError(reason))


def tune(transport: asyncio.BaseTransport) -> None:
    """Socket options: no delay, and probes that find a dead peer while nothing is sent."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", PROBE_SECONDS),
        ("TCP_KEEPINTVL", PROBE_SECONDS // 2),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", PROBE_SECONDS * 2_500),  # this one in milliseconds
    ):
        if (number := getattr(socket, option, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)
