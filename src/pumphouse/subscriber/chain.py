"""Middleware: what one is, and the chain that it makes around a handler or a publisher.

A receive middleware is an async function `(message, call_next)`, a publish middleware one of
`(outgoing, call_next)`. An object can be both, with methods `receive`, `receive_batch` (for
handlers of batches) and `publish`; one that has to know where it runs has `bind`. A chain is made
once for each subscription and for each publisher, the first middleware outermost. What the
innermost does, and what a middleware's own result means, is its maker's (`runner.py`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from pumphouse.clock import Clock
from pumphouse.errors import UsageError
from pumphouse.hooks import Hooks
from pumphouse.model import Lease, Message
from pumphouse.subscriber.outcomes import Outcome, Settle

CallNext: TypeAlias = Callable[[Message], Awaitable[Outcome]]
CallNextBatch: TypeAlias = Callable[[list[Message]], Awaitable[list[Outcome]]]
Side = Literal["receive", "receive_batch", "publish"]

_TAKES = {
    "receive": "(message, call_next)",
    "receive_batch": "(messages, call_next)",
    "publish": "(outgoing, call_next)",
}


class Receives(Protocol):
    """An object that is a receive middleware."""

    async def receive(self, message: Message, call_next: CallNext, /) -> Any:
        """Around the handler of one message."""


class ReceivesBatches(Protocol):
    """An object that is a middleware for batches."""

    async def receive_batch(self, messages: list[Message], call_next: CallNextBatch, /) -> Any:
        """Around the handler of a batch."""


class Publishes(Protocol):
    """An object that is a publish middleware."""

    async def publish(self, outgoing: Any, call_next: Any, /) -> Any:
        """Around the sending of one message."""


class Binds(Protocol):
    """An object that is another middleware for each place that it is used in."""

    def bind(self, surroundings: Surroundings, /) -> Any:
        """The middleware for this place."""


Middleware: TypeAlias = (
    Callable[[Message, CallNext], Awaitable[Any]] | Receives | ReceivesBatches | Publishes | Binds
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a middleware runs, for one whose method `bind(surroundings)` gives the middleware.

    `queue` is the subscription's, and None around publishers. `outcome_of(error)` is what becomes
    of a message when this error leaves its handler and all middleware.
    """

    queue: str | None
    clock: Clock
    hooks: Hooks
    outcome_of: Callable[[BaseException], Outcome]


def check_middleware(middleware: Sequence[object], where: str, *, batch: bool = False) -> None:
    """Raise `UsageError` for what is no middleware, or for one that can't surround batches.

    `where` begins the message: `"subscriber of 'orders': "`.
    """
    if not isinstance(middleware, list | tuple):
        raise UsageError(f"{where}middleware is a list, not {middleware!r}: middleware=[…]")
    for each in middleware:
        name = _name(each)
        if isinstance(each, type):
            raise UsageError(f"{where}middleware {name} is a class; give an instance: {name}(…)")
        sides = _sides(each)
        if not sides:
            raise UsageError(
                f"{where}{each!r} is no middleware: that is an async function of "
                "(message, call_next), or an object with receive, receive_batch or publish"
            )
        for side, call in sides.items():
            _check_call(f"{where}middleware {name}", side, call)
        if batch and "receive" in sides and "receive_batch" not in sides:
            raise UsageError(
                f"{where}middleware {name} takes single messages, and this handler takes batches; "
                "make it an object that has receive_batch(messages, call_next) as well"
            )


def layers(
    middleware: Sequence[object], side: Side, surroundings: Surroundings
) -> list[Callable[..., Awaitable[Any]]]:
    """Those that have something to do on this side, bound to where they are used."""
    found: list[Callable[..., Awaitable[Any]]] = []
    for each in middleware:
        if side in _sides(each):
            bind = getattr(each, "bind", None)
            found.append(_sides(each if bind is None else bind(surroundings))[side])
    return found


