"""Queues with dead letters in them, for the tests of redriving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import NetworkError
from pumphouse.protocol.operations import (
    CreateQueue,
    MessageAttributeValue,
    ReceiveMessage,
    SendMessage,
)

T = TypeVar("T")


async def passing(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """Let time pass until some work is done; its result."""
    task = asyncio.create_task(work)
    try:
        await clock.run_until(task.done)
    finally:
        if not task.done():
            task.cancel()
    return task.result()


def text(value: str) -> MessageAttributeValue:
    return MessageAttributeValue("String", value)


async def queues(account: Account, *names: str, dead: str, receives: int = 1) -> None:
    """Queues with one dead-letter queue, which takes a message at its second receive."""
    fifo = {"FifoQueue": "true"} if dead.endswith(".fifo") else {}
    await account.execute(CreateQueue(dead, fifo or None))
    policy = {"deadLetterTargetArn": account.queue(dead).arn, "maxReceiveCount": str(receives)}
    for name in names:
        await account.execute(CreateQueue(name, {**fifo, "RedrivePolicy": json.dumps(policy)}))


async def put(
    account: Account, queue: str, body: str, group: str | None = None, **attributes: str
) -> None:
    """Send one message."""
    await account.execute(
        SendMessage(
            queue,
            body,
            message_attributes={name: text(value) for name, value in attributes.items()} or None,
            message_group_id=group,
            message_deduplication_id=body[:100] if queue.endswith(".fifo") else None,
        )
    )


async def kill_all(account: Account, queue: str) -> None:
    """Let SQS itself move everything in a queue to its dead-letter queue."""
    for _ in range(10_000):
        answer = await account.execute(
            ReceiveMessage(queue, max_number_of_messages=10, visibility_timeout=0)
        )
        found = account.queue(queue)
        if not answer.messages and not found.visible:
            return


async def contents(account: Account, queue: str) -> list[Any]:
    """Every message of a queue that nobody holds, taken out."""
    found = []
    while batch := (
        await account.execute(
            ReceiveMessage(
                queue,
                message_system_attribute_names=["All"],
                message_attribute_names=["All"],
                max_number_of_messages=10,
                visibility_timeout=40_000,
            )
        )
    ).messages:
        found += batch
        for message in batch:
            queue_at = account.queue(queue)
            known = queue_at.find(message.receipt_handle)
            assert known is not None
            assert known[0] is not None
            queue_at.remove(known[0])
    return found


class Mortal:
    """A backend of a process that is killed at its nth request: the request gets through or not,
    its answer never comes, and nothing that is tried afterwards has any effect."""

    def __init__(self, account: Account, requests: int, *, carried_out: bool) -> None:
        self.clock = account.clock
        self.killed = asyncio.Event()
        self._account = account
        self._left = requests
        self._carried_out = carried_out

    async def execute(self, operation: Any) -> Any:
        if self.killed.is_set():
            raise NetworkError("the process is dead")
        self._left -= 1
        if self._left:
            return await self._account.execute(operation)
        if self._carried_out:
            await self._account.execute(operation)
        self.killed.set()
        await asyncio.Event().wait()  # until the process is gone

    async def aclose(self) -> None:
        """Nothing to give back."""


async def until_killed(clock: VirtualClock, mortal: Mortal, work: Coroutine[Any, Any, T]) -> bool:
    """Run until the process is killed, and leave nothing of it; False where it came to its end."""
    task = asyncio.create_task(work)
    await clock.run_until(lambda: task.done() or mortal.killed.is_set())
    if not mortal.killed.is_set():
        await task
        return False
    task.cancel()
    await clock.run_until(task.done)
    return True
