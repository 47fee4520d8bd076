"""`Idempotency`: one run for each key, and a lock that lives and dies with the lease."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pumphouse import Ack, App, Drop, Header, Message, Queue, Reject, Retry, UsageError
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.content import header_attributes
from pumphouse.errors import ConfigError, StoreError
from pumphouse.middleware import (
    Begun,
    DuplicateSkipped,
    Idempotency,
    IdempotencyStore,
    KeyBusy,
    MemoryStore,
    SqliteStore,
    TimeLimit,
)
from pumphouse.protocol.operations import ReceiveMessage
from pumphouse.subscriber.events import Handled
from pumphouse.subscriber.outcomes import Settle
from subscriber.processes import Result, run_processes
from support.service import deleted, make_queue, receives, send

LEASE = 10
QUEUE = Queue("q", visibility_timeout=LEASE, create_if_missing=True)
DEAD = Queue("dead", create_if_missing=True)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    if request.param == "memory":
        yield MemoryStore()
        return
    async with SqliteStore(tmp_path / "keys.db") as store:
        yield store


class Recorded:
    """A store that keeps what it was asked, and fails or waits where it is told to."""

    def __init__(self, store: IdempotencyStore, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.asked: list[tuple[float, str, float | None]] = []
        self.fail: Callable[[str], Exception | None] = lambda _: None
        self.outside = getattr(store, "outside", False)

    def _ask(self, what: str, until: float | None = None) -> None:
        at = self.clock.monotonic()
        self.asked.append((at, what, None if until is None else until - self.clock.now() + at))
        if (error := self.fail(what)) is not None:
            raise error

    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        self._ask("begin", until)
        return await self.store.begin(key, owner, until=until, now=now)

    async def extend(self, key: str, owner: str, *, until: float, now: float) -> bool:
        self._ask("extend", until)
        return await self.store.extend(key, owner, until=until, now=now)

    async def complete(self, key: str, owner: str, *, until: float, now: float) -> None:
        self._ask("complete", until)
        await self.store.complete(key, owner, until=until, now=now)

    async def abandon(self, key: str, owner: str) -> None:
        self._ask("abandon")
        await self.store.abandon(key, owner)

    @property
    def words(self) -> list[str]:
        return [what for _, what, _ in self.asked]


def events_of(app: App) -> list[Any]:
    found: list[Any] = []
    for kind in (Handled, DuplicateSkipped, KeyBusy):
        app.hooks.on(kind, found.append)
    return found


def by_order(message: Message) -> str:
    return str(message.headers["order"])


# --- one run for each key -----------------------------------------------------------------------


async def test_a_second_message_with_the_key_is_acknowledged_unrun(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store, key=Header("order"))])

    @app.subscriber(QUEUE, publish="replies")
    async def handle(text: str) -> str:
        return text.upper()

    events = events_of(app)
    async with app.in_process() as account:
        for text, order in (("a", "1"), ("again", "1"), ("b", "2")):
            receipt = await account.send("q", text, headers={"order": order})
            await account.settle()
            if text == "again":
                again = receipt.message_id
    assert [call.payload for call in handle.calls] == ["a", "b"]
    assert [sent.body for sent in account.sent("replies")] == ["A", "B"]
    assert sorted(deleted(account)) == ["a", "again", "b"]
    skipped = [each for each in events if isinstance(each, DuplicateSkipped)]
    assert skipped == [DuplicateSkipped("q", again, "q:1")]


async def test_a_message_whose_delete_was_lost_is_not_run_again(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    """Also not by another process, which knows nothing of it but the key."""
    runs: list[str] = []
    url = await make_queue(account, "q", VisibilityTimeout=str(LEASE))

    def consumer() -> App:
        app = App(middleware=[Idempotency(store)])

        @app.subscriber(Queue("q"))
        async def handle(text: str) -> None:
            runs.append(text)

        return app

    account.faults.refuse("DeleteMessageBatch", "AccessDenied", times=1_000)
    await send(account, url, "x")
    async with consumer().running(account):
        await clock.advance(2)
    assert runs == ["x"]
    assert not deleted(account)
    account.faults.clear()
    async with consumer().running(account):
        await clock.advance(3 * LEASE)
    assert runs == ["x"]
    assert deleted(account) == ["x"]


@pytest.mark.parametrize("said", [Retry(after=1), Drop("no"), Reject("no"), LookupError("no")])
async def test_only_what_was_acknowledged_is_done(store: IdempotencyStore, said: Any) -> None:
    app = App(middleware=[Idempotency(store, key=by_order)])
    says: list[Any] = [said]

    @app.subscriber(QUEUE, max_attempts=3, dead_letter=DEAD, retry=1)
    async def handle(text: str) -> Any:
        what = says.pop() if says else Ack()
        if isinstance(what, Exception):
            raise what
        return what

    async with app.in_process() as account:
        await account.send("q", "first", headers={"order": "1"})
        await account.settle()
        await account.send("q", "second", headers={"order": "1"})
        await account.settle()
    again = isinstance(said, Retry | LookupError)
    assert [call.payload for call in handle.calls] == ["first", "first" if again else "second"]


async def test_an_acknowledgement_that_is_raised_is_one(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store, key=by_order)])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None:
        raise Settle(Ack())

    async with app.in_process() as account:
        for text in "ab":
            await account.send("q", text, headers={"order": "1"})
            await account.settle()
    assert [call.payload for call in handle.calls] == ["a"]


async def test_keys_are_the_queues_own_unless_a_scope_joins_them(store: IdempotencyStore) -> None:
    app = App()
    for name, scope in (("a", None), ("b", None), ("c", "both"), ("d", "both")):

        @app.subscriber(name, middleware=[Idempotency(store, key=by_order, scope=scope)])
        async def handle(text: str, message: Message) -> None:
            seen.append(message.queue)

    seen: list[str] = []
    async with app.in_process() as account:
        for name in "abcd":
            await account.send(name, "x", headers={"order": "1"})
            await account.settle()
    assert seen == ["a", "b", "c"]


async def test_a_key_is_forgotten_after_its_time(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store, key=by_order, remember=timedelta(hours=1))])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None: ...

    async with app.in_process() as account:
        for wait in (0, 3_500, 200):
            await account.clock.advance(wait)
            await account.send("q", str(wait), headers={"order": "1"})
            await account.settle()
    assert [call.payload for call in handle.calls] == ["0", "200"]


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (Header("order"), "its header 'order' is None"),
        (lambda message: None, "lambda> gave is None"),
        (lambda message: 5, "lambda> gave is 5"),
    ],
)
async def test_a_message_without_its_key_is_undecodable(key: Any, named: str) -> None:
    app = App(middleware=[Idempotency(MemoryStore(), key=key)])

    @app.subscriber(QUEUE, undecodable="drop")
    async def handle(text: str) -> None: ...

    events = events_of(app)
    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    assert not handle.calls
    (handled,) = events
    assert handled.outcome == "drop"
    assert named in handled.reason


async def test_keys_may_be_of_any_length_and_kind(store: IdempotencyStore) -> None:
    keys = ["x" * 5_000, "x" * 5_001, "a\nb", "a\x00b", "\ud800", "é" * 300, b"\xff", b"\xfe"]
    app = App(middleware=[Idempotency(store, key=lambda message: keys[int(message.text)])])
    binary = App(middleware=[Idempotency(store, key=Header("k"))])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None: ...

    @binary.subscriber(QUEUE)
    async def handle_binary(text: str) -> None: ...

    async with app.in_process() as account:
        for _ in range(2):
            for number in range(6):
                await account.send("q", str(number))
                await account.settle()
    assert [call.payload for call in handle.calls] == [str(number) for number in range(6)]
    async with binary.in_process() as account:
        for _ in range(2):
            for number in (6, 7):
                await account.send("q", str(number), headers={"k": keys[number]})
                await account.settle()
    assert [call.payload for call in handle_binary.calls] == ["6", "7"]


async def test_a_deduplication_id_is_a_key_of_fifo_queues() -> None:
    app = App(middleware=[Idempotency(MemoryStore(), key="deduplication_id")])

    @app.subscriber("q.fifo")
    async def handle(text: str) -> None: ...

    async with app.in_process() as account:
        for wait in (0, 400):  # SQS itself forgets a deduplication id after five minutes
            await account.clock.advance(wait)
            await account.send("q.fifo", str(wait), group_id="g", deduplication_id="d")
            await account.settle()
    assert [call.payload for call in handle.calls] == ["0"]

    standard = App(middleware=[Idempotency(MemoryStore(), key="deduplication_id")])

    @standard.subscriber("q")
    async def other(text: str) -> None: ...

    with pytest.raises(UsageError, match=r"'q'.*no deduplication id"):
        async with standard.in_process():
            pass


async def key_that_waits(message: Message) -> str:
    return message.text


class KeyThatWaits:
    async def __call__(self, message: Message) -> str:
        return message.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "messageid"}, "key is"),
        ({"key": str}, "key is"),
        ({"key": Header()}, "has a name"),
        ({"key": key_that_waits}, "key_that_waits is async"),
        ({"key": KeyThatWaits()}, "KeyThatWaits is async"),
        ({"remember": 0}, "remember is seconds"),
        ({"remember": "day"}, "remember is seconds"),
        ({"store": {}}, "no idempotency store: it has no begin"),
        ({"store": MemoryStore}, "no idempotency store"),
    ],
)
def test_what_can_not_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Idempotency(**{"store": MemoryStore(), **options})


# --- the lock and the lease ---------------------------------------------------------------------


async def test_the_lock_ends_when_the_lease_ends_and_moves_with_it(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    recorded = Recorded(store, clock)
    app = App(middleware=[Idempotency(recorded)])
    leases: list[tuple[float, float]] = []

    @app.subscriber(QUEUE)
    async def handle(text: str, message: Message) -> None:
        for _ in range(5):
            leases.append((clock.monotonic(), message.deadline - clock.now() + clock.monotonic()))
            await clock.sleep(LEASE / 2)

    await send(account, await make_queue(account, "q"), "x")
    async with app.running(account):
        await clock.advance(40)
    begun, *extended, completed = recorded.asked
    assert begun[1] == "begin"
    assert begun[2] == pytest.approx(LEASE, abs=0.1)
    assert completed[1] == "complete"
    assert len(extended) >= 4
    for at, what, until in extended:
        assert what == "extend"
        # the lock is where the lease is, from the moment in which SQS has said so
        lease = max(end for when, end in leases if when <= at + 0.1)
        assert until == pytest.approx(max(lease, at + LEASE), abs=0.2)


async def test_a_killed_process_leaves_its_key_to_the_redelivery_at_that_moment(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    """Nobody frees the lock of a process that is gone: it ends as the lease ends."""
    url = await make_queue(account, "q", VisibilityTimeout=str(LEASE))
    await send(account, url, "x")
    at: list[float] = []
    death = asyncio.Event()
    burial = asyncio.Event()

    class Mortal:
        """What a process asks for: after its death nothing is done, and no answer comes."""

        def __init__(self, target: Any) -> None:
            self.target = target
            self.clock = clock
            self.outside = getattr(target, "outside", False)

        def __getattr__(self, name: str) -> Any:
            call = getattr(self.target, name)
            if not inspect.iscoroutinefunction(call):
                return call

            async def ask(*args: Any, **kwargs: Any) -> Any:
                if death.is_set():
                    await burial.wait()
                    raise ConnectionError("gone")
                return await call(*args, **kwargs)

            return ask

    def consumer(store: Any, *, ends: bool) -> App:
        app = App(middleware=[Idempotency(store)], drain_seconds=0)

        @app.subscriber(Queue("q", prefetch=0), concurrency=1)
        async def handle(text: str) -> None:
            at.append(clock.monotonic())
            if not ends:
                await burial.wait()

        return app

    mortal: Any = Mortal(account)
    keys = Mortal(store)

    async def process() -> None:
        async with consumer(keys, ends=False).running(mortal):
            await burial.wait()

    running = asyncio.create_task(process())
    await clock.advance(1)
    assert len(at) == 1
    keys.outside = False
    death.set()
    second = consumer(store, ends=True)
    events = events_of(second)
    async with second.running(account):
        await clock.advance(2 * LEASE)
    assert len(at) == 2
    assert at[1] - at[0] == pytest.approx(LEASE, abs=0.05)
    assert [type(event) for event in events] == [Handled]  # and none that the key is busy
    assert deleted(account) == ["x"]
    burial.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_time_of_day_that_is_set_moves_no_lock(store: IdempotencyStore) -> None:
    """A machine that was suspended wakes up hours later; what it locks from then on is right."""

    class Set(VirtualClock):
        ahead = 0.0

        def now(self) -> float:
            return super().now() + self.ahead

    clock = Set()
    recorded = Recorded(store, clock)
    app = App(middleware=[Idempotency(recorded)])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None:
        await clock.sleep(LEASE if text == "long" else 0)

    async with app.in_process(clock) as account:
        clock.ahead = 7_200.0
        await account.send("q", "x")
        await account.settle()
        await account.send("q", "long")
        await clock.advance(1)
        clock.ahead = -7_200.0  # in the middle of it: right again with the next extension
        await account.settle()
    locks = [(at, until) for at, what, until in recorded.asked if what in ("begin", "extend")]
    assert len(locks) >= 3
    for at, until in locks:
        assert until == pytest.approx(at + LEASE, abs=0.2)


async def test_a_lost_lease_frees_the_key(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store)])
    ends: list[str] = []

    @app.subscriber(QUEUE)
    async def handle(text: str, message: Message) -> None:
        if not ends:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
        ends.append("done")

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.clock.advance(1)
        account.faults.refuse("ChangeMessageVisibilityBatch", "ReceiptHandleIsInvalid", times=1)
        await account.settle()
    assert ends == ["cancelled", "done"]


async def test_one_that_goes_on_without_its_lease_has_no_lock_either(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    """With "flag" the handler may end; somebody else can start meanwhile, and its key is done."""
    recorded = Recorded(store, clock)
    flags: list[bool] = []
    url = await make_queue(account, "q", VisibilityTimeout=str(LEASE))

    def consumer() -> App:
        app = App(middleware=[Idempotency(recorded)])

        @app.subscriber(Queue("q"), on_lease_lost="flag")
        async def handle(text: str, message: Message) -> None:
            await clock.sleep(2 * LEASE)
            flags.append(message.lease_lost)

        return app

    await send(account, url, "x")
    async with consumer().running(account):
        await clock.advance(1)
        account.faults.refuse("ChangeMessageVisibilityBatch", "ReceiptHandleIsInvalid", times=1)
        await clock.advance(LEASE / 2)
        assert recorded.words == ["begin", "abandon"]
        await clock.advance(3 * LEASE)
    assert flags[0] is True
    assert "complete" in recorded.words
    assert (await store.begin("q:other", "me", until=1.0, now=0.0)).state == "new"


async def test_a_stop_frees_the_keys_of_what_it_gives_back(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    runs: list[str] = []
    url = await make_queue(account, "q", VisibilityTimeout="600")

    def consumer(name: str) -> App:
        app = App(name, middleware=[Idempotency(store)], drain_seconds=1)

        @app.subscriber(Queue("q"))
        async def handle(text: str) -> None:
            runs.append(name)
            if name == "first":
                await asyncio.get_running_loop().create_future()

        return app

    await send(account, url, "x")
    async with consumer("first").running(account):
        await clock.advance(5)
    events: list[Any] = []
    second = consumer("second")
    second.hooks.on(KeyBusy, events.append)
    async with second.running(account):
        await clock.advance(5)
    assert runs == ["first", "second"]
    assert not events
    assert deleted(account) == ["x"]


async def test_a_thread_that_outlives_the_stop_keeps_no_key(
    store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message is given back while it runs, so is its key."""
    account = Account()  # threads run on the real clock
    url = await make_queue(account, "q", VisibilityTimeout="600")
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    app = App(middleware=[Idempotency(store)], drain_seconds=0)

    @app.subscriber(Queue("q", wait_time_seconds=0))
    def handle(text: str, message: Message) -> None:
        loop.call_soon_threadsafe(started.set)
        while not message.lease_lost:
            time.sleep(0.005)
        time.sleep(0.3)

    message_id = await send(account, url, "x")
    monkeypatch.setattr("pumphouse.subscriber.stopping.CANCEL_GRACE_SECONDS", 0.1)
    async with asyncio.timeout(20):
        async with app.running(account):
            await started.wait()
        assert app.abandoned_threads == 1
        await asyncio.sleep(0.1)
        now = time.time()
        begun = await store.begin(f"q:{message_id}", "me", until=now + 600, now=now)
        assert begun.state == "new"
        while app.abandoned_threads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)


