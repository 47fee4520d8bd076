"""Deletes, releases and extensions on their way to SQS: in tens, confirmed one by one.

What is asked for within a few milliseconds travels together: deletes in DeleteMessageBatch,
releases and extensions in ChangeMessageVisibilityBatch. Each entry is believed only by its own
answer. An entry that failed for a passing reason is sent again after a while, with the newest
receipt handle; one that SQS refuses is told to the owner, and no neighbour is touched. About one
delivery at most one request is under way, so an extension can't overtake a release.

Which delivery is to be settled how is decided in `consumer.py`; when to extend, in `extender.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import Clock, Timer
from pumphouse.errors import (
    ConfigError,
    NetworkError,
    OutcomeUnknownError,
    QueueDoesNotExist,
    ServiceError,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatch,
    ChangeMessageVisibilityBatchRequestEntry,
    ChangeMessageVisibilityBatchResult,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    DeleteMessageBatchResult,
)
from pumphouse.subscriber.delivery import Delivery, Intent

NONE, EXTEND, RELEASE, DELETE = Intent.NONE, Intent.EXTEND, Intent.RELEASE, Intent.DELETE

LINGER_SECONDS = 0.005
MAX_REQUESTS = 16
RETRIES = RetryPolicy(base_seconds=0.2, cap_seconds=5.0, max_attempts=None, budget_seconds=None)

_IDS = [str(number) for number in range(MAX_BATCH_ENTRIES)]
_log = logging.getLogger("pumphouse.subscriber")


class Owner(Protocol):
    """Who is told what became of a delivery."""

    def on_settled(self, delivery: Delivery, intent: Intent) -> None:
        """SQS confirmed the delete or the release."""

    def on_extended(self, delivery: Delivery) -> None:
        """SQS confirmed the extension; `lease_until` is the new end."""

    def on_refused(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        """It can't be carried out: the lease is over, or SQS refuses for good."""


_Send = Callable[
    [Sequence[Delivery]],
    Coroutine[Any, Any, DeleteMessageBatchResult | ChangeMessageVisibilityBatchResult],
]


