"""Several processes on one FIFO queue, every interleaving: one in flight per group, and in order.

Hypothesis claims, acks, nacks, extends, lets leases lapse, cancels, closes and crashes, with faults
of the service in between, on a virtual clock. Every lease that is handed out is checked from the
outside against all that were handed out before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, register_random, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from pumphouse import backoff
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import PumphouseError
from pumphouse.transport import Lease, LeaseTransport

T = TypeVar("T")
register_random(backoff._shared)  # jitter repeats with the example
GROUPS = ("A", "B", "C")


class Plug:
    """A backend that can be pulled out: from then on nothing is executed or answered."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.pulled = False

    async def execute(self, operation: Any) -> Any:
        if self.pulled:
            await asyncio.get_running_loop().create_future()
        result = await self.account.execute(operation)
        if self.pulled:
            await asyncio.get_running_loop().create_future()
        return result

    async def aclose(self) -> None:
        pass


@dataclass(eq=False)
class Process:
    """A process with a transport of its own; `lives` until it crashes or closes."""

    transport: LeaseTransport[int]
    plug: Plug
    lives: bool = True


@dataclass(eq=False)
class Claim:
    process: Process
    task: asyncio.Task[Lease[int] | None]


@dataclass(eq=False)
class Given:
    """A lease that a worker got, as the world sees it."""

    process: Process
    lease: Lease[int]
    number: int
    over: bool = False
    """The worker is done with it: it acked or nacked, or was told that the lease is lost."""
    until: float = 0.0
    """The deadline when the process died."""


@dataclass
class Story:
    """What happened to the events of one group."""

    published: int = 0
    acked: set[int] = field(default_factory=set)
    """Whose ack was confirmed: never seen again."""
    acking: set[int] = field(default_factory=set)
    """Whose ack was called, whatever came of it."""


