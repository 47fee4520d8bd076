"""Row B11: a redrive that is killed at any moment and started again."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.queue_tools import redrive
from support.dead_letters import Mortal, contents, passing, put, queues, until_killed

_LEASE_OVER = 130  # and within the five minutes in which SQS knows a deduplication id


def _by_group(messages: list[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        group = message.attributes["MessageGroupId"]
        assert message.message_attributes["of"].string_value == group
        found[group].append(message.body[:6].strip("_"))
    return found


async def test_b11_a_thousand_large_fifo_messages_killed_half_way_and_started_again(
    clock: VirtualClock,
) -> None:
    account = Account(clock=clock, ledger_room=0)
    await queues(account, "q.fifo", dead="dead.fifo")
    expected: dict[str, list[str]] = defaultdict(list)
    filling = "x" * 200_000
    for number in range(1_000):
        group = f"g{number % 20}"
        expected[group].append(str(number))
        await put(account, "dead.fifo", f"{number:_<6}{filling}", group, of=group)
    mortal = Mortal(account, 700, carried_out=True)
    assert await until_killed(clock, mortal, redrive(mortal, "dead.fifo", task=False))
    moved = account.queue("q.fifo").visible
    assert 300 <= moved <= 700, "it was killed half-way"
    await clock.advance(_LEASE_OVER)
    result = await passing(clock, redrive(account, "dead.fifo", task=False))
    assert result.ok
    assert not await contents(account, "dead.fifo")
    assert _by_group(await contents(account, "q.fifo")) == expected


@pytest.mark.parametrize("carried_out", [False, True])
async def test_b11_killed_at_every_request_a_fifo_queue_has_each_message_once_and_in_order(
    clock: VirtualClock, carried_out: bool
) -> None:
    points = 0
    for requests in range(1, 200):
        account = Account(clock=clock, ledger_room=0)
        await queues(account, "q.fifo", dead="dead.fifo")
        expected: dict[str, list[str]] = defaultdict(list)
        for number in range(30):
            group = f"g{number % 3}"
            expected[group].append(str(number))
            await put(account, "dead.fifo", f"{number:_<6}", group, of=group)
        mortal = Mortal(account, requests, carried_out=carried_out)
        killed = await until_killed(clock, mortal, redrive(mortal, "dead.fifo", task=False))
        await clock.advance(_LEASE_OVER)
        await passing(clock, redrive(account, "dead.fifo", task=False))
        assert not await contents(account, "dead.fifo")
        assert _by_group(await contents(account, "q.fifo")) == expected
        if not killed:
            break
        points += 1
    assert 30 < points < 190


@pytest.mark.parametrize("carried_out", [False, True])
async def test_b11_killed_at_every_request_a_standard_queue_loses_nothing(
    clock: VirtualClock, carried_out: bool
) -> None:
    points = 0
    for requests in range(1, 200):
        account = Account(clock=clock, ledger_room=0)
        await queues(account, "q", dead="dead")
        for number in range(30):
            await put(account, "dead", str(number))
        mortal = Mortal(account, requests, carried_out=carried_out)
        killed = await until_killed(clock, mortal, redrive(mortal, "dead", task=False))
        await clock.advance(_LEASE_OVER)
        await passing(clock, redrive(account, "dead", task=False))
        assert not await contents(account, "dead")
        found = Counter(message.body for message in await contents(account, "q"))
        assert sorted(found, key=int) == [str(number) for number in range(30)]
        assert max(found.values()) <= 2, "what was on its way is doubled at most once"
        if not killed:
            break
        points += 1
    assert 10 < points < 190
