"""The endpoint for HTTP: what it answers, and the account's own deliveries over loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from pumphouse import Drop, Reject, Retry
from pumphouse.account import Account
from pumphouse.addressing import Topic
from pumphouse.app import App
from pumphouse.clock import RealClock, VirtualClock
from pumphouse.errors import NetworkError, UsageError
from pumphouse.http.fetch import fetch as fetch_over_http
from pumphouse.model import Message
from pumphouse.notifications import Verifier
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sns_operations import (
    ConfirmSubscription,
    CreateTopic,
    GetSubscriptionAttributes,
    ListSubscriptionsByTopic,
    Publish,
    SetSubscriptionAttributes,
    Subscribe,
    Unsubscribe,
)
from pumphouse.server.http_delivery import deliver
from pumphouse.sink import Sink
from pumphouse.sns_endpoint import SnsEndpoint
from pumphouse.subscriber.queue import Queue

ARN = "arn:aws:sns:us-east-1:000000000000:t"


def verifier(account: Account) -> Verifier:
    async def fetch(url: str, max_bytes: int) -> bytes:
        return account.signing_certificate(url.rpartition("/")[2])

    return Verifier(fetch, clock=account.clock)


async def ask(
    endpoint: SnsEndpoint,
    body: bytes,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    parts: int = 1,
) -> tuple[int, str]:
    """Status and text of the answer to one request."""
    cut = [body[i * len(body) // parts : (i + 1) * len(body) // parts] for i in range(parts)]
    events = [
        {"type": "http.request", "body": part, "more_body": n < parts - 1}
        for n, part in enumerate(cut)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    fields = [(n.lower().encode(), v.encode()) for n, v in (headers or {}).items()]
    await endpoint({"type": "http", "method": method, "headers": fields}, receive, send)
    return sent[0]["status"], sent[1]["body"].decode().strip()


class Recorded:
    """An account that keeps what it would deliver over HTTP."""

    def __init__(self, clock: VirtualClock) -> None:
        self.deliveries: list[Any] = []

        async def keep(delivery: Any) -> int:
            self.deliveries.append(delivery)
            return 200

        self.account = Account(clock=clock, deliver=keep)
        self.clock = clock

    async def subscribed(self, **attributes: str) -> None:
        await self.account.execute(CreateTopic("t"))
        await self.account.execute(CreateQueue("q"))
        await self.account.execute(
            Subscribe(ARN, "http", "http://127.0.0.1:1/", attributes or None)
        )
        await self.clock.settle()

    async def confirmed(self, **attributes: str) -> None:
        await self.subscribed(**attributes)
        token = json.loads(self.deliveries.pop().body)["Token"]
        await self.account.execute(ConfirmSubscription(ARN, token))

    async def published(self, message: str = "hello", **options: Any) -> Any:
        await self.account.execute(Publish(message, ARN, **options))
        await self.clock.settle()
        return self.deliveries.pop()


@pytest.fixture
def recorded(clock: VirtualClock) -> Recorded:
    return Recorded(clock)


def app_with(handle: Any, **options: Any) -> tuple[App, Any]:
    app = App("t")
    return app, app.subscriber(Queue("q", sns="envelope"), **options)(handle)


async def test_a_confirmation_is_confirmed_over_the_backend(recorded: Recorded) -> None:
    await recorded.subscribed()
    account = recorded.account

    async def handle(body: str) -> None: ...

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=verifier(account))
    asked = recorded.deliveries[0].body
    assert (await ask(endpoint, asked))[0] == 503, "the app does not run"
    async with app.running(account):
        assert await ask(endpoint, asked, parts=3) == (200, "confirmed")
    page = await account.execute(ListSubscriptionsByTopic(ARN))
    attributes = await account.execute(
        GetSubscriptionAttributes(page.subscriptions[0].subscription_arn)
    )
    assert attributes.attributes["PendingConfirmation"] == "false"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (None, 200),
        (Drop(), 200),
        (Retry(), 503),
        (Reject("no"), 422),
        (RuntimeError("failed"), 503),
    ],
)
async def test_the_status_tells_sns_whether_to_try_again(
    recorded: Recorded, outcome: Any, status: int
) -> None:
    await recorded.confirmed()
    got: list[Message] = []

    async def handle(body: str, message: Message) -> Any:
        got.append(message)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=verifier(recorded.account))
    delivery = await recorded.published("héllo")
    async with app.running(recorded.account):
        assert (await ask(endpoint, delivery.body))[0] == status
    [message] = got
    assert message.text == "héllo"
    assert message.sent_at > 0
    assert message.attempt == 1


async def test_what_no_handler_can_read_is_not_tried_again(recorded: Recorded) -> None:
    await recorded.confirmed()

    async def handle(body: dict[str, int]) -> None:
        raise AssertionError

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=verifier(recorded.account))
    async with app.running(recorded.account):
        status, text = await ask(endpoint, (await recorded.published("no json")).body)
    assert status == 422
    assert "the body is no dict" in text


async def test_what_is_refused(recorded: Recorded) -> None:
    await recorded.confirmed()

    async def handle(body: str) -> None:
        raise AssertionError

    app, handler = app_with(handle)
    good = json.loads((await recorded.published()).body)
    mine = verifier(recorded.account)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=mine, max_body_bytes=5_000)

    def changed(**fields: str) -> bytes:
        return json.dumps({**good, **fields}).encode()

    async with app.running(recorded.account):
        assert (await ask(endpoint, b"", method="GET"))[0] == 405
        assert (await ask(endpoint, b"x" * 5_001))[0] == 413
        assert (await ask(endpoint, b"x" * 5_001, parts=7))[0] == 413
        assert (await ask(endpoint, b"{}"))[0] == 400
        assert (await ask(endpoint, b"\xff"))[0] == 400
        assert (await ask(endpoint, changed(Message="tampered")))[0] == 403
        assert (await ask(endpoint, changed(SigningCertURL="https://evil.example/a.pem")))[0] == 403
        assert (await ask(endpoint, changed(TopicArn=ARN + "u")))[0] == 403
        assert (await ask(endpoint, changed(Type="Other")))[0] == 403
        raw = {"x-amz-sns-rawdelivery": "true", "x-amz-sns-topic-arn": ARN}
        assert (await ask(endpoint, b"raw", headers=raw))[0] == 403
        unverified = SnsEndpoint(app, {ARN: handler}, verify=False, confirm=False)
        assert (await ask(unverified, changed(Type="Other")))[0] == 400
        confirmation = changed(Type="SubscriptionConfirmation", Token="0" * 64)
        assert (await ask(unverified, confirmation))[0] == 403
        wrong = SnsEndpoint(app, {ARN: handler}, verify=False)
        assert (await ask(wrong, confirmation))[0] == 403, "no such token"


async def test_what_was_seen_on_its_way_can_not_be_sent_again_for_ever(
    recorded: Recorded, clock: VirtualClock
) -> None:
    await recorded.confirmed()
    got: list[str] = []

    async def handle(body: str) -> None:
        got.append(body)

    app, handler = app_with(handle)
    mine = verifier(recorded.account)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=mine)
    lenient = SnsEndpoint(app, {ARN: handler}, verifier=mine, max_age_seconds=None)
    body = (await recorded.published('"once"')).body
    async with app.running(recorded.account):
        await clock.advance(3600)
        assert (await ask(endpoint, body))[0] == 200
        await clock.advance(901)
        status, text = await ask(endpoint, body)
        assert (status, "4501 s old" in text) == (403, True)
        assert (await ask(lenient, body))[0] == 200
    assert len(got) == 2
    with pytest.raises(UsageError, match="max_age_seconds is above 0, or None"):
        SnsEndpoint(app, {ARN: handler}, verifier=mine, max_age_seconds=0)


async def test_no_certificate_now_is_tried_again(recorded: Recorded) -> None:
    await recorded.confirmed()

    async def down(url: str, max_bytes: int) -> bytes:
        raise NetworkError("no way there")

    async def handle(body: str) -> None:
        raise AssertionError

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=Verifier(down))
    async with app.running(recorded.account):
        assert (await ask(endpoint, (await recorded.published()).body))[0] == 503


async def test_a_handler_that_takes_too_long_and_too_many_at_once(
    recorded: Recorded, clock: VirtualClock
) -> None:
    await recorded.confirmed()
    cancelled = 0

    async def handle(body: str) -> None:
        nonlocal cancelled
        try:
            await clock.sleep(100)
        except asyncio.CancelledError:
            cancelled += 1
            raise

    app, handler = app_with(handle)
    mine = verifier(recorded.account)
    endpoint = SnsEndpoint(app, {ARN: handler}, verifier=mine, max_concurrency=1)
    body = (await recorded.published()).body
    async with app.running(recorded.account):
        first = asyncio.ensure_future(ask(endpoint, body))
        await clock.advance(1)
        assert (await ask(endpoint, body))[0] == 429
        await clock.advance(14)
        assert (await first)[0] == 503
    assert cancelled == 1


async def test_raw_delivery_where_signatures_are_not_wanted(recorded: Recorded) -> None:
    await recorded.confirmed(RawMessageDelivery="true")
    got: list[str] = []

    async def handle(body: str) -> None:
        got.append(body)

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, verify=False)
    delivery = await recorded.published("as it is")
    async with app.running(recorded.account):
        assert (await ask(endpoint, delivery.body, headers=delivery.headers))[0] == 200
    assert got == ["as it is"]


async def test_what_can_not_be_an_endpoint() -> None:
    async def handle(body: str) -> None: ...

    app, handler = app_with(handle)
    with pytest.raises(UsageError, match="not the ARN"):
        SnsEndpoint(app, {"t": handler})
    with pytest.raises(UsageError, match="no topic"):
        SnsEndpoint(app, {})
    with pytest.raises(UsageError, match="not declared"):
        SnsEndpoint(App("other"), {ARN: handler})


# --- over loopback ------------------------------------------------------------------------------


@asynccontextmanager
async def served(application: Any) -> AsyncIterator[str]:
    """The application under uvicorn on a free port of 127.0.0.1."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        config = uvicorn.Config(application, log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.ensure_future(server.serve(sockets=[held]))
        try:
            async with asyncio.timeout(20):
                while not server.started and not task.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{held.getsockname()[1]}/sns"
        finally:
            server.should_exit = True
            await task


