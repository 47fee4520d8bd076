"""A standard and a FIFO queue on the account, and sinks on the virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import CreateQueue
from pumphouse.sink import Sink

POLICY = RetryPolicy(base_seconds=1, cap_seconds=8, max_attempts=4, budget_seconds=60)

MakeSink = Callable[..., Sink]


@pytest.fixture
async def make(account: Account, clock: VirtualClock) -> MakeSink:
    """Makes a sink for the queue `orders` or `orders.fifo`, both of which exist."""
    await account.execute(CreateQueue("orders"))
    await account.execute(CreateQueue("orders.fifo", {"FifoQueue": "true"}))
    account.ledger.clear()

    def make(queue: str = "orders", backend: Any = None, **options: Any) -> Sink:
        options = {"clock": clock, "retry": POLICY, "rng": random.Random(7)} | options
        return Sink(queue, backend or account, **options)

    return make
