"""How an app says it is: to a program, to probes over HTTP, and for several processes as one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from pumphouse import App, Queue, Retry
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ConfigError, UsageError
from pumphouse.health import HealthServer, Monitor, QueueState, Snapshot, WorkerState, merge
from pumphouse.health import server as serving
from pumphouse.health.monitor import Rates
from pumphouse.health.server import answer
from pumphouse.protocol.operations import DeleteQueue, GetQueueAttributes
from support.service import count, make_queue, send


async def make_app(account: Account, **options: object) -> tuple[App, asyncio.Event]:
    """An app of one queue whose handler waits for the event."""
    app, gate = App("shop"), asyncio.Event()
    await make_queue(account, "mail")

    @app.subscriber(Queue("mail", **options), concurrency=2, retry=5.0)  # type: ignore[arg-type]
    async def handle(body: str) -> Retry | None:
        await gate.wait()
        return Retry() if body == "again" else None

    return app, gate


# --- what is told ---------------------------------------------------------------------------------


async def test_the_life_of_an_app_as_its_snapshots_tell_it(
    account: Account, clock: VirtualClock
) -> None:
    app, gate = await make_app(account)
    monitor = Monitor(app, clock=clock)
    assert (monitor.snapshot().state, monitor.snapshot().not_ready) == ("starting", "starting")
    async with app.running(account) as running:
        await clock.settle()
        assert monitor.snapshot().not_ready == ""
        for body in ("1", "2", "3", "again"):
            await send(account, account.queue("mail").url, body)
        await clock.advance(1)
        mail = monitor.snapshot().queues["mail"]
        assert (mail.held, mail.running, mail.handled) == (4, 2, 0)
        gate.set()
        await clock.advance(1)
        mail = monitor.snapshot().queues["mail"]
        assert (mail.held, mail.running, mail.handled, mail.retried) == (0, 0, 3, 1)
        assert mail.deleted == 3
        running.request_stop()
        assert monitor.snapshot().not_ready == "draining"
    assert monitor.snapshot().state == "stopped"
    assert monitor.snapshot().queues["mail"].handled == 3


async def test_every_request_of_a_subscription_is_counted(
    account: Account, clock: VirtualClock
) -> None:
    app = App("shop")
    url = await make_queue(account, "mail")
    await make_queue(account, "dead")

    @app.subscriber("mail", max_attempts=1, dead_letter="dead")
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError(body)

    monitor = Monitor(app, clock=clock)
    async with app.running(account):
        await clock.settle()
        before = len(account.ledger)
        sent = ["good"] * 3 + ["bad"] * 2
        for body in sent:
            await send(account, url, body)
        await clock.advance(1)
        await monitor.ask_waiting()
        mail = monitor.snapshot().queues["mail"]
        made = len(account.ledger) - before - len(sent)
        # the poll that is open now is not in the ledger yet, the one before these was not either
        assert mail.requests == made + 1
        assert (mail.handled, mail.dead_lettered, mail.waiting_requests) == (3, 2, 1)
        assert mail.requests_per_message == round(mail.requests / 3, 3)


async def test_a_queue_that_fails_makes_the_app_not_ready_and_says_why(
    account: Account, clock: VirtualClock
) -> None:
    app, _ = await make_app(account)
    monitor = Monitor(app, clock=clock)
    async with app.running(account):
        await clock.settle()
        await account.execute(DeleteQueue(account.queue("mail").url))
        await clock.advance(21)
        assert monitor.snapshot().not_ready.startswith("mail is unhealthy: QueueDoesNotExist")
        assert app.health()["mail"]["status"] == "unhealthy"
        await clock.advance(60)
        await make_queue(account, "mail")
        await clock.advance(60)
        assert monitor.snapshot().not_ready == ""


async def test_a_subscription_that_ended_makes_the_app_not_ready(
    account: Account, clock: VirtualClock
) -> None:
    app, _ = await make_app(account, on_missing="end")
    monitor = Monitor(app, clock=clock)
    async with app.running(account):
        await clock.settle()
        await account.execute(DeleteQueue(account.queue("mail").url))
        await clock.advance(21)
        snapshot = monitor.snapshot()
        assert snapshot.queues["mail"].reason == "the queue was deleted"
        assert snapshot.ended


async def test_waiting_is_asked_for_only_when_it_is_wanted(
    account: Account, clock: VirtualClock
) -> None:
    app, _ = await make_app(account)
    monitor = Monitor(app, clock=clock)
    url = account.queue("mail").url
    async with app.running(account):
        for number in range(30):
            await send(account, url, str(number))
        await clock.advance(1)
        before = count(account, GetQueueAttributes)
        assert monitor.snapshot().queues["mail"].waiting is None
        asking = asyncio.create_task(monitor.keep_asking(5))
        await clock.advance(11)
        asking.cancel()
        assert count(account, GetQueueAttributes) == before + 3
        mail = monitor.snapshot().queues["mail"]
        assert (mail.waiting, mail.waiting_requests) == (30 - mail.held, 3)
        account.faults.refuse("GetQueueAttributes", "AccessDenied")
        await monitor.ask_waiting()
        assert monitor.snapshot().queues["mail"].waiting is None


def test_rates_are_over_the_last_ten_seconds_or_since_the_last_look() -> None:
    rates = Rates()
    assert rates.update(0, {"mail": 0}) == {"mail": None}
    assert rates.update(5, {"mail": 50}) == {"mail": 10}
    assert rates.update(10, {"mail": 50}) == {"mail": 5}
    assert rates.update(16, {"mail": 50}) == {"mail": 0}
    assert rates.update(60, {"mail": 490, "new": 4}) == {"mail": 10, "new": pytest.approx(4 / 44)}


def test_rates_keep_few_samples_however_often_they_are_looked_at() -> None:
    rates = Rates()
    for at in range(10_000):
        rates.update(at / 100, {"mail": at})
    assert len(rates._samples) < 50


# --- several processes ----------------------------------------------------------------------------


def test_processes_are_told_as_one() -> None:
    one = QueueState(held=1, handled=10, requests=5, rate=1.5, waiting=7)
    two = QueueState(status="unhealthy", reason="no", held=2, handled=20, requests=10, rate=2.0)
    merged = merge(
        [
            Snapshot(app="shop", state="running", queues={"mail": one}),
            Snapshot(app="shop", state="running", queues={"mail": two, "other": one}),
        ],
        past=[Snapshot(queues={"mail": QueueState(status="ended", held=9, handled=100)})],
    )
    mail = merged.queues["mail"]
    assert (mail.status, mail.reason, mail.held, mail.handled) == ("unhealthy", "no", 3, 130)
    assert (mail.rate, mail.waiting) == (3.5, 7)
    assert mail.requests_per_message == round(15 / 130, 3)
    assert merged.queues["other"] == merge([Snapshot(queues={"other": one})]).queues["other"]
    assert merged.app == "shop"


def test_an_app_is_as_ready_as_the_least_ready_of_its_processes() -> None:
    workers = [WorkerState(number=1, state="running"), WorkerState(number=2)]
    assert Snapshot(state="running", workers=workers).not_ready == "worker 2 is starting"
    for state in ("starting", "draining"):
        assert merge([Snapshot(state="running"), Snapshot(state=state)]).state == state


# --- over HTTP ------------------------------------------------------------------------------------


class Told:
    """A source that tells what a test sets."""

    def __init__(self, **options: object) -> None:
        self.now = Snapshot(**options)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        return self.now


def ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes to 127.0.0.1; status, headers and body of what comes back."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        data = b""
        while piece := connection.recv(65_536):
            data += piece
    if not data:
        return 0, {}, b""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    return int(first.split()[1]), headers, body


def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, object]]:
    status, _, body = ask(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return status, json.loads(body) if body else {}


READY = Told(state="running", queues={"mail": QueueState(handled=3)})


def test_the_three_paths() -> None:
    with HealthServer(READY, port=0) as server:
        assert get(server.port, "/live") == (200, {"live": True, "reason": ""})
        assert get(server.port, "/ready?verbose") == (200, {"ready": True, "reason": ""})
        status, health = get(server.port, "/health")
        assert status == 200
        assert health["ready"] is True
        assert health["queues"]["mail"]["handled"] == 3  # type: ignore[index]
        assert get(server.port, "/")[0] == 404
    assert server.url == f"http://127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (Snapshot(), "starting"),
        (Snapshot(state="draining"), "draining"),
        (Snapshot(state="stopped"), "stopped"),
        (
            Snapshot(state="running", queues={"q": QueueState(status="unhealthy", reason="why")}),
            "q is unhealthy: why",
        ),
        (Snapshot(state="running", queues={"q": QueueState(status="ended")}), "q is ended"),
        (
            Snapshot(state="running", blocked_seconds=31),
            "the event loop has been blocked for 31 s",
        ),
    ],
)
def test_what_is_not_ready_is_503_and_says_why(snapshot: Snapshot, reason: str) -> None:
    status, body = answer("/ready", lambda: snapshot)
    assert (status, json.loads(body)) == (503, {"ready": False, "reason": reason})
    live, _ = answer("/live", lambda: snapshot)
    assert live == (503 if snapshot.blocked_seconds else 200)
    assert answer("/health", lambda: snapshot)[0] == 200


def test_head_is_answered_without_a_body_and_other_methods_are_refused() -> None:
    with HealthServer(READY, port=0) as server:
        status, headers, body = ask(server.port, b"HEAD /live HTTP/1.1\r\n\r\n")
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            status, headers, _ = ask(server.port, f"{method} /live HTTP/1.1\r\n\r\n".encode())
            assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /live HTTP/9.9\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nbroken header\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 9_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /live HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused(request_: bytes, status: int) -> None:
    with HealthServer(READY, port=0) as server:
        assert refusal(server.port, request_) in (status, 0)
        assert get(server.port, "/live")[0] == 200


def refusal(port: int, request: bytes) -> int:
    """The status, or 0 where the connection was reset while it was still being written to."""
    try:
        return ask(port, request)[0]
    except ConnectionError:
        return 0


def test_slow_clients_are_parted_with_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.3)
    with HealthServer(READY, port=0) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for each in slow:
            each.sendall(b"GET /live HT")
        assert get(server.port, "/live")[0] == 200
        for each in slow:
            each.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(100) == b""
            each.close()


def test_more_connections_than_there_is_room_for_are_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 3)
    with HealthServer(READY, port=0) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        try:
            assert refusal(server.port, b"GET /live HTTP/1.1\r\n\r\n") == 0
        finally:
            for each in idle:
                each.close()
        until(lambda: refusal(server.port, b"GET /live HTTP/1.1\r\n\r\n") == 200)


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that another thread is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.01)


async def test_a_blocked_event_loop_is_told_while_it_is_blocked() -> None:
    app = App("shop")
    monitor = Monitor(app)
    found: list[dict[str, object]] = []
    with HealthServer(monitor, port=0) as server:

        def probe() -> None:
            until(lambda: bool(get(server.port, "/health")[1]["blocked_seconds"]))
            found.append(get(server.port, "/health")[1])
            unblocked.set()

        unblocked = threading.Event()
        prober = threading.Thread(target=probe)
        prober.start()
        assert unblocked.wait(20)  # the loop stands still for as long as this takes
        prober.join()
    assert found[0]["blocked_seconds"]


def test_a_port_that_is_taken_or_none_is_a_clear_error() -> None:
    with (
        HealthServer(READY, port=0) as server,
        pytest.raises(ConfigError, match="give another health port"),
    ):
        HealthServer(READY, port=server.port)
    with pytest.raises(UsageError, match="health port 70000"):
        HealthServer(READY, port=70_000)
    with pytest.raises(UsageError, match="can't be listened on"):
        HealthServer(READY, port=0, host="no.such.host.invalid")


def test_one_that_is_closed_before_it_has_begun_ends_all_the_same() -> None:
    for _ in range(20):
        server = HealthServer(READY, port=0)
        server.__enter__()
        server.close()  # its thread may not run yet
        assert not server._thread.is_alive()
