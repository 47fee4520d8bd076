"""How a handler is called: worked out from its signature when it is declared, once.

The plan says what the handler is given (`injection/graph.py`) and reads its payload
(`decoding.py`). `bind` adds what only a started app knows, its state and its overrides, and gives
what calls the handler; nothing is worked out for a message. With batches payload, messages and
headers are lists. A plain function runs in a thread (`threads.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pumphouse.claim_check import carries_ticket
from pumphouse.content import Headers, UndecodableError, decode, header_attributes
from pumphouse.errors import ConfigError, UsageError
from pumphouse.protocol.operations import Attributes, ReceivedMessage
from pumphouse.subscriber.decoding import Decoder, decoder_for
from pumphouse.subscriber.injection.calling import Call, InThread, caller
from pumphouse.subscriber.injection.graph import MESSAGE, Graph, InjectedNeed, graph_of
from pumphouse.subscriber.injection.headers import HeaderNeed, header_reader
from pumphouse.subscriber.injection.signatures import is_async, name_of, yields

if TYPE_CHECKING:
    from pumphouse.app import App


Around = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """What a handler takes, and in which place.

    `decode` is None for a handler that takes no payload. `payload` and `message` are the names of
    its parameters, or None. `headers` and `injected` are what it and its dependencies ask for.
    """

    function: Callable[..., Any]
    name: str
    is_async: bool
    batch: bool
    payload: str | None
    message: str | None
    payload_type: Any
    decode: Decoder | None
    headers: tuple[HeaderNeed, ...] = ()
    injected: tuple[InjectedNeed, ...] = ()

    def payload_of(self, raw: ReceivedMessage) -> Any:
        """The decoded payload; `UndecodableError` where the body is not what the handler takes."""
        if self.payload_type is str and not raw.message_attributes:
            return raw.body
        if raw.message_attributes and carries_ticket(raw.message_attributes):
            raise UndecodableError(
                "its body lies in a claim check; subscribe with claim_check= to have it fetched"
            )
        body = decode(raw.body, raw.message_attributes)
        return self.decode(body) if self.decode is not None else None

    def check(self, raw: ReceivedMessage) -> None:
        """Raise `UndecodableError` for a message that the handler can't be given."""
        self.payload_of(raw)
        header_reader(self.headers)(raw.message_attributes)

    def bind(
        self, app: App | None, in_thread: InThread | None, around: Around | None = None
    ) -> Bound:
        """What calls the handler in a run of the app; `in_thread` runs a plain one. `around` gives
        what is called in the place of the function itself, its dependencies left aside.

        Raises `ConfigError` for state that the lifespan has not put, `UsageError` for an override
        whose parameters can't be filled.
        """
        overrides = app.dependency_overrides if app is not None else None
        graph = graph_of(self.function, batch=self.batch, overrides=overrides)
        return Bound(
            call=caller(
                around(self.function) if around is not None else self.function,
                graph,
                [_provider(need, app) for need in graph.injected],
                None if self.is_async else in_thread,
            ),
            read_headers=header_reader(graph.headers),
            header_count=len(graph.headers),
            wants_message=graph.wants_message,
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A handler in a run of its app.

    `call(payload, message, headers)` calls it, with what `headers_of` has read; the message is
    None where nobody asks for it (`wants_message`).
    """

    call: Call
    read_headers: Callable[[Attributes | None], tuple[Any, ...]]
    header_count: int
    wants_message: bool

    def headers_of(self, raw: ReceivedMessage, changed: Headers | None = None) -> tuple[Any, ...]:
        """The headers that are asked for, in their order; `changed` are those that a middleware
        has written in the place of the message's own.

        Raises `UndecodableError` for one that is missing or can't be read.
        """
        if not self.header_count:
            return ()
        if changed is not None:
            return self.read_headers(header_attributes(changed))
        return self.read_headers(raw.message_attributes)

    def headers_of_batch(self, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The headers of several messages: a list for each header."""
        return tuple(map(list, zip(*rows, strict=True)))


def plan_for(function: Callable[..., Any], *, batch: bool) -> HandlerPlan:
    """Read a handler's signature, and those of its dependencies. Raises `UsageError` for one that
    can't be called."""
    if not callable(function):
        raise UsageError(f"a handler is a function, not {function!r}")
    name = name_of(function)
    if yields(function):
        raise UsageError(f"handler {name} yields, so calling it runs nothing; it returns instead")
    graph = graph_of(function, batch=batch)
    kind = graph.payload.kind if graph.payload else None
    if batch and graph.payload is not None:
        kind = _item_type(f"handler {name}: parameter {graph.payload.name!r}", kind)
    return HandlerPlan(
        function=function,
        name=name,
        is_async=is_async(function),
        batch=batch,
        payload=graph.payload.name if graph.payload else None,
        message=next((name for name, slot in graph.arguments.slots if slot == MESSAGE), None),
        payload_type=kind,
        decode=_decoder(graph, kind, name),
        headers=tuple(graph.headers),
        injected=tuple(graph.injected),
    )


def _decoder(graph: Graph, kind: Any, name: str) -> Decoder | None:
    if graph.payload is None:
        return None
    try:
        return decoder_for(kind)
    except UsageError as error:
        raise UsageError(f"handler {name}: parameter {graph.payload.name!r}: {error}") from None


def _provider(need: InjectedNeed, app: App | None) -> Callable[[], Any]:
    if app is None:
        raise ConfigError(f"{need.where} is given by an app, and there is none")
    try:
        return need.mark.provider(need.kind, app)
    except ConfigError as error:
        raise ConfigError(f"{need.where}: {error}") from None


def _item_type(where: str, kind: Any) -> Any:
    if kind is inspect.Parameter.empty or kind is list:
        return inspect.Parameter.empty
    if get_origin(kind) is not list:
        raise UsageError(
            f"{where}: it takes batches, so its payload is a list (list[dict], list[Order], …), "
            f"not {kind!r}"
        )
    return get_args(kind)[0]
