"""One pool for each event loop that sends, across threads and forks.

A loop gets its pool on its first request. A child process forgets its parent's pools without
touching a socket of theirs: closing one there would take it out of the parent's event queue, which
a fork shares.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Callable

from pumphouse.clock import Clock
from pumphouse.errors import ClosedError, CrossThreadError
from pumphouse.http.options import Options
from pumphouse.http.pool import LoopPool

CLOSE_SECONDS = 5.0
"""How long `aclose` waits for the loops of other threads."""

_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Loops:
    """The pools of one backend. `on_fork` is called in a child, before anything else there."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        tls: Callable[[], ssl.SSLContext | None],
        on_fork: Callable[[], None],
    ) -> None:
        self._options = options
        self._clock = clock
        self._tls = tls
        self._on_fork = on_fork
        self._pools: dict[asyncio.AbstractEventLoop, LoopPool] = {}
        self._lock = threading.Lock()
        self._forks = _forks
        self._inherited: list[LoopPool] = []
        self.closed = False

    def pool(self) -> LoopPool:
        """The pool of the running loop. Raises `ClosedError` after `aclose`, and
        `CrossThreadError` on a loop that was running when the process forked."""
        if self._forks != _forks:
            self._after_fork()
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is not None:
            return pool
        with self._lock:
            if self.closed:
                raise ClosedError("the backend is closed")
            if any(pool.loop is loop for pool in self._inherited):
                raise CrossThreadError(
                    "this event loop was made before the process forked and shares its sockets "
                    "with the parent; run a new loop in the child (asyncio.run)"
                )
            for other in [known for known in self._pools if known.is_closed()]:
                del self._pools[other]
            pool = self._pools[loop] = LoopPool(loop, self._options, self._clock, self._tls)
            return pool

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._inherited += self._pools.values()
        self._pools = {}
        self._on_fork()
        self._forks = _forks

    async def aclose(self) -> None:
        """Close the connections of every loop; those of other threads on their own loops."""
        if self._forks != _forks:
            self._after_fork()
        with self._lock:
            self.closed = True
            pools, self._pools = list(self._pools.values()), {}
        here = asyncio.get_running_loop()
        elsewhere: list[asyncio.Future[None]] = []
        for pool in pools:
            if pool.loop is not here and pool.loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_close(pool), pool.loop)
                elsewhere.append(asyncio.wrap_future(closing))
            elif not pool.loop.is_closed():
                pool.close()
        await _let_go()
        if elsewhere:
            await asyncio.wait(elsewhere, timeout=CLOSE_SECONDS)

    def __repr__(self) -> str:
        lanes = [lane for pool in list(self._pools.values()) for lane in pool.lanes]
        return ", ".join(map(repr, lanes)) or "no connections"


async def _close(pool: LoopPool) -> None:
    pool.close()
    await _let_go()


async def _let_go() -> None:
    """Let the loop close the sockets of aborted transports."""
    for _ in range(3):
        await asyncio.sleep(0)
