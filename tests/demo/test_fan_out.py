"""The fan-out of the demo: it counts right, and it tells when it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.cli.demo import fan_out_lines, run_fan_out
from pumphouse.clock import VirtualClock
from pumphouse.demo.fan_out import Facts, branches_for, run
from pumphouse.demo.sample import sample
from pumphouse.jsonl import Event, load
from pumphouse.protocol.sns_operations import Publish, PublishBatch


async def outcome_of(account: Account, clock: VirtualClock, **options: Any) -> Any:
    task = asyncio.ensure_future(run(sample().events, account=account, **options))
    await clock.run_until(task.done)
    return task.result()


async def test_every_queue_gets_what_its_filter_lets_by(
    account: Account, clock: VirtualClock
) -> None:
    outcome = await outcome_of(account, clock)
    assert outcome.ok
    assert outcome.published == 48
    facts = [Facts.of(event) for event in sample().events]
    for each in outcome.branches:
        wanted = sum(each.branch.wants(fact) for fact in facts)
        assert 0 < each.got.total() == wanted < 48


def test_the_webhooks(shared_data: Path) -> None:
    events = load(str(shared_data / "github-webhooks.jsonl")).events
    assert len(events) == 329
    assert run_fan_out(str(shared_data / "github-webhooks.jsonl"), None, "stop") == 0


async def test_what_was_not_published_is_told(account: Account, clock: VirtualClock) -> None:
    account.faults.refuse(PublishBatch, "InvalidParameter")
    account.faults.fail_entries(PublishBatch, [0], code="InvalidParameter", times=1)
    outcome = await outcome_of(account, clock)
    assert not outcome.ok
    assert outcome.unconfirmed
    assert any("FAILED" in line for line in fan_out_lines(outcome))


async def test_a_message_too_many_is_told(account: Account, clock: VirtualClock) -> None:
    class Twice:
        """Publishes the first batch once more."""

        clock = account.clock
        ledger = account.ledger
        done = False

        async def execute(self, operation: Any) -> Any:
            if isinstance(operation, PublishBatch) and not self.done:
                self.done = True
                for entry in operation.publish_batch_request_entries:
                    await account.execute(
                        Publish(
                            entry.message,
                            operation.topic_arn,
                            message_attributes=entry.message_attributes,
                        )
                    )
            return await account.execute(operation)

        async def aclose(self) -> None: ...

    backend: Any = Twice()
    task = asyncio.ensure_future(run(sample().events, account=backend))
    await clock.run_until(task.done)
    outcome = task.result()
    assert not outcome.ok
    assert any(each.twice for each in outcome.branches)
    assert any("more than once" in line for line in fan_out_lines(outcome))


@pytest.mark.parametrize("body", ["1", "null", "{}", '{"event": 7, "payload": [1]}', "nonsense"])
def test_events_that_say_nothing(body: str) -> None:
    facts = Facts.of(Event(1, "g", body))
    assert facts == Facts(None, None, None)
    assert not any(branch.wants(facts) for branch in branches_for([facts]))
