"""From a delivery to an outcome: decode, call the handler, have judged what came of it.

A handler ends in one of five ways: it returns an outcome (or nothing), it returns a reply that is
published and confirmed first, it raises (or returns an exception, which is the same), it takes too
long, or it is cancelled. Around all of that goes the middleware (`chain.py`). Nothing that they do
escapes from here but the outcome. What a returned value means is `returned.py`'s, what an error
means `judging.py`'s, and what the outcome does to the message `exits.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pumphouse.clock import Clock, timeout
from pumphouse.content import UndecodableError
from pumphouse.errors import BlobDamagedError, BlobMissingError, UsageError
from pumphouse.hooks import Hooks
from pumphouse.model import Message
from pumphouse.notifications.reading import Reading
from pumphouse.subscriber.chain import (
    Chain,
    Middleware,
    Surroundings,
    check_middleware,
    layers,
)
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.handling import Handling, correlation_of_raw, handling
from pumphouse.subscriber.judging import STOPPED, Judge, Stopped
from pumphouse.subscriber.outcomes import (
    ACK,
    Ack,
    Drop,
    Outcome,
    Retry,
)
from pumphouse.subscriber.received import lease_of, received
from pumphouse.subscriber.recording import Recorder, Recording
from pumphouse.subscriber.returned import ReplyWith, Returned, values_of
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription
from pumphouse.subscriber.threads import Threads

if TYPE_CHECKING:
    from pumphouse.app import App

_log = logging.getLogger("pumphouse.subscriber")

_Single = tuple[Delivery, Message | None]

_BEHIND = Retry(0, "behind one of its group that failed", counts=False)
"""For what is not run, as it stands in a batch behind one that can't be."""


