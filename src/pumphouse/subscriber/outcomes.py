"""What a handler says about a message, and what an exception says in its place.

Outcomes are values; carrying them out is the business of `exits.py` and `settlement.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import isnan
from typing import TYPE_CHECKING, Any, TypeGuard

from pumphouse.addressing import Topic
from pumphouse.backoff import RetryPolicy
from pumphouse.content import Headers
from pumphouse.errors import UsageError
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS
from pumphouse.subscriber.injection.signatures import check_plain

if TYPE_CHECKING:
    from pumphouse.publishers import Publisher

_log = logging.getLogger("pumphouse.subscriber")


@dataclass(frozen=True, slots=True)
class Ack:
    """Done: the message is deleted. Returning None says the same."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Again: after `after` seconds (or a `timedelta`), at most 12 hours; None for the back-off of
    the subscription. It counts as an attempt, unless `counts` is False: the message was only put
    off, and can be as often as SQS's own limit on receives allows."""

    after: float | timedelta | None = None
    reason: str = ""
    counts: bool = True

    def __post_init__(self) -> None:
        if type(self.reason) is not str:
            _make_text(self)
        if self.after is None:
            return
        seconds = self.after.total_seconds() if isinstance(self.after, timedelta) else self.after
        if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_VISIBILITY_SECONDS:
            raise UsageError(f"Retry(after={self.after!r}): a delay is 0 to 43,200 seconds")

    @property
    def after_seconds(self) -> float | None:
        return self.after.total_seconds() if isinstance(self.after, timedelta) else self.after


@dataclass(frozen=True, slots=True)
class Drop:
    """Away with it: the message is deleted unhandled, and counted as dropped."""

    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.reason) is not str:
            _make_text(self)


@dataclass(frozen=True, slots=True)
class Reject:
    """To the dead-letter queue at once, with the reason as an attribute: a text, or an exception,
    which is described in one line."""

    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.reason) is not str:
            _make_text(self)


def _make_text(outcome: Retry | Drop | Reject) -> None:
    """Let the reason of an outcome be plain text. Raises `UsageError` for what can't be one."""
    reason: object = outcome.reason
    if isinstance(reason, BaseException):
        text = describe(reason)
    elif isinstance(reason, str):
        text = "".join(reason)
    else:
        kind = type(outcome).__name__
        raise UsageError(f"{kind}: a reason is a text or an exception, not {type(reason).__name__}")
    object.__setattr__(outcome, "reason", text)


Outcome = Ack | Retry | Drop | Reject

