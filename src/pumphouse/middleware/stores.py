"""What an idempotency store has to do, and the one in memory.

A store knows keys. A key is free, or locked by an owner until a time, or done until a time. Times
are seconds since the epoch by the app's clock, which the caller gives with every question, so a
store has no clock of its own. What the keys are, and when which of these is called, is
`idempotency.py`'s.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, Protocol

from pumphouse.errors import UsageError


@dataclass(frozen=True, slots=True)
class Begun:
    """What a store says to `begin`: "new" (the key was free, and is locked now), "busy" (someone
    else has it locked, until `until`), or "done"."""

    state: Literal["new", "busy", "done"]
    until: float = 0.0


NEW, DONE = Begun("new"), Begun("done")


class IdempotencyStore(Protocol):
    """Keys that are locked and done. Each method is atomic, whoever else uses the same store; one
    that fails raises.

    A store may also have `check()`, a plain function that raises `ConfigError` for what can't
    work; it is called when the app starts. One that waits for a thread or for the network has
    `outside = True`, so that a virtual clock stands still meanwhile.
    """

    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        """Lock a key that is free, or whose lock ended by `now`, for `owner` until `until`."""
        ...

    async def extend(self, key: str, owner: str, *, until: float, now: float) -> bool:
        """Move the end of a lock; False where `owner` doesn't have it any more."""
        ...

    async def complete(self, key: str, owner: str, *, until: float, now: float) -> None:
        """The key is done, and is remembered until `until`; whoever has a lock on it."""

    async def abandon(self, key: str, owner: str) -> None:
        """Free a key that `owner` has locked; does nothing where that is not so."""


class MemoryStore:
    """Keys of one process, in memory; for tests, and for consumers that never share a queue.

    It remembers at most `max_keys` keys that are done, and forgets the oldest ones first.
    """

    def __init__(self, max_keys: int = 100_000) -> None:
        if isinstance(max_keys, bool) or not isinstance(max_keys, int) or max_keys < 1:
            raise UsageError(f"max_keys is a number, at least 1; not {max_keys!r}")
        self._max_keys = max_keys
        self._locks: dict[str, tuple[str, float]] = {}
        self._done: OrderedDict[str, float] = OrderedDict()
        self._sweep_at = 1_000

    async def begin(self, key: str, owner: str, *, until: float, now: float) -> Begun:
        """See `IdempotencyStore`."""
        if (done := self._done.get(key)) is not None:
            if done > now:
                return DONE
            del self._done[key]
        if (lock := self._locks.get(key)) is not None and lock[0] != owner and lock[1] > now:
            return Begun("busy", lock[1])
        self._locks[key] = (owner, until)
        if len(self._locks) >= self._sweep_at:
            self._locks = {each: lock for each, lock in self._locks.items() if lock[1] > now}
            self._sweep_at = max(1_000, 2 * len(self._locks))
        return NEW

    async def extend(self, key: str, owner: str, *, until: float, now: float) -> bool:
        """See `IdempotencyStore`."""
        lock = self._locks.get(key)
        if lock is None or lock[0] != owner:
            return False
        self._locks[key] = (owner, until)
        return True

    async def complete(self, key: str, owner: str, *, until: float, now: float) -> None:
        """See `IdempotencyStore`."""
        self._locks.pop(key, None)
        self._done[key] = until
        self._done.move_to_end(key)
        while len(self._done) > self._max_keys or next(iter(self._done.values())) <= now:
            self._done.popitem(last=False)
            if not self._done:
                break

    async def abandon(self, key: str, owner: str) -> None:
        """See `IdempotencyStore`."""
        if (lock := self._locks.get(key)) is not None and lock[0] == owner:
            del self._locks[key]

    async def clear(self) -> None:
        """Forget every key, done or locked; between tests."""
        self._locks.clear()
        self._done.clear()

    def __len__(self) -> int:
        return len(self._locks) + len(self._done)

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._locks)} locked, {len(self._done)} done>"
