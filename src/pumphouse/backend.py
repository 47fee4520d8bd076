"""The seam: whatever executes an operation is a backend, and everything else stands on it."""

from __future__ import annotations

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
