"""A certificate authority for one test run, and a proxy that tunnels: all on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificates(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext, list[str]]:
    """A server's context, a client's that trusts it, and the list that SNI names are added to."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pumphouse tests")])
    now = dt.datetime.now(dt.UTC)
    alternatives: list[x509.GeneralName] = []
    for text in names:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            alternatives.append(x509.DNSName(text))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "certificate.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    asked: list[str] = []
    server.sni_callback = lambda _socket, asked_for, _context: asked.append(asked_for or "")
    client = ssl.create_default_context(cafile=str(pem))
    return server, client, asked


class Proxy:
    """`async with Proxy() as proxy:`; `proxy.asked` holds the heads of what came in.

    Every tunnel goes to `target`, whatever host was asked for.
    """

    def __init__(
        self, target: str, *, answer: bytes | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.target = target.rpartition("//")[2].rpartition(":")
        self.answer = answer
        self.asked: list[str] = []
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            if self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
                writer.close()
                return
            host, _, port = self.target
            there, onward = await asyncio.open_connection(host, int(port))
            self._writers.add(onward)
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, onward))
                pumps.create_task(_pump(there, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
        sink.close()
