"""Rows P2 (the client's side), P3, P4, P5, B1 and B2: the network, and batches over it."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from typing import Any

import pytest

from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.confirmation import confirm
from pumphouse.errors import OutcomeUnknownError, PumphouseError, ThrottledError, UsageError
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.events import RequestStarted, RetryScheduled
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from support.fault_server import FaultServer, Request, md5
from support.sent import Sent

KEYS = Keys("AKIDEXAMPLE", "secret")


def client(server: FaultServer, **options: Any) -> HttpBackend:
    return HttpBackend(region="us-east-1", endpoint_url=server.url, credentials=KEYS, **options)


def polls_are_held(request: Request) -> str:
    return "hold" if request.action == "ReceiveMessage" else "ok"


async def until(done) -> None:
    """Let sockets be read, in real time, until `done()`."""
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0.0005)
    raise TimeoutError


async def test_p2_thirty_polls_never_use_the_connections_that_settlement_needs() -> None:
    async with FaultServer(polls_are_held) as server:
        async with client(server, max_connections=2, max_poll_connections=20) as backend:
            polls = [
                asyncio.create_task(
                    backend.execute(ReceiveMessage(f"{server.queue}-{n}", wait_time_seconds=20))
                )
                for n in range(30)  # more than there are connections for polls
            ]
            await until(lambda: len(server.ledger.requests) == 20)
            times: list[float] = []
            for number in range(300):
                began = time.perf_counter()
                await backend.execute(DeleteMessage(server.queue, f"h{number}"))
                times.append(time.perf_counter() - began)
            assert sorted(times)[int(len(times) * 0.99)] < 1.0
            used: dict[str, set[int]] = {"ReceiveMessage": set(), "DeleteMessage": set()}
            for request in server.ledger.requests:
                used[request.action].add(request.connection)
            assert len(used["ReceiveMessage"]) == 20
            assert len(used["DeleteMessage"]) == 1
            assert not used["ReceiveMessage"] & used["DeleteMessage"]
            server.script = lambda request: "ok"
            server.release()
            await asyncio.gather(*polls)
        assert set(server.ledger.deleted.values()) == {1}


async def test_p2_a_receive_that_does_not_wait_goes_with_the_calls() -> None:
    async with FaultServer() as server, client(server) as backend:
        await backend.execute(ReceiveMessage(server.queue, wait_time_seconds=0))
        await backend.execute(DeleteMessage(server.queue, "h"))
        await backend.execute(ReceiveMessage(server.queue))  # the queue may say that it waits
        assert [request.connection for request in server.ledger.requests] == [1, 1, 2]


async def test_p3_a_read_time_out_below_the_wait_is_raised_above_it(clock: VirtualClock) -> None:
    async with (
        FaultServer(polls_are_held) as server,
        client(server, clock=clock, read_timeout_seconds=10) as backend,
    ):
        poll = asyncio.create_task(
            backend.execute(ReceiveMessage(server.queue, wait_time_seconds=20))
        )
        await until(lambda: server.ledger.requests)
        await clock.advance(29.5)
        assert not poll.done()
        server.release()
        assert (await poll).messages == []

        poll = asyncio.create_task(
            backend.execute(ReceiveMessage(server.queue, wait_time_seconds=20))
        )
        await until(lambda: len(server.ledger.requests) == 2)
        await clock.advance(30.5)
        with pytest.raises(OutcomeUnknownError, match="nothing arrived for 30 seconds"):
            await poll


def test_p3_time_outs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="read_timeout_seconds"):
        HttpBackend(read_timeout_seconds=30, total_timeout_seconds=20)


async def test_p4_sockets_that_a_proxy_dropped_cost_one_time_out(clock: VirtualClock) -> None:
    """Every idle connection has been dropped without a word; a delete gets through in 10 s."""
    async with FaultServer(polls_are_held) as server:
        server.script = lambda request: "hold"
        async with client(server, clock=clock) as backend:
            warm = [
                asyncio.create_task(backend.execute(DeleteMessage(server.queue, f"w{n}")))
                for n in range(8)
            ]
            await until(lambda: len(server.ledger.requests) == 8)
            server.script = lambda request: "silence" if request.connection <= 8 else "ok"
            server.release()
            await asyncio.gather(*warm)
            await clock.advance(0.5)
            began = clock.monotonic()
            delete = asyncio.create_task(backend.execute(DeleteMessage(server.queue, "h")))
            await until(lambda: len(server.ledger.requests) == 9)
            await clock.advance(10.1)  # the read time-out
            await clock.advance(0.2)  # the jitter
            await until(delete.done)
            assert clock.monotonic() - began < 15  # half of a usual visibility timeout
            assert len(server.ledger.requests) == 10
            [lane] = backend._loops.pool().lanes
            assert lane.sizes == (1, 0, 0)  # the others of that age are gone


async def test_p4_idle_sockets_are_bounded_in_age(clock: VirtualClock) -> None:
    async with FaultServer() as server, client(server, clock=clock) as backend:
        await backend.execute(DeleteMessage(server.queue, "a"))
        await clock.advance(19)
        await backend.execute(DeleteMessage(server.queue, "b"))
        assert server.ledger.connections == 1
        await clock.advance(21)
        await until(lambda: server.open_connections == 0)
        await backend.execute(DeleteMessage(server.queue, "c"))
        assert server.ledger.connections == 2


async def test_p4_idle_sockets_are_probed() -> None:
    """TCP asks whether the other side is there; and before a use the socket is looked at."""
    import socket

    async with FaultServer() as server, client(server) as backend:
        await backend.execute(DeleteMessage(server.queue, "a"))
        [lane] = backend._loops.pool().lanes
        sock = lane._idle[0]._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 20


SCRIPT = """
    import asyncio, os, sys, warnings
    warnings.simplefilter("ignore")
    from pumphouse.errors import CrossThreadError
    from pumphouse.http import HttpBackend, Keys
    from pumphouse.protocol.operations import GetQueueUrl

    backend = HttpBackend(
        region="us-east-1", endpoint_url=sys.argv[1], credentials=Keys("A", "B")
    )

    async def use(who):
        for number in range(50):
            name = f"{who}-{number}"
            answer = await backend.execute(GetQueueUrl(name))
            assert answer.queue_url.endswith("/" + name), answer

    loop = asyncio.new_event_loop()
    loop.run_until_complete(use("before"))
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                loop.run_until_complete(use("inherited"))
            except CrossThreadError as error:
                assert "forked" in str(error)
            else:
                raise AssertionError("the parent's loop was used")
            os.write(tell, b"x")
            asyncio.run(use("child"))
            async def nested():
                await use("again")
                await backend.aclose()
            asyncio.run(nested())
            os.write(1, b"child fine\\n")
        finally:
            os._exit(0)
    os.close(tell)
    os.read(told, 1)  # a loop that was inherited takes what arrives for the parent's own
    loop.run_until_complete(use("parent"))
    _, status = os.waitpid(child, 0)
    loop.run_until_complete(use("after"))
    loop.run_until_complete(backend.aclose())
    loop.close()
    print("parent fine")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
