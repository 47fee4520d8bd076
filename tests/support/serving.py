"""An account as a really listening endpoint, in a thread of the test's process.

On a `VirtualClock`, `pass_time` moves it from outside, and while a poll is parked time passes by
itself: a client that waits in another thread would otherwise wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pumphouse.backend import Backend
from pumphouse.clock import VirtualClock
from pumphouse.server.auth import Gate
from pumphouse.server.runner import Server, bind
from pumphouse.server.wire import Endpoint

T = TypeVar("T")


class Served:
    """A backend at `url`; `endpoint` is what serves it."""

    def __init__(
        self, backend: Backend, gate: Gate | None = None, clock: VirtualClock | None = None
    ) -> None:
        self.backend = backend
        self.clock = clock
        self.endpoint = Endpoint(backend, gate=gate)
        self._socket = bind("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = Server(self.endpoint)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served endpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._running.wait(20), "the server did not start"

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running.set()
        ticking = asyncio.create_task(self._tick()) if self.clock else None
        await self.server.serve([self._socket])
        if ticking is not None:
            ticking.cancel()

    async def _tick(self) -> None:
        assert self.clock is not None
        while True:
            await asyncio.sleep(0.005)
            due = self.clock.next_timer
            if self.endpoint.parked and due is not None:
                await self.clock.advance(max(0.0, due - self.clock.monotonic()))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's own event loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def pass_time(self, seconds: float) -> None:
        assert self.clock is not None
        self.run(self.clock.advance(seconds))


@contextmanager
def serving(
    backend: Backend, *, gate: Gate | None = None, clock: VirtualClock | None = None
) -> Iterator[Served]:
    """A backend behind its own endpoint, on a free port of 127.0.0.1."""
    served = Served(backend, gate, clock)
    served.start()
    try:
        yield served
    finally:
        served.stop()
