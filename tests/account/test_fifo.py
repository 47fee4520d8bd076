"""FIFO queues: order within a group, one receive at a time, deduplication, repeated receives."""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import MessageNotInflight, ReceiptHandleExpired, RefusedError
from pumphouse.protocol.operations import PurgeQueue
from support.a_queue import AQueue


async def test_a_group_in_flight_hands_out_nothing(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=10)
    for body in ("a1", "a2", "a3", "b1"):
        await queue.send(body, message_group_id=body[0])
    first = await queue.receive(2)
    assert [message.body for message in first] == ["a1", "a2"]
    assert await queue.bodies() == ["b1"]
    await queue.delete(first[1])
    assert await queue.bodies() == []  # a1 is still in front
    await queue.delete(first[0])
    assert await queue.bodies() == ["a3"]
    await clock.advance(10)
    assert sorted(await queue.bodies()) == ["a3", "b1"]


async def test_one_receive_takes_a_group_as_far_as_it_can(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    for body in ("a1", "b1", "a2", "b2", "a3", "c1"):
        await queue.send(body, message_group_id=body[0])
    assert await queue.bodies(5) == ["a1", "a2", "a3", "b1", "b2"]
    assert await queue.bodies(5) == ["c1"]


async def test_what_is_in_front_of_a_lease_is_handed_out(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=10)
    await queue.send_batch(*"abcd")
    held = await queue.receive(3)
    await queue.change(held[1], 60)
    await clock.advance(10)
    assert await queue.counts() == (3, 1, 0)
    assert await queue.bodies() == ["a"]
    assert await queue.bodies() == []


async def test_a_released_message_comes_before_its_successors(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    await queue.send_batch(*"abc")
    [first] = await queue.receive(1)
    await queue.change(first, 0)
    assert await queue.bodies() == ["a", "b", "c"]
    assert await queue.bodies(visibility=0) == []


async def test_visibility_zero_hands_a_group_out_again(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    await queue.send_batch(*"ab")
    for _ in range(3):
        assert await queue.bodies(visibility=0) == ["a", "b"]


async def test_groups_take_turns(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    for number in range(3):
        for group in "abc":
            await queue.send(f"{group}{number}", message_group_id=group)
    order = []
    for _ in range(9):
        [message] = await queue.receive(1)
        order.append(message.body)
        await queue.delete(message)
    assert order == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]


async def test_the_queues_delay_is_the_only_one(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", DelaySeconds=10)
    await queue.send("a", delay_seconds=0)
    await queue.send("b")
    assert await queue.counts() == (0, 0, 2)
    await queue.set(DelaySeconds=4)  # for what is delayed already, too
    await clock.advance(3)
    assert await queue.bodies() == []
    await clock.advance(1)
    assert await queue.bodies() == ["a", "b"]
    with pytest.raises(RefusedError, match="not valid for this queue type"):
        await queue.send(delay_seconds=1)


async def test_a_shorter_delay_wakes_a_long_poll(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", DelaySeconds=100)
    await queue.send("a")
    poll = queue.poll()
    await clock.advance(1)
    await queue.set(DelaySeconds=1)
    await clock.settle()
    assert await poll == ["a"]


async def test_an_outlived_head_frees_its_group(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", MessageRetentionPeriod=60)
    await queue.send("a")
    await queue.receive(visibility=600)
    await clock.advance(30)
    await queue.send("b")
    poll = queue.poll()
    await clock.advance(20)
    assert not poll.done() or await poll == []
    poll = queue.poll()
    await clock.advance(10)
    assert await poll == ["b"]


async def test_sequence_numbers_grow_and_have_twenty_digits(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    numbers = [(await queue.send(body)).sequence_number for body in "abc"]
    assert all(number is not None and len(number) == 20 for number in numbers)
    assert numbers == sorted(set(numbers))
    received = await queue.receive(attribute_names=["All"])
    assert [message.attributes["SequenceNumber"] for message in received] == numbers
    assert [message.attributes["MessageGroupId"] for message in received] == ["g"] * 3
    assert [message.attributes["MessageDeduplicationId"] for message in received] == [
        "d1",
        "d2",
        "d3",
    ]


async def test_handles_on_a_fifo_queue(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=10)
    await queue.send()
    [old] = await queue.receive()
    await clock.advance(10)
    with pytest.raises(ReceiptHandleExpired) as caught:
        await queue.delete(old)
    assert caught.value.code == "InvalidParameterValue"
    assert caught.value.message == (
        f"Value {old.receipt_handle} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired."
    )
    with pytest.raises(MessageNotInflight):
        await queue.change(old, 5)
    [new] = await queue.receive()
    for attempt in (queue.delete(old), queue.change(old, 5)):
        with pytest.raises(ReceiptHandleExpired):
            await attempt
    result = await queue.delete_batch(old, new)
    assert [entry.id for entry in result.successful] == ["1"]
    [failed] = result.failed
    assert (failed.id, failed.code, failed.sender_fault) == ("0", "InvalidParameterValue", True)
    await queue.delete(new)  # gone already


# --- deduplication ------------------------------------------------------------------------------


async def test_a_double_is_answered_as_the_first_and_not_stored(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, "q.fifo")
    first = await queue.send("a", message_deduplication_id="x")
    double = await queue.send("other body", message_deduplication_id="x")
    assert (double.message_id, double.sequence_number) == (first.message_id, first.sequence_number)
    assert await queue.bodies(visibility=600) == ["a"]
    await clock.advance(299)
    await queue.send("b", message_deduplication_id="x")
    assert await queue.counts() == (0, 1, 0)
    await clock.advance(1)
    later = await queue.send("c", message_deduplication_id="x")
    assert later.message_id != first.message_id
    assert await queue.counts() == (1, 1, 0)


async def test_the_window_goes_on_after_a_delete(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo")
    await queue.send("a", message_deduplication_id="x")
    await queue.delete(*await queue.receive())
    await queue.send("b", message_deduplication_id="x")
    assert await queue.receive() == []
    await clock.advance(300)
    await queue.send("c", message_deduplication_id="x")
    assert await queue.bodies() == ["c"]


async def test_a_purge_forgets_what_was_sent(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    await queue.send("a", message_deduplication_id="x")
    await account.execute(PurgeQueue(queue.url))
    await queue.send("b", message_deduplication_id="x")
    assert await queue.bodies() == ["b"]


async def test_deduplication_by_content_looks_at_the_body_alone(account: Account) -> None:
    from pumphouse.protocol.operations import MessageAttributeValue

    queue = await AQueue.create(account, "q.fifo", ContentBasedDeduplication="true")
    await queue.send("a", message_deduplication_id=None)
    await queue.send(
        "a",
        message_deduplication_id=None,
        message_attributes={"n": MessageAttributeValue("String", "v")},
    )
    await queue.send("a", message_deduplication_id="its-own-id-counts")
    assert await queue.bodies() == ["a", "a"]
    await queue.set(ContentBasedDeduplication="false")
    with pytest.raises(RefusedError, match="MessageDeduplicationId provided explicitly"):
        await queue.send("b", message_deduplication_id=None)


@pytest.mark.parametrize(("scope", "stored"), [("queue", 1), ("messageGroup", 2)])
async def test_the_scope_of_deduplication(account: Account, scope: str, stored: int) -> None:
    queue = await AQueue.create(account, "q.fifo", DeduplicationScope=scope)
    await queue.send(message_group_id="a", message_deduplication_id="x")
    await queue.send(message_group_id="b", message_deduplication_id="x")
    await queue.send(message_group_id="b", message_deduplication_id="x")
    assert await queue.counts() == (stored, 0, 0)


# --- repeated receives --------------------------------------------------------------------------


async def test_a_repeated_receive_brings_the_same_and_renews_the_leases(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=30)
    for body in "abc":
        await queue.send(body, message_group_id=body)
    first = await queue.receive(2, receive_request_attempt_id="one", attribute_names=["All"])
    await clock.advance(20)
    again = await queue.receive(2, receive_request_attempt_id="one", attribute_names=["All"])
    assert again == first  # the same messages, handles and receive counts
    await clock.advance(20)  # past the first leases, within the second
    assert await queue.bodies() == ["c"]
    await queue.delete(*again)
    assert await queue.counts() == (0, 1, 0)


async def test_an_attempt_that_brought_nothing_is_no_attempt(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    assert await queue.receive(receive_request_attempt_id="one") == []
    await queue.send("a")
    assert await queue.bodies(receive_request_attempt_id="one") == ["a"]


@pytest.mark.parametrize("what", ["delete", "change", "lapse", "release"])
async def test_a_receive_whose_messages_changed_is_not_repeated(
    account: Account, clock: VirtualClock, what: str
) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=30)
    await queue.send_batch(*"ab")
    first, _ = await queue.receive(receive_request_attempt_id="one")
    if what == "delete":
        await queue.delete(first)
    elif what == "change":
        await queue.change(first, 40)
    elif what == "release":
        await queue.change(first, 0)
    else:
        await clock.advance(30)
    with pytest.raises(RefusedError, match="not valid anymore since the receive call is not") as e:
        await queue.receive(receive_request_attempt_id="one")
    assert e.value.code == "InvalidParameterValue"
    await clock.advance(300)  # the id is free again
    assert await queue.bodies(receive_request_attempt_id="one") == (
        ["b"] if what == "delete" else ["a", "b"]
    )


async def test_an_attempt_lasts_five_minutes(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=600)
    await queue.send("a")
    await queue.receive(receive_request_attempt_id="one")
    await clock.advance(299)
    assert await queue.bodies(receive_request_attempt_id="one") == ["a"]
    await clock.advance(1)
    assert await queue.bodies(receive_request_attempt_id="one") == []


async def test_a_long_poll_may_be_repeated_too(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, "q.fifo")
    poll = queue.poll(receive_request_attempt_id="one")
    await clock.settle()
    await queue.send("a")
    await clock.settle()
    assert await poll == ["a"]
    assert await queue.bodies(receive_request_attempt_id="one") == ["a"]


async def test_a_standard_queue_ignores_attempt_ids(account: Account) -> None:
    queue = await AQueue.create(account)
    await queue.send("a")
    assert await queue.bodies(receive_request_attempt_id="one") == ["a"]
    assert await queue.bodies(receive_request_attempt_id="one") == []
    with pytest.raises(RefusedError, match="alphanumeric and punctuation"):
        await queue.receive(receive_request_attempt_id="not one")
