"""A declared handler, as its module sees it: still the function that it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pumphouse.model import Message
from pumphouse.subscriber.kinds import returns_of

if TYPE_CHECKING:
    from pumphouse.publishers import Publisher

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a handler, as `handler.calls` keeps it while an app runs in process.

    `result` is what it returned, or the exception that it raised.
    """

    payload: Any
    message: Message
    result: Any


class Handler(Generic[P, R]):
    """A declared handler: call it as the function that it is.

    `calls` is filled while an app runs in process, for tests; `call.message.queue` is the queue.
    `queues` are those that it was declared for, as they were named there, and `publishers` what its
    results go to, beside the `publish=` of each subscription.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.calls: list[Call] = []
        self.queues: tuple[str, ...] = ()
        self.publishers: tuple[Publisher[Any], ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @functools.cached_property
    def several_replies(self) -> bool:
        """Whether the annotation says that it returns a list or tuple of replies."""
        return returns_of(self.function).several

    def record(self, payload: Any, message: Message, result: Any) -> None:
        """Note a call in `calls`."""
        self.calls.append(Call(payload, message, result))

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", None) or type(self.function).__qualname__
        return f"<Handler {name} of {', '.join(self.queues) or 'no queue'}>"


def as_handler(function: Callable[P, R]) -> Handler[P, R]:
    """The handler around a function; a handler is its own."""
    return function if isinstance(function, Handler) else Handler(function)
