"""What an error, or a cancellation, means for a message, and the words for the log.

By the subscription's `on_error` and `undecodable`; what came of it is carried out in `exits.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pumphouse.content import UndecodableError
from pumphouse.hooks import Hooks
from pumphouse.subscriber.chain import mark_logged, was_logged
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.events import Undecodable
from pumphouse.subscriber.outcomes import (
    Ack,
    Drop,
    Outcome,
    Reject,
    Retry,
    Settle,
    describe,
    outcome_of_error,
)
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription

_log = logging.getLogger("pumphouse.subscriber")


_FORETOLD = "_pumphouse_foretold"


class Stopped:
    """The handler was cancelled from outside; what to do is written in the delivery."""


STOPPED = Stopped()


class Judge:
    """Judges what leaves the handler of one subscription and its middleware.

    `stopping()` tells whether the app is being stopped, its tasks perhaps cancelled by others.
    """

    def __init__(
        self,
        subscription: Subscription,
        hooks: Hooks,
        stats: Stats,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stopping = stopping
        self._subscription = subscription
        self._hooks = hooks
        self._stats = stats
        self._outcomes_logged = any(
            getattr(each, "logs_outcomes", False) for each in subscription.middleware
        )

    def outcome_of(self, error: BaseException) -> Outcome:
        """The outcome that an error stands for."""
        if isinstance(error, UndecodableError):
            reason = str(error)
            policy = self._subscription.undecodable
            if policy == "drop":
                return Drop(reason)
            return Reject(reason) if policy == "reject" else Retry(reason=reason)
        try:
            return outcome_of_error(error, self._subscription.on_error)
        except KeyboardInterrupt:
            raise  # it is meant for the program
        except BaseException:
            _log.exception("on_error of %s failed", self._subscription.queue.name)
            return Retry(reason=describe(error))

    def foretold(self, error: BaseException) -> Outcome:
        """The outcome of an error that is still on its way out, for middleware that asks;
        `on_error` is not asked once more for it."""
        outcome = self.outcome_of(error)
        error.__dict__[_FORETOLD] = (self, outcome)
        return outcome

    def one_of_batch(self, delivery: Delivery, error: BaseException) -> Outcome:
        """The outcome of an error of one message, which the middleware of its batch sees only as
        an outcome."""
        if self._outcomes_logged and delivery.lease is not None:
            mark_logged(error, [delivery.lease])
        return self.raised(delivery, error)

    def raised(self, delivery: Delivery, error: BaseException) -> Outcome:
        """The outcome of an error for this delivery; it is logged, unless it has been."""
        if isinstance(error, UndecodableError):
            return self.undecodable(delivery, error)
        judge, foretold = error.__dict__.pop(_FORETOLD, (None, None))
        outcome: Outcome = foretold if judge is self else self.outcome_of(error)
        if not isinstance(error, Settle) and not was_logged(error, delivery.lease):
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

    def undecodable(self, delivery: Delivery, error: UndecodableError) -> Outcome:
        """The outcome of a message that its handler can't be given."""
        policy = self._subscription.undecodable
        self._stats.undecodable += 1
        reason = str(error)
        if not was_logged(error, delivery.lease):
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
        return self.outcome_of(error)

    def ended(self, delivery: Delivery, error: BaseException) -> Outcome | Stopped:
        """What an error means that has left the handler and everything around it.

        Once the runtime has cancelled it, an error is that of being cancelled, whatever took the
        place of the cancellation on its way, and is none of the message. A handler that cancels
        itself has failed. What fails in here is logged, and is a retry.
        """
        try:
            return self._ended(delivery, error)
        except Exception:
            _log.exception(
                "%s: what became of message %s can't be told, and it is tried again",
                self._subscription.queue.name,
                delivery.message_id,
            )
            return Retry(reason=describe(error))

    def _ended(self, delivery: Delivery, error: BaseException) -> Outcome | Stopped:
        if isinstance(error, asyncio.CancelledError) and (delivery.stop_reason or self._stopping()):
            return STOPPED
        if not delivery.stop_reason or isinstance(error, Settle):
            return self.raised(delivery, error)
        if not was_logged(error, delivery.lease):
            _log.warning(
                "%s: message %s, attempt %d: %s, when it was cancelled",
                self._subscription.queue.name,
                delivery.message_id,
                delivery.attempt,
                describe(error),
                exc_info=error,
            )
        return STOPPED
