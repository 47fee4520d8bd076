"""Retries in place: the lease kept and what stands behind held, until a delay is over.

That is kept from being longer than the subscription wants, or than a lease can be. Where a retry
can't be made in place SQS hides the message for the delay, and hands it out again: that is
`exits.py`'s, and so is what a delivery goes back to when its delay is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from pumphouse.clock import Clock, Timer
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.setup import SPARE_RECEIVES, Ready


class InPlace:
    """The deliveries of one subscription that wait here for their next attempt.

    `delay_over(delivery)` is called when one has waited long enough.
    """

    def __init__(
        self, queue: Queue, ready: Ready, clock: Clock, delay_over: Callable[[Delivery], object]
    ) -> None:
        self._lease = ready.lease_seconds
        self._longest = self._lease if queue.in_place_seconds is None else queue.in_place_seconds
        self._extend = queue.extend
        self._most = queue.max_lease_seconds
        self._max_receives = ready.max_receives
        self._clock = clock
        self._delay_over = delay_over
        self._waiting: dict[Delivery, tuple[Timer, float]] = {}

    def allows(self, delivery: Delivery, delay: float, behind: Iterable[Delivery]) -> bool:
        """Whether a delivery can wait here for `delay` seconds, with those that stand behind it."""
        if delivery.key is None:
            return False
        if delay > self._longest and not any(map(self.receives_short, (delivery, *behind))):
            return False
        again = self._clock.monotonic() + delay
        if not self._extend:
            return again < delivery.lease_until
        needed = min(self._lease, self._most / 2)  # to run it then
        return again + needed < delivery.received_at + self._most

    def wait(self, delivery: Delivery, delay: float) -> None:
        """Let one wait."""
        timer = self._clock.call_later(delay, partial(self._over, delivery))
        self._waiting[delivery] = (timer, self._clock.monotonic() + delay)

    def end(self, delivery: Delivery) -> None:
        """One that waits does not any more."""
        self._waiting.pop(delivery)[0].cancel()

    def end_all(self) -> list[tuple[Delivery, float]]:
        """Nothing waits any more; returns what did, with the seconds that were left."""
        now = self._clock.monotonic()
        ended = [(delivery, due - now) for delivery, (_, due) in self._waiting.items()]
        for delivery, _ in ended:
            self.end(delivery)
        return ended

    def __len__(self) -> int:
        return len(self._waiting)

    def _over(self, delivery: Delivery) -> None:
        del self._waiting[delivery]
        self._delay_over(delivery)

    def receives_short(self, delivery: Delivery) -> bool:
        """Whether a delivery is so close to the limit on receives that none may be wasted: what is
        left is for stops and crashes."""
        limit = self._max_receives
        return limit is not None and delivery.receive_count + SPARE_RECEIVES >= limit
