"""How a handler is called: worked out once, from its signature, when it is declared.

The payload is the parameter that is not annotated as `Message`; a parameter that is gets the
message. With batches both are lists. A plain function runs in a thread (`threads.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from pumphouse.content import decode
from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.decoding import Decoder, decoder_for


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """What a handler takes, and in which place.

    `decode` is None for a handler that takes no payload. `payload` and `message` are the names of
    its parameters, or None.
    """

    function: Callable[..., Any]
    name: str
    is_async: bool
    batch: bool
    payload: str | None
    message: str | None
    payload_type: Any
    decode: Decoder | None
    payload_only: bool  # one positional payload and nothing else: the quick way

    def payload_of(self, raw: ReceivedMessage) -> Any:
        """The decoded payload; `UndecodableError` where the body is not what the handler takes."""
        if self.payload_type is str and not raw.message_attributes:
            return raw.body
        body = decode(raw.body, raw.message_attributes)
        return self.decode(body) if self.decode is not None else None

    def arguments(self, payload: Any, message: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self.payload is not None:
            arguments[self.payload] = payload
        if self.message is not None:
            arguments[self.message] = message
        return arguments


def plan_for(function: Callable[..., Any], *, batch: bool) -> HandlerPlan:
    """Read a handler's signature. Raises `UsageError` for one that can't be called."""
    if not callable(function):
        raise UsageError(f"a handler is a function, not {function!r}")
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"handler {name} yields, so calling it runs nothing; it returns instead")
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(target, include_extras=False)
    except Exception as error:
        raise UsageError(f"the annotations of handler {name} can't be read: {error}") from error
    payload: inspect.Parameter | None = None
    message: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        kind = hints.get(parameter.name, inspect.Parameter.empty)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"handler {name}: parameter {parameter.name!r} can't be named")
        if _is_message(kind, batch):
            if message is not None:
                raise UsageError(f"handler {name} asks for the message twice")
            message = parameter.name
        elif payload is None and parameter.kind is not parameter.KEYWORD_ONLY:
            payload = parameter
        elif parameter.default is parameter.empty:
            raise UsageError(
                f"handler {name}: parameter {parameter.name!r} is neither the payload nor a Message"
            )
    kind = hints.get(payload.name, inspect.Parameter.empty) if payload else None
    if batch and payload is not None:
        kind = _item_type(name, kind)
    return HandlerPlan(
        function=function,
        name=name,
        is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(function),
        batch=batch,
        payload=payload.name if payload else None,
        message=message,
        payload_type=kind,
        decode=decoder_for(kind) if payload is not None else None,
        payload_only=payload is not None and message is None,
    )


def _is_message(kind: Any, batch: bool) -> bool:
    if batch:
        return get_origin(kind) is list and get_args(kind) == (Message,)
    return kind is Message


def _item_type(name: str, kind: Any) -> Any:
    if kind is inspect.Parameter.empty or kind is list:
        return inspect.Parameter.empty
    if get_origin(kind) is not list:
        raise UsageError(
            f"handler {name} takes batches, so its payload is a list (list[dict], list[Order], …), "
            f"not {kind!r}"
        )
    return get_args(kind)[0]