# --- a key that is busy -------------------------------------------------------------------------


def two_consumers(
    store: IdempotencyStore, work_seconds: float
) -> tuple[App, App, list[tuple[str, str]]]:
    """Two apps whose queues carry orders of one scope; each runs what it gets."""
    runs: list[tuple[str, str]] = []

    def consumer(name: str) -> App:
        app = App(name, middleware=[Idempotency(store, key=by_order, scope="orders")])

        @app.subscriber(Queue(f"q-{name}", visibility_timeout=LEASE), retry=60)
        async def handle(text: str) -> None:
            runs.append((name, text))
            await app.clock.sleep(work_seconds)
            if text == "fails":
                raise LookupError(text)

        return app

    return consumer("a"), consumer("b"), runs


async def on_both(
    account: Account, clock: VirtualClock, first: App, second: App, *, seconds: float, text: str
) -> None:
    urls = [await make_queue(account, name) for name in ("q-a", "q-b")]
    attributes = header_attributes({"order": "1"})
    async with first.running(account), second.running(account):
        await send(account, urls[0], text, message_attributes=attributes)
        await clock.advance(1)
        await send(account, urls[1], "second", message_attributes=attributes)
        await clock.advance(seconds)


async def test_a_busy_key_puts_the_message_off_until_that_lease_ends(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    first, second, runs = two_consumers(store, work_seconds=3)
    events = events_of(second)
    await on_both(account, clock, first, second, seconds=3 * LEASE, text="first")
    assert runs == [("a", "first")]  # the other was a duplicate, once that was known
    busy, handled, skipped, acked = events
    assert isinstance(busy, KeyBusy)
    assert busy.retry_in_seconds == pytest.approx(LEASE - 1, abs=0.1)
    assert handled.outcome == "retry"
    assert isinstance(skipped, DuplicateSkipped)
    assert (acked.outcome, acked.attempt) == ("ack", 1)  # it was put off, and that is no attempt


async def test_a_busy_key_whose_handler_fails_is_taken_over(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    first, second, runs = two_consumers(store, work_seconds=3)
    await on_both(account, clock, first, second, seconds=100, text="fails")
    assert runs == [("a", "fails"), ("b", "second")]  # and what had failed is a duplicate then


async def test_waits_grow_while_somebody_is_long_at_work(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    """Each time costs a receive, and SQS moves a message that was received too often."""
    first, second, runs = two_consumers(store, work_seconds=3_600)
    events = events_of(second)
    await on_both(account, clock, first, second, seconds=3_650 + 1_000, text="first")
    busy = [each.retry_in_seconds for each in events if isinstance(each, KeyBusy)]
    assert runs == [("a", "first")]
    assert len(busy) <= 16
    assert max(busy) <= 900
    assert receives(account)["second"] == len(busy) + 1


async def test_two_deliveries_of_one_message_run_once(
    store: IdempotencyStore, account: Account, clock: VirtualClock
) -> None:
    """SQS hands a message out twice at times: at the same moment, to two consumers."""
    url = await make_queue(account, "q", VisibilityTimeout=str(LEASE))
    runs: Counter[str] = Counter()
    handed_out: list[Any] = []

    class First:
        clock = account.clock

        async def execute(self, operation: Any) -> Any:
            answer = await account.execute(operation)
            if isinstance(operation, ReceiveMessage):
                handed_out.extend(answer.messages)
            return answer

        async def aclose(self) -> None: ...

    class Second(First):
        async def execute(self, operation: Any) -> Any:
            if isinstance(operation, ReceiveMessage) and handed_out:
                messages, handed_out[:] = handed_out[:10], handed_out[10:]
                return ReceiveMessage.result(messages)
            return await account.execute(operation)

    def consumer() -> App:
        app = App(middleware=[Idempotency(store)])

        @app.subscriber(Queue("q", wait_time_seconds=1), concurrency=20)
        async def handle(text: str) -> None:
            runs[text] += 1
            await clock.sleep(3)

        return app

    apps = [consumer(), consumer()]
    events = events_of(apps[1])
    for number in range(20):
        await send(account, url, str(number))
    async with apps[0].running(First()), apps[1].running(Second()):
        await clock.advance(3 * LEASE)
    assert runs == {str(number): 1 for number in range(20)}
    assert any(isinstance(event, KeyBusy) for event in events)
    assert sorted(deleted(account)) == sorted(runs)


# --- a store that fails -------------------------------------------------------------------------


async def test_without_the_store_nothing_is_run(store: IdempotencyStore) -> None:
    clock = VirtualClock()
    recorded = Recorded(store, clock)
    failures = iter([StoreError("down"), StoreError("down")])
    recorded.fail = lambda what: next(failures, None) if what == "begin" else None
    app = App(middleware=[Idempotency(recorded)])

    @app.subscriber(QUEUE, retry=1)
    async def handle(text: str, message: Message) -> None:
        assert message.attempt == 3

    events = events_of(app)
    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await account.settle()
    assert len(handle.calls) == 1
    assert [each.reason for each in events] == ["StoreError: down", "StoreError: down", ""]
    # a lock may have been taken although nobody heard of it, so it is freed
    assert recorded.words == ["begin", "abandon", "begin", "abandon", "begin", "complete"]


async def test_a_handler_ends_when_its_lock_can_not_follow_its_lease(
    store: IdempotencyStore,
) -> None:
    """Nothing runs on without its lock: somebody else could take it."""
    clock = VirtualClock()
    recorded = Recorded(store, clock)
    down = True
    recorded.fail = lambda what: StoreError("down") if down and what == "extend" else None
    app = App(middleware=[Idempotency(recorded)])
    ended: list[float] = []

    @app.subscriber(QUEUE, retry=1)
    async def handle(text: str, message: Message) -> None:
        if message.attempt == 2:
            return
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(clock.monotonic())

    events = events_of(app)
    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await account.settle()
    # when the lock ends that was taken with the first lease, and not later
    assert ended == [pytest.approx(LEASE, abs=0.2)]
    assert "LeaseLostError: the lock on the idempotency key is lost" in events[0].reason
    assert "StoreError: down" in events[0].reason
    assert events[1].outcome == "ack"


@pytest.mark.parametrize("deaf_to", ["begin", "extend"])
async def test_a_store_that_gives_no_answer_holds_nobody_up(deaf_to: str) -> None:
    clock = VirtualClock()

    class Deaf(MemoryStore):
        deaf = True

        async def begin(self, *args: Any, **times: Any) -> Begun:
            if self.deaf and deaf_to == "begin":
                await asyncio.get_running_loop().create_future()
            return await super().begin(*args, **times)

        async def extend(self, *args: Any, **times: Any) -> bool:
            if self.deaf and deaf_to == "extend":
                await asyncio.get_running_loop().create_future()
            return await super().extend(*args, **times)

    store = Deaf()
    app = App(middleware=[Idempotency(store)])
    ended: list[float] = []

    @app.subscriber(QUEUE, retry=1)
    async def handle(text: str, message: Message) -> None:
        try:
            await clock.sleep(3 * LEASE)
        finally:
            ended.append(clock.monotonic())
            store.deaf = False

    events = events_of(app)
    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await clock.advance(9.9)
        assert not ended
        await clock.advance(0.2)  # the end of the lock, and of the time that a question has
        store.deaf = False
        await account.settle()
    assert "the idempotency store gave no answer in" in events[0].reason
    assert events[-1].outcome == "ack"
    if deaf_to == "extend":
        assert ended[0] == pytest.approx(LEASE, abs=0.1)


async def test_a_store_that_is_slow_to_follow_is_tried_again(store: IdempotencyStore) -> None:
    clock = VirtualClock()
    recorded = Recorded(store, clock)
    failures = iter([StoreError("busy")] * 3)
    recorded.fail = lambda what: next(failures, None) if what == "extend" else None
    app = App(middleware=[Idempotency(recorded)])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None:
        await clock.sleep(3 * LEASE)

    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await account.settle()
    assert len(handle.calls) == 1
    assert recorded.words.count("extend") >= 6


async def test_somebody_who_took_the_lock_ends_the_handler(store: IdempotencyStore) -> None:
    clock = VirtualClock()
    app = App(middleware=[Idempotency(store)])

    @app.subscriber(QUEUE, on_error={Exception: Drop})
    async def handle(text: str, message: Message) -> None:
        # as if this process had stood still for longer than its lock
        await store.begin(f"q:{message.message_id}", "x", until=clock.now() + 99, now=4e9)
        await asyncio.get_running_loop().create_future()

    events = events_of(app)
    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await account.settle()
    assert "someone else has it" in events[0].reason


async def test_what_was_handled_is_not_run_again_because_it_can_not_be_noted(
    store: IdempotencyStore, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    recorded = Recorded(store, clock)
    recorded.fail = lambda what: StoreError("full") if what == "complete" else None
    app = App(middleware=[Idempotency(recorded)])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None: ...

    async with app.in_process(clock) as account:
        await account.send("q", "x")
        await account.settle()
    assert len(handle.calls) == 1
    assert "was handled, and the store can't note its key" in caplog.text


# --- batches ------------------------------------------------------------------------------------


async def test_of_a_batch_only_new_keys_are_run(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store, key=by_order)])

    @app.subscriber(QUEUE, batch=10, batch_window=1)
    async def handle(texts: list[str]) -> list[Any]:
        return [
            Retry(after=1) if text == "later" and len(handle.calls) == 0 else None for text in texts
        ]

    async with app.in_process() as account:
        await account.send("q", "old", headers={"order": "0"})
        await account.settle()
        for text, order in (("a", "1"), ("duplicate", "0"), ("a again", "1"), ("b", "2")):
            await account.send("q", text, headers={"order": order})
        await account.settle()
    assert sorted(call.payload for call in handle.calls) in (
        ["a", "b", "old"],
        ["a again", "b", "old"],
    )
    assert sorted(deleted(account)) == ["a", "a again", "b", "duplicate", "old"]


async def test_behind_a_failure_of_its_key_a_message_of_the_batch_comes_again(
    store: IdempotencyStore,
) -> None:
    app = App(middleware=[Idempotency(store, key=by_order)])
    passes: list[list[str]] = []

    @app.subscriber(QUEUE, batch=10, batch_window=1, retry=30)
    async def handle(texts: list[str], messages: list[Message]) -> list[Any]:
        passes.append(sorted(texts))
        return [Retry(after=30) if len(passes) == 1 and text == "1" else None for text in texts]

    async with app.in_process() as account:
        for order in ("1", "2"):
            await account.send("q", order, headers={"order": order})
        await account.send("q", "1", headers={"order": "1"})
        await account.settle()
    assert passes[0] == ["1", "2"]
    assert passes[1] == ["1"]
    assert len(passes) == 2
    assert sorted(deleted(account)) == ["1", "1", "2"]


async def test_an_error_of_a_batch_frees_all_its_keys(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store)])

    @app.subscriber(QUEUE, batch=10, batch_window=1, retry=1)
    async def handle(texts: list[str]) -> None:
        if len(tries) == 0:
            tries.append(len(texts))
            raise LookupError("once")
        tries.append(len(texts))

    tries: list[int] = []
    async with app.in_process() as account:
        for number in range(5):
            await account.send("q", str(number))
        await account.settle()
    assert tries == [5, 5]


