"""The one thread with an event loop that stands behind every sync twin.

`shared()` is the process's portal. Its thread starts with the first call, and it is closed when the
interpreter exits, after everything registered with `at_exit` was closed. Any thread may call, also
one that runs an event loop of its own; only the portal's own thread is refused, because it would
wait for itself. A portal does not survive a fork: in the child, `shared()` is a fresh one, and what
was made before the fork says so when it is used.

What runs in the loop, and what a twin's methods mean, is for `sync/sink.py` and
`sync/transport.py` to say.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from pumphouse.errors import ClosedError, CrossThreadError

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("pumphouse.sync")

Closer = Callable[[], Awaitable[object]]


class Portal:
    """A thread with an event loop, started by the first `call` and ended by `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        self._closers: dict[object, Closer] = {}
        self._closed = False

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an async function in the portal's loop; return or raise what it does.

        An interrupt of the waiting thread (Ctrl-C) cancels the function. Raises `CrossThreadError`
        in the portal's own thread, and `ClosedError` after `close` or in a forked child.
        """
        portal = self._started()

        async def run() -> T:
            return await function(*args, **kwargs)

        try:
            future = portal.start_task_soon(run)
        except RuntimeError as error:  # it closed between the two lines
            raise ClosedError("the sync portal is closed") from error
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise ClosedError("the sync portal closed while the call was waiting") from None
            raise
        finally:
            future.cancel()  # does nothing when it is done

    def at_exit(self, close: Closer) -> Callable[[], None]:
        """Run `close` in the loop when the portal closes, the latest first; returns what takes it
        back."""
        key = object()
        self._closers[key] = close
        return lambda: (self._closers.pop(key, None), None)[1]

    def close(self) -> None:
        """Run the registered closers, cancel what is left, and end the thread. Does nothing the
        second time."""
        with self._lock:
            if self._closed or self._pid != os.getpid():
                return
            portal, thread = self._portal, self._thread
            if portal is None or thread is None:
                self._closed = True
                return
            self._check_thread()
            while self._closers:
                _, close = self._closers.popitem()
                try:
                    portal.call(close)
                except Exception:
                    _log.exception("closing a sync twin failed")
            self._closed = True
            portal.call(portal.stop, True)
            thread.join()

    @property
    def closed(self) -> bool:
        """Whether `close` was called, so that what was registered with `at_exit` is closed too."""
        return self._closed

    def _started(self) -> BlockingPortal:
        if self._pid != os.getpid():
            raise ClosedError(
                "this object was made before the process forked, and its thread and connections "
                "stayed in the parent; make a new one in the child"
            )
        self._check_thread()
        if self._portal is not None and not self._closed:
            return self._portal
        with self._lock:
            if self._closed:
                raise ClosedError("the sync portal is closed")
            if self._portal is None:
                ready: Future[BlockingPortal] = Future()
                self._thread = threading.Thread(
                    target=_serve, args=(ready,), name="pumphouse-portal", daemon=True
                )
                self._thread.start()
                self._portal = ready.result()
            return self._portal

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise CrossThreadError(
                "a sync twin was called from the portal's own thread, which would wait for itself; "
                "use the async object there"
            )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "running" if self._portal else "not started"
        return f"Portal({state})"


class Twin:
    """The life of a sync twin: until it, its `with` block or its portal is closed."""

    def __init__(self, close: Closer, portal: Portal | None) -> None:
        self._portal = portal or shared()
        self._close = close
        self._not_at_exit = self._portal.at_exit(close)

    def close(self) -> None:
        """As the async `close`. Happens by itself at the interpreter's exit; twice is no error."""
        self._not_at_exit()
        if not self._portal.closed:
            self._portal.call(self._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Loop(asyncio.SelectorEventLoop):
    """A loop that can also work, and end, while the interpreter exits and gives no new thread.

    What waits to be sent is sent then, and may need what blocks: a name, the endpoint. It blocks
    the loop itself then.
    """

    def __init__(self) -> None:
        super().__init__()
        self._workers = ThreadPoolExecutor(thread_name_prefix="pumphouse-portal-worker")
        self.set_default_executor(self._workers)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Ends the workers without the thread that asyncio starts to wait for them."""
        self._workers.shutdown()


def _serve(ready: Future[BlockingPortal]) -> None:
    """The portal's thread."""

    async def main() -> None:
        async with BlockingPortal() as portal:
            ready.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(main, backend_options={"loop_factory": _Loop})
    except BaseException as error:
        if ready.done():
            raise
        ready.set_exception(error)


_shared: Portal | None = None
_shared_lock = threading.Lock()


def shared() -> Portal:
    """The process's portal: the same one for every sync twin."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Portal()
        return _shared


def _close_shared() -> None:
    if _shared is not None:
        _shared.close()


def _after_fork() -> None:
    global _shared, _shared_lock
    _shared = None
    _shared_lock = threading.Lock()


atexit.register(_close_shared)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
