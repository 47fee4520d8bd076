"""A handler that runs once for each key, however often its message is delivered.

Before the handler the key is locked, after it the key is done, and a message whose key is done is
deleted unrun. The lock ends when the lease of the message ends: it is taken until then, moves when
the lease has moved, and is freed when the handler fails or the lease is over. A lock that can't
be moved in time ends the handler, as nothing may run without it. So whatever happens to a process,
a message that comes again finds its key free or done.

The lock is in `hold.py`. What keeps the keys is a store (`stores.py`, `sqlite_store.py`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from itertools import count
from typing import Any, Literal, TypeVar

from pumphouse.clock import Clock, RealClock, VirtualClock, timeout
from pumphouse.content import UndecodableError
from pumphouse.errors import StoreError, UsageError
from pumphouse.hooks import Hooks
from pumphouse.middleware.hold import STORE_SECONDS, Guard, Hold, free, take_all
from pumphouse.middleware.stores import IdempotencyStore, MemoryStore
from pumphouse.model import Message
from pumphouse.subscriber.chain import CallNext, CallNextBatch, Surroundings
from pumphouse.subscriber.injection.markers import HeaderField
from pumphouse.subscriber.injection.signatures import check_plain, is_async, name_of
from pumphouse.subscriber.outcomes import ACK, Ack, Drop, Outcome, Retry, describe

REMEMBER = timedelta(days=14)
"""As long as SQS keeps a message at most."""
MAX_WAIT_SECONDS = 900.0
_LONGEST_KEY = 256
_BUSY_MEMORY = 10_000

_BEHIND = Retry(0, "behind one of its group that is not done", counts=False)

KeyOf = Callable[[Message], str | None]
T = TypeVar("T")
_log = logging.getLogger("pumphouse.middleware")


@dataclass(frozen=True, slots=True)
class DuplicateSkipped:
    """A message was deleted unrun, as its key was done already."""

    queue: str
    message_id: str
    key: str


@dataclass(frozen=True, slots=True)
class KeyBusy:
    """A message was put off, as another delivery with its key was being handled."""

    queue: str
    message_id: str
    key: str
    retry_in_seconds: float


class Idempotency:
    """Runs the handler once for each key.

    - `store`: an `IdempotencyStore`, shared by all processes that read the queue.
    - `key`: "message_id" (the default: the same message delivered twice), "deduplication_id" (FIFO
      queues), a `Header("…")`, or a function of the message. A message without its key is
      undecodable: it follows the subscription's `undecodable=`.
    - `scope`: keys are compared within it; the name of the queue by default.
    - `remember`: how long a key that is done is known, in seconds or as a `timedelta`. The default
      is 14 days, as long as SQS keeps a message at most: with less, one whose delete was lost can
      outlive its key.

    A message whose key is done is acknowledged unrun (event `DuplicateSkipped`). One whose key is
    being handled elsewhere is put off until that lease ends, which is no attempt (event
    `KeyBusy`). A key is done when the handler has acknowledged; a retry, a drop, a rejection or an
    error leaves it free. What is outside of this middleware and makes another outcome of an
    acknowledgement comes too late.

    Raises `UsageError` for what can't work.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        *,
        key: Literal["message_id", "deduplication_id"] | KeyOf | Any = "message_id",
        scope: str | None = None,
        remember: float | timedelta = REMEMBER,
    ) -> None:
        for method in ("begin", "extend", "complete", "abandon"):
            if isinstance(store, type) or not callable(getattr(store, method, None)):
                raise UsageError(f"{store!r} is no idempotency store: it has no {method}")
        seconds = remember.total_seconds() if isinstance(remember, timedelta) else remember
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise UsageError(f"remember is seconds or a timedelta, more than 0; not {remember!r}")
        self._store = store
        self.at_once = type(store) is MemoryStore  # it answers without ever waiting
        self._key = key
        self._key_of = _key_function(key)
        self._scope = scope
        self._remember = float(seconds)
        self._clock: Clock = RealClock()
        self._surroundings: Surroundings | None = None
        self._busy: OrderedDict[str, int] = OrderedDict()
        self._owner = secrets.token_hex(8)
        self._numbers = count(1)

    def bind(self, surroundings: Surroundings) -> Idempotency:
        """The same, for one subscription. Raises `UsageError` or `ConfigError` for a key or a store
        that can't be used there."""
        queue = surroundings.queue or ""
        if self._key == "deduplication_id" and not queue.endswith(".fifo"):
            raise UsageError(
                f"subscriber of {queue!r}: messages of a standard queue have no deduplication id "
                "to be their idempotency key"
            )
        if callable(check := getattr(self._store, "check", None)):
            check()
        bound = copy.copy(self)
        bound._clock = surroundings.clock
        bound._surroundings = surroundings
        bound._scope = queue if self._scope is None else self._scope
        bound._busy = OrderedDict()
        bound._owner = secrets.token_hex(8)
        return bound

    async def receive(self, message: Message, call_next: CallNext) -> Outcome:
        """Around one message."""
        hold = Hold(self, message, self.key_of(message))
        if (outcome := await hold.take()) is not None:
            return outcome
        async with Guard([hold]) as guard:
            outcome = await call_next(message)
            guard.done = [type(outcome) is Ack]
        return outcome

    async def receive_batch(
        self, messages: list[Message], call_next: CallNextBatch
    ) -> list[Outcome]:
        """Around one batch: only messages whose keys are free are passed on, and of a FIFO group
        none that stands behind one that is not done."""
        outcomes: dict[int, Outcome] = {}
        holds: dict[str, tuple[int, Hold]] = {}
        behind: dict[int, int] = {}  # of the same key as an earlier one of the batch
        for place, message in enumerate(messages):
            try:
                key = self.key_of(message)
            except Exception as error:
                outcomes[place] = self._outcome_of(error)
                continue
            if key in holds:
                behind[place] = holds[key][0]
            else:
                holds[key] = (place, Hold(self, message, key))
        taken: list[tuple[int, Hold]] = []
        found = await take_all([hold for _, hold in holds.values()])
        for (place, hold), what in zip(holds.values(), found, strict=True):
            if what is None:
                taken.append((place, hold))
            else:
                outcomes[place] = self._outcome_of(what) if isinstance(what, Exception) else what
        late = _late(messages, outcomes, behind)
        run = [each for each in taken if each[0] not in late]
        async with Guard([hold for _, hold in run]) as guard:
            if len(run) < len(taken):
                await free([hold for place, hold in taken if place in late])
            results = await call_next([messages[place] for place, _ in run]) if run else []
            guard.done = [type(each) is Ack for each in results]
        outcomes.update(zip([place for place, _ in run], results, strict=True))
        outcomes.update((place, _BEHIND) for place, _ in taken if place in late)
        for place, first in behind.items():
            done = type(outcomes[first]) is Ack
            if done:
                self.skipped(messages[place], self.key_of(messages[place]))
            outcomes[place] = ACK if done else Retry(reason="behind its key", counts=False)
        return [outcomes[place] for place in range(len(messages))]

    def key_of(self, message: Message) -> str:
        """The key of a message, within its scope. Raises `UndecodableError` where it has none."""
        key = self._key_of(message)
        if not key or not isinstance(key, str):
            hint = "" if not key else ", and a key is text"
            raise UndecodableError(
                f"the message has no idempotency key: {self._named()} is {key!r:.100}{hint}"
            )
        if len(key) > _LONGEST_KEY or not key.isprintable():
            key = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{message.queue if self._scope is None else self._scope}:{key}"

    def skipped(self, message: Message, key: str) -> None:
        """Tell that a message is a duplicate of one that was handled."""
        self._busy.pop(message.message_id, None)
        _log.info(
            "%s: message %s is a duplicate and is not run: %s is done",
            message.queue,
            message.message_id,
            key,
            extra={"queue": message.queue, "message_id": message.message_id},
        )
        if self._surroundings is not None:
            hooks: Hooks = self._surroundings.hooks
            hooks.emit(DuplicateSkipped(message.queue, message.message_id, key))

    def put_off(self, message: Message, key: str, until: float) -> Retry:
        """What becomes of a message whose key is locked until then.

        At first it comes again when that lock ends. Where it was moved by then, someone is at work
        for longer than a lease, and the wait doubles: each receive counts for SQS's own limit.
        """
        times = self._busy.pop(message.message_id, 0)
        self._busy[message.message_id] = times + 1
        if len(self._busy) > _BUSY_MEMORY:
            self._busy.popitem(last=False)
        left = max(0.0, until - self._clock.now())
        wait = max(left, min(left * 2 ** min(times, 16), MAX_WAIT_SECONDS))
        wait = min(wait, 43_200.0)
        _log.info(
            "%s: message %s waits %.0f s: %s is being handled",
            message.queue,
            message.message_id,
            wait,
            key,
            extra={"queue": message.queue, "message_id": message.message_id},
        )
        if self._surroundings is not None:
            hooks: Hooks = self._surroundings.hooks
            hooks.emit(KeyBusy(message.queue, message.message_id, key, wait))
        return Retry(after=wait, reason=f"{key} is being handled elsewhere", counts=False)

    # --- what holds ask of the store ------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def store(self) -> IdempotencyStore:
        return self._store

    @property
    def remember_seconds(self) -> float:
        return self._remember

    def new_owner(self) -> str:
        return f"{self._owner}-{next(self._numbers)}"

    async def ask(self, question: Awaitable[T], limit_seconds: float = STORE_SECONDS) -> T:
        """The store's answer; `StoreError` where there is none in time."""
        if self.at_once:
            return await question
        clock = self._clock
        outside = getattr(self._store, "outside", False)
        with clock.hold() if outside and isinstance(clock, VirtualClock) else nullcontext():
            scope: asyncio.Timeout | None = None
            try:
                async with timeout(clock, limit_seconds) as scope:
                    return await question
            except TimeoutError as error:
                if scope is not None and scope.expired():
                    raise StoreError(
                        f"the idempotency store gave no answer in {limit_seconds:g} s"
                    ) from error
                raise

    def _outcome_of(self, error: Exception) -> Outcome:
        if self._surroundings is None:
            return Retry(reason=describe(error))
        return self._surroundings.outcome_of(error)

    def _named(self) -> str:
        if isinstance(self._key, str):
            return f"its {self._key}"
        if isinstance(self._key, HeaderField):
            return f"its header {self._key.name!r}"
        return f"what {getattr(self._key, '__qualname__', self._key)} gave"

    def __repr__(self) -> str:
        return f"Idempotency({self._store!r})"


