"""A server of SQS's JSON protocol that breaks at the socket, as it is told, and keeps a ledger.

For each request it is told which *play* to act: `server.script` is called with the request and
returns the name of one (`PLAYS` says what each does). What was carried out stands in
`server.ledger`, whatever the answer was, so a test can hold what a caller was told against what
happened. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PLAYS = {
    "ok": "carried out and answered",
    "trickle": "carried out; the answer comes one byte at a time",
    "chunked": "carried out; the answer comes in chunks, with a trailer",
    "interim": "carried out; two 1xx answers come before the answer",
    "close": "carried out; `Connection: close` and then the end",
    "until_end": "carried out; no length, the body ends with the connection",
    "reset_after": "carried out and answered, then reset",
    "close_on_next": "carried out and answered; closed as the next request's first bytes arrive",
    "drop_next": "carried out and answered; from then on nothing is answered on the connection",
    "hold": "carried out; answered when `release()` is called",
    "reset_before": "not carried out; reset before any answer",
    "lost": "carried out; reset before any answer",
    "reset_during": "carried out; reset in the middle of the answer",
    "half": "carried out; half an answer, then silence",
    "cut_short": "carried out; half an answer, then the end",
    "silence": "carried out; no answer ever",
    "cut_json": "carried out; 200 with the first half of the JSON",
    "wrong_md5": "something else is stored; 200 with its MD5",
    "garbage": "not carried out; an answer that is no HTTP",
    "html_503": "not carried out; a proxy's page",
    "html_200": "not carried out; a proxy's page with 200",
    "error_500": "not carried out; 500 with an error document",
    "bare_500": "not carried out; 500 without one",
    "throttle_400": "not carried out; ThrottlingException",
    "throttle_403": "not carried out; RequestThrottled, called the sender's fault",
    "throttle_429": "not carried out; TooManyRequestsException",
    "throttle_503": "not carried out; ServiceUnavailable",
    "refuse": "not carried out; InvalidMessageContents",
    "denied": "not carried out; AccessDeniedException",
    "gone": "not carried out; QueueDoesNotExist",
    "expired_token": "not carried out; ExpiredTokenException",
    "skewed": "not carried out; the signature's date is off, the header Date says by how much",
}

_NOT_CARRIED_OUT = {name for name, text in PLAYS.items() if text.startswith("not carried out")}

_ERRORS = {
    "error_500": (500, "com.amazon.coral.service#InternalFailure", "try again"),
    "throttle_400": (400, "com.amazon.coral.service#ThrottlingException", "Rate exceeded"),
    "throttle_403": (403, "com.amazonaws.sqs#RequestThrottled", "too many"),
    "throttle_429": (429, "com.amazon.coral.service#TooManyRequestsException", "too many"),
    "throttle_503": (503, "com.amazon.coral.service#ServiceUnavailableException", "busy"),
    "refuse": (400, "com.amazonaws.sqs#InvalidMessageContents", "bad characters"),
    "denied": (403, "com.amazon.coral.service#AccessDeniedException", "not for you"),
    "gone": (400, "com.amazonaws.sqs#QueueDoesNotExist", "The specified queue does not exist."),
    "expired_token": (403, "com.amazon.coral.service#ExpiredTokenException", "token expired"),
    "skewed": (
        403,
        "com.amazon.coral.service#InvalidSignatureException",
        "Signature expired: 20260101T000000Z is now earlier than 20260101T001500Z",
    ),
}


@dataclass
class Request:
    """What arrived: `attempt` counts the requests with this very body, from 1."""

    action: str
    body: dict[str, Any]
    headers: dict[str, str]
    attempt: int
    connection: int


@dataclass
class Ledger:
    """What was carried out."""

    stored: Counter[str] = field(default_factory=Counter)  # by body
    deleted: Counter[str] = field(default_factory=Counter)  # by receipt handle
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    _known: set[str] = field(default_factory=set)

    def store(self, message: dict[str, Any]) -> None:
        if identity := message.get("MessageDeduplicationId"):
            if identity in self._known:
                return
            self._known.add(identity)
        self.stored[message["MessageBody"]] += 1


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


class FaultServer:
    """`async with FaultServer(script) as server:` and `server.url` is where it listens."""

    def __init__(
        self,
        script: Callable[[Request], str] = lambda request: "ok",
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.script = script
        self._tls = tls
        self._host = host
        self.ledger = Ledger()
        self.edit: Callable[[Request, dict[str, Any]], dict[str, Any]] = lambda _, answer: answer
        self.date = "Thu, 01 Jan 2026 00:00:00 GMT"
        self.extra_headers: dict[str, str] = {}
        self._seen: Counter[bytes] = Counter()
        self._live: set[_Peer] = set()
        self._held: list[Callable[[], None]] = []
        self.idle = asyncio.Event()  # set while no connection is open
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> FaultServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), self._host, 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"{'https' if self._tls else 'http'}://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for peer in list(self._live):
            peer.reset()
        await asyncio.sleep(0)
        await self._server.wait_closed()

    def release(self) -> None:
        """Answer every request that was held."""
        held, self._held = self._held, []
        for answer in held:
            answer()

    @property
    def queue(self) -> str:
        return f"{self.url}/000000000000/q"

    @property
    def open_connections(self) -> int:
        return len(self._live)

    def carry_out(self, action: str, body: dict[str, Any], play: str) -> dict[str, Any]:
        """The effect, and the answer's document."""
        if action == "SendMessage":
            return self._store(body, play)
        if action == "SendMessageBatch":
            entries = [self._store(entry, play) | {"Id": entry["Id"]} for entry in body["Entries"]]
            return {"Successful": entries, "Failed": []}
        if action == "DeleteMessage":
            self.ledger.deleted[body["ReceiptHandle"]] += 1
            return {}
        if action == "DeleteMessageBatch":
            for entry in body["Entries"]:
                self.ledger.deleted[entry["ReceiptHandle"]] += 1
            return {"Successful": [{"Id": entry["Id"]} for entry in body["Entries"]]}
        if action == "GetQueueUrl":
            return {"QueueUrl": f"{self.url}/000000000000/{body['QueueName']}"}
        return {}

    def _store(self, message: dict[str, Any], play: str) -> dict[str, Any]:
        text = message["MessageBody"]
        if play == "wrong_md5":
            self.ledger.store({"MessageBody": "something else"})
            return {"MessageId": md5(text), "MD5OfMessageBody": md5("something else")}
        self.ledger.store(message)
        return {"MessageId": md5(text), "MD5OfMessageBody": md5(text)}


