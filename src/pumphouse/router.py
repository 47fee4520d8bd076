"""Where handlers and publishers are declared: `Registry`, the base of `App`, and `Router`.

A registry keeps what was declared, as it was declared. What comes of it in an app, with the
prefixes and defaults of every router around it, is worked out by going through the tree
(`Registry.subscriptions`, `Registry.publishers`); the app at work reads only that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, Unpack, overload
from weakref import ref

from pumphouse.addressing import Topic
from pumphouse.errors import UsageError
from pumphouse.protocol.names import is_queue_name
from pumphouse.publishers import Place, Publisher, To, prefixed, prefixed_queue
from pumphouse.sink.options import SinkOptions, validate_options
from pumphouse.subscriber.chain import check_middleware
from pumphouse.subscriber.handler import Handler, as_handler
from pumphouse.subscriber.options import (
    SubscriberOptions,
    check_names,
    layered,
    subscription_of,
)
from pumphouse.subscriber.plan import HandlerPlan, plan_for
from pumphouse.subscriber.queue import Queue, as_queue, same_queue
from pumphouse.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pumphouse.running import Running

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Declared:
    """A handler's declaration for one queue."""

    queue: Queue
    handler: Handler[..., Any]
    plan: HandlerPlan
    options: SubscriberOptions
    injected: tuple[Publisher[Any], ...] = ()  # what the handler is given by `To`

    def at(self, place: Place) -> Subscription:
        """The subscription that it is in one place of an app."""
        options = layered(place.options, _with_prefix(self.options, place.prefix))
        queue = prefixed_queue(place.prefix, self.queue)
        return subscription_of(queue, self.plan, options, handler=self.handler, place=place)


@dataclass(frozen=True, slots=True, eq=False)
class _Included:
    router: Router
    prefix: str


_Member = _Declared | _Included | Publisher[Any]


class _Found(NamedTuple):
    """What comes of everything that is declared in a registry and in the routers in it."""

    places: tuple[Place, ...]
    subscriptions: tuple[Subscription, ...]
    publishers: tuple[Publisher[Any], ...]


