"""The options of a subscriber, as they are given: names and types, and how they become a
`Subscription`, which checks them. What each means is in `Registry.subscriber`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pumphouse.addressing import Topic, destination
from pumphouse.errors import UsageError
from pumphouse.subscriber.chain import Middleware, check_middleware
from pumphouse.subscriber.outcomes import DelayRule, ErrorPolicy
from pumphouse.subscriber.plan import HandlerPlan
from pumphouse.subscriber.queue import Queue, as_queue
from pumphouse.subscriber.subscription import Subscription, UndecodablePolicy

if TYPE_CHECKING:
    from pumphouse.claim_check import ClaimCheck
    from pumphouse.subscriber.handler import Handler


class SubscriberOptions(TypedDict, total=False):
    """What `subscriber` takes beside a queue, and a `Router` as defaults."""

    concurrency: int
    batch: int | None
    batch_window: float | timedelta
    max_attempts: int | None
    dead_letter: Queue | str | None
    redrive: Literal["write", "check"]
    retry: DelayRule
    timeout: float | timedelta | None
    on_error: ErrorPolicy | None
    undecodable: UndecodablePolicy
    on_lease_lost: Literal["cancel", "flag"]
    partition_key: Callable[[Any], str | None] | None
    publish: str | Topic | None
    priority: int | None
    claim_check: ClaimCheck | None
    middleware: Sequence[Middleware]


def check_names(options: Mapping[str, Any], of: str) -> None:
    """Raise `UsageError` for an option that there isn't; `of` is "a subscriber" or the like."""
    known = SubscriberOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise UsageError(
            f"{of} has no option {', '.join(unknown)}; its options are {', '.join(sorted(known))}"
        )


def layered(outer: SubscriberOptions, inner: SubscriberOptions) -> SubscriberOptions:
    """The options where `inner` goes before `outer`; the middleware of both, `outer`'s outside."""
    middleware = (*outer.get("middleware", ()), *inner.get("middleware", ()))
    both: SubscriberOptions = {**outer, **inner}
    both["middleware"] = middleware
    return both


def subscription_of(
    queue: Queue,
    plan: HandlerPlan,
    options: SubscriberOptions,
    *,
    handler: Handler[..., Any] | None = None,
    place: Any = None,
) -> Subscription:
    """The subscription with these options. Raises `UsageError` for anything that can't work."""
    given: dict[str, Any] = dict(options)
    if "batch_window" in given:
        given["batch_window_seconds"] = _seconds("batch_window", given.pop("batch_window"))
    if "timeout" in given:
        limit = given.pop("timeout")
        given["timeout_seconds"] = None if limit is None else _seconds("timeout", limit)
    if given.get("dead_letter") is not None:
        given["dead_letter"] = as_queue(given["dead_letter"])
    where = f"subscriber of {queue.name!r}: "
    if isinstance(to := given.get("publish"), str):
        given["publish"] = destination(to)
    elif to is not None and not isinstance(to, Topic):
        raise UsageError(
            f"{where}publish is the name of a queue or a Topic, not {to!r}; app.publisher(…) "
            "declares a Queue with options, and a publisher decorates its handler"
        )
    given["middleware"] = tuple(given.get("middleware", ()))
    check_middleware(given["middleware"], where, batch=plan.batch)
    return Subscription(queue=queue, plan=plan, handler=handler, place=place, **given)


def _seconds(option: str, value: object) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{option} is seconds or a timedelta, not {value!r}")
    return float(value)
