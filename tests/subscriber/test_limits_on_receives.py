"""SQS's own limit on receives, and delays longer than a lease: only what failed is buried."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from pumphouse import Account, App, Queue, Reject, Retry, VirtualClock
from pumphouse.errors import ConfigError
from pumphouse.protocol.operations import DeleteQueue
from support.service import make_queue, make_redrive, receive, receives, send

OWN = {"VisibilityTimeout": "30"}


async def test_a_low_limit_of_the_queue_s_own_buries_only_what_failed(
    account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    url, dead = await make_redrive(account, "q.fifo", "dead.fifo", 3, **OWN)
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", retry=60)
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "A1" or (body == "A2" and runs.count("A2") == 1):
            raise ValueError(body)

    with caplog.at_level(logging.WARNING):
        async with app.running(account):
            for body in ("A1", "A2", "A3"):
                await send(account, url, body, group="A")
            await clock.advance(1000)
    assert runs == ["A1", "A1", "A1", "A2", "A2", "A3"]
    assert [each.body for each in await receive(account, dead)] == ["A1"]
    assert "gives a message up after 3 receives" in caplog.text


async def test_nor_do_restarts_in_between(account: Account, clock: VirtualClock) -> None:
    url, dead = await make_redrive(account, "q.fifo", "dead.fifo", 3, **OWN)
    runs: list[str] = []

    def make() -> App:
        app = App()

        @app.subscriber("q.fifo", retry=60)
        async def handle(body: str) -> None:
            runs.append(body)
            if body == "A1":
                raise ValueError(body)

        return app

    for body in ("A1", "A2"):
        await send(account, url, body, group="A")
    for seconds in (70, 70, 1000):
        async with make().running(account):
            await clock.advance(seconds)
    assert runs == ["A1"] * 6 + ["A2"]
    assert [each.body for each in await receive(account, dead)] == ["A1"]


async def test_under_the_written_limit_messages_are_given_back_until_receives_run_short(
    account: Account, clock: VirtualClock
) -> None:
    """Nine heads that fail for good, five attempts each, a minute apart, before a good message."""
    url = await make_queue(account, "q.fifo", **OWN)
    dead = await make_queue(account, "dead.fifo")
    app = App()
    runs: Counter[str] = Counter()

    @app.subscriber("q.fifo", retry=60, max_attempts=5, dead_letter="dead.fifo")
    async def handle(body: str) -> None:
        runs[body] += 1
        if body != "good":
            raise ValueError(body)

    bad = [f"bad{number}" for number in range(9)]
    async with app.running(account) as running:
        for body in (*bad, "good"):
            await send(account, url, body, group="A")
        await clock.advance(4000)
        assert running.consumers[0].stats.leases_lost == 0
    assert runs == {**dict.fromkeys(bad, 5), "good": 1}
    assert [each.body for each in await receive(account, dead)] == bad
    assert receives(account)["good"] == 10  # and ten of twenty are left for stops


@pytest.mark.parametrize("outcome", [Reject("no"), Retry(after=60, counts=False)])
async def test_what_can_not_be_carried_or_is_put_off_buries_no_follower(
    account: Account, clock: VirtualClock, outcome: Any
) -> None:
    url = await make_queue(account, "q.fifo", **OWN)
    dead = await make_queue(account, "dead.fifo")
    app = App()
    runs: Counter[str] = Counter()
    is_good = False

    @app.subscriber("q.fifo", max_attempts=3, dead_letter="dead.fifo")
    async def handle(body: str) -> Any:
        runs[body] += 1
        return None if body == "A2" or is_good else outcome

    async with app.running(account) as running:
        await account.execute(DeleteQueue(dead))
        for body in ("A1", "A2"):
            await send(account, url, body, group="A")
        await clock.advance(7200)
        tries = runs["A1"] if isinstance(outcome, Retry) else running.consumers[0].stats.received
        assert tries < 130
        assert runs["A2"] == 0
        assert runs["A1"] == 3 or isinstance(outcome, Retry)
        is_good = True
        await make_queue(account, "dead.fifo")
        await clock.advance(1000)
        assert runs["A2"] == 1
    buried = ["A1"] if isinstance(outcome, Reject) else []
    assert [sent.body for sent in account.sent("dead.fifo")] == buried


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_a_rejection_without_a_dead_letter_queue_is_tried_again_ever_more_slowly(
    account: Account, clock: VirtualClock, name: str
) -> None:
    url = await make_queue(account, name)
    app = App()
    runs: list[float] = []

    @app.subscriber(name, retry=0)
    async def handle(body: str) -> Reject:
        runs.append(clock.monotonic())
        return Reject("no")

    async with app.running(account):
        await send(account, url, "x", group="A" if name != "q" else None)
        await clock.advance(3600)
    assert 5 < len(runs) < 60


@pytest.mark.parametrize(
    "options",
    [
        {"undecodable": "reject"},
        {"on_error": {ValueError: Reject}},
        {"on_error": {OSError: Reject("x")}},
    ],
    ids=str,
)
async def test_rules_that_reject_without_a_dead_letter_queue_are_refused_at_the_start(
    account: Account, options: Any
) -> None:
    await make_queue(account, "q")
    app = App()

    @app.subscriber(Queue("q"), **options)
    async def handle(body: str) -> None: ...

    with pytest.raises(ConfigError, match="no dead-letter queue"):
        async with app.running(account):
            pass
    await make_redrive(account, "own", "dead", 5)
    other = App()

    @other.subscriber("own", **options)
    async def handle_own(body: str) -> None: ...

    async with other.running(account):
        pass