class Registry:
    """What an `App` and a `Router` have in common: declarations, in order."""

    def __init__(self, prefix: str, defaults: SubscriberOptions) -> None:
        check_middleware(defaults.get("middleware", ()), "")
        self._prefix = prefix
        self._defaults = defaults
        self._members: list[_Member] = []
        self._included_in: list[ref[Registry]] = []  # an app that is gone is not kept
        self._found: _Found | None = None

    # --- declaring ------------------------------------------------------------------------------

    def subscriber(
        self, queue: Queue | str, **options: Unpack[SubscriberOptions]
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Declare the function below as the handler of a queue.

        An async function runs on the event loop, a plain one in a thread. It gets the payload as
        its annotation says (`bytes`, `str`, `dict`, a msgspec Struct, a dataclass, a pydantic
        model; text without one), and the `Message` where a parameter is annotated so. One handler
        can stand below several of these, one for each of its queues.

        - `concurrency`: how many run at once (batches, with `batch`); 10 by default.
        - `batch`: hand over lists of up to so many messages; up to 10 as they come in one receive,
          more as they gather within `batch_window` seconds.
        - `max_attempts`, `dead_letter`: after so many failed attempts a message goes to that queue.
          The queue's redrive policy is written to fit, or checked (`redrive="check"`). Without them
          the queue's own policy holds.
        - `retry`: the delay after a failed attempt: a `RetryPolicy`, seconds, or a function of the
          attempt. By default 1 s doubled each time, up to 15 minutes, with full jitter.
        - `timeout`: seconds after which a handler is cancelled, which is a failed attempt. A thread
          can't be cancelled: it keeps its slot and its lease to its end, and what it returns then
          counts.
        - `on_error`: exceptions to outcomes, a mapping or a function; everything else is a retry.
        - `undecodable`: what becomes of a body that is not what the handler takes: "retry" (so that
          it ends in the dead-letter queue), "reject" (there at once), or "drop".
        - `on_lease_lost`: "cancel" the handler, or "flag" it in `message.lease_lost`.
        - `partition_key`: a function of the payload; messages of one key run one at a time and in
          the order they came, in this process, while it holds them; None for one without an order.
          For standard queues.
        - `publish`: the queue or `Topic` that replies go to; confirmed before the message is
          deleted.
        - `priority`: among the subscribers that have one, a lower number goes first: nothing of a
          queue is started while one that goes before it has something waiting.
        - `claim_check`: fetches and checks bodies that were stored apart, before the handler is
          called, and deletes them when SQS has confirmed the delete of their message. A body that
          is missing or damaged is undecodable; a store that fails is a failed attempt.
        - `middleware`: goes around this handler, inside that of the app and of its routers.

        Raises `UsageError` for anything that can't work.
        """
        check_names(options, "a subscriber")
        descriptor = as_queue(queue)
        check_middleware(options.get("middleware", ()), f"subscriber of {descriptor.name!r}: ")
        self._check_new(descriptor)

        def declare(function: Callable[P, R]) -> Handler[P, R]:
            self._check_new(descriptor)
            handler = as_handler(function)
            own = layered(self._defaults, options)
            batch = own.get("batch") is not None
            plan = plan_for(handler.function, batch=batch)
            subscription_of(descriptor, plan, own)  # checks it
            injected = tuple(
                need.mark.publisher(need.kind)
                for need in plan.injected
                if isinstance(need.mark, To)
            )
            self._declare(_Declared(descriptor, handler, plan, options, injected))
            handler.queues = (descriptor.name, *handler.queues)
            return handler

        return declare

    @overload
    def publisher(
        self, to: Queue | str | Topic, payload_type: type[T], **options: Unpack[SinkOptions]
    ) -> Publisher[T]: ...
    @overload
    def publisher(
        self, to: Queue | str | Topic, payload_type: Any = ..., **options: Unpack[SinkOptions]
    ) -> Publisher[Any]: ...
    def publisher(
        self, to: Queue | str | Topic, payload_type: Any = Any, **options: Unpack[SinkOptions]
    ) -> Publisher[Any]:
        """A publisher of values of one type to a queue or topic.

        What it is given is checked against the type before it is sent; without one it takes
        anything that a body can be made of. It has to exist when the app starts; a queue that is
        declared as `Queue(…, create_if_missing=True)` is created then. `options` are those of a
        `Sink`; without any, what is published to one destination shares batches.

        Raises `UsageError` for a type that nothing could read, and for options that can't be used.
        """
        validate_options(options)
        publisher: Publisher[Any] = Publisher(self, to, payload_type, options)
        self._declare(publisher)
        return publisher

    def include_router(self, router: Router, *, prefix: str = "") -> None:
        """Add everything that a router declares, now or later, in its place among what is declared
        here.

        `prefix` goes before the router's own. Raises `UsageError` where a queue would have two
        subscribers: the same router can be included twice, under different prefixes.
        """
        if not isinstance(router, Router):
            raise UsageError(f"include_router takes a Router, not {router!r}")
        if router._holds(self):
            raise UsageError("a router can't be included in itself")
        check_prefix(prefix)
        self._declare(_Included(router, prefix))
        router._included_in.append(ref(self))

    def _check_new(self, queue: Queue) -> None:
        for other in self._members:
            if isinstance(other, _Declared) and same_queue(other.queue, queue):
                raise UsageError(f"queue {queue.name!r} has a subscriber already")

    def _declare(self, member: _Member) -> None:
        """Take it in, unless something that this is included in can't have it."""
        if not isinstance(member, Publisher):
            for root in self._roots():
                if root.run_now is not None:
                    raise UsageError(f"{root!r} is running; what it reads is declared before")
        self._members.append(member)
        try:
            self._changed()
            if self._around() or any(isinstance(each, _Included) for each in self._members):
                for root in self._roots():
                    root._all()
        except BaseException:
            self._members.remove(member)
            self._changed()
            raise

    def _changed(self) -> None:
        self._found = None
        for registry in self._around():
            registry._changed()

    def _around(self) -> list[Registry]:
        """What this is included in."""
        return [registry for each in self._included_in if (registry := each()) is not None]

    # --- what comes of it -----------------------------------------------------------------------

    @property
    def run_now(self) -> Running | None:
        """The app at work, or None while it is not."""
        return None

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Every subscription, those of the routers among them, under its full name."""
        return self._all().subscriptions

    @property
    def publishers(self) -> tuple[Publisher[Any], ...]:
        """Every publisher that is declared, those of the routers under their full names."""
        return self._all().publishers

    @property
    def handlers(self) -> tuple[Handler[..., Any], ...]:
        """Every handler, once."""
        return tuple(
            dict.fromkeys(each.handler for each in self.subscriptions if each.handler is not None)
        )

    def _all(self) -> _Found:
        if self._found is None:
            places: list[Place] = []
            subscriptions: list[Subscription] = []
            publishers: list[Publisher[Any]] = []
            for place, member in self._walk():
                if member is None:
                    places.append(place)
                elif isinstance(member, Publisher):
                    publishers.append(member.at(place))
                elif isinstance(member, _Declared):
                    subscriptions.append(member.at(place))
                    publishers += (
                        publisher
                        for publisher in (each.at(place) for each in member.injected)
                        if not any(publisher.same_as(other) for other in publishers)
                    )
            _check_once(subscriptions)
            self._found = _Found(tuple(places), tuple(subscriptions), tuple(publishers))
        return self._found

    def _walk(
        self, outer: Place | None = None, prefix: str = ""
    ) -> Iterator[tuple[Place, _Member | None]]:
        """Every place, with None, and then everything that is declared there, in order."""
        prefix += self._prefix
        own = _with_prefix(self._defaults, prefix)
        place = Place(self, prefix, layered(outer.options, own) if outer else own, outer)
        yield place, None
        for member in self._members:
            yield place, member
            if isinstance(member, _Included):
                yield from member.router._walk(place, prefix + member.prefix)

    def places(self) -> list[Place]:
        """Where this stands in everything that it is included in, at any depth."""
        return [
            place
            for root in self._roots()
            for place in root._all().places
            if place.registry is self
        ]

    def _roots(self) -> set[Registry]:
        """What this is included in, at any depth, and is itself included in nothing."""
        around = self._around()
        return set().union(*(each._roots() for each in around)) if around else {self}

    def _holds(self, registry: Registry) -> bool:
        return any(place.registry is registry for place, _ in self._walk())


class Router(Registry):
    """Handlers and publishers that are declared apart from an app, and included into it.

    ```python
    orders = Router(prefix="orders-", max_attempts=5, dead_letter="spent")

    @orders.subscriber("placed")
    async def place(order: Order) -> None: ...

    app.include_router(orders)
    ```

    - `prefix`: goes before every name that is said in the router: of queues, dead-letter queues,
      topics, `publish=`, publishers, and `Reply(to=…)` of its handlers. A URL or an ARN says which
      queue it is by itself, and stays as it is.
    - `defaults`: options of its subscribers, for those that don't say otherwise, and for those of
      the routers that are included in it. `middleware` is added: the outer router's goes outside.

    Raises `UsageError` for a prefix that no queue's name can have, and for an unknown option.
    """

    def __init__(self, prefix: str = "", **defaults: Unpack[SubscriberOptions]) -> None:
        check_prefix(prefix)
        check_names(defaults, "a router")
        super().__init__(prefix, defaults)

    @property
    def prefix(self) -> str:
        return self._prefix

    def __repr__(self) -> str:
        return f"<Router {self._prefix!r}: {len(self._members)} declarations>"


def check_prefix(prefix: object) -> None:
    """Raise `UsageError` for what can't be the beginning of a queue's name."""
    # a name of its own, with a letter behind it so that .fifo is in the middle
    if not isinstance(prefix, str) or not is_queue_name(prefix + "x"):
        raise UsageError(
            f"the prefix is {prefix!r}; a queue's name can begin with letters, digits, hyphens and "
            "underscores only"
        )


def _with_prefix(options: SubscriberOptions, prefix: str) -> SubscriberOptions:
    """Options whose names are those of a place with this prefix."""
    found = SubscriberOptions(**options)
    if (dead_letter := options.get("dead_letter")) is not None:
        found["dead_letter"] = prefixed_queue(prefix, as_queue(dead_letter))
    if (publish := options.get("publish")) is not None:
        found["publish"] = prefixed(prefix, publish)
    return found


def _check_once(subscriptions: list[Subscription]) -> None:
    """Raise `UsageError` where a queue has two subscribers."""
    by_name: dict[str, list[Subscription]] = {}
    for each in subscriptions:
        others = by_name.setdefault(each.queue.known_as.name, [])
        for other in others:
            if same_queue(other.queue, each.queue):
                raise UsageError(
                    f"queue {each.queue.name!r} has two subscribers: {other.plan.name} and "
                    f"{each.plan.name}; include a router under another prefix, or drop one"
                )
        others.append(each)
