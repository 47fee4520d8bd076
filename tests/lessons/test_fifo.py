"""FIFO consumption, rows F1 to F6: order and isolation of groups, also after a failure."""

from __future__ import annotations

from collections import Counter

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.model import Message
from pumphouse.subscriber.outcomes import Retry
from pumphouse.subscriber.queue import Queue
from support.service import (
    Gauge,
    changes,
    deleted,
    make_queue,
    make_redrive,
    receive,
    receives,
    send,
)

BATCH = ["A1", "A2", "B1", "A3", "B2"]


async def test_f1_a_failure_holds_up_its_own_group_only(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    for body in BATCH:
        await send(account, url, body, group=body[0])
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", concurrency=1, retry=10)
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "A2" and runs.count("A2") == 1:
            raise RuntimeError("once")

    async with app.running(account):
        await clock.advance(9)
        assert sorted(runs) == ["A1", "A2", "B1", "B2"]
        assert sorted(deleted(account)) == ["A1", "B1", "B2"]
        await clock.advance(2)
        assert runs[4:] == ["A2", "A3"]
        assert sorted(deleted(account)) == sorted(BATCH)
    assert receives(account) == Counter(BATCH)  # the retry was made in place


async def test_f1_the_same_when_the_delay_is_too_long_to_wait_in_place(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    for body in BATCH:
        await send(account, url, body, group=body[0])
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", concurrency=4, retry=100)
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "A2" and runs.count("A2") == 1:
            raise RuntimeError("once")

    async with app.running(account):
        await clock.advance(99)
        assert sorted(runs) == ["A1", "A2", "B1", "B2"]
        assert sorted(deleted(account)) == ["A1", "B1", "B2"]
        await clock.advance(5)
    assert runs[4:] == ["A2", "A3"]
    assert receives(account)["A2"] == receives(account)["A3"] == 2


async def test_f2_one_at_a_time_and_in_order_within_a_group(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    for number in range(50):
        await send(account, url, str(number), group="only")
    app = App()
    gauge, runs = Gauge(), []

    @app.subscriber("q.fifo", concurrency=8)
    async def handle(body: str) -> None:
        gauge.enter("only")
        await clock.sleep(0.5)
        gauge.leave("only")
        runs.append(int(body))

    async with app.running(account):
        await clock.run_until(lambda: len(runs) == 50, limit_seconds=120)
    assert runs == list(range(50))
    assert gauge.most_in_all == 1


async def test_f2_groups_run_in_parallel(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q.fifo")
    for number in range(10):
        for group in "ABCDEFGH":
            await send(account, url, str(number), group=group)
    app = App()
    gauge = Gauge()
    runs: dict[str, list[int]] = {}

    @app.subscriber("q.fifo", concurrency=8)
    async def handle(body: str, message: Message) -> None:
        group = message.group_id or ""
        gauge.enter(group)
        await clock.sleep(1)
        gauge.leave(group)
        runs.setdefault(group, []).append(int(body))

    began = clock.monotonic()
    async with app.running(account):
        await clock.run_until(lambda: sum(map(len, runs.values())) == 80, limit_seconds=120)
        took = clock.monotonic() - began
    assert all(order == list(range(10)) for order in runs.values())
    assert set(gauge.most.values()) == {1}
    assert gauge.most_in_all == 8
    assert took < 12  # 80 seconds of work, eight at a time


async def test_f3_a_redrive_policy_does_not_bury_what_never_ran(
    account: Account, clock: VirtualClock
) -> None:
    """The queue's own policy, three receives: A1 uses up its attempts, A2 none."""
    url, dead = await make_redrive(account, "q.fifo", "dead.fifo", 3)
    await send(account, url, "A1", group="A")
    await send(account, url, "A2", group="A")
    app = App()
    runs: list[str] = []

    @app.subscriber("q.fifo", retry=1)
    async def handle(body: str) -> None:
        runs.append(body)
        if body == "A1":
            raise RuntimeError("always")

    async with app.running(account):
        await clock.advance(60)
    assert runs == ["A1", "A1", "A1", "A2"]
    assert [sent.body for sent in account.sent("dead.fifo")] == ["A1"]
    assert [message.body for message in await receive(account, dead)] == ["A1"]
    assert receives(account)["A2"] == 1


async def test_f3_attempts_are_counted_for_the_message_that_ran_when_heads_are_given_back(
    account: Account, clock: VirtualClock
) -> None:
    """Delays too long to wait in place: each time A1 comes, its followers are charged a receive."""
    url = await make_queue(account, "q.fifo")
    await make_queue(account, "dead.fifo")
    for body in ("A1", "A2", "A3"):
        await send(account, url, body, group="A")
    app = App()
    runs: list[tuple[str, int]] = []

    @app.subscriber("q.fifo", retry=100, max_attempts=3, dead_letter="dead.fifo")
    async def handle(body: str, message: Message) -> None:
        runs.append((body, message.attempt))
        if body == "A1":
            raise RuntimeError("always")

    async with app.running(account):
        await clock.advance(400)
    assert runs == [("A1", 1), ("A1", 2), ("A1", 3), ("A2", 1), ("A3", 1)]
    assert receives(account)["A2"] == 3
    (dead,) = account.sent("dead.fifo")
    assert dead.body == "A1"
    assert dead.attributes["pumphouse.reason"].string_value == "RuntimeError: always"
    assert dead.attributes["pumphouse.attempts"].string_value == "3"


async def test_f4_skipped_successors_are_released_at_once_and_not_extended(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo")
    for body in ("A1", "A2", "A3"):
        await send(account, url, body, group="A")
    app = App()

    @app.subscriber("q.fifo")
    async def handle(body: str) -> Retry:
        return Retry(after=600)

    async with app.running(account) as running:
        await clock.advance(1)
        began = clock.now() - 1
        held = running.consumers[0].exits
        assert not held.live
        asked = changes(account)
        assert sorted((body, seconds) for _, body, seconds in asked) == [
            ("A1", 600),
            ("A2", 0),
            ("A3", 0),
        ]
        assert all(at - began < 0.1 for at, _, _ in asked)
        await clock.advance(300)
        assert changes(account) == asked  # nothing is extended any more


async def test_f5_the_extender_carries_a_queue_of_long_messages(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="5")
    for number in range(10):
        await send(account, url, str(number), group="A")
    app = App()
    runs: list[tuple[str, int]] = []

    @app.subscriber("q.fifo", concurrency=1)
    async def handle(body: str, message: Message) -> None:
        await clock.sleep(1)
        runs.append((body, message.receive_count))

    async with app.running(account):
        await clock.advance(30)
    assert runs == [(str(number), 1) for number in range(10)]


async def test_f5_without_it_nothing_starts_past_its_deadline(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="5")
    for number in range(10):
        await send(account, url, str(number), group="A")
    app = App()
    started: list[tuple[str, float]] = []

    @app.subscriber(Queue("q.fifo", extend=False), concurrency=1)
    async def handle(body: str, message: Message) -> None:
        started.append((body, message.deadline - clock.now()))
        await clock.sleep(1)

    async with app.running(account):
        await clock.advance(60)
    assert all(left > 0 for _, left in started)
    # the one that was running when the leases ended was cancelled, and ran again in its place
    assert list(dict.fromkeys(body for body, _ in started)) == [str(n) for n in range(10)]
    assert [body for body, _ in started] == sorted(body for body, _ in started)


async def test_f6_middleware_may_replace_the_message(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q.fifo", VisibilityTimeout="5")
    for number in range(3):
        await send(account, url, "same", group=str(number % 2))

    class Wrapped:
        """Equal to every other one, as a careless decorator makes it."""

        def __init__(self, message: Message) -> None:
            self.message = message

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Wrapped)

        def __hash__(self) -> int:
            return 0

    async def wrap(message, call_next):  # type: ignore[no-untyped-def]
        return await call_next(Wrapped(message))

    app = App(middleware=[wrap])
    seen: list[object] = []

    @app.subscriber("q.fifo", concurrency=5)
    async def handle(message: Message) -> None:
        seen.append(message)
        await clock.sleep(12)  # more than two leases

    async with app.running(account) as running:
        await clock.advance(30)
        assert not running.consumers[0].exits.live
        asked = len(changes(account))
        await clock.advance(30)
        assert len(changes(account)) == asked  # nothing is left that would be extended
    assert all(isinstance(each, Wrapped) for each in seen)
    assert len(seen) == len(deleted(account)) == 3
    assert set(receives(account).values()) == {3}  # three bodies alike, each received once
