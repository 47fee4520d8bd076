"""Lanes and threads by themselves: what is counted, and ways back to more than one event loop."""

from __future__ import annotations

import asyncio
import random
import threading
from functools import partial

import pytest

from pumphouse.clock import RealClock
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.lanes import Lanes
from pumphouse.subscriber.threads import Threads


def delivery(number: int, key: str | None) -> Delivery:
    message = ReceivedMessage(
        message_id=str(number), receipt_handle=f"handle-{number}", md5_of_body="", body="x"
    )
    found = Delivery(message, float(number), 100.0)
    found.key = key
    found.sequence = number
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_may_start_is_what_the_lanes_say(seed: int) -> None:
    rng = random.Random(seed)
    lanes = Lanes()
    waiting: list[Delivery] = []
    running: list[Delivery] = []
    number = 0
    for _ in range(400):
        action = rng.choice(("add", "add", "take", "many", "done", "again", "followers", "cut"))
        if action == "add":
            new = []
            for _ in range(rng.randint(1, 4)):
                number += 1
                new.append(delivery(number, rng.choice((None, "a", "b", "c"))))
            rng.shuffle(new)
            lanes.add(*new)
            waiting += new
        elif action == "take" and lanes.line:
            running.append(lanes.take())
            waiting.remove(running[-1])
        elif action == "many":
            taken = lanes.take_many(rng.randint(1, 5))
            running += taken
            for each in taken:
                waiting.remove(each)
        elif action in ("done", "again") and running:
            one = running.pop(rng.randrange(len(running)))
            if action == "done":
                lanes.done(one)
            else:
                lanes.again(one)
                waiting.append(one)
        elif action == "followers" and running:
            for each in lanes.followers(rng.choice(running)):
                waiting.remove(each)
        elif action == "cut" and waiting:
            one = rng.choice(waiting)
            for each in (one, *lanes.cut(one)):
                waiting.remove(each)
        busy = {each.key for each in running if each.key is not None}
        free = [each for each in waiting if each.key not in busy]
        heads = {each.key for each in free if each.key is not None}
        assert sorted(each.sequence for each in lanes) == sorted(each.sequence for each in waiting)
        assert lanes.available == len(free)
        assert len(lanes.line) == len(heads) + sum(each.key is None for each in free)
    assert sorted(each.sequence for each in lanes.clear()) == sorted(
        each.sequence for each in waiting
    )
    assert not lanes.line
    assert not lanes.available


def test_threads_outlive_the_loop_that_they_were_called_from() -> None:
    """A call that ends after its loop was closed is in nobody's way on the next loop."""
    threads = Threads(2, "test")
    go_on, ended = threading.Event(), threading.Event()

    def late() -> str:
        go_on.wait(10)
        ended.set()
        return "late"

    async def torn_away() -> None:
        # the task is left alone by a loop that ends in the middle of it
        asyncio.get_running_loop().call_later(0.01, asyncio.get_running_loop().stop)
        await threads.to_the_end(late, RealClock())

    loop = asyncio.new_event_loop()
    task = loop.create_task(torn_away())
    loop.run_forever()
    loop.close()
    go_on.set()
    assert ended.wait(10)

    async def next_one() -> object:
        return [(await threads.to_the_end(partial(int, n), RealClock()))[0] for n in range(5)]

    assert asyncio.run(asyncio.wait_for(next_one(), 10)) == [0, 1, 2, 3, 4]
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    threads.close()


async def test_a_call_is_waited_for_however_often_it_is_cancelled() -> None:
    threads = Threads(1, "test")
    go_on = threading.Event()
    task = asyncio.ensure_future(threads.to_the_end(lambda: go_on.wait(10), RealClock()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    result, cancelled = await task
    assert result is True
    assert isinstance(cancelled, asyncio.CancelledError)
    assert not threads.busy
    threads.close()


async def test_many_calls_at_once_all_come_back() -> None:
    threads = Threads(8, "test")

    def double(number: int) -> int:
        if number % 10 == 7:
            raise ValueError(number)
        return 2 * number

    calls = [threads.to_the_end(partial(double, n), RealClock()) for n in range(500)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    for number, each in enumerate(found):
        if number % 10 == 7:
            assert isinstance(each, ValueError)
        else:
            assert each == (2 * number, None)
    threads.close()
