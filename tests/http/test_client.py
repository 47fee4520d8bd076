"""One backend: its lanes, its loops and threads, its options, and what it lets be seen."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import traceback

import pytest

import pumphouse
from pumphouse.backend import Backend
from pumphouse.backoff import NO_RETRIES, RetryPolicy, one_try
from pumphouse.errors import (
    ClosedError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    ThrottledError,
    UsageError,
)
from pumphouse.hooks import Hooks
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.call import WIRES
from pumphouse.http.events import (
    ClockCorrected,
    CredentialsFailed,
    CredentialsLoaded,
    RequestFinished,
    RequestStarted,
    RetryScheduled,
)
from pumphouse.http.retry import repeatable, wait_seconds
from pumphouse.protocol.operations import (
    DeleteMessage,
    GetQueueUrl,
    PurgeQueue,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from support.fault_server import FaultServer
from support.one_answer import OneAnswer

KEYS = Keys("AKIDEXAMPLE", "the-secret-key", "the-session-token")


def client(server: FaultServer, **options) -> HttpBackend:
    return HttpBackend(
        **{"region": "us-east-1", "endpoint_url": server.url, "credentials": KEYS, **options}
    )


# --- connections ----------------------------------------------------------------------------------


async def test_calls_one_after_the_other_share_one_connection() -> None:
    async with FaultServer() as server, client(server) as backend:
        for number in range(20):
            await backend.execute(SendMessage(server.queue, f"{number}"))
        assert server.ledger.connections == 1


async def test_the_pool_is_bounded_and_waiting_counts_in_the_total_time() -> None:
    async with FaultServer(lambda request: "silence") as server:
        async with client(
            server, max_connections=2, total_timeout_seconds=0.15, read_timeout_seconds=0.15
        ) as backend:
            sends = [
                asyncio.create_task(backend.execute(SendMessage(server.queue, f"{n}")))
                for n in range(20)
            ]
            outcomes_of_all = asyncio.gather(*sends, return_exceptions=True)
            most = 0  # seen from the client: the server hears of a closed connection later
            while not outcomes_of_all.done():
                most = max([most, *(sum(lane.sizes[:2]) for lane in backend._loops.pool().lanes)])
                await asyncio.sleep(0)
            outcomes = outcomes_of_all.result()
        assert most == 2
    kinds = {type(outcome).__name__ for outcome in outcomes}
    assert kinds == {"NetworkError", "OutcomeUnknownError"}
    assert any("none of the 2 connections" in str(outcome) for outcome in outcomes)


async def test_callers_that_wait_are_served_in_order_and_cancelled_ones_lose_nothing() -> None:
    async with FaultServer() as server, client(server, max_connections=1) as backend:
        await backend.execute(SendMessage(server.queue, "warm"))
        done: list[int] = []

        async def one(number: int) -> None:
            await backend.execute(SendMessage(server.queue, f"{number}"))
            done.append(number)

        tasks = [asyncio.create_task(one(number)) for number in range(12)]
        await asyncio.sleep(0)
        for number in (3, 4, 7):
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert done == [0, 1, 2, 5, 6, 8, 9, 10, 11]
        assert server.ledger.connections == 1
        [lane] = backend._loops.pool().lanes
        assert lane.sizes == (1, 0, 0)


async def test_a_connection_that_closes_in_the_hands_of_a_cancelled_caller_is_gone() -> None:
    async with (
        FaultServer(lambda request: "hold") as server,
        client(server, max_connections=1) as backend,
    ):
        first = asyncio.create_task(backend.execute(SendMessage(server.queue, "a")))
        second = asyncio.create_task(backend.execute(SendMessage(server.queue, "b")))
        pool = backend._loops.pool()
        while [n.sizes for n in pool.lanes] != [(0, 1, 1)] or not server.ledger.requests:  # noqa: ASYNC110
            await asyncio.sleep(0)
        [lane] = pool.lanes
        [connection] = lane._all
        lane.released(connection)  # it is the second one's now, who has not woken yet
        connection.abort()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert lane.sizes == (0, 0, 0)
        assert not lane._idle


@pytest.mark.parametrize("turns", [*range(12), 16, 24, 36, 50])
async def test_a_cancelled_caller_leaves_no_half_answer(turns: int) -> None:
    async with (
        FaultServer(lambda request: "trickle") as server,
        client(server, max_connections=1, retry=NO_RETRIES) as backend,
    ):
        for number in range(4):
            task = asyncio.create_task(backend.execute(SendMessage(server.queue, f"x{number}")))
            for _ in range(turns * 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            answer = await backend.execute(GetQueueUrl(f"queue-{number}"))
            assert answer.queue_url.endswith(f"/queue-{number}")
        [lane] = backend._loops.pool().lanes
        assert lane.sizes == (1, 0, 0)


async def test_a_caller_cancelled_while_connecting_gives_its_place_back() -> None:
    async with FaultServer() as server, client(server, max_connections=1) as backend:
        for turns in range(6):
            task = asyncio.create_task(backend.execute(SendMessage(server.queue, "x")))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for lane in backend._loops.pool().lanes:
                lane.distrust(float("inf"))
        await backend.execute(SendMessage(server.queue, "last"))


# --- loops, threads, forks ------------------------------------------------------------------------


async def test_each_loop_has_a_pool_of_its_own_and_closing_closes_all() -> None:
    async with FaultServer() as server:
        backend = client(server)
        await backend.execute(SendMessage(server.queue, "here"))
        ready, closed = threading.Event(), asyncio.Event()
        here = asyncio.get_running_loop()
        problems: list[BaseException] = []

        async def elsewhere() -> None:
            await backend.execute(SendMessage(server.queue, "there"))
            ready.set()
            [lane] = backend._loops.pool().lanes
            while lane.sizes[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            with pytest.raises(ClosedError):
                await backend.execute(SendMessage(server.queue, "late"))

        def thread() -> None:
            try:
                asyncio.run(elsewhere())
            except BaseException as error:
                problems.append(error)
            here.call_soon_threadsafe(closed.set)

        worker = threading.Thread(target=thread)
        worker.start()
        await asyncio.to_thread(ready.wait, 10)
        assert server.ledger.connections == 2
        await backend.aclose()
        await backend.aclose()
        await asyncio.wait_for(closed.wait(), 10)
        await asyncio.to_thread(worker.join, 10)
        await asyncio.wait_for(server.idle.wait(), 10)
        assert not problems
        assert server.ledger.stored == {"here": 1, "there": 1}
        with pytest.raises(ClosedError):
            await backend.execute(SendMessage(server.queue, "late"))


async def test_closing_ends_calls_under_way_as_unknown_and_waiting_ones_as_closed() -> None:
    async with FaultServer(lambda request: "silence") as server:
        backend = client(server, max_connections=1)
        sent = asyncio.create_task(backend.execute(SendMessage(server.queue, "sent")))
        while not server.ledger.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(backend.execute(SendMessage(server.queue, "waits")))
        await asyncio.sleep(0)
        await backend.aclose()
        assert [type(e) for e in await asyncio.gather(sent, waiting, return_exceptions=True)] == [
            OutcomeUnknownError,
            ClosedError,
        ]


def test_pools_of_loops_that_are_gone_are_forgotten() -> None:
    backend = HttpBackend(region="us-east-1", endpoint_url="http://127.0.0.1:9", credentials=KEYS)

    async def use() -> None:
        async with FaultServer() as server:
            url = server.url

        with pytest.raises(NetworkError):
            await backend.execute(GetQueueUrl("q"))
        assert url

    for _ in range(3):
        asyncio.run(use())
    assert len(backend._loops._pools) <= 2


# --- options and what is seen ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"connect_timeout_seconds": 0}, "connect_timeout_seconds"),
        ({"read_timeout_seconds": -1}, "read_timeout_seconds"),
        ({"read_timeout_seconds": float("nan")}, "read_timeout_seconds"),
        ({"read_timeout_seconds": "10"}, "read_timeout_seconds"),
        ({"total_timeout_seconds": float("inf")}, "total_timeout_seconds"),
        ({"read_timeout_seconds": 90, "total_timeout_seconds": 60}, "read_timeout_seconds"),
        ({"idle_timeout_seconds": True}, "idle_timeout_seconds"),
        ({"max_connections": 0}, "max_connections"),
        ({"max_poll_connections": 1.5}, "max_poll_connections"),
        ({"max_answer_bytes": -1}, "max_answer_bytes"),
        ({"region": "eu west"}, "region"),
        ({"region": ""}, "region"),
        ({"endpoint_url": "localhost:9324"}, "endpoint_url"),
        ({"endpoint_url": "http://user:hidden@localhost"}, "endpoint_url"),
        ({"endpoint_url": "http://localhost:x"}, "endpoint_url"),
        ({"endpoint_url": "http://localhost/?a=b"}, "endpoint_url"),
        ({"credentials": ("a", "b")}, "credentials"),
        ({"retry": 3}, "retry"),
    ],
)
def test_a_bad_option_is_named_when_the_backend_is_made(options: dict, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        HttpBackend(**options)
    assert "hidden" not in str(caught.value)


async def test_connect_is_the_short_way() -> None:
    async with (
        FaultServer() as server,
        pumphouse.connect(
            region="us-east-1", endpoint_url=server.url, credentials=pumphouse.Keys("a", "b")
        ) as backend,
    ):
        assert isinstance(backend, HttpBackend)
        assert isinstance(backend, Backend)
        await backend.execute(SendMessage(server.queue, "m"))


async def test_events_tell_every_attempt() -> None:
    plays = iter(["throttle_400", "error_500", "ok"])
    hooks, seen = Hooks(), []
    for kind in (RequestStarted, RequestFinished, RetryScheduled):
        hooks.on(kind, seen.append)
    retry = RetryPolicy(base_seconds=0.0, cap_seconds=0.0)
    async with (
        FaultServer(lambda request: next(plays)) as server,
        client(server, hooks=hooks, retry=retry) as backend,
    ):
        await backend.execute(SendMessage(server.queue, "m"))
    shape = [(type(event).__name__, event.action, event.attempt) for event in seen]
    assert shape == [
        ("RequestStarted", "SendMessage", 1),
        ("RequestFinished", "SendMessage", 1),
        ("RetryScheduled", "SendMessage", 1),
        ("RequestStarted", "SendMessage", 2),
        ("RequestFinished", "SendMessage", 2),
        ("RetryScheduled", "SendMessage", 2),
        ("RequestStarted", "SendMessage", 3),
        ("RequestFinished", "SendMessage", 3),
    ]
    finished = [event for event in seen if isinstance(event, RequestFinished)]
    assert [event.status for event in finished] == [400, 500, 200]
    assert [type(event.error).__name__ for event in finished] == [
        "ThrottledError",
        "TransientError",
        "NoneType",
    ]
    assert all(event.seconds > 0 for event in finished)


async def test_who_counts_tries_gets_one_try() -> None:
    async with FaultServer(lambda request: "throttle_400") as server, client(server) as backend:
        counting = one_try.set(True)
        try:
            with pytest.raises(ThrottledError):
                await backend.execute(SendMessage(server.queue, "m"))
        finally:
            one_try.reset(counting)
        assert len(server.ledger.requests) == 1


async def test_a_queue_in_another_region_is_explained() -> None:
    async with FaultServer(lambda request: "gone") as server, client(server) as backend:
        url = "https://sqs.eu-west-1.amazonaws.com/123456789012/q"
        with pytest.raises(QueueDoesNotExist) as caught:
            await backend.execute(SendMessage(url, "m"))
        [note] = caught.value.__notes__
        assert "eu-west-1" in note
        assert "us-east-1" in note


async def test_no_secret_in_a_repr_a_log_line_an_error_or_an_event(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    secrets = ["the-secret-key", "the-session-token", "proxy-password"]
    texts: list[str] = []
    hooks = Hooks()
    for kind in (
        RequestStarted,
        RequestFinished,
        RetryScheduled,
        ClockCorrected,
        CredentialsLoaded,
        CredentialsFailed,
    ):
        hooks.on(kind, lambda event: texts.append(repr(event)))
    plays = iter(
        ["ok", "denied", "skewed", "expired_token", "html_503", "garbage", "lost", "silence"] * 2
    )
    retry = RetryPolicy(base_seconds=0.0, cap_seconds=0.0, max_attempts=1)
    async with FaultServer(lambda request: next(plays)) as server:
        async with client(
            server,
            hooks=hooks,
            retry=retry,
            read_timeout_seconds=0.02,
            credentials=lambda: KEYS,
        ) as backend:
            for number in range(8):
                try:
                    await backend.execute(SendMessage(server.queue, f"{number}"))
                except PumphouseError as error:
                    texts += traceback.format_exception(error)
                texts += [repr(backend), str(vars(backend)), repr(backend._keeper)]
        signed = server.ledger.requests[0].headers
        assert signed["x-amz-security-token"] == "the-session-token"
        assert "the-secret-key" not in str(signed)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:proxy-password@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    async with HttpBackend(
        region="us-east-1",
        endpoint_url="https://127.0.0.1:10",
        credentials=KEYS,
        retry=retry,
    ) as backend:
        with pytest.raises(NetworkError) as caught:
            await backend.execute(SendMessage("https://127.0.0.1:10/q", "m"))
        texts += traceback.format_exception(caught.value)
        texts += [repr(backend), repr(vars(backend._loops.pool().lanes[0]))]
    assert "127.0.0.1:9" in str(caught.value)
    texts.append(caplog.text)
    for secret in secrets:
        assert not [text for text in texts if secret in text]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            403,
            b'{"__type":"com.amazon.coral.service#InvalidSignatureException","message":'
            b'"The Canonical String should have been x-amz-security-token:the-session-token"}',
        ),
        (502, b"<pre>X-Amz-Security-Token: the-session-token</pre>"),
        (200, b'{"cut": "the-session-token'),
    ],
)
async def test_what_an_answer_repeats_of_the_credentials_is_in_no_error(
    status: int, body: bytes
) -> None:
    events: list[RequestFinished] = []
    async with OneAnswer(status, body) as server:
        async with HttpBackend(
            region="us-east-1", endpoint_url=server.url, credentials=KEYS, retry=NO_RETRIES
        ) as backend:
            backend.hooks.on(RequestFinished, events.append)
            with pytest.raises(PumphouseError) as caught:
                await backend.execute(SendMessage("q", "m"))
        await server.drained()
    chain: list[BaseException | None] = [caught.value, events[0].error]
    for error in chain:
        if error is not None:
            chain += [error.__cause__, error.__context__]
            assert "the-session-token" not in "".join(traceback.format_exception(error))
            assert "the-session-token" not in repr(vars(error))
    assert "..." in str(caught.value)


async def test_the_repr_tells_the_state() -> None:
    async with FaultServer() as server:
        backend = client(server)
        assert repr(backend) == "<HttpBackend open: no connections>"
        await backend.execute(SendMessage(server.queue, "m"))
        assert repr(backend) == (
            f"<HttpBackend open: <Lane calls to {server.url}: 1 idle, 0 busy of 64, 0 waiting>>"
        )
        await backend.aclose()
        assert repr(backend) == "<HttpBackend closed: no connections>"


def test_importing_the_client_imports_no_botocore() -> None:
    code = (
        "import sys, pumphouse, pumphouse.http; pumphouse.HttpBackend; pumphouse.connect();"
        "print([m for m in sys.modules if m.startswith(('botocore', 'boto3', 'aiobotocore'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.strip() == "[]"


# --- what may be repeated -------------------------------------------------------------------------


def test_what_is_as_good_twice_as_once() -> None:
    def entries(*ids: str | None) -> SendMessageBatch:
        return SendMessageBatch(
            "q",
            [
                SendMessageBatchRequestEntry(str(at), "b", message_deduplication_id=identity)
                for at, identity in enumerate(ids)
            ],
        )

    assert repeatable(DeleteMessage("q", "h"))
    assert repeatable(PurgeQueue("q"))
    assert not repeatable(SendMessage("q", "b"))
    assert not repeatable(SendMessage("q.fifo", "b", message_group_id="g"))  # by content, perhaps
    assert repeatable(SendMessage("q.fifo", "b", message_deduplication_id="d"))
    assert repeatable(entries("a", "b"))
    assert not repeatable(entries("a", None))
    assert not repeatable(ReceiveMessage("q"))
    assert repeatable(ReceiveMessage("q.fifo", receive_request_attempt_id="a"))


def test_how_long_a_receive_may_wait() -> None:
    assert wait_seconds(ReceiveMessage("q", wait_time_seconds=0)) == 0
    assert wait_seconds(ReceiveMessage("q", wait_time_seconds=7)) == 7
    assert wait_seconds(ReceiveMessage("q")) == 20  # as long as the queue says
    assert wait_seconds(DeleteMessage("q", "h")) == 0
    assert set(WIRES) >= {"sqs"}
