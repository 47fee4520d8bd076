"""`Sink`: confirmed, batched, fair publishing to one queue or topic.

The way of a message: `send` has it composed (`composer.py`, with `content.py` and
`claim_check.py`), the batcher admits it and will resolve its future (`batcher.py`,
by the rules of `admission.py` and `schedule.py`), `_request` carries a batch over the backend, as
the requests of its `destination.py`, and `confirmation.py` says what the answer means for each
message. What fails for good goes to `dead_letters.py`. The options and their meaning are in
`options.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from pumphouse.addressing import Topic
from pumphouse.backend import Backend, nothing_leaves
from pumphouse.backoff import one_try
from pumphouse.claim_check import ClaimCheck
from pumphouse.confirmation import Confirmed, Outcome, confirm
from pumphouse.errors import (
    ClosedError,
    MessageTooLargeError,
    NetworkError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    TopicDoesNotExist,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.sink.batcher import Batcher
from pumphouse.sink.chains import group_of, in_order
from pumphouse.sink.composer import Composer
from pumphouse.sink.dead_letters import (
    CallbackKeeper,
    DeadLetters,
    DirectoryKeeper,
    Keeper,
    QueueKeeper,
)
from pumphouse.sink.destination import Destination, destination_of
from pumphouse.sink.learned import Learned
from pumphouse.sink.letter_files import check_directory
from pumphouse.sink.options import Settings, SinkOptions, settings
from pumphouse.sink.outgoing import Draft, Outgoing, SendOptions, check_options, kept
from pumphouse.sink.repeating import Repeating

_log = logging.getLogger("pumphouse.sink")
_size = attrgetter("size")
_WIRE = ("body", "attributes", "md5_of_body", "md5_of_attributes", "deduplication_id")

KEEPING_SECONDS = 5.0
"""What dead letters get at least to be written, however short the time-out of a close."""


@dataclass(frozen=True, slots=True)
class BatchAnswered:
    """An event: a request of a sink came to its end. `strangers` are ids that the answer names and
    the request did not."""

    queue: str
    entries: int
    stored: int
    seconds: float
    strangers: tuple[str, ...] = ()


class Sink:
    """Publishes to one queue or topic: `receipt = await sink.send(body)` returns when the service
    has stored it.

    `queue` is a queue's name, URL or ARN, or a `Topic`; it has to exist (a sink never creates one),
    and it is FIFO if its name ends in `.fifo`. Any number of tasks may call `send` at once: what
    they send travels in batches. Use one sink for a destination and its credentials, in one event
    loop (another one gets `CrossThreadError`). Options are those of `options.Settings`; one that
    can't be used raises `UsageError` here, naming it.
    """

    def __init__(
        self, queue: str | Topic, backend: Backend, **options: Unpack[SinkOptions]
    ) -> None:
        to: Destination = destination_of(queue, backend)
        self._to = to
        self.queue = to.name
        self.fifo = to.fifo
        self.settings: Settings = settings(options)
        self._backend = backend
        delay = partial(self.settings.retry.delay, rng=self.settings.rng)
        self._confirm = partial(confirm, stored=to.stored, delay=delay)
        self._clock = self.settings.clock
        self._check: ClaimCheck | None = self.settings.claim_check
        self._composer = Composer(to.name, self.settings, fifo=to.fifo, kind=to.kind)
        self._dead_letter_sink: Sink | None = None
        self._dead_letters = self._make_dead_letters(backend)
        given = self.settings.max_message_bytes
        self._learned = Learned(to, given, self._clock, self._fit)
        self._batcher = Batcher(
            self._request,
            self._look_up,
            self._dead_letters.take if self._dead_letters else None,
            limits=self.settings.limits(to.batch_bytes(given)),
            fifo=self.fifo,
            repeating=Repeating(
                self.settings.retry,
                fifo=self.fifo,
                retry_unknown=self.settings.retry_unknown,
                rng=self.settings.rng,
                leaving_seconds=getattr(backend, "total_timeout_seconds", 0.0),
            ),
            clock=self._clock,
        )

    # --- sending ----------------------------------------------------------------------------

    async def send(
        self, body: object, *, wait: bool | None = None, **options: Unpack[SendOptions]
    ) -> Receipt:
        """Send one message; return when it is stored, the MD5s that SQS answers checked (SNS
        answers none: there an id for the message is its word).

        `body` is text, bytes, an `Envelope`, or an object that is sent as JSON; the options are
        those of `outgoing.SendOptions`. `wait` overrides the sink's option for this call.

        Raises `UsageError` (nothing was sent; the message can't be sent as it is),
        `MessageTooLargeError`, `RefusedError`, `ConfigError`, and, once the retries are used up,
        `ThrottledError`, `TransientError`, `NetworkError` or `OutcomeUnknownError`. A
        `ThrottledError` with code `SinkQueueFull` is this sink's own, at its ceilings;
        `ClosedError` says that the sink closed before the message was sent. Cancelling the call
        takes the message back if no request is carrying it yet; otherwise it goes its way and is
        counted.
        """
        wait = self.settings.wait if wait is None else wait
        try:
            message = self._composer.compose(body, **options)
        except TypeError:
            check_options(options)
            raise
        if (check := self._check) is not None and check.wants(message.size):
            # everything is read now: what is the caller's may be changed while this waits for room
            small = self._composer.compose(body, places=1, **options)
            prepare = partial(self._offload, check, message, small, kept(options))
            message.held = (prepare, copy_context())
        elif message.size > self._learned.largest:
            if not self._learned.may_have_grown:
                await self._batcher.refuse(message, self._too_large(message))
                refused: Receipt = await message.done
                return refused
            message.held = (partial(self._ask_again, message), copy_context())
        self._batcher.submit(message, wait=wait)
        try:
            receipt: Receipt = await message.done
        except asyncio.CancelledError:
            self._batcher.withdraw(message)
            raise
        return receipt

    async def _offload(
        self, check: ClaimCheck, message: Outgoing, small: Outgoing, options: SendOptions
    ) -> int | PumphouseError:
        """Store the body of a message that has been let in, where it is too large to travel; the
        size that is left, or why the message can't be sent. `small` is the message as it is when
        its body lies elsewhere, but for that."""
        try:
            small, failure = await self._composer.offloaded(check, message, small, options)
        except UsageError as error:  # of the message: its caller alone is told
            if not message.done.done():
                message.done.set_exception(error)
            return error
        if failure is None and small.size > self._learned.largest:
            failure = self._too_large(small)
        if failure is not None:
            return failure
        for name in _WIRE:
            setattr(message, name, getattr(small, name))
        return small.size

    async def _ask_again(self, message: Outgoing) -> int | PumphouseError:
        """The size of a message that may not be too large any more, or that it is."""
        if (failure := await self._looked_up(self._learned.ask_again)) is not None:
            _log.info("%s: its limit can't be asked for again: %s", self.queue, failure)
        too_large = message.size > self._learned.largest
        return self._too_large(message) if too_large else message.size

    def _too_large(self, message: Outgoing) -> MessageTooLargeError:
        return MessageTooLargeError(message.size, self._learned.largest)

    def _fit(self, limit: int) -> None:
        """Make batches as the largest message allows."""
        self._batcher.limit(self.settings.limits(self._to.batch_bytes(limit)))

    async def send_many(
        self, messages: Iterable[object], *, ordered: bool = True
    ) -> list[Receipt | PumphouseError]:
        """Send many; return each one's receipt or error, in order. Waits for room at the ceilings.

        A message is a body, or a `Draft`: a body with the options of `send`. What `messages` raises
        comes out when those before it have come to their end. On a FIFO queue with
        `ordered`, a message leaves after the one before it in its group was stored, and when that
        one failed it is not sent at all (`NotSentError`): a group's order holds whatever fails. The
        price is one message of a group in a request. `ordered=False` lets ten of a group travel
        together, as concurrent calls of `send` do.
        """

        async def send(draft: Draft) -> Receipt:
            try:
                return await self.send(draft.body, wait=True, **draft.options)
            except PumphouseError:
                raise
            except Exception as error:  # a message's own, before it was let in
                raise NotSentError(f"not sent: it can't be made ({error!r})") from error

        def chain(draft: Draft) -> str | None:
            if not (ordered and self.fifo):
                return None
            return group_of(self._composer, self.settings.group_id, draft)

        drafts = (each if isinstance(each, Draft) else Draft(each) for each in messages)
        return await in_order(drafts, chain, send)

    # --- one request ------------------------------------------------------------------------

    def _look_up(self) -> Awaitable[PumphouseError | None] | None:
        """What has to be looked up before a request, if anything has."""
        return None if self._learned.complete else self._looked_up(self._learned.learn)

    async def _looked_up(self, learn: Callable[[], Awaitable[object]]) -> PumphouseError | None:
        """Look something up; why nothing can be sent where that fails."""
        counting = one_try.set(True)
        try:
            with nothing_leaves():
                await learn()
        except PumphouseError as error:
            return _not_sent(error)
        except Exception as error:
            _log.exception("%s: its look-up failed in an unexpected way", self.queue)
            failure = NotSentError(f"the look-up failed with {type(error).__name__}")
            failure.__cause__ = error
            return failure
        finally:
            one_try.reset(counting)
        return None

    async def _request(self, batch: list[Outgoing], failure: PumphouseError | None) -> Confirmed:
        """Carry a batch over the backend, and say what became of each of its messages."""
        address = self._learned.address
        if failure is not None or address is None:
            return self._confirm("", batch, failure or NotSentError("the destination is not known"))
        counting = one_try.set(True)  # the tries of a message are counted here, and only here
        try:
            return await self._carry(address, batch)
        finally:
            one_try.reset(counting)

    async def _carry(self, address: str, batch: list[Outgoing]) -> Confirmed:
        began = self._clock.monotonic()
        limit = self._learned.largest
        small = batch
        if max(map(_size, batch)) > limit:
            small = [message for message in batch if message.size <= limit]
        confirmed = await self._execute(address, small) if small else Confirmed([], [], False)
        if confirmed.strangers:
            self._batcher.counts["strangers"] += len(confirmed.strangers)
            _log.warning("%s: an answer names entries that were not sent", self.queue)
        if self.settings.hooks.wanted(BatchAnswered):
            self.settings.hooks.emit(
                BatchAnswered(
                    self.queue,
                    len(small),
                    sum(isinstance(outcome, Receipt) for outcome in confirmed.outcomes),
                    self._clock.monotonic() - began,
                    tuple(confirmed.strangers),
                )
            )
        if small is batch:
            return confirmed
        answered = iter(confirmed.outcomes)
        outcomes: list[Outcome] = [
            next(answered) if message.size <= limit else MessageTooLargeError(message.size, limit)
            for message in batch
        ]
        return confirmed._replace(outcomes=outcomes)

    async def _execute(self, address: str, batch: list[Outgoing]) -> Confirmed:
        self._batcher.counts["requests"] += 1
        try:
            if self.settings.batch:
                answer: Any = await self._backend.execute(self._to.batch(address, batch))
            else:
                answer = await self._backend.execute(self._to.one(address, batch[0]))
            return self._confirm(address, batch, answer)
        except (QueueDoesNotExist, TopicDoesNotExist) as error:
            self._learned.forget()
            return self._confirm(address, batch, error)
        except PumphouseError as error:
            return self._confirm(address, batch, error)
        except Exception as error:
            _log.exception("%s: a request failed in an unexpected way", self.queue)
            unknown = OutcomeUnknownError(f"the request failed with {type(error).__name__}")
            unknown.__cause__ = error
            return self._confirm(address, batch, unknown)

    # --- the end of the road ----------------------------------------------------------------

    def _make_dead_letters(self, backend: Backend) -> DeadLetters | None:
        target = self.settings.on_dead_letter
        keeper: Keeper
        if target is None:
            return None
        if isinstance(target, Path):
            keeper = DirectoryKeeper(target, self.queue)
        elif isinstance(target, str):
            sink = self._dead_letter_sink = Sink(
                target,
                backend,
                retry=self.settings.retry,
                clock=self._clock,
                rng=self.settings.rng,
                wait=True,
                hash_ids=True,
            )
            keeper = QueueKeeper(sink.send, fifo=sink.fifo)
        else:
            keeper = CallbackKeeper(target)
        return DeadLetters(
            self.queue,
            keeper,
            self._clock,
            self.settings.close_timeout_seconds,
            to_topic=self._to.kind == "topic",
        )

    # --- the end ----------------------------------------------------------------------------

    async def aclose(self, timeout_seconds: float | None = None) -> None:
        """Send what waits and give every waiting caller its true outcome, within the time-out
        (by default `close_timeout_seconds`): stored, failed, unknown where the answer is still
        out, or `ClosedError` for what was never sent. What failed at the last moment may take as
        long again to be kept (`on_dead_letter`), five seconds at least. May be called twice."""
        limit = self.settings.close_timeout_seconds if timeout_seconds is None else timeout_seconds
        if self._dead_letters is not None:
            self._dead_letters.timeout_seconds = max(limit, KEEPING_SECONDS)
        await self._batcher.close(limit, self._hurry)
        if self._dead_letter_sink is not None:
            await self._dead_letter_sink.aclose(timeout_seconds)

    def _hurry(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.timeout_seconds = KEEPING_SECONDS

    async def __aenter__(self) -> Self:
        if self._batcher.closing:
            raise ClosedError("the sink is closed; make a new one")
        if isinstance(target := self.settings.on_dead_letter, Path):
            check_directory(target)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # --- what can be seen -------------------------------------------------------------------

    @property
    def stats(self) -> dict[str, int]:
        """What has become of the messages so far (`stored`, `refused`, `config_errors`,
        `too_large`, `throttled`, `transient`, `unreachable`, `unknown`, `withdrawn`), how often
        was tried again (`retried`), the `requests`, `queue_full`, `dead_lettered`,
        `dead_letters_failed`, `strangers`, and how many are `waiting` now."""
        kept = self._dead_letters.counts if self._dead_letters else {}
        none = {"dead_lettered": 0, "dead_letters_failed": 0}
        return self._batcher.stats() | none | kept

    def describe(self) -> dict[str, Any]:
        """Queue and settings as plain values, for documents. There are no credentials in it."""
        described = self.settings.describe()
        if self._learned.limit is not None:
            described["max_message_bytes"] = self._learned.limit
        return {self._to.kind: self.queue, "fifo": self.fifo, **described}

    def __repr__(self) -> str:
        return f"Sink({self.queue!r}, {self._batcher!r})"


def _not_sent(error: PumphouseError) -> PumphouseError:
    """An error of the look-up before the request: nothing was sent, whatever became of it."""
    if not isinstance(error, OutcomeUnknownError):
        return error
    plain = NetworkError(f"the destination could not be looked up: {error}")
    plain.__cause__ = error
    return plain
