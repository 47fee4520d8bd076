"""A stub of SQS in a process of its own, for measuring clients: canned answers with right MD5s.

It keeps nothing: a send is answered as stored, a receive brings ten messages (or as many as were
asked for), a delete is always done. `with stub() as url:` starts one and ends it.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from struct import pack
from typing import Any

import httptools
import msgspec

BODY = "x" * 512


def _md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def _md5_of_attributes(attributes: dict[str, Any]) -> str:
    digest = hashlib.md5()
    for name in sorted(attributes):
        value = attributes[name]
        for text in (name, value["DataType"]):
            digest.update(pack(">I", len(text)) + text.encode())
        text = value["StringValue"]
        digest.update(b"\1" + pack(">I", len(text)) + text.encode())
    return digest.hexdigest()


def _stored(message: dict[str, Any]) -> dict[str, str]:
    answer = {"MessageId": str(uuid.uuid4()), "MD5OfMessageBody": _md5(message["MessageBody"])}
    if attributes := message.get("MessageAttributes"):
        answer["MD5OfMessageAttributes"] = _md5_of_attributes(attributes)
    return answer


def _answer(action: str, request: dict[str, Any]) -> dict[str, Any]:
    if action == "SendMessage":
        return _stored(request)
    if action == "SendMessageBatch":
        return {
            "Successful": [_stored(entry) | {"Id": entry["Id"]} for entry in request["Entries"]]
        }
    if action == "ReceiveMessage":
        return {
            "Messages": [
                {
                    "MessageId": str(uuid.uuid4()),
                    "ReceiptHandle": "AQEB" + "h" * 180 + str(position),
                    "MD5OfBody": _md5(BODY),
                    "Body": BODY,
                    "Attributes": {"ApproximateReceiveCount": "1"},
                }
                for position in range(request.get("MaxNumberOfMessages", 1))
            ]
        }
    if action.endswith("Batch"):
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]], "Failed": []}
    if action == "GetQueueUrl":
        return {"QueueUrl": f"http://127.0.0.1/000000000000/{request['QueueName']}"}
    if action == "GetQueueAttributes":
        return {"Attributes": {"VisibilityTimeout": "30"}}
    return {}


class _Stub(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.parser = httptools.HttpRequestParser(self)
        self.action = ""
        self.body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-amz-target":
            self.action = value.decode().rpartition(".")[2]

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        request = msgspec.json.decode(b"".join(self.body) or b"{}")
        body = msgspec.json.encode(_answer(self.action, request))
        self.body = []
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 5a1c1d1e-0000-4000-8000-000000000000\r\n"
            b"Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: application/x-amz-json-1.0\r\n"
            b"Content-Length: %d\r\nconnection: keep-alive\r\n\r\n%b" % (len(body), body)
        )


def _serve(pipe: Connection) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Stub, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, pipe.poll, 3600)  # until the parent is gone, or an hour
        server.close()

    asyncio.run(main())


@contextmanager
def stub() -> Iterator[str]:
    """The URL of a stub that runs until the block ends."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(30):
            raise RuntimeError("the stub did not start")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        ours.close()
        process.join(5)
        if process.is_alive():
            process.terminate()
