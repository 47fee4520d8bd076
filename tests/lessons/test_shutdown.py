"""Shutdown and cancellation, rows S1 and S2."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import ClosedError
from pumphouse.model import Message
from pumphouse.protocol.operations import ReceiveMessage
from pumphouse.subscriber.outcomes import Retry
from support.service import EntryFaults, changes, deleted, make_queue, make_redrive, receives, send


class LikeAws(EntryFaults):
    """Cancelling a request here gives up its answer and not its effect, as over a network."""

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self.cancel_is_exact = False
        self.open: set[asyncio.Task[Any]] = set()

    async def execute(self, operation: Any) -> Any:
        task = asyncio.ensure_future(super().execute(operation))
        self.open.add(task)
        task.add_done_callback(self.open.discard)
        return await asyncio.shield(task)


@pytest.mark.parametrize("how", ["stop", "twice", "cancel", "cancel twice"])
async def test_s1_an_open_poll_is_never_thrown_away(
    account: Account, clock: VirtualClock, how: str
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    backend = LikeAws(account)
    app = App()
    runs: list[str] = []

    @app.subscriber("q")
    async def handle(body: str) -> None:
        runs.append(body)

    leave = asyncio.Event()

    async def service() -> None:
        async with app.running(backend) as running:
            services.append(running)
            await leave.wait()

    services: list[Any] = []
    task = asyncio.create_task(service())
    await clock.advance(1)
    assert len(backend.open) == 1
    if how.startswith("cancel"):
        task.cancel()
    else:
        leave.set()
    await clock.advance(0.5)
    if how == "twice":
        services[0].request_stop()
    if how == "cancel twice":
        task.cancel()
    await clock.advance(0.5)
    assert not task.done()
    await send(account, url, "late")
    await clock.advance(0.5)
    assert account.queue("q").visible == 1  # within the poll: released at once, not in an hour
    await clock.settle()
    assert task.done()
    assert task.cancelled() == how.startswith("cancel")
    assert not runs
    assert not backend.open
    assert receives(account) == {"late": 1}


async def test_s1_a_poll_that_brings_nothing_ends_by_itself(
    account: Account, clock: VirtualClock
) -> None:
    await make_queue(account, "q")
    backend = LikeAws(account)
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    leave = asyncio.Event()

    async def service() -> None:
        async with app.running(backend):
            await leave.wait()

    task = asyncio.create_task(service())
    await clock.advance(1)
    leave.set()
    await clock.advance(18.5)
    assert not task.done()
    await clock.advance(1)
    assert task.done()
    assert account.ledger.counts["ReceiveMessage"] == 1  # no new polls


async def test_s1_where_cancelling_is_exact_a_stop_does_not_wait_for_polls(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(account):
        await clock.advance(1)
        began = clock.monotonic()
    assert clock.monotonic() == began
    await send(account, url, "late")
    await clock.advance(60)
    assert account.queue("q").visible == 1


async def test_s1_what_waits_is_given_back_at_once(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    for number in range(8):
        await send(account, url, str(number))
    app = App(drain_seconds=100)
    runs: list[str] = []

    @app.subscriber("q", concurrency=2)
    async def handle(body: str) -> None:
        runs.append(body)
        await clock.sleep(10)

    async with app.running(account) as running:
        await clock.advance(1)
        running.request_stop()
        await clock.advance(0.1)
        assert account.queue("q").visible == 6
        await clock.advance(20)
    assert sorted(deleted(account)) == sorted(runs)
    assert len(runs) == 2


@pytest.mark.parametrize("kind", ["q", "q.fifo"])
async def test_s2_a_short_handler_is_settled_and_a_long_one_released(
    account: Account, clock: VirtualClock, kind: str
) -> None:
    """The lease is 6 s, the drain time 15 s: what runs is extended until then."""
    fifo = kind.endswith(".fifo")
    dead = "dead.fifo" if fifo else "dead"
    url, _ = await make_redrive(account, kind, dead, 1, VisibilityTimeout="6")
    for body in ("5", "60"):
        await send(account, url, body, group=body if fifo else None)
    app = App(drain_seconds=15)
    ended: list[tuple[str, str]] = []

    @app.subscriber(kind)
    async def handle(body: str) -> None:
        try:
            await clock.sleep(float(body))
            ended.append((body, "done"))
        except asyncio.CancelledError:
            ended.append((body, "cancelled"))
            raise

    async with app.running(account) as running:
        await clock.advance(1)
        running.request_stop()
        began = clock.monotonic()
    assert 15 <= clock.monotonic() - began < 16
    assert ended == [("5", "done"), ("60", "cancelled")]
    assert deleted(account) == ["5"]
    assert receives(account) == {"5": 1, "60": 1}
    assert account.queue(kind).visible == 1  # at once
    assert not account.sent(dead)


async def test_s2_a_released_message_keeps_its_attempts(
    account: Account, clock: VirtualClock
) -> None:
    """Max attempts 1, and five stops in the middle of it: it is still handled, and not buried."""
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    await send(account, url, "job")
    done: list[str] = []
    for number in range(6):
        app = App(drain_seconds=0)

        @app.subscriber("q", max_attempts=1, dead_letter="dead")
        async def handle(body: str, last: bool = number == 5) -> None:
            await clock.sleep(0 if last else 1_000)
            done.append(body)

        async with app.running(account):
            await clock.advance(5)
    assert done == ["job"]
    assert not account.sent("dead")
    assert account.queue("dead").visible == 0


@pytest.mark.parametrize("lease", [6, 600])
@pytest.mark.parametrize("kind", ["q", "q.fifo"])
async def test_s2_ten_stops_over_a_network_bury_nothing(
    account: Account, clock: VirtualClock, kind: str, lease: int
) -> None:
    """What is given back may be received by the poll that is still open. What has only those
    receives left that are for stops is given back when that has ended, so that one costs it one:
    neither the message that was run is buried, nor the one behind it."""
    fifo = kind.endswith(".fifo")
    dead = "dead.fifo" if fifo else "dead"
    url = await make_queue(account, kind, VisibilityTimeout=str(lease))
    await make_queue(account, dead)
    for body in ("A1", "A2"):
        await send(account, url, body, group="A" if fifo else None)
    counts: list[int] = []
    for _ in range(10):
        app = App(drain_seconds=1)

        @app.subscriber(kind, max_attempts=1, dead_letter=dead, concurrency=2)
        async def handle(message: Message) -> None:
            counts.append(message.receive_count)
            await clock.sleep(1_000)

        leave = asyncio.Event()

        async def service(app: App = app, leave: asyncio.Event = leave) -> None:
            async with app.running(LikeAws(account)) as running:
                await leave.wait()
            assert running.consumers[0].stats.leases_lost == 0

        task = asyncio.create_task(service())
        await clock.advance(5)
        leave.set()
        await clock.advance(20)
        assert task.done()
        await task
        assert account.queue(kind).visible == 2  # no lease is waited out
    each = 1 if fifo else 2
    assert counts == [count for count in (1, *range(3, 12)) for _ in range(each)]
    assert receives(account) == {"A1": 11, "A2": 11}
    assert not account.sent(dead)
    assert account.queue(dead).visible == 0


@pytest.mark.parametrize("kind", ["q", "q.fifo"])
async def test_s2_what_has_receives_to_spare_is_given_back_at_once(
    account: Account, clock: VirtualClock, kind: str
) -> None:
    """To another process, whose poll is open as well; it does not wait for this one's."""
    fifo = kind.endswith(".fifo")
    url = await make_queue(account, kind, VisibilityTimeout="600")
    await make_queue(account, "dead.fifo" if fifo else "dead")
    for body in ("one", "two"):
        await send(account, url, body, group="A" if fifo else None)
    app = App(drain_seconds=0)

    @app.subscriber(kind, max_attempts=3, dead_letter="dead.fifo" if fifo else "dead")
    async def handle(body: str) -> None:
        await clock.sleep(1_000)

    async with app.running(LikeAws(account)) as running:
        await clock.advance(1)
        running.request_stop()
        await clock.advance(0.1)
        given_back = changes(account)[:2]
        assert sorted(body for _, body, _ in given_back) == ["one", "two"]
        assert all(seconds == 0 for _, _, seconds in given_back)


