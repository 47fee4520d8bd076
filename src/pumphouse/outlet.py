"""Everything that a running app publishes goes through here: `Outlet`.

The way of a message: a publisher, or a handler's reply, makes it an `Outgoing`; the publish
middleware of its place is called, the first one outermost; and the sink of its destination sends
it, with the correlation id of what is being handled. Sinks are shared, and are closed with the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pumphouse.addressing import QueueUrls, Topic, TopicArns
from pumphouse.backend import Backend
from pumphouse.clock import Clock, VirtualClock, wait_and_move
from pumphouse.errors import (
    ClosedError,
    ConfigError,
    NotSentError,
    PumphouseError,
    QueueDoesNotExist,
    ServiceError,
    TopicDoesNotExist,
    UsageError,
    told_of,
)
from pumphouse.hooks import Hooks
from pumphouse.model import CORRELATION_HEADER, Message, Receipt
from pumphouse.publishers import Outgoing, Place, Publisher, is_fifo
from pumphouse.replies import ToSend, replies_of
from pumphouse.sink import Sink, SinkOptions
from pumphouse.sink.chains import in_order
from pumphouse.sink.options import AddAttributes
from pumphouse.sink.outgoing import AttributeValue, SendOptions
from pumphouse.subscriber.chain import Chain, Middleware, Surroundings, layers
from pumphouse.subscriber.handling import Handling, current_correlation_id, handling
from pumphouse.subscriber.outcomes import Outcome, outcome_of_error
from pumphouse.subscriber.setup import find_queue
from pumphouse.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from pumphouse.app import App

R = TypeVar("R")

MOST_SINKS = 1_000
"""How many are kept open."""


class Outlet:
    """The publishing of one run of an app."""

    def __init__(self, backend: Backend, clock: Clock, hooks: Hooks) -> None:
        self.loop = asyncio.get_running_loop()
        self._backend = backend
        self._clock = clock
        self._hooks = hooks
        self._sinks: dict[object, Sink] = {}
        self._chains: dict[object, Chain] = {}
        self._closed = False

    def sink(self, to: str | Topic, publisher: Publisher[Any] | None = None) -> Sink:
        """The sink to a queue or topic; a publisher with options has one of its own. Raises
        `ClosedError` after the stop."""
        if self._closed:
            raise ClosedError("the app has stopped, so it publishes nothing more")
        own: SinkOptions = publisher.options if publisher is not None else {}
        key = (to, id(own)) if own else to
        if (sink := self._sinks.get(key)) is None:
            if len(self._sinks) >= MOST_SINKS:
                self._forget_one()
            options: SinkOptions = {"clock": self._clock, "hooks": self._hooks}
            options.update(own)
            options["add_attributes"] = _with_correlation(own.get("add_attributes"))
            sink = self._sinks[key] = Sink(to, self._backend, **options)
        return sink

    def _forget_one(self) -> None:
        """Where replies go may come from messages, so that there is no end of destinations: let go
        of the oldest sink that has nothing to send."""
        for key, sink in self._sinks.items():
            if not isinstance(key, tuple) and not sink.stats["waiting"]:
                del self._sinks[key]
                return

    async def aclose(self) -> None:
        """Send what waits, and close the sinks."""
        self._closed = True
        async with asyncio.TaskGroup() as closing:
            for sink in self._sinks.values():
                closing.create_task(sink.aclose())

    async def check(self, app: App, urls: QueueUrls) -> None:
        """Look up everything that the app declares to publish to, and create the queues that are
        declared so. Raises `ConfigError` for what does not exist."""
        topics = TopicArns(self._backend)

        async def look_up(topic: Topic, what: str) -> None:
            try:
                await topics.resolve(topic)
            except TopicDoesNotExist as error:
                raise ConfigError(f"{what}: {error}") from None

        for publisher in app.publishers:
            if publisher.queue is not None:
                await find_queue(publisher.queue, self._backend, urls, "publisher's queue")
            elif isinstance(publisher.destination, Topic):
                await look_up(publisher.destination, str(publisher))
        for subscription in app.subscriptions:
            to = subscription.publish
            what = f"publish= of {subscription.plan.name}"
            if isinstance(to, Topic):
                await look_up(to, what)
            elif to is not None:
                try:
                    await urls.resolve(to)
                except QueueDoesNotExist:
                    raise ConfigError(
                        f"{what}: the queue {to!r} does not exist; create it, or declare "
                        f"app.publisher(Queue({to!r}, create_if_missing=True))"
                    ) from None

    # --- publishers -----------------------------------------------------------------------------

    async def publish(self, outgoing: Outgoing, place: Place, publisher: Publisher[Any]) -> Receipt:
        """Send a publisher's message through the middleware of its place."""
        return await self._in_time(self._pass(ToSend(outgoing, publisher), place.middleware, None))

    async def publish_many(
        self, many: list[Outgoing], place: Place, publisher: Publisher[Any], *, ordered: bool
    ) -> list[Receipt | PumphouseError]:
        """Send many, those of a group one after another where they are `ordered`."""

        async def send(outgoing: Outgoing) -> Receipt:
            try:
                return await self._pass(ToSend(outgoing, publisher), place.middleware, None)
            except PumphouseError:
                raise
            except Exception as error:  # of a middleware
                raise _Failed from error

        outcomes = await self._in_time(in_order(many, _chain if ordered else _alone, send))
        for outcome in outcomes:
            if isinstance(outcome, _Failed) and outcome.__cause__ is not None:
                raise outcome.__cause__
        return outcomes

    async def publish_from_thread(
        self, outgoing: Outgoing, place: Place, publisher: Publisher[Any]
    ) -> Receipt:
        """`publish` for a thread that waits for it; time goes on meanwhile."""
        clock = self._clock
        with clock.released() if isinstance(clock, VirtualClock) else nullcontext():
            return await self.publish(outgoing, place, publisher)

    # --- replies --------------------------------------------------------------------------------

    async def reply(self, subscription: Subscription, value: object, message: Message) -> bool:
        """Publish what a handler returned; return when all of it is stored. False where nothing
        takes it.

        Raises `UsageError` for a reply that has nowhere to go or is not what its publisher takes,
        and what `Sink.send` raises.
        """
        try:
            replies = replies_of(subscription, value, message)
        except UsageError as wrong:
            raise told_of(wrong, f"a reply of {subscription.plan.name}: {wrong}") from None
        if replies is None:
            return False

        async def send(reply: ToSend) -> Receipt:
            try:
                return await self._pass(
                    reply, subscription.middleware, subscription.queue.known_as.name
                )
            except PumphouseError:
                raise
            except Exception as error:
                raise _Failed from error

        before = handling.set(Handling(message.correlation_id, subscription.place))
        try:
            outcomes = await in_order(replies, lambda reply: _chain(reply.outgoing), send)
        finally:
            handling.reset(before)
        failures = [
            (reply, error)
            for reply, error in zip(replies, outcomes, strict=True)
            if isinstance(error, PumphouseError)
        ]
        if not failures:
            return True
        # what was not sent for one before it is not why
        causes = [each for each in failures if not isinstance(each[1], NotSentError)]
        reply, error = (causes or failures)[0]
        if isinstance(error, _Failed) and error.__cause__ is not None:
            raise error.__cause__
        raise _of_reply(error, reply.outgoing.destination, subscription)

    # --- one message ----------------------------------------------------------------------------

    async def _pass(
        self, message: ToSend, middleware: Sequence[Middleware], queue: str | None
    ) -> Receipt:
        """Through the middleware, and to the sink."""
        if not middleware:
            return await self._send(message.outgoing, message)
        key = (queue, *map(id, middleware))
        if (chain := self._chains.get(key)) is None:
            around = Surroundings(queue, self._clock, self._hooks, _no_outcome)
            chain = self._chains[key] = Chain(
                layers(middleware, "publish", around), self._send, _receipt
            )
        receipt: Receipt = await chain.run(message.outgoing, message)
        return receipt

    async def _send(self, outgoing: Outgoing, message: ToSend) -> Receipt:
        """Send what has become of a message on its way through the middleware."""
        outgoing = message.fitted(outgoing)
        to, publisher = outgoing.destination, message.publisher
        own: SinkOptions = publisher.options if publisher is not None else {}
        if (
            is_fifo(to)
            and not (outgoing.group_id or outgoing.tenant)
            and own.get("group_id") is None
        ):
            raise UsageError(
                f"{to} is a FIFO {_kind(to)}, and the message has no group: give group_id"
            )
        options: SendOptions = {
            "group_id": outgoing.group_id,
            "deduplication_id": outgoing.deduplication_id,
            "headers": outgoing.headers,
            "delay": outgoing.delay_seconds,
            "tenant": outgoing.tenant,
            "subject": outgoing.subject,
        }
        try:
            # a full sink is no failure of the message that is being handled: it waits for room
            return await self.sink(to, publisher).send(
                outgoing.body, wait=own.get("wait", True), **options
            )
        except (QueueDoesNotExist, TopicDoesNotExist) as error:  # AWS does not say which
            text = f"the {_kind(to)} {to} does not exist; create it, or correct its name"
            raise told_of(error, text) from error.__cause__

    async def _in_time(self, sending: Coroutine[Any, Any, R]) -> R:
        """The result. Outside of handlers nobody else may be there to move a virtual clock."""
        if not isinstance(self._clock, VirtualClock) or handling.get() is not None:
            return await sending
        task = asyncio.get_running_loop().create_task(sending)
        try:
            await wait_and_move(self._clock, task)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        return task.result()


