"""What the endpoint makes of HTTP: whole and broken requests, bounds, slow and leaving clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.protocol.attributes import md5_of_body
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    ReceiveMessage,
    SendMessage,
)
from pumphouse.server.asgi import Application
from pumphouse.server.connection import (
    KEEP_ALIVE_SECONDS,
    MAX_HEADER_BYTES,
    READ_SECONDS,
    Connection,
)
from pumphouse.server.runner import allow_many_connections
from pumphouse.server.wire import MAX_BODY_BYTES, Endpoint
from support.raw_http import RawConnection, ask, connect, post
from support.serving import Served, serving

URL = "http://127.0.0.1/000000000000/plain"
SEND = "AmazonSQS.SendMessage"
RECEIVE = "AmazonSQS.ReceiveMessage"


@pytest.fixture(scope="module")
def plain() -> Iterator[Served]:
    """An endpoint of these tests' own, with one queue."""
    with serving(Account(sixty_second_rules=False)) as served:
        served.run(served.backend.execute(CreateQueue("plain")))
        yield served


def _send(body: str = "x", **headers: str) -> bytes:
    return post({"QueueUrl": URL, "MessageBody": body}, target=SEND, headers=headers)


def _count(served: Served, name: str = "ApproximateNumberOfMessages") -> int:
    answer = served.run(served.backend.execute(GetQueueAttributes(URL, ["All"])))
    return int(answer.attributes[name])


# --- what is asked well -------------------------------------------------------------------------


async def test_health_by_get_and_head(plain: Served) -> None:
    for method in ("GET", "HEAD"):
        async with connect(plain.port) as connection:
            await connection.send(f"{method} /health HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = await connection.answer(head=method == "HEAD")
            assert answer.status == 200
            assert int(answer.headers["content-length"]) > 0
            await connection.send(_send())  # the connection is still good
            assert (await connection.answer()).status == 200
    assert (await ask(plain.port, post(b"", path="/health"))).status == 405


async def test_an_answer_has_what_sdks_look_for(plain: Served) -> None:
    answer = await ask(plain.port, _send())
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert len(answer.headers["x-amzn-requestid"]) == 36
    assert "date" in answer.headers
    missing = {"QueueUrl": URL + "-not", "MessageBody": "x"}
    refused = await ask(plain.port, post(missing, target=SEND))
    assert refused.status == 400
    assert refused.json()["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert refused.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"


async def test_requests_that_come_in_pieces_and_in_bunches(plain: Served) -> None:
    async with connect(plain.port) as connection:
        request = _send()
        for position in range(len(request)):
            connection.writer.write(request[position : position + 1])
            if position % 16 == 0:
                await asyncio.sleep(0)
        assert (await connection.answer()).status == 200
        await connection.send(_send("a") * 25 + post({}, target="AmazonSQS.Nothing"))
        statuses = [(await connection.answer()).status for _ in range(26)]
        assert statuses == [200] * 25 + [404]


async def test_a_chunked_body_and_one_that_waits_to_be_asked_for(plain: Served) -> None:
    head, _, body = _send("chunked").partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    async with connect(plain.port) as connection:
        await connection.send(b"\r\n".join(lines) + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (body[:7], body[7:]):
            await connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await connection.send(b"0\r\n\r\n")
        assert (await connection.answer()).status == 200
        await connection.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send(body)
        assert (await connection.answer()).status == 200


@pytest.mark.parametrize("request_line", [b"POST / HTTP/1.0", b"POST / HTTP/1.1"])
async def test_a_client_that_wants_no_more_is_let_go(plain: Served, request_line: bytes) -> None:
    request = _send(Connection="close").replace(b"POST / HTTP/1.1", request_line)
    async with connect(plain.port) as connection:
        await connection.send(request)
        answer = await connection.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await connection.ended()


async def test_the_absolute_form_of_a_url(plain: Served) -> None:
    request = _send().replace(b"POST / ", b"POST http://127.0.0.1/ ")
    assert (await ask(plain.port, request)).status == 200


# --- what is asked badly ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "body", "status", "code", "words"),
    [
        (SEND, b"", 400, "MissingRequiredParameterException", "parameter QueueUrl."),
        (SEND, b"{", 400, "SerializationException", ""),
        (SEND, b"not json", 400, "SerializationException", ""),
        (SEND, b"\xff\xfe", 400, "SerializationException", ""),
        (SEND, b"[" * 5000, 400, "SerializationException", ""),
        (SEND, b"[]", 400, "SerializationException", "Start of list found"),
        (SEND, b"null", 400, "SerializationException", ""),
        (SEND, b'{"QueueUrl": 5}', 400, "SerializationException", "NUMBER_VALUE can not be"),
        (
            SEND,
            b'{"QueueUrl": "u", "MessageBody": "b", "DelaySeconds": "5"}',
            400,
            "SerializationException",
            "STRING_VALUE can not be converted to an Integer",
        ),
        (
            SEND,
            b'{"QueueUrl": "u", "MessageBody": {}}',
            400,
            "SerializationException",
            "Start of structure or map found where not expected",
        ),
        (
            SEND,
            b'{"QueueUrl": "u", "MessageBody": null}',
            400,
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageBody.",
        ),
        (
            "AmazonSQS.SendMessageBatch",
            b'{"QueueUrl": "u", "Entries": [{"Id": "1"}]}',
            400,
            "MissingRequiredParameterException",
            "parameter SendMessageBatchRequestEntry.1.MessageBody.",
        ),
        ("AmazonSQS.Nothing", b"{}", 404, "UnknownOperationException", ""),
        ("", b"{}", 404, "UnknownOperationException", ""),
        ("SendMessage", b"{}", 404, "UnknownOperationException", ""),
        ("DynamoDB_20120810.GetItem", b"{}", 404, "UnknownOperationException", ""),
    ],
)
async def test_json_that_is_none_or_not_what_is_wanted(
    plain: Served, target: str, body: bytes, status: int, code: str, words: str
) -> None:
    answer = await ask(plain.port, post(body, target=target))
    assert answer.status == status
    document = answer.json()
    assert document["__type"].rpartition("#")[2] == code
    assert words in document.get("message", "")
    assert answer.headers["x-amzn-query-error"].endswith(";Sender")


async def test_json_without_a_target(plain: Served) -> None:
    request = post(b"{}", headers={"Content-Type": "application/x-amz-json-1.0"})
    answer = await ask(plain.port, request)
    assert answer.status == 404
    assert answer.json()["__type"].endswith("UnknownOperationException")


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "", "multipart/x"])
async def test_other_content_types_are_answered_as_forms(plain: Served, kind: str) -> None:
    answer = await ask(plain.port, post(b"hello", headers={"Content-Type": kind}))
    assert answer.status == 400
    assert b"<Code>MissingAction</Code>" in answer.body


