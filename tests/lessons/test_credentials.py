"""Rows C1 to C3: credentials that expire, clocks that differ, endpoints that are set."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

import pytest

from pumphouse.clock import VirtualClock
from pumphouse.errors import ClockSkewError, ConfigError, RefusedConfigError
from pumphouse.hooks import Hooks
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.credentials import Keeper
from pumphouse.http.endpoint import Configuration
from pumphouse.http.events import ClockCorrected, CredentialsFailed, CredentialsLoaded
from pumphouse.protocol.operations import DeleteMessage, SendMessage
from pumphouse.protocol.sigv4 import amz_date
from support.aws_settings import aws_files  # noqa: F401
from support.fault_server import FaultServer, Request


class ShortLived:
    """A source of keys that live for 30 seconds, and that can be out of order."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.broken = False
        self.asked = 0

    def __call__(self) -> Keys:
        self.asked += 1
        if self.broken:
            raise OSError("no route to the metadata service")
        return Keys(f"AKID{self.asked}", "secret", "token", self.clock.now() + 30)


async def renewed(keeper: Keeper) -> None:
    """Wait, in real time, for a renewal that runs in its thread."""
    while keeper._running is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.0005)


async def test_c1_fifty_calls_at_once_and_one_refresh(clock: VirtualClock) -> None:
    source = ShortLived(clock)
    expiries: dict[str, float] = {}
    late: list[str] = []

    def script(request: Request) -> str:
        key = request.headers["authorization"].split("=")[1].split("/")[0]
        if clock.now() >= expiries[key]:
            late.append(key)
        return "ok"

    def give() -> Keys:
        keys = source()
        assert keys.expires_at is not None
        expiries[keys.access_key_id] = keys.expires_at
        return keys

    async with FaultServer(script) as server:
        async with HttpBackend(
            region="us-east-1", endpoint_url=server.url, credentials=give, clock=clock
        ) as backend:
            for _ in range(12):  # two minutes
                async with asyncio.TaskGroup() as calls:
                    for number in range(50):
                        calls.create_task(
                            backend.execute(DeleteMessage(server.queue, f"h{number}"))
                        )
                await renewed(backend._keeper)
                await clock.advance(10)
        assert sum(server.ledger.deleted.values()) == 600
    assert not late
    assert 4 <= source.asked <= 7  # one for each 20 seconds, whatever the number of callers


async def test_c1_a_failing_refresh_backs_off_shows_and_recovers(clock: VirtualClock) -> None:
    source = ShortLived(clock)
    events: list[object] = []
    hooks = Hooks()
    hooks.on(CredentialsFailed, events.append)
    hooks.on(CredentialsLoaded, events.append)
    keeper = Keeper(source, clock, hooks)
    keys = await keeper.get()
    await renewed(keeper)
    assert keeper.healthy
    source.broken = True
    await clock.advance(21)
    assert await keeper.get() is keys  # still valid: used while the renewal runs beside it
    await renewed(keeper)
    assert not keeper.healthy
    assert await keeper.get() is keys
    await clock.advance(9.5)  # now they have expired
    asked = source.asked
    for _ in range(600):  # ten minutes of calls, one a second
        with pytest.raises(ConfigError, match="could not be loaded"):
            await keeper.get()
        await clock.advance(1)
    assert source.asked - asked < 120  # and not six hundred
    failures = [event for event in events if isinstance(event, CredentialsFailed)]
    assert failures[0].usable
    assert not failures[-1].usable
    assert max(event.retry_seconds for event in failures) > 5
    assert all(event.retry_seconds <= 30 for event in failures)
    source.broken = False
    await clock.advance(31)
    assert (await keeper.get()).access_key_id == f"AKID{source.asked}"
    assert keeper.healthy
    while not isinstance(events[-1], CredentialsLoaded):  # noqa: ASYNC110 - its thread tells it
        await asyncio.sleep(0.0005)


class Skewed:
    """Answers as AWS does when the date of a signature is more than five minutes off."""

    def __init__(self, clock: VirtualClock, server: FaultServer, ahead_seconds: float) -> None:
        self.clock = clock
        self.server = server
        self.ahead_seconds = ahead_seconds

    def __call__(self, request: Request) -> str:
        theirs = self.clock.now() + self.ahead_seconds
        self.server.date = formatdate(theirs, usegmt=True)
        near = {amz_date(theirs + offset) for offset in range(-300, 301)}
        return "ok" if request.headers["x-amz-date"] in near else "skewed"