ACK = Ack()


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply with more than a body. A handler returns one, or a list or tuple of several; all are
    confirmed before its message is deleted.

    - `to`: the queue (name, URL, ARN), `Topic` or `Publisher` that it goes to; None for where the
      subscription's replies go. In a router a name gets the router's prefix.
    - `group_id`: on a FIFO queue the message's own group, unless it is given.
    - `deduplication_id`: on a FIFO queue made of the message id and the place of the reply among
      its replies, unless it is given; so a message that is handled twice is not answered twice.
    - `headers`: text or bytes, by name.
    - `delay_seconds`: 0 to 900 whole seconds, or a `timedelta`; standard queues only.
    - `tenant`: whose message it is, for batches that are fair.
    """

    body: object
    to: str | Topic | Publisher[Any] | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    headers: Headers = field(default_factory=dict)
    delay_seconds: float | timedelta | None = None
    tenant: str | None = None


_KINDS = (Ack, Retry, Drop, Reject)


def outcome_of_value(value: object) -> Outcome | None:
    """The outcome that a handler returned, as a value or as its class; None for anything else."""
    if value is None:
        return ACK
    if isinstance(value, _KINDS):
        return value
    if isinstance(value, type) and value in _KINDS:
        return value()
    return None


def is_error(value: object) -> TypeGuard[BaseException | type[BaseException]]:
    """Whether a handler returned an exception instead of raising it, as `asyncio.gather` does with
    `return_exceptions=True`."""
    return isinstance(value, BaseException) or (
        isinstance(value, type) and issubclass(value, BaseException)
    )


def outcome_inside(value: object) -> object | None:
    """The first outcome or exception in a list or other container that was returned where one
    outcome is expected; None where there is none."""
    items: Iterable[object]
    if isinstance(value, list | tuple | set | frozenset):
        items = value
    elif isinstance(value, Mapping):
        items = value.values()
    else:
        return None
    for each in items:
        if (
            isinstance(each, _KINDS)
            or is_error(each)
            or (isinstance(each, type) and each in _KINDS)
        ):
            return each
    return None


class Settle(Exception):
    """Raised, it says what a returned outcome says: `raise Settle(Reject("no such tenant"))`.

    For dependencies, which can't return for the handler, and for code deep below one. `on_error` is
    not asked. What yields sees it at its `yield`, so that a transaction rolls back. Raises
    `UsageError` for what is no outcome.
    """

    def __init__(self, outcome: Outcome | type[Ack] | type[Retry] | type[Drop] | type[Reject]):
        found = outcome_of_value(outcome) if outcome is not None else None
        if found is None:
            raise UsageError(f"Settle takes Ack, Retry, Drop or Reject, not {outcome!r}")
        super().__init__(found)
        self.outcome: Outcome = found


ErrorRule = Outcome | type[Ack] | type[Retry] | type[Drop] | type[Reject]
ErrorPolicy = Mapping[type[BaseException], ErrorRule] | Callable[[BaseException], ErrorRule | None]

DEFAULT_BACKOFF = RetryPolicy(
    base_seconds=1.0, cap_seconds=900.0, max_attempts=None, budget_seconds=None
)


def outcome_of_error(error: BaseException, policy: ErrorPolicy | None) -> Outcome:
    """What an exception means: the outcome that it carries, the rule of the nearest class in the
    policy, otherwise a retry.

    An exception group means what all that is in it means, and a retry where that is not the same;
    a rule for a class of groups goes before, and a function is asked about the group.
    """
    if isinstance(error, Settle):
        return error.outcome
    rule = _rule_of(error, policy)
    reason = describe(error)
    if rule is None or rule is Retry:
        return Retry(reason=reason)
    if rule is Ack:
        return ACK
    if rule is Drop or rule is Reject:
        return rule(reason)
    if isinstance(rule, Retry) and not rule.reason:
        return Retry(rule.after, reason, rule.counts)
    if isinstance(rule, Drop | Reject) and not rule.reason:
        return type(rule)(reason)
    if isinstance(rule, Ack | Retry | Drop | Reject):
        return rule
    raise UsageError(f"on_error gave {rule!r} for {type(error).__name__}; it gives an outcome")


def _rule_of(error: BaseException, policy: ErrorPolicy | None) -> ErrorRule | None:
    if isinstance(error, Settle):
        return error.outcome
    kinds = type(error).__mro__
    if isinstance(error, BaseExceptionGroup):
        mapping = {} if callable(policy) else policy or {}
        of_groups = (kind for kind in kinds if issubclass(kind, BaseExceptionGroup))
        own = next((mapping[kind] for kind in of_groups if kind in mapping), None)
        if own is not None:
            return own
        group: BaseExceptionGroup[BaseException] = error
        first, *others = [_rule_of(each, mapping) for each in group.exceptions]
        if first is not None and all(each == first for each in others):
            return first
        return policy(error) if callable(policy) else None
    if callable(policy):
        return policy(error)
    return next((policy[kind] for kind in kinds if kind in policy), None) if policy else None


def check_error_policy(policy: object) -> None:
    """Raise `UsageError` for a policy that is neither a mapping of exceptions nor a function."""
    if policy is None:
        return
    if callable(policy) and not isinstance(policy, type):
        check_plain("on_error", policy)
        return
    if not isinstance(policy, Mapping):
        raise UsageError(f"on_error is a mapping or a function, not {policy!r}")
    for kind, rule in policy.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise UsageError(f"on_error maps exception classes, and {kind!r} is none")
        if rule not in (Ack, Retry, Drop, Reject) and not isinstance(
            rule, Ack | Retry | Drop | Reject
        ):
            raise UsageError(f"on_error maps {kind.__name__} to {rule!r}, which is no outcome")


def describe(error: BaseException) -> str:
    """An exception in one line of at most 512 characters; of a group also the first that is in
    it. Of one whose own methods fail, its class."""
    kind: str = type.__dict__["__name__"].__get__(type(error))  # whatever its class makes of it
    try:
        return _described(error, kind)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"{kind} (which can't be written as text)"


def _described(error: BaseException, kind: str) -> str:
    text = str(error)
    if not text.startswith(f"{kind}: "):  # some say their own name
        text = f"{kind}: {text}" if text else kind
    if isinstance(error, BaseExceptionGroup):
        group: BaseExceptionGroup[BaseException] = error
        text = f"{text}: {describe(group.exceptions[0])}"
    return " ".join(text.split())[:512]


DelayRule = RetryPolicy | Callable[[int], float] | float | int | timedelta


def check_delay_rule(rule: object) -> None:
    """Raise `UsageError` for what says no delay."""
    if isinstance(rule, RetryPolicy):
        return
    if callable(rule) and not isinstance(rule, type):
        check_plain("retry", rule)
        return
    seconds = rule.total_seconds() if isinstance(rule, timedelta) else rule
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= MAX_VISIBILITY_SECONDS
    ):
        raise UsageError(
            "retry is a RetryPolicy, 0 to 43,200 seconds, or a function of the attempt; "
            f"not {rule!r}"
        )


def delay_after(rule: DelayRule, attempt: int) -> float:
    """Seconds to wait after attempt number `attempt` (from 1) has failed, within SQS's 12 hours.

    A function that fails, or gives no number, is logged, and the default back-off takes its place.
    """
    if isinstance(rule, RetryPolicy):
        delay = rule.delay(attempt)
    elif isinstance(rule, timedelta):
        delay = rule.total_seconds()
    elif callable(rule):
        try:
            delay = float(rule(attempt))
            if isnan(delay):
                raise ValueError("it gave nan")
        except KeyboardInterrupt:
            raise
        except BaseException:
            _log.exception("retry failed for attempt %d; the default back-off is used", attempt)
            delay = DEFAULT_BACKOFF.delay(attempt)
    else:
        delay = float(rule)
    return min(max(0.0, delay), float(MAX_VISIBILITY_SECONDS))
