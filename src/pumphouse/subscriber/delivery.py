"""One received message on its way: the state machine that every other module here moves.

::

    received -> HELD -> RUNNING -> SETTLING -> SETTLED
                 |  \\      |  \\         \\
                 |   \\     |   WAITING    `-> LOST
                 |    `----+---> LOST     (back to HELD when its delay is over)
                 `-> SETTLING

HELD waits for a handler, WAITING for the end of a retry's delay with its lease kept, SETTLING for
SQS's word on a delete or on a visibility change. Two states are final: SETTLED (deleted, or given
back), and LOST (the lease is over, and the message is, or will be, with someone else). A delivery
is known by itself, never by its message id: the same message can be delivered twice.

What SQS is asked about a delivery is an *intent*: to delete or to release it, and beside that to
extend its lease. Each of the two is idle, queued, on its way, or resting before the next try.
Nothing here does any I/O.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from pumphouse.clock import Clock, epoch_of
from pumphouse.model import Lease
from pumphouse.protocol.operations import ReceivedMessage


class State(IntEnum):
    HELD = 0
    RUNNING = 1
    WAITING = 2
    SETTLING = 3
    SETTLED = 4
    LOST = 5


class Intent(IntEnum):
    NONE = 0
    EXTEND = 1
    RELEASE = 2
    DELETE = 3


class Where(IntEnum):
    """Where a request about a delivery is."""

    IDLE = 0
    QUEUED = 1
    SENDING = 2
    RESTING = 3


IDLE, QUEUED, SENDING, RESTING = Where.IDLE, Where.QUEUED, Where.SENDING, Where.RESTING
HELD, RUNNING, WAITING = State.HELD, State.RUNNING, State.WAITING
SETTLING, SETTLED, LOST = State.SETTLING, State.SETTLED, State.LOST

MOVES: dict[State, frozenset[State]] = {
    HELD: frozenset({RUNNING, SETTLING, LOST}),
    RUNNING: frozenset({WAITING, SETTLING, LOST}),
    WAITING: frozenset({HELD, SETTLING, LOST}),
    SETTLING: frozenset({WAITING, SETTLED, LOST}),  # WAITING where it could not be carried away
    SETTLED: frozenset(),
    LOST: frozenset(),
}
"""From each state, the states that may follow."""


class Delivery(msgspec.Struct, eq=False):
    """A message in our hands, its lease and its state."""

    raw: ReceivedMessage
    """The message as it was received last: the newest receipt handle is the one that counts."""
    received_at: float
    lease_until: float
    state: State = HELD
    attempt: int = 1
    started_at: float = 0.0
    key: str | None = None  # the lane's, where order matters
    sequence: int = 0
    due: float = 0.0  # when its lease is looked at next, where that is for this one alone
    lease: Lease | None = None  # what the handler's message shows of it
    lease_lost: bool = False  # it is over, and a handler is still at it
    given_back: bool = False  # to SQS, so whoever is still at it is not alone any more
    stop_reason: str = ""  # why the handler's task was cancelled, by us
    restored: ReceivedMessage | None = None  # out of its envelope, its body from the claim check
    carried: bool = False  # it is in the dead-letter queue, with the ticket of its body
    # settlement's
    intent: Intent = Intent.NONE
    intent_seconds: int = 0
    settle_at: Where = IDLE
    settle_tries: int = 0
    extend_at: Where = IDLE
    extend_seconds: int = 0
    extend_tries: int = 0

    @property
    def message_id(self) -> str:
        return self.raw.message_id

    def move(self, state: State) -> None:
        if state not in MOVES[self.state]:
            raise AssertionError(f"a delivery does not go from {self.state} to {state}")
        self.state = state

    @property
    def live(self) -> bool:
        """Whether it is still ours: neither settled nor lost."""
        return self.state < SETTLED

    def show_lease(self, clock: Clock) -> None:
        """Let the handler's message see the new end of the lease."""
        if self.lease is not None:
            self.lease.move(self.lease_until + epoch_of(clock))

    @property
    def group_id(self) -> str | None:
        return self.raw.attributes.get("MessageGroupId")

    @property
    def receive_count(self) -> int:
        return int(self.raw.attributes.get("ApproximateReceiveCount") or 1)

    def __repr__(self) -> str:
        lane = f" {self.key}" if self.key is not None else ""
        return f"<Delivery {self.message_id}{lane} {self.state.name} attempt {self.attempt}>"
