"""Publishers: typed values that publish to one queue or topic of an app, while it runs.

A `Publisher` checks and encodes what it is given and finds the app that it belongs to; from there
on the message is an `Outgoing` in the hands of `outlet.py`. `Place` is where a registry (an app or
a router) stands in an app: with which prefix, and inside which middleware.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, get_args

from pumphouse.addressing import Topic, check_queue, destination
from pumphouse.content import Headers
from pumphouse.errors import ClosedError, CrossThreadError, PumphouseError, UsageError
from pumphouse.model import Receipt
from pumphouse.protocol.names import FIFO_SUFFIX, is_arn, is_queue_url
from pumphouse.subscriber.chain import Middleware
from pumphouse.subscriber.decoding import encoder_for
from pumphouse.subscriber.handler import Handler, as_handler
from pumphouse.subscriber.handling import handling
from pumphouse.subscriber.injection.markers import Injected
from pumphouse.subscriber.options import SubscriberOptions
from pumphouse.subscriber.queue import Queue, as_queue

if TYPE_CHECKING:
    from pumphouse.app import App
    from pumphouse.outlet import Outlet
    from pumphouse.router import Registry
    from pumphouse.sink import SinkOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way out, as publish middleware sees it.

    `destination` is a queue (name, URL or ARN) or a `Topic`, and `body` what will be sent, encoded.
    A middleware that changes something hands a changed copy on (`dataclasses.replace`).
    """

    destination: str | Topic
    body: str | bytes
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    group_id: str | None = None
    deduplication_id: str | None = None
    delay_seconds: float | timedelta | None = None
    tenant: str | None = None
    subject: str | None = None


class PublishOptions(TypedDict, total=False):
    """What `publish` takes beside a value.

    * `group_id`, `deduplication_id`: as SQS has them. A FIFO queue or topic needs a group, or a
      tenant to make one of; without a deduplication id every message is a new one.
    * `headers`: message attributes, text or bytes by name; at most ten with those of a marker.
    * `delay_seconds`: 0 to 900, whole, or a `timedelta`; standard queues only.
    * `tenant`: whose message it is; batches are filled by going round the tenants.
    * `subject`: topics only.
    """

    group_id: str | None
    deduplication_id: str | None
    headers: Headers | None
    delay_seconds: float | timedelta | None
    tenant: str | None
    subject: str | None


_OPTIONS = PublishOptions.__annotations__.keys()


