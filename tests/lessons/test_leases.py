"""Leases and settlement, rows L1 to L13."""

from __future__ import annotations

import base64
import logging
from collections import Counter
from typing import Any, Literal

import msgspec
import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.content import ENCODING_ATTRIBUTE
from pumphouse.model import Message
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    DeleteMessageBatch,
    DeleteMessageBatchResult,
    MessageAttributeValue,
    Operation,
)
from pumphouse.subscriber import events
from pumphouse.subscriber.outcomes import Reject, Retry
from pumphouse.subscriber.queue import Queue
from support.service import (
    EntryFaults,
    bodies_by_handle,
    changes,
    count,
    deleted,
    make_queue,
    make_redrive,
    receive,
    receives,
    send,
)


async def test_l1_the_lease_runs_from_the_receive(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="5")
    for number in range(10):
        await send(account, url, str(number))
    runs: list[str] = []
    apps = [App(), App()]
    for app in apps:

        @app.subscriber("q", concurrency=1)
        async def handle(body: str) -> None:
            runs.append(body)
            await clock.sleep(2)

    async with apps[0].running(account), apps[1].running(account):
        await clock.advance(60)
    assert sorted(runs) == [str(number) for number in range(10)]
    assert receives(account) == Counter(runs)


async def test_l1_with_the_extender_off_expired_entries_are_dropped_unrun(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="5")
    for number in range(10):
        await send(account, url, str(number))
    runs: list[str] = []
    apps = [App(), App()]
    for app in apps:

        @app.subscriber(Queue("q", extend=False), concurrency=1)
        async def handle(body: str, message: Message) -> None:
            assert clock.now() < message.deadline
            runs.append(body)
            await clock.sleep(2)

    async with apps[0].running(account) as first, apps[1].running(account) as second:
        await clock.advance(120)
        assert first.consumers[0].stats.expired + second.consumers[0].stats.expired > 0
    assert sorted(set(runs)) == [str(number) for number in range(10)]
    assert not await receive(account, url)


async def test_l2_no_extension_after_an_acknowledged_delete(
    account: Account, clock: VirtualClock
) -> None:
    """A thousand handlers that end within a millisecond of their extender's tick."""
    url = await make_queue(account, "q", VisibilityTimeout="4")
    account.ledger._entries = type(account.ledger._entries)(maxlen=100_000)
    app = App()
    number = 0

    @app.subscriber(Queue("q", prefetch=10), concurrency=100)
    async def handle(body: str) -> None:
        await clock.sleep(2 + (int(body) % 21 - 10) / 10_000)

    async with app.running(account) as running:
        while number < 1_000:
            for _ in range(10):
                await send(account, url, str(number))
                number += 1
            await clock.advance(0.05)
        await clock.advance(20)
        stats = running.consumers[0].stats
        assert stats.deleted == 1_000
        assert stats.settle_failed == stats.leases_lost == 0
    done: set[str] = set()
    for entry in account.ledger:
        if isinstance(entry.operation, DeleteMessageBatch) and entry.result is not None:
            done.update(each.receipt_handle for each in entry.operation.entries)
        if isinstance(entry.operation, ChangeMessageVisibilityBatch):
            assert not done.intersection(each.receipt_handle for each in entry.operation.entries)
    assert len(done) == 1_000


async def test_l2_a_slow_settle_keeps_its_lease_until_it_is_answered(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="4")
    await send(account, url, "one")
    account.faults.throttle(DeleteMessageBatch, times=12)
    app = App()
    runs: list[str] = []

    @app.subscriber("q")
    async def handle(body: str) -> None:
        runs.append(body)

    async with app.running(account):
        await clock.run_until(lambda: deleted(account) == ["one"], limit_seconds=120)
        await clock.advance(10)
    assert runs == ["one"]
    assert receives(account) == {"one": 1}


async def test_l3_extensions_use_the_queue_s_own_timeout(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="120")
    await send(account, url, "one")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await clock.sleep(200)

    began = clock.now()
    async with app.running(account):
        await clock.advance(230)
    asked = [(round(at - began), seconds) for at, _, seconds in changes(account)]
    assert asked == [(60, 120), (120, 120), (180, 120)]


