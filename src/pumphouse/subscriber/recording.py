"""`handler.calls`: what a handler was called with and what came of it, noted for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from pumphouse.model import Message

Recorder = Callable[[Any, Message, Any], None]


_called: ContextVar[list[bool]] = ContextVar("pumphouse.called")


class Recording:
    """Notes the calls of one handler with `record(payload, message, result)`; the result of one
    that was cancelled is `unfinished`."""

    def __init__(self, record: Recorder, unfinished: object) -> None:
        self._record = record
        self._unfinished = unfinished

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The handler, so that it is known whether it was called at all: a dependency may fail
        before. In a thread as well, since a context is copied with the list in it."""

        def call(*args: Any, **kwargs: Any) -> Any:
            _called.get().append(True)
            return function(*args, **kwargs)

        return call

    async def of(
        self, call: Callable[[], Awaitable[Any]], payloads: list[Any], messages: Sequence[Any]
    ) -> Any:
        """What the call gives or raises; for a batch every message of it is a call."""
        value: Any = self._unfinished
        called: list[bool] = []
        before = _called.set(called)
        try:
            value = await call()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            value = error
            raise
        finally:
            _called.reset(before)
            if called:
                for payload, message in zip(payloads, messages, strict=True):
                    self._record(payload, message, value)
        return value
