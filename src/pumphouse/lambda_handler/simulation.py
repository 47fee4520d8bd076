"""Lambda for tests: events, a context, and an event source mapping over any backend.

`EventSourceMapping` polls as Lambda does and follows the answers as it does: what is not named as
failed is deleted, an exception or an answer that Lambda can't read deletes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from pumphouse import settling
from pumphouse.backend import Backend
from pumphouse.clock import Clock, RealClock
from pumphouse.content import encode
from pumphouse.errors import UsageError
from pumphouse.lambda_handler.event import record_of
from pumphouse.lambda_handler.handler import LambdaHandler
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES, md5_of_body
from pumphouse.protocol.names import QueueName, is_arn, parse_queue_arn
from pumphouse.protocol.operations import (
    GetQueueAttributes,
    GetQueueUrl,
    ReceivedMessage,
    ReceiveMessage,
)
from pumphouse.sink.outgoing import Draft, attribute_values
from pumphouse.subscriber.decoding import encode_reply


class LambdaContext:
    """The part of Lambda's context object that is used: the time that an invocation has left."""

    def __init__(self, seconds: float = 30.0, clock: Clock | None = None) -> None:
        self.aws_request_id = str(uuid.uuid4())
        self.function_name = "function"
        self._clock = clock or RealClock()
        self._end = self._clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(1000 * (self._end - self._clock.monotonic())))


def lambda_event(
    queue: str,
    messages: Iterable[object],
    *,
    region: str = "us-east-1",
    account_id: str = "000000000000",
    receive_count: int = 1,
) -> dict[str, Any]:
    """The event that Lambda makes of messages of a queue, by its name or ARN.

    A message is a `ReceivedMessage`, a body (text and bytes as they are, the rest as JSON), or a
    `Draft`: a body with `group_id`, `headers` or `attributes`, as `Sink.send` takes them.
    """
    arn = queue if is_arn(queue) else QueueName(queue, account_id, region).arn()
    fifo = parse_queue_arn(arn).is_fifo
    records = []
    for number, message in enumerate(messages):
        if not isinstance(message, ReceivedMessage):
            draft = message if isinstance(message, Draft) else Draft(message)
            message = _received(draft, number, fifo=fifo, receive_count=receive_count)
        records.append(record_of(message, arn))
    return {"Records": records}


def _received(draft: Draft, number: int, *, fifo: bool, receive_count: int) -> ReceivedMessage:
    options = draft.options
    given = {**(options.get("attributes") or {}), **(options.get("headers") or {})}
    text, attributes = encode(encode_reply(draft.body), attribute_values(given))
    group_id = options.get("group_id")
    if fifo and not group_id:
        raise UsageError(f"message {number} needs a group_id: the queue is a FIFO queue")
    system = {
        "ApproximateReceiveCount": str(receive_count),
        "SentTimestamp": "1700000000000",
        "SenderId": "AIDAEXAMPLE",
        "ApproximateFirstReceiveTimestamp": "1700000000001",
    }
    if group_id:
        system["MessageGroupId"] = group_id
    if fifo:
        system["SequenceNumber"] = f"{18_850_000_000_000_000_000 + 256 * number}"
        system["MessageDeduplicationId"] = options.get("deduplication_id") or f"id-{number}"
    return ReceivedMessage(
        str(uuid.uuid4()),
        f"handle-{uuid.uuid4()}",
        md5_of_body(text),
        text,
        system,
        None,
        attributes or None,
    )


class EventSourceMapping:
    """An SQS event source mapping, for tests: `await mapping.poll()` is one poll and invocation.

    `partial_responses` is what `ReportBatchItemFailures` says; without it every answer is taken for
    a success. `function_seconds` is the function's time-out.
    """

    def __init__(
        self,
        backend: Backend,
        queue: str,
        handler: LambdaHandler,
        *,
        batch_size: int = 10,
        partial_responses: bool = True,
        function_seconds: float = 30.0,
    ) -> None:
        self._backend = backend
        self._queue = queue
        self._handler = handler
        self._batch_size = batch_size
        self._partial = partial_responses
        self._seconds = function_seconds
        self.errors: list[Exception] = []

    async def poll(self) -> int:
        """Receive, invoke, delete what is done; how many messages the invocation had."""
        url = (await self._backend.execute(GetQueueUrl(self._queue))).queue_url
        answer = await self._backend.execute(GetQueueAttributes(url, ["QueueArn"]))
        messages: list[ReceivedMessage] = []
        while len(messages) < self._batch_size:
            size = min(MAX_BATCH_ENTRIES, self._batch_size - len(messages))
            received = await self._backend.execute(
                ReceiveMessage(
                    url,
                    message_system_attribute_names=["All"],
                    message_attribute_names=["All"],
                    max_number_of_messages=size,
                )
            )
            if not received.messages:
                break
            messages += received.messages
        if not messages:
            return 0
        event = lambda_event(answer.attributes["QueueArn"], messages)
        clock: Clock = getattr(self._backend, "clock", None) or RealClock()
        try:
            response = await self._handler.invoke(event, LambdaContext(self._seconds, clock))
            failed = _failed(response, {each.message_id for each in messages})
        except Exception as error:
            self.errors.append(error)
            return len(messages)
        done = [
            each.receipt_handle
            for each in messages
            if not self._partial or each.message_id not in failed
        ]
        for start in range(0, len(done), MAX_BATCH_ENTRIES):
            await settling.delete(self._backend, url, done[start : start + MAX_BATCH_ENTRIES])
        return len(messages)


def _failed(response: dict[str, Any], known: set[str]) -> set[str]:
    """The ids that an answer names as failed; all of them where Lambda can't read it."""
    failed = {each.get("itemIdentifier") for each in response.get("batchItemFailures") or []}
    return known if failed - known else failed