@pytest.mark.parametrize("lease", [120, 10])
async def test_l3_a_thousand_leases_with_slow_calls(
    account: Account, clock: VirtualClock, lease: int
) -> None:
    """All are held at once. Under the short lease a hundred requests of 0.3 s are due within 5 s,
    which they could not be done in one after another."""
    url = await make_queue(account, "q", VisibilityTimeout=str(lease))
    for number in range(1_000):
        await send(account, url, str(number))
    slow = SlowBackend(account, clock, 0.3)
    app = App()

    @app.subscriber("q", concurrency=1_000)
    async def handle(body: str) -> None:
        await clock.sleep(150)

    async with app.running(slow, clock=clock) as running:
        consumer = running.consumers[0]
        await clock.advance(60)
        assert len(consumer.exits.live) == 1_000
        await clock.advance(200)
    assert consumer.stats.leases_lost == 0
    assert consumer.stats.deleted == consumer.stats.received == 1_000


async def test_l4_a_handler_slower_than_its_lease_ends_after_its_attempts(
    account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = await make_redrive(account, "q", "dead", 3, VisibilityTimeout="5")
    await send(account, url, "slow")
    app = App()
    runs: list[int] = []
    lost: list[events.LeaseLost] = []
    app.hooks.on(events.LeaseLost, lost.append)

    @app.subscriber(Queue("q", extend=False), on_lease_lost="flag")
    async def handle(body: str, message: Message) -> None:
        runs.append(message.attempt)
        await clock.sleep(8)
        raise RuntimeError("too late anyway")

    with caplog.at_level(logging.WARNING, "pumphouse.subscriber"):
        async with app.running(account):
            await clock.advance(200)
    assert runs == [1, 2, 3]
    assert len(lost) == 3
    assert caplog.text.count("lost: the lease ended") == 3
    assert account.queue("q").visible == account.queue("q").in_flight == 0
    assert account.queue("dead").visible == 1


@pytest.mark.parametrize("mode", ["cancel", "flag"])
async def test_l5_a_handler_that_never_returns(
    account: Account, clock: VirtualClock, mode: Any
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="600")
    await send(account, url, "stuck")
    app = App(drain_seconds=0)
    told: list[tuple[str, float]] = []
    lost: list[events.LeaseLost] = []
    app.hooks.on(events.LeaseLost, lost.append)
    began = clock.monotonic()

    @app.subscriber("q", on_lease_lost=mode)
    async def handle(message: Message) -> None:
        if told:
            return
        try:
            while not message.lease_lost:
                await clock.sleep(1)
            told.append(("flag", clock.monotonic() - began))
        except BaseException:
            told.append(("cancel", clock.monotonic() - began))
            raise

    async with app.running(account):
        await clock.advance(12 * 3600)
    ((how, when),) = told
    assert how == mode
    assert 12 * 3600 - 900 < when < 12 * 3600
    assert len(lost) == 1
    ends = [at - began + (seconds or 0) for at, _, seconds in changes(account)]
    assert max(ends) - 1_700_000_000 <= 12 * 3600


async def test_l6_a_message_that_comes_again_before_its_first_delivery_is_gone(
    account: Account, clock: VirtualClock
) -> None:
    """The release is carried out and its answer takes 3 s; the redelivery comes in between."""
    url = await make_queue(account, "q", VisibilityTimeout="10")
    await send(account, url, "one")
    slow = SlowBackend(account, clock, 3, only=ChangeMessageVisibilityBatch)
    app = App()
    runs: list[int] = []

    @app.subscriber("q")
    async def handle(message: Message) -> Retry | None:
        runs.append(message.attempt)
        return Retry(after=0) if len(runs) == 1 else None

    async with app.running(slow, clock=clock) as running:
        await clock.advance(1)
        assert runs == [1, 2]
        await clock.advance(5)
        assert not running.consumers[0].exits.live
        asked = count(account, ChangeMessageVisibilityBatch)
        await clock.advance(60)
        assert count(account, ChangeMessageVisibilityBatch) == asked == 1
    assert deleted(account) == ["one"]


@pytest.mark.parametrize("verb", ["delete", "release"])
async def test_l7_two_of_ten_entries_fail(
    account: Account, clock: VirtualClock, verb: Literal["delete", "release"]
) -> None:
    """One for a passing reason, one for good: the first alone is sent again, the other surfaces."""
    url = await make_queue(account, "q")
    for number in range(10):
        await send(account, url, str(number))
    action = DeleteMessageBatch if verb == "delete" else ChangeMessageVisibilityBatch
    backend = EntryFaults(account)
    backend.fail("3", action, "InternalError", sender_fault=False)
    backend.fail("7", action, "ReceiptHandleIsInvalid", sender_fault=True)
    app = App()
    failed: list[events.SettleFailed] = []
    app.hooks.on(events.SettleFailed, failed.append)
    runs: list[str] = []

    @app.subscriber("q", concurrency=10)
    async def handle(body: str) -> Retry | None:
        runs.append(body)
        return None if verb == "delete" else Retry(after=900)

    async with app.running(backend) as running:
        await clock.advance(8)
        stats = running.consumers[0].stats
        assert backend.asked == [
            (action.action, [str(number) for number in range(10)]),
            (action.action, ["3"]),
        ]
        assert [(each.intent, "ReceiptHandleIsInvalid" in each.reason) for each in failed] == [
            (verb, True)
        ]
        assert stats.settle_failed == 1
        assert not running.consumers[0].exits.live
        if verb == "delete":
            assert stats.deleted == 9
            await clock.advance(30)  # it comes again when its lease ends: deleted, not run again
            assert stats.deleted == 10
            assert account.queue("q").visible == account.queue("q").in_flight == 0
    assert sorted(runs) == [str(number) for number in range(10)]


async def test_l7_an_entry_that_the_answer_leaves_out_is_not_taken_as_done(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    for number in range(10):
        await send(account, url, str(number))

    class Forgetful(EntryFaults):
        async def execute(self, operation: Any) -> Any:
            result = await super().execute(operation)
            if isinstance(operation, DeleteMessageBatch) and len(operation.entries) == 10:
                return DeleteMessageBatchResult(result.successful[:-1])
            return result

    backend = Forgetful(account)
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    async with app.running(backend) as running:
        await clock.advance(10)
        assert running.consumers[0].stats.deleted == 10
    assert [bodies for _, bodies in backend.asked][1:] == [["9"]]


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_l8_an_expired_handle_stops_nothing(
    account: Account, clock: VirtualClock, name: str
) -> None:
    """On an extension, on a release and on a delete; then each message comes again by itself."""
    url = await make_queue(account, name, VisibilityTimeout="6")
    fifo = name.endswith(".fifo")
    for body in ("extend", "release", "delete", "good"):
        await send(account, url, body, group=body if fifo else None)
    backend = EntryFaults(account)
    for body, action in (
        ("extend", ChangeMessageVisibilityBatch),
        ("release", ChangeMessageVisibilityBatch),
        ("delete", DeleteMessageBatch),
    ):
        backend.fail(body, action, "ReceiptHandleIsInvalid", sender_fault=True)
    app = App()
    runs: Counter[str] = Counter()
    lost: list[events.LeaseLost] = []
    failed: list[events.SettleFailed] = []
    app.hooks.on(events.LeaseLost, lost.append)
    app.hooks.on(events.SettleFailed, failed.append)

    @app.subscriber(name)
    async def handle(body: str) -> Retry | None:
        runs[body] += 1
        if runs[body] == 1 and body == "extend":
            await clock.sleep(5)
        return Retry(after=100) if runs[body] == 1 and body == "release" else None

    async with app.running(backend) as running:
        await clock.advance(1)
        await send(account, url, "later", group="later" if fifo else None)
        await clock.advance(30)
        stats = running.consumers[0].stats
        assert (stats.leases_lost, len(lost)) == (1, 1)
        assert [each.intent for each in failed] == ["delete", "release"]
        assert not running.consumers[0].exits.live
    assert runs == {"extend": 2, "release": 2, "delete": 1, "good": 1, "later": 1}
    assert account.queue(name).visible == account.queue(name).in_flight == 0


async def test_l8_a_handle_that_expires_is_replaced_by_the_newest(
    account: Account, clock: VirtualClock
) -> None:
    """The message comes again while its handler runs: it isn't run twice, and is deleted."""
    url = await make_queue(account, "q.fifo")
    await send(account, url, "one", group="A")
    app = App()
    runs: list[str] = []
    again: list[events.ReceivedAgain] = []
    app.hooks.on(events.ReceivedAgain, again.append)

    @app.subscriber("q.fifo")
    async def handle(body: str) -> None:
        runs.append(body)
        (receipt,) = bodies_by_handle(account)
        account.faults.expire_handle(receipt)
        await clock.sleep(5)

    began = clock.now()
    async with app.running(account) as running:
        await clock.advance(100)
        stats = running.consumers[0].stats
    assert runs == ["one"]
    assert len(again) == 1
    deletes = [entry for entry in account.ledger if isinstance(entry.operation, DeleteMessageBatch)]
    assert [round(entry.started_at - began, 1) for entry in deletes] == [5]
    assert stats.settle_failed == 0  # it was deleted by its newest handle
    assert account.queue("q.fifo").visible == account.queue("q.fifo").in_flight == 0


async def test_l9_redeliveries_back_off(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    await send(account, url, "bad")
    delays: list[float] = []
    policy = RetryPolicy(base_seconds=4, cap_seconds=60, max_attempts=None, budget_seconds=None)

    def delay(attempt: int) -> float:
        delays.append(float(int(policy.delay(attempt)) + 1))
        return delays[-1]

    app = App()
    began = clock.now()

    @app.subscriber("q", retry=delay, max_attempts=5, dead_letter="dead")
    async def handle(body: str) -> None:
        raise RuntimeError("always")

    async with app.running(account):
        await clock.advance(600)
    (dead,) = account.sent("dead")
    assert len(delays) == 4
    assert sum(delays) <= dead.sent_at - began < sum(delays) + 1


def test_l9_the_default_back_off_grows_and_jitters() -> None:
    from pumphouse.subscriber.outcomes import DEFAULT_BACKOFF, delay_after

    for attempt in range(1, 15):
        drawn = [delay_after(DEFAULT_BACKOFF, attempt) for _ in range(200)]
        ceiling = min(900.0, 2.0 ** (attempt - 1))
        assert max(drawn) <= ceiling
        assert max(drawn) > 0.8 * ceiling
        assert len(set(drawn)) > 150


async def test_l10_every_way_out_gives_back_its_slot(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    app = App()
    done: list[str] = []

    @app.subscriber(
        Queue("q", prefetch=3),
        concurrency=1,
        timeout=2,
        retry=300,
        max_attempts=5,
        dead_letter="dead",
    )
    async def handle(body: dict) -> Reject | Retry | None:  # type: ignore[type-arg]
        match body["do"]:
            case "raise":
                raise RuntimeError
            case "reject":
                return Reject("no good")
            case "retry":
                return Retry(after=500)
            case "hang":
                await clock.sleep(10_000)
            case "exit":
                raise SystemExit(3)
        done.append(body["do"])
        return None

    for round_ in range(3):
        for what in ("raise", "reject", "hang", "retry", "exit"):
            await send(account, url, msgspec.json.encode({"do": what}).decode())
        await send(account, url, "not json")
        await send(account, url, msgspec.json.encode({"do": f"good {round_}"}).decode())
    async with app.running(account) as running:
        await clock.advance(60)
        assert not running.consumers[0].exits.live
        assert not running.consumers[0].exits.at_work
    assert sorted(done) == ["good 0", "good 1", "good 2"]
    assert len(account.sent("dead")) == 3


async def test_l11_ten_stops_and_one_unfinished_job(account: Account, clock: VirtualClock) -> None:
    url = await make_queue(account, "q")
    sent = await send(account, url, "job")
    started: list[str] = []
    for _ in range(10):
        app = App(drain_seconds=1)

        @app.subscriber("q")
        async def handle(message: Message) -> None:
            started.append(message.message_id)
            await clock.sleep(1_000)

        async with app.running(account):
            await clock.advance(5)
    assert started == [sent] * 10
    (left,) = await receive(account, url)
    assert left.message_id == sent
    assert len(account.sent("q")) == 1


class Order(msgspec.Struct):
    id: int


BAD = {
    "not json": ("not json", None),
    "empty json": ("{}", None),
    "wrong schema": ('{"id": "seven"}', None),
    "broken base64": (
        "%%%",
        {ENCODING_ATTRIBUTE: MessageAttributeValue("String", "base64")},
    ),
}


@pytest.mark.parametrize("policy", [None, "retry", "reject", "drop"])
async def test_l12_undecodable_messages_follow_their_policy(
    account: Account, clock: VirtualClock, policy: Any
) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    for number in range(4):
        await send(account, url, f'{{"id": {number}}}')
    for body, attributes in BAD.values():
        await send(account, url, body, message_attributes=attributes)
    app = App()
    done: list[int] = []
    seen: list[events.Undecodable] = []
    app.hooks.on(events.Undecodable, seen.append)
    more = {} if policy is None else {"undecodable": policy}

    @app.subscriber("q", retry=1_000, max_attempts=3, dead_letter="dead", **more)
    async def handle(order: Order) -> None:
        done.append(order.id)

    async with app.running(account):
        await clock.advance(100)
    assert sorted(done) == [0, 1, 2, 3]
    assert len(seen) == 4
    gone = set(deleted(account)) & {body for body, _ in BAD.values()}
    bodies = sorted(body for body, _ in BAD.values())
    if policy in (None, "retry"):
        assert not gone  # never deleted by default
        await clock.advance(1_000)
        assert sorted(message.body for message in await receive(account, url)) == bodies
    elif policy == "reject":
        assert sorted(sent.body for sent in account.sent("dead")) == bodies
        assert all(
            "the body is" in (sent.attributes["pumphouse.reason"].string_value or "")
            for sent in account.sent("dead")
        )
    else:
        assert sorted(gone) == bodies
        assert not account.sent("dead")


async def test_l13_a_payload_that_looks_like_a_notification_is_left_alone(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    body = '{"Type":"Notification","MessageId":"1","TopicArn":"arn:aws:sns:x","Message":"inner"}'
    attributes = {"trace": MessageAttributeValue("String", "t-1")}
    await send(account, url, body, message_attributes=attributes)
    app = App()
    seen: list[tuple[bytes, dict[str, Any]]] = []

    @app.subscriber("q")
    async def handle(payload: bytes, message: Message) -> None:
        seen.append((payload, message.headers))

    async with app.running(account):
        await clock.advance(1)
    assert seen == [(body.encode(), {"trace": "t-1"})]


async def test_l13_a_raw_body_and_its_attributes_arrive_as_they_were_sent(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    raw = bytes(range(256))
    attributes = {
        ENCODING_ATTRIBUTE: MessageAttributeValue("String", "base64"),
        "b": MessageAttributeValue("Binary", binary_value=b"\x00\xff"),
    }
    await send(account, url, base64.b64encode(raw).decode(), message_attributes=attributes)
    app = App()
    seen: list[tuple[bytes, dict[str, Any]]] = []

    @app.subscriber("q")
    async def handle(payload: bytes, message: Message) -> None:
        seen.append((payload, message.headers))

    async with app.running(account):
        await clock.advance(1)
    assert seen == [(raw, {"b": b"\x00\xff"})]


class SlowBackend:
    """The account, with every answer (or those of one action) late by so many seconds."""

    def __init__(
        self,
        account: Account,
        clock: VirtualClock,
        seconds: float,
        only: type[Operation[Any]] | None = None,
    ) -> None:
        self._account = account
        self._clock = clock
        self._seconds = seconds
        self._only = only

    async def execute(self, operation: Any) -> Any:
        result = await self._account.execute(operation)
        if self._only is None or isinstance(operation, self._only):
            await self._clock.sleep(self._seconds)
        return result

    async def aclose(self) -> None:
        """Nothing to give back."""
