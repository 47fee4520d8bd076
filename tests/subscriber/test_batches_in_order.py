"""Batches of a FIFO queue: what stands behind a failure of its group is neither run past it, nor
deleted before it, nor charged for it."""

from __future__ import annotations

from typing import Any

import pytest

from pumphouse import Account, Ack, App, Message, Reject, Retry, VirtualClock
from pumphouse.protocol.operations import DeleteQueue
from support.service import deleted, make_queue, send


def dead(account: Account) -> list[str]:
    return [sent.body for sent in account.sent("dead.fifo")]


@pytest.mark.parametrize("how", ["outcomes", "raises", "retries all"])
async def test_only_what_fails_by_itself_is_charged(how: str) -> None:
    app = App()

    @app.subscriber("q.fifo", batch=10, max_attempts=3, dead_letter="dead.fifo", retry=1)
    async def handle(bodies: list[str], messages: list[Message]) -> Any:
        assert all(message.attempt == 1 for message in messages if message.text != "A1")
        if "A1" not in bodies:
            return None
        if how == "raises":
            raise ValueError("A1")
        if how == "retries all":
            return Retry()
        return [Retry() if body == "A1" else Ack() for body in bodies]

    async with app.in_process() as account:
        for body in ("A1", "A2", "A3"):
            await account.send("q.fifo", body, group_id="A")
        await account.settle()
        runs = [call.payload for call in handle.calls]
        assert dead(account) == ["A1"]
    assert runs == ["A1", "A2", "A3"] * 3 + ["A2", "A3"]


async def test_a_head_that_is_put_off_charges_nobody() -> None:
    app = App()
    puts_off = 0

    @app.subscriber("q.fifo", batch=10, max_attempts=2, dead_letter="dead.fifo")
    async def handle(bodies: list[str]) -> Any:
        nonlocal puts_off
        puts_off += 1
        head = Retry(after=5, counts=False) if puts_off < 6 else Ack()
        return [head if body == "A1" else Ack() for body in bodies]

    async with app.in_process() as account:
        for body in ("A1", "A2"):
            await account.send("q.fifo", body, group_id="A")
        await account.settle()
        assert (dead(account), deleted(account)) == ([], ["A1", "A2"])


@pytest.mark.parametrize("policy", ["retry", "reject", "drop"])
@pytest.mark.parametrize("bad", ["not json", "\udcff"])
async def test_nothing_runs_behind_a_head_that_can_not_be_decoded(policy: Any, bad: str) -> None:
    app = App()
    body: Any = b"\xff\xfe" if bad != "not json" else bad.encode()

    @app.subscriber(
        "q.fifo",
        batch=10,
        max_attempts=3,
        dead_letter="dead.fifo",
        retry=1,
        undecodable=policy,
    )
    async def handle(orders: list[dict[str, int]]) -> None:
        gone = dead(account) if policy != "drop" else ["dropped"]
        at.append((orders[0]["n"], len(gone)))

    at: list[tuple[int, int]] = []
    async with app.in_process() as account:
        await account.send("q.fifo", body, group_id="A")
        await account.send("q.fifo", {"n": 2}, group_id="A")
        await account.send("q.fifo", {"n": 3}, group_id="A")
        await account.send("q.fifo", {"n": 9}, group_id="B")
        await account.settle()
        runs = [call.payload["n"] for call in handle.calls]
        assert len(dead(account)) == (policy != "drop")
    assert sorted(runs) == [2, 3, 9]
    assert runs.index(2) < runs.index(3)
    assert all(gone == 1 for n, gone in at if n != 9)  # the head was out of the way


async def test_nothing_is_deleted_behind_a_rejected_head_before_that_is_carried(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    dead_url = await make_queue(account, "dead.fifo")
    app = App()
    runs: list[list[str]] = []

    @app.subscriber("q.fifo", batch=10, max_attempts=9, dead_letter="dead.fifo")
    async def handle(bodies: list[str]) -> Any:
        runs.append(bodies)
        return [Ack() if body == "A3" else Reject("no") for body in bodies]

    async with app.running(account):
        await account.execute(DeleteQueue(dead_url))
        for body in ("A1", "A2", "A3"):
            await send(account, url, body, group="A")
        await clock.advance(30)
        assert deleted(account) == []
        assert len(runs) > 1
        assert all(bodies == ["A1", "A2", "A3"] for bodies in runs)
        await clock.advance(40)
        await make_queue(account, "dead.fifo")
        await clock.advance(600)
        assert deleted(account) == ["A1", "A2", "A3"]
    assert dead(account) == ["A1", "A2"]


async def test_a_spent_head_holds_its_batch_until_it_is_carried(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    dead_url = await make_queue(account, "dead.fifo")
    app = App()
    runs: list[list[str]] = []

    @app.subscriber("q.fifo", batch=10, max_attempts=2, dead_letter="dead.fifo", retry=1)
    async def handle(bodies: list[str]) -> Any:
        runs.append(bodies)
        return [Retry() if body == "A1" else Ack() for body in bodies]

    async with app.running(account):
        await account.execute(DeleteQueue(dead_url))
        for body in ("A1", "A2"):
            await send(account, url, body, group="A")
        await clock.advance(70)
        assert runs == [["A1", "A2"]] * 2  # from then on it is only to be carried
        await make_queue(account, "dead.fifo")
        await clock.advance(600)
        assert deleted(account) == ["A1", "A2"]
        (letter,) = account.sent("dead.fifo")
        assert (letter.attributes or {})["pumphouse.attempts"].string_value == "2"
    assert runs[2:] == [["A2"]]
