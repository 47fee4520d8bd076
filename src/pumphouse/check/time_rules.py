"""Which time is to be longer than which (PH3..): lease, time-out, batch, drain, retention."""

from __future__ import annotations

from collections.abc import Iterator

from pumphouse.check.case import Case, longest_delay, span
from pumphouse.check.findings import Finding, found


def time_findings(case: Case, drain_seconds: float) -> Iterator[Finding]:
    """The durations of a subscription beside those of its queue."""
    if case.facts.known:
        if case.lease_seconds < 1:
            yield found(
                "PH305",
                case.name,
                "its visibility timeout is 0, so nothing that is received can be held",
                f"declare Queue({case.queue.name!r}, visibility_timeout=30)",
            )
        else:
            yield from _lease(case)
        yield from _retention(case)
    yield from _bounds(case, drain_seconds)


def _lease(case: Case) -> Iterator[Finding]:
    lease, window = case.lease_seconds, case.subscription.batch_window_seconds
    if window >= lease:
        if case.queue.extend:
            yield found(
                "PH304",
                case.name,
                f"a batch gathers for {span(window)}, and the lease is {span(lease)}: each message "
                "is extended before it is handled, which are requests",
                f"set visibility_timeout above {span(window)}",
            )
        else:
            yield found(
                "PH303",
                case.name,
                f"a batch gathers for {span(window)}, and the lease of {span(lease)} is not "
                "extended: it is over before the handler starts",
                f"set visibility_timeout above {span(window)}, or leave extend=True",
            )
            return
    if case.queue.extend:
        return
    handling, in_thread = case.handling_seconds, not case.subscription.plan.is_async
    if handling is not None and handling >= lease:
        yield found(
            "PH301",
            case.name,
            f"a handler may take {span(handling)}, and the lease of {span(lease)} is not "
            "extended: the message is run again meanwhile",
            f"set visibility_timeout above {span(handling)}, or leave extend=True",
        )
    elif handling is None or in_thread:
        which = "in a thread, which no time-out ends," if in_thread else "without timeout="
        remedy = f"give a timeout below {span(lease)}, or leave extend=True"
        yield found(
            "PH302",
            case.name,
            f"a handler {which} may take longer than the lease of {span(lease)}, which is not "
            "extended: the message is run again meanwhile",
            "leave extend=True, or make the handler async" if in_thread else remedy,
        )


def _bounds(case: Case, drain_seconds: float) -> Iterator[Finding]:
    handling = case.handling_seconds
    if handling is None:
        return
    if handling > case.queue.max_lease_seconds:
        yield found(
            "PH306",
            case.name,
            f"a handler may take {span(handling)}, and a message is held for "
            f"{span(case.queue.max_lease_seconds)} in all",
            "make timeout shorter; SQS ends every lease after 12 h, so longer work is started here "
            "and awaited elsewhere",
        )
    limit = case.limit_seconds or 0.0
    if limit > drain_seconds:
        if case.subscription.plan.is_async:
            yield found(
                "PH307",
                case.name,
                f"a handler may take {span(limit)}, and a stop cancels it after "
                f"{span(drain_seconds)}; its message is run again",
                f"set drain_seconds to {limit:g}, and let the supervisor wait longer than that",
            )
        else:
            yield found(
                "PH308",
                case.name,
                f"a handler may take {span(limit)} in its thread, which can't be cancelled: a stop "
                f"gives its message back after {span(drain_seconds)}, and it is run twice",
                f"set drain_seconds to {limit:g}, and let the supervisor wait longer than that",
            )


def _retention(case: Case) -> Iterator[Finding]:
    """Whether a message lives through its attempts."""
    attempts = case.attempts
    if attempts is None:
        return
    rule = case.subscription.retry
    total = sum(longest_delay(rule, attempt) for attempt in range(1, attempts))
    if total >= case.facts.retention_seconds:
        yield found(
            "PH309",
            case.name,
            f"{attempts} attempts wait up to {span(total)} in all, and the queue deletes a message "
            f"after {span(case.facts.retention_seconds)}: it never becomes a dead letter",
            "raise MessageRetentionPeriod, or make fewer attempts or shorter delays",
        )
