"""Deletes, releases and extensions on their way to SQS: in tens, confirmed one by one.

What is asked for within a few milliseconds travels together: deletes in DeleteMessageBatch,
releases and extensions in ChangeMessageVisibilityBatch. Each entry is believed only by its own
answer, which `pumphouse.settling` reads. An entry that failed for a passing reason is sent again
after a while, with the newest receipt handle; one that SQS refuses is told to the owner, and no
neighbour is touched. A lease is extended until its delete is confirmed; an extension can't undo a
release, as the one waits for the other.

Which delivery is to be settled how is decided in `exits.py`; when to extend, in `extender.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, Protocol

from pumphouse import settling
from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy, one_try
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
from pumphouse.subscriber.delivery import (
    IDLE,
    QUEUED,
    RESTING,
    SENDING,
    Delivery,
    Intent,
    Where,
)
from pumphouse.subscriber.outcomes import describe
from pumphouse.subscriber.streak import Streak

NONE, EXTEND, RELEASE, DELETE = Intent.NONE, Intent.EXTEND, Intent.RELEASE, Intent.DELETE

LINGER_SECONDS = 0.005
MAX_REQUESTS = 16
ONE_BY_ONE_AFTER = 3
"""Deletes that failed one after another, from which on one request finds out for all of them."""
RETRIES = RetryPolicy(base_seconds=0.2, cap_seconds=5.0, max_attempts=None, budget_seconds=None)

_log = logging.getLogger("pumphouse.subscriber")


class Owner(Protocol):
    """Who is told what became of a delivery."""

    def on_deleted(self, deliveries: Sequence[Delivery]) -> None:
        """SQS confirmed these deletes, a whole request of them."""

    def on_settled(self, delivery: Delivery, intent: Intent) -> None:
        """SQS confirmed the delete or the release."""

    def on_extended(self, delivery: Delivery) -> None:
        """SQS confirmed the extension; `lease_until` is the new end."""

    def on_refused(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        """It can't be carried out: the lease is over, or SQS refuses for good."""


class _Asked(NamedTuple):
    """What one request asks, entry by entry. It is fixed before the request is made, as a delivery
    may change its mind meanwhile, or be received again."""

    deliveries: list[Delivery]
    handles: list[str]
    wishes: list[tuple[Intent, int]]  # with the seconds of the new lease; `_DELETES` for deletes


