"""The connections of one event loop: a lane of them for each origin and kind of call.

A *lane* is a bounded set of connections that nothing else uses. Receives that may wait have lanes
of their own, so that polls never keep a delete or a visibility change waiting. The connection used
last is used first; the others run out of time and close by themselves. Nothing here is safe for
threads: each loop has its own `LoopPool` (`client.py` keeps them).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable

from pumphouse.clock import Clock
from pumphouse.errors import ClosedError, NetworkError
from pumphouse.http.connection import Connection
from pumphouse.http.dial import Origin, Proxy, dial, proxy_for
from pumphouse.http.options import Options


class Lane:
    """Connections to one origin for one kind of call, at most `limit` of them."""

    def __init__(
        self,
        origin: Origin,
        polls: bool,
        options: Options,
        clock: Clock,
        tls: ssl.SSLContext | None,
        proxy: Proxy | None,
    ) -> None:
        self.origin = origin
        self.limit = options.max_poll_connections if polls else options.max_connections
        self._polls = polls
        self._options = options
        self._clock = clock
        self._tls = tls
        self._proxy = proxy
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[Connection | None]] = deque()
        self._closed = False

    def take(self, now: float) -> Connection | None:
        """An idle connection that can be used, or None. Never takes one ahead of who waits."""
        if self._waiters:
            return None
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.usable(now):
                return connection
            connection.abort("it was idle for too long, or the other side has closed it")
        return None

    async def wait(self, deadline: float) -> Connection:
        """A connection: an idle one, a new one, or the next that becomes free.

        Raises `NetworkError` when none could be opened or none became free before `deadline`.
        """
        while True:
            if self._closed:
                raise ClosedError("the backend is closed")
            if (connection := self.take(self._clock.monotonic())) is not None:
                return connection
            if len(self._all) + self._opening < self.limit and not self._waiters:
                return await self._open(deadline)
            if (given := await self._queue(deadline)) is None:
                self._opening -= 1  # the place that was kept for us; `_open` takes it at once
                return await self._open(deadline)
            if given.usable(self._clock.monotonic()):
                return given
            given.abort("the other side has closed it")

    async def _queue(self, deadline: float) -> Connection | None:
        """The next connection that becomes free, or None for a place to open one, kept for us."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()

        def give_up() -> None:
            if not waiter.done():
                waiter.set_exception(
                    NetworkError(
                        f"none of the {self.limit} connections to {self.origin} became free in time"
                    )
                )

        timer = self._clock.call_later(deadline - self._clock.monotonic(), give_up)
        self._waiters.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._pass_on(waiter.result())
            raise
        finally:
            timer.cancel()

    def _pass_on(self, connection: Connection | None) -> None:
        """Give back what was handed to someone who no longer wants it."""
        if connection is None:
            self._opening -= 1
            self._offer_place()
        elif connection in self._all:  # it may have closed since
            self.released(connection)

    async def _open(self, deadline: float) -> Connection:
        options = self._options
        seconds = min(options.connect_timeout_seconds, deadline - self._clock.monotonic())
        self._opening += 1
        made: list[Connection] = []

        def make() -> Connection:
            connection = Connection(
                self,
                self._clock,
                idle_seconds=options.idle_timeout_seconds,
                max_body_bytes=options.max_answer_bytes,
            )
            made.append(connection)
            return connection

        try:
            connection = await dial(
                make,
                self.origin,
                tls=self._tls,
                proxy=self._proxy,
                clock=self._clock,
                timeout_seconds=seconds,
            )
        except BaseException:
            self._opening -= 1
            for connection in made:
                connection.abort()
            self._offer_place()
            raise
        self._opening -= 1
        if self._closed:
            connection.abort()
            raise ClosedError("the backend was closed while the connection was opened")
        self._all.add(connection)
        return connection

    # --- what connections tell ------------------------------------------------------------------

    def released(self, connection: Connection) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._idle.append(connection)

    def closed(self, connection: Connection) -> None:
        if connection not in self._all:
            return
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._offer_place()

    def _offer_place(self) -> None:
        while self._waiters and len(self._all) + self._opening < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._opening += 1  # kept for the one that wakes
                waiter.set_result(None)
                return

    # --- for the whole ----------------------------------------------------------------------------

    def distrust(self, since: float) -> None:
        """Close the idle connections that were last used before `since`: one like them was dead."""
        for connection in [idle for idle in self._idle if idle.idle_since < since]:
            connection.abort("a connection of the same age had been dropped")

    def close(self) -> None:
        self._closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ClosedError("the backend was closed"))
        self._waiters.clear()
        for connection in tuple(self._all):
            connection.abort("the backend was closed")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Idle, busy (or being opened), and waiting callers."""
        idle = len(self._idle)
        waiting = sum(not waiter.done() for waiter in self._waiters)
        return idle, len(self._all) - idle + self._opening, waiting

    def __repr__(self) -> str:
        idle, busy, waiting = self.sizes
        kind = "polls" if self._polls else "calls"
        state = f"{idle} idle, {busy} busy of {self.limit}, {waiting} waiting"
        return f"<Lane {kind} to {self.origin}: {state}>"


class LoopPool:
    """Every lane of one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        clock: Clock,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self.loop = loop
        self._options = options
        self._clock = clock
        self._tls = tls
        self._lanes: dict[tuple[Origin, bool], Lane] = {}

    def lane(self, origin: Origin, polls: bool) -> Lane:
        """The lane for receives that may wait (`polls`) or for everything else."""
        if (lane := self._lanes.get((origin, polls))) is None:
            options = self._options
            lane = self._lanes[origin, polls] = Lane(
                origin,
                polls,
                options,
                self._clock,
                self._tls() if origin.scheme == "https" else None,
                proxy_for(origin),
            )
        return lane

    @property
    def lanes(self) -> list[Lane]:
        return list(self._lanes.values())

    def close(self) -> None:
        """Close every connection; on this pool's own loop."""
        for lane in self._lanes.values():
            lane.close()
