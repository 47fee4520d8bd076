"""Dead letters: when a message goes, what it keeps, and what a missing queue means."""

from __future__ import annotations

import json

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import DeleteQueue, MessageAttributeValue
from support.a_queue import AQueue


async def _pair(
    account: Account, suffix: str = "", most: int = 2, **attributes: object
) -> tuple[AQueue, AQueue]:
    dead = await AQueue.create(account, f"dead{suffix}")
    policy = {"deadLetterTargetArn": account.queue(dead.url).arn, "maxReceiveCount": most}
    source = await AQueue.create(
        account, f"source{suffix}", RedrivePolicy=json.dumps(policy), **attributes
    )
    return source, dead


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_it_goes_at_the_receive_that_would_be_one_too_many(
    account: Account, clock: VirtualClock, suffix: str
) -> None:
    source, dead = await _pair(account, suffix, VisibilityTimeout=10)
    await source.send("bad", message_attributes={"n": MessageAttributeValue("String", "v")})
    await source.send("good")
    for _ in range(2):
        bad, *_ = await source.receive(1)
        assert bad.body == "bad"
        await clock.advance(10)
        if not suffix:  # a returned message goes behind on a standard queue
            assert await source.bodies(1) == ["good"]
            await clock.advance(10)
    assert await dead.counts() == (0, 0, 0)
    if suffix:
        assert await source.bodies(1) == ["good"]  # "bad" is in its way no more
    else:
        assert await source.bodies() == []
    [letter, *_] = await dead.receive(
        1, attribute_names=["All"], message_attribute_names=["All"], visibility=60
    )
    assert letter.body == "bad"
    assert letter.message_id == bad.message_id
    assert letter.message_attributes == {"n": MessageAttributeValue("String", "v")}
    assert letter.attributes["DeadLetterQueueSourceArn"] == account.queue(source.url).arn
    assert letter.attributes["ApproximateReceiveCount"] == "3"  # of both queues together


async def test_a_receive_goes_on_past_dead_letters(account: Account) -> None:
    source, dead = await _pair(account, most=1)
    await source.send_batch(*"abc")
    await source.receive(2, visibility=0)
    await source.send("d")
    assert await source.bodies(3) == ["c", "d"]
    assert await dead.bodies() == ["a", "b"]


async def test_dead_letters_wake_a_poll_of_their_queue(
    account: Account, clock: VirtualClock
) -> None:
    source, dead = await _pair(account, most=1, VisibilityTimeout=0)
    await source.send("a")
    poll = dead.poll()
    await source.receive()
    await clock.settle()
    assert not poll.done()
    await source.receive()
    await clock.settle()
    assert await poll == ["a"]


async def test_a_parked_receive_moves_dead_letters_too(
    account: Account, clock: VirtualClock
) -> None:
    source, dead = await _pair(account, most=1, VisibilityTimeout=5)
    await source.send("a")
    await source.receive()
    poll = source.poll()
    await clock.advance(5)
    assert await dead.counts() == (1, 0, 0)
    assert not poll.done()
    await clock.advance(15)
    assert await poll == []


async def test_without_its_dead_letter_queue_a_message_stays(account: Account) -> None:
    source, dead = await _pair(account, most=1, VisibilityTimeout=0)
    await source.send("a")
    await account.execute(DeleteQueue(dead.url))
    for _ in range(3):
        assert await source.bodies() == ["a"]


async def test_a_chain_of_dead_letter_queues_counts_anew_in_each(account: Account) -> None:
    last = await AQueue.create(account, "last")
    second, first = None, None
    for name, target in (("second", "last"), ("first", "second")):
        policy = {"deadLetterTargetArn": account.queue(target).arn, "maxReceiveCount": 1}
        queue = await AQueue.create(
            account, name, RedrivePolicy=json.dumps(policy), VisibilityTimeout=0
        )
        second, first = first, queue
    assert first is not None
    assert second is not None
    await first.send("a")
    assert await first.bodies() == ["a"]
    assert await first.bodies() == []
    assert await second.bodies() == ["a"]
    assert await second.bodies() == []
    assert await last.bodies() == ["a"]
