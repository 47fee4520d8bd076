"""Standard queues: what is visible when, to whom, and what receipt handles may do."""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import OverLimit, ReceiptHandleIsInvalid, RefusedError
from pumphouse.protocol.operations import CreateQueue, PurgeQueue, ReceiveMessage, SendMessage
from support.a_queue import AQueue


async def test_a_message_goes_through_its_states(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, VisibilityTimeout=30)
    await queue.send("a", delay_seconds=5)
    assert await queue.counts() == (0, 0, 1)
    assert await queue.receive() == []
    await clock.advance(5)
    assert await queue.counts() == (1, 0, 0)
    [message] = await queue.receive()
    assert await queue.counts() == (0, 1, 0)
    assert await queue.receive() == []
    await clock.advance(29)
    assert await queue.receive() == []
    await clock.advance(1)
    assert await queue.counts() == (1, 0, 0)
    [again] = await queue.receive()
    assert again.message_id == message.message_id
    assert again.receipt_handle != message.receipt_handle
    await queue.delete(again)
    assert await queue.counts() == (0, 0, 0)


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_what_a_queue_holds_is_told_by_the_clock(
    account: Account, clock: VirtualClock, name: str
) -> None:
    """Right at any time, without an operation that looks at it first."""
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    attributes = {**fifo, "DelaySeconds": "5", "MessageRetentionPeriod": "60"}
    url = (await account.execute(CreateQueue(name, attributes))).queue_url
    group = "g" if fifo else None
    await account.execute(
        SendMessage(url, "x", message_group_id=group, message_deduplication_id=group)
    )
    queue = account.queue(name)
    assert (queue.delayed, queue.visible, queue.in_flight) == (1, 0, 0)
    await clock.advance(5)
    assert (queue.visible, queue.delayed, queue.in_flight) == (1, 0, 0)
    await account.execute(ReceiveMessage(url, visibility_timeout=30))
    assert (queue.visible, queue.delayed, queue.in_flight) == (0, 0, 1)
    await clock.advance(30)
    assert (queue.in_flight, queue.visible, queue.delayed) == (0, 1, 0)
    await clock.advance(30)
    assert (queue.visible, queue.in_flight, queue.delayed) == (0, 0, 0)


async def test_order_is_kept_and_a_returned_message_goes_behind(account: Account) -> None:
    queue = await AQueue.create(account)
    await queue.send_batch(*"abcd")
    first, *_ = await queue.receive(2)
    await queue.change(first, 0)
    assert await queue.bodies() == ["c", "d", "a"]


async def test_competing_receivers_never_share_a_message(account: Account) -> None:
    queue = await AQueue.create(account)
    for _ in range(5):
        await queue.send_batch(*[str(number) for number in range(10)])
    seen = [message.message_id for _ in range(7) for message in await queue.receive(9)]
    assert len(seen) == len(set(seen)) == 50


async def test_the_queues_delay_holds_where_the_message_has_none(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, DelaySeconds=10)
    await queue.send("queue's")
    await queue.send("none", delay_seconds=0)
    await queue.send("own", delay_seconds=20)
    assert await queue.bodies() == ["none"]
    await queue.set(DelaySeconds=0)  # not for what is delayed already
    assert await queue.bodies() == []
    await clock.advance(10)
    assert await queue.bodies() == ["queue's"]
    await clock.advance(10)
    assert await queue.bodies() == ["own"]


