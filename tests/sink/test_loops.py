"""A sink belongs to one event loop, and says so in another; it moves on when that one is over."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from pumphouse.account import Account
from pumphouse.clock import RealClock
from pumphouse.errors import CrossThreadError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import CreateQueue
from pumphouse.sink import Sink


@pytest.fixture
def here() -> Account:
    account = Account(clock=RealClock())
    asyncio.run(account.execute(CreateQueue("q")))
    return account


def test_another_loop_is_refused_and_the_first_goes_on(here: Account) -> None:
    sink = Sink("q", here, batch_linger=60)

    async def first() -> Receipt:
        waiting = asyncio.create_task(sink.send("first"))
        await asyncio.sleep(0)
        with pytest.raises(CrossThreadError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, sink.send("second"))
        with pytest.raises(CrossThreadError):
            await asyncio.to_thread(asyncio.run, sink.aclose())
        await sink.aclose()
        return await waiting

    assert asyncio.run(first()).message_id
    assert [sent.body for sent in here.sent("q")] == ["first"]


def test_when_its_loop_is_over_a_sink_goes_on_in_the_next(here: Account) -> None:
    sink = Sink("q", here, batch_linger=0.001)

    async def left_behind() -> None:
        """A message that lingers when the loop ends, and is withdrawn with its caller."""
        task = asyncio.create_task(sink.send("withdrawn"))
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(left_behind())
    for n in range(2):
        assert asyncio.run(sink.send(str(n))).message_id

    async def many() -> None:
        await asyncio.gather(*(sink.send(f"many {n}") for n in range(30)))
        await sink.aclose()

    asyncio.run(many())
    assert len(here.sent("q")) == 32


def test_what_a_closed_loop_left_behind_does_not_hold_the_next_one_up(here: Account) -> None:
    sink = Sink("q", here, batch_linger=60)
    loop = asyncio.new_event_loop()
    left = loop.create_task(sink.send("left behind"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()  # as it is, with a message that waits and a task that nobody ended
    assert sink.stats["waiting"] == 1

    async def after() -> None:
        sending = asyncio.create_task(sink.send("after"))
        await asyncio.sleep(0)
        await sink.aclose()
        assert (await sending).message_id

    asyncio.run(after())
    assert [sent.body for sent in here.sent("q")] == ["after"]
    assert not left.done()
    left._log_destroy_pending = False  # type: ignore[attr-defined]
    left.get_coro().close()  # type: ignore[union-attr]


async def test_sinks_made_and_closed_in_a_row_leave_nothing_behind(account: Account) -> None:
    await account.execute(CreateQueue("q"))
    before = asyncio.all_tasks()
    sinks: list[weakref.ref[Sink]] = []
    for n in range(50):
        async with Sink("q", account, clock=RealClock(), batch_linger=60) as sink:
            task = asyncio.create_task(sink.send(str(n)))
            await asyncio.sleep(0)
        await task
        sinks.append(weakref.ref(sink))
    del sink, task
    assert asyncio.all_tasks() == before
    gc.collect()
    assert not any(ref() for ref in sinks)
