"""What came of every event, worked out from what happened: plain data, and no printing.

The `Journal` is written while events are sent and handled; `Report.of` draws the conclusions. It
takes nothing on trust: an event counts as handled when its handler came to an end, as dead-lettered
when it was taken out of the dead-letter queue, and as lost when neither happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from pumphouse.jsonl import Event


class Moment(Enum):
    """What can happen to an event once it is sent."""

    STARTED = "started"
    HANDLED = "handled"
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"


@dataclass(slots=True)
class Journal:
    """What happened, in the order in which it happened; events are known by their line."""

    confirmed: set[int] = field(default_factory=set)
    unconfirmed: dict[int, str] = field(default_factory=dict)
    moments: list[tuple[Moment, int]] = field(default_factory=list)
    handled: set[int] = field(default_factory=set)
    dead_lettered: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    retries: int = 0
    _started: set[int] = field(default_factory=set)

    def note(self, moment: Moment, line: int) -> None:
        self.moments.append((moment, line))
        if moment is Moment.HANDLED:
            self.handled.add(line)
            self.ended.add(line)
        elif moment is Moment.DEAD_LETTERED:
            self.dead_lettered.add(line)
            self.ended.add(line)
        elif moment is Moment.STARTED:
            self.retries += line in self._started
            self._started.add(line)

    @property
    def settled(self) -> int:
        """How many events need nothing more."""
        return len(self.ended) + len(self.unconfirmed)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run.

    `lost`, `unconfirmed` and `twice` are line numbers, `out_of_order` group ids; `twice` holds what
    was handled more than once, or handled and dead-lettered as well.
    `requests` counts operations by action, `at_once` is how many groups were seen at work at the
    same time, and `left` how many messages still lay in the queues at the end.
    """

    events: int
    groups: int
    sent: int
    handled: int
    retried: int
    dead_lettered: Sequence[int]
    lost: Sequence[int]
    unconfirmed: Mapping[int, str]
    twice: Sequence[int]
    out_of_order: Sequence[str]
    at_once: int
    left: int
    requests: Mapping[str, int]
    seconds: float

    @classmethod
    def of(
        cls,
        events: Sequence[Event],
        journal: Journal,
        *,
        left: int,
        requests: Mapping[str, int],
        seconds: float,
    ) -> Self:
        ends = Counter(
            line
            for moment, line in journal.moments
            if moment in (Moment.HANDLED, Moment.DEAD_LETTERED)
        )
        out_of_order, at_once = _check_order(events, journal.moments)
        return cls(
            events=len(events),
            groups=len({event.group for event in events}),
            sent=len(journal.confirmed),
            handled=len(journal.handled),
            retried=journal.retries,
            dead_lettered=sorted(journal.dead_lettered),
            lost=sorted(journal.confirmed - journal.handled - journal.dead_lettered),
            unconfirmed=dict(journal.unconfirmed),
            twice=sorted(line for line, times in ends.items() if times > 1),
            out_of_order=out_of_order,
            at_once=at_once,
            left=left,
            requests=dict(requests),
            seconds=seconds,
        )

    @property
    def ok(self) -> bool:
        """Whether every event was sent, and handled once and in order or dead-lettered."""
        return not (
            self.lost
            or self.unconfirmed
            or self.twice
            or self.out_of_order
            or self.left
            or self.handled + len(self.dead_lettered) != self.events
        )

    @property
    def requests_per_message(self) -> float:
        return sum(self.requests.values()) / self.sent if self.sent else 0.0


def _check_order(
    events: Sequence[Event], moments: Sequence[tuple[Moment, int]]
) -> tuple[list[str], int]:
    """The groups in which something ran out of turn, and how many groups ran at once at most.

    Out of turn means that an event started while another of its group was running, or after a
    later one of its group had started.
    """
    group_of = {event.line: event.group for event in events}
    running: dict[str, int] = {}
    latest: dict[str, int] = {}
    faulty: dict[str, None] = {}
    at_once = 0
    for moment, line in moments:
        group = group_of[line]
        if moment is Moment.STARTED:
            if group in running or line < latest.get(group, line):
                faulty[group] = None
            running[group] = line
            latest[group] = max(line, latest.get(group, line))
            at_once = max(at_once, len(running))
        elif moment is not Moment.DEAD_LETTERED and running.get(group) == line:
            del running[group]
    return list(faulty), at_once