async def test_s2_a_second_request_gives_back_at_once_what_the_first_kept(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="600")
    await make_queue(account, "dead.fifo")
    for body in ("one", "two"):
        await send(account, url, body, group="A")
    for _ in range(10):  # few are left
        await account.execute(ReceiveMessage(url, max_number_of_messages=10, visibility_timeout=0))
    app = App()

    @app.subscriber("q.fifo", max_attempts=5, dead_letter="dead.fifo")
    async def handle(body: str) -> Retry:
        return Retry(after=100)

    asked: list[Any] = []

    async def service() -> None:
        async with app.running(LikeAws(account)) as running:
            asked.append(running.request_stop)
            await running.stopped()

    task = asyncio.create_task(service())
    await clock.advance(1)
    asked[0]()
    await clock.advance(1)
    assert changes(account) == []
    asked[0]()
    await clock.advance(0.1)
    assert {body: seconds for _, body, seconds in changes(account)} == {"one": 98, "two": 0}
    await clock.advance(20)
    assert task.done()
    assert len(changes(account)) == 2


@pytest.mark.parametrize("draining", [False, True])
async def test_s1_a_loop_that_is_closed_gives_everything_back(
    account: Account, clock: VirtualClock, *, draining: bool
) -> None:
    """Every task is cancelled once and then waited for, as `asyncio.run` does at its end."""
    url = await make_queue(account, "q", VisibilityTimeout="600")
    for body in ("one", "two", "three"):
        await send(account, url, body)
    app = App(drain_seconds=100)
    runs: list[str] = []

    @app.subscriber("q", concurrency=2)
    async def handle(body: str) -> None:
        runs.append(body)
        await clock.sleep(10_000)

    async def service() -> None:
        async with app.running(LikeAws(account)):
            await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(service())
    await clock.advance(1)
    if draining:
        task.cancel()
        await clock.advance(1)
    all_tasks = asyncio.all_tasks() - before
    for each in all_tasks:
        each.cancel()
    closing = asyncio.gather(*all_tasks, return_exceptions=True)
    await clock.advance(1)
    assert closing.done()
    assert asyncio.all_tasks() == before
    assert task.cancelled()
    assert len(runs) == 2
    assert account.queue("q").visible == 3