async def test_a_json_answer_to_a_wrong_content_type_with_a_target(plain: Served) -> None:
    answer = await ask(plain.port, _send(**{"Content-Type": "text/plain"}))
    assert answer.status == 200
    assert answer.json()["MessageId"]


@pytest.mark.parametrize(
    ("form", "status", "code"),
    [
        ("Action=Nothing", 400, "InvalidAction"),
        ("Action=SendMessage&QueueUrl=u", 400, "MissingParameter"),
        ("Action=SendMessage&QueueUrl=u&MessageBody=%FF", 404, "MalformedQueryString"),
        (
            "Action=SendMessage&QueueUrl=u&MessageBody=b&DelaySeconds=x",
            400,
            "InvalidParameterValue",
        ),
        ("Action=SendMessage&QueueUrl.1=u&QueueUrl=u", 404, "MalformedQueryString"),
        (
            f"Action=SendMessageBatch&QueueUrl={URL}",
            400,
            "AWS.SimpleQueueService.EmptyBatchRequest",
        ),
        (
            f"Action=SendMessage&QueueUrl={URL}-not&MessageBody=b",
            400,
            "AWS.SimpleQueueService.NonExistentQueue",
        ),
    ],
)
async def test_forms_that_are_not_what_is_wanted(
    plain: Served, form: str, status: int, code: str
) -> None:
    answer = await ask(plain.port, post(form))
    assert answer.status == status
    assert f"<Code>{code}</Code>" in answer.body.decode()
    assert "<Type>Sender</Type>" in answer.body.decode()
    assert "<RequestId>" in answer.body.decode()


async def test_the_version_tells_sns_from_sqs(plain: Served) -> None:
    for version, name in (("2010-03-31", "sns"), ("2012-11-05", "queue")):
        answer = await ask(plain.port, post(f"Action=Nothing&Version={version}"))
        assert answer.status == 400
        assert f'xmlns="http://{name}.amazonaws.com/doc/{version}/"' in answer.body.decode()
        assert b"<Code>InvalidAction</Code>" in answer.body
    body = "MessageBody=Version%3D2010-03-31"
    sent = await ask(plain.port, post(f"Action=SendMessage&QueueUrl={URL}&{body}"))
    assert sent.status == 200