async def test_a_failing_question_hurts_only_its_own_message_of_a_batch() -> None:
    clock = VirtualClock()
    recorded = Recorded(MemoryStore(), clock)
    failures = iter([None, StoreError("once")])
    recorded.fail = lambda what: next(failures, None) if what == "begin" else None
    app = App(middleware=[Idempotency(recorded)])

    @app.subscriber(QUEUE, batch=10, batch_window=1, retry=5)
    async def handle(texts: list[str]) -> None:
        sizes.append(len(texts))

    sizes: list[int] = []
    async with app.in_process(clock) as account:
        for number in range(3):
            await account.send("q", str(number))
        await account.settle()
    assert sizes == [2, 1]


ORDERED = Queue("q.fifo", visibility_timeout=LEASE, create_if_missing=True)


@pytest.mark.parametrize("trouble", ["busy", "no answer", "undecodable"])
async def test_behind_one_that_is_put_off_nothing_of_its_group_is_run(
    store: IdempotencyStore, trouble: str
) -> None:
    clock = VirtualClock()
    recorded = Recorded(store, clock)
    app = App(middleware=[Idempotency(recorded, key=lambda message: keys[message.text])])
    keys: dict[str, Any] = {text: text for text in ("A1", "A2", "A3", "B1")}
    passes: list[list[str]] = []

    @app.subscriber(ORDERED, batch=10, batch_window=1, retry=5, undecodable="retry")
    async def handle(texts: list[str]) -> None:
        passes.append(texts)

    async def begun(text: str, seconds: float) -> str:
        now = clock.now()
        return (await store.begin(f"q.fifo:{text}", "other", until=now + seconds, now=now)).state

    async with app.in_process(clock) as account:
        if trouble == "busy":
            assert await begun("A1", 4) == "new"
        elif trouble == "no answer":
            failures = iter([StoreError("once")])
            recorded.fail = lambda what: next(failures, None) if what == "begin" else None
        else:
            keys["A1"] = None
            clock.call_later(3, lambda: keys.update(A1="A1"))
        for text in ("A1", "A2", "B1", "A3"):
            await account.send("q.fifo", text, group_id=text[0])
        await clock.advance(2)
        assert passes == [["B1"]]
        for text in ("A2", "A3"):  # nobody is kept from their keys meanwhile
            assert await begun(text, 1) == "new"
            await store.abandon(f"q.fifo:{text}", "other")
        await account.settle()
    assert [text for each in passes for text in each] == ["B1", "A1", "A2", "A3"]
    assert sorted(deleted(account)) == ["A1", "A2", "A3", "B1"]


