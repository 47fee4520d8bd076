"""The real webhooks go through, and come back byte for byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pumphouse.account import Account
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.envelope import Envelope, open_envelope
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    ReceiveMessage,
)
from pumphouse.sink import Sink


@pytest.mark.parametrize("inline_max_bytes", [65_536, 4_096])
async def test_329_webhooks_in_envelopes(
    account: Account, clock: VirtualClock, shared_data: Path, inline_max_bytes: int
) -> None:
    lines = (shared_data / "github-webhooks.jsonl").read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    assert len(events) == 329
    raw = {
        event["id"]: json.dumps(event["payload"], ensure_ascii=False).encode() for event in events
    }
    url = (await account.execute(CreateQueue("hooks.fifo", {"FifoQueue": "true"}))).queue_url
    check = ClaimCheck(MemoryBlobStore(), inline_max_bytes=inline_max_bytes)
    sink = Sink(url, account, claim_check=check, clock=clock)

    async def send(event: dict[str, str]) -> None:
        await sink.send(
            Envelope(
                id=event["id"],
                source_id="github",
                tenant_id=event["source"],
                body=raw[event["id"]],
                content_type="application/json",
                headers={"X-GitHub-Event": event["event"]},
            )
        )

    tasks = [asyncio.create_task(send(event)) for event in events]
    await clock.run_until(lambda: all(task.done() for task in tasks))
    await asyncio.gather(*tasks)
    assert sink.stats["stored"] == 329

    found: dict[str, bytes] = {}
    order: dict[str, list[str]] = {}
    claims = 0
    receive = ReceiveMessage(url, max_number_of_messages=10, message_attribute_names=["All"])
    while messages := (await account.execute(receive)).messages:
        for message in messages:
            claims += '"claim":' in message.body
            envelope = await open_envelope(message.body, check)
            assert envelope.body is not None
            found[envelope.id] = envelope.body
            order.setdefault(envelope.tenant_id or "", []).append(envelope.id)
        entries = [
            DeleteMessageBatchRequestEntry(str(at), message.receipt_handle)
            for at, message in enumerate(messages)
        ]
        await account.execute(DeleteMessageBatch(url, entries))
    assert found == raw
    assert claims == sum(len(body) > inline_max_bytes for body in raw.values())
    if inline_max_bytes == 4_096:
        assert claims > 100
    for source, ids in order.items():
        assert ids == [event["id"] for event in events if event["source"] == source]
