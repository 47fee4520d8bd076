"""What a returned value means: an outcome, a reply that is published first, or a mistake.

For handlers and middleware, of one message and of a batch. How a reply is published is
`replies.py`'s, what an error means `judging.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from inspect import isawaitable, iscoroutine
from typing import Any

from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.judging import Judge
from pumphouse.subscriber.outcomes import (
    ACK,
    Outcome,
    is_error,
    outcome_inside,
    outcome_of_value,
)
from pumphouse.subscriber.subscription import Subscription

_log = logging.getLogger("pumphouse.subscriber")

ReplyWith = Callable[[Subscription, object, Message], Awaitable[bool]]
"""Publishes what a handler returned; False where the subscription has no use for it."""


class Returned:
    """Makes outcomes of what the handler of one subscription, and its middleware, returned."""

    def __init__(
        self,
        subscription: Subscription,
        judge: Judge,
        reply: ReplyWith,
        message_of: Callable[[Delivery], Message],
    ) -> None:
        self._subscription = subscription
        self._judge = judge
        self._reply_with = reply
        self._message_of = message_of
        self._ignored_value = False

    async def outcome_of(self, value: Any, delivery: Delivery, who: str = "the handler") -> Outcome:
        """The outcome that a handler or a middleware returned; a reply is published for it."""
        if (outcome := outcome_of_value(value)) is None:
            await self._reply(value, delivery, who)
            outcome = ACK
        return outcome

    async def _reply(self, value: Any, delivery: Delivery, who: str) -> None:
        # to publish or to ignore these would be to delete a message that nobody handled
        if is_error(value):
            raise value
        if isawaitable(value) or isinstance(value, Future | Generator | AsyncGenerator):
            if iscoroutine(value):
                value.close()
            raise UsageError(f"{who} returned a {type(value).__name__} that nobody awaited")
        if (hidden := outcome_inside(value)) is not None:
            raise UsageError(
                f"{who} returned a {type(value).__name__} with {hidden!r:.100} in it, and one "
                "message has one outcome; return that alone, or raise"
            ) from (hidden if isinstance(hidden, BaseException) else None)
        if await self._reply_with(self._subscription, value, self._message_of(delivery)):
            return
        if who != "the handler":
            raise UsageError(
                f"{who} returned {value!r:.100}, which is no outcome, and nothing says where it "
                "goes (publish=); return what call_next gave, or Ack(), Retry(), Drop(), Reject()"
            )
        if not self._ignored_value:
            self._ignored_value = True
            _log.warning(
                "%s: the handler returned %s, and nothing says where it goes (publish=); ignored",
                self._subscription.queue.name,
                type(value).__name__,
            )

    async def outcomes_of(
        self, values: Sequence[Any], deliveries: Sequence[Delivery], who: str = "the handler"
    ) -> list[Outcome]:
        """An outcome for each value; those that are replies are published, side by side."""
        known = [outcome_of_value(value) for value in values]
        outcomes = [each for each in known if each is not None]
        if len(outcomes) == len(known):
            return outcomes
        async with asyncio.TaskGroup() as tasks:
            found = [
                tasks.create_task(self._judged(value, delivery, who))
                for value, delivery in zip(values, deliveries, strict=True)
            ]
        return [each.result() for each in found]

    async def _judged(self, value: Any, delivery: Delivery, who: str) -> Outcome:
        if isinstance(value, BaseException):  # one that was cancelled fails alone as well
            return self._judge.one_of_batch(delivery, value)
        try:
            return await self.outcome_of(value, delivery, who)
        except Exception as error:  # a reply that could not be published fails alone
            return self._judge.one_of_batch(delivery, error)


def values_of(value: Any, count: int, who: str = "a batch handler") -> Sequence[Any]:
    """What was returned for a batch, as one value for each message."""
    if is_error(value):
        raise value
    if outcome_of_value(value) is not None:
        return [value] * count
    if isinstance(value, list | tuple) and len(value) == count:
        return value
    raise UsageError(
        f"{who} returns None, one outcome, or a list of {count} outcomes or replies (one for each "
        f"message of the batch), not {value!r:.200}"
    )
