"""What is told of a subscription's deliveries: the words in the log, the count, and the event.

One method for each thing that happens. Whether it has happened is `exits.py`'s and `carrying.py`'s
to know; how many were received, run and settled is counted where it is done.
"""

from __future__ import annotations

import logging
from typing import Literal

from pumphouse.clock import Clock
from pumphouse.hooks import Hooks
from pumphouse.subscriber import events
from pumphouse.subscriber.delivery import RUNNING, Delivery
from pumphouse.subscriber.judging import Stopped
from pumphouse.subscriber.outcomes import Ack, Outcome, describe
from pumphouse.subscriber.stats import Stats

_log = logging.getLogger("pumphouse.subscriber")


class Reports:
    """The reports of one subscription; `name` is its queue's."""

    def __init__(self, name: str, clock: Clock, hooks: Hooks, stats: Stats) -> None:
        self.name = name
        self._clock = clock
        self._hooks = hooks
        self._stats = stats

    def handled(self, delivery: Delivery, outcome: Outcome | Stopped) -> None:
        name = type(outcome).__name__.lower()
        if delivery.lease_lost and not isinstance(outcome, Ack):
            name = "lost"
        self._hooks.emit(
            events.Handled(
                self.name,
                delivery.message_id,
                name,  # type: ignore[arg-type]
                delivery.attempt,
                self._clock.monotonic() - delivery.started_at,
                getattr(outcome, "reason", ""),
            )
        )

    def lease_lost(self, delivery: Delivery, reason: str) -> None:
        self._stats.leases_lost += 1
        _log.warning("%s: lease of %s lost: %s", self.name, delivery.message_id, reason)
        running = delivery.state is RUNNING
        self._hooks.emit(events.LeaseLost(self.name, delivery.message_id, reason, running))

    def not_extended(self, delivery: Delivery, error: Exception) -> None:
        _log.warning(
            "%s: the lease of %s can't be extended: %s",
            self.name,
            delivery.message_id,
            describe(error),
        )

    def not_settled(
        self,
        delivery: Delivery,
        verb: Literal["delete", "release"],
        error: Exception,
        *,
        known: bool,
    ) -> None:
        """`known` where it was told already that requests of this kind fail."""
        self._stats.settle_failed += 1
        level = logging.INFO if known else logging.WARNING
        _log.log(
            level, "%s: message %s: %s failed: %s", self.name, delivery.message_id, verb, error
        )
        self._hooks.emit(events.SettleFailed(self.name, delivery.message_id, verb, describe(error)))

    def carried(self, delivery: Delivery, target: str, attempts: int, reason: str) -> None:
        """It is in the dead-letter queue `target`."""
        self._stats.dead_lettered += 1
        _log.warning(
            "%s: message %s, attempt %d: carried to %s: %s",
            self.name,
            delivery.message_id,
            attempts,
            target,
            reason,
            extra={
                "queue": self.name,
                "message_id": delivery.message_id,
                "attempt": attempts,
                "dead_letter": target,
                "reason": reason,
            },
        )
        self._hooks.emit(
            events.DeadLettered(self.name, delivery.message_id, target, attempts, reason)
        )

    def not_carried(self, delivery: Delivery, problem: str, again_in_seconds: float) -> None:
        _log.error(
            "%s: message %s can't go to the dead-letter queue (%s); tried again in %.1f s",
            self.name,
            delivery.message_id,
            problem,
            again_in_seconds,
        )

    def lost_while_carried(self, delivery: Delivery) -> None:
        _log.warning("%s: lease of %s lost while it was carried", self.name, delivery)

    def stalled(self, seconds: float) -> None:
        self._stats.stalls += 1
        _log.error("%s: the event loop was blocked for %.1f s", self.name, seconds)
        self._hooks.emit(events.LoopStalled(self.name, seconds))
