"""A seeded simulation of the runtime: random handlers, faults, stops and restarts, on virtual time.

Two services at a time read all queues, some of them in batches, over a backend that throttles,
loses answers, fails single entries, expires receipt handles, is slow and lets visibility changes
hang for longer than a lease; queues are deleted and made again; services are stopped in the middle
and started anew. `simulate(seed, …)` runs it and checks, while it runs, that no service handles
a message after its own confirmed delete, and that no message of a FIFO group starts before all that
were sent before it are done; and at the end that nothing is lost, no lease and no task left.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from pumphouse import backoff
from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import NetworkError, OutcomeUnknownError
from pumphouse.model import Message
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatch,
    CreateQueue,
    DeleteMessageBatch,
    DeleteQueue,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from pumphouse.subscriber.outcomes import Drop, Outcome, Reject, Retry
from pumphouse.subscriber.queue import Queue

ATTEMPTS = 4
BATCHES = ((None, 0.0), (10, 0.0), (3, 0.0), (40, 1.0))
"""Sizes and windows: of two queues each, a standard and a FIFO one, in turn."""
TROUBLE = (ReceiveMessage, DeleteMessageBatch, ChangeMessageVisibilityBatch, SendMessage)
_RETRY = RetryPolicy(base_seconds=0.5, cap_seconds=20, max_attempts=None, budget_seconds=None)


@dataclass
class World:
    """What is known from the outside: what was sent, handled, deleted and dead-lettered."""

    seed: int
    rng: random.Random
    clock: VirtualClock
    account: Account
    calm: bool = False  # no more faults: it is to come to rest
    ids: dict[str, str] = field(default_factory=dict)  # message id: body
    by_handle: dict[str, str] = field(default_factory=dict)  # receipt handle: message id
    # bodies whose delete was confirmed, and to whom: somebody else may have such a one already
    deleted: set[tuple[str, Troubled]] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)  # bodies, by successful runs
    runs: Counter[str] = field(default_factory=Counter)
    dead: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)  # lost with a queue that was deleted
    sent: dict[str, list[str]] = field(default_factory=dict)  # bodies by queue
    order: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # bodies by group
    place: dict[str, tuple[tuple[str, str], int]] = field(default_factory=dict)
    reached: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def settled(self, body: str) -> bool:
        return body in self.done or body in self.dead or body in self.gone

    def complain(self, what: str) -> None:
        self.wrong.append(f"at {self.clock.monotonic():.3f}: {what}")


class Troubled:
    """A backend that goes wrong as networks and services do; a stop can't cancel its receives."""

    cancel_is_exact = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock

    async def execute(self, operation: Any) -> Any:
        # an answer that nobody waits for any more has its effect all the same
        return await asyncio.shield(asyncio.ensure_future(self._execute(operation)))

    async def _execute(self, operation: Any) -> Any:
        world, rng = self.world, self.world.rng
        if world.calm or not isinstance(operation, TROUBLE):
            return await self._carry_out(operation)
        drawn = rng.random()
        if drawn < 0.01:
            world.faults["throttled"] += 1
            raise fault("RequestThrottled", "slow down")
        if drawn < 0.02:
            world.faults["network"] += 1
            raise NetworkError("connection refused")
        if drawn < 0.025:
            world.faults["internal"] += 1
            raise fault("InternalError", "oops")
        if drawn < 0.035:
            world.faults["lost answer"] += 1
            await self._carry_out(operation)
            raise OutcomeUnknownError("connection reset")
        if drawn < 0.06:
            world.faults["slow"] += 1
            await world.clock.sleep(rng.uniform(0.05, 3))
        if isinstance(operation, ChangeMessageVisibilityBatch) and rng.random() < 0.02:
            world.faults["hangs"] += 1
            await world.clock.sleep(rng.uniform(5, 60))
            if rng.random() < 0.5:
                raise OutcomeUnknownError("nothing arrived")
        entries = getattr(operation, "entries", ())
        if entries and drawn > 0.97:
            return await self._in_part(operation)
        return await self._carry_out(operation)

    async def _in_part(self, operation: Any) -> Any:
        """Some entries fail, for a passing reason or for good."""
        rng, good, failed = self.world.rng, [], []
        for entry in operation.entries:
            drawn = rng.random()
            if drawn < 0.1:
                self.world.faults["entry failed"] += 1
                failed.append(BatchResultErrorEntry(entry.id, False, "InternalError", "oops"))
            elif drawn < 0.15:
                self.world.faults["entry refused"] += 1
                failed.append(BatchResultErrorEntry(entry.id, True, "ReceiptHandleIsInvalid", "no"))
            elif drawn < 0.2:
                self.world.faults["entry left out"] += 1
            else:
                good.append(entry)
        if not good:
            return operation.result([], failed)
        answer = await self._carry_out(type(operation)(operation.queue_url, good))
        return operation.result(answer.successful, [*failed, *answer.failed])

    async def _carry_out(self, operation: Any) -> Any:
        world = self.world
        answer = await world.account.execute(operation)
        if isinstance(operation, ReceiveMessage):
            for message in answer.messages:
                world.by_handle[message.receipt_handle] = message.message_id
                if not world.calm and world.rng.random() < 0.002:
                    world.faults["handle expired"] += 1
                    world.account.faults.expire_handle(message.receipt_handle)
        elif isinstance(operation, DeleteMessageBatch):
            handles = {entry.id: entry.receipt_handle for entry in operation.entries}
            for done in answer.successful:
                body = world.ids[world.by_handle[handles[done.id]]]
                world.deleted.add((body, self))
                if not world.settled(body):
                    world.complain(f"{body} was deleted and never handled")
        elif isinstance(operation, SendMessage) and "dead" in operation.queue_url:
            world.dead.add(operation.message_body)
        return answer

    async def aclose(self) -> None:
        """Nothing to give back."""


