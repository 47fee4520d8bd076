"""The lock on one key for one delivery: it lives and dies with the lease of the message.

`Hold` takes it, follows the lease, and frees it or notes that the key is done; `Guard` is what the
handler runs inside of. What a key is, and what becomes of a message, is `idempotency.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pumphouse.errors import LeaseLostError
from pumphouse.model import Message
from pumphouse.subscriber.outcomes import ACK, Outcome, describe

if TYPE_CHECKING:
    from pumphouse.middleware.idempotency import Idempotency

STORE_SECONDS = 10.0
"""How long a store's answer is waited for."""
_log = logging.getLogger("pumphouse.middleware")


class Hold:
    """The lock on one key for one delivery: lives and dies with the lease of its message."""

    __slots__ = (
        "_held_until",
        "_keeper",
        "_owner",
        "_parent",
        "_unwatch",
        "broken",
        "key",
        "message",
        "on_broken",
    )

    def __init__(self, parent: Idempotency, message: Message, key: str) -> None:
        self.message = message
        self.key = key
        self.broken = ""  # why the lock is not ours any more, while the lease is
        self.on_broken: Callable[[], object] | None = None
        self._parent = parent
        self._owner = parent.new_owner()
        self._held_until = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._unwatch: Callable[[], None] | None = None

    @property
    def closes_at_once(self) -> bool:
        """Whether `close` waits for nothing, so that no cancellation can come in between."""
        return self._parent.at_once and self._keeper is None

    @property
    def _lease_until(self) -> float:
        return round(self.message.lease.until, 3)  # two ways of adding up give the same

    @property
    def _now(self) -> float:
        return round(self._parent.clock.now(), 3)

    async def take(self) -> Outcome | None:
        """Lock the key; None when it is ours, otherwise what becomes of the message."""
        parent, message = self._parent, self.message
        until = self._lease_until
        question = parent.store.begin(self.key, self._owner, until=until, now=self._now)
        try:
            begun = await parent.ask(question)
        except BaseException:
            await _surely(self._abandon())  # the answer is lost, and the lock may be there
            raise
        if begun.state == "done":
            parent.skipped(message, self.key)
            return ACK
        if begun.state == "busy":
            return parent.put_off(message, self.key, begun.until)
        self._held_until = until
        self._unwatch = message.lease.watch(self._lease_changed)
        if message.lease.lost or self._lease_until != until:  # while the store was asked
            self._lease_changed()
        return None

    async def close(self, done: bool) -> None:
        """Free the key, or note that it is done."""
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        if self._keeper is not None and not self._keeper.done():
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if not done:
            await self._abandon()
            return
        parent, now = self._parent, self._now
        question = parent.store.complete(
            self.key, self._owner, until=now + parent.remember_seconds, now=now
        )
        try:
            await parent.ask(question)
        except Exception as error:
            # it was handled: to run it again would be worse than to forget the key
            _log.error(
                "%s: message %s was handled, and the store can't note its key %s: %s",
                self.message.queue,
                self.message.message_id,
                self.key,
                describe(error),
            )

    async def _abandon(self) -> None:
        try:
            await self._parent.ask(self._parent.store.abandon(self.key, self._owner))
        except Exception as error:
            _log.warning(
                "%s: the store can't free %s, which stays locked until its lease ends: %s",
                self.message.queue,
                self.key,
                describe(error),
            )

    # --- while the handler runs -----------------------------------------------------------------

    def _lease_changed(self) -> None:
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        """Follow the lease: move the lock to its new end, or free it when the lease is over."""
        parent, clock = self._parent, self._parent.clock
        while not self.message.lease.lost:
            until = self._lease_until
            if until == self._held_until:
                return
            question = parent.store.extend(self.key, self._owner, until=until, now=self._now)
            left = max(0.001, self._held_until - self._now)
            try:
                kept = await parent.ask(question, min(left, STORE_SECONDS))
            except Exception as error:
                left = self._held_until - self._now
                if left <= 0:
                    self._break(f"the store can't extend it: {describe(error)}")
                    return
                await clock.sleep(min(max(left / 4, 0.05), 1.0))
                continue
            if not kept:
                self._break("someone else has it")
                return
            self._held_until = until
        await self._abandon()

    def _break(self, reason: str) -> None:
        self.broken = reason
        if self.on_broken is not None:
            self.on_broken()


class Guard:
    """Around the handler: `done` says for each lock whether its key is done; all are freed that
    are not, however the body ends, and it ends when a lock breaks."""

    def __init__(self, holds: list[Hold]) -> None:
        self.done: list[bool] = []
        self._holds = holds
        self._scope = asyncio.timeout(None)

    async def __aenter__(self) -> Guard:
        await self._scope.__aenter__()
        for hold in self._holds:
            hold.on_broken = self._end
            if hold.broken:
                self._end()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError as over:
            reason = next(hold.broken for hold in self._holds if hold.broken)
            raise LeaseLostError(f"the lock on the idempotency key is lost: {reason}") from over
        finally:
            closing = _close_all(self._holds, self.done)
            if len(self._holds) == 1 and self._holds[0].closes_at_once:
                await closing
            else:
                await _surely(closing)

    def _end(self) -> None:
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())


async def take_all(holds: list[Hold]) -> list[Outcome | Exception | None]:
    """Take the locks together; what became of each."""

    async def one(hold: Hold) -> Outcome | Exception | None:
        try:
            return await hold.take()
        except Exception as error:
            return error

    tasks: list[asyncio.Task[Outcome | Exception | None]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(hold)) for hold in holds]
    except BaseException:
        await _surely(_close_all(holds, []))
        raise
    return [task.result() for task in tasks]


async def free(holds: list[Hold]) -> None:
    """Free them, also in a task that is cancelled meanwhile."""
    if await _surely(_close_all(holds, [])):
        raise asyncio.CancelledError


async def _close_all(holds: list[Hold], done: list[bool]) -> None:
    """Close them together; those that `done` says nothing about are freed."""
    flags = [*done, *[False] * (len(holds) - len(done))]
    if len(holds) == 1:
        await holds[0].close(flags[0])
    else:
        await asyncio.gather(*(hold.close(flag) for hold, flag in zip(holds, flags, strict=True)))


async def _surely(work: Coroutine[Any, Any, None]) -> bool:
    """Do it to its end, also in a task that is being cancelled; returns whether it was."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
