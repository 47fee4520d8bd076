"""The seam: whatever executes an operation is a backend, and everything else stands on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable

from pumphouse.protocol.operations import Operation

R = TypeVar("R")


@runtime_checkable
class Backend(Protocol):
    """SQS and SNS, wherever they are: `HttpBackend` reaches AWS, an `Account` is them in memory.

    `execute` returns the operation's result or raises: a `ServiceError` for what the service
    answers, `NetworkError` when the request can't have been processed, `OutcomeUnknownError` when
    it may have been. It validates nothing that the service validates. Cancelling it gives up the
    answer, not the effect.
    """

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one action and return its result."""
        ...

    async def aclose(self) -> None:
        """Give back sockets and whatever else is held; may be called twice."""


_UNSENT = "pumphouse_unsent"


@contextmanager
def nothing_leaves() -> Iterator[None]:
    """Around what has to be there before a request can leave: a cancellation that comes in it says
    so (`left_nothing`). Every other one of a call leaves it open what became of the request."""
    try:
        yield
    except asyncio.CancelledError as error:
        setattr(error, _UNSENT, True)
        raise


def left_nothing(error: asyncio.CancelledError) -> bool:
    """Whether a call was cancelled before its request left."""
    return getattr(error, _UNSENT, False)