@pytest.mark.parametrize("ahead", [1200.0, -1200.0])
async def test_c2_twenty_minutes_of_skew_are_corrected_once(
    clock: VirtualClock, ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    corrected: list[ClockCorrected] = []
    async with FaultServer() as server:
        server.script = Skewed(clock, server, ahead)
        async with HttpBackend(
            region="us-east-1",
            endpoint_url=server.url,
            credentials=Keys("A", "B"),
            clock=clock,
        ) as backend:
            backend.hooks.on(ClockCorrected, corrected.append)
            for number in range(5):
                await backend.execute(SendMessage(server.queue, f"{number}"))
            assert len(server.ledger.requests) == 6
    [event] = corrected
    assert abs(event.skew_seconds - ahead) < 2
    assert "clock" in caplog.text


async def test_c2_fifty_calls_at_once_are_all_corrected(clock: VirtualClock) -> None:
    async with FaultServer() as server:
        skewed = Skewed(clock, server, 1200.0)
        late: list[Request] = []

        def script(request: Request) -> str:
            play = skewed(request)
            if play == "skewed":
                late.append(request)
            return play

        server.script = script
        async with (
            HttpBackend(
                region="us-east-1",
                endpoint_url=server.url,
                credentials=Keys("A", "B"),
                clock=clock,
                max_connections=50,
            ) as backend,
            asyncio.TaskGroup() as calls,
        ):
            for number in range(50):
                calls.create_task(backend.execute(SendMessage(server.queue, f"{number}")))
        assert len(late) > 1  # they were under way when the first was corrected
        assert server.ledger.stored.total() == 50


@pytest.mark.parametrize("date", ["", "yesterday", "now"])
async def test_c2_skew_that_can_not_be_corrected_is_its_own_error(
    clock: VirtualClock, date: str
) -> None:
    async with FaultServer(lambda request: "skewed") as server:
        server.date = formatdate(clock.now(), usegmt=True) if date == "now" else date
        async with HttpBackend(
            region="us-east-1",
            endpoint_url=server.url,
            credentials=Keys("A", "B"),
            clock=clock,
        ) as backend:
            with pytest.raises(ClockSkewError, match="Signature expired") as caught:
                await backend.execute(SendMessage(server.queue, "m"))
            assert isinstance(caught.value, RefusedConfigError)
            assert caught.value.code != "ExpiredToken"
        assert len(server.ledger.requests) == 1


@pytest.mark.usefixtures("aws_files")
@pytest.mark.parametrize("where", ["argument", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL", "file"])
async def test_c3_the_endpoint_wins_and_the_queue_url_is_opaque(
    where: str,
    aws_files,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
    async with FaultServer() as server:
        if where == "file":
            (aws_files / "config").write_text(f"[default]\nendpoint_url = {server.url}\n")
        elif where != "argument":
            monkeypatch.setenv(where, server.url)
        endpoint_url = server.url if where == "argument" else None
        async with HttpBackend(endpoint_url=endpoint_url, credentials=Keys("A", "B")) as backend:
            await backend.execute(SendMessage(queue, "m"))
        [request] = server.ledger.requests
        assert request.body["QueueUrl"] == queue
        assert request.headers["host"] == server.url.removeprefix("http://")
        assert "/eu-west-1/sqs/" in request.headers["authorization"]  # nothing else told a region


@pytest.mark.usefixtures("aws_files")
@pytest.mark.parametrize(
    ("queue_url", "region"),
    [
        ("https://queue.amazonaws.com/123456789012/q", "us-east-1"),
        ("https://eu-west-1.queue.amazonaws.com/123456789012/q", "eu-west-1"),
        ("https://cn-north-1.queue.amazonaws.com.cn/123456789012/q", "cn-north-1"),
    ],
)
def test_c3_legacy_queue_urls_give_the_right_region(queue_url: str, region: str) -> None:
    from pumphouse.http.endpoint import region_hint

    configuration = Configuration(region=None, endpoint_url=None, profile=None)
    endpoint, fixed = configuration.endpoint("sqs", region_hint(queue_url))
    assert endpoint.region == region
    assert region in endpoint.origin.host
    assert not fixed
