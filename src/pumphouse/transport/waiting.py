"""Claims that wait, in lines, and the receives that are opened for them. Plain scheduling code.

Waiters that ask for the same lease and the same wait stand in one line and share its receives. A
line opens a receive when it has none, for as many messages as it has waiters; those that come while
it is open gather behind it. One that answers in full lets one more be open at a time, as long as
there are ten waiters for it: so an idle queue is asked by one receive, and a busy one by several.

A waiter is told that there was nothing only by a receive that began after the waiter came, and at
most a second early. SQS does not say when it answered, so a lease is counted from when its receive
was asked for: a receive waits for two thirds of the lease at most, and the next one goes on where a
waiter wants to wait for longer. What becomes of messages is for `board.py` to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from pumphouse.transport.pieces import Poll, Waiter

MAX_MESSAGES = 10
"""The most that one receive brings, says AWS."""
MAX_WAIT_SECONDS = 20


@dataclass(eq=False, slots=True)
class Line:
    """The waiters of one kind, in order, and the receives that are open for them."""

    waiters: dict[Waiter, None] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    limit: int = 1
    """How many receives may be open: one more after each full answer, one after any other."""


class Lines:
    """All that wait. `share` False opens a receive for each waiter, for one message."""

    def __init__(self, *, share: bool, max_polls: int) -> None:
        self._share = share
        self._max_polls = max_polls
        self._lines: dict[tuple[int, int], Line] = {}
        self._order = itertools.count()

    def __len__(self) -> int:
        return sum(len(line.waiters) for line in self._lines.values())

    @property
    def open_polls(self) -> int:
        """How many receives are under way."""
        return sum(len(line.polls) for line in self._lines.values())

    # --- claims ---------------------------------------------------------------------------------

    def join(self, waiter: Waiter) -> None:
        """Stand at the end of the line."""
        waiter.joined = next(self._order)
        self._lines.setdefault(waiter.key, Line()).waiters[waiter] = None

    def rejoin(self, waiter: Waiter) -> None:
        """Stand at the front again, when what was on its way to the waiter fell through."""
        line = self._lines.setdefault(waiter.key, Line())
        line.waiters = {waiter: None, **line.waiters}

    def leave(self, waiter: Waiter) -> bool:
        """Leave the line; False for one that does not stand in it."""
        line = self._lines.get(waiter.key)
        if line is None or waiter not in line.waiters:
            return False
        del line.waiters[waiter]
        self._tidy(waiter.key)
        return True

    def clear(self) -> list[Waiter]:
        """Send everyone away; returns who that was."""
        waiters = [waiter for line in self._lines.values() for waiter in line.waiters]
        for waiter in waiters:
            self.leave(waiter)
        return waiters

    def pick(self, visibility: int, poll: Poll | None) -> Waiter | None:
        """Who gets a message that is leased for `visibility`: the waiter that the receive was made
        for, else the first that asks for such a lease, else the one that came first."""
        if poll is not None and poll.only is not None:
            line = self._lines.get(poll.key)
            if line is not None and poll.only in line.waiters:
                return poll.only
        fronts = [next(iter(line.waiters)) for line in self._lines.values() if line.waiters]
        return min(
            fronts,
            key=lambda waiter: (waiter.visibility != visibility, waiter.joined),
            default=None,
        )

    # --- receives -------------------------------------------------------------------------------

    def next_poll(self, now: float) -> Poll | None:
        """The next receive to start, or None."""
        for key, line in self._lines.items():
            if not line.waiters:
                continue
            if not self._share:
                served = {poll.only for poll in line.polls}
                for waiter in line.waiters:
                    if waiter not in served:
                        return self._open(key, line, 1, waiter.deadline - now, waiter)
                continue
            uncovered = len(line.waiters) - sum(poll.max_messages for poll in line.polls)
            if not line.polls or (uncovered >= MAX_MESSAGES and len(line.polls) < line.limit):
                size = min(MAX_MESSAGES, uncovered)
                patience = min(waiter.deadline for waiter in line.waiters) - now
                return self._open(key, line, size, patience, None)
        return None

    def answered(self, poll: Poll, count: int) -> None:
        """A receive brought `count` messages; called before they are handed out."""
        line = self._ended(poll)
        line.limit = min(line.limit + 1, self._max_polls) if count == poll.max_messages else 1

    def served(self, poll: Poll, now: float) -> list[Waiter]:
        """Send away those whose time is up after a receive that brought nothing."""
        done = [
            waiter
            for waiter in self._covered(poll)
            if waiter.deadline - now <= min(1.0, waiter.wait / 2)
        ]
        for waiter in done:
            self.leave(waiter)
        return done

    def failed(self, poll: Poll) -> list[Waiter]:
        """Send away those whose receive failed for good."""
        self._ended(poll).limit = 1
        waiters = list(self._covered(poll))
        for waiter in waiters:
            self.leave(waiter)
        self._tidy(poll.key)
        return waiters

    def _open(
        self, key: tuple[int, int], line: Line, size: int, patience: float, only: Waiter | None
    ) -> Poll:
        # To the nearest second: a wait of 1 s that began a tick ago is still a wait of 1 s.
        wait = min(MAX_WAIT_SECONDS, int(max(0.0, patience) + 0.5))
        if visibility := key[0]:  # otherwise nothing is leased
            wait = min(wait, max(1, visibility * 2 // 3))
        poll = Poll(key, size, wait, next(self._order), only)
        line.polls.append(poll)
        return poll

    def _ended(self, poll: Poll) -> Line:
        line = self._lines[poll.key]
        line.polls.remove(poll)
        return line

    def tidy(self, poll: Poll) -> None:
        """Forget the line of a receive, if nobody stands in it."""
        self._tidy(poll.key)

    def _covered(self, poll: Poll) -> Iterator[Waiter]:
        """The waiters whose question a receive asked: it began after they did."""
        line = self._lines.get(poll.key)
        for waiter in line.waiters if line is not None else ():
            if waiter is poll.only or (poll.only is None and waiter.joined < poll.started):
                yield waiter

    def _tidy(self, key: tuple[int, int]) -> None:
        line = self._lines.get(key)
        if line is not None and not line.waiters and not line.polls:
            del self._lines[key]
