"""`send_many`: one message's fault is its own, and its group's; nothing takes the other results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.envelope import Envelope
from pumphouse.errors import NotSentError, UsageError
from pumphouse.model import Receipt
from pumphouse.sink import Draft, Sink
from pumphouse.sink.chains import in_order
from support.sending import bodies

from .conftest import MakeSink


async def many(clock: VirtualClock, sink: Sink, messages: Any) -> list[Any]:
    sending = asyncio.ensure_future(sink.send_many(messages))
    await clock.run_until(sending.done)
    return await sending


BAD: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    "no body": ({}, "", {"group_id": "g"}),
    "an attribute": ({}, "x", {"group_id": "g", "attributes": {"": "x"}}),
    "too large": ({"max_message_bytes": 10}, "x" * 11, {"group_id": "g"}),
    "a deduplication id": ({}, "x", {"group_id": "g", "deduplication_id": "a b"}),
    "tenant and source": ({}, "", {"tenant": "t", "source": "s"}),
    "an envelope": (
        {},
        Envelope(id="1", source_id="s", tenant_id="t", body=b"x"),
        {"delay": 5},
    ),
    "a function": ({"group_id": lambda message: f"of-{message.original[0]}"}, ["a", object()], {}),
}


@pytest.mark.parametrize("what", BAD)
async def test_one_that_can_not_be_sent_ends_its_group(
    make: MakeSink, account: Account, clock: VirtualClock, what: str
) -> None:
    options, body, given = BAD[what]
    sink = make("orders.fifo", **options)
    if what == "a function":
        before, after = (Draft(["a", n]) for n in range(2))
    elif "group_id" in given:
        before, after = Draft("debit", group_id="g"), Draft("credit", group_id="g")
    else:
        before, after = (Draft(b, tenant="t", source="s") for b in ("debit", "credit"))
    other = Draft(["b"] if what == "a function" else "other", group_id="other")
    got = await many(clock, sink, [before, Draft(body, **given), after, other])
    assert [type(each) for each in got][::2] == [Receipt, NotSentError]
    assert isinstance(got[1], UsageError)
    assert got[2].__cause__ is got[1]
    assert isinstance(got[3], Receipt)
    assert len(bodies(account, "orders.fifo")) == 2


async def test_a_group_that_can_not_be_told_ends_no_other(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    drafts = [Draft("1", group_id="g"), Draft("2", group_id="a b"), Draft("3", group_id="g")]
    got = await many(clock, make("orders.fifo"), drafts)
    assert [type(each) for each in got] == [Receipt, UsageError, Receipt]


async def test_an_exception_of_another_kind_is_its_messages_own(
    make: MakeSink, account: Account, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make()
    compose = sink._composer.compose

    def breaks(body: Any, **options: Any) -> Any:
        if body == "b":
            raise LookupError("a fault of our own")
        return compose(body, **options)

    monkeypatch.setattr(sink._composer, "compose", breaks)
    got = await many(clock, sink, ["a", "b", "c"])
    assert [type(each) for each in got] == [Receipt, NotSentError, Receipt]
    assert isinstance(got[1].__cause__, LookupError)
    assert bodies(account, "orders") == ["a", "c"]


async def test_what_the_source_raises_comes_out_as_it_is_when_the_others_are_stored(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    error = RuntimeError("the source broke")

    def source() -> Iterator[Draft]:
        yield Draft("a", group_id="g")
        yield Draft("b", group_id="g")
        yield Draft("c", group_id="h")
        raise error

    with pytest.raises(RuntimeError) as caught:
        await many(clock, make("orders.fifo"), source())
    assert caught.value is error
    assert sorted(bodies(account, "orders.fifo")) == ["a", "b", "c"]


async def test_what_a_job_or_its_listener_raises_comes_out_when_the_others_are_done() -> None:
    ended: list[int] = []

    async def run(job: int) -> int:
        await asyncio.sleep(0)
        if job == 1:
            raise LookupError(job)
        ended.append(job)
        return job

    with pytest.raises(LookupError):
        await in_order(range(4), lambda job: None, run)
    assert ended == [0, 2, 3]

    def done(job: int, outcome: object) -> None:
        told.append((job, type(outcome)))
        if job == 0:
            raise OSError(28, "No space left on device")

    told: list[tuple[int, type]] = []
    ended.clear()
    with pytest.raises(OSError, match="No space"):
        await in_order([0, 2, 3], lambda job: "one chain", run, done=done)
    assert ended == [0, 2, 3]
    assert told == [(0, int), (2, int), (3, int)]


async def test_no_more_is_read_after_an_exception_and_its_chain_is_not_run() -> None:
    read: list[int] = []
    told: list[tuple[int, type]] = []

    def source() -> Iterator[int]:
        for n in range(1000):
            read.append(n)
            yield n

    async def run(job: int) -> int:
        raise LookupError(job)

    def done(job: int, outcome: object) -> None:
        told.append((job, type(outcome)))

    with pytest.raises(LookupError):
        await in_order(source(), lambda job: "one", run, window=3, done=done)
    assert len(read) <= 6
    assert told[:2] == [(1, NotSentError), (2, NotSentError)]


async def test_cancelling_cancels_what_runs() -> None:
    async def run(job: int) -> int:
        await asyncio.Event().wait()
        return job

    before = asyncio.all_tasks()
    task = asyncio.create_task(in_order(range(5), lambda job: None, run))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