class _Peer(asyncio.Protocol):
    """One connection of the fault server."""

    def __init__(self, server: FaultServer) -> None:
        self.server = server
        self.number = 0
        self.received = b""
        self.silent = False
        self.close_on_next = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.server.ledger.connections += 1
        self.number = self.server.ledger.connections
        self.server._live.add(self)
        self.server.idle.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server._live.discard(self)
        if not self.server._live:
            self.server.idle.set()

    def reset(self) -> None:
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.close_on_next:
            self.transport.close()
            return
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found or self.silent:
            return
        headers = {
            name.lower(): value.strip()
            for name, _, value in (
                line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]
            )
        }
        length = int(headers["content-length"])
        if len(rest) < length:
            return
        self.received = rest[length:]
        server = self.server
        raw = rest[:length]
        server._seen[raw] += 1
        action = headers["x-amz-target"].rpartition(".")[2]
        request = Request(action, json.loads(raw), headers, server._seen[raw], self.number)
        server.ledger.requests.append(request)
        self.act(request, server.script(request))

    def act(self, request: Request, play: str) -> None:
        document: dict[str, Any] = {}
        if play not in _NOT_CARRIED_OUT:
            document = self.server.carry_out(request.action, request.body, play)
            document = self.server.edit(request, document)
        if play in _ERRORS:
            status, code, message = _ERRORS[play]
            self.answer(json.dumps({"__type": code, "message": message}).encode(), status)
        elif play in ("reset_before", "lost"):
            self.reset()
        elif play == "silence":
            self.silent = True
        elif play == "hold":
            body = json.dumps(document).encode()
            self.server._held.append(lambda: self.answer(body))
        elif play == "garbage":
            self.transport.write(b"\x16\x03\x01 what?\r\n\r\n")
        elif play in ("html_503", "html_200"):
            page = b"<html><body>Service Unavailable</body></html>"
            self.answer(page, int(play[-3:]), content_type="text/html")
        elif play == "bare_500":
            self.answer(b"", 500)
        else:
            self.answer_with(json.dumps(document).encode(), play)

    def answer_with(self, body: bytes, play: str) -> None:
        write = self.transport.write
        if play == "trickle":
            self.trickle(self.head(len(body)) + body)
        elif play == "chunked":
            third = max(1, len(body) // 3)
            parts = [body[at : at + third] for at in range(0, len(body), third)]
            chunks = b"".join(b"%x;q=1\r\n%b\r\n" % (len(part), part) for part in parts)
            write(
                self.head(None, "Transfer-Encoding: chunked") + chunks + b"0\r\nX-End: yes\r\n\r\n"
            )
        elif play == "interim":
            write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
            self.answer(body)
        elif play == "close":
            write(self.head(len(body), "Connection: close") + body)
            self.transport.close()
        elif play == "until_end":
            write(self.head(None, "Connection: close") + body)
            self.transport.close()
        elif play in ("half", "cut_short", "reset_during"):
            whole = self.head(len(body)) + body
            write(whole[: len(whole) - max(1, len(body) // 2)])
            self.silent = True
            if play == "cut_short":
                self.transport.close()
            elif play == "reset_during":
                asyncio.get_running_loop().call_soon(self.reset)
        elif play == "cut_json":
            self.answer(body[: max(1, len(body) // 2)])
        else:
            self.answer(body)
            if play == "reset_after":
                asyncio.get_running_loop().call_soon(self.reset)
            self.close_on_next = play == "close_on_next"
            self.silent = play == "drop_next"

    def answer(
        self, body: bytes, status: int = 200, content_type: str = "application/x-amz-json-1.0"
    ) -> None:
        self.transport.write(self.head(len(body), status=status, content_type=content_type) + body)

    def head(
        self,
        length: int | None,
        *lines: str,
        status: int = 200,
        content_type: str = "application/x-amz-json-1.0",
    ) -> bytes:
        first = [
            f"HTTP/1.1 {status} Whatever",
            f"Date: {self.server.date}",
            "x-amzn-requestid: r-1",
        ]
        first += [f"{name}: {value}" for name, value in self.server.extra_headers.items()]
        first += [f"Content-Type: {content_type}"]
        if length is not None:
            first.append(f"Content-Length: {length}")
        return "\r\n".join([*first, *lines, "", ""]).encode()

    def trickle(self, rest: bytes) -> None:
        if rest and not self.transport.is_closing():
            self.transport.write(rest[:1])
            asyncio.get_running_loop().call_soon(self.trickle, rest[1:])
