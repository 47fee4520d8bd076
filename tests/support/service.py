"""Short ways to say what the tests of the runtime say often: queues, messages, requests."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

from pumphouse.account import Account
from pumphouse.backend import Backend
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatch,
    CreateQueue,
    DeleteMessageBatch,
    Operation,
    ReceiveMessage,
    SendMessage,
)


async def make_queue(backend: Backend, name: str, **attributes: str) -> str:
    """Create a queue, FIFO by its name; returns its URL."""
    if name.endswith(".fifo"):
        attributes.setdefault("FifoQueue", "true")
    return (await backend.execute(CreateQueue(name, attributes or None))).queue_url


async def make_redrive(
    backend: Backend, source: str, target: str, max_receive_count: int, **attributes: str
) -> tuple[str, str]:
    """Create a queue and its dead-letter queue, with SQS's own redrive policy between them."""
    target_url = await make_queue(backend, target)
    arn = f"arn:aws:sqs:us-east-1:000000000000:{target}"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": max_receive_count})
    return await make_queue(backend, source, RedrivePolicy=policy, **attributes), target_url


async def send(backend: Backend, url: str, body: str, group: str | None = None, **more: Any) -> str:
    """Send one message; returns its id."""
    fifo = url.endswith(".fifo")
    answer = await backend.execute(
        SendMessage(
            url,
            body,
            message_group_id=group,
            message_deduplication_id=uuid.uuid4().hex if fifo else None,
            **more,
        )
    )
    return answer.message_id


async def receive(backend: Backend, url: str, **more: Any) -> list[Any]:
    """Receive up to ten messages, at once."""
    answer = await backend.execute(
        ReceiveMessage(
            url,
            message_system_attribute_names=["All"],
            message_attribute_names=["All"],
            max_number_of_messages=10,
            **more,
        )
    )
    return answer.messages


def bodies_by_handle(account: Account) -> dict[str, str]:
    """The body behind every receipt handle that was handed out."""
    return {
        message.receipt_handle: message.body
        for entry in account.ledger
        if isinstance(entry.operation, ReceiveMessage) and entry.result is not None
        for message in entry.result.messages
    }


def deleted(account: Account) -> list[str]:
    """The bodies of the messages that were deleted, in order."""
    bodies = bodies_by_handle(account)
    return [
        bodies[request.receipt_handle]
        for entry in account.ledger
        if isinstance(entry.operation, DeleteMessageBatch) and entry.result is not None
        for request in entry.operation.entries
        if request.id in {done.id for done in entry.result.successful}
    ]


def changes(account: Account) -> list[tuple[float, str, int | None]]:
    """Every visibility change that was asked for: when, of which body, to what."""
    bodies = bodies_by_handle(account)
    return [
        (entry.started_at, bodies[request.receipt_handle], request.visibility_timeout)
        for entry in account.ledger
        if isinstance(entry.operation, ChangeMessageVisibilityBatch)
        for request in entry.operation.entries
    ]


def receives(account: Account) -> Counter[str]:
    """How often each body was handed out."""
    return Counter(
        message.body
        for entry in account.ledger
        if isinstance(entry.operation, ReceiveMessage) and entry.result is not None
        for message in entry.result.messages
    )


def count(account: Account, kind: type[Operation[Any]]) -> int:
    """How many operations of a kind were asked for."""
    return sum(isinstance(entry.operation, kind) for entry in account.ledger)


class Gauge:
    """How many are inside at once, in all and by group."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.most_in_all = 0

    def enter(self, group: str) -> None:
        self.now[group] += 1
        self.most[group] = max(self.most[group], self.now[group])
        self.most_in_all = max(self.most_in_all, self.now.total())

    def leave(self, group: str) -> None:
        self.now[group] -= 1


class EntryFaults:
    """A backend in front of an account that fails single entries of batches, by body.

    `fail("7", DeleteMessageBatch, code)` answers for every entry of the message with that body
    that it failed, so many times, and leaves it out of what is carried out.
    """

    def __init__(self, account: Account) -> None:
        self.account = account
        self.clock = account.clock
        self.cancel_is_exact = True
        self.asked: list[tuple[str, list[str]]] = []  # action and bodies of each batch
        self._bodies: dict[str, str] = {}
        self._rules: dict[tuple[str, type], list[Any]] = {}

    def fail(
        self, body: str, action: type, code: str, *, sender_fault: bool, times: int = 1
    ) -> None:
        self._rules[body, action] = [code, sender_fault, times]

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, ReceiveMessage):
            answer = await self.account.execute(operation)
            self._bodies.update((each.receipt_handle, each.body) for each in answer.messages)
            return answer
        if not isinstance(operation, DeleteMessageBatch | ChangeMessageVisibilityBatch):
            return await self.account.execute(operation)
        bodies = [self._bodies[entry.receipt_handle] for entry in operation.entries]
        self.asked.append((operation.action, bodies))
        failed, good = [], []
        for body, entry in zip(bodies, operation.entries, strict=True):
            rule = self._rules.get((body, type(operation)))
            if rule and rule[2] > 0:
                rule[2] -= 1
                failed.append(BatchResultErrorEntry(entry.id, rule[1], rule[0], "on purpose"))
            else:
                good.append(entry)
        done = []
        if good:
            answer = await self.account.execute(type(operation)(operation.queue_url, good))
            done, failed = answer.successful, failed + answer.failed
        return operation.result(done, failed)

    async def aclose(self) -> None:
        """Nothing to give back."""