async def test_groups_of_a_standard_queue_have_no_order(store: IdempotencyStore) -> None:
    app = App(middleware=[Idempotency(store, key=lambda message: message.text)])
    passes: list[list[str]] = []

    @app.subscriber(QUEUE, batch=10, batch_window=1)
    async def handle(texts: list[str]) -> None:
        passes.append(sorted(texts))

    async with app.in_process() as account:
        now = app.clock.now()
        await store.begin("q:1", "other", until=now + 5, now=now)
        for text in ("1", "2", "3"):
            await account.send("q", text, group_id="tenant")
        await account.settle()
    assert passes == [["2", "3"], ["1"]]


async def test_what_is_cancelled_while_keys_are_given_back_is_not_run() -> None:
    clock = VirtualClock()

    class Slow(Recorded):
        seconds = 2

        async def abandon(self, key: str, owner: str) -> None:
            await clock.sleep(self.seconds)
            await super().abandon(key, owner)

    store = Slow(MemoryStore(), clock)
    app = App(middleware=[TimeLimit(1), Idempotency(store, key=lambda message: message.text)])
    passes: list[list[str]] = []

    @app.subscriber(ORDERED, batch=10, batch_window=1, retry=1)
    async def handle(texts: list[str]) -> None:
        passes.append(texts)

    async with app.in_process(clock) as account:
        now = clock.now()
        await store.begin("q.fifo:A1", "other", until=now + 20, now=now)
        for text in ("A1", "A2", "B1"):
            await account.send("q.fifo", text, group_id=text[0])
        await clock.advance(10)
        assert "abandon" in store.words
        assert passes == []
        store.seconds = 0
        await account.settle()
    assert sorted(text for each in passes for text in each) == ["A1", "A2", "B1"]
    assert sorted(deleted(account)) == ["A1", "A2", "B1"]