def _late(
    messages: list[Message], outcomes: dict[int, Outcome], behind: dict[int, int]
) -> set[int]:
    """The places of a batch that stand, in their FIFO group, behind one that is not handled now:
    it was put off, or what becomes of it is decided by one of another group, which has its key."""
    late: set[int] = set()
    stuck: set[str | None] = set()
    for place, message in enumerate(messages):
        if not message.queue.endswith(".fifo"):
            break
        group = message.group_id
        if group in stuck:
            late.add(place)
            continue
        first = behind.get(place, place)
        if first in outcomes:
            held_up = not isinstance(outcomes[first], Ack | Drop)
        else:
            held_up = first in late or messages[first].group_id != group
        if held_up:
            stuck.add(group)
    return late


def _key_function(key: Any) -> KeyOf:
    if key == "message_id":
        return lambda message: message.message_id
    if key == "deduplication_id":
        return lambda message: message.deduplication_id
    if isinstance(key, HeaderField):
        if (name := key.name) is None:
            raise UsageError("a Header that is an idempotency key has a name: Header('order-id')")

        def of_header(message: Message) -> str | None:
            value = message.headers.get(name)
            return value.hex() if isinstance(value, bytes) else value

        return of_header
    if is_async(key):
        raise UsageError(
            f"key is a plain function of the message, and {name_of(key)} is async; what has to be "
            "waited for belongs into a middleware outside of Idempotency"
        )
    if callable(key) and not isinstance(key, type):
        check_plain("key", key)
        return key  # type: ignore[no-any-return]
    raise UsageError(
        'key is "message_id", "deduplication_id", a Header("…"), or a function of the message; '
        f"not {key!r}"
    )
