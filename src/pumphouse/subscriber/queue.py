"""The descriptor of a queue that is read: what was asked for, checked before any I/O.

What the queue really is (its own visibility timeout, its redrive policy) is read at start, by
`setup.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pumphouse.addressing import check_queue
from pumphouse.checking import (
    check_choice,
    check_number,
    check_switch,
    check_texts,
    check_whole,
)
from pumphouse.errors import UsageError
from pumphouse.notifications.reading import SnsMode
from pumphouse.protocol.attributes import MAX_VISIBILITY_SECONDS, MAX_WAIT_SECONDS
from pumphouse.protocol.names import (
    FIFO_SUFFIX,
    QueueName,
    is_arn,
    is_queue_url,
    parse_queue_arn,
    parse_queue_url,
)

MAX_LEASE_SECONDS = MAX_VISIBILITY_SECONDS - 300
"""How long a message is held at most: SQS ends every lease 12 hours after the receive."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue to read, by name, URL or ARN, and how it is read.

    - `wait_time_seconds`: how long one receive waits for a message, 0 to 20; at most two thirds of
      a lease that is extended. With 0 an empty queue is asked once a second.
    - `visibility_timeout`: the lease of a received message in seconds, 1 to 43,200; None for the
      queue's own, read once at start and asked for with each receive, so that a change of it is
      taken up by the next start.
    - `extend`: renew leases for as long as a message is held. Without it a message that has not
      been started within its lease is dropped unrun, and SQS hands it out again.
    - `prefetch`: how many messages may wait for a free handler, 0 to 10.
    - `pollers`: receives open at once, 1 to 64, or "auto" for as many as free handlers call for,
      and one on an empty queue.
    - `create_if_missing`: create the queue at start, with `attributes` (AWS's names) and with
      `visibility_timeout` where one is given.
    - `on_missing`: what to do when the queue is deleted while it is read: "wait" for it to come
      back, or "end" the subscription.
    - `in_place_seconds`: where order matters, the longest delay for which a message to retry is
      kept here with its followers; a longer one is given back to SQS. None for the length of the
      lease.
    - `sns`: which of its messages are envelopes that SNS wrote around what was published: "raw" for
      none, "envelope" for all, or "auto" for those of topics whose subscription, looked up at
      start, has no raw delivery. A handler gets the same of an envelope as of raw delivery.
    - `verify_sns_signatures`: open an envelope only if SNS has signed it; what it did not sign is
      undecodable. Needs `sns="envelope"`, so that nothing unsigned gets through, and
      `pumphouse[sns]`.
    - `max_lease_seconds`: how long a message is held in all, at most 42,900 (SQS ends a lease
      after 12 hours whatever is done).

    Raises `UsageError` for a value out of its range.
    """

    name: str
    wait_time_seconds: int = MAX_WAIT_SECONDS
    visibility_timeout: int | None = None
    extend: bool = True
    prefetch: int = 10
    pollers: int | Literal["auto"] = "auto"
    create_if_missing: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    on_missing: Literal["wait", "end"] = "wait"
    in_place_seconds: float | None = None
    max_lease_seconds: float = MAX_LEASE_SECONDS
    sns: SnsMode = "raw"
    verify_sns_signatures: bool = False
    known_as: QueueName = field(init=False, repr=False, compare=False)
    """Name, account and region, as far as the reference tells them."""
    is_fifo: bool = field(init=False, repr=False, compare=False)
    """Whether it is a FIFO queue: whether its name ends in `.fifo`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_queue(self.name))
        object.__setattr__(self, "known_as", _known_as(self.name))
        object.__setattr__(self, "is_fifo", self.known_as.is_fifo)
        where = f"queue {self.name!r}: "
        check_whole(where, "wait_time_seconds", self.wait_time_seconds, 0, MAX_WAIT_SECONDS)
        if self.visibility_timeout is not None:
            check_whole(
                where, "visibility_timeout", self.visibility_timeout, 1, MAX_VISIBILITY_SECONDS
            )
        check_whole(where, "prefetch", self.prefetch, 0, 10)
        if self.pollers != "auto":
            check_whole(where, "pollers", self.pollers, 1, 64)
        check_choice(where, "on_missing", self.on_missing, ("wait", "end"))
        if self.in_place_seconds is not None:
            check_number(where, "in_place_seconds", self.in_place_seconds, 0, 3_600)
        check_number(where, "max_lease_seconds", self.max_lease_seconds, 1, MAX_LEASE_SECONDS)
        check_choice(where, "sns", self.sns, ("raw", "envelope", "auto"))
        for option in ("extend", "create_if_missing", "verify_sns_signatures"):
            check_switch(where, option, getattr(self, option))
        if self.verify_sns_signatures and self.sns != "envelope":
            raise UsageError(
                f"{where}verify_sns_signatures needs sns='envelope': with sns={self.sns!r} a "
                "message that is no envelope would reach the handler without a signature"
            )
        if self.create_if_missing and self.name != self.known_as.name:
            raise UsageError(
                f"{where}create_if_missing needs a queue by name; a URL or an ARN names one that "
                "exists"
            )
        check_texts(where, "attributes", self.attributes)

    def creation_attributes(self) -> dict[str, str]:
        """The attributes that `create_if_missing` creates the queue with."""
        attributes = dict(self.attributes)
        if self.is_fifo:
            attributes.setdefault("FifoQueue", "true")
        if self.visibility_timeout is not None:
            attributes.setdefault("VisibilityTimeout", str(self.visibility_timeout))
        return attributes

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"


def as_queue(queue: Queue | str) -> Queue:
    """The descriptor of a queue that may have been given as a plain string."""
    if isinstance(queue, Queue):
        return queue
    if isinstance(queue, str):
        return Queue(queue)
    hint = '; a decorator is given it: @app.subscriber("queue")' if callable(queue) else ""
    raise UsageError(f"a queue is a Queue or a string, not {type(queue).__name__}{hint}")


def same_kind(one: Queue, other: Queue) -> bool:
    """Whether both are FIFO or both are standard, as a dead-letter queue and its source must be."""
    return one.is_fifo == other.is_fifo


def same_queue(one: Queue, other: Queue) -> bool:
    """Whether two references name one queue, as far as they tell: by name, URL or ARN."""
    first, second = one.known_as, other.known_as
    return first.name == second.name and all(
        not mine or not theirs or mine == theirs
        for mine, theirs in ((first.account_id, second.account_id), (first.region, second.region))
    )


def _known_as(reference: str) -> QueueName:
    if is_queue_url(reference):
        return parse_queue_url(reference)
    if is_arn(reference):
        return parse_queue_arn(reference)
    return QueueName(reference)


__all__ = ["FIFO_SUFFIX", "MAX_LEASE_SECONDS", "Queue", "as_queue", "same_kind", "same_queue"]