async def test_end_to_end() -> None:
    account = Account(clock=RealClock(), deliver=deliver)
    await account.execute(CreateTopic("t"))
    await account.execute(CreateQueue("q"))
    got: list[tuple[str, dict[str, Any]]] = []
    failing = 1
    seen = asyncio.Event()

    async def handle(body: str, message: Message) -> Any:
        nonlocal failing
        if body == "twice" and failing:
            failing -= 1
            return Retry()
        got.append((body, message.headers))
        if len(got) == 3:
            seen.set()
        return None

    app, handler = app_with(handle)
    endpoint = SnsEndpoint(app, {ARN: handler}, backend=account, verifier=verifier(account))
    policy = {"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 1, "numRetries": 3}}
    async with asyncio.timeout(60), served(endpoint) as url:
        answer = await account.execute(Subscribe(ARN, "http", url, return_subscription_arn=True))
        arn = str(answer.subscription_arn)

        async def pending() -> bool:
            found = await account.execute(GetSubscriptionAttributes(arn))
            return found.attributes["PendingConfirmation"] == "true"

        while await pending():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await account.execute(SetSubscriptionAttributes(arn, "DeliveryPolicy", json.dumps(policy)))
        async with Sink(Topic("t"), account) as sink:
            await sink.send("one", attributes={"k": b"\x00\xff"})
            await sink.send(b"\x00\x01")
            await sink.send("twice")
        await seen.wait()
        await account.execute(Unsubscribe(arn))
    await account.aclose()
    assert sorted(body for body, _ in got) == ["\x00\x01", "one", "twice"]
    assert dict(got)["one"] == {"k": b"\x00\xff"}
    assert failing == 0
    assert not account.topics.undelivered


async def test_a_certificate_is_fetched_within_bounds() -> None:
    async def certificate(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        status = 200 if scope["path"].endswith(".pem") else 404
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 1_000})

    async with asyncio.timeout(60), served(certificate) as url:
        assert await fetch_over_http(f"{url}/a.pem", 1_000) == b"x" * 1_000
        with pytest.raises(NetworkError, match="longer than 999"):
            await fetch_over_http(f"{url}/a.pem", 999)
        with pytest.raises(NetworkError, match="404"):
            await fetch_over_http(f"{url}/a", 1_000)
    with pytest.raises(NetworkError):
        await fetch_over_http(f"{url}/a.pem", 1_000)