async def test_what_stands_behind_a_duplicate_waits_for_what_becomes_of_it(
    store: IdempotencyStore,
) -> None:
    """It shares the fate of the first of its key, which here is of another group, and fails."""
    app = App(middleware=[Idempotency(store, key=lambda message: message.text[-1])])
    runs: list[str] = []

    @app.subscriber(ORDERED, batch=10, batch_window=1)
    async def handle(texts: list[str]) -> list[Any]:
        runs.extend(texts)
        return [
            Retry(after=2) if runs.count(text) == 1 and text == "A1" else None for text in texts
        ]

    async with app.in_process() as account:
        for text in ("A1", "B1", "B2", "C3", "C4"):
            await account.send("q.fifo", text, group_id=text[0])
        await account.settle()
    assert runs[:3] == ["A1", "C3", "C4"]
    assert sorted(deleted(account)) == ["A1", "B1", "B2", "C3", "C4"]
    ran = [text for text in runs if text in ("A1", "B1")]
    assert len(ran) == 2  # and of the two that share a key, one was done
    assert runs.index("B2") > runs.index(ran[-1])


async def test_behind_a_message_that_is_done_the_others_of_its_group_are_run(
    store: IdempotencyStore,
) -> None:
    app = App(middleware=[Idempotency(store, key=lambda message: message.text[-1])])
    passes: list[list[str]] = []

    @app.subscriber(ORDERED, batch=10, batch_window=1)
    async def handle(texts: list[str]) -> None:
        passes.append(texts)

    async with app.in_process() as account:
        await account.send("q.fifo", "A1", group_id="A")
        await account.settle()
        for text in ("A-1", "A2", "A-2", "A3"):
            await account.send("q.fifo", text, group_id="A")
        await account.settle()
    assert passes == [["A1"], ["A2", "A3"]]


