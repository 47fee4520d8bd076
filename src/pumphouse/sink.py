"""`Sink`: confirmed, batched, fair publishing to one queue.

The way of a message: `send` makes an `Outgoing` of it (`outgoing.py`, `content.py`), the batcher
admits it and resolves its future (`batcher.py`, by the rules of `schedule.py`), `_request` carries a
batch over the backend, and `confirmation.py` says what the answer means for each. Options are in
`sink_options.py`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from pumphouse import content
from pumphouse.addressing import QueueUrls, check_queue
from pumphouse.backend import Backend
from pumphouse.batcher import Batcher
from pumphouse.confirmation import Confirmed, Outcome, classify_error, confirm
from pumphouse.errors import (
    MessageTooLargeError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedConfigError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.outgoing import (
    AttributeValue,
    Outgoing,
    attribute_values,
    check_delay,
    check_id,
    encode_body,
    send_message,
    send_message_batch,
)
from pumphouse.protocol.attributes import MAX_ATTRIBUTES, MAX_MESSAGE_BYTES, message_size
from pumphouse.protocol.names import FIFO_SUFFIX
from pumphouse.protocol.operations import Attributes, GetQueueAttributes, MessageAttributeValue
from pumphouse.sink_options import Settings, SinkOptions, settings, validate_options

__all__ = ["BatchAnswered", "Sink", "SinkOptions", "classify_error", "validate_options"]

_log = logging.getLogger("pumphouse.sink")


@dataclass(frozen=True, slots=True)
class BatchAnswered:
    """An event: one request of a sink came to its end. `strangers` are ids in the answer that were
    not in the request."""

    queue: str
    entries: int
    stored: int
    seconds: float
    strangers: tuple[str, ...] = ()


class Sink:
    """Publishes to one queue: `receipt = await sink.send(body)` returns when SQS has stored it.

    `queue` is a name, a URL or an ARN; it has to exist (a sink never creates one), and it is FIFO
    if its name ends in `.fifo`. Any number of tasks may call `send` at once: what they send travels
    in batches. Options are those of `sink_options.Settings`; one that can't be used raises
    `UsageError` here.
    """

    def __init__(self, queue: str, backend: Backend, **options: Unpack[SinkOptions]) -> None:
        self.queue = check_queue(queue)
        self.fifo = self.queue.endswith(FIFO_SUFFIX)
        self.settings: Settings = settings(options)
        self._backend = backend
        self._urls = QueueUrls(backend)
        self._limit = self.settings.max_message_bytes
        self._clock = self.settings.clock
        self._batcher = Batcher(
            self._request,
            None,
            limits=self.settings.limits(),
            fifo=self.fifo,
            retry=self.settings.retry,
            retry_unknown=self.settings.retry_unknown,
            clock=self._clock,
            rng=self.settings.rng,
        )

    # --- sending ----------------------------------------------------------------------------

    async def send(
        self,
        body: object,
        *,
        id: str | None = None,  # noqa: A002 - it is the message's own id
        tenant: str | None = None,
        source: str | None = None,
        group_id: str | None = None,
        deduplication_id: str | None = None,
        replay_id: str | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        headers: content.Headers | None = None,
        delay: float | timedelta | None = None,
        trace_header: str | None = None,
        wait: bool | None = None,
    ) -> Receipt:
        """Send one message and return when SQS has stored it."""
        message = self._outgoing(
            body,
            id=id,
            tenant=tenant,
            source=source,
            group_id=group_id,
            deduplication_id=deduplication_id,
            replay_id=replay_id,
            attributes=attributes,
            headers=headers,
            delay=delay,
            trace_header=trace_header,
        )
        self._batcher.submit(message, wait=self.settings.wait if wait is None else wait)
        try:
            receipt: Receipt = await message.done
        except asyncio.CancelledError:
            self._batcher.withdraw(message)
            raise
        return receipt

    def _outgoing(
        self,
        original: object,
        *,
        id: str | None,  # noqa: A002
        tenant: str | None,
        source: str | None,
        group_id: str | None,
        deduplication_id: str | None,
        replay_id: str | None,
        attributes: Mapping[str, AttributeValue] | None,
        headers: content.Headers | None,
        delay: float | timedelta | None,
        trace_header: str | None,
    ) -> Outgoing:
        """The message as it will be sent, checked. Raises `UsageError`."""
        given: Attributes = content.header_attributes(headers) if headers else {}
        if attributes:
            given.update(attribute_values(attributes))
        text, wire = content.encode(encode_body(original), given)
        message = Outgoing(
            asyncio.get_running_loop().create_future(),
            message_size(text, wire),
            tenant or "",
            "",
        )
        message.original = original
        message.id = id
        message.source = source
        message.replay_id = replay_id
        message.body = text
        message.attributes = wire or None
        message.system_attributes = (
            {"AWSTraceHeader": MessageAttributeValue("String", trace_header)}
            if trace_header
            else None
        )
        message.delay = check_delay(delay, fifo=self.fifo) if delay else None
        self._place(message, tenant, group_id, deduplication_id)
        if message.size > (self._limit or MAX_MESSAGE_BYTES):
            raise MessageTooLargeError(message.size, self._limit or MAX_MESSAGE_BYTES)
        return message

    def _place(
        self, message: Outgoing, tenant: str | None, group: str | None, deduplication: str | None
    ) -> None:
        """Give a message its group and its deduplication id."""
        hashed = self.settings.hash_ids
        if group is None and (chosen := self.settings.group_id) is not None:
            group = chosen(message) if callable(chosen) else chosen
        if not self.fifo:
            if deduplication is not None:
                raise UsageError("a standard queue takes no deduplication id")
            message.group_id = None if group is None else check_id("group id", group, hashed=hashed)
            message.deduplication_id = None
            return
        if group is None:
            if not (tenant or message.source):
                raise UsageError(
                    f"{self.queue} is a FIFO queue: give group_id, or a tenant or a source"
                )
            group = f"{tenant or ''}/{message.source or ''}"
        message.group_id = message.lane = check_id("group id", group, hashed=hashed)
        if deduplication is None:
            deduplication = message.id or uuid.uuid4().hex
            if message.replay_id:
                deduplication = f"{deduplication}:replay:{message.replay_id}"
        message.deduplication_id = check_id("deduplication id", deduplication, hashed=hashed)

    # --- one request ------------------------------------------------------------------------

    async def _request(self, batch: list[Outgoing]) -> Confirmed:
        """Carry a batch over the backend, and say what became of each of its messages."""
        began = self._clock.monotonic()
        self._batcher.counts["requests"] += 1
        answer: Any
        url = ""
        try:
            url = await self._urls.resolve(self.queue)
            if self.settings.batch:
                answer = await self._backend.execute(send_message_batch(url, batch))
            else:
                answer = await self._backend.execute(send_message(url, batch[0]))
        except PumphouseError as error:
            answer = error
            if isinstance(error, QueueDoesNotExist):
                self._urls.forget(self.queue)
        confirmed = confirm(url, batch, answer)
        return confirmed

    # --- the end ----------------------------------------------------------------------------

    async def aclose(self, timeout_seconds: float | None = None) -> None:
        """Send what waits and give every waiting caller its outcome, within the time-out."""
        limit = self.settings.close_timeout_seconds
        await self._batcher.close(limit if timeout_seconds is None else timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Sink({self.queue!r}, {self._batcher!r})"