async def test_verifying_counts_as_work_and_takes_of_the_same_time(clock: VirtualClock) -> None:
    """Forged posts that name one certificate each can't make more fetches than requests may run."""
    fetching: list[str] = []

    async def fetch(url: str, max_bytes: int) -> bytes:
        fetching.append(url)
        await clock.sleep(60)
        return b""

    account = Account(clock=clock)
    await account.execute(CreateQueue("q"))
    app = App("svc", sns_verifier=Verifier(fetch, clock=clock))

    @app.subscriber("q")
    async def handle(body: str) -> None:
        raise AssertionError("nothing of this is signed")

    endpoint = SnsEndpoint(app, {ARN: handle}, max_concurrency=2, answer_seconds=14)

    def forged(n: int) -> bytes:
        return json.dumps(
            {
                "Type": "Notification",
                "MessageId": str(n),
                "TopicArn": ARN,
                "Message": "forged",
                "Timestamp": "2026-01-01T00:00:00.000Z",
                "SignatureVersion": "2",
                "Signature": "c2ln",
                "SigningCertURL": f"https://sns.us-east-1.amazonaws.com/{n}.pem",
                "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/",
            }
        ).encode()

    async with app.running(account):
        asked = [asyncio.create_task(ask(endpoint, forged(n))) for n in range(20)]
        await clock.settle()
        assert len(fetching) == 2
        assert [task.result()[0] for task in asked if task.done()] == [429] * 18
        await clock.advance(14)
        assert sorted(task.result()[0] for task in asked) == [429] * 18 + [503] * 2