async def test_s2_a_second_request_cancels_at_once_and_still_releases(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    await send(account, url, "long")
    app = App(drain_seconds=1_000)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(10_000)

    async with app.running(account) as running:
        await clock.advance(1)
        running.request_stop()
        await clock.advance(10)
        assert account.queue("q").visible == 0
        running.request_stop()
        await clock.advance(0.1)
        assert account.queue("q").visible == 1


async def test_s2_a_handler_that_will_not_end_is_given_up_and_its_message_released(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="3600")
    await send(account, url, "stubborn")
    app = App(drain_seconds=1)
    release = asyncio.Event()

    @app.subscriber("q")
    async def handle(body: str) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with app.running(account):
        await clock.advance(1)
    assert account.queue("q").visible == 1
    release.set()
    await clock.settle()


async def test_s2_settlement_is_flushed_last_through_failures(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="600")
    for number in range(5):
        await send(account, url, str(number))
    account.faults.throttle("DeleteMessageBatch", times=4)
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(account):
        await clock.settle()
    assert sorted(deleted(account)) == ["0", "1", "2", "3", "4"]


async def test_after_the_stop_a_publisher_raises(account: Account, clock: VirtualClock) -> None:
    await make_queue(account, "q")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(account) as running:
        sink = app.sink("q")
    with pytest.raises(ClosedError):
        await sink.send("x")
    with pytest.raises(ClosedError):
        running.sink("q")
    with pytest.raises(ClosedError):
        app.sink("q")


async def test_an_error_in_the_body_comes_out_as_it_is_and_all_is_released(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="600")
    await send(account, url, "one")
    app = App(drain_seconds=0)

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(1_000)

    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        async with app.running(account):
            await clock.advance(1)
            raise ZeroDivisionError
    assert account.queue("q").visible == 1
    assert len(asyncio.all_tasks()) == 1
    assert account.ledger.counts[ReceiveMessage.action] >= 1
