"""Deletes that don't get through: health and one warning tell it, and few requests find out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pumphouse import Account, App, VirtualClock
from pumphouse.protocol.operations import ChangeMessageVisibilityBatch, DeleteMessageBatch
from support.service import EntryFaults, count, deleted, make_queue, send


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    return [text for text in found if words in text]


@pytest.mark.parametrize(
    ("code", "told_after"),
    [("AccessDeniedException", 0), ("InternalError", 5), ("RequestThrottled", 5)],
)
async def test_deletes_that_never_get_through_are_told_once_and_heal(
    account: Account,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
    code: str,
    told_after: int,
) -> None:
    caplog.set_level(logging.WARNING)
    url = await make_queue(account, "q")
    app = App()
    runs: list[str] = []

    @app.subscriber("q")
    async def handle(body: str) -> None:
        runs.append(body)

    account.faults.refuse(DeleteMessageBatch, code, times=None)
    async with app.running(account):
        for number in range(300):
            await send(account, url, str(number))
        await clock.advance(1)
        status = "healthy" if told_after else "unhealthy"
        assert app.health()["q"]["status"] == status
        await clock.advance(30)
        before = count(account, DeleteMessageBatch)
        await clock.advance(600)
        assert count(account, DeleteMessageBatch) - before < 600  # not even one in a second
        health = app.health()["q"]
        assert health["status"] == "unhealthy"
        assert "deletes fail" in str(health["reason"])
        assert code.removesuffix("Exception") in str(health["reason"])
        assert len(warnings(caplog, "deletes fail")) == 1
        account.faults.clear()
        await clock.advance(20)
        assert app.health()["q"]["status"] == "healthy"
        assert app.health()["q"]["reason"] == ""
        await clock.advance(20)
    assert sorted(deleted(account), key=int) == sorted(runs, key=int)
    assert len(runs) == len(set(runs)) == 300


async def test_extensions_that_never_get_through_are_told_as_well(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="60")
    app = App(drain_seconds=1)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(100)

    account.faults.refuse(ChangeMessageVisibilityBatch, "InternalError", times=None)
    async with app.running(account):
        await send(account, url, "x")
        await clock.advance(50)
        assert "visibility changes fail" in str(app.health()["q"]["reason"])
        account.faults.clear()
        await clock.advance(8)
        assert app.health()["q"]["status"] == "healthy"


async def test_what_failed_and_became_needless_is_no_trouble_for_ever(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="60")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(50)

    account.faults.refuse(ChangeMessageVisibilityBatch, "InternalError", times=None)
    async with app.running(account):
        await send(account, url, "x")
        await clock.advance(52)
        assert deleted(account) == ["x"]
        assert app.health()["q"]["status"] == "unhealthy"
        await clock.advance(130)
        assert app.health()["q"]["status"] == "healthy"


async def test_single_entries_that_are_refused_are_no_trouble(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    backend: Any = EntryFaults(account)
    backend.fail("0", DeleteMessageBatch, "ReceiptHandleIsInvalid", sender_fault=True)
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(backend) as running:
        await send(account, url, "0")
        await clock.advance(10)
        assert running.consumers[0].stats.settle_failed == 1
        assert app.health()["q"]["status"] == "healthy"


async def test_a_stop_leaves_nothing_behind_while_deletes_fail(
    account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    url = await make_queue(account, "q")
    app = App(drain_seconds=1)

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    account.faults.refuse(DeleteMessageBatch, "InternalError", times=None)
    async with app.running(account) as running:
        for number in range(150):
            await send(account, url, str(number))
        await clock.advance(60)
        stats, live = running.consumers[0].stats, running.consumers[0].exits.live
        assert len(live) == 150
    assert stats.settle_failed == 150
    assert not live
    assert clock.next_timer is None
