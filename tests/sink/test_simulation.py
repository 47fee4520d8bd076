"""Many thousand sends through everything that can go wrong, on the virtual clock.

What callers were told is held against what the queue holds: nothing stored that was refused,
nothing lost that was confirmed, nothing twice, the order of every group kept.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import OutcomeUnknownError, PumphouseError, RefusedError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    GetQueueUrl,
    ReceiveMessage,
    SendMessageBatch,
)
from pumphouse.sink import Sink
from support.stormy import GARBLED, StormyBackend

TENANTS = 50
POLICY = RetryPolicy(base_seconds=0.05, cap_seconds=2, max_attempts=12, budget_seconds=60)


class Story:
    """What the callers were told."""

    def __init__(self) -> None:
        self.stored: dict[str, Receipt] = {}
        self.unknown: dict[str, OutcomeUnknownError] = {}
        self.failed: dict[str, PumphouseError] = {}
        self.waits: dict[int, float] = defaultdict(float)


async def simulate(
    queue: str,
    sends: int,
    seed: int,
    trouble: float = 0.2,
    silence: float = 0.0,
    retry: RetryPolicy = POLICY,
    slots: int = 8,
    garbles: bool = False,
) -> tuple[Story, Account, Sink, StormyBackend]:
    clock = VirtualClock()
    account = Account(clock=clock, ledger_room=0)
    attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else None
    url = (await account.execute(CreateQueue(queue, attributes))).queue_url
    backend = StormyBackend(
        account, seed, trouble=trouble, seconds=0.02, silence=silence, garbles=garbles
    )
    sink = Sink(
        url,
        backend,
        retry=retry,
        clock=clock,
        rng=random.Random(seed),
        wait=True,
        batch_max_inflight=slots,
    )
    story = Story()

    async def group(tenant: int, number: int, count: int) -> None:
        """A caller that sends the messages of one group, each after the one before it."""
        name, group_id = str(tenant), f"{tenant}-{number}"
        for index in range(count):
            body = f"{tenant}/{number}:{index}"
            began = clock.monotonic()
            try:
                story.stored[body] = await sink.send(
                    body,
                    id=body,
                    tenant=name,
                    group_id=group_id,
                    attributes=None if index % 5 else {"n": index},
                )
            except OutcomeUnknownError as error:
                story.unknown[body] = error
            except PumphouseError as error:
                story.failed[body] = error
            story.waits[tenant] = max(story.waits[tenant], clock.monotonic() - began)

    big_groups = sends // 100 + 1  # half of everything, fifty to a group
    small = sends // 2 // (TENANTS - 1)
    callers = [asyncio.create_task(group(0, n, 50)) for n in range(big_groups)]
    callers += [
        asyncio.create_task(group(tenant, n, small // 4))
        for tenant in range(1, TENANTS)
        for n in range(4)
    ]
    await clock.run_until(lambda: all(caller.done() for caller in callers))
    await asyncio.gather(*callers)
    await sink.aclose()
    return story, account, sink, backend


async def held(account: Account, queue: str) -> list[str]:
    """The bodies in the queue; each group's in its order."""
    found: list[str] = []
    url = (await account.execute(GetQueueUrl(queue))).queue_url
    while messages := (
        await account.execute(ReceiveMessage(url, max_number_of_messages=10))
    ).messages:
        found += (message.body for message in messages)
        await account.execute(
            DeleteMessageBatch(
                url,
                [
                    DeleteMessageBatchRequestEntry(str(at), message.receipt_handle)
                    for at, message in enumerate(messages)
                ],
            )
        )
    return found


async def check(story: Story, account: Account, queue: str) -> None:
    content = await held(account, queue)
    bodies = set(content)
    assert story.stored.keys() <= bodies, "confirmed, and not in the queue"
    assert bodies <= story.stored.keys() | story.unknown.keys(), "in the queue, and nobody was told"
    assert len(content) == len(bodies), "stored twice"
    order: dict[str, int] = {}
    for body in content:
        name, _, index = body.partition(":")
        assert order.get(name, -1) < int(index), f"group {name} out of order"
        order[name] = int(index)