# --- stores -------------------------------------------------------------------------------------


async def test_what_a_store_answers(store: IdempotencyStore) -> None:
    assert await store.begin("k", "a", until=110.0, now=100.0) == Begun("new")
    assert await store.begin("k", "b", until=119.0, now=109.9) == Begun("busy", 110.0)
    assert await store.extend("k", "b", until=200.0, now=109.0) is False
    assert await store.extend("k", "a", until=115.0, now=109.0) is True
    assert await store.begin("k", "b", until=125.0, now=114.9) == Begun("busy", 115.0)
    assert await store.begin("k", "b", until=125.0, now=115.0) == Begun("new")  # that very moment
    assert await store.extend("k", "a", until=130.0, now=115.0) is False
    await store.abandon("k", "a")  # not its own any more
    assert await store.begin("k", "c", until=130.0, now=116.0) == Begun("busy", 125.0)
    await store.abandon("k", "b")
    assert await store.begin("k", "c", until=130.0, now=116.0) == Begun("new")
    assert await store.begin("k", "c", until=131.0, now=116.0) == Begun("new")  # asked once more
    await store.complete("k", "c", until=500.0, now=117.0)
    assert await store.begin("k", "d", until=210.0, now=200.0) == Begun("done")
    assert await store.extend("k", "c", until=210.0, now=200.0) is False
    await store.abandon("k", "c")
    assert await store.begin("k", "d", until=210.0, now=499.9) == Begun("done")
    assert await store.begin("k", "d", until=510.0, now=500.0) == Begun("new")
    # whoever has it: what was done is done
    await store.complete("k", "someone", until=900.0, now=505.0)
    assert await store.begin("k", "e", until=610.0, now=600.0) == Begun("done")