class Settlement:
    """The requests that settle the deliveries of one queue."""

    def __init__(
        self,
        backend: Backend,
        queue_url: str,
        clock: Clock,
        owner: Owner,
        tasks: asyncio.TaskGroup,
        *,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self.queue_url = queue_url
        self._backend = backend
        self._clock = clock
        self._owner = owner
        self._tasks = tasks
        self._linger = linger_seconds
        self._deletes: list[Delivery] = []
        self._changes: list[Delivery] = []
        self._timer: Timer | None = None
        self._hurried = False  # no more lingering: it is being flushed
        self._open = 0
        self._resting: dict[int, tuple[Timer, list[Delivery]]] = {}
        self._tickets = 0
        self.requests = 0

    def submit(self, delivery: Delivery, intent: Intent, seconds: int = 0) -> None:
        """Ask for a delete, a release (visible again in `seconds`) or an extension by `seconds`."""
        if intent < delivery.intent:
            return
        delivery.intent = intent
        delivery.intent_seconds = seconds
        if not delivery.sending and not delivery.resting:
            self._enqueue(delivery)

    def refresh(self, delivery: Delivery, receipt_handle: str, lease_until: float) -> None:
        """The same message was received again: its newest receipt handle is the one that counts."""
        delivery.receipt_handle = receipt_handle
        delivery.lease_until = lease_until

    @property
    def congested(self) -> bool:
        """Whether requests wait for others to be answered: no time to receive more."""
        return self._open >= MAX_REQUESTS and bool(self._deletes or self._changes)

    def hurry(self) -> None:
        """Send what there is, and from now on everything, at once."""
        self._hurried = True
        self._send_ready()

    def abandon(self) -> None:
        """Give up what waits to be sent again; for the end of the time that a flush is given."""
        for timer, batch in list(self._resting.values()):
            timer.cancel()
            for delivery in batch:
                delivery.resting = False
                self._refuse(delivery, delivery.intent, TimeoutError("not confirmed in time"))
        self._resting.clear()

    # --- collecting -----------------------------------------------------------------------------

    def _enqueue(self, delivery: Delivery) -> None:
        queue = DELETE if delivery.intent is DELETE else EXTEND
        if delivery.queued_as is queue:
            return
        delivery.queued_as = queue
        pending = self._deletes if queue is DELETE else self._changes
        pending.append(delivery)
        if self._hurried or len(pending) >= MAX_BATCH_ENTRIES:
            self._send_ready()
        elif self._timer is None:
            self._timer = self._clock.call_later(self._linger, self._linger_over)

    def _linger_over(self) -> None:
        self._timer = None
        self._send_ready(everything=True)

    def _send_ready(self, everything: bool = False) -> None:
        """Start requests for what fills a batch, or for everything; within the limit of both."""
        everything = everything or self._hurried
        kinds: tuple[tuple[list[Delivery], _Send], ...] = (
            (self._deletes, self._delete),
            (self._changes, self._change),
        )
        for pending, send in kinds:
            while pending and (everything or len(pending) >= MAX_BATCH_ENTRIES):
                if self._open >= MAX_REQUESTS:
                    return  # the next answer comes back here
                batch, pending[:MAX_BATCH_ENTRIES] = pending[:MAX_BATCH_ENTRIES], []
                mine = DELETE if pending is self._deletes else EXTEND
                batch = [delivery for delivery in batch if delivery.queued_as is mine]
                if not batch:
                    continue
                for delivery in batch:
                    delivery.queued_as = NONE
                    delivery.sending = True
                self._open += 1
                self.requests += 1
                self._tasks.create_task(self._carry_out(send, batch))

    # --- requests -------------------------------------------------------------------------------

    async def _carry_out(
        self,
        send: _Send,
        batch: list[Delivery],
    ) -> None:
        started = self._clock.monotonic()
        asked = [(each, each.intent, each.intent_seconds, each.receipt_handle) for each in batch]
        failures: dict[str, Exception] = {}
        confirmed: set[str] = set()
        whole: Exception | None = None
        try:
            answer = await send(batch)
        except asyncio.CancelledError:
            whole = OutcomeUnknownError("the request was cancelled")
            raise
        except Exception as failure:
            whole = failure
        else:
            confirmed.update(entry.id for entry in answer.successful)
            failures.update((entry.id, _error_of(entry)) for entry in answer.failed)
        finally:
            self._open -= 1
            again: list[Delivery] = []
            for position, (delivery, intent, seconds, handle) in enumerate(asked):
                key = _IDS[position]
                error: Exception | None = None
                if whole is not None or key not in confirmed:
                    error = whole or failures.get(key) or _left_out()
                delivery.sending = False
                self._answered(delivery, intent, seconds, handle, started, error, again)
            if again:
                self._rest(again, whole or next(iter(failures.values()), None))
            self._send_ready(everything=self._timer is None)

    async def _delete(self, batch: Sequence[Delivery]) -> DeleteMessageBatchResult:
        return await self._backend.execute(
            DeleteMessageBatch(
                self.queue_url,
                [
                    DeleteMessageBatchRequestEntry(key, delivery.receipt_handle)
                    for key, delivery in zip(_IDS, batch, strict=False)
                ],
            )
        )

    async def _change(self, batch: Sequence[Delivery]) -> ChangeMessageVisibilityBatchResult:
        return await self._backend.execute(
            ChangeMessageVisibilityBatch(
                self.queue_url,
                [
                    ChangeMessageVisibilityBatchRequestEntry(
                        key, delivery.receipt_handle, delivery.intent_seconds
                    )
                    for key, delivery in zip(_IDS, batch, strict=False)
                ],
            )
        )

    # --- answers --------------------------------------------------------------------------------

    def _answered(
        self,
        delivery: Delivery,
        intent: Intent,
        seconds: int,
        handle: str,
        started: float,
        error: Exception | None,
        again: list[Delivery],
    ) -> None:
        if not delivery.live:
            delivery.intent = NONE
            return
        if delivery.receipt_handle != handle and intent is not RELEASE:
            self._enqueue(delivery)  # the answer was about an older receive
            return
        if error is None:
            delivery.tries = 0
            if intent is EXTEND:
                delivery.lease_until = max(delivery.lease_until, started + seconds)
                if delivery.intent is EXTEND:
                    delivery.intent = NONE
                    self._owner.on_extended(delivery)
                else:
                    self._enqueue(delivery)
            elif delivery.intent is intent:
                delivery.intent = NONE
                self._owner.on_settled(delivery, intent)
            else:
                self._enqueue(delivery)
            return
        if delivery.intent is not intent:
            self._enqueue(delivery)
        elif _passing(error) and self._clock.monotonic() < delivery.lease_until:
            delivery.tries += 1
            delivery.resting = True
            again.append(delivery)
        else:
            self._refuse(delivery, intent, error)

    def _refuse(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        delivery.intent = NONE
        self._owner.on_refused(delivery, intent, error)

    def _rest(self, batch: list[Delivery], error: Exception | None) -> None:
        """Send these again after a while."""
        delay = RETRIES.delay(max(delivery.tries for delivery in batch))
        if isinstance(error, ThrottledError):
            delay = max(delay, error.retry_after_seconds)
        _log.info("%s: %d entries are sent again in %.2f s", self.queue_url, len(batch), delay)
        self._tickets += 1
        ticket = self._tickets

        def wake() -> None:
            del self._resting[ticket]
            for delivery in batch:
                delivery.resting = False
                if delivery.live and delivery.intent is not NONE:
                    self._enqueue(delivery)

        self._resting[ticket] = (self._clock.call_later(delay, wake), batch)


def _passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, QueueDoesNotExist):
        return False
    if isinstance(
        error, ThrottledError | TransientError | NetworkError | OutcomeUnknownError | ConfigError
    ):
        return True
    return not isinstance(error, ServiceError)  # an error that no backend should raise


def _error_of(entry: BatchResultErrorEntry) -> Exception:
    return from_answer(
        entry.code,
        entry.message or "",
        status=400 if entry.sender_fault else 500,
        sender_fault=entry.sender_fault,
    )


def _left_out() -> Exception:
    return OutcomeUnknownError("the answer does not mention this entry")
