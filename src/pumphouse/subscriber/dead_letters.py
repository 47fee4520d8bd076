"""Carrying a message to its dead-letter queue: sent, confirmed, and only then deleted here.

SQS moves a message by its own count of receives; the runtime carries one that is spent by its
count of attempts, or that its handler rejected, and writes why into the attributes:
`pumphouse.reason`, `pumphouse.attempts`, `pumphouse.source` and `pumphouse.message-id`, as far as
the message's own attributes leave room for them. Body, attributes and group stay as they are.
"""

from __future__ import annotations

from pumphouse.backend import Backend
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import Clock
from pumphouse.errors import (
    Md5MismatchError,
    NetworkError,
    OutcomeUnknownError,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.attributes import (
    MAX_ATTRIBUTES,
    MAX_MESSAGE_BYTES,
    forbidden_character,
    md5_of_attributes,
    md5_of_body,
    message_size,
)
from pumphouse.protocol.operations import Attributes, MessageAttributeValue, SendMessage
from pumphouse.subscriber.delivery import Delivery

REASON = "pumphouse.reason"
ATTEMPTS = "pumphouse.attempts"
SOURCE = "pumphouse.source"
MESSAGE_ID = "pumphouse.message-id"
RETRIES = RetryPolicy(base_seconds=0.2, cap_seconds=5.0, max_attempts=6, budget_seconds=30.0)


class DeadLetters:
    """Sends to one dead-letter queue."""

    def __init__(self, backend: Backend, queue_url: str, clock: Clock, source: str) -> None:
        self._backend = backend
        self._queue_url = queue_url
        self._clock = clock
        self._source = source
        self.requests = 0

    async def send(self, delivery: Delivery, reason: str, attempts: int) -> None:
        """Send it and see it confirmed. Raises what the last of several tries raised."""
        raw = delivery.raw
        attributes = dict(raw.message_attributes or {})
        for name, kind, value in (
            (REASON, "String", _plain(reason)[:512]),
            (ATTEMPTS, "Number", str(attempts)),
            (SOURCE, "String", self._source),
            (MESSAGE_ID, "String", raw.message_id),
        ):
            added = {**attributes, name: MessageAttributeValue(kind, value)}
            if (
                value
                and len(added) <= MAX_ATTRIBUTES
                and message_size(raw.body, added) <= MAX_MESSAGE_BYTES
            ):
                attributes = added
        operation = SendMessage(
            self._queue_url,
            raw.body,
            message_attributes=attributes or None,
            message_system_attributes=_trace_of(raw.attributes),
            message_group_id=delivery.group_id,
            # the same message carried twice is stored once
            message_deduplication_id=raw.message_id if self._queue_url.endswith(".fifo") else None,
        )
        began = self._clock.monotonic()
        attempt = 1
        while True:
            try:
                await self._send(operation, attributes)
                return
            except (ThrottledError, TransientError, NetworkError, OutcomeUnknownError) as error:
                at_least = getattr(error, "retry_after_seconds", 0.0)
                wait = RETRIES.next_delay(
                    attempt, self._clock.monotonic() - began, at_least_seconds=at_least
                )
                if wait is None:
                    raise
            attempt += 1
            await self._clock.sleep(wait)

    async def _send(self, operation: SendMessage, attributes: Attributes) -> None:
        self.requests += 1
        answer = await self._backend.execute(operation)
        if answer.md5_of_message_body != (body := md5_of_body(operation.message_body)):
            raise Md5MismatchError("body", body, answer.md5_of_message_body)
        expected = md5_of_attributes(attributes)
        if expected and answer.md5_of_message_attributes != expected:
            raise Md5MismatchError(
                "attributes", expected, answer.md5_of_message_attributes or "absent"
            )


def _plain(text: str) -> str:
    while (bad := forbidden_character(text)) is not None:
        text = text.replace(bad, "?")
    return text


def _trace_of(attributes: dict[str, str]) -> Attributes | None:
    trace = attributes.get("AWSTraceHeader")
    return {"AWSTraceHeader": MessageAttributeValue("String", trace)} if trace else None
