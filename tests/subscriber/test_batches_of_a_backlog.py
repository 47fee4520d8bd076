"""Batches larger than a receive: full ones while there is a backlog, and no later than they need be
where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from pumphouse import Account, App, Queue, VirtualClock
from pumphouse.protocol.operations import (
    ReceiveMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from support.service import make_queue, send


class Distant:
    """An account whose receives take a while to be answered."""

    cancel_is_exact = True

    def __init__(self, account: Account, seconds: float) -> None:
        self.clock = account.clock
        self._account = account
        self._seconds = seconds

    async def execute(self, operation: Any) -> Any:
        answer = await self._account.execute(operation)
        if isinstance(operation, ReceiveMessage):
            await self.clock.sleep(self._seconds)
        return answer

    async def aclose(self) -> None: ...


async def fill(account: Account, url: str, count: int) -> None:
    fifo = url.endswith(".fifo")
    for first in range(0, count, 10):
        entries = [
            SendMessageBatchRequestEntry(
                str(number),
                str(number),
                message_group_id=f"g{number % 300}" if fifo else None,
                message_deduplication_id=str(number) if fifo else None,
            )
            for number in range(first, first + 10)
        ]
        await account.execute(SendMessageBatch(url, entries))


@pytest.mark.parametrize("latency", [0.0, 0.02])
@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize(
    ("concurrency", "window", "takes"), [(1, 2, 1), (1, 2, 3), (1, 5, 70), (3, 2, 3)]
)
async def test_batches_are_full_while_there_is_a_backlog(
    account: Account,
    clock: VirtualClock,
    queue: str,
    concurrency: int,
    window: float,
    takes: float,
    latency: float,
) -> None:
    url = await make_queue(account, queue, VisibilityTimeout="30")
    await fill(account, url, 1_000)
    app = App()
    sizes: list[int] = []

    @app.subscriber(queue, batch=200, batch_window=window, concurrency=concurrency)
    async def handle(bodies: list[str]) -> None:
        sizes.append(len(bodies))
        await clock.sleep(takes)

    async with app.running(Distant(account, latency)) as running:
        stats = running.consumers[0].stats
        await clock.run_until(lambda: stats.deleted == 1_000, limit_seconds=500)
        assert stats.leases_lost == stats.expired == 0
    if queue == "q":
        assert sizes == [200] * 5
    else:  # nothing of a group is handed out while some of it is in flight
        assert sum(sizes) == 1_000
        assert min(sizes[: 5 - concurrency]) == 200


@pytest.mark.parametrize("extend", [True, False])
async def test_what_waited_for_a_busy_handler_waits_no_window_more(
    account: Account, clock: VirtualClock, extend: bool
) -> None:
    url = await make_queue(account, "q", VisibilityTimeout="30")
    app = App()
    runs: list[tuple[float, list[str]]] = []

    @app.subscriber(Queue("q", extend=extend), batch=200, batch_window=2, concurrency=1)
    async def handle(bodies: list[str]) -> None:
        runs.append((clock.monotonic(), bodies))
        await clock.sleep(5)

    async with app.running(account):
        await send(account, url, "a")
        await clock.advance(3)  # it runs from 2 to 7
        await send(account, url, "b")
        await send(account, url, "c")
        await clock.advance(10)
    assert runs == [(2.0, ["a"]), (7.0, ["b", "c"])]