class Chain:
    """Middleware around `last`, the first one outermost.

    `last(item, context)` does what is in the middle. `judge(value, item, context)` turns what a
    middleware returned into a result of the same kind. `context` is whatever `run` was given.
    Where results are outcomes (`settles`), one that is raised (`Settle`) is one that is returned.
    """

    def __init__(
        self,
        middleware: Sequence[Callable[..., Awaitable[Any]]],
        last: Callable[[Any, Any], Awaitable[Any]],
        judge: Callable[[Any, Any, Any], Awaitable[Any]],
        *,
        settles: bool = False,
    ) -> None:
        self._layers = tuple(middleware)
        self._depth = len(self._layers)
        self._last = last
        self._judge = judge
        self._settles: tuple[type[Settle], ...] = (Settle,) if settles else ()

    async def run(self, item: Any, context: Any, place: int = 0) -> Any:
        """The result for one item, from the middleware at `place` inwards."""
        if place == self._depth:
            try:
                return await self._last(item, context)
            except self._settles as settled:
                return await self._judge(settled.outcome, item, context)
        layer = self._layers[place]
        call_next = _Next(self, place, context)
        try:
            value = await layer(item, call_next)
            if value is None:  # it changes nothing
                value = call_next.result()
            elif call_next.called and not call_next.done:
                if inspect.iscoroutine(value):
                    value.close()
                raise UsageError(f"middleware {self.name(place)} did not await call_next")
        except self._settles as settled:
            value = settled.outcome
        finally:
            call_next.error = None  # its traceback leads back here
            if not call_next.done:
                await call_next.close()
        return await self._judge(value, item, context)

    def name(self, place: int) -> str:
        return _name(self._layers[place])


class _Next:
    """The `call_next` of one middleware for one item."""

    __slots__ = ("_chain", "_context", "_place", "_task", "_value", "called", "done", "error")

    def __init__(self, chain: Chain, place: int, context: Any) -> None:
        self._chain = chain
        self._place = place
        self._context = context
        self._value: Any = None
        self._task: asyncio.Task[Any] | None = None
        self.called = False
        self.done = False
        self.error: BaseException | None = None

    def __call__(self, item: Any) -> Awaitable[Any]:
        if self.called:
            raise UsageError(
                f"middleware {self._chain.name(self._place)} called call_next twice; a message is "
                "handled once (for another attempt return Retry())"
            )
        self.called = True
        return self._call(item)

    async def _call(self, item: Any) -> Any:
        if self.done:
            raise UsageError(
                f"middleware {self._chain.name(self._place)} has ended, and call_next is too late"
            )
        self._task = asyncio.current_task()
        try:
            value = self._value = await self._chain.run(item, self._context, self._place + 1)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.done = True
        return value

    async def close(self) -> None:
        """The middleware is at its end: nothing begins any more. What it has left at work in a task
        of its own is cancelled and waited for, so that no message is run by two at a time."""
        self.called = True
        task = self._task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait({task})
        self.done = True

    def result(self) -> Any:
        """What came of it, for a middleware that said nothing itself."""
        if self.error is not None:
            raise self.error
        if self._value is None:
            did = "did not await call_next" if self.called else "did not call call_next"
            raise UsageError(
                f"middleware {self._chain.name(self._place)} {did} and returned nothing, so nobody "
                "has said what becomes of the message"
            )
        return self._value


def mark_logged(error: BaseException, leases: Sequence[Lease]) -> None:
    """Note that a middleware logs this error of the messages with these leases, so that nobody
    does again."""
    error.__dict__["_pumphouse_logged"] = leases


def was_logged(error: BaseException, lease: Lease | None) -> bool:
    """Whether a middleware has logged this error of the message with this lease."""
    logged = error.__dict__.get("_pumphouse_logged", ())
    return lease is not None and any(each is lease for each in logged)


def _sides(middleware: object) -> dict[Side, Callable[..., Any]]:
    found: dict[Side, Callable[..., Any]] = {}
    for side in ("receive", "receive_batch", "publish"):
        if callable(call := getattr(middleware, side, None)):
            found[side] = call
    if not found and callable(middleware):
        found["receive"] = middleware
    return found


def _check_call(what: str, side: Side, call: Callable[..., Any]) -> None:
    target: Any = call
    while isinstance(target, partial):
        target = target.func
    if not inspect.isroutine(target):
        target = getattr(target, "__call__", target)  # noqa: B004
    if inspect.isasyncgenfunction(target) or inspect.isgeneratorfunction(target):
        raise UsageError(f"{what} yields; it awaits call_next and returns instead")
    if inspect.isroutine(target) and not inspect.iscoroutinefunction(target):
        raise UsageError(f"{what} is no async function (async def … {_TAKES[side]})")
    try:
        inspect.signature(call).bind(None, None)
    except TypeError:
        raise UsageError(
            f"{what} takes {inspect.signature(call)}, and should take {_TAKES[side]}"
        ) from None
    except ValueError:
        pass  # a callable that does not show its signature


def _name(middleware: object) -> str:
    while isinstance(middleware, partial):
        middleware = middleware.func
    owner = getattr(middleware, "__self__", middleware)  # of a method, the object
    if isinstance(owner, type) or inspect.isroutine(owner):
        return str(getattr(owner, "__qualname__", owner))
    return type(owner).__qualname__
