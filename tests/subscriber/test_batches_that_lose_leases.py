"""Leases that are lost while a handler has its messages: batches of a FIFO queue keep their order,
and what was done here is not run here once more."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal

import pytest

from pumphouse import Account, App, Drop, Queue, Reject, VirtualClock
from pumphouse.protocol.operations import ChangeMessageVisibilityBatch, SendMessage
from support.service import deleted, make_queue, send

Runs = list[tuple[float, list[str]]]


def lose(account: Account, *places: int) -> None:
    """Let the next request for more time find these leases over."""
    account.faults.fail_entries(
        ChangeMessageVisibilityBatch,
        places,
        code="ReceiptHandleIsInvalid",
        sender_fault=True,
        times=1,
    )


async def one_group(account: Account, bodies: list[str]) -> None:
    """`q.fifo` with these messages of one group, and `dead.fifo`."""
    await make_queue(account, "dead.fifo")
    url = await make_queue(account, "q.fifo")
    for body in bodies:
        await send(account, url, body, "A")


@pytest.mark.parametrize("how", ["raises", "retry", "reject", "drop"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_nothing_overtakes_a_message_whose_lease_is_lost(
    account: Account, clock: VirtualClock, place: int, how: str
) -> None:
    bodies = ["m0", "m1", "m2", "m3"]
    await one_group(account, bodies)
    lose(account, place)
    app = App()
    runs: Runs = []

    @app.subscriber(
        Queue("q.fifo", visibility_timeout=20),
        batch=10,
        max_attempts=5,
        dead_letter="dead.fifo",
        retry=0,
    )
    async def handle(batch: list[str]) -> Any:
        runs.append((clock.monotonic(), batch))
        if len(runs) > 1:
            return None
        await clock.sleep(15)
        if how == "raises":
            raise RuntimeError
        bad = {"retry": RuntimeError(), "reject": Reject("no"), "drop": Drop("no")}[how]
        return [bad if body == f"m{place}" else None for body in batch]

    async with app.running(account) as running:
        await clock.advance(300)
        (consumer,) = running.consumers
        assert not consumer.exits.live
    assert runs[0][1] == bodies
    # what is behind it comes again, and only once it is there itself
    again = bodies if how == "raises" else bodies[place:]
    assert [body for _, batch in runs[1:] for body in batch] == again
    assert deleted(account) == bodies
    assert account.sent("dead.fifo") == []


@pytest.mark.parametrize("head", ["retry", "reject"])
async def test_nor_one_that_is_lost_behind_a_failure(
    account: Account, clock: VirtualClock, head: Literal["retry", "reject"]
) -> None:
    """m0 fails and keeps its lease, m1 has lost its own: m2 waits for both."""
    bodies = ["m0", "m1", "m2"]
    await one_group(account, bodies)
    lose(account, 1)
    app = App()
    runs: Runs = []

    @app.subscriber(
        Queue("q.fifo", visibility_timeout=20),
        batch=10,
        max_attempts=5,
        dead_letter="dead.fifo",
        retry=1,
    )
    async def handle(batch: list[str]) -> Any:
        runs.append((clock.monotonic(), batch))
        if len(runs) > 1:
            return None
        await clock.sleep(12)
        bad = Reject("no") if head == "reject" else RuntimeError()
        return [bad, RuntimeError(), None]

    async with app.running(account):
        await clock.advance(300)
    ran = [body for _, batch in runs[1:] for body in batch]
    assert ran == (bodies if head == "retry" else bodies[1:])
    assert deleted(account) == bodies


@pytest.mark.parametrize("ends", ["acks", "rejects"])
async def test_the_lease_of_a_blocked_loop_is_over_before_anybody_says_so(
    account: Account, clock: VirtualClock, ends: str
) -> None:
    """Time that passes while no timer can: what is rejected after the end is not carried away."""
    await one_group(account, ["m0", "m1"])
    app = App()
    runs: Runs = []

    @app.subscriber(
        Queue("q.fifo", visibility_timeout=20), batch=10, max_attempts=5, dead_letter="dead.fifo"
    )
    async def handle(batch: list[str]) -> Any:
        runs.append((clock.monotonic(), batch))
        if len(runs) == 1:
            clock._elapsed += 25
            return [Reject("late"), None] if ends == "rejects" else None
        return None

    async with app.running(account):
        await clock.advance(300)
    ran = [body for _, batch in runs[1:] for body in batch]
    assert ran == ([] if ends == "acks" else ["m0", "m1"])
    assert account.sent("dead.fifo") == []


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
async def test_what_was_done_is_not_run_again_where_it_waits_already(
    account: Account, clock: VirtualClock, queue: str
) -> None:
    """Its lease is lost while it runs, it comes again and waits, and then the first run ends well:
    its delete is confirmed before the second delivery has its turn."""
    url = await make_queue(account, queue)
    fifo = queue == "q.fifo"
    for number, body in enumerate(["m0", "m1"]):
        await account.execute(
            SendMessage(
                url,
                body,
                message_group_id=f"g{number}" if fifo else None,
                message_deduplication_id=body if fifo else None,
            )
        )
    lose(account, 0)
    app = App()
    runs: Runs = []

    @app.subscriber(
        Queue(queue, visibility_timeout=20), batch=1, concurrency=1, on_lease_lost="flag"
    )
    async def handle(bodies: list[str]) -> None:
        runs.append((clock.monotonic(), bodies))
        await clock.sleep(25 if len(runs) == 1 else 1)

    async with app.running(account) as running:
        await clock.advance(300)
        (consumer,) = running.consumers
        assert not consumer.exits.live
        assert not consumer.exits.attempts.records  # and nothing is remembered for ever
    assert [bodies for _, bodies in runs] == [["m0"], ["m1"]]
    assert account.queue(queue).visible == account.queue(queue).in_flight == 0


async def test_a_batch_that_ends_after_it_was_given_back_leaves_nothing_at_work(
    account: Account, clock: VirtualClock
) -> None:
    """A handler that a stop can't end: what came of it counts for nothing."""
    await one_group(account, ["m0", "m1", "m2"])
    app = App(drain_seconds=0)

    @app.subscriber("q.fifo", batch=10, max_attempts=5, dead_letter="dead.fifo")
    async def handle(batch: list[str]) -> Any:
        ends = clock.monotonic() + 40
        while clock.monotonic() < ends:
            with contextlib.suppress(asyncio.CancelledError):
                await clock.sleep(ends - clock.monotonic())
        return [Reject("no"), None, None]

    async with app.running(account) as running:
        await clock.advance(1)
        (consumer,) = running.consumers
        running.request_stop()
        stopped = asyncio.create_task(running.drain())
        await clock.advance(20)
        assert account.queue("q.fifo").visible == 3
        assert len(consumer.exits.at_work) == 3
        await clock.advance(60)
        assert not consumer.exits.at_work
        await stopped
    assert account.queue("q.fifo").visible == 3
    assert account.sent("dead.fifo") == []
