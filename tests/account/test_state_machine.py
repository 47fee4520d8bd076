"""Thousands of random steps against a small, obvious model of what a queue may do.

The model is a list of messages in the order of their sends, and knows nothing of how the account
finds them. After each step the account must agree with it: which messages are visible, in flight,
delayed or gone, what a receive may bring and in which order, with which receive counts.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import MessageNotInflight, ReceiptHandleExpired, RefusedError
from pumphouse.protocol.operations import ReceivedMessage
from support.a_queue import AQueue

RETENTION = 400
MOST_RECEIVES = 6


@dataclass
class Known:
    """What the model knows of a message. `hidden_until` is the end of its delay or lease."""

    body: str
    message_id: str
    group: str
    sent: float
    hidden_until: float
    handles: list[str] = field(default_factory=list)
    leased: bool = False
    gone: bool = False
    dead: bool = False


class Model(RuleBasedStateMachine):
    """Both kinds of queue; `fifo` says which."""

    fifo = False
    handles = Bundle("handles")
    polls = Bundle("polls")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.account = Account(clock=self.clock)
        self.known: list[Known] = []
        self.deduplicated: dict[str, tuple[float, str]] = {}
        self.open: dict[int, tuple[asyncio.Task[Any], float]] = {}
        self.number = 0

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @initialize(
        visibility=st.integers(0, 30), delay=st.sampled_from([0, 0, 0, 5]), redrive=st.booleans()
    )
    def create(self, visibility: int, delay: int, redrive: bool) -> None:
        suffix = ".fifo" if self.fifo else ""
        self.visibility, self.delay, self.redrive = visibility, delay, redrive

        async def make() -> tuple[AQueue, AQueue]:
            dead = await AQueue.create(self.account, f"dead{suffix}")
            more: dict[str, object] = {}
            if redrive:
                arn = self.account.queue(dead.url).arn
                more["RedrivePolicy"] = (
                    f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{MOST_RECEIVES}}}'
                )
            queue = await AQueue.create(
                self.account,
                f"q{suffix}",
                VisibilityTimeout=visibility,
                DelaySeconds=delay,
                MessageRetentionPeriod=RETENTION,
                **more,
            )
            return queue, dead

        self.queue, self.dead = self.run(make())

    # --- the model's view -----------------------------------------------------------------------

    def alive(self) -> list[Known]:
        for each in self.known:
            if self.now >= each.sent + RETENTION:
                each.gone = True
            if each.leased and self.now >= each.hidden_until:
                each.leased = False
        return [each for each in self.known if not each.gone]

    def visible(self) -> list[Known]:
        return [each for each in self.alive() if self.now >= each.hidden_until]

    def may_come(self) -> list[Known]:
        """What a receive of any size may bring; on FIFO the visible front of each group."""
        if not self.fifo:
            return self.visible()
        found, blocked = [], set()
        for each in self.alive():
            if self.now < each.hidden_until:
                blocked.add(each.group)
            elif each.group not in blocked:
                found.append(each)
        return found

    # --- steps ----------------------------------------------------------------------------------

    @rule(
        group=st.sampled_from("abc"),
        delay=st.sampled_from([None, None, 0, 3, 20]),
        again=st.sampled_from([False, False, False, True]),
        count=st.integers(1, 4),
    )
    def send(self, group: str, delay: int | None, again: bool, count: int) -> None:
        bodies = []
        for _ in range(count):
            self.number += 1
            bodies.append(str(self.number))
        more: dict[str, Any] = {"message_group_id": group}
        if self.fifo:
            delay = None
            key = f"k{max(1, self.number - 3)}" if again else f"k{self.number}"
            bodies = bodies[-1:]
            more["message_deduplication_id"] = key
        else:
            more["delay_seconds"] = delay
        answer = self.run(self.queue.send_batch(*bodies, **more))
        assert not answer.failed
        for body, entry in zip(bodies, answer.successful, strict=True):
            if self.fifo:
                until, first = self.deduplicated.get(key, (0.0, ""))
                if self.now < until:
                    assert entry.message_id == first
                    continue
                self.deduplicated[key] = (self.now + 300, entry.message_id)
            wait = self.delay if delay is None else delay
            self.known.append(Known(body, entry.message_id, group, self.now, self.now + wait))
        self.settle_polls()

    @rule(
        target=handles,
        number=st.integers(1, 10),
        visibility=st.sampled_from([None, None, 0, 1, 7, 60]),
    )
    def receive(self, number: int, visibility: int | None) -> Any:
        received = self.run(
            self.queue.receive(number, visibility=visibility, attribute_names=["All"])
        )
        self.received(received, number, visibility)
        self.settle_polls()
        return multiple(*[message.receipt_handle for message in received])

    def received(
        self, received: list[ReceivedMessage], number: int, visibility: int | None
    ) -> None:
        """Check what a receive brought, and let the model follow it."""
        may_come = self.may_come()
        spent = self.spent(may_come)
        fresh = [each for each in may_come if each not in spent]
        by_id = {each.message_id: each for each in may_come}
        came = [by_id.pop(message.message_id) for message in received]  # each once, each allowed
        assert len(received) == min(number, len(fresh))
        assert not any(each in spent for each in came)
        if self.fifo:
            for group in "abc":
                mine = [each for each in came if each.group == group]
                assert mine == [each for each in fresh if each.group == group][: len(mine)]
        # dead letters that stood before what came have gone; the account says which
        self.bury(spent)
        if len(received) < number:
            assert all(each.dead for each in spent)
        lease = self.visibility if visibility is None else visibility
        for each, message in zip(came, received, strict=True):
            assert message.body == each.body
            assert message.receipt_handle not in each.handles
            each.handles.append(message.receipt_handle)
            assert message.attributes["ApproximateReceiveCount"] == str(len(each.handles))
            each.hidden_until = self.now + lease
            each.leased = lease > 0

    def spent(self, may_come: list[Known]) -> list[Known]:
        return [each for each in may_come if self.redrive and len(each.handles) >= MOST_RECEIVES]

    def bury(self, spent: list[Known]) -> None:
        """What of it is a dead letter by now has gone."""
        dead = {message.message_id for message in self.dead_letters()}
        for each in spent:
            if each.message_id in dead:
                each.gone = each.dead = True

    def dead_letters(self) -> list[Any]:
        return list(self.account.queue(self.dead.url).messages.values())

    @rule(handle=consumes(handles))
    def delete(self, handle: str) -> None:
        each = self.of(handle)
        ok = not self.fifo or each.gone or (each.leased and each.handles[-1] == handle)
        try:
            self.run(self.queue.delete(handle))
            assert ok
            each.gone = True
        except ReceiptHandleExpired:
            assert not ok
        self.settle_polls()

    @rule(handle=handles, seconds=st.sampled_from([0, 0, 2, 10, 90]))
    def change(self, handle: str, seconds: int) -> None:
        each = self.of(handle)
        latest = each.handles[-1] == handle
        holds = latest and each.leased and not each.gone
        try:
            self.run(self.queue.change(handle, seconds))
            assert holds or (latest and not self.fifo and not each.gone)
            if holds:
                each.hidden_until = self.now + seconds
                each.leased = seconds > 0
        except (RefusedError, MessageNotInflight):
            assert not holds
        self.settle_polls()

    def of(self, handle: str) -> Known:
        self.alive()
        return next(each for each in self.known if handle in each.handles)

    @rule(seconds=st.sampled_from([0.25, 1, 1, 4, 10, 31, 120]))
    def advance(self, seconds: float) -> None:
        # Everything falls due at whole quarters of a second: a poll is checked where it takes.
        steps = [0.25] * min(round(4 * seconds), 40) if self.open else [seconds]
        for step in steps:
            self.run(self.clock.advance(step))
            self.settle_polls()

    @rule(target=polls)
    def park(self) -> int:
        self.number += 1
        task = self.loop.create_task(
            self.queue.receive(3, wait=20, visibility=5, attribute_names=["All"])
        )
        self.open[self.number] = (task, self.now)
        self.settle_polls()
        return self.number

    @rule(poll=consumes(polls), message_first=st.booleans())
    def give_up(self, poll: int, message_first: bool) -> None:
        if poll not in self.open:
            return
        task, _ = self.open.pop(poll)
        if message_first:  # it is woken and then cancelled, before it could run

            async def race() -> None:
                self.number += 1
                more: dict[str, Any] = {"message_group_id": "race"}
                if not self.fifo:
                    more["delay_seconds"] = 0
                sent = await self.queue.send(str(self.number), **more)
                wait = self.delay if self.fifo else 0
                self.known.append(
                    Known(str(self.number), sent.message_id, "race", self.now, self.now + wait)
                )
                task.cancel()

            self.run(race())
        else:
            task.cancel()
        self.settle_polls()
        assert task.cancelled()

    def settle_polls(self) -> None:
        """Let polls that were woken take, and check each as a receive of its own."""
        self.run(self.clock.settle())
        for number, (task, started) in list(self.open.items()):
            if task.done():
                del self.open[number]
                received = task.result()
                if received:
                    self.received(received, 3, 5)
                else:
                    assert self.now >= started + 20
            else:
                assert self.now < started + 20
        if self.open:  # one that waits has moved what would have come once too often
            self.bury(self.spent(self.may_come()))

    # --- what always holds ----------------------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        alive = self.alive()
        visible = self.visible()
        leased = sum(each.leased for each in alive)
        delayed = len(alive) - len(visible) - leased
        assert self.run(self.queue.counts()) == (len(visible), leased, delayed)

    @invariant()
    def nobody_waits_beside_a_message(self) -> None:
        if self.open:
            assert not self.may_come()

    @invariant()
    def nothing_is_kept_of_what_is_gone(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue = self.account.queue(self.queue.url)
        alive = len(self.alive())
        assert len(queue.messages) == alive
        for timeline in (queue._ages, queue._leases, queue._delays):
            assert len(timeline) <= 2 * alive + 70

    def teardown(self) -> None:
        for task, _ in self.open.values():
            task.cancel()
        self.run(self.clock.settle())
        if hasattr(self, "queue"):
            assert self.clock.next_timer is None
        self.loop.close()


class FifoModel(Model):
    fifo = True


SETTINGS = settings(
    max_examples=25,
    stateful_step_count=50,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

TestStandard = Model.TestCase
TestStandard.settings = SETTINGS
TestFifo = FifoModel.TestCase
TestFifo.settings = SETTINGS


def test_a_poll_that_waits_moves_what_came_too_often() -> None:
    state = FifoModel()
    state.create(visibility=0, delay=0, redrive=True)
    state.send(group="a", delay=None, again=False, count=1)
    for _ in range(MOST_RECEIVES):
        state.receive(number=1, visibility=7)
        state.advance(seconds=4)
        state.park()
        state.advance(seconds=4)
    state.counts_agree()
    assert [each.dead for each in state.known] == [True]
    assert state.open, "the poll that moved it waits on"
    state.teardown()
