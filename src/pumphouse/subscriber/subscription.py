"""A subscription as it is declared: everything about one handler and its queue, and no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pumphouse.addressing import Topic, check_queue
from pumphouse.checking import check_choice, check_whole
from pumphouse.claim_check import ClaimCheck
from pumphouse.errors import UsageError
from pumphouse.subscriber.chain import Middleware
from pumphouse.subscriber.handler import Handler
from pumphouse.subscriber.injection.signatures import check_plain
from pumphouse.subscriber.outcomes import (
    DEFAULT_BACKOFF,
    DelayRule,
    ErrorPolicy,
    check_delay_rule,
    check_error_policy,
)
from pumphouse.subscriber.plan import HandlerPlan
from pumphouse.subscriber.queue import Queue, same_kind, same_queue

MAX_CONCURRENCY = 10_000
MAX_ATTEMPTS = 900
"""SQS counts at most 1,000 receives, and the limit that is written leaves room."""

UndecodablePolicy = Literal["retry", "reject", "drop"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """One declared subscriber; `App.subscriber` describes the options."""

    queue: Queue
    plan: HandlerPlan
    concurrency: int = 10
    batch: int | None = None
    batch_window_seconds: float = 0.0
    max_attempts: int | None = None
    dead_letter: Queue | None = None
    redrive: Literal["write", "check"] = "write"
    retry: DelayRule = DEFAULT_BACKOFF
    timeout_seconds: float | None = None
    on_error: ErrorPolicy | None = None
    undecodable: UndecodablePolicy = "retry"
    on_lease_lost: Literal["cancel", "flag"] = "cancel"
    partition_key: Callable[[Any], str | None] | None = None
    publish: str | Topic | None = None
    priority: int | None = None
    claim_check: ClaimCheck | None = None
    middleware: tuple[Middleware, ...] = ()
    handler: Handler[..., Any] | None = field(default=None, repr=False)
    place: Any = field(default=None, repr=False)  # where it was declared: `publishers.Place`

    def __post_init__(self) -> None:
        where = f"subscriber of {self.queue.name!r}: "
        check_whole(where, "concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        if self.batch is not None:
            check_whole(where, "batch", self.batch, 1, 10_000)
        if not 0 <= self.batch_window_seconds <= 300:
            raise UsageError(f"{where}batch_window is 0 to 300 seconds")
        if self.batch_window_seconds and self.batch is None:
            raise UsageError(f"{where}batch_window says how long a batch is collected; give batch=")
        if self.batch is not None and self.batch > 10 and not self.batch_window_seconds:
            raise UsageError(
                f"{where}one receive brings at most 10 messages; a batch of {self.batch} needs a "
                "batch_window"
            )
        self._check_redrive(where)
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise UsageError(f"{where}timeout is more than 0 seconds, or None")
        check_error_policy(self.on_error)
        check_delay_rule(self.retry)
        for name, value, choices in (
            ("redrive", self.redrive, ("write", "check")),
            ("undecodable", self.undecodable, ("retry", "reject", "drop")),
            ("on_lease_lost", self.on_lease_lost, ("cancel", "flag")),
        ):
            check_choice(where, name, value, choices)
        if self.partition_key is not None:
            if not callable(self.partition_key):
                raise UsageError(f"{where}partition_key is a function of the payload")
            check_plain(f"{where}partition_key", self.partition_key)
            if self.queue.is_fifo:
                raise UsageError(
                    f"{where}a FIFO queue is ordered by its message groups; partition_key is for "
                    "standard queues"
                )
            if self.batch is not None:
                raise UsageError(f"{where}partition_key and batch don't go together")
            if self.claim_check is not None:
                raise UsageError(
                    f"{where}partition_key reads a payload before a claim check has fetched it; "
                    "they don't go together"
                )
        if self.claim_check is not None and not isinstance(self.claim_check, ClaimCheck):
            raise UsageError(f"{where}claim_check is a ClaimCheck, not {self.claim_check!r}")
        if self.publish is not None and not isinstance(self.publish, Topic):
            check_queue(self.publish)
        if self.priority is not None:
            check_whole(where, "priority", self.priority, -1_000, 1_000)

    def _check_redrive(self, where: str) -> None:
        if (self.max_attempts is None) != (self.dead_letter is None):
            given, missing = (
                ("max_attempts", "dead_letter")
                if self.dead_letter is None
                else ("dead_letter", "max_attempts")
            )
            raise UsageError(
                f"{where}{given} without {missing} is half a redrive policy; give both, or neither "
                "for the queue's own"
            )
        if self.max_attempts is None or self.dead_letter is None:
            return
        check_whole(where, "max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if same_queue(self.dead_letter, self.queue):
            raise UsageError(f"{where}a queue can't be its own dead-letter queue")
        if not same_kind(self.queue, self.dead_letter):
            kind = "a FIFO" if self.queue.is_fifo else "a standard"
            raise UsageError(
                f"{where}the dead-letter queue of {kind} queue is {kind} queue, and "
                f"{self.dead_letter.name!r} is not"
            )

    @property
    def several_replies(self) -> bool:
        """Whether the handler is annotated to return any number of replies, or none."""
        return self.handler is not None and self.handler.several_replies

    @property
    def ordered(self) -> bool:
        """Whether deliveries run in lanes."""
        return self.queue.is_fifo or self.partition_key is not None
