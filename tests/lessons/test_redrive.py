"""Row B11: a redrive that is killed at any moment and started again."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.queue_tools import redrive
from support.dead_letters import Mortal, contents, passing, put, queues, until_killed
from support.serving import serving

AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
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


def test_b11_a_process_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -9` in the middle of the command, and the command again."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    account = Account(clock=VirtualClock())
    with serving(account, clock=account.clock) as served:  # type: ignore[arg-type]
        served.run(queues(account, "q.fifo", dead="dead.fifo"))
        for number in range(80):
            served.run(put(account, "dead.fifo", f"{number:_<6}", f"g{number % 4}"))
        command = [sys.executable, "-m", "pumphouse", "redrive", "dead.fifo", "--no-task"]
        command += ["--endpoint-url", served.url]
        process = subprocess.Popen(
            [*command, "--rate", "40"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until = time.monotonic() + 30
            while account.queue("q.fifo").visible < 15 and time.monotonic() < until:
                time.sleep(0.005)
        finally:
            process.kill()
            process.wait(20)
        moved = account.queue("q.fifo").visible
        assert 15 <= moved < 80
        served.pass_time(_LEASE_OVER)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        found = defaultdict(list)
        for message in served.run(contents(account, "q.fifo")):
            found[message.attributes["MessageGroupId"]].append(int(message.body.strip("_")))
        assert found == {f"g{group}": list(range(group, 80, 4)) for group in range(4)}
        assert not served.run(contents(account, "dead.fifo"))
