"""`Sink` for threads: the same calls, without `await`.

Each call runs the async sink in the portal's loop (`portal.py`), so that what many threads send
travels in the same batches. Works in plain threads, in Django and Flask, and beside a running event
loop; only a call from the portal's own thread is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from pumphouse import sink as aio
from pumphouse.addressing import Topic
from pumphouse.backend import Backend
from pumphouse.errors import PumphouseError
from pumphouse.model import Receipt
from pumphouse.sink.options import SinkOptions
from pumphouse.sink.outgoing import SendOptions
from pumphouse.sync.portal import Portal, shared


class Sink:
    """Takes what `pumphouse.sink.Sink` takes, and does what it does.

    The backend is used in the portal's loop. A sink that is not closed is closed when the
    interpreter exits, and sends what waits; after a fork, make a new one in the child.
    """

    def __init__(
        self,
        queue: str | Topic,
        backend: Backend,
        *,
        portal: Portal | None = None,
        **options: Unpack[SinkOptions],
    ) -> None:
        self._portal = portal or shared()
        self.sink = aio.Sink(queue, backend, **options)
        self._not_at_exit: Callable[[], None] = self._portal.at_exit(self.sink.aclose)

    def send(
        self, body: object, *, wait: bool | None = None, **options: Unpack[SendOptions]
    ) -> Receipt:
        """As the async `send`. Ctrl-C takes the message back if no request is carrying it yet."""
        return self._portal.call(self.sink.send, body, wait=wait, **options)

    def send_many(
        self, messages: Iterable[object], *, ordered: bool = True
    ) -> list[Receipt | PumphouseError]:
        """As the async `send_many`."""
        return self._portal.call(self.sink.send_many, list(messages), ordered=ordered)

    def close(self, timeout_seconds: float | None = None) -> None:
        """As the async `aclose`. Happens by itself at the interpreter's exit; twice is no error."""
        self._not_at_exit()
        if not self._portal.closed:  # which closed it
            self._portal.call(self.sink.aclose, timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def stats(self) -> dict[str, int]:
        """As the async sink's."""
        return self.sink.stats

    def describe(self) -> dict[str, Any]:
        """As the async sink's."""
        return self.sink.describe()

    def __repr__(self) -> str:
        return f"sync {self.sink!r}"
