"""The main job, on the virtual clock: what it reports when all goes well, and when it doesn't."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.demo import service
from pumphouse.demo.report import Journal, Report
from pumphouse.demo.sample import sample
from pumphouse.jsonl import Event, load
from support.troubled import LosingAccount, ReorderingAccount

SAMPLE = sample().events


async def run(events, account: Account, **options: Any) -> Report:
    clock = account.clock
    assert isinstance(clock, VirtualClock)
    task = asyncio.ensure_future(service.run(events, account=account, **options))
    await clock.run_until(task.done)
    return await task


async def test_the_sample_is_handled_in_order_and_one_event_is_dead_lettered(account) -> None:
    report = await run(SAMPLE, account)
    assert report.ok
    assert (report.events, report.sent, report.handled) == (48, 48, 47)
    assert report.dead_lettered == [service.poison_of(SAMPLE)]
    assert report.retried == 48 // service.FAILS_EACH + service.ATTEMPTS - 1
    assert report.at_once > 1


async def test_the_real_input(account, shared_data: Path) -> None:
    events = load(str(shared_data / "github-webhooks.jsonl"), "source").events
    report = await run(events, account)
    assert report.ok
    assert report.handled + len(report.dead_lettered) == report.sent == 329
    assert (report.lost, report.out_of_order, report.groups) == ([], [], 16)


async def test_the_requests_are_the_accounts(account) -> None:
    report = await run(SAMPLE, account)
    told = {
        action: sum(entry.action == action for entry in account.ledger)
        for action in ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch")
    }
    assert {action: report.requests[action] for action in told} == told
    assert report.requests_per_message == sum(report.requests.values()) / 48


async def test_one_event_alone_is_handled(account) -> None:
    report = await run([Event(3, "g", "{}")], account)
    assert report.ok
    assert (report.handled, report.retried, report.dead_lettered) == (1, 0, [])


async def test_equal_events_are_told_apart(account) -> None:
    report = await run([Event(line, "g", "{}") for line in range(1, 30)], account)
    assert report.ok
    assert (report.handled, report.dead_lettered) == (28, [15])


async def test_many_events_of_many_groups(account) -> None:
    events = [Event(line, f"g{line % 300}", f"[{line}]") for line in range(1, 2_501)]
    report = await run(events, account)
    assert report.ok
    assert report.at_once == service.CONCURRENCY


async def test_a_body_of_a_mebibyte_passes(account) -> None:
    report = await run([Event(1, "g", '"' + "x" * (2**20 - 2) + '"'), Event(2, "h", "{}")], account)
    assert report.ok


async def test_a_lost_message_is_seen(clock) -> None:
    report = await run(SAMPLE, LosingAccount(clock=clock))
    assert not report.ok
    assert len(report.lost) == 1
    assert report.handled + len(report.dead_lettered) == 47


async def test_a_broken_order_is_seen(clock) -> None:
    report = await run(SAMPLE, ReorderingAccount(clock=clock))
    assert not report.ok
    assert report.lost == []
    assert len(report.out_of_order) == 1


async def test_an_event_that_is_refused_is_seen_and_holds_up_nobody(account) -> None:
    account.faults.fail_entries(
        "SendMessageBatch", [0], code="InvalidMessageContents", sender_fault=True
    )
    report = await run(SAMPLE, account)
    assert not report.ok
    assert len(report.unconfirmed) == 1
    assert report.sent == report.handled + len(report.dead_lettered) == 47
    assert report.lost == []


async def test_an_answer_that_is_lost_is_no_loss(account) -> None:
    account.faults.lose_answer("SendMessageBatch")
    account.faults.lose_answer("DeleteMessageBatch")
    assert (await run(SAMPLE, account)).ok


async def test_throttling_is_no_loss(account) -> None:
    for action in ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"):
        account.faults.throttle(action, times=3)
    assert (await run(SAMPLE, account, stall_seconds=60)).ok


async def test_progress_is_told_while_it_runs(account) -> None:
    seen: list[int] = []

    def watch(journal: Journal) -> None:
        seen.append(journal.settled)

    await run(SAMPLE, account, watch=watch)
    assert seen == sorted(seen)
    assert seen[-1] == 48


async def test_it_can_be_cancelled(account) -> None:
    task = asyncio.ensure_future(service.run(SAMPLE, account=account))
    await account.clock.advance(0.03)
    assert not task.done()
    task.cancel()
    await account.clock.run_until(task.done)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) == 1
