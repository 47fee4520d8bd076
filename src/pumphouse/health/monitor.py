"""Reads off an app how it is, in any thread and at any time, and counts rates.

Only `ask_waiting` asks anything of SQS, and only if it is called.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from msgspec.structs import asdict, replace

from pumphouse.backend import Backend
from pumphouse.backoff import one_try
from pumphouse.clock import Clock, RealClock
from pumphouse.errors import PumphouseError
from pumphouse.health.state import QueueState, Snapshot, per_message
from pumphouse.protocol.operations import GetQueueAttributes
from pumphouse.running import Running
from pumphouse.subscriber.consumer import Consumer

RATE_SECONDS = 10.0


class HasRuns(Protocol):
    """An app."""

    name: str

    @property
    def last_run(self) -> Running | None:
        """The run that goes on, or the last one that did."""
        ...


class Rates:
    """Rates per second out of counters that only grow: over the last `RATE_SECONDS`, or since the
    last look where that is longer ago."""

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def update(self, now: float, counters: Mapping[str, int]) -> dict[str, float | None]:
        """The rate of each counter now, None at the first look; takes note of the counters."""
        samples = self._samples
        while len(samples) > 1 and now - samples[1][0] >= self._seconds:
            samples.popleft()
        rates: dict[str, float | None] = dict.fromkeys(counters)
        if samples and (elapsed := now - samples[0][0]) > 0:
            before = samples[0][1]
            rates = {
                name: max(0, count - before.get(name, 0)) / elapsed
                for name, count in counters.items()
            }
        if not samples or now - samples[-1][0] >= self._seconds / 20:
            samples.append((now, counters))
        return rates


class Monitor:
    """How an app is. `waiting` and `waiting_requests` are by queue, filled by `ask_waiting`.

    Made where an event loop runs, it watches that loop: each snapshot asks it for a sign of life,
    and tells for how long the last one has been missing.
    """

    def __init__(self, app: HasRuns, *, clock: Clock | None = None) -> None:
        self.waiting: dict[str, int | None] = {}
        self.waiting_requests: dict[str, int] = {}
        self._app = app
        self._clock = clock or RealClock()
        self._began = self._clock.monotonic()
        self._rates = Rates()
        self._lock = threading.Lock()
        self._pinged_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # there is none
            self._loop = asyncio.get_running_loop()

    def snapshot(self) -> Snapshot:
        """The app now."""
        run = self._app.last_run
        now = self._clock.monotonic()
        blocked, uptime = self._blocked_seconds(), round(now - self._began, 1)
        if run is None:
            return Snapshot(app=self._app.name, uptime_seconds=uptime, blocked_seconds=blocked)
        with self._lock:
            found = {each.name: state_of(each) for each in tuple(run.consumers)}
            rates = self._rates.update(now, {name: each.handled for name, each in found.items()})
        queues: dict[str, QueueState] = {}
        for name, each in found.items():
            asked = self.waiting_requests.get(name, 0)
            requests = each.requests + asked
            rate = rates[name]
            queues[name] = replace(
                each,
                waiting=self.waiting.get(name),
                requests=requests,
                waiting_requests=asked,
                requests_per_message=per_message(requests, each.handled),
                rate=None if rate is None else round(rate, 2),
            )
        return Snapshot(
            app=self._app.name,
            state=run.state,
            uptime_seconds=uptime,
            blocked_seconds=blocked,
            queues=queues,
        )

    def _blocked_seconds(self) -> float:
        if self._pinged_at is not None:
            return round(time.monotonic() - self._pinged_at, 1)
        if self._loop is not None:
            self._pinged_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answered)
            except RuntimeError:  # it is closed: over, not blocked
                self._pinged_at = None
        return 0.0

    def _answered(self) -> None:
        self._pinged_at = None

    async def ask_waiting(self) -> bool:
        """Ask SQS once for each queue how many messages are visible in it; one request a queue.
        Returns False, and asks nothing, where the app is not running."""
        run = self._app.last_run
        if run is None or run.state != "running":
            return False
        counting = one_try.set(True)
        try:
            for consumer in tuple(run.consumers):
                if not consumer.pump.ended:
                    await self._ask(run.backend, consumer)
        finally:
            one_try.reset(counting)
        return True

    async def _ask(self, backend: Backend, consumer: Consumer) -> None:
        name, attribute = consumer.name, "ApproximateNumberOfMessages"
        self.waiting_requests[name] = self.waiting_requests.get(name, 0) + 1
        try:
            asked = GetQueueAttributes(consumer.pump.queue_url, [attribute])
            self.waiting[name] = int((await backend.execute(asked)).attributes[attribute])
        except (PumphouseError, KeyError):
            self.waiting[name] = None  # why is the pump's to say, as it asks the same queue

    async def keep_asking(self, every_seconds: float) -> None:
        """`ask_waiting` again and again while the app runs, until it is cancelled."""
        while True:
            asked = await self.ask_waiting()
            await self._clock.sleep(every_seconds if asked else min(every_seconds, 0.2))


def state_of(consumer: Consumer) -> QueueState:
    """One running subscription, without what has to be measured or asked for."""
    stats, exits = consumer.stats, consumer.exits
    handled = stats.acked + stats.dropped
    requests = consumer.requests
    return QueueState(
        status=consumer.health,
        reason=consumer.reason,
        held=len(exits.live),
        running=len(exits.at_work),
        received=stats.received,
        handled=handled,
        retried=stats.retried,
        rejected=stats.rejected,
        undecodable=stats.undecodable,
        dead_lettered=stats.dead_lettered,
        released=stats.released,
        deleted=stats.deleted,
        leases_lost=stats.leases_lost,
        settle_failed=stats.settle_failed,
        requests=requests,
        requests_per_message=per_message(requests, handled),
    )


def health_of(run: Running | None) -> dict[str, dict[str, object]]:
    """The subscriptions of a run as plain values, by queue; none where there is no run."""
    if run is None:
        return {}
    return {consumer.name: asdict(state_of(consumer)) for consumer in tuple(run.consumers)}