async def test_a_form_may_come_as_a_query_string_and_to_the_queues_own_path(
    plain: Served,
) -> None:
    request = (
        b"GET /000000000000/plain?Action=SendMessage&MessageBody=a%20b+c HTTP/1.1\r\n"
        b"Host: x\r\n\r\n"
    )
    answer = await ask(plain.port, request)
    assert answer.status == 200
    assert f"<MD5OfMessageBody>{md5_of_body('a b c')}<" in answer.body.decode()
    answer = await ask(
        plain.port, post("Action=SendMessage&MessageBody=b", path="/000000000000/plain")
    )
    assert answer.status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods(plain: Served, method: str) -> None:
    request = _send().replace(b"POST", method.encode(), 1)
    assert (await ask(plain.port, request)).status == 404


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_the_connection_ends(
    plain: Served, request_bytes: bytes
) -> None:
    async with connect(plain.port) as connection:
        await connection.send(request_bytes)
        answer = await connection.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await connection.ended()


async def test_a_body_that_says_that_it_is_too_large_is_not_read(plain: Served) -> None:
    head = _send().partition(b"\r\n\r\n")[0]
    head = head[: head.index(b"Content-Length")] + b"Content-Length: %d\r\n" % (MAX_BODY_BYTES + 1)
    async with connect(plain.port) as connection:
        await connection.send(head + b"Content-Type: application/x-amz-json-1.0\r\n\r\n")
        answer = await connection.answer()
        assert answer.status == 413
        assert answer.json()["__type"].endswith("RequestEntityTooLargeException")
        assert await connection.ended()


