"""Closing gives every caller its true outcome; a cancelled caller harms nobody."""

from __future__ import annotations

import asyncio

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError, OutcomeUnknownError, ThrottledError
from pumphouse.protocol.operations import SendMessageBatch
from support.sending import batches, bodies, outcomes

from .conftest import MakeSink


async def test_closing_sends_what_waits_at_once(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_linger=60)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(13)]
    await clock.settle()
    assert len(batches(account)) == 1
    await sink.aclose()
    assert [len(batch) for batch in batches(account)] == [10, 3]
    assert len(await asyncio.gather(*tasks)) == 13
    assert clock.monotonic() == 0


async def test_at_the_deadline_each_caller_gets_the_truth(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", batch_max_inflight=2, batch_linger=0)
    await outcomes(clock, [sink.send("warm", group_id="w")])
    account.faults.delay(SendMessageBatch, 5)
    stored = asyncio.create_task(sink.send("stored", group_id="a"))
    await clock.settle()
    account.faults.throttle(SendMessageBatch)
    account.faults.delay(SendMessageBatch, 100, answer=True)
    failing = asyncio.create_task(sink.send("failing", group_id="b"))
    await clock.settle()
    silent = asyncio.create_task(sink.send("silent", group_id="c"))
    await clock.settle()
    never = asyncio.create_task(sink.send("never", group_id="c"))
    account.faults.throttle(SendMessageBatch, times=None)
    closing = asyncio.create_task(sink.aclose(8))
    await clock.advance(8)
    await closing
    assert (await stored).sequence_number
    with pytest.raises(OutcomeUnknownError):
        await silent
    with pytest.raises(ClosedError):
        await never
    with pytest.raises(ThrottledError):
        await failing
    assert bodies(account, "orders.fifo").count("stored") == 1
    assert sink.stats["waiting"] == 0
    assert clock.next_timer is None or clock.next_timer > 8  # only the account's own are left


async def test_a_closed_sink_takes_nothing_and_says_so(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    await sink.aclose()
    await sink.aclose()
    with pytest.raises(ClosedError):
        await sink.send("x")
    with pytest.raises(ClosedError):
        async with sink:
            pass
    assert not account.ledger


async def test_those_who_wait_for_room_are_sent_before_it_closes(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_queue_max=5, wait=True)
    account.faults.delay(SendMessageBatch, 1, times=None)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(23)]
    await clock.settle()
    closing = asyncio.create_task(sink.aclose())
    await clock.run_until(closing.done)
    assert len(await asyncio.gather(*tasks)) == 23


async def test_retries_go_on_while_it_closes(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.throttle(SendMessageBatch, times=2)
    sink = make()
    task = asyncio.create_task(sink.send("x"))
    await clock.settle()
    closing = asyncio.create_task(sink.aclose())
    await clock.run_until(closing.done)
    assert (await task).message_id


async def test_cancelling_the_close_still_tells_everyone(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    account.faults.delay(SendMessageBatch, 100, times=None)
    task = asyncio.create_task(sink.send("x"))
    await clock.advance(1)
    closing = asyncio.create_task(sink.aclose())
    await clock.settle()
    closing.cancel()
    await clock.settle()
    assert closing.cancelled()
    with pytest.raises(OutcomeUnknownError):
        await task


async def test_a_caller_that_is_cancelled_before_the_send_takes_its_message_back(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(5)]
    await clock.settle()
    tasks[2].cancel()
    await clock.advance(1)
    assert batches(account) == [["0", "1", "3", "4"]]
    assert sink.stats["withdrawn"] == 1
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_caller_that_is_cancelled_too_late_is_counted(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    account.faults.delay(SendMessageBatch, 1)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(5)]
    await clock.advance(0.5)
    tasks[2].cancel()
    await clock.advance(1)
    assert bodies(account, "orders") == [str(n) for n in range(5)]
    assert sink.stats["stored"] == 5
    assert [task.cancelled() for task in tasks] == [False, False, True, False, False]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_nobody_tries_again_for_a_caller_that_is_gone(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    account.faults.delay(SendMessageBatch, 1)
    account.faults.throttle(SendMessageBatch, times=None)
    first = asyncio.create_task(sink.send("x"))
    await clock.advance(2)
    second = asyncio.create_task(sink.send("y"))
    await clock.advance(0.1)
    second.cancel()
    await clock.advance(60)
    assert sink.stats["requests"] == 2
    await asyncio.gather(first, second, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_request_that_had_not_begun_at_the_deadline_is_never_sent_and_its_callers_know(
    make: MakeSink, account: Account, clock: VirtualClock, seconds: float
) -> None:
    """The deadline comes between the decision to send and the first step of sending."""
    sink = make(batch_linger=5)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(3)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(sink.aclose(seconds))
    await asyncio.sleep(0)  # it has decided to send
    sink._batcher._give_up()
    await clock.settle()
    assert all(isinstance(task.exception(), ClosedError) for task in tasks)
    assert closing.done()
    assert not account.ledger
    assert sink.stats["waiting"] == 0


async def test_when_the_last_that_waits_is_withdrawn_it_is_closed(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.throttle(SendMessageBatch, times=None)
    sink = make(retry=RetryPolicy(base_seconds=50, cap_seconds=50))
    task = asyncio.create_task(sink.send("x"))
    await clock.advance(1)
    closing = asyncio.create_task(sink.aclose(20))
    await clock.settle()
    assert not closing.done()
    task.cancel()
    await clock.settle()
    assert closing.done()