async def test_a_store_that_is_cleared_knows_no_key(store: Any) -> None:
    app = App("test", middleware=[Idempotency(store, key=Header("order"))])

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    for runs in (1, 0, 1):
        async with app.in_process() as account:
            await account.send("q", "a", headers={"order": "1"})
            await account.settle()
            assert len(handle.calls) == runs
        if not runs:
            await store.begin("locked", "somebody", until=9e9, now=0.0)
            await store.clear()
            assert (await store.begin("locked", "me", until=9e9, now=0.0)).state == "new"


async def test_a_memory_store_is_bounded_and_forgets_the_oldest_first() -> None:
    store = MemoryStore(max_keys=10)
    for number in range(100):
        await store.begin(str(number), "a", until=10.0, now=0.0)
        await store.complete(str(number), "a", until=1_000.0, now=0.0)
    assert len(store) == 10
    assert (await store.begin("99", "b", until=10.0, now=1.0)).state == "done"
    assert (await store.begin("89", "b", until=10.0, now=1.0)).state == "new"
    await store.complete("0", "a", until=3_000.0, now=2_000.0)
    assert len(store) <= 2  # those whose time is over are gone
    for number in range(5_000):  # locks that nobody frees
        await store.begin(f"lock {number}", "a", until=float(number), now=float(number))
    assert len(store) < 2_500
    with pytest.raises(UsageError, match="max_keys"):
        MemoryStore(0)


async def test_a_file_is_shared_and_outlives_its_stores(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    async with SqliteStore(path) as one, SqliteStore(path) as other:
        assert await one.begin("k", "a", until=10.0, now=0.0) == Begun("new")
        assert await other.begin("k", "b", until=10.0, now=1.0) == Begun("busy", 10.0)
        await one.complete("k", "a", until=100.0, now=1.0)
        assert await other.begin("k", "b", until=20.0, now=2.0) == Begun("done")
    async with SqliteStore(path) as later:
        assert await later.begin("k", "c", until=20.0, now=3.0) == Begun("done")
        await later.aclose()
        assert await later.begin("k", "c", until=20.0, now=3.0) == Begun("done")  # opens again


async def test_keys_whose_time_is_over_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    async with SqliteStore(path) as store:
        await asyncio.gather(
            *(store.complete(str(n), "a", until=100.0, now=0.0) for n in range(3_000))
        )
        for step in range(5):
            await store.begin("another", "a", until=1e6, now=200.0 + 61 * step)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM keys").fetchone() == (1,)
    connection.close()


async def test_the_thread_and_the_file_are_let_go_when_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.middleware.sqlite_store.IDLE_SECONDS", 0.05)
    store = SqliteStore(tmp_path / "keys.db")
    for number in range(3):
        await store.begin(str(number), "a", until=10.0, now=0.0)
        async with asyncio.timeout(5):
            thread = store._thread
            while thread is not None and thread.is_alive():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert not (tmp_path / "keys.db-wal").exists()


def _other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id)")
    connection.close()


def _newer_version(path: Path) -> None:
    SqliteStore(path).check()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def _no_database(path: Path) -> None:
    path.write_text("this is a diary and no database at all, and it is long enough\n" * 100)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_other_database, "database of something else"),
        (_newer_version, "version 99"),
        (_no_database, "can't be opened"),
        (_folder, "can't be opened"),
    ],
)
async def test_a_file_that_is_something_else_is_refused_at_the_start(
    tmp_path: Path, make: Any, said: str
) -> None:
    path = tmp_path / "keys.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    app = App(middleware=[Idempotency(SqliteStore(path))])

    @app.subscriber(QUEUE)
    async def handle(text: str) -> None: ...

    with pytest.raises(ConfigError, match=said):
        async with app.in_process():
            pass
    if path.is_file():
        assert path.read_bytes() == before


@pytest.mark.parametrize("path", ["", ":memory:", 5, None])
def test_a_sqlite_store_takes_a_path(path: Any) -> None:
    with pytest.raises(UsageError):
        SqliteStore(path)


