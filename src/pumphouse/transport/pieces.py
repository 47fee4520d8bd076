"""The pieces on the board: messages with their leases, claims, receives, and the steps to take.

Values only. What moves them is in `waiting.py` (claims and receives) and `board.py` (messages).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from math import inf

from pumphouse.protocol.operations import ReceivedMessage


class State(Enum):
    """Where a held message stands."""

    HELD = "held"  # in a chain and in no worker's hands
    GRANTING = "granting"  # promised to a waiter, while its lease is extended
    OUT = "out"  # in a worker's hands
    SETTLING = "settling"  # being deleted or given back
    GONE = "gone"  # settled, given back, or lost before anyone had it


@dataclass(eq=False, slots=True)
class Held:
    """A received message and its lease, which SQS does not end before `deadline`."""

    group_id: str
    message: ReceivedMessage
    deadline: float
    visibility: int
    state: State = State.HELD
    lost: bool = False
    promised: float = 0.0
    """The deadline that the worker was promised, where the lease has to be topped up to it."""


@dataclass(eq=False, slots=True)
class Waiter:
    """A claim that waits: for how long a lease it asks, and until when."""

    worker_id: str
    visibility: int
    wait: int
    deadline: float
    joined: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """Those who wait for the same share a line."""
        return (self.visibility, self.wait)


@dataclass(eq=False, slots=True)
class Chain:
    """What one receive brought of one group, in order; the first is the head."""

    group_id: str
    members: deque[Held]
    ready_until: float = -inf
    """Until when a head that nobody has may wait for a worker."""
    waiter: Waiter | None = None
    """Who gets the head when its extension is confirmed."""
    alarm: float = inf
    """The earliest time for which the board looks at it again."""


@dataclass(eq=False, slots=True)
class Poll:
    """One receive: `max_messages` for at most `wait` seconds, leased for `visibility`."""

    key: tuple[int, int]
    max_messages: int
    wait: int
    started: int
    only: Waiter | None = None
    """The one claim that it is for, where claims don't share."""

    @property
    def visibility(self) -> int:
        return self.key[0]


# --- steps --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deliver:
    """Give the message to the claim."""

    waiter: Waiter
    held: Held


@dataclass(frozen=True, slots=True)
class Nothing:
    """Tell the claim that there was nothing, or what went wrong."""

    waiter: Waiter
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Make the messages visible again; nobody waits for the answer."""

    messages: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Extend the chain's head and followers by `seconds`, then report to `granted`."""

    chain: Chain
    seconds: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend a head that is out, and its followers, until `until`; report to `extended`."""

    head: Held
    until: float


Step = Deliver | Nothing | Release | Grant | Renew