async def test_a_receives_own_visibility_and_its_change(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    await queue.send()
    [message] = await queue.receive(visibility=5)
    await clock.advance(4)
    await queue.change(message, 10)
    await clock.advance(9)
    assert await queue.receive() == []
    await queue.change(message, 3)  # shorter
    await clock.advance(3)
    [message] = await queue.receive()
    await queue.change(message, 0)
    assert len(await queue.receive(visibility=0)) == 1
    assert len(await queue.receive(visibility=0)) == 1


async def test_receive_counts_and_timestamps(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    sent_at = int(clock.now() * 1000)
    await queue.send()
    await clock.advance(1.5)
    for count in (1, 2, 3):
        [message] = await queue.receive(visibility=1, message_system_attribute_names=["All"])
        assert message.attributes == {
            "SenderId": account.account_id,
            "SentTimestamp": str(sent_at),
            "ApproximateReceiveCount": str(count),
            "ApproximateFirstReceiveTimestamp": str(sent_at + 1500),
        }
        await clock.advance(1)


async def test_messages_outlive_no_retention(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, MessageRetentionPeriod=60)
    await queue.send("visible")
    await queue.send("delayed", delay_seconds=900)
    await queue.send("in flight")
    held = await queue.receive(visibility=600)
    await clock.advance(59)
    assert await queue.counts() == (0, 2, 1)
    await queue.send("young")
    await clock.advance(1)
    assert await queue.counts() == (1, 0, 0)
    await queue.delete(*held)  # gone already, and no fault
    await queue.set(MessageRetentionPeriod=120)  # changes what is there, too
    await clock.advance(60)
    assert await queue.bodies() == ["young"]


async def test_handles_on_a_standard_queue(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, VisibilityTimeout=10)
    other = await AQueue.create(account, "other")
    await queue.send("lapsed")
    [first] = await queue.receive()
    await clock.advance(10)
    await queue.delete(first)  # its lease is over, and it was not received again
    assert await queue.counts() == (0, 0, 0)
    await queue.delete(first)  # and once more

    await queue.send("received again")
    [old] = await queue.receive()
    await clock.advance(10)
    [new] = await queue.receive()
    with pytest.raises(RefusedError, match="not available for visibility timeout change"):
        await queue.change(old, 5)
    await queue.delete(old)
    assert await queue.counts() == (0, 0, 0)
    await queue.delete(new)
    with pytest.raises(RefusedError, match="Message does not exist"):
        await queue.change(new, 5)

    await queue.send()
    [message] = await queue.receive()
    for handle in ("nonsense", message.receipt_handle[:-1], message.receipt_handle + "x"):
        with pytest.raises(ReceiptHandleIsInvalid) as caught:
            await queue.delete(handle)
        assert str(caught.value.message) == (
            f'The input receipt handle "{handle}" is not a valid receipt handle.'
        )
        assert (caught.value.status, caught.value.sender_fault) == (404, True)
    with pytest.raises(ReceiptHandleIsInvalid):
        await other.delete(message)


async def test_a_change_after_the_lease_does_nothing(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, VisibilityTimeout=1)
    await queue.send()
    [message] = await queue.receive()
    await clock.advance(1)
    await queue.change(message, 100)
    assert len(await queue.receive()) == 1


async def test_a_lease_lasts_twelve_hours_at_most(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    await queue.send()
    [message] = await queue.receive(visibility=43_200)
    await clock.advance(43_000)
    await queue.change(message, 200)
    with pytest.raises(RefusedError, match=r"beyond the limit \[43200 seconds\]"):
        await queue.change(message, 201)
    await clock.advance(200)
    assert await queue.counts() == (1, 0, 0)


async def test_too_many_messages_in_flight(
    account: Account, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.account.receiving.MAX_IN_FLIGHT", 12)
    queue = await AQueue.create(account)
    await queue.send_batch(*"0123456789")
    await queue.send_batch(*"abcdefghij")
    await queue.receive()
    [one, _] = await queue.receive()  # only up to the limit
    with pytest.raises(OverLimit):
        await queue.receive()
    poll = queue.poll()  # a long poll is told nothing, and waits
    await clock.advance(1)
    assert not poll.done()
    await queue.delete(one)
    await clock.settle()
    assert await poll == ["c"]

    fifo = await AQueue.create(account, "q.fifo")
    for number in range(13):
        await fifo.send(message_group_id=str(number))
    assert len(await fifo.receive()) + len(await fifo.receive()) == 12
    assert await fifo.receive() == []


async def test_purge_takes_everything(account: Account) -> None:
    queue = await AQueue.create(account)
    await queue.send_batch(*"abc")
    await queue.send(delay_seconds=10)
    [message] = await queue.receive(1)
    await account.execute(PurgeQueue(queue.url))
    assert await queue.counts() == (0, 0, 0)
    await queue.delete(message)
    await queue.send("after")
    assert await queue.bodies() == ["after"]


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        (None, []),
        ([], []),
        (["All"], ["a.b", "a.c", "ab", "z"]),
        ([".*"], ["a.b", "a.c", "ab", "z"]),
        (["a.*"], ["a.b", "a.c", "ab"]),
        (["a..*"], ["a.b", "a.c"]),
        (["z", "none"], ["z"]),
        (["none"], []),
        (["z", "a.b"], ["a.b", "z"]),
    ],
)
async def test_message_attributes_as_they_are_asked_for(
    account: Account, asked: list[str] | None, got: list[str]
) -> None:
    from pumphouse.protocol.attributes import md5_of_attributes
    from pumphouse.protocol.operations import MessageAttributeValue

    attributes = {
        name: MessageAttributeValue("String", name.upper()) for name in ("z", "ab", "a.b", "a.c")
    }
    queue = await AQueue.create(account)
    await queue.send(message_attributes=attributes)
    [message] = await queue.receive(message_attribute_names=asked)
    wanted = {name: attributes[name] for name in got} or None
    assert message.message_attributes == wanted
    assert message.md5_of_message_attributes == md5_of_attributes(wanted)


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ({}, set()),
        ({"attribute_names": ["SenderId"]}, {"SenderId"}),
        ({"message_system_attribute_names": ["SentTimestamp"]}, {"SentTimestamp"}),
        (
            {"attribute_names": ["SenderId"], "message_system_attribute_names": ["SentTimestamp"]},
            {"SenderId", "SentTimestamp"},
        ),
        ({"attribute_names": ["VisibilityTimeout"]}, set()),  # a queue's, and ignored
        ({"attribute_names": ["AWSTraceHeader"]}, set()),  # it has none
    ],
)
async def test_system_attributes_as_they_are_asked_for(
    account: Account, asked: dict[str, list[str]], got: set[str]
) -> None:
    queue = await AQueue.create(account)
    await queue.send()
    [message] = await queue.receive(**asked)
    assert set(message.attributes) == got


