"""Looking into a queue: `peek` gives the messages back, `receive` hands them over.

SQS has no way to look without receiving: a peek raises each message's receive count by one, hides
it (on a FIFO queue its group with it) for the moment that it takes, and may be the receive that
sends it to the dead-letter queue. Only an account in memory can be looked at without that; whoever
has one gives `look`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from pumphouse import settling
from pumphouse.addressing import QueueUrls
from pumphouse.backend import Backend
from pumphouse.content import UndecodableError, decode
from pumphouse.errors import PumphouseError, RefusedError, UsageError
from pumphouse.protocol.attributes import (
    MAX_BATCH_ENTRIES,
    MAX_VISIBILITY_SECONDS,
    MAX_WAIT_SECONDS,
)
from pumphouse.protocol.operations import GetQueueAttributes, ReceivedMessage, ReceiveMessage
from pumphouse.subscriber.setup import redrive_policy_of

MOST = 10_000
PEEK_LEASE_SECONDS = 30
Look = Callable[[str, int], Awaitable[list[ReceivedMessage] | None]]
"""Messages of a queue (by URL) without receiving them, or None where that can't be done."""


class PeekRefusedError(RefusedError):
    """A peek would count as a receive on a queue with a redrive policy."""


@dataclass(frozen=True, slots=True)
class Peeked:
    """What a peek saw. `received` says that it cost each message a receive; `stuck` is how many
    could not be given back, and come again when their lease is over."""

    messages: list[ReceivedMessage]
    received: bool
    stuck: int = 0


async def peek(
    backend: Backend, queue: str, number: int = 10, *, force: bool = False, look: Look | None = None
) -> Peeked:
    """Up to `number` messages that are visible, which stay in the queue.

    With `look` nothing is received where that can be done. Otherwise the messages are received and
    given back at once; on a queue with a redrive policy only with `force`, since for a message that
    has used up its receives this one is the last: it goes to the dead-letter queue, and that can't
    be told beforehand.

    Raises `UsageError` for a number out of range, `PeekRefusedError`, and what the backend raises.
    """
    _check(number)
    url = await QueueUrls(backend).resolve(queue)
    if look is not None and (found := await look(url, number)) is not None:
        return Peeked(found, received=False)
    if not force:
        answer = await backend.execute(GetQueueAttributes(url, ["RedrivePolicy"]))
        policy = redrive_policy_of(answer.attributes, queue)
        if policy is not None:
            target = policy.dead_letter_target_arn.rpartition(":")[2]
            raise PeekRefusedError(
                f"SQS counts a look at a message as a receive, and {queue} moves one to {target} "
                f"after {policy.max_receive_count}: this could be the last one of some messages. "
                "--force looks all the same",
                code="PeekCostsReceive",
                status=400,
                sender_fault=True,
            )
    messages: dict[str, ReceivedMessage] = {}
    stuck = 0
    try:
        while len(messages) < number:
            received = await _receive(
                backend, url, min(MAX_BATCH_ENTRIES, number - len(messages)), PEEK_LEASE_SECONDS, 1
            )
            new = [each for each in received if each.message_id not in messages]
            messages.update((each.message_id, each) for each in received)
            if not new:
                break
    finally:
        handles = [each.receipt_handle for each in messages.values()]
        stuck = await give_back(backend, url, handles)
    return Peeked(list(messages.values()), received=True, stuck=stuck)


async def receive(
    backend: Backend,
    queue: str,
    number: int = 10,
    *,
    wait_time_seconds: int = 1,
    visibility_timeout: int | None = None,
) -> AsyncGenerator[tuple[ReceivedMessage, Callable[[], Awaitable[None]]], None]:
    """Receive up to `number` messages, one by one, each with a function that deletes it.

    It ends when a receive that waits `wait_time_seconds` (0 to 20) brings nothing. A message that
    is not deleted is visible again when its lease is over: after `visibility_timeout`, or what the
    queue says. Where the iteration is broken off (with `aclosing`), the message that it was at and
    what was received behind it are given back at once.
    """
    _check(number)
    if not 0 <= wait_time_seconds <= MAX_WAIT_SECONDS:
        raise UsageError(f"the wait is 0 to {MAX_WAIT_SECONDS} seconds, not {wait_time_seconds}")
    if visibility_timeout is not None and not 0 <= visibility_timeout <= MAX_VISIBILITY_SECONDS:
        raise UsageError(
            f"the visibility timeout is 0 to {MAX_VISIBILITY_SECONDS:,} seconds, "
            f"not {visibility_timeout}"
        )
    url = await QueueUrls(backend).resolve(queue)
    left = number
    while left:
        size = min(MAX_BATCH_ENTRIES, left)
        batch = await _receive(backend, url, size, visibility_timeout, wait_time_seconds)
        if not batch:
            return
        left -= len(batch)
        try:
            while batch:
                yield batch[0], _deleter(backend, url, batch[0])
                del batch[0]
        finally:
            if batch:
                await give_back(backend, url, [each.receipt_handle for each in batch])


def _deleter(backend: Backend, url: str, message: ReceivedMessage) -> Callable[[], Awaitable[None]]:
    async def delete() -> None:
        for error in (await settling.delete(backend, url, [message.receipt_handle])).values():
            raise error

    return delete


async def _receive(
    backend: Backend, url: str, number: int, lease_seconds: int | None, wait_seconds: int
) -> list[ReceivedMessage]:
    answer = await backend.execute(
        ReceiveMessage(
            url,
            message_system_attribute_names=["All"],
            message_attribute_names=["All"],
            max_number_of_messages=number,
            visibility_timeout=lease_seconds,
            wait_time_seconds=wait_seconds,
        )
    )
    return answer.messages


async def give_back(backend: Backend, url: str, handles: list[str]) -> int:
    """Make messages visible again, now; how many could not be."""
    stuck = 0
    for start in range(0, len(handles), MAX_BATCH_ENTRIES):
        some = handles[start : start + MAX_BATCH_ENTRIES]
        try:
            stuck += len(
                await settling.change_visibility(backend, url, [(each, 0) for each in some])
            )
        except PumphouseError:
            stuck += len(some)
    return stuck


def _check(number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise UsageError(f"the number of messages is 1 to {MOST:,}, not {number!r}")


def shown(message: ReceivedMessage) -> dict[str, Any]:
    """A message as plain data, for programs: what was sent, and what SQS says of it.

    `body` is the body as it lies in the queue; `body_base64` is added for one that was sent as
    bytes. Times are in seconds since the epoch.
    """
    system = message.attributes
    data: dict[str, Any] = {
        "message_id": message.message_id,
        "body": message.body,
        "attributes": {
            name: {
                "type": each.data_type,
                "value": each.string_value
                if each.binary_value is None
                else msgspec.to_builtins(each.binary_value),
            }
            for name, each in (message.message_attributes or {}).items()
        },
        "sent_at": int(system.get("SentTimestamp") or 0) / 1000,
        "receive_count": int(system.get("ApproximateReceiveCount") or 0),
    }
    for key, name in (
        ("group_id", "MessageGroupId"),
        ("deduplication_id", "MessageDeduplicationId"),
        ("sequence_number", "SequenceNumber"),
        ("source", "DeadLetterQueueSourceArn"),
        ("trace_header", "AWSTraceHeader"),
    ):
        if name in system:
            data[key] = system[name]
    try:
        raw = decode(message.body, message.message_attributes)
        raw.decode()
    except UndecodableError:
        pass
    except UnicodeDecodeError:
        data["body_base64"] = message.body
    return data