def service(world: World, names: list[str], backend: Troubled, drain_seconds: float) -> App:
    """An app that reads all queues, with a handler that behaves as each message's body draws."""
    app = App(drain_seconds=drain_seconds)
    clock = world.clock

    async def handle(body: str, message: Message) -> Any:
        started(world, backend, body, message)
        rng = random.Random(f"{world.seed}/{body}")
        kind, run = rng.random(), world.runs[body]
        if kind < 0.90:
            if kind < 0.3:
                await clock.sleep(rng.uniform(0, 0.05))
        elif kind < 0.93:
            await clock.sleep(rng.uniform(1, 40))
        elif kind < 0.97:
            await clock.sleep(0.01)
            if run <= rng.choice((1, 1, 2)):
                raise RuntimeError("fails at first")
        elif kind < 0.975:
            if run <= 1:
                await clock.sleep(1e9)
        elif kind < 0.98:
            if run <= 1:
                raise SystemExit(1)
        elif kind < 0.985:
            if run <= 1:
                raise asyncio.CancelledError
        elif kind < 0.99:
            if run <= 1:
                return Retry(after=rng.choice((0, 1, 50)))
        elif kind < 0.993:
            return Reject("as drawn")
        elif kind < 0.996:
            world.done[body] += 1
            return Drop("as drawn")
        else:
            raise RuntimeError("poison")
        world.done[body] += 1
        return None

    async def handle_batch(bodies: list[str], messages: list[Message]) -> list[Outcome | None]:
        for number, (body, message) in enumerate(zip(bodies, messages, strict=True)):
            started(world, backend, body, message, before=bodies[:number])
        kind = world.rng.random()
        if kind < 0.3:
            await clock.sleep(world.rng.uniform(0, 0.05))
        elif kind < 0.36:
            await clock.sleep(world.rng.uniform(1, 40))
        elif kind < 0.37:
            await clock.sleep(1e9)
        elif kind < 0.375:
            raise SystemExit(1)
        elif kind < 0.38:
            raise asyncio.CancelledError
        elif kind < 0.39:
            raise RuntimeError("all of it")
        outcomes = [one_of_batch(world, body) for body in bodies]
        stuck: set[str] = set()  # groups that go on at a message before
        for body, message, outcome in zip(bodies, messages, outcomes, strict=True):
            group = message.group_id
            if group in stuck:
                continue
            if outcome is None or (isinstance(outcome, Drop) and not message.lease_lost):
                world.done[body] += 1
            elif group is not None and (not isinstance(outcome, Reject) or message.lease_lost):
                stuck.add(group)
        return outcomes

    for name in names:
        fifo = name.endswith(".fifo")
        batch, window = how_batched(name)
        app.subscriber(
            Queue(name, visibility_timeout=20, create_if_missing=True),
            batch=batch,
            batch_window=window,
            concurrency=4 if batch else 16,
            timeout=60,
            retry=_RETRY,
            max_attempts=ATTEMPTS,
            dead_letter=Queue("dead.fifo" if fifo else "dead", create_if_missing=True),
        )(handle_batch if batch else handle)
    return app


