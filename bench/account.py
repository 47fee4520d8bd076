"""What the in-process account costs per operation, and that it does not depend on what it holds.

    python bench/account.py [--quick]

Prints the CPU time per message of sends, receives and deletes in tens through `execute`, and full
cycles a second: on empty queues and on ones that hold a hundred to a million messages, on FIFO
queues with up to 100,000 groups, and beside 1,000 queues that all have parked polls. Each figure is
the best of several rounds. The account's ledger is off, except in the row that says otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

from rich.console import Console
from rich.table import Table

from pumphouse.account import Account
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    ReceiveMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)

BODY = '{"order": 4711, "customer": "c-0815", "items": [{"sku": "a-1", "count": 2}], "total": 99.5}'
ROUNDS = 7
BATCHES_PER_ROUND = 300


@dataclass
class Load:
    """A situation to measure in."""

    title: str
    messages: int
    groups: int = 0  # 0: a standard queue
    polls: int = 0  # other queues, each with a parked poll
    ledger_room: int = 0


@dataclass
class Cost:
    """CPU seconds per message."""

    send: float
    receive: float
    delete: float

    @property
    def cycles_per_second(self) -> float:
        return 1 / (self.send + self.receive + self.delete)


def batches(url: str, groups: int) -> Iterator[SendMessageBatch]:
    """Batches of ten without end; on FIFO with a group and a deduplication id each."""
    number = 0
    while True:
        entries = []
        for position in range(10):
            number += 1
            if groups:
                entry = SendMessageBatchRequestEntry(
                    str(position),
                    BODY,
                    message_group_id=f"group-{number % groups}",
                    message_deduplication_id=str(number),
                )
            else:
                entry = SendMessageBatchRequestEntry(str(position), BODY)
            entries.append(entry)
        yield SendMessageBatch(url, entries)


async def measure(load: Load) -> Cost:
    account = Account(ledger_room=load.ledger_room)
    execute = account.execute
    parked = []
    for number in range(load.polls):
        other = await execute(CreateQueue(f"other-{number}"))
        poll = ReceiveMessage(other.queue_url, wait_time_seconds=20)
        parked.append(asyncio.create_task(execute(poll)))
    await asyncio.sleep(0)
    name, attributes = ("q.fifo", {"FifoQueue": "true"}) if load.groups else ("q", {})
    url = (await execute(CreateQueue(name, attributes))).queue_url
    source = batches(url, load.groups)
    for _ in range(load.messages // 10):
        await execute(next(source))
    receive = ReceiveMessage(url, max_number_of_messages=10)
    gc.collect()
    best = Cost(1e9, 1e9, 1e9)
    for _ in range(ROUNDS):
        sends = [next(source) for _ in range(BATCHES_PER_ROUND)]
        started = process_time()
        for send in sends:
            await execute(send)
        sent = process_time()
        answers = [await execute(receive) for _ in sends]
        received = process_time()
        messages = sum(len(answer.messages) for answer in answers)
        assert messages == 10 * BATCHES_PER_ROUND, f"{messages} came"
        deletes = [
            DeleteMessageBatch(
                url,
                [
                    DeleteMessageBatchRequestEntry(str(position), message.receipt_handle)
                    for position, message in enumerate(answer.messages)
                ],
            )
            for answer in answers
        ]
        about_to_delete = process_time()
        for delete in deletes:
            await execute(delete)
        deleted = process_time()
        best.send = min(best.send, (sent - started) / messages)
        best.receive = min(best.receive, (received - sent) / messages)
        best.delete = min(best.delete, (deleted - about_to_delete) / messages)
    for task in parked:
        task.cancel()
    await asyncio.gather(*parked, return_exceptions=True)
    return best


def loads(quick: bool) -> list[Load]:
    most = 100_000 if quick else 1_000_000
    return [
        Load("standard, 100 messages", 100),
        Load("standard, 10,000 messages", 10_000),
        Load(f"standard, {most:,} messages", most),
        Load("standard, 100 messages, ledger on", 100, ledger_room=10_000),
        Load("standard, 100 messages, 1,000 queues with parked polls", 100, polls=1_000),
        Load("FIFO, 5,000 messages, 5,000 groups", 5_000, groups=5_000),
        Load("FIFO, 100,000 messages, 100,000 groups", 100_000, groups=100_000),
        Load(f"FIFO, {most:,} messages, 100,000 groups", most, groups=100_000),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    quick = parser.parse_args().quick
    table = Table(title="CPU per message, in tens (\u00b5s)")
    for column in ("held", "send", "receive", "delete", "cycles/s"):
        table.add_column(column, justify="left" if column == "held" else "right")
    for load in loads(quick):
        cost = asyncio.run(measure(load))
        table.add_row(
            load.title,
            *(f"{each * 1e6:.2f}" for each in (cost.send, cost.receive, cost.delete)),
            f"{cost.cycles_per_second:,.0f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
