"""A queue: what it holds, when that becomes visible, and who waits for it.

What standard and FIFO queues share is here; in which order messages are handed out is in
`standard.py` and `fifo.py`, and what AWS refuses in `sending.py`, `receiving.py` and `settling.py`.
Time moves a queue only when it is asked: each call first settles what fell due since the last one,
from the front of a timeline, so nothing is scanned and no message has a timer.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Generator
from math import inf

from pumphouse.account.message import DELAYED, GONE, IN_FLIGHT, TAKEN, VISIBLE, Message
from pumphouse.account.parking import Parking
from pumphouse.account.settings import QueueSettings
from pumphouse.account.timeline import Timeline
from pumphouse.clock import Clock
from pumphouse.protocol.names import QueueName

MAX_IN_FLIGHT = 120_000
_TIDY_AFTER = 64


class Queue(ABC):
    """One queue of the account. All times are the clock's `monotonic()` unless they end in `_at`.

    `move_to_dead_letters` is called for a visible message that was received too often, and says
    whether it found another place for it.
    """

    __slots__ = (
        "_ages",
        "_changes",
        "_delayed",
        "_delays",
        "_handle_prefix",
        "_handles",
        "_in_flight",
        "_leases",
        "_serial",
        "_visible",
        "clock",
        "created_at",
        "deleted",
        "expired_handles",
        "messages",
        "modified_at",
        "move_to_dead_letters",
        "name",
        "parking",
        "purged",
        "settings",
        "tags",
        "url",
    )

    is_fifo = False

    def __init__(
        self,
        name: QueueName,
        url: str,
        settings: QueueSettings,
        clock: Clock,
        move_to_dead_letters: Callable[[Queue, Message, float], bool],
    ) -> None:
        self.name = name
        self.url = url
        self.settings = settings
        self.clock = clock
        self.move_to_dead_letters = move_to_dead_letters
        self.tags: dict[str, str] = {}
        self.created_at = self.modified_at = clock.now()
        self.deleted = False
        self.purged = -inf
        self.messages: dict[int, Message] = {}
        self._visible = self._delayed = self._in_flight = 0
        # Shaped like AWS's: opaque, and not safe in a URL or in XML without quoting.
        self._handle_prefix = "AQEB" + b64encode(secrets.token_bytes(24)).decode() + "/+"
        self.expired_handles: set[str] = set()
        self._handles: dict[str, Message] = {}  # by its latest handle
        self._serial = 0
        self._changes = 0  # since the timelines were tidied
        self._delays = Timeline()
        self._leases = Timeline()
        self._ages = Timeline()  # by when retention began
        self.parking = Parking(clock, self._next_event, self._on_event)

    @property
    def arn(self) -> str:
        return self.name.arn()

    # --- what is in it --------------------------------------------------------------------------

    @property
    def visible(self) -> int:
        """How many messages may be received now."""
        self.settle(self.clock.monotonic())
        return self._visible

    @property
    def in_flight(self) -> int:
        """How many messages are leased now."""
        self.settle(self.clock.monotonic())
        return self._in_flight

    @property
    def delayed(self) -> int:
        """How many messages are not visible yet, as they were sent with a delay."""
        self.settle(self.clock.monotonic())
        return self._delayed

    def settle(self, now: float) -> None:
        """Carry out what fell due up to `now`: delays, leases and retention."""
        delays, leases = self._delays, self._leases
        while delays.next_due <= now:
            message = delays.pop()
            if message.state is DELAYED and message.due <= now:
                self._delayed -= 1
                self._show(message)
        while leases.next_due <= now:
            message = leases.pop()
            if message.state is IN_FLIGHT and message.due <= now:
                self._release(message)
                self._show(message)
        oldest = now - self.settings.retention_seconds
        ages = self._ages
        while ages.next_due <= oldest:
            message = ages.pop()
            if message.state is not GONE:
                self.remove(message)

    def add(self, message: Message, now: float, delay_seconds: float = 0) -> None:
        """Store a message; it may come from another queue."""
        self._serial = serial = self._serial + 1
        message.serial = serial
        self.messages[serial] = message
        self._ages.push(message.stored, message)
        if delay_seconds > 0:
            message.state = DELAYED
            message.due = now + delay_seconds
            self._delayed += 1
            self._delays.push(message.due, message)
        else:
            self._show(message)

    def remove(self, message: Message) -> None:
        """Take a message out, whatever its state."""
        state = message.state
        if state is IN_FLIGHT:
            self._release(message)
        elif state is VISIBLE:
            self._visible -= 1
        elif state is DELAYED:
            self._delayed -= 1
        message.state = GONE
        del self.messages[message.serial]
        if message.handle:
            del self._handles[message.handle]
        self._changes += 1
        if self._changes >= _TIDY_AFTER:
            self._tidy()

    def clear(self) -> None:
        """Take out everything."""
        for message in self.messages.values():
            message.state = GONE
        self.messages.clear()
        self._handles.clear()
        self._visible = self._delayed = self._in_flight = 0
        for timeline in (self._delays, self._leases, self._ages):
            timeline.clear()

    def _tidy(self) -> None:
        """Clear what is out of date in the timelines, where it outweighs the rest."""
        self._changes = 0
        self._ages.prune(len(self.messages), _is_held)
        self._leases.prune(self._in_flight, _is_lease)
        self._delays.prune(self._delayed, is_delay)

    # --- leases ---------------------------------------------------------------------------------

    def take(self, limit: int, visibility_seconds: int, now: float) -> list[Message]:
        """Up to `limit` messages, each leased for `visibility_seconds` (0: visible at once)."""
        taken: list[Message] = []
        policy = self.settings.redrive_policy
        most = policy.max_receive_count if policy is not None else inf
        handles, prefix = self._handles, self._handle_prefix
        line = self._line()
        for message in line:
            count = message.receive_count
            if count >= most and self.move_to_dead_letters(self, message, now):
                continue
            message.state = TAKEN
            message.receive_count = count = count + 1
            message.received = now
            if not message.first_received_at:
                message.first_received_at = self.clock.now()
            if message.handle:
                del handles[message.handle]
            message.handle = handle = f"{prefix}{message.serial:x}={count:x}="
            handles[handle] = message
            taken.append(message)
            if len(taken) == limit:
                break
        line.close()
        self._visible -= len(taken)
        if visibility_seconds > 0:
            due = now + visibility_seconds
            for message in taken:
                message.state = IN_FLIGHT
                message.due = due
            self._leases.push_all(due, taken)
            self._lease(taken)
        else:
            for message in taken:
                self._show(message)
        return taken

    def find(self, handle: str) -> tuple[Message | None, bool] | None:
        """The message of a receipt handle (None when it is gone), and whether the handle is that of
        its latest receive. None for a handle that was never this queue's."""
        message = self._handles.get(handle)
        if message is not None:
            return message, True
        try:
            serial, count = (
                int(each, 16) for each in handle[len(self._handle_prefix) : -1].split("=")
            )
        except ValueError:
            return None
        if (
            handle != f"{self._handle_prefix}{serial:x}={count:x}="
            or not 0 < serial <= self._serial
        ):
            return None
        message = self.messages.get(serial)
        if not 0 < count <= (message.receive_count if message else inf):
            return None
        return message, False

    def change_visibility(self, message: Message, visibility_seconds: int, now: float) -> None:
        """Let a lease end in `visibility_seconds` from now."""
        message.due = now + visibility_seconds
        if visibility_seconds <= 0:
            self._release(message)
            self._show(message)
        else:
            self._leases.push(message.due, message)
        self._changes += 1
        if self._changes >= _TIDY_AFTER:
            self._tidy()

    def expire_handle(self, handle: str) -> bool:
        """End the lease of a receipt handle now, and refuse the handle from now on; False where no
        message is leased under it."""
        now = self.clock.monotonic()
        self.settle(now)
        message, is_latest = self.find(handle) or (None, False)
        if message is None or not is_latest or message.state is not IN_FLIGHT:
            return False
        self.expired_handles.add(handle)
        self.change_visibility(message, 0, now)
        if self.parking.occupied:
            self.wake()
        return True

    def withdraw(self, limit: int, may_go: Callable[[Message], bool]) -> list[Message]:
        """Take out up to `limit` visible messages for good, without receiving them, up to the first
        that may not go."""
        taken: list[Message] = []
        line = self._line()
        for message in line:
            if not may_go(message):
                break
            self.remove(message)
            taken.append(message)
            if len(taken) == limit:
                break
        line.close()
        return taken

    def configure(self, settings: QueueSettings, now: float) -> None:
        """Take other settings; they hold at once."""
        self.settle(now)
        self.settings = settings
        if self.parking.occupied:
            self.wake()

    # --- who waits ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Tell those who wait that something changed; called after each change where any do."""
        if self.has_next():
            self.parking.rouse()
        self.parking.arm()

    def close(self) -> None:
        """Be deleted: wake everyone who waits, to find that out."""
        self.deleted = True
        self.clear()
        self.parking.rouse_all()

    def _next_event(self) -> float:
        return min(
            self._delays.next_due,
            self._leases.next_due,
            self._ages.next_due + self.settings.retention_seconds,
        )

    def _on_event(self, now: float) -> None:
        self.settle(now)
        self.wake()

    # --- what standard and FIFO queues do differently --------------------------------------------

    def _lease(self, messages: list[Message]) -> None:
        """Messages are in flight now."""
        self._in_flight += len(messages)

    def _release(self, message: Message) -> None:
        """A message is in flight no more."""
        self._in_flight -= 1

    @abstractmethod
    def _show(self, message: Message) -> None:
        """Make a message visible; it is counted no more where it was."""

    @abstractmethod
    def _line(self) -> Generator[Message, None, None]:
        """Visible messages in the order to hand them out. Each that comes out is `TAKEN` or gone
        when the next is asked for; closed when enough have come, or at one that is to stay."""

    @abstractmethod
    def has_next(self) -> bool:
        """Whether there may be a message to hand out."""

    def __repr__(self) -> str:
        self.settle(self.clock.monotonic())
        parts = [f"{self._visible} visible", f"{self._in_flight} in flight"]
        if self._delayed:
            parts.append(f"{self._delayed} delayed")
        parts += self._repr_parts()
        if self.parking.occupied:
            waiting = len(self.parking)
            parts.append(f"{waiting} receive{'' if waiting == 1 else 's'} waiting")
        if self.deleted:
            parts = ["deleted"]
        return f"<{type(self).__name__} {self.name.name}: {', '.join(parts)}>"

    def _repr_parts(self) -> list[str]:
        return []


def _is_lease(due: float, message: Message) -> bool:
    return message.state is IN_FLIGHT and message.due == due


def is_delay(due: float, message: Message) -> bool:
    return message.state is DELAYED and message.due == due


def _is_held(_: float, message: Message) -> bool:
    return message.state is not GONE