@dataclass(frozen=True, eq=False)
class Place:
    """Where a registry stands in an app. `options` is what its subscribers get by default."""

    registry: Registry
    prefix: str
    options: SubscriberOptions
    outer: Place | None

    @property
    def root(self) -> Registry:
        """The app, or a router that is included in none."""
        place = self
        while place.outer is not None:
            place = place.outer
        return place.registry

    def of(self, registry: Registry) -> Place | None:
        """The place of a registry that this one is, or is included in."""
        place: Place | None = self
        while place is not None and place.registry is not registry:
            place = place.outer
        return place

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What surrounds the publishers that are declared here, outermost first."""
        return self.options.get("middleware", ())

    def named(self, to: str | Topic) -> str | Topic:
        """A destination as it is called here: names get the prefix, URLs and ARNs are left."""
        return prefixed(self.prefix, to)

    def outlet(self, what: str) -> Outlet:
        """Where `what` publishes now. Raises `ClosedError` while the app is not running."""
        if (running := self.root.run_now) is None:
            name = getattr(self.root, "name", None)
            why = "its router is in no app" if name is None else f"the app {name!r} is not running"
            raise ClosedError(f"{what} sends nothing: {why}")
        return running.outlet


def prefixed(prefix: str, to: str | Topic) -> str | Topic:
    """A queue or topic with a prefix before its name; a URL or an ARN says which one it is, and
    stays. Raises `UsageError` for a name that gets too long."""
    name = to.reference if isinstance(to, Topic) else to
    if not prefix or is_arn(name) or is_queue_url(name):
        return to
    return Topic(prefix + name) if isinstance(to, Topic) else check_queue(prefix + name)


def prefixed_queue(prefix: str, queue: Queue) -> Queue:
    """The same for the descriptor of a queue."""
    name = prefixed(prefix, queue.name)
    return queue if name == queue.name else replace(queue, name=str(name))


def is_fifo(to: str | Topic) -> bool:
    """Whether a destination is FIFO, by its name."""
    return to.is_fifo if isinstance(to, Topic) else to.endswith(FIFO_SUFFIX)


class Publisher(Generic[T]):
    """Publishes values of one type to one queue or topic: `await publisher.publish(value)`.

    `app.publisher(to, Type)` and `router.publisher(to, Type)` make one; a handler is given one by
    `Annotated[Publisher[Type], To("queue")]`. It works while its app runs, inside handlers and
    outside. As a decorator of a handler it publishes what the handler returns.

    `destination` is the queue (name, URL or ARN) or `Topic`, `payload_type` the type.
    """

    def __init__(
        self,
        registry: Registry | None,
        to: Queue | str | Topic,
        payload_type: Any = Any,
        options: SinkOptions | None = None,
        place: Place | None = None,
    ) -> None:
        self.queue: Queue | None = None
        """The descriptor of the queue; None for a topic."""
        if isinstance(to, str):
            to = destination(to)
        if not isinstance(to, Topic):
            self.queue = as_queue(to)
        self.destination: str | Topic = to if isinstance(to, Topic) else as_queue(to).name
        self.payload_type = payload_type
        self.options: SinkOptions = options or {}
        try:
            self._encode = encoder_for(payload_type)
        except UsageError as error:
            raise UsageError(f"{self}: {error}") from None
        self._registry = registry
        self._place = place

    def at(self, place: Place) -> Publisher[T]:
        """The publisher as it is in one place of an app."""
        if place.outer is None and place.registry is self._registry:
            return self
        to: Queue | str | Topic = place.named(self.destination)
        if self.queue is not None:
            to = prefixed_queue(place.prefix, self.queue)
        return Publisher(self._registry, to, self.payload_type, self.options, place)

    def same_as(self, other: Publisher[Any]) -> bool:
        """Whether both publish the same type to the same destination."""
        return (self.destination, self.payload_type) == (other.destination, other.payload_type)

    def destination_from(self, handler: Place | None) -> str | Topic:
        """The destination of what a handler returns that is declared in that place."""
        place = self._place_from(handler)
        bound = place is None or self._place is not None
        return self.destination if bound or place is None else place.named(self.destination)

    async def publish(self, value: T, **options: Unpack[PublishOptions]) -> Receipt:
        """Publish a value; return when the service has stored it.

        Raises `UsageError` for a value that is not of the publisher's type, or a message that can't
        be sent as it is; `ClosedError` while the app does not run; and what `Sink.send` raises.
        """
        place, outlet, to = self._here()
        return await outlet.publish(self.outgoing(to, value, options), place, self)

    async def publish_many(
        self,
        values: Iterable[T],
        *,
        ordered: bool = True,
        group_id: str | Callable[[T], str | None] | None = None,
        deduplication_id: Callable[[T], str | None] | None = None,
        headers: Headers | None = None,
        tenant: str | None = None,
    ) -> list[Receipt | PumphouseError]:
        """Publish many; return each one's receipt or error, in order, as `Sink.send_many` does.

        `group_id` and `deduplication_id` may be functions of the value. On a FIFO queue with
        `ordered`, a message leaves after the one before it in its group was stored, and not at all
        after one that failed.

        Raises `UsageError` for a value that is not of the publisher's type; then nothing was sent.
        """
        place, outlet, to = self._here()
        many = []
        for value in values:
            options: PublishOptions = {
                "group_id": group_id(value) if callable(group_id) else group_id,
                "deduplication_id": deduplication_id(value) if deduplication_id else None,
                "headers": headers,
                "tenant": tenant,
            }
            many.append(self.outgoing(to, value, options))
        return await outlet.publish_many(many, place, self, ordered=ordered)

    def publish_sync(self, value: T, **options: Unpack[PublishOptions]) -> Receipt:
        """`publish` for a plain function, which runs in a thread: waits until the value is stored.

        Raises what `publish` raises, and `CrossThreadError` on the app's own event loop.
        """
        place, outlet, to = self._here()
        outgoing = self.outgoing(to, value, options)
        if _running_loop() is outlet.loop:
            raise CrossThreadError("publish_sync would block the event loop; await publish there")
        sending = outlet.publish_from_thread(outgoing, place, self)
        return asyncio.run_coroutine_threadsafe(sending, outlet.loop).result()

    def outgoing(self, to: str | Topic, value: Any, options: PublishOptions) -> Outgoing:
        """The message of a value. Raises `UsageError`."""
        if unknown := sorted(options.keys() - _OPTIONS):
            raise UsageError(
                f"publish has no option {', '.join(unknown)}; "
                f"its options are {', '.join(sorted(_OPTIONS))}"
            )
        more: dict[str, Any] = {**options, "headers": options.get("headers") or {}}
        return Outgoing(to, self.encode(value), **more)

    def encode(self, value: Any) -> str | bytes:
        """The body of a value. Raises `UsageError` for one that is not of the publisher's type."""
        try:
            return self._encode(value)
        except UsageError as error:
            raise UsageError(f"{self}: {error}") from None

    def _here(self) -> tuple[Place, Outlet, str | Topic]:
        """Where a call of now stands, and its destination there. Raises `ClosedError`."""
        now = handling.get()
        place = self._place_from(now.place if now is not None else None)
        if place is None:
            raise ClosedError(f"{self} belongs to no app that runs, so it sends nothing")
        to = self.destination if self._place is not None else place.named(self.destination)
        return place, place.outlet(str(self)), to

    def _place_from(self, handler: Place | None) -> Place | None:
        """The place that is meant where a handler, if it is one, is declared in `handler`: its own,
        or one around it, or else the only one in an app that runs."""
        if self._place is not None:
            return self._place
        if self._registry is None:
            return handler
        if handler is not None and (found := handler.of(self._registry)) is not None:
            return found
        places = self._registry.places()
        at_work = [each for each in places if each.root.run_now is not None]
        if len(at_work) > 1:
            named = ", ".join(str(each.named(self.destination)) for each in at_work)
            raise UsageError(
                f"{self} is {len(at_work)} publishers ({named}), as its router is included more "
                "than once; outside of its handlers take one of app.publishers"
            )
        return next(iter(at_work or places), None)

    def __call__(self, function: Callable[P, R]) -> Handler[P, R]:
        """Publish what the function below returns when it is called for a message."""
        if not callable(function):
            raise UsageError(f"{self} decorates a handler, which is a function; not {function!r}")
        handler = as_handler(function)
        if self not in handler.publishers:
            handler.publishers = (self, *handler.publishers)
        return handler

    def __str__(self) -> str:
        return f"the publisher of {str(self.destination)!r}"

    def __repr__(self) -> str:
        kind = getattr(self.payload_type, "__name__", None) or str(self.payload_type)
        return f"<Publisher[{kind}] of {self.destination}>"


@dataclass(frozen=True, slots=True)
class To(Injected):
    """Marks a parameter of a handler as the publisher to a queue or topic:
    `Annotated[Publisher[Shipped], To("shipped.fifo")]`."""

    destination: str | Topic | Queue

    def fault(self, kind: Any) -> str | None:
        if kind is not Publisher and getattr(kind, "__origin__", None) is not Publisher:
            return f"To(…) marks a Publisher, and the parameter is of type {kind!r}"
        return None

    def publisher(self, kind: Any) -> Publisher[Any]:
        """The publisher, of whichever app or router has the handler."""
        return Publisher(None, self.destination, *get_args(kind))

    def provider(self, kind: Any, app: App) -> Callable[[], Any]:
        publisher = self.publisher(kind)
        return lambda: publisher


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
