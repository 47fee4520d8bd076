"""Whatever ends a request, its loop, its backend or a fault of its own: callers know the truth, no
place is lost, and the sink goes on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backend import nothing_leaves
from pumphouse.clock import RealClock, VirtualClock
from pumphouse.errors import ClosedError, NetworkError, OutcomeUnknownError, PumphouseError
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    GetQueueUrl,
    SendMessageBatch,
)
from pumphouse.sink import Sink
from support.sending import bodies, outcomes

from .conftest import MakeSink


class Odd:
    """An account, where a send does what it is told to do first."""

    def __init__(self, account: Account, first: Any, times: int = 1) -> None:
        self.account = account
        self.first = first
        self.times = times

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, SendMessageBatch) and self.times:
            self.times -= 1
            await self.first()
        return await self.account.execute(operation)

    async def aclose(self) -> None:
        pass


class OwnError(NetworkError):
    """Can't be copied as exceptions are copied."""

    def __init__(self, *, host: str) -> None:
        super().__init__(f"no {host}")
        self.host = host


async def _uncopyable() -> None:
    raise OwnError(host="there")


async def _cancelled() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


async def _cancelled_before_it_left() -> None:
    with nothing_leaves():
        await _cancelled()


@pytest.mark.parametrize("linger", [0, 30])
def test_a_time_out_in_one_loop_leaves_the_sink_to_the_next(linger: float) -> None:
    account = Account(clock=RealClock())
    asyncio.run(account.execute(CreateQueue("q")))
    sink = Sink("q", account, batch_linger=linger)
    account.faults.delay(SendMessageBatch, 5, times=None)

    async def many() -> None:
        async with asyncio.timeout(0.02):
            await asyncio.gather(*(sink.send(str(n), tenant=str(n)) for n in range(95)))

    for _ in range(2):
        with pytest.raises(TimeoutError):
            asyncio.run(many())

    async def after() -> str:
        sending = asyncio.create_task(sink.send("y"))
        await asyncio.sleep(0)
        await sink.aclose()
        return (await sending).message_id

    account.faults.clear()
    assert asyncio.run(after())
    assert sink.stats["waiting"] == 0
    assert bodies(account, "q")[-1] == "y"


def test_a_loop_that_ends_begins_nothing_new() -> None:
    """Its last requests are cancelled and make room, while those who wait are about to go, too."""
    account = Account(clock=RealClock())
    asyncio.run(account.execute(CreateQueue("q")))
    sink = Sink("q", account, batch_linger=0, batch_max_inflight=1, batch_max_entries=1)
    account.faults.delay(SendMessageBatch, 5, times=None)

    async def left() -> None:
        for n in range(20):
            asyncio.get_running_loop().create_task(sink.send(str(n)))
        await asyncio.sleep(0.01)

    asyncio.run(left())
    assert sink.stats["requests"] == 1
    assert sink.stats["unknown"] == 1
    assert sink.stats["withdrawn"] == 19