async def test_a_file_that_is_locked_for_too_long_is_an_error_and_heals(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    async with SqliteStore(path, busy_seconds=0.05) as store:
        await store.begin("a", "a", until=10.0, now=0.0)
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.begin("b", "a", until=10.0, now=0.0)
        blocker.execute("COMMIT")
        blocker.close()
        assert await store.begin("b", "a", until=10.0, now=0.0) == Begun("new")


async def test_a_file_that_is_taken_away_is_made_anew_for_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.db"
    async with SqliteStore(path) as store, SqliteStore(path) as other:
        for each in (store, other):
            await each.begin("a", "a", until=10.0, now=0.0)
        for file in tmp_path.iterdir():
            file.unlink()
        assert await other.begin("b", "other", until=10.0, now=0.0) == Begun("new")
        assert await store.begin("b", "a", until=10.0, now=0.0) == Begun("busy", 10.0)
        assert not await store.extend("a", "a", until=20.0, now=0.0), "it is forgotten"
    assert caplog.text.count("was taken away") == 2


async def test_many_questions_share_a_transaction(tmp_path: Path) -> None:
    """One flush to the disk for what came in while another one was under way."""
    path = tmp_path / "keys.db"
    async with SqliteStore(path) as store:
        commits = 0
        answer = store._answer

        def counted(connection: sqlite3.Connection, together: Any) -> Any:
            nonlocal commits
            commits += 1
            return answer(connection, together)

        store._answer = counted  # type: ignore[method-assign]
        found = await asyncio.gather(
            *(store.begin(str(n), "a", until=10.0, now=0.0) for n in range(500))
        )
    assert found == [Begun("new")] * 500
    assert commits <= 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_store_works_in_a_fork(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys, warnings
from pumphouse.middleware import SqliteStore
warnings.simplefilter("ignore")
store = SqliteStore(sys.argv[1])
async def begin(key):
    return (await store.begin(key, "a", until=10.0, now=0.0)).state
assert asyncio.run(begin("parent")) == "new"
child = os.fork()
if child == 0:
    assert asyncio.run(begin("child")) == "new"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
async def look():
    return (await store.begin("child", "b", until=10.0, now=0.0)).state
assert asyncio.run(look()) == "busy"
print("ok")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "keys.db")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "ok\n", done.stderr


# --- processes ----------------------------------------------------------------------------------

SERVICE = """
import asyncio, os, random, time
from contextlib import asynccontextmanager
from pumphouse import App, Queue
from pumphouse.middleware import Idempotency, SqliteStore

store = SqliteStore("keys.db")
app = App(
    "worker",
    drain_seconds=1,
    middleware=[Idempotency(store, key=lambda message: message.text)],
)
log = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def write(what, body):
    os.write(log, f"{{what}} {{body}} {{os.getpid()}} {{time.monotonic()}}\\n".encode())

@app.lifespan
@asynccontextmanager
async def up(app):
    open(f"up-{{os.getpid()}}", "w").close()
    yield
    await store.aclose()

@app.subscriber(
    Queue("work", wait_time_seconds=1, visibility_timeout={visibility}), concurrency=20, retry=1
)
async def handle(body: str) -> None:
    write("start", body)
    drawn = random.random()
    if drawn < 0.02:
        raise RuntimeError("now and then")
    if drawn < 0.3:
        await asyncio.sleep(random.uniform(0, 0.3))
    if drawn > 0.995:
        await asyncio.sleep(8)  # longer than its lease
    write("done", body)
"""


def _twice(keys: int) -> list[str]:
    """Every key twice: half of them close together, half of them far apart."""
    near = [str(key) for key in range(keys // 2) for _ in range(2)]
    far = [str(key) for key in range(keys // 2, keys)]
    return [*far, *near, *far]


def _check_effects(folder: Path, result: Result, keys: int) -> int:
    """Each key has had its effect once; more often only where a process was killed between the
    effect and noting it. Returns how often that was."""
    open_runs: dict[tuple[str, int], float] = {}
    runs: dict[str, list[tuple[float, float, int]]] = {str(key): [] for key in range(keys)}
    for line in (folder / "ledger").read_text().splitlines():
        what, key, pid, at = line.split()
        if what == "start":
            open_runs[key, int(pid)] = float(at)
        else:
            runs[key].append((open_runs.pop((key, int(pid))), float(at), int(pid)))
    again = 0
    for key, ended in runs.items():
        assert ended, f"{key} has had no effect"
        ended.sort()
        for (_, end, pid), (start, _, _) in itertools.pairwise(ended):
            assert pid in result.killed_pids, f"{key} was run again after {pid} had ended well"
            assert start >= end, f"{key} was run by two at once"
            again += 1
    return again


RACER = """
import asyncio, sys
from pumphouse.middleware import SqliteStore

async def main(path, me, keys):
    async with SqliteStore(path) as store:
        async def one(key):
            begun = await store.begin(key, me, until=1e9, now=0.0)
            if begun.state == "new":
                print(key, flush=True)
                await store.complete(key, me, until=1e9, now=0.0)
        await asyncio.gather(*(one(str(key)) for key in range(keys)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def test_of_processes_that_race_for_a_key_one_gets_it(tmp_path: Path) -> None:
    """Also while they make the file, all at once."""
    keys = 500
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path / "keys.db"), str(number), str(keys)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    got: Counter[str] = Counter()
    for racer in racers:
        out, errors = racer.communicate(timeout=60)
        assert racer.returncode == 0, errors
        got.update(out.split())
    assert got == {str(key): 1 for key in range(keys)}


@pytest.mark.soak
async def test_processes_killed_at_random_run_each_key_once(tmp_path: Path) -> None:
    keys = 2_000
    result = await run_processes(
        tmp_path,
        processes=4,
        messages=2 * keys,
        seconds=40,
        kill=True,
        visibility=6,
        seed=5,
        service=SERVICE,
        bodies=_twice(keys),
    )
    again = _check_effects(tmp_path, result, keys)
    print(f"{result.killed} killed, {result.terminated} terminated, {again} effects again")
    assert result.left == 0, (tmp_path / "log").read_text()[-2000:]
    assert result.killed >= 5
    assert again <= result.killed * 20
