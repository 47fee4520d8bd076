"""What a publish to the account costs per delivery, and that filters are compiled once.

    python bench/fanout.py [--quick]

Prints the CPU time of one publish and of each of its deliveries, for topics with 1, 10 and 1,000
subscribed queues: raw, in envelopes, with filters of each kind that let every message through, and
with filters that let one in a hundred queues have it. Below it says how often a filter policy was
compiled: once for each subscription, however many messages there are. Each figure is the best of
several rounds, and the counts are checked: every queue has what its filter lets through. The
account's ledger is off.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
from dataclasses import dataclass, field
from time import process_time

from rich.console import Console
from rich.table import Table

import pumphouse.account.topics.subscription_settings as subscription_settings
from pumphouse.account import Account
from pumphouse.account.topics.filter_policy import FilterPolicy, compile_policy
from pumphouse.protocol.operations import CreateQueue, MessageAttributeValue, PurgeQueue
from pumphouse.protocol.sns_operations import CreateTopic, Publish, Subscribe

BODY = json.dumps({"order": {"id": 4711, "state": "paid", "items": [{"sku": "a-1"}]}, "total": 9.5})
ATTRIBUTES = {
    "kind": MessageAttributeValue("String", "order.paid"),
    "shard": MessageAttributeValue("Number", "7"),
}
ROUNDS = 5

ON_ATTRIBUTES = {"kind": [{"prefix": "order."}], "shard": [{"numeric": [">=", 0, "<", 100]}]}
ON_BODY = {"order": {"state": ["paid", "open"]}, "total": [{"numeric": [">", 5]}]}


@dataclass
class Kind:
    """How the queues are subscribed; `share` of them get each message."""

    title: str
    attributes: dict[str, str] = field(default_factory=dict)
    share: int = 1  # one in so many


def kinds() -> list[Kind]:
    raw = {"RawMessageDelivery": "true"}
    body = {"FilterPolicyScope": "MessageBody", "FilterPolicy": json.dumps(ON_BODY)}
    return [
        Kind("raw", raw),
        Kind("in envelopes"),
        Kind("raw, filter on attributes", raw | {"FilterPolicy": json.dumps(ON_ATTRIBUTES)}),
        Kind("raw, filter on the body", raw | body),
        Kind("raw, filter for one in 100", raw, share=100),
    ]


async def subscribed(account: Account, kind: Kind, queues: int) -> str:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    for number in range(queues):
        await account.execute(CreateQueue(f"queue-{number}"))
        arn = f"arn:aws:sqs:{account.region}:{account.account_id}:queue-{number}"
        attributes = dict(kind.attributes)
        if kind.share > 1:
            attributes["FilterPolicy"] = json.dumps(
                {"shard": [7 if number % kind.share == 0 else 8]}
            )
        await account.execute(Subscribe(topic, "sqs", arn, attributes or None))
    return topic


async def measure(kind: Kind, queues: int, publishes: int) -> tuple[float, int]:
    """CPU seconds of one publish at best, and how many deliveries it has."""
    account = Account(ledger_room=0, sixty_second_rules=False)
    topic = await subscribed(account, kind, queues)
    expected = -(-queues // kind.share)
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        began = process_time()
        for _ in range(publishes):
            await account.execute(Publish(BODY, topic, message_attributes=ATTRIBUTES))
        best = min(best, process_time() - began)
        found = sum(queue.visible for queue in account.queues)
        if found != expected * publishes or account.topics.undelivered:
            raise SystemExit(f"{kind.title}: {found} messages instead of {expected * publishes}")
        for queue in account.queues:
            await account.execute(PurgeQueue(queue.url))
    return best / publishes, expected


async def compilations(messages: int) -> tuple[int, int]:
    """How many subscriptions with filters there were, and how often a policy was compiled."""
    count = 0

    def counted(text: str, scope: str) -> FilterPolicy:
        nonlocal count
        count += 1
        return compile_policy(text, scope)

    subscription_settings.compile_policy = counted
    try:
        account = Account(ledger_room=0)
        topic = await subscribed(account, kinds()[2], 10)
        for _ in range(messages):
            await account.execute(Publish(BODY, topic, message_attributes=ATTRIBUTES))
    finally:
        subscription_settings.compile_policy = compile_policy
    return 10, count


async def main(quick: bool) -> None:
    table = Table(title="a publish to the in-process account, CPU time")
    table.add_column("queues", justify="right")
    table.add_column("subscribed")
    table.add_column("deliveries", justify="right")
    table.add_column("µs per publish", justify="right")
    table.add_column("µs per delivery", justify="right")
    for queues in (1, 10, 1000):
        publishes = max(3, (2_000 if quick else 20_000) // queues // (1 if queues > 1 else 10))
        for kind in kinds():
            if kind.share > queues:
                continue
            seconds, deliveries = await measure(kind, queues, publishes)
            table.add_row(
                f"{queues:,}",
                kind.title,
                f"{deliveries:,}",
                f"{seconds * 1e6:,.1f}",
                f"{seconds * 1e6 / deliveries:,.2f}",
            )
    console = Console()
    console.print(table)
    messages = 100 if quick else 1_000
    filters, count = await compilations(messages)
    console.print(f"{filters} filters, {messages:,} messages: compiled {count} times")
    if count != filters:
        raise SystemExit("filters are compiled more than once")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer messages")
    asyncio.run(main(parser.parse_args().quick))