def how_batched(name: str) -> tuple[int | None, float]:
    number = int(name.removesuffix(".fifo").removeprefix("q"))
    return BATCHES[number // 2 % len(BATCHES)]


def one_of_batch(world: World, body: str) -> Any:
    """What comes of one message of a batch, as its body draws."""
    rng = random.Random(f"{world.seed}/{body}")
    kind, run = rng.random(), world.runs[body]
    if kind < 0.87:
        return None
    if kind < 0.93:
        return RuntimeError("fails at first") if run <= rng.choice((1, 1, 2)) else None
    if kind < 0.97:
        counts = rng.random() < 0.5
        return Retry(after=rng.choice((0, 1, 50)), counts=counts) if run <= 1 else None
    if kind < 0.985:
        return Reject("as drawn")
    return Drop("as drawn") if kind < 0.995 else RuntimeError("poison")


def started(
    world: World, backend: Troubled, body: str, message: Message, before: Collection[str] = ()
) -> None:
    """Check what must hold when a handler starts; `before` it has those in its batch."""
    world.runs[body] += 1
    if (body, backend) in world.deleted:
        world.complain(f"{body} is handled after its confirmed delete")
    if message.group_id is None:
        return
    group, place = world.place[body]
    order = world.order[group]
    at = world.reached[group]
    while at < len(order) and world.settled(order[at]):
        at += 1
    world.reached[group] = at
    early = [each for each in order[at:place] if not world.settled(each) and each not in before]
    if early:
        world.complain(f"{body} starts before {early[0]} of its group is done")


async def feed(world: World, name: str, messages: int, seconds: float) -> None:
    """Send a queue's messages over a stretch of time."""
    rng = world.rng
    fifo = name.endswith(".fifo")
    groups = 4 if how_batched(name)[0] else 40
    number = 0
    while number < messages:
        entries, bodies = [], []
        for _ in range(min(10, messages - number)):
            body = f"{name}#{number}"
            group = f"g{rng.randrange(groups)}" if fifo else None
            entries.append(
                SendMessageBatchRequestEntry(
                    str(len(entries)),
                    body,
                    message_group_id=group,
                    message_deduplication_id=body if fifo else None,
                )
            )
            bodies.append((body, group))
            number += 1
        url = world.account.within().url_of(name)
        while True:
            try:
                answer = await world.account.execute(SendMessageBatch(url, entries))
                break
            except Exception:  # the queue is deleted just now
                await world.clock.sleep(5)
        for stored, (body, group) in zip(answer.successful, bodies, strict=True):
            world.ids[stored.message_id] = body
            world.sent[name].append(body)
            if group is not None:
                order = world.order.setdefault((name, group), [])
                world.place[body] = ((name, group), len(order))
                order.append(body)
        if rng.random() < 10 / messages * 40:
            await world.clock.sleep(rng.uniform(0, 2 * seconds / 40))


async def serve(world: World, names: list[str], until: asyncio.Event) -> None:
    """Services that are stopped in the middle, again and again, gently or not."""
    while not until.is_set():
        backend = Troubled(world)
        app = service(world, names, backend, drain_seconds=world.rng.choice((0.0, 1.0, 5.0, 30.0)))
        async with app.running(backend) as running:
            waiter = asyncio.ensure_future(until.wait())
            timer = asyncio.ensure_future(world.clock.sleep(world.rng.uniform(20, 200)))
            await asyncio.wait({waiter, timer}, return_when=asyncio.FIRST_COMPLETED)
            for each in (waiter, timer):
                each.cancel()
            running.request_stop()
            if world.rng.random() < 0.3:
                running.request_stop()
            await running.drain()
            for consumer in running.consumers:
                exits = consumer.exits
                if exits.live or exits.at_work or exits.in_place or [*exits.lanes]:
                    world.complain(f"{consumer.name} stopped with something in its hands")


async def destroy(world: World, names: list[str]) -> None:
    """Delete queues in the middle of it, with what is in them, and make them again."""
    for name in names:
        await world.clock.sleep(world.rng.uniform(30, 90))
        world.faults["queue deleted"] += 1
        url = world.account.within().url_of(name)
        await world.account.execute(DeleteQueue(url))
        world.gone.update(world.sent[name])
        await world.clock.sleep(world.rng.uniform(1, 40))
        await create(world, name)


async def create(world: World, name: str) -> None:
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else None
    await world.account.execute(CreateQueue(name, attributes))


async def simulate(
    seed: int, *, queues: int = 20, messages: int = 100_000, seconds: float = 600
) -> World:
    """Run one simulation; the world at its end, with what was wrong in `wrong`."""
    log = logging.getLogger("pumphouse")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return await _simulate(seed, queues, messages, seconds)
    finally:
        log.setLevel(level)


async def _simulate(seed: int, queues: int, messages: int, seconds: float) -> World:
    backoff._shared.seed(seed)  # the delays too, to be replayed
    clock = VirtualClock()
    account = Account(clock=clock, ledger_room=0, sixty_second_rules=False)
    world = World(seed, random.Random(seed), clock, account)
    names = [f"q{number}{'.fifo' if number % 2 else ''}" for number in range(queues)]
    for name in (*names, "dead", "dead.fifo"):
        world.sent[name] = []
        await create(world, name)
    until = asyncio.Event()
    feeders = [
        asyncio.ensure_future(feed(world, name, messages // queues, seconds)) for name in names
    ]
    services = [asyncio.ensure_future(serve(world, names, until)) for _ in range(2)]
    doomed = asyncio.ensure_future(destroy(world, names[:2]))
    everything = [*feeders, doomed, *services]
    try:
        await clock.run_until(lambda: all(each.done() for each in (*feeders, doomed)))
        await clock.advance(60)
        world.calm = True
        await clock.run_until(lambda: at_rest(world, names), limit_seconds=20_000)
        until.set()
        await clock.run_until(lambda: all(each.done() for each in services))
    except TimeoutError as error:
        world.complain(f"it does not come to rest: {error}")
        for each in everything:
            each.cancel()
        await asyncio.wait(everything, timeout=5)
    for each in everything:
        if each.done() and not each.cancelled() and each.exception():
            world.complain(f"{each.exception()!r}")
    check(world, names)
    return world


def at_rest(world: World, names: list[str]) -> bool:
    return all(
        not (queue.visible or queue.in_flight or queue.delayed)
        for queue in map(world.account.queue, names)
    )


def check(world: World, names: list[str]) -> None:
    """What must hold when all is over."""
    for name in names:
        lost = [body for body in world.sent[name] if not world.settled(body)]
        if lost:
            world.complain(f"{len(lost)} messages of {name} are lost: {lost[:5]}")
        queue = world.account.queue(name)
        if queue.in_flight:
            world.complain(f"{queue.in_flight} leases are left on {name}")
    if timers := [timer.callback for _, _, timer in world.clock._timers if not timer.cancelled]:
        world.complain(f"{len(timers)} timers are left: {timers[:3]}")
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        world.complain(f"{len(others)} tasks are left: {list(others)[:3]}")