async def test_a_body_that_grows_too_large_is_read_no_further(plain: Served) -> None:
    async with connect(plain.port) as connection:
        await connection.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        for _ in range(MAX_BODY_BYTES // 0x100000 + 1):  # the client sends it all the same
            await connection.send(chunk)
        answer = await connection.answer()
        assert answer.status == 413
        assert b"<Code>RequestEntityTooLarge</Code>" in answer.body


async def test_the_largest_batch_passes(plain: Served) -> None:
    body = "\u0001".join("é" * 10)  # refused by the service, not by the wire
    entry = {"Id": "1", "MessageBody": "\t" * 1_048_576}
    escaped = post({"QueueUrl": URL, "Entries": [entry]}, target="AmazonSQS.SendMessageBatch")
    assert len(escaped) > 2_000_000
    answer = await ask(plain.port, escaped)
    assert answer.json()["Successful"][0]["Id"] == "1"
    refused = await ask(plain.port, _send(body))
    assert refused.json()["__type"].endswith("InvalidMessageContents")


@pytest.mark.parametrize("endless", [b"2\r\n{}\r\n0\r\nx: ", b"2;q=", b"2\r\n{}\r\n0\r\n"])
async def test_chunking_without_an_end_is_refused(plain: Served, endless: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    more = b"x: y\r\n" if endless.endswith(b"0\r\n") else b"xxxxxx"
    async with connect(plain.port) as connection:
        await connection.send(head + endless)
        await connection.send(more * (MAX_HEADER_BYTES // 6 + 10))
        assert (await connection.answer()).status == 431
        assert await connection.ended()


async def test_a_trailer_changes_nothing_of_the_request(plain: Served) -> None:
    async with connect(plain.port) as connection:
        await connection.send(
            b"POST / HTTP/1.1\r\nHost: one\r\nX-Amz-Target: AmazonSQS.GetQueueUrl\r\n"
            b"Transfer-Encoding: chunked\r\nTrailer: Host, X-Amz-Target\r\n\r\n"
            b'15\r\n{"QueueName":"plain"}\r\n0\r\n'
            b"Host: two\r\nX-Amz-Target: AmazonSQS.PurgeQueue\r\n\r\n"
        )
        answer = await connection.answer()
        assert answer.json() == {"QueueUrl": "http://one/000000000000/plain"}


async def test_http_1_0_has_no_interim_answers(plain: Served) -> None:
    request = _send(Expect="100-continue").replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert (await ask(plain.port, request)).status == 200


async def test_headers_without_an_end_are_refused(plain: Served) -> None:
    async with connect(plain.port) as connection:
        await connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        await connection.send(b"x" * (MAX_HEADER_BYTES + 1))
        assert (await connection.answer()).status == 431
        assert await connection.ended()


@pytest.mark.parametrize(
    "long",
    [
        b"GET /?" + b"x" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"x: y\r\n" * (MAX_HEADER_BYTES // 6) + b"\r\n",
    ],
)
async def test_headers_that_come_whole_are_bounded_as_well(plain: Served, long: bytes) -> None:
    async with connect(plain.port) as connection:
        await connection.send(long)
        assert (await connection.answer()).status == 431
        assert await connection.ended()


async def test_headers_are_counted_for_each_request(plain: Served) -> None:
    one = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"
    async with connect(plain.port) as connection:
        await connection.send(one * 5)
        assert [(await connection.answer()).status for _ in range(5)] == [200] * 5


@pytest.mark.parametrize("order", [1, -1])
async def test_nobody_is_asked_for_a_body_that_is_too_large(plain: Served, order: int) -> None:
    lines = [b"Expect: 100-continue", b"Content-Length: %d" % (MAX_BODY_BYTES + 1)][::order]
    async with connect(plain.port) as connection:
        await connection.send(b"\r\n".join([b"POST / HTTP/1.1", b"Host: x", *lines, b"", b""]))
        assert (await connection.answer()).status == 413
        assert await connection.ended()


async def test_an_expectation_that_is_not_known_is_passed_over(plain: Served) -> None:
    assert (await ask(plain.port, _send(Expect="200-ok"))).status == 200


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip"])
async def test_a_coding_that_is_not_known(plain: Served, coding: bytes) -> None:
    async with connect(plain.port) as connection:
        await connection.send(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + coding + b"\r\n\r\n0\r\n\r\n"
        )
        assert (await connection.answer()).status in (400, 501)
        assert await connection.ended()


# --- web pages of other sites -------------------------------------------------------------------

FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://localhost.evil.example"},
    {"Origin": "http://127.0.0.1.evil.example:9324"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
]
OWN: list[dict[str, str]] = [
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1:9324"},
    {"Origin": "http://[::1]:80"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_page_of_another_site_can_do_nothing(
    plain: Served, headers: dict[str, str]
) -> None:
    before = _count(plain)
    answer = await ask(plain.port, _send("from elsewhere", **headers))
    assert answer.status == 403
    assert answer.json()["__type"].endswith("AccessDeniedException")
    form = b"Action=SendMessage&MessageBody=m&QueueUrl=" + URL.encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    for request in (
        b"POST / HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s"
        % (lines.encode(), len(form), form),
        b"GET /?%s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (form, lines.encode()),
    ):
        answer = await ask(plain.port, request)
        assert answer.status == 403
        assert b"<Code>AccessDenied</Code>" in answer.body
    look = f"GET /_pumphouse/messages/plain/1 HTTP/1.1\r\nHost: x\r\n{lines}\r\n"
    assert (await ask(plain.port, look.encode())).status == 403
    assert _count(plain) == before


@pytest.mark.parametrize("site", ["same-origin", "same-site"])
async def test_a_page_whose_name_was_made_to_lead_here_reads_nothing(
    plain: Served, site: str
) -> None:
    for path in ("/?Action=ListQueues", "/_pumphouse/messages/plain/1"):
        request = (
            f"GET {path} HTTP/1.1\r\nHost: evil.example:9324\r\nSec-Fetch-Site: {site}\r\n\r\n"
        )
        assert (await ask(plain.port, request.encode())).status == 403
    by_hand = request.replace("Host: evil.example", "Host: a-container").replace(site, "none")
    assert (await ask(plain.port, by_hand.encode())).status != 403


@pytest.mark.parametrize("headers", OWN)
async def test_a_page_of_this_machine_may_ask(plain: Served, headers: dict[str, str]) -> None:
    assert (await ask(plain.port, _send("from here", **headers))).status == 200


# --- clients that are slow, many, or gone -------------------------------------------------------


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = self.reading_paused = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "sockname" else default

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written += b"<eof>"

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


async def _connection(account: Account) -> tuple[Connection, _Transport, float]:
    state = ServerState()
    made = Connection(Config(Application(Endpoint(account))), state, {})
    transport = _Transport()
    made.connection_made(transport)
    return made, transport, asyncio.get_running_loop().time()


async def test_a_client_that_is_too_slow_over_a_request_is_cut_off(account: Account) -> None:
    connection, transport, now = await _connection(account)
    connection.data_received(_send()[:40])
    connection.check_pace(now + READ_SECONDS - 1)
    assert not transport.written
    connection.check_pace(now + READ_SECONDS + 1)
    assert transport.written.startswith(b"HTTP/1.1 408 ")
    assert transport.written.endswith(b"<eof>")
    connection.data_received(b"still sending")
    connection.check_pace(asyncio.get_running_loop().time() + READ_SECONDS + 1)
    assert transport.aborted


async def test_an_idle_connection_is_closed_and_a_parked_one_is_not(
    account: Account, clock: VirtualClock
) -> None:
    await account.execute(CreateQueue("plain"))
    connection, transport, now = await _connection(account)
    connection.check_pace(now + KEEP_ALIVE_SECONDS - 1)
    connection.data_received(post({"QueueUrl": URL, "WaitTimeSeconds": 20}, target=RECEIVE))
    await clock.settle()
    connection.check_pace(now + 10 * KEEP_ALIVE_SECONDS)
    assert (transport.closed, transport.aborted) == (False, False)
    await clock.advance(20)
    assert transport.written.endswith(b"\r\n\r\n{}")
    connection.check_pace(asyncio.get_running_loop().time() + KEEP_ALIVE_SECONDS + 1)
    assert transport.closed


async def test_a_client_that_does_not_read_is_not_read_from(
    account: Account, clock: VirtualClock
) -> None:
    await account.execute(CreateQueue("plain"))
    connection, transport, now = await _connection(account)
    connection.pause_writing()
    connection.data_received(_send() * 3)
    await clock.settle()
    assert (transport.written, transport.reading_paused) == (b"", True)
    connection.resume_writing()
    await clock.settle()
    assert transport.written.count(b"HTTP/1.1 200 OK") == 3
    assert not transport.reading_paused
    connection.pause_writing()
    connection.check_pace(now + READ_SECONDS * 10)
    assert transport.aborted


async def test_slow_clients_hold_up_nobody(plain: Served) -> None:
    async with asyncio.TaskGroup() as group:
        slow = [group.create_task(_start(plain.port, _send()[:60])) for _ in range(50)]
    answer = await ask(plain.port, _send())
    assert answer.status == 200
    for connection in slow:
        connection.result().abort()


async def _start(port: int, data: bytes) -> RawConnection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return RawConnection(reader, writer)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - it is another thread's state
            await asyncio.sleep(0.005)


async def test_a_client_that_leaves_its_poll_takes_no_message() -> None:
    with serving(Account()) as served:
        served.run(served.backend.execute(CreateQueue("plain")))
        poll = post({"QueueUrl": URL, "WaitTimeSeconds": 20}, target=RECEIVE)
        leaving = [await _start(served.port, poll) for _ in range(10)]
        await _until(lambda: served.endpoint.parked == 10)
        for connection in leaving:
            connection.abort()
        await _until(lambda: served.endpoint.parked == 0)
        served.run(served.backend.execute(SendMessage(URL, "for someone who is there")))
        assert _count(served, "ApproximateNumberOfMessagesNotVisible") == 0
        answer = served.run(served.backend.execute(ReceiveMessage(URL, ["All"])))
        assert answer.messages[0].attributes["ApproximateReceiveCount"] == "1"


async def test_a_thousand_parked_polls_stall_nothing() -> None:
    allow_many_connections()
    with serving(Account()) as served:
        served.run(served.backend.execute(CreateQueue("plain")))
        served.run(served.backend.execute(CreateQueue("other")))
        poll = post({"QueueUrl": URL, "WaitTimeSeconds": 20}, target=RECEIVE)
        parked: list[RawConnection] = []
        for _ in range(10):
            parked += await asyncio.gather(*(_start(served.port, poll) for _ in range(100)))
        await _until(lambda: served.endpoint.parked == 1000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with connect(served.port) as connection:
            for _ in range(20):
                await connection.send(
                    post({"QueueUrl": URL[:-5] + "other", "MessageBody": "x"}, target=SEND)
                )
                assert (await connection.answer()).status == 200
        assert loop.time() - began < 5
        for number in range(3):
            served.run(served.backend.execute(SendMessage(URL, f"message {number}")))
        await _until(lambda: served.endpoint.parked == 997)
        served.stop()  # and stopping answers the others at once
        bodies = [await connection.answer() for connection in parked]
        assert {answer.status for answer in bodies} == {200}
        assert sum(b"message" in answer.body for answer in bodies) == 3
        assert sum(answer.body == b"{}" for answer in bodies) == 997
        for connection in parked:
            connection.writer.close()


async def test_a_poll_that_comes_while_stopping_does_not_park(account: Account) -> None:
    await account.execute(CreateQueue("plain"))
    connection, transport, _ = await _connection(account)
    connection._endpoint.stop()
    connection.data_received(post({"QueueUrl": URL, "WaitTimeSeconds": 20}, target=RECEIVE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert transport.written.endswith(b"\r\n\r\n{}")
