"""From a delivery to an outcome: decode, call the handler, judge what came of it.

A handler ends in one of five ways: it returns an outcome (or nothing), it returns a reply that is
published and confirmed first, it raises, it takes too long, or it is cancelled. Nothing that a
handler does escapes from here but its outcome. What the outcome does to the message is
`consumer.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace

from pumphouse.clock import Clock, VirtualClock, timeout
from pumphouse.content import UndecodableError, decode, headers_of
from pumphouse.errors import BlobDamagedError, BlobMissingError, UsageError
from pumphouse.hooks import Hooks
from pumphouse.model import Lease, Message
from pumphouse.notifications.reading import Reading
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.events import Undecodable
from pumphouse.subscriber.outcomes import (
    ACK,
    Ack,
    Drop,
    Outcome,
    Reject,
    Reply,
    Retry,
    describe,
    outcome_of_error,
    outcome_of_value,
)
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription
from pumphouse.subscriber.threads import Threads

_log = logging.getLogger("pumphouse.subscriber")

Publish = Callable[[Reply, Message], Awaitable[None]]
CallNext = Callable[[Message], Awaitable[Any]]
Middleware = Callable[[Message, CallNext], Awaitable[Any]]
Recorder = Callable[[Any, Message, Any], None]


class Stopped:
    """The handler was cancelled from outside; what to do is written in the delivery."""


STOPPED = Stopped()


class Runner:
    """Calls the handler of one subscription."""

    def __init__(
        self,
        subscription: Subscription,
        clock: Clock,
        hooks: Hooks,
        stats: Stats,
        *,
        publish: Publish | None = None,
        middleware: tuple[Middleware, ...] = (),
        recorder: Recorder | None = None,
        reading: Reading | None = None,
    ) -> None:
        self._subscription = subscription
        self._plan = subscription.plan
        self._check = subscription.claim_check
        self._reading = reading
        self._wrapped = self._check is not None or reading is not None
        self._clock = clock
        self._hooks = hooks
        self._stats = stats
        self._publish = publish
        self._middleware = middleware
        self._recorder = recorder
        self._epoch = clock.now() - clock.monotonic()
        self._ignored_value = False
        self._threads = (
            None
            if self._plan.is_async
            else Threads(subscription.concurrency, f"pumphouse-{self._plan.name}")
        )
        # the way that costs nothing but the call
        self._direct = (
            self._plan.payload_only
            and self._plan.is_async
            and not middleware
            and publish is None
            and recorder is None
            and subscription.timeout_seconds is None
        )

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
        try:
            payload = self._plan.payload_of(delivery.restored or delivery.raw)
        except UndecodableError as error:
            return self.undecodable(delivery, error)
        try:
            if self._direct:
                value = await self._plan.function(payload)
            else:
                value = await self._call(delivery, payload)
        except asyncio.CancelledError as error:
            return self._cancelled(delivery, error)
        except KeyboardInterrupt:
            raise  # it is meant for the program
        except BaseException as error:
            return self._raised(delivery, error)
        if value is None:
            return ACK
        outcome = outcome_of_value(value)
        return await self._replied(delivery, value) if outcome is None else outcome

    async def run_batch(self, deliveries: list[Delivery]) -> list[Outcome | Stopped]:
        """Run the handler once for several; an outcome for each, in order."""
        outcomes: dict[int, Outcome | Stopped] = {}
        good: list[tuple[int, Delivery, Any]] = []
        for place, delivery in enumerate(deliveries):
            if self._wrapped and (failed := await self._unwrap(delivery)) is not None:
                outcomes[place] = failed
                continue
            try:
                raw = delivery.restored or delivery.raw
                good.append((place, delivery, self._plan.payload_of(raw)))
            except UndecodableError as error:
                outcomes[place] = self.undecodable(delivery, error)
        if good:
            for (place, _, _), outcome in zip(good, await self._run_good(good), strict=True):
                outcomes[place] = outcome
        return [outcomes[place] for place in range(len(deliveries))]

    def message_of(self, delivery: Delivery) -> Message:
        """The delivery as its handler sees it."""
        raw = delivery.restored or delivery.raw
        attributes = raw.attributes
        lease = delivery.lease
        if lease is None:
            lease = delivery.lease = Lease(self._epoch + delivery.lease_until)
            delivery.lease_epoch = self._epoch
        return Message(
            message_id=raw.message_id,
            queue=self._subscription.queue.known_as.name,
            body=decode(raw.body, raw.message_attributes),
            headers=headers_of(raw.message_attributes),
            group_id=attributes.get("MessageGroupId"),
            attempt=delivery.attempt,
            receive_count=delivery.receive_count,
            sent_at=int(attributes.get("SentTimestamp") or 0) / 1000,
            first_received_at=int(attributes.get("ApproximateFirstReceiveTimestamp") or 0) / 1000,
            sequence_number=attributes.get("SequenceNumber"),
            deduplication_id=attributes.get("MessageDeduplicationId"),
            attributes=dict(attributes),
            lease=lease,
        )

    def partition_of(self, delivery: Delivery) -> str | None:
        """The lane that a delivery's payload asks for; none for what can't be decoded."""
        key_of = self._subscription.partition_key
        try:
            raw = delivery.raw if self._reading is None else self._reading.opened(delivery.raw)
            payload = self._plan.payload_of(raw)
            return None if key_of is None else str(key_of(payload))
        except UndecodableError:
            return None  # its run says so
        except Exception:
            _log.exception(
                "partition_key of %s failed for message %s; it runs without a lane",
                self._subscription.queue.name,
                delivery.message_id,
            )
            return None

    def undecodable(self, delivery: Delivery, error: UndecodableError) -> Outcome:
        """The outcome of a message that its handler can't be given."""
        policy = self._subscription.undecodable
        self._stats.undecodable += 1
        reason = str(error)
        _log.warning(
            "%s: message %s is undecodable (%s); policy: %s",
            self._subscription.queue.name,
            delivery.message_id,
            reason,
            policy,
        )
        self._hooks.emit(
            Undecodable(self._subscription.queue.name, delivery.message_id, policy, reason)
        )
        if policy == "drop":
            return Drop(reason)
        return Reject(reason) if policy == "reject" else Retry(reason=reason)

    async def _unwrap(self, delivery: Delivery) -> Outcome | Stopped | None:
        """Take a delivery out of its envelope, and fetch the body of one that carries a ticket;
        the outcome where that fails."""
        raw = delivery.restored or delivery.raw  # one that came without its envelope is restored
        try:
            if self._reading is not None and delivery.restored is None:
                raw = await self._within_time(delivery, partial(self._reading.verified, raw))
            body, attributes = raw.body, raw.message_attributes
            if self._check is not None:
                body, attributes = await self._within_time(
                    delivery, partial(self._check.restore, body, attributes)
                )
        except asyncio.CancelledError as error:
            return self._cancelled(delivery, error)
        except UndecodableError as error:
            return self.undecodable(delivery, error)
        except (BlobMissingError, BlobDamagedError) as error:
            return self.undecodable(delivery, UndecodableError(str(error)))
        except Exception as error:
            return self._raised(delivery, error)
        if body is not raw.body:
            raw = replace(raw, body=body, message_attributes=attributes)
        if raw is not delivery.raw:
            delivery.restored = raw
        return None

    # --- one message ----------------------------------------------------------------------------

    async def _call(self, delivery: Delivery, payload: Any) -> Any:
        message = self.message_of(delivery)
        call = partial(self._through, message, partial(self._handler, payload))
        if self._recorder is not None:
            value: Any = STOPPED
            try:
                value = await self._within_time(delivery, call)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                value = error
                raise
            finally:
                self._recorder(payload, message, value)
            return value
        return await self._within_time(delivery, call)

    async def _through(self, message: Message, handler: CallNext) -> Any:
        """The handler, inside the middleware."""
        call = handler
        for middleware in reversed(self._middleware):
            call = _inside(middleware, call)
        return await call(message)

    async def _handler(self, payload: Any, message: Any) -> Any:
        call = partial(self._plan.function, **self._plan.arguments(payload, message))
        if self._threads is None:
            return await call()
        value = await self._in_thread(self._threads, call)
        # a plain function around an async one gives what is still to be awaited
        return await value if isawaitable(value) else value

    async def _in_thread(self, threads: Threads, call: Callable[[], Any]) -> Any:
        """A plain function; its slot and its lease are kept until the thread is done, since a
        thread can't be stopped."""
        with self._clock.hold() if isinstance(self._clock, VirtualClock) else nullcontext():
            return await self._wait_for_thread(threads.submit(call))

    async def _wait_for_thread(self, future: asyncio.Future[Any]) -> Any:
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                if future.cancelled():
                    raise
                cancelled = error
            except BaseException:  # noqa: S110 - it is raised below, from the future
                pass
        if cancelled is not None and future.exception() is not None:
            raise cancelled
        return future.result()

    async def _within_time(self, delivery: Delivery, call: Callable[[], Awaitable[Any]]) -> Any:
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

    async def _replied(self, delivery: Delivery, value: Any) -> Outcome | Stopped:
        if self._publish is None:
            if not self._ignored_value:
                self._ignored_value = True
                _log.warning(
                    "%s: the handler returned %s, and the subscription has no publish=; ignored",
                    self._subscription.queue.name,
                    type(value).__name__,
                )
            return ACK
        reply = value if isinstance(value, Reply) else Reply(value)
        try:
            await self._publish(reply, self.message_of(delivery))
        except asyncio.CancelledError as error:
            return self._cancelled(delivery, error)
        except Exception as error:
            return self._raised(delivery, error)
        return ACK

    def _cancelled(self, delivery: Delivery, error: asyncio.CancelledError) -> Outcome | Stopped:
        task = asyncio.current_task()
        if delivery.stop_reason or (task is not None and task.cancelling()):
            return STOPPED
        return self._raised(delivery, error)  # the handler's own doing

    def _raised(self, delivery: Delivery, error: BaseException) -> Outcome:
        try:
            outcome = outcome_of_error(error, self._subscription.on_error)
        except Exception:
            _log.exception("on_error of %s failed", self._subscription.queue.name)
            outcome = Retry(reason=describe(error))
        _log.log(
            logging.INFO if isinstance(outcome, Ack) else logging.WARNING,
            "%s: message %s, attempt %d: %s",
            self._subscription.queue.name,
            delivery.message_id,
            delivery.attempt,
            describe(error),
            exc_info=error,
        )
        return outcome

    # --- batches --------------------------------------------------------------------------------

    async def _run_good(
        self, good: list[tuple[int, Delivery, Any]]
    ) -> list[Outcome] | list[Outcome | Stopped]:
        first = good[0][1]
        payloads = [payload for _, _, payload in good]
        wanted = self._plan.message is not None or self._recorder is not None
        messages = [self.message_of(delivery) for _, delivery, _ in good] if wanted else []
        value: Any = STOPPED
        try:
            value = await self._within_time(first, partial(self._handler, payloads, messages))
        except asyncio.CancelledError as error:
            outcome = self._cancelled(first, error)
            return [outcome] * len(good)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            value = error
            return [self._raised(delivery, error) for _, delivery, _ in good]
        finally:
            if self._recorder is not None:
                for payload, message in zip(payloads, messages, strict=True):
                    self._recorder(payload, message, value)
        try:
            return _outcomes_of(value, len(good))
        except UsageError as error:
            return [self._raised(delivery, error) for _, delivery, _ in good]


def _inside(middleware: Middleware, call_next: CallNext) -> CallNext:
    return lambda message: middleware(message, call_next)


def _outcomes_of(value: Any, count: int) -> list[Outcome]:
    """What a batch handler returned, as one outcome for each message."""
    if (outcome := outcome_of_value(value)) is not None:
        return [outcome] * count
    if isinstance(value, list | tuple) and len(value) == count:
        outcomes = [known for each in value if (known := outcome_of_value(each)) is not None]
        if len(outcomes) == count:
            return outcomes
    raise UsageError(
        f"a batch handler returns None, one outcome, or a list of {count} outcomes (one for each "
        f"message of the batch), not {value!r:.200}"
    )