_DELETES = [(DELETE, 0)] * MAX_BATCH_ENTRIES


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
        self.requests = 0
        self._backend = backend
        self._clock = clock
        self._owner = owner
        self._tasks = tasks
        self._linger = linger_seconds
        self._deletes: list[Delivery] = []
        self._changes: list[tuple[Delivery, Intent]] = []  # releases and extensions
        self._timer: Timer | None = None
        self._abandoned = False
        self._hurried = False  # no more lingering: everything goes at once
        self._open = 0
        self._open_deletes = 0
        self._deleting = Streak(queue_url, "deletes", clock)
        self._changing = Streak(queue_url, "visibility changes", clock)
        self._pause = 0  # the batch for whose next try all deletes wait
        self._resting: dict[int, tuple[Timer, list[tuple[Delivery, Intent]]]] = {}
        self._tickets = 0
        self._keeps: Callable[[Delivery], bool] | None = None
        self._kept: list[tuple[Delivery, float]] = []  # and when they are to be visible

    def delete(self, delivery: Delivery) -> None:
        """Ask for a delete."""
        delivery.intent = DELETE
        if delivery.settle_at is IDLE:
            delivery.settle_at = QUEUED
            deletes = self._deletes
            deletes.append(delivery)
            if self._timer is None or len(deletes) >= MAX_BATCH_ENTRIES:
                self._collect(len(deletes))

    def release(self, delivery: Delivery, seconds: int = 0) -> None:
        """Ask for it to be visible again in `seconds`, unless it is to be deleted."""
        if delivery.intent is DELETE:
            return
        if self._keeps is not None and self._keeps(delivery):
            self._kept.append((delivery, self._clock.monotonic() + seconds))
        else:
            delivery.intent = RELEASE
            delivery.intent_seconds = seconds
            self._settle_next(delivery)

    def keep(self, which: Callable[[Delivery], bool]) -> None:
        """Release none of these until `give_back`; their leases are extended meanwhile."""
        self._keeps = which

    def give_back(self) -> None:
        """Release what was kept, and from now on at once."""
        kept, self._kept, self._keeps = self._kept, [], None
        now = self._clock.monotonic()
        for delivery, visible_at in kept:
            if delivery.live:
                self.release(delivery, max(0, ceil(visible_at - now)))

    def extend(self, delivery: Delivery, seconds: int) -> None:
        """Ask for `seconds` more from now, also while a delete is on its way."""
        if delivery.extend_at is IDLE and _wanted(delivery, EXTEND):
            delivery.extend_at = QUEUED
            delivery.extend_seconds = seconds
            self._changes.append((delivery, EXTEND))
            self._collect(len(self._changes))

    @property
    def problem(self) -> str:
        """What fails, and why; empty while it goes well."""
        return self._deleting.problem or self._changing.problem

    @property
    def congested(self) -> bool:
        """Whether requests wait for others to be answered: no time to receive more."""
        return self._open >= MAX_REQUESTS and bool(self._deletes or self._changes)

    def hurry(self) -> None:
        """Send what there is, and from now on everything, at once."""
        self._hurried = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send_ready(everything=True)

    def abandon(self) -> None:
        """Give up what waits to be sent again, now and from now on; for the end of the time that a
        stop has."""
        self._abandoned = True
        for timer, batch in list(self._resting.values()):
            timer.cancel()
            for delivery, intent in batch:
                self._at(delivery, intent, IDLE)
                if delivery.live:
                    self._refuse(delivery, intent, TimeoutError("not confirmed in time"))
        self._resting.clear()
        self._pause = 0
        queued = [(delivery, DELETE) for delivery in self._deletes] + self._changes
        self._deletes, self._changes = [], []
        for delivery, intent in queued:
            self._at(delivery, intent, IDLE)
            if delivery.live and intent is not EXTEND:
                self._refuse(delivery, intent, TimeoutError("not confirmed in time"))

    # --- collecting -----------------------------------------------------------------------------

    def _settle_next(self, delivery: Delivery) -> None:
        """Queue the delete or the release, unless it is on its way; a release waits for the end of
        an extension that is under way, lest it be undone by it."""
        if delivery.intent is DELETE:
            self.delete(delivery)
        elif (
            delivery.intent is RELEASE
            and delivery.settle_at is IDLE
            and delivery.extend_at is not SENDING
        ):
            delivery.settle_at = QUEUED
            self._changes.append((delivery, RELEASE))
            self._collect(len(self._changes))

    def _collect(self, pending: int) -> None:
        if self._hurried or pending >= MAX_BATCH_ENTRIES:
            self._send_ready(everything=self._hurried)
        elif self._timer is None:
            self._timer = self._clock.call_later(self._linger, self._linger_over)

    def _linger_over(self) -> None:
        self._timer = None
        self._send_ready(everything=True)

    def _send_ready(self, everything: bool) -> None:
        """Start requests for what fills a batch, or for everything; within the limit of both."""
        deletes, changes = self._deletes, self._changes
        least = 1 if everything else MAX_BATCH_ENTRIES
        while self._open < MAX_REQUESTS and len(deletes) >= least:
            if self._deleting.failures >= ONE_BY_ONE_AFTER and (self._pause or self._open_deletes):
                break
            self._open_deletes += 1
            batch, deletes[:MAX_BATCH_ENTRIES] = deletes[:MAX_BATCH_ENTRIES], []
            self._start(_Asked(batch, [each.raw.receipt_handle for each in batch], _DELETES))
        while self._open < MAX_REQUESTS and len(changes) >= least:
            asked = _Asked([], [], [])
            taken = 0
            for delivery, intent in changes:
                if len(asked.deliveries) == MAX_BATCH_ENTRIES:
                    break
                taken += 1
                if delivery.live and _wanted(delivery, intent):
                    self._at(delivery, intent, SENDING)
                    asked.deliveries.append(delivery)
                    asked.handles.append(delivery.raw.receipt_handle)
                    extends = intent is EXTEND
                    seconds = delivery.extend_seconds if extends else delivery.intent_seconds
                    asked.wishes.append((intent, seconds))
                else:
                    self._at(delivery, intent, IDLE)
            del changes[:taken]
            if asked.deliveries:
                self._start(asked)

    def _start(self, asked: _Asked) -> None:
        self._open += 1
        self.requests += 1
        self._tasks.create_task(self._carry_out(asked))

    @staticmethod
    def _at(delivery: Delivery, intent: Intent, where: Where) -> None:
        if intent is EXTEND:
            delivery.extend_at = where
        else:
            delivery.settle_at = where

    # --- requests -------------------------------------------------------------------------------

    async def _carry_out(self, asked: _Asked) -> None:
        one_try.set(True)  # what fails is tried again here, and only here
        deliveries, handles, wishes = asked
        deletes = wishes is _DELETES
        backend, url = self._backend, self.queue_url
        started = self._clock.monotonic()
        failures: settling.Failures = {}
        whole: Exception | None = None
        try:
            if deletes:
                failures = await settling.delete(backend, url, handles)
            else:
                changes = [(handle, wish[1]) for handle, wish in zip(handles, wishes, strict=True)]
                failures = await settling.change_visibility(backend, url, changes)
        except asyncio.CancelledError:
            whole = OutcomeUnknownError("the request was cancelled")
            raise
        except Exception as failure:
            whole = failure
        finally:
            self._open -= 1
            self._open_deletes -= deletes
            confirmed = deletes and whole is None and not failures
            if confirmed and handles == [each.raw.receipt_handle for each in deliveries]:
                if self._deleting.failures:
                    self._deleting.succeeded()
                self._owner.on_deleted(deliveries)
            else:  # something is wrong, or was received again meanwhile
                self._answers(asked, started, failures, whole)
            self._send_ready(everything=self._hurried or self._timer is None)

    # --- answers --------------------------------------------------------------------------------

    def _answers(
        self,
        asked: _Asked,
        started: float,
        failures: settling.Failures,
        whole: Exception | None,
    ) -> None:
        """Draw the consequence of each entry's answer; `whole` is why there is none at all."""
        deletes = asked.wishes is _DELETES
        self._take_note(self._deleting if deletes else self._changing, asked, failures, whole)
        again: list[tuple[Delivery, Intent]] = []
        for position, (delivery, handle, (intent, seconds)) in enumerate(zip(*asked, strict=False)):
            self._at(delivery, intent, IDLE)
            error = whole or failures.get(position)
            if delivery.live and not self._answered(
                delivery, intent, handle, started + seconds, error
            ):
                again.append((delivery, intent))
        if again:
            self._rest(again, whole or next(iter(failures.values()), None))

    def _take_note(
        self, streak: Streak, asked: _Asked, failures: settling.Failures, whole: Exception | None
    ) -> None:
        """Whether a request got through: entries that are refused one by one have."""
        error = whole
        if len(failures) == len(asked.deliveries) and all(map(_passing, failures.values())):
            error = next(iter(failures.values()))
        if error is not None:
            at_once = isinstance(
                error, ConfigError
            )  # what is not permitted does not pass by itself
            streak.failed(describe(error), passing=_passing(error) and not at_once)
        elif streak.failures:
            streak.succeeded()

    def _answered(
        self,
        delivery: Delivery,
        intent: Intent,
        handle: str,
        lease_until: float,
        error: Exception | None,
    ) -> bool:
        """Draw the consequence of one entry's answer; False if it is to be sent again."""
        if intent is EXTEND and delivery.intent is RELEASE:
            self._settle_next(delivery)  # it waited for this
        elif delivery.raw.receipt_handle != handle and intent is not RELEASE:
            self._settle_next(delivery)  # the answer is about an older receive
        elif error is None and intent is EXTEND:
            delivery.extend_tries = 0
            delivery.lease_until = max(delivery.lease_until, lease_until)
            self._owner.on_extended(delivery)
        elif error is None and delivery.intent is intent:
            self._owner.on_settled(delivery, intent)
        elif intent is not EXTEND and delivery.intent is not intent:
            self._settle_next(delivery)
        elif (
            error is not None
            and _passing(error)
            and (self._clock.monotonic() < delivery.lease_until)
        ):
            return False
        elif error is not None:
            self._refuse(delivery, intent, error)
        return True

    def _refuse(self, delivery: Delivery, intent: Intent, error: Exception) -> None:
        if intent is not EXTEND:
            delivery.intent = NONE
        self._owner.on_refused(delivery, intent, error)

    def _rest(self, batch: list[tuple[Delivery, Intent]], error: Exception | None) -> None:
        """Send these again after a while."""
        if self._abandoned:
            for delivery, intent in batch:
                self._refuse(delivery, intent, TimeoutError("not confirmed in time"))
            return
        tries = 0
        for delivery, intent in batch:
            self._at(delivery, intent, RESTING)
            if intent is EXTEND:
                delivery.extend_tries += 1
            else:
                delivery.settle_tries += 1
            tries = max(tries, delivery.extend_tries, delivery.settle_tries)
        shared = batch[0][1] is DELETE and self._deleting.failures >= ONE_BY_ONE_AFTER
        delay = RETRIES.delay(max(tries, self._deleting.failures) if shared else tries)
        if isinstance(error, ThrottledError):
            delay = max(delay, error.retry_after_seconds)
        _log.info("%s: %d entries are sent again in %.2f s", self.queue_url, len(batch), delay)
        self._tickets += 1
        if shared:
            self._pause = self._tickets
        timer = self._clock.call_later(delay, partial(self._rested, self._tickets))
        self._resting[self._tickets] = (timer, batch)

    def _rested(self, ticket: int) -> None:
        for delivery, intent in self._resting.pop(ticket)[1]:
            self._at(delivery, intent, IDLE)
            if not delivery.live:
                continue
            if intent is EXTEND:
                self.extend(delivery, delivery.extend_seconds)
            self._settle_next(delivery)
        if ticket == self._pause:
            self._pause = 0
            self._send_ready(everything=True)


def _wanted(delivery: Delivery, intent: Intent) -> bool:
    """Whether a change is asked for still: no lease is extended that is to end, or is over."""
    return intent is RELEASE or not (delivery.intent is RELEASE or delivery.lease_lost)


def _passing(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, QueueDoesNotExist):
        return False
    if isinstance(
        error, ThrottledError | TransientError | NetworkError | OutcomeUnknownError | ConfigError
    ):
        return True
    return not isinstance(error, ServiceError)  # an error that no backend should raise