async def test_p5_a_forked_child_has_a_fresh_pool_and_never_the_parents_sockets() -> None:
    async with FaultServer() as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            textwrap.dedent(SCRIPT),
            server.url,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert out.decode().splitlines() == ["child fine", "parent fine"], err.decode()
        who: dict[int, set[str]] = {}
        for request in server.ledger.requests:
            name = request.body["QueueName"].partition("-")[0]
            who.setdefault(request.connection, set()).add(name)
        parents = {"before", "parent", "after"}
        assert all(names <= parents or not names & parents for names in who.values())
        assert {"child", "again"} <= {name for names in who.values() for name in names}


# --- batches --------------------------------------------------------------------------------------


async def test_b1_exact_results_for_each_entry() -> None:
    """Three of ten fail, one is left out, one unknown id is named; accepted ones go out once."""

    def edit(request: Request, answer: dict[str, Any]) -> dict[str, Any]:
        stored = [e for e in answer["Successful"] if e["Id"] not in {"2", "5", "8", "6"}]
        failed = [
            {"Id": "2", "SenderFault": True, "Code": "InvalidMessageContents"},
            {"Id": "5", "SenderFault": False, "Code": "InternalError"},
            {"Id": "8", "SenderFault": True, "Code": "RequestThrottled"},
        ]
        stranger = {"Id": "77", "MessageId": "x", "MD5OfMessageBody": md5("x")}
        return {"Successful": [*stored, stranger], "Failed": failed}

    async with FaultServer() as server, client(server) as backend:
        server.edit = edit
        sent = [Sent(f"body {n}") for n in range(10)]
        entries = [SendMessageBatchRequestEntry(str(n), m.body) for n, m in enumerate(sent)]
        answer = await backend.execute(SendMessageBatch(server.queue, entries))
        assert len(server.ledger.requests) == 1
        outcomes, strangers, _ = confirm(server.queue, sent, answer)
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds == [
            "Receipt",
            "Receipt",
            "RefusedError",
            "Receipt",
            "Receipt",
            "TransientError",
            "OutcomeUnknownError",
            "Receipt",
            "ThrottledError",
            "Receipt",
        ]
        assert strangers == ["77"]