@pytest.mark.parametrize(
    "sends", [20_000, pytest.param(100_000, marks=pytest.mark.soak)], ids=["20,000", "100,000"]
)
async def test_fifo_sends_through_a_storm(sends: int) -> None:
    story, account, sink, backend = await simulate("storm.fifo", sends, seed=1)
    told = len(story.stored) + len(story.unknown) + len(story.failed)
    assert told >= sends
    await check(story, account, "storm.fifo")
    assert len(backend.counts) == 10, "every kind of trouble happened"
    # on FIFO a lost answer is asked for again; it stays unknown only where that was refused
    assert all(isinstance(e.__cause__, RefusedError) for e in story.unknown.values())
    assert story.failed, "refused entries are told"
    assert all(error.code == "InvalidParameterValue" for error in story.failed.values())  # type: ignore[attr-defined]
    stats = sink.stats
    assert stats["stored"] == len(story.stored)
    assert stats["refused"] == len(story.failed)
    assert stats["waiting"] == 0
    # a small tenant waits for retries and its turn, not for all that the big one sends
    assert max(wait for tenant, wait in story.waits.items() if tenant) < 10


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_doubled_where_lost_answers_take_minutes(seed: int) -> None:
    """Slots are taken by requests that nobody answers, so that many a repetition would begin when
    the queue may have forgotten its message."""
    patient = RetryPolicy(base_seconds=1, cap_seconds=20, max_attempts=30, budget_seconds=3_000)
    story, account, sink, _ = await simulate(
        "slow.fifo", 2_000, seed, trouble=0.6, silence=100.0, retry=patient, slots=1
    )
    await check(story, account, "slow.fifo")
    assert story.unknown, "some could not be repeated in time"
    assert sink.stats["unknown"] == len(story.unknown)


async def test_a_standard_queue_is_never_silently_sent_a_second_copy() -> None:
    story, account, sink, _ = await simulate("storm", 5_000, seed=2, garbles=True)
    assert story.unknown
    await check_without_order(story, account)
    assert sink.stats["unknown"] == len(story.unknown)


async def check_without_order(story: Story, account: Account) -> None:
    content = await held(account, "storm")
    garbled = {body.removesuffix(GARBLED) for body in content if body.endswith(GARBLED)}
    assert garbled
    assert garbled <= story.unknown.keys(), "confirmed, and another body is in the queue"
    content = [body.removesuffix(GARBLED) for body in content]
    assert story.stored.keys() <= set(content)
    assert set(content) <= story.stored.keys() | story.unknown.keys()
    assert len(content) == len(set(content))


@pytest.mark.parametrize("queue", ["fair", "fair.fifo"])
async def test_what_a_small_tenant_waits_does_not_depend_on_the_big_ones_backlog(
    queue: str,
) -> None:
    worst: dict[int, float] = {}
    for backlog in (1_500, 9_000):
        clock = VirtualClock()
        account = Account(clock=clock, ledger_room=0)
        attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else None
        url = (await account.execute(CreateQueue(queue, attributes))).queue_url
        backend = StormyBackend(account, 3, trouble=0, seconds=0.02)
        sink = Sink(url, backend, clock=clock, rng=random.Random(3), wait=True)
        waits: list[float] = []

        async def small(
            tenant: int, sink: Sink = sink, clock: VirtualClock = clock, waits: list[float] = waits
        ) -> None:
            for index in range(10):
                began = clock.monotonic()
                await sink.send(f"{tenant}:{index}", tenant=str(tenant), group_id=str(tenant))
                waits.append(clock.monotonic() - began)

        big = [
            asyncio.create_task(sink.send(f"big:{n}", tenant="big", group_id=f"big-{n % 500}"))
            for n in range(backlog)
        ]
        await clock.settle()
        others = [asyncio.create_task(small(tenant)) for tenant in range(1, TENANTS)]
        await clock.run_until(lambda: all(task.done() for task in others))  # noqa: B023
        assert sum(task.done() for task in big) < backlog, "the big one has still more to send"
        worst[backlog] = max(waits)
        await clock.run_until(lambda: all(task.done() for task in big))  # noqa: B023
        await asyncio.gather(*big, *others)
        await sink.aclose()
    assert worst[9_000] <= 1.05 * worst[1_500]
    assert worst[9_000] < 0.5


async def test_the_storm_reaches_the_wire() -> None:
    """Every try that the sink counts is one request, and no more."""
    clock = VirtualClock()
    account = Account(clock=clock)
    url = (await account.execute(CreateQueue("wire"))).queue_url
    backend = StormyBackend(account, 4, trouble=0.3, seconds=0.01)
    sink = Sink(url, backend, clock=clock, retry=POLICY, rng=random.Random(4))
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(500)]
    await clock.run_until(lambda: all(task.done() for task in tasks))
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sink.stats["requests"] == sum(backend.counts.values())
    assert len(account.ledger.of(SendMessageBatch)) < sink.stats["requests"]
