"""The board: what is held for whom, and what happens next. Plain scheduling code.

No IO and no clock: every call is told the time, changes the board, and leaves *steps* behind, which
`LeaseTransport` takes and carries out. A message's way over the board:

1. A claim `join`s as a `Waiter`. `next_poll` says when a receive has to start and for how much:
   waiters that ask for the same lease and the same wait share one, for as many messages as there
   are waiters. While one is open the next waiters gather behind it.
2. `answered` puts what came on the board: a `Chain` for each group, in order. The chain's head goes
   to a waiter (`Deliver`). The others are its followers: held, and extended along with the head.
3. `settled` takes the head off; the follower behind it is the next head. It goes to a waiter, waits
   `grace_seconds` for one, or is given back with all behind it (`Release`).
4. A nack, a failed ack and a lost lease give the followers back at once. SQS hands nothing out
   behind a message that is in flight, so order holds whichever of the changes arrives first.

What is handed out must be leased for as long as was asked, and a lease is counted from when its
receive was asked for: only that is known. A message with more than a third of its time left (half
of what is asked now, where it was leased for another time) goes out at once, and is topped up when
half of that is gone (`Renew`), which a quick worker never needs. Any other is extended first
(`Grant`).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf

from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.transport.pieces import (
    Chain,
    Deliver,
    Grant,
    Held,
    Nothing,
    Poll,
    Release,
    Renew,
    State,
    Step,
    Waiter,
)
from pumphouse.transport.waiting import Lines


class Board:
    """See the module. `share` False gives each claim a receive of its own, for one message."""

    def __init__(
        self, *, share: bool = True, grace_seconds: float = 0.1, max_polls: int = 8
    ) -> None:
        self.grace_seconds = grace_seconds
        self.out = 0
        """How many messages are in workers' hands and not being settled."""
        self._lines = Lines(share=share, max_polls=max_polls)
        self._chains: dict[str, Chain] = {}
        self._ready: dict[Chain, None] = {}
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Chain]] = []
        self._steps: list[Step] = []
        self._closing = False

    def take_steps(self) -> list[Step]:
        """What has to be done now, in order; the board forgets it."""
        steps, self._steps = self._steps, []
        return steps

    # --- claims ---------------------------------------------------------------------------------

    def join(self, waiter: Waiter, now: float) -> None:
        """A claim begins to wait."""
        self._lines.join(waiter)
        self._assign(now)

    def leave(self, waiter: Waiter) -> None:
        """A claim was cancelled. What was on its way to it goes to another one, or back."""
        if not self._lines.leave(waiter):
            for chain in self._chains.values():
                if chain.waiter is waiter:
                    chain.waiter = None

    def returned(self, held: Held, now: float) -> None:
        """A message was handed to a claim that was cancelled in the same moment."""
        chain = self._current(held)
        if held.state is State.OUT and chain is not None:
            self._set(held, State.HELD)
            self._make_ready(chain, now, now)

    def close(self, now: float) -> None:
        """Take no more claims: those that wait get nothing, and what nobody has is given back."""
        self._closing = True
        self._steps += [Nothing(waiter) for waiter in self._lines.clear()]
        for chain in list(self._chains.values()):
            if chain.waiter is not None:
                self._steps.append(Nothing(chain.waiter))
                chain.waiter = None
            if chain.members[0].state is State.HELD:
                self._dissolve(chain, now)
            else:
                self._cut(chain, 1, now)

    # --- receives -------------------------------------------------------------------------------

    def next_poll(self, now: float) -> Poll | None:
        """The next receive to start, or None; call it until it says None."""
        return self._lines.next_poll(now)

    def answered(
        self,
        poll: Poll,
        messages: Sequence[tuple[str, ReceivedMessage]],
        now: float,
        since: float,
    ) -> None:
        """A receive ended, with messages by group or with none; their leases are counted from
        `since`."""
        self._lines.answered(poll, len(messages))
        arrived: dict[str, deque[Held]] = {}
        for group_id, message in messages:
            held = Held(group_id, message, since + poll.visibility, poll.visibility)
            arrived.setdefault(group_id, deque()).append(held)
        for group_id, members in arrived.items():
            if (old := self._chains.get(group_id)) is not None:
                self._supersede(old)
            chain = self._chains[group_id] = Chain(group_id, members)
            self._make_ready(chain, now, now, poll)
        if not messages:
            self._steps += [Nothing(waiter) for waiter in self._lines.served(poll, now)]
        self._lines.tidy(poll)

    def failed(self, poll: Poll, error: BaseException) -> None:
        """A receive failed for good: the claims that it was for hear why."""
        self._steps += [Nothing(waiter, error) for waiter in self._lines.failed(poll)]

    # --- settling -------------------------------------------------------------------------------

    def settling(self, held: Held, now: float, *, keep_followers: bool) -> None:
        """A worker is acking its message, or giving it back (then its followers go back too)."""
        self._set(held, State.SETTLING)
        if not keep_followers and (chain := self._current(held)) is not None:
            self._cut(chain, 1, now)

    def settled(self, held: Held, now: float) -> None:
        """The service confirmed: the message is deleted, or given back."""
        chain = self._current(held)
        self._set(held, State.GONE)
        if chain is None:
            return
        chain.members.popleft()
        if chain.members:
            self._make_ready(chain, now, now + self.grace_seconds)
        else:
            del self._chains[chain.group_id]

    def not_settled(self, held: Held, now: float, *, lost: bool) -> None:
        """An ack or a nack failed: the worker still has the message, or lost it. What stood behind
        it goes back, because nobody knows what is deleted."""
        if held.state is not State.SETTLING:
            return
        self._set(held, State.OUT)
        chain = self._current(held)
        if lost or chain is None:
            self._lose(held, now)
        else:
            self._cut(chain, 1, now)
            self._watch(chain)

    def extending(self, head: Held) -> list[Held]:
        """What has to be extended when a worker extends its lease: the head and its followers.
        From now on the lease lasts as long as the worker says."""
        head.promised = 0.0
        chain = self._current(head)
        return list(chain.members) if chain is not None else [head]

    def extended(self, held: Held, deadline: float | None, now: float) -> None:
        """A lease was extended to `deadline`; None when the service says that it is over."""
        chain = self._chains.get(held.group_id)
        if chain is None or held not in chain.members:
            return
        if deadline is not None:
            held.deadline = deadline
            self._watch(chain)
        elif held.state is State.OUT:
            self._lose(held, now)
        elif held.state is State.HELD:
            held.deadline = now
            if (at := chain.members.index(held)) > 0:
                self._cut(chain, at, now)
            else:  # the one before was acked meanwhile
                self._dissolve(chain, now)

    def granted(self, chain: Chain, now: float) -> None:
        """A head's extension was carried out, and `extended` told how that went for each message;
        a head whose lease is over has its deadline in the past."""
        waiter, chain.waiter = chain.waiter, None
        if waiter is not None:
            self._rejoin(waiter)
        if self._chains.get(chain.group_id) is not chain:
            self._assign(now)  # the group was handed out again meanwhile
            return
        head = chain.members[0]
        self._set(head, State.HELD)
        if waiter is not None and not self._closing and head.deadline > now:
            self._lines.leave(waiter)
            self._deliver(chain, waiter, now)
        else:
            self._make_ready(chain, now, now)

    def refused(self, chain: Chain, now: float, *, lost: bool) -> None:
        """A head's extension failed: nobody gets it, and it goes back unless its lease is over."""
        if lost:
            chain.members[0].deadline = now
        waiter, chain.waiter = chain.waiter, None
        if waiter is not None:
            self._rejoin(waiter)
        if self._chains.get(chain.group_id) is chain:
            self._dissolve(chain, now)
        self._assign(now)

    # --- time -----------------------------------------------------------------------------------

    def next_alarm(self) -> float | None:
        """When `alarm` has to be called next, or None."""
        return self._alarms[0][0] if self._alarms else None

    def alarm(self, now: float) -> None:
        """Do what time asks for: top up, give back what nobody came for, and end what lapsed."""
        while self._alarms and self._alarms[0][0] <= now:
            chain = heapq.heappop(self._alarms)[2]
            chain.alarm = inf
            if self._chains.get(chain.group_id) is not chain:
                continue
            head = chain.members[0]
            if head.state is State.HELD and min(chain.ready_until, head.deadline) <= now:
                self._dissolve(chain, now)
            elif head.state is State.OUT and head.deadline <= now:
                self._lose(head, now)
            else:
                if head.state is State.OUT and self._top_up_at(head) <= now:
                    self._steps.append(Renew(head, head.promised))
                    head.promised = 0.0
                self._watch(chain)

    def _watch(self, chain: Chain) -> None:
        """Look at a chain again when the next thing can happen to it."""
        head = chain.members[0]
        if head.state is State.HELD:
            due = min(chain.ready_until, head.deadline)
        elif head.state is State.OUT:
            due = min(self._top_up_at(head), head.deadline)
        else:
            return
        if due < chain.alarm:
            chain.alarm = due
            heapq.heappush(self._alarms, (due, next(self._order), chain))
            if len(self._alarms) > 2 * len(self._chains) + 64:
                self._forget_alarms()

    def _forget_alarms(self) -> None:
        """Drop the alarms of chains that are gone: leases end long before their deadlines."""
        self._alarms = [
            entry
            for entry in self._alarms
            if entry[0] == entry[2].alarm and self._chains.get(entry[2].group_id) is entry[2]
        ]
        heapq.heapify(self._alarms)

    @staticmethod
    def _top_up_at(head: Held) -> float:
        if head.promised <= head.deadline:
            return inf
        handed_out = head.promised - head.visibility
        return (handed_out + head.deadline) / 2

    # --- handing out ----------------------------------------------------------------------------

    def _make_ready(self, chain: Chain, now: float, until: float, poll: Poll | None = None) -> None:
        """The head of a chain is free: find a worker for it, wait for one, or give it back."""
        chain.ready_until = until
        self._ready[chain] = None
        self._assign(now, poll)
        if chain in self._ready:
            if until <= now:
                self._dissolve(chain, now)
            else:
                self._watch(chain)

    def _assign(self, now: float, poll: Poll | None = None) -> None:
        """Bring free heads and waiters together, both in order."""
        for chain in list(self._ready):
            head = chain.members[0]
            if head.deadline <= now and not (poll is not None and poll.visibility == 0):
                self._dissolve(chain, now)
                continue
            waiter = self._lines.pick(head.visibility, poll)
            if waiter is None:
                return
            self._lines.leave(waiter)
            remaining = head.deadline - now
            as_asked = head.visibility == waiter.visibility
            least = waiter.visibility / (3 if as_asked else 2)
            if least < remaining <= waiter.visibility + 1:
                self._deliver(chain, waiter, now)
            else:
                del self._ready[chain]
                chain.waiter = waiter
                self._set(head, State.GRANTING)
                self._steps.append(Grant(chain, waiter.visibility))

    def _deliver(self, chain: Chain, waiter: Waiter, now: float) -> None:
        head = chain.members[0]
        self._ready.pop(chain, None)
        self._set(head, State.OUT)
        head.visibility = waiter.visibility
        promised = now + waiter.visibility
        short = promised - head.deadline
        head.promised = promised if short > min(1.0, waiter.visibility / 10) else 0.0
        self._watch(chain)
        self._steps.append(Deliver(waiter, head))

    def _rejoin(self, waiter: Waiter) -> None:
        """Put a waiter back whose message fell through, before all others."""
        if self._closing:
            self._steps.append(Nothing(waiter))
            return
        self._lines.rejoin(waiter)

    # --- giving back ----------------------------------------------------------------------------

    def _dissolve(self, chain: Chain, now: float) -> None:
        """Give a whole chain back, its head included."""
        self._ready.pop(chain, None)
        if self._chains.get(chain.group_id) is chain:
            del self._chains[chain.group_id]
        self._drop(chain.members, now)

    def _cut(self, chain: Chain, at: int, now: float) -> None:
        """Give back a chain's members from `at` on."""
        self._drop([chain.members.pop() for _ in range(len(chain.members) - at)][::-1], now)

    def _lose(self, head: Held, now: float) -> None:
        """The lease of a message in a worker's hands is over: what stands behind it goes back."""
        head.lost = True
        if (chain := self._current(head)) is not None:
            self._cut(chain, 1, now)
            del self._chains[chain.group_id]
        self._set(head, State.GONE)

    def _drop(self, members: Iterable[Held], now: float) -> None:
        alive = []
        for held in members:
            self._set(held, State.GONE)
            if held.deadline > now:
                alive.append(held)
        if alive:
            self._steps.append(Release(tuple(alive)))

    def _supersede(self, chain: Chain) -> None:
        """SQS handed the group out again: every lease of the older receive has ended."""
        self._ready.pop(chain, None)
        waiter, chain.waiter = chain.waiter, None
        for held in chain.members:
            if held.state is not State.SETTLING:
                held.lost = held.state is State.OUT
                self._set(held, State.GONE)
        if waiter is not None:
            self._rejoin(waiter)

    def _current(self, held: Held) -> Chain | None:
        """The chain that a message is the head of, unless another receive took its place."""
        chain = self._chains.get(held.group_id)
        return chain if chain is not None and chain.members[0] is held else None

    def _set(self, held: Held, state: State) -> None:
        self.out += (state is State.OUT) - (held.state is State.OUT)
        held.state = state

    def __repr__(self) -> str:
        held = sum(len(chain.members) for chain in self._chains.values())
        return (
            f"<Board: {len(self._lines)} waiting, {self._lines.open_polls} receives, "
            f"{held} messages held, {self.out} of them out>"
        )