async def test_b1_a_request_that_fails_after_others_leaves_their_results_alone() -> None:
    """The second of three batches raises: the callers of the first and the third have receipts."""

    def script(request: Request) -> str:
        return "lost" if request.body["Entries"][0]["MessageBody"] == "1.0" else "ok"

    async with FaultServer(script) as server, client(server) as backend:

        async def send(chunk: int) -> list[Receipt | PumphouseError]:
            sent = [Sent(f"{chunk}.{n}") for n in range(10)]
            entries = [SendMessageBatchRequestEntry(str(n), m.body) for n, m in enumerate(sent)]
            try:
                answer = await backend.execute(SendMessageBatch(server.queue, entries))
            except PumphouseError as error:
                return confirm(server.queue, sent, error).outcomes
            return confirm(server.queue, sent, answer).outcomes

        chunks = await asyncio.gather(*(send(chunk) for chunk in range(3)))
        assert [type(outcomes[0]) for outcomes in chunks] == [
            Receipt,
            OutcomeUnknownError,
            Receipt,
        ]
        assert set(server.ledger.stored.values()) == {1}
        assert len(server.ledger.requests) == 3


@pytest.mark.parametrize("play", ["throttle_400", "throttle_403", "throttle_429", "throttle_503"])
async def test_b2_one_budget_in_all_counted_on_the_wire(play: str, clock: VirtualClock) -> None:
    """Throttling is throttling whatever status and whoever is blamed; four tries, no more."""
    events: list[object] = []
    async with FaultServer(lambda request: play) as server:
        async with client(server, clock=clock) as backend:
            backend.hooks.on(RequestStarted, events.append)
            backend.hooks.on(RetryScheduled, events.append)
            send = asyncio.create_task(backend.execute(SendMessage(server.queue, "m")))
            while not send.done():
                await asyncio.sleep(0.0005)
                await clock.advance(1.0)
            with pytest.raises(ThrottledError):
                await send
        assert len(server.ledger.requests) == 4
        assert len([event for event in events if isinstance(event, RequestStarted)]) == 4
        waits = [event.delay_seconds for event in events if isinstance(event, RetryScheduled)]
        assert len(waits) == 3
        assert all(0 <= wait <= 0.1 * 2**at for at, wait in enumerate(waits))


async def test_b2_failed_entries_are_the_callers_and_the_rest_is_done_once() -> None:
    def edit(request: Request, answer: dict[str, Any]) -> dict[str, Any]:
        fault = {"Id": "1", "SenderFault": False, "Code": "InternalError"}
        return {"Successful": [{"Id": "0"}, {"Id": "2"}], "Failed": [fault]}

    async with FaultServer() as server:
        server.edit = edit
        async with client(server, retry=RetryPolicy(base_seconds=0, cap_seconds=0)) as backend:
            entries = [DeleteMessageBatchRequestEntry(str(n), f"h{n}") for n in range(3)]
            answer = await backend.execute(DeleteMessageBatch(server.queue, entries))
        assert [entry.id for entry in answer.successful] == ["0", "2"]
        assert [(entry.id, entry.code) for entry in answer.failed] == [("1", "InternalError")]
        assert len(server.ledger.requests) == 1