class Leases(RuleBasedStateMachine):
    processes = Bundle("processes")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.account = Account(clock=self.clock)
        self.stories = {group: Story() for group in GROUPS}
        self.open_claims: list[Claim] = []
        self.ended: list[asyncio.Task[Lease[int] | None]] = []
        """Claims that have ended, in the order in which they did: many may in one step."""
        self.given: list[Given] = []
        self.settling: list[tuple[Given, asyncio.Task[None], bool]] = []
        self.everyone: list[Process] = []
        self.run(self._first())

    async def _first(self) -> None:
        self.url = (await LeaseTransport.create("jobs", self.account, clock=self.clock)).queue_url

    def run(self, work: Awaitable[T]) -> T:
        async def together() -> T:
            return await work

        return self.loop.run_until_complete(together())

    # --- what happens ---------------------------------------------------------------------------

    @initialize(target=processes)
    def start_two(self) -> Any:
        return multiple(self._start(True), self._start(True))

    @rule(target=processes, coalesce=st.sampled_from([True, True, False]))
    def start_process(self, coalesce: bool) -> Any:
        if sum(process.lives for process in self.everyone) >= 3:
            return multiple()
        return self._start(coalesce)

    def _start(self, coalesce: bool) -> Process:
        async def start() -> Process:
            plug = Plug(self.account)
            transport = LeaseTransport[int](plug, self.url, clock=self.clock, coalesce=coalesce)
            return Process(transport, plug)

        process = self.run(start())
        self.everyone.append(process)
        return process

    @rule(group=st.sampled_from(GROUPS), count=st.integers(2, 5))
    def publish(self, group: str, count: int) -> None:
        async def publish() -> None:
            transport = LeaseTransport[int](self.account, self.url, clock=self.clock)
            for _ in range(count):
                number = self.stories[group].published
                self.stories[group].published += 1
                task = asyncio.ensure_future(transport.publish(group, number))
                await self.clock.run_until(task.done)
                task.result()

        self.run(publish())

    @rule(
        process=processes,
        visibility=st.sampled_from([1, 10, 10, 10, 30]),
        wait=st.sampled_from([0, 1, 20]),
        count=st.sampled_from([1, 3, 6]),
    )
    def claim(self, process: Process, visibility: int, wait: int, count: int) -> None:
        if not process.lives:
            return

        async def claim() -> None:
            for _ in range(count):
                task = asyncio.ensure_future(
                    process.transport.claim("w", visibility, wait_seconds=wait)
                )
                task.add_done_callback(self.ended.append)
                self.open_claims.append(Claim(process, task))
            await self.clock.settle()

        self.run(claim())

    @rule(data=st.data())
    def cancel_claim(self, data: st.DataObject) -> None:
        if not self.open_claims:
            return
        claim = data.draw(st.sampled_from(self.open_claims))

        async def cancel() -> None:
            claim.task.cancel()
            await self.clock.settle()

        self.run(cancel())
        if claim.task.cancelled():
            self.open_claims.remove(claim)

    def _held(self) -> list[Given]:
        return [given for given in self.given if given.process.lives and not given.over]

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        if held := self._held():
            given = data.draw(st.sampled_from(held))
            self.stories[given.lease.group_id].acking.add(given.number)
            self._settle(given, given.process.transport.ack(given.lease), True)

    @rule()
    def ack_all(self) -> None:
        for given in self._held():
            self.stories[given.lease.group_id].acking.add(given.number)
            self._settle(given, given.process.transport.ack(given.lease), True)

    @rule(data=st.data(), delay=st.sampled_from([0, 0, 3, 40]))
    def nack(self, data: st.DataObject, delay: int) -> None:
        if held := self._held():
            given = data.draw(st.sampled_from(held))
            self._settle(given, given.process.transport.nack(given.lease, delay), False)

    def _settle(self, given: Given, work: Any, is_ack: bool) -> None:
        given.over = True

        async def settle() -> None:
            self.settling.append((given, asyncio.ensure_future(work), is_ack))
            await self.clock.settle()

        self.run(settle())

    @rule(data=st.data(), visibility=st.sampled_from([1, 10, 60]))
    def extend(self, data: st.DataObject, visibility: int) -> None:
        if held := self._held():
            given = data.draw(st.sampled_from(held))

            async def extend() -> None:
                task = asyncio.ensure_future(
                    given.process.transport.extend(given.lease, visibility)
                )
                await self.clock.run_until(task.done)
                try:
                    task.result()
                except PumphouseError:
                    given.over = given.over or given.lease.lost

            self.run(extend())

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.2, 1, 4, 11, 45]))
    def wait(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    @rule(process=processes, really=st.sampled_from([True, False, False]))
    def crash(self, process: Process, really: bool) -> None:
        if process.lives and really:
            self._end(process)

            async def crash() -> None:
                process.plug.pulled = True
                for claim in [claim for claim in self.open_claims if claim.process is process]:
                    claim.task.cancel()
                    self.open_claims.remove(claim)
                for _, task, _ in [each for each in self.settling if each[0].process is process]:
                    task.cancel()
                for task in process.transport._engine.tasks._running:
                    task.cancel()
                await self.clock.settle()

            self.run(crash())

    @rule(process=processes, really=st.sampled_from([True, False, False]))
    def close(self, process: Process, really: bool) -> None:
        if process.lives and really:

            async def close() -> None:
                task = asyncio.ensure_future(process.transport.close())
                await self.clock.run_until(task.done)
                task.result()

            self.run(close())
            self._end(process)

    def _end(self, process: Process) -> None:
        process.lives = False
        for given in self.given:
            if given.process is process and not given.over:
                given.until = given.lease.deadline

    @rule(
        action=st.sampled_from(
            ["DeleteMessageBatch", "ChangeMessageVisibilityBatch", "ReceiveMessage"]
        ),
        kind=st.sampled_from(
            ["throttle", "lose_answer", "lose_request", "slow", "entries", "gone"]
        ),
    )
    def trouble(self, action: str, kind: str) -> None:
        faults = self.account.faults
        if kind == "slow":
            faults.delay(action, 0.3)
        elif kind == "gone":  # SQS has ended a lease before its time
            if action == "ChangeMessageVisibilityBatch":
                faults.fail_entries(action, [1], "MessageNotInflight", sender_fault=True)
        elif kind != "entries":
            getattr(faults, kind)(action)
        elif action.endswith("Batch"):
            faults.fail_entries(action, [0, 2])

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def what_came_is_in_order_and_alone(self) -> None:
        self._collect()

    def _collect(self) -> None:
        for given, task, is_ack in list(self.settling):
            if task.done():
                self.settling.remove((given, task, is_ack))
                if not task.cancelled() and task.exception() is None and is_ack:
                    self.stories[given.lease.group_id].acked.add(given.number)
                elif not task.cancelled() and task.exception() is not None:
                    assert isinstance(task.exception(), PumphouseError), task.exception()
                    # The worker may try again, as long as it has the lease.
                    given.over = given.lease.lost or given.lease.settled
        order = {task: place for place, task in enumerate(self.ended)}
        done = [claim for claim in self.open_claims if claim.task.done()]
        for claim in sorted(done, key=lambda claim: order.get(claim.task, len(order))):
            self.open_claims.remove(claim)
            try:
                lease = claim.task.result()
            except PumphouseError:
                continue
            if lease is not None:
                self._check(claim.process, lease)
        self.ended.clear()

    def _check(self, process: Process, lease: Lease[int]) -> None:
        now = self.clock.monotonic()
        story = self.stories[lease.group_id]
        number = lease.event
        assert number not in story.acked, f"{lease.group_id}{number} was acked and came again"
        missing = set(range(number)) - story.acking
        assert not missing, f"{lease.group_id}{number} came before {sorted(missing)}"
        for other in self.given:
            if other.lease.group_id != lease.group_id or other.over:
                continue
            if not other.process.lives:
                assert other.until <= now, f"{lease!r} while a dead process has {other.lease!r}"
            else:
                assert other.lease.lost, f"{lease!r} while {other.lease!r}"
        self.given.append(Given(process, lease, number))

    def teardown(self) -> None:
        try:
            self._drain()
        finally:
            self.run(self._cancel_all())
            self.loop.close()

    def _drain(self) -> None:
        """In the end every event is acked by someone, in order, and nothing is left over."""
        self.account.faults.clear()
        for process in self.everyone:
            self._close_quietly(process)
        self.run(self.clock.advance(100))
        self._collect()
        self.settling.clear()

        async def start() -> Process:
            return Process(
                LeaseTransport[int](self.account, self.url, clock=self.clock), Plug(self.account)
            )

        last = self.run(start())

        async def rest() -> None:
            while True:
                tasks = [
                    asyncio.ensure_future(last.transport.claim("w", 30, wait_seconds=1))
                    for _ in range(4)
                ]
                await self.clock.run_until(lambda tasks=tasks: all(task.done() for task in tasks))
                leases = [lease for task in tasks if (lease := task.result()) is not None]
                if not leases:
                    return
                for lease in leases:
                    self._check(last, lease)
                    self.stories[lease.group_id].acking.add(lease.event)
                    done = asyncio.ensure_future(last.transport.ack(lease))
                    await self.clock.run_until(done.done)
                    done.result()
                    self.given[-1].over = True
                    for given in self.given:
                        if given.lease is lease:
                            given.over = True
                    self.stories[lease.group_id].acked.add(lease.event)

        self.run(rest())
        for group, story in self.stories.items():
            assert story.acking >= set(range(story.published)), group
        queue = self.account.queue("jobs.fifo")
        assert (queue.visible, queue.in_flight) == (0, 0), queue
        self._close_quietly(last)
        assert last.transport._engine._board.out == 0

    def _close_quietly(self, process: Process) -> None:
        if process.lives:

            async def close() -> None:
                task = asyncio.ensure_future(process.transport.close())
                await self.clock.run_until(task.done)

            self.run(close())
            self._end(process)

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


COMMON = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_every_interleaving_keeps_groups_alone_and_in_order() -> None:
    run_state_machine_as_test(Leases, settings=settings(COMMON, max_examples=25))


@pytest.mark.soak
def test_very_many_interleavings_do() -> None:
    run_state_machine_as_test(Leases, settings=settings(COMMON, max_examples=2000))


def test_leases_of_one_step_are_judged_in_the_order_in_which_they_came() -> None:
    """The clock moves by four seconds at once, and the leases last for one: the event goes from
    claim to claim, of either process."""
    state = Leases()
    first, second = state.start_two()
    state.claim(count=3, process=second, visibility=1, wait=20)
    state.claim(count=1, process=second, visibility=1, wait=20)
    for _ in range(3):
        state.wait(seconds=0.001)
    state.publish(count=2, group="A")
    state.claim(count=1, process=first, visibility=1, wait=1)
    state.wait(seconds=4)
    state.what_came_is_in_order_and_alone()
    state.teardown()