class Runner:
    """Calls the handler of one subscription."""

    def __init__(
        self,
        subscription: Subscription,
        clock: Clock,
        hooks: Hooks,
        stats: Stats,
        *,
        reply: ReplyWith,
        recorder: Recorder | None = None,
        reading: Reading | None = None,
        app: App | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._subscription = subscription
        self._plan = subscription.plan
        self._place = subscription.place
        self._queue_name = subscription.queue.known_as.name
        self._check = subscription.claim_check
        self._reading = reading
        self._wrapped = self._check is not None or reading is not None
        self._clock = clock
        self._hooks = hooks
        self._judge = Judge(subscription, hooks, stats, stopping)
        returned = Returned(subscription, self._judge, reply, self.message_of)
        self._outcome_of_value = returned.outcome_of
        self._outcomes_of = returned.outcomes_of
        self._recording = Recording(recorder, STOPPED) if recorder is not None else None
        self._threads = (
            None
            if self._plan.is_async
            else Threads(subscription.concurrency, f"pumphouse-{self._plan.name}")
        )
        self._app = app
        self._chain = self._chain_of(subscription.middleware)
        self.bind()

    def bind(self) -> None:
        """Take up the app's state and overrides, at the start and when they have changed.

        Raises `ConfigError` and `UsageError` as `HandlerPlan.bind` does.
        """
        in_thread = partial(self._threads.to_the_end, clock=self._clock) if self._threads else None
        around = self._recording.around if self._recording is not None else None
        self._bound = bound = self._plan.bind(self._app, in_thread, around)
        # whether somebody sees the message, beside those who publish
        self._shown = bool(self._chain or self._recording or bound.wants_message)
        # the way that costs nothing but the call
        self._direct = (
            self._chain is None
            and self._recording is None
            and self._subscription.timeout_seconds is None
        )

    def _chain_of(self, middleware: Sequence[Middleware]) -> Chain | None:
        name = self._queue_name
        batch = self._plan.batch
        check_middleware(middleware, f"subscriber of {name!r}: ", batch=batch)
        surroundings = Surroundings(name, self._clock, self._hooks, self._judge.foretold)
        found = layers(middleware, "receive_batch" if batch else "receive", surroundings)
        if not found:
            return None
        if batch:
            return Chain(found, self._handled_batch, self._batch_settled_by, settles=True)
        return Chain(found, self._handled, self._settled_by, settles=True)

    @property
    def busy_threads(self) -> int:
        """Threads that are at work."""
        return self._threads.busy if self._threads else 0

    def close(self) -> None:
        if self._threads:
            self._threads.close()

    async def run(self, delivery: Delivery) -> Outcome | Stopped:
        """Run the handler for one delivery."""
        if self._wrapped and (failed := await self._unwrap(delivery)) is not None:
            return failed
        raw = delivery.restored or delivery.raw
        before = handling.set(Handling(raw, self._place))
        try:
            if self._direct:
                bound = self._bound
                value = await bound.call(
                    self._plan.payload_of(raw),
                    received(delivery, self._queue_name, self._clock) if self._shown else None,
                    bound.read_headers(raw.message_attributes) if bound.header_count else (),
                )
                return ACK if value is None else await self._outcome_of_value(value, delivery)
            message = self.message_of(delivery) if self._shown else None
            if self._chain is None:
                return await self._handled(message, (delivery, message))
            outcome: Outcome = await self._chain.run(message, (delivery, message))
            return outcome
        except KeyboardInterrupt:
            raise  # it is meant for the program
        except BaseException as error:
            return self._judge.ended(delivery, error)
        finally:
            handling.reset(before)  # a worker whose context was changed is not used again

    async def run_batch(self, deliveries: list[Delivery]) -> list[Outcome | Stopped]:
        """Run the handler once for several; an outcome for each, in order."""
        outcomes: dict[Delivery, Outcome | Stopped] = {}
        batch: list[_Single] = []
        stuck: set[str] = set()  # lanes in which something failed: nothing behind it is run
        for delivery in deliveries:
            if delivery.key in stuck:
                outcomes[delivery] = _BEHIND
                continue
            failed = await self._unwrap(delivery) if self._wrapped else None
            if failed is None:
                try:
                    lease_of(delivery, self._clock)  # its messages are told apart by it
                    batch.append((delivery, self.message_of(delivery) if self._shown else None))
                    continue
                except UndecodableError as error:
                    failed = self._judge.undecodable(delivery, error)
            outcomes[delivery] = failed
            _hold_up(stuck, delivery, failed)
        if batch:
            found = await self._run_whole(batch)
            outcomes.update(zip([delivery for delivery, _ in batch], found, strict=True))
        return [outcomes[delivery] for delivery in deliveries]

    def message_of(self, delivery: Delivery) -> Message:
        """The delivery as its handler sees it."""
        return received(delivery, self._queue_name, self._clock)

    def partition_of(self, delivery: Delivery) -> str | None:
        """The lane that a delivery's payload asks for; none for what can't be decoded."""
        key_of = self._subscription.partition_key
        try:
            raw = delivery.raw if self._reading is None else self._reading.opened(delivery.raw)
            payload = self._plan.payload_of(raw)
            key = None if key_of is None else key_of(payload)
            return None if key is None else str(key)
        except UndecodableError:
            return None  # its run says so
        except KeyboardInterrupt:
            raise
        except BaseException:
            _log.exception(
                "partition_key of %s failed for message %s; it runs without a lane",
                self._subscription.queue.name,
                delivery.message_id,
            )
            return None

    async def _unwrap(self, delivery: Delivery) -> Outcome | Stopped | None:
        """Take a delivery out of its envelope, and fetch the body of one that carries a ticket;
        the outcome where that fails."""
        raw = delivery.restored or delivery.raw  # one that came without its envelope is restored
        try:
            if self._reading is not None and delivery.restored is None:
                raw = await self._within_time(partial(self._reading.verified, raw))
            body, attributes = raw.body, raw.message_attributes
            if self._check is not None:
                body, attributes = await self._within_time(
                    partial(self._check.restore, body, attributes)
                )
        except UndecodableError as error:
            return self._judge.undecodable(delivery, error)
        except (BlobMissingError, BlobDamagedError) as error:
            return self._judge.undecodable(delivery, UndecodableError(str(error)))
        except (Exception, asyncio.CancelledError) as error:
            return self._judge.ended(delivery, error)
        if body is not raw.body:
            raw = replace(raw, body=body, message_attributes=attributes)
        if raw is not delivery.raw:
            delivery.restored = raw
        return None

    # --- one message ----------------------------------------------------------------------------

    async def _handled(self, message: Message | None, context: _Single) -> Outcome:
        """What comes of the handler for one message, as the innermost middleware passes it on."""
        delivery, original = context
        payload = self._payload_of(delivery, message, original)
        headers = self._headers_of(delivery, message, original) if self._bound.header_count else ()
        call = partial(self._bound.call, payload, message, headers)
        value = await self._called(call, [payload], [message])
        return ACK if value is None else await self._outcome_of_value(value, delivery)

    async def _called(
        self, call: Callable[[], Awaitable[Any]], payloads: list[Any], messages: Sequence[Any]
    ) -> Any:
        within_time = partial(self._within_time, call)
        if self._recording is None:
            return await within_time()
        return await self._recording.of(within_time, payloads, messages)

    def _payload_of(self, delivery: Delivery, message: Any, original: Message | None) -> Any:
        if (
            message is not original
            and isinstance(message, Message)
            and original is not None
            and message.body is not original.body  # a middleware has written another one
        ):
            return self._plan.decode(message.body) if self._plan.decode else None
        return self._plan.payload_of(delivery.restored or delivery.raw)

    def _headers_of(
        self, delivery: Delivery, message: Any, original: Message | None
    ) -> tuple[Any, ...]:
        changed = None
        if (
            message is not original
            and isinstance(message, Message)
            and original is not None
            and message.headers is not original.headers  # a middleware has written others
        ):
            changed = message.headers
        return self._bound.headers_of(delivery.restored or delivery.raw, changed)

    async def _settled_by(
        self, value: Any, _message: Message, context: tuple[Delivery, Message]
    ) -> Outcome:
        return await self._outcome_of_value(value, context[0], "a middleware")

    async def _within_time(self, call: Callable[[], Awaitable[Any]]) -> Any:
        limit = self._subscription.timeout_seconds
        if limit is None:
            return await call()
        scope: asyncio.Timeout | None = None
        try:
            async with timeout(self._clock, limit) as scope:
                return await call()
        except TimeoutError as error:
            if scope is not None and scope.expired():
                raise TimeoutError(f"the handler took longer than {limit:g} s") from error
            raise

    # --- batches --------------------------------------------------------------------------------

    async def _run_whole(self, batch: list[_Single]) -> list[Outcome | Stopped]:
        """A batch through its middleware and its handler."""
        outcomes: list[Outcome | Stopped]
        shared = {correlation_of_raw(each.restored or each.raw) for each, _ in batch}
        correlation_id = shared.pop() if len(shared) == 1 else None
        before = handling.set(Handling(correlation_id, self._place))
        try:
            if self._chain is None:
                outcomes = [*await self._handled_batch(None, batch)]
            else:
                outcomes = await self._chain.run([message for _, message in batch], batch)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            outcomes = [self._judge.ended(delivery, error) for delivery, _ in batch]
        finally:
            handling.reset(before)
        return outcomes

    async def _handled_batch(
        self, messages: list[Message] | None, batch: list[_Single]
    ) -> list[Outcome]:
        """What comes of the handler for those messages of the batch that are passed on to it."""
        outcomes: dict[int, Outcome] = {}
        payloads: list[Any] = []
        good: list[Any] = []
        headers: list[tuple[Any, ...]] = []
        chosen = batch if messages is None else _chosen(messages, batch)
        stuck: set[str] = set()
        for place, (delivery, original) in enumerate(chosen):
            if delivery.key in stuck:
                outcomes[place] = _BEHIND
                continue
            message = original if messages is None else messages[place]
            try:
                payload = self._payload_of(delivery, message, original)
                headers.append(self._headers_of(delivery, message, original))
                payloads.append(payload)
                good.append(message)
            except UndecodableError as error:
                failed = outcomes[place] = self._judge.one_of_batch(delivery, error)
                _hold_up(stuck, delivery, failed)
        if payloads:
            columns = self._bound.headers_of_batch(headers)
            call = partial(self._bound.call, payloads, good, columns)
            value = await self._called(call, payloads, good)
            left = [place for place in range(len(chosen)) if place not in outcomes]
            values = values_of(value, len(left))
            deliveries = [chosen[place][0] for place in left]
            outcomes.update(zip(left, await self._outcomes_of(values, deliveries), strict=True))
        return [outcomes[place] for place in range(len(chosen))]

    async def _batch_settled_by(
        self, value: Any, messages: list[Message], batch: list[_Single]
    ) -> list[Outcome]:
        values = values_of(value, len(messages), "a middleware for batches")
        chosen = _chosen(messages, batch)
        deliveries = [delivery for delivery, _ in chosen]
        return await self._outcomes_of(values, deliveries, "a middleware")


def _hold_up(stuck: set[str], delivery: Delivery, outcome: Outcome | Stopped) -> None:
    """Note the lane of a delivery that failed before its batch was run."""
    if delivery.key is not None and not isinstance(outcome, Ack | Drop):
        stuck.add(delivery.key)


def _chosen(messages: list[Message], batch: list[_Single]) -> list[_Single]:
    """The deliveries of these messages, which a middleware may have left out or replaced."""
    by_lease = {id(delivery.lease): (delivery, message) for delivery, message in batch}
    try:
        return [by_lease.pop(id(message.lease)) for message in messages]
    except (AttributeError, KeyError, TypeError):
        raise UsageError(
            "call_next takes a list of messages of its batch, each at most once, not "
            f"{messages!r:.200}"
        ) from None
