"""Topics on the account, queues that are subscribed to them, and sinks on the virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.addressing import Topic
from pumphouse.backoff import RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sns_operations import CreateTopic
from pumphouse.sink import Sink

POLICY = RetryPolicy(base_seconds=1, cap_seconds=8, max_attempts=4, budget_seconds=60)

MakeSink = Callable[..., Sink]


@pytest.fixture
async def make(account: Account, clock: VirtualClock) -> MakeSink:
    """Makes a sink for the topic `orders` or `orders.fifo`; a raw queue of the same name is
    subscribed to each."""
    from pumphouse.notifications import subscribe_queue_to_topic

    for name in ("orders", "orders.fifo"):
        fifo = {"FifoTopic": "true"} if name.endswith(".fifo") else None
        await account.execute(CreateTopic(name, fifo))
        await account.execute(CreateQueue(name, {"FifoQueue": "true"} if fifo else None))
        await subscribe_queue_to_topic(account, name, Topic(name))
    account.ledger.clear()

    def make(topic: str = "orders", backend: Any = None, **options: Any) -> Sink:
        options = {"clock": clock, "retry": POLICY, "rng": random.Random(7)} | options
        return Sink(Topic(topic), backend or account, **options)

    return make
