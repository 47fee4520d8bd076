"""Many sends at once on the virtual clock, and what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import SendMessage, SendMessageBatch


async def outcomes(clock: VirtualClock, sends: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The receipt or the exception of every send, in order; time moves until all are done."""
    tasks = [asyncio.ensure_future(send) for send in sends]
    await clock.run_until(lambda: all(task.done() for task in tasks))
    return await asyncio.gather(*tasks, return_exceptions=True)


def batches(account: Account) -> list[list[str]]:
    """The bodies of every SendMessageBatch that reached the account, request by request."""
    return [
        [entry.message_body for entry in record.operation.entries]
        for record in account.ledger.of(SendMessageBatch)
    ]


def requests(account: Account) -> int:
    """How many sends reached the account."""
    return len(account.ledger.of(SendMessageBatch)) + len(account.ledger.of(SendMessage))


def bodies(account: Account, queue: str) -> list[str]:
    """What was stored in the queue."""
    return [sent.body for sent in account.sent(queue)]
