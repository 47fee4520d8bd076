"""Serving the endpoint: the socket, uvicorn's server, its signals and its end.

`Server` is uvicorn's with three differences: its connections are our own (`connection.py`), parked
polls are answered as soon as it is told to stop, and a signal ends it with exit code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator

import uvicorn

from pumphouse.errors import ConfigError, UsageError
from pumphouse.server.asgi import Application
from pumphouse.server.connection import Connection
from pumphouse.server.wire import Endpoint

STOP_SECONDS = 10
"""How long answers that are under way may take once the server was told to stop."""
BACKLOG = 2048


class Server(uvicorn.Server):
    """Serves an `Endpoint` on a socket until it is told to stop; `on_start` is called first, and
    `on_stop` when the last answer has gone out."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        loop: str = "auto",
        on_start: Callable[[], object] | None = None,
        on_stop: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._on_start = on_start
        self._on_stop = on_stop
        config = uvicorn.Config(
            Application(endpoint),
            http=Connection,
            ws="none",
            lifespan="off",
            loop=loop,
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        super().__init__(config)

    def stop(self) -> None:
        """Tell the server to stop; it may be called from a signal handler or another thread."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_start is not None:
            self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            now = asyncio.get_running_loop().time()
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.check_pace(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._endpoint.stop()
        await super().shutdown(sockets)
        if self._on_stop is not None:
            await self._on_stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT, and don't die of them: stopping is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `UsageError` for a host that is none, `ConfigError` where the
    port is taken or may not be used."""
    if not 0 <= port <= 65535:
        raise UsageError(f"the port {port} is not between 0 and 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"the host {host!r} can't be listened on: {error.strerror}") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    # The protocol is said so that asyncio knows TCP, and turns Nagle's algorithm off.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{host}:{port} can't be listened on: {error.strerror}; "
            "give another --port, or 0 for any that is free"
        ) from None
    return bound


def allow_many_connections() -> None:
    """Raise the process's soft limit of open files to its hard one, where there are limits."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