async def test_a_backend_that_is_cancelled_by_itself_is_no_end_of_the_sink(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(backend=Odd(account, _cancelled), batch_max_inflight=1)
    [first] = await outcomes(clock, [sink.send("x")])
    assert isinstance(first, OutcomeUnknownError)
    [second] = await outcomes(clock, [sink.send("y")])
    assert second.message_id
    assert bodies(account, "orders") == ["y"]


async def test_what_was_cancelled_before_it_left_is_tried_again(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(backend=Odd(account, _cancelled_before_it_left), batch_max_inflight=1)
    [receipt] = await outcomes(clock, [sink.send("x")])
    assert receipt.message_id
    assert bodies(account, "orders") == ["x"]
    assert sink.stats["retried"] == 1


async def test_an_error_that_cannot_be_copied_is_told_to_everyone(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(backend=Odd(account, _uncopyable, times=99), batch_max_inflight=1)
    got = await outcomes(clock, [sink.send(str(n)) for n in range(3)])
    assert [type(error) for error in got] == [OwnError] * 3
    assert [error.host for error in got] == ["there"] * 3
    assert len({id(error) for error in got}) == 3
    assert sink.stats["waiting"] == 0


async def test_a_request_that_breaks_off_is_unknown_and_leaks_nothing(
    make: MakeSink, account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = make(batch_max_inflight=1, batch_queue_max=10)
    send, broken = sink._batcher._send, 3

    async def breaks(batch: Any, failure: Any) -> Any:
        nonlocal broken
        if broken:
            broken -= 1
            raise LookupError("a fault of our own")
        return await send(batch, failure)

    sink._batcher._send = breaks
    for _ in range(3):
        got = await outcomes(clock, [sink.send(str(n)) for n in range(10)])
        assert all(isinstance(error, OutcomeUnknownError) for error in got)
        assert all(isinstance(error.__cause__, LookupError) for error in got)
    [receipt] = await outcomes(clock, [sink.send("x")])
    assert receipt.message_id
    assert sink.stats["waiting"] == 0
    assert caplog.text.count("broke off") == 3
    await sink.aclose()


@pytest.mark.parametrize("at", range(12))
async def test_tasks_that_are_cancelled_at_any_moment_leave_nobody_waiting(
    make: MakeSink, account: Account, clock: VirtualClock, at: int
) -> None:
    sink = make("orders.fifo", batch_max_inflight=2)
    account.faults.delay(SendMessageBatch, 0.01, times=None)
    mine = asyncio.current_task()
    before = asyncio.all_tasks()
    sends = [asyncio.ensure_future(sink.send(str(n), group_id=str(n % 5))) for n in range(30)]
    callers = set(sends)
    await asyncio.sleep(0)
    clock._elapsed += 0.02
    sink._batcher._tick()
    for _ in range(at):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - callers:
        task.cancel()
    await clock.run_until(lambda: all(task.done() for task in sends))
    got = await asyncio.gather(*sends, return_exceptions=True)
    stored = bodies(account, "orders.fifo")
    assert len(stored) == len(set(stored))
    for n, each in enumerate(got):
        assert isinstance(each, OutcomeUnknownError) or not isinstance(each, BaseException)
        if not isinstance(each, BaseException):
            assert str(n) in stored
    assert sink.stats["waiting"] == 0
    assert asyncio.all_tasks() - callers == {mine}


async def test_closing_during_the_look_up_is_known_to_have_sent_nothing(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.delay(GetQueueUrl, 1000)
    letters: list[Any] = []
    sink = make(on_dead_letter=letters.append)
    sending = asyncio.create_task(sink.send("x"))
    await clock.advance(1)
    closing = asyncio.create_task(sink.aclose(2))
    await clock.run_until(closing.done)
    assert isinstance(sending.exception(), ClosedError)
    assert not letters
    assert sink.stats["unknown"] == 0
    assert sink.stats["withdrawn"] == 1


async def test_closing_before_a_retry_left_tells_of_the_try_before(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.throttle(SendMessageBatch)

    async def waits() -> None:
        if account.ledger.of(SendMessageBatch):
            with nothing_leaves():
                await clock.sleep(1000)

    sink = make(backend=Odd(account, waits, times=9))
    sending = asyncio.create_task(sink.send("x"))
    await clock.advance(10)
    closing = asyncio.create_task(sink.aclose(2))
    await clock.run_until(closing.done)
    error = sending.exception()
    assert isinstance(error, PumphouseError)
    assert type(error).__name__ == "ThrottledError"


def test_a_cancellation_says_whether_anything_left() -> None:
    from pumphouse.backend import left_nothing

    async def inner(marked: bool) -> None:
        with nothing_leaves() if marked else contextlib.nullcontext():
            await asyncio.Event().wait()

    async def main(marked: bool) -> bool:
        async def outer() -> bool:
            try:
                async with asyncio.timeout(60):
                    await inner(marked)
            except asyncio.CancelledError as error:
                return left_nothing(error)
            return False

        task = asyncio.create_task(outer())
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(main(True))
    assert not asyncio.run(main(False))


async def test_messages_do_not_wait_for_the_limit_on_their_size(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.delay("GetQueueAttributes", 60.0, times=1)
    sink = make()
    began = clock.monotonic()
    await outcomes(clock, [sink.send("a")])
    assert clock.monotonic() - began < 1.5
    await outcomes(clock, [sink.send("b")])
    assert len(account.ledger.of(GetQueueAttributes)) == 1
    await clock.advance(30.0)
    await outcomes(clock, [sink.send("c")])
    assert len(account.ledger.of(GetQueueAttributes)) == 2
    assert bodies(account, "orders") == ["a", "b", "c"]
    assert sink.describe()["max_message_bytes"] is not None