class _Failed(PumphouseError):
    """Something failed that is no `PumphouseError`: its cause."""


def _kind(to: str | Topic) -> str:
    return "topic" if isinstance(to, Topic) else "queue"


def _of_reply(error: PumphouseError, to: str | Topic, subscription: Subscription) -> PumphouseError:
    """Why a reply was not published, for those who read it in the log or with the dead letter."""
    text = error.message if isinstance(error, ServiceError) else str(error)
    text = f"a reply of {subscription.plan.name} to {to}: {text}"
    if isinstance(error, QueueDoesNotExist | TopicDoesNotExist):
        text += (
            f" (app.publisher({to if isinstance(to, Topic) else str(to)!r}) declares it, and then "
            "the start and `pumphouse check` look it up)"
        )
    return told_of(error, text)


def _with_correlation(add: AddAttributes | None) -> AddAttributes:
    """What a sink adds to its messages: the header that goes with everything that is published for
    a message, and what else it is told to. It is left out where there are ten without it."""

    def added(message: Any) -> Mapping[str, AttributeValue]:
        correlation_id = current_correlation_id()
        own = add(message) if add is not None else {}
        return {CORRELATION_HEADER: correlation_id, **own} if correlation_id else own

    return added


def _chain(outgoing: Outgoing) -> str | None:
    """What has to be sent in order."""
    if not is_fifo(outgoing.destination):
        return None
    return f"{outgoing.destination} {outgoing.group_id or outgoing.tenant}"


def _alone(_: Outgoing) -> None:
    return None


async def _receipt(value: object, outgoing: Outgoing, _: object) -> Receipt:
    """What a publish middleware gave, which has to be the receipt."""
    if not isinstance(value, Receipt):
        raise UsageError(
            f"a publish middleware returned {value!r:.100} for a message to "
            f"{outgoing.destination}; it returns the Receipt that call_next gave"
        )
    return value


def _no_outcome(error: BaseException) -> Outcome:
    return outcome_of_error(error, None)
