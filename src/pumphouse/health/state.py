"""What is told of a running app: plain values, how those of several processes become one, and the
rule by which an app is ready. Where they come from is `monitor.py`'s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

BLOCKED_SECONDS = 30.0
"""An event loop that was blocked for that long is neither live nor ready."""

State = Literal["starting", "running", "draining", "stopped"]
Status = Literal["healthy", "unhealthy", "ended"]

_STATES: Sequence[State] = ("running", "draining", "starting", "stopped")
_STATUSES: Sequence[Status] = ("healthy", "ended", "unhealthy")


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription.

    - `status` is "healthy", "unhealthy" (its last receive failed, or its deletes or its visibility
      changes have failed for some seconds; all is tried again) or "ended" (its queue was deleted);
      `reason` says why it is not healthy.
    - `held` messages are received and not settled, `running` of them are with a handler.
    - `waiting` is SQS's approximate number of visible messages; None where it was not asked for.
    - `handled` messages were acked or dropped, `retried`, `rejected` and `undecodable` count
      attempts, `dead_lettered` those carried to the dead-letter queue by the runtime, `released`
      what was given back unrun, `deleted` the confirmed deletes.
    - `requests` are all that the subscription made: receives, settlement, dead letters, and asking
      for `waiting` (`waiting_requests` of them).
    - `rate` is handled messages per second over the last ten seconds; None where nobody measures.
    """

    status: Status = "healthy"
    reason: str = ""
    held: int = 0
    running: int = 0
    waiting: int | None = None
    received: int = 0
    handled: int = 0
    retried: int = 0
    rejected: int = 0
    undecodable: int = 0
    dead_lettered: int = 0
    released: int = 0
    deleted: int = 0
    leases_lost: int = 0
    settle_failed: int = 0
    requests: int = 0
    waiting_requests: int = 0
    requests_per_message: float | None = None
    rate: float | None = None


COUNTERS = (
    "received",
    "handled",
    "retried",
    "rejected",
    "undecodable",
    "dead_lettered",
    "released",
    "deleted",
    "leases_lost",
    "settle_failed",
    "requests",
    "waiting_requests",
)


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of several: `restarts` is how often it was started anew after a crash, and
    `silent_seconds` how long ago it last told of itself."""

    number: int
    pid: int | None = None
    state: State = "starting"
    restarts: int = 0
    silent_seconds: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A whole app at one moment; `blocked_seconds` is how long its event loop has not come round,
    where someone looks."""

    app: str = "app"
    state: State = "starting"
    uptime_seconds: float = 0.0
    blocked_seconds: float = 0.0
    queues: dict[str, QueueState] = {}
    workers: list[WorkerState] = []

    @property
    def live(self) -> bool:
        """Whether it makes progress at all; a restart may help if not."""
        return self.blocked_seconds < BLOCKED_SECONDS

    @property
    def not_ready(self) -> str:
        """Why the app is not ready, or "" where it is."""
        if not self.live:
            return f"the event loop has been blocked for {self.blocked_seconds:.0f} s"
        if self.state != "running":
            return {"draining": "draining", "stopped": "stopped"}.get(self.state, "starting")
        for worker in self.workers:
            if worker.state != "running":
                return f"worker {worker.number} is {worker.state}"
        for name, queue in self.queues.items():
            if queue.status != "healthy":
                why = f": {queue.reason}" if queue.reason else ""
                return f"{name} is {queue.status}{why}"
        return ""

    @property
    def ended(self) -> bool:
        """Whether every subscription has ended by itself."""
        return bool(self.queues) and all(each.status == "ended" for each in self.queues.values())


def total(queues: Iterable[QueueState]) -> QueueState:
    """All of them as if they were one."""
    together = list(queues)
    waiting = [each.waiting for each in together if each.waiting is not None]
    rates = [each.rate for each in together if each.rate is not None]
    statuses = {each.status for each in together}
    worst: Status = "healthy"
    for status in _STATUSES:
        if status in statuses:
            worst = status
    counters = {name: sum(getattr(each, name) for each in together) for name in COUNTERS}
    return QueueState(
        status=worst,
        reason=next((each.reason for each in together if each.status == worst), ""),
        held=sum(each.held for each in together),
        running=sum(each.running for each in together),
        waiting=sum(waiting) if waiting else None,
        rate=round(sum(rates), 2) if rates else None,
        requests_per_message=per_message(counters["requests"], counters["handled"]),
        **counters,
    )


def per_message(requests: int, handled: int) -> float | None:
    return round(requests / handled, 3) if handled else None


def merge(
    snapshots: Sequence[Snapshot],
    *,
    past: Sequence[Snapshot] = (),
    workers: Sequence[WorkerState] = (),
) -> Snapshot:
    """Several processes of one app as one; of those in `past`, which are over, what they counted.

    Its queues are as bad as the worst of them, and it is blocked where all of them are.
    """
    states = {each.state for each in snapshots}
    state: State = "starting"
    for possible in _STATES:
        if possible in states:
            state = possible
    queues: dict[str, list[QueueState]] = {}
    for snapshot in snapshots:
        for name, queue in snapshot.queues.items():
            queues.setdefault(name, []).append(queue)
    for snapshot in past:
        for name, queue in snapshot.queues.items():
            counted = QueueState(
                status=queue.status if not snapshots else "healthy",
                **{counter: getattr(queue, counter) for counter in COUNTERS},
            )
            queues.setdefault(name, []).append(counted)
    return Snapshot(
        app=next((each.app for each in (*snapshots, *past)), "app"),
        state=state,
        uptime_seconds=max((each.uptime_seconds for each in snapshots), default=0.0),
        blocked_seconds=min((each.blocked_seconds for each in snapshots), default=0.0),
        queues={
            name: msgspec.structs.replace(total(each), waiting=_asked_once(each))
            for name, each in queues.items()
        },
        workers=list(workers),
    )


def _asked_once(states: Sequence[QueueState]) -> int | None:
    """The number that wait is the queue's own, the same for every process that asks."""
    return max((each.waiting for each in states if each.waiting is not None), default=None)