async def test_an_unknown_system_attribute_is_refused(account: Account) -> None:
    queue = await AQueue.create(account)
    for parameter in ("attribute_names", "message_system_attribute_names"):
        with pytest.raises(RefusedError, match="Unknown Attribute Nonsense") as caught:
            await queue.receive(**{parameter: ["Nonsense"]})
        assert caught.value.code == "InvalidAttributeName"


# --- fair queues --------------------------------------------------------------------------------


async def test_a_noisy_tenant_does_not_hold_up_a_quiet_one(account: Account) -> None:
    queue = await AQueue.create(account)
    for start in range(0, 40, 10):
        await queue.send_batch(
            *[f"n{start + each}" for each in range(10)], message_group_id="noisy"
        )
    held = [message for _ in range(2) for message in await queue.receive(10)]
    await queue.send("q", message_group_id="quiet")
    await queue.send("none")
    assert await queue.bodies(4) == ["q", "none", "n20", "n21"]
    await queue.delete(*held)
    await queue.send("q2", message_group_id="quiet")
    assert await queue.bodies(3) == ["n22", "n23", "n24"]  # noisy no more, and first again


async def test_a_single_tenants_order_is_kept(account: Account) -> None:
    queue = await AQueue.create(account)
    for start in range(0, 300, 10):
        await queue.send_batch(*[str(start + each) for each in range(10)], message_group_id="one")
    got = [body for _ in range(40) for body in await queue.bodies(8)]
    assert got == [str(number) for number in range(300)]


async def test_a_tenants_messages_lapse_and_outlive(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account, MessageRetentionPeriod=60, VisibilityTimeout=20)
    for _ in range(3):
        await queue.send_batch(*"abcdefghij", message_group_id="t")
    first = await queue.receive()
    await queue.receive(visibility=600)
    await queue.change(first[0], 0)
    await queue.delete(*first[1:3])
    await clock.advance(20)
    assert await queue.counts() == (18, 10, 0)
    await clock.advance(40)
    assert await queue.counts() == (0, 0, 0)
    assert account.queue("q")._tenants == {}  # type: ignore[attr-defined]


async def test_a_send_comes_after_what_became_visible_before_it(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    await queue.send("delayed", delay_seconds=5)
    await clock.advance(10)
    await queue.send("sent")
    assert await queue.bodies() == ["delayed", "sent"]


async def test_a_queue_that_is_only_sent_to_keeps_nothing_beyond_its_retention(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, MessageRetentionPeriod=60)
    for _ in range(10):
        await queue.send()
        await clock.advance(60)
    await queue.send()
    assert len(account.queue("q").messages) == 1
