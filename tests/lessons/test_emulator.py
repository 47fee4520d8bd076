"""What people met in emulators of SQS: rows E1 to E5, and B8 to B10 as the account sees them."""

from __future__ import annotations

import json

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    ReceiptHandleExpired,
    RefusedError,
)
from pumphouse.protocol.operations import DeleteQueue, MessageAttributeValue, PurgeQueue
from support.a_queue import AQueue

# MD5s that real AWS answered with, for what was sent.
VECTORS: list[tuple[dict[str, MessageAttributeValue], str]] = [
    (
        {"timestamp": MessageAttributeValue("Number", "1493147359900")},
        "235c5c510d26fb653d073faed50ae77c",
    ),
    (
        {
            "General": MessageAttributeValue("String", "Kenobi"),
            "Hello": MessageAttributeValue("String", "There"),
            "Help.Me": MessageAttributeValue("String", "Me"),
        },
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    (
        {
            "Hello": MessageAttributeValue("String", "There"),
            "General": MessageAttributeValue("String", "Kenobi"),
        },
        "fca026605781cb4126a1e9044df24232",
    ),
    ({"Foo": MessageAttributeValue("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ({"k": MessageAttributeValue("String", "x")}, "a45daa70926828a2f0a1db3418e6feb4"),
]


@pytest.mark.parametrize(("attributes", "md5"), VECTORS)
async def test_e1_md5_of_attributes_is_that_of_aws(
    account: Account, attributes: dict[str, MessageAttributeValue], md5: str
) -> None:
    queue = await AQueue.create(account)
    sent = await queue.send(message_attributes=attributes)
    assert sent.md5_of_message_attributes == md5
    [message] = await queue.receive(message_attribute_names=["All"])
    assert message.md5_of_message_attributes == md5
    assert message.message_attributes == attributes


async def test_e1_md5_of_every_type_by_hand(account: Account) -> None:
    """The digest put together here from the developer guide's description, for what no recorded
    answer covers: labels, binary values, non-ASCII text and the order of names."""
    from hashlib import md5

    def part(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    attributes = {
        "z.last": MessageAttributeValue("Number.int", "42"),
        "a-first": MessageAttributeValue("Binary.png", binary_value=b"\x89PNG\x00\xff"),
        "Upper": MessageAttributeValue("String", "grüße \U0001f600"),
        "raw": MessageAttributeValue("Binary", binary_value=b"\x00"),
    }
    digest = md5()
    for name, attribute in sorted(attributes.items()):
        digest.update(part(name.encode()) + part(attribute.data_type.encode()))
        if attribute.binary_value is not None:
            digest.update(b"\x02" + part(attribute.binary_value))
        else:
            digest.update(b"\x01" + part((attribute.string_value or "").encode()))
    queue = await AQueue.create(account)
    sent = await queue.send(message_attributes=attributes)
    assert sent.md5_of_message_attributes == digest.hexdigest()


async def test_e1_no_attributes_no_md5(account: Account) -> None:
    queue = await AQueue.create(account)
    assert (await queue.send()).md5_of_message_attributes is None
    assert (await queue.send(message_attributes={})).md5_of_message_attributes is None
    for message in await queue.receive(message_attribute_names=["All"]):
        assert message.md5_of_message_attributes is None
        assert message.message_attributes is None


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_e2_the_age_of_a_dead_letter(
    account: Account, clock: VirtualClock, suffix: str
) -> None:
    dead = await AQueue.create(account, f"dead{suffix}", MessageRetentionPeriod=100)
    policy = {"deadLetterTargetArn": account.queue(dead.url).arn, "maxReceiveCount": 1}
    source = await AQueue.create(
        account, f"source{suffix}", RedrivePolicy=json.dumps(policy), VisibilityTimeout=0
    )
    sent = clock.now()
    await source.send("a")
    await clock.advance(60)
    await source.receive()
    assert await source.receive() == []
    moved = clock.now()
    [letter] = await dead.receive(visibility=0, attribute_names=["SentTimestamp"])
    kept = moved if suffix else sent
    assert letter.attributes["SentTimestamp"] == str(int(kept * 1000))
    await clock.advance(39)
    assert await dead.bodies(visibility=0) == ["a"]
    await clock.advance(1)  # a hundred seconds after it was sent
    assert await dead.bodies(visibility=0) == (["a"] if suffix else [])
    await clock.advance(60)  # a hundred seconds after it was moved
    assert await dead.bodies(visibility=0) == []


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_e3_a_queue_is_deleted_under_parked_receives(
    account: Account, clock: VirtualClock, name: str
) -> None:
    queue = await AQueue.create(account, name)
    polls = [queue.poll() for _ in range(3)]
    await clock.settle()
    await account.execute(DeleteQueue(queue.url))
    await clock.settle()
    for poll in polls:
        assert poll.done()
        with pytest.raises(QueueDoesNotExist):
            await poll
    assert clock.next_timer is None

    account.sixty_second_rules = False
    again = await AQueue.create(account, name)
    await again.send("a")
    await clock.advance(20)
    assert await again.counts() == (1, 0, 0)  # nobody from before took it


async def test_e3_a_woken_receive_finds_the_queue_deleted(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    poll = queue.poll()
    await clock.settle()
    await queue.send("a")  # it is woken, and has not run yet
    await account.execute(DeleteQueue(queue.url))
    with pytest.raises(QueueDoesNotExist):
        await poll


async def test_e4_the_head_is_extended_and_its_successors_stay_blocked(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account, "q.fifo", VisibilityTimeout=10)
    await queue.send_batch(*"abc")
    [head] = await queue.receive(1)
    for _ in range(5):
        await clock.advance(9)
        await queue.change(head, 10)
        assert await queue.receive() == []
    await queue.delete(head)
    assert await queue.bodies() == ["b", "c"]


async def test_e4_a_delete_after_the_lease(account: Account, clock: VirtualClock) -> None:
    for name in ("q", "q.fifo"):
        queue = await AQueue.create(account, name, VisibilityTimeout=10)
        await queue.send("a")
        [message] = await queue.receive()
        await clock.advance(10)
        if queue.is_fifo:
            with pytest.raises(ReceiptHandleExpired):
                await queue.delete(message)
            assert await queue.bodies() == ["a"]
        else:
            await queue.delete(message)
            assert await queue.bodies() == []


async def test_e5_a_second_purge_within_sixty_seconds(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    await account.execute(PurgeQueue(queue.url))
    await clock.advance(59)
    with pytest.raises(PurgeQueueInProgress) as caught:
        await account.execute(PurgeQueue(queue.url))
    assert caught.value.message == (
        "Only one PurgeQueue operation on q is allowed every 60 seconds."
    )
    assert caught.value.status == 403
    account.sixty_second_rules = False
    await account.execute(PurgeQueue(queue.url))
    account.sixty_second_rules = True
    await clock.advance(60)
    await account.execute(PurgeQueue(queue.url))


async def test_e5_a_queue_made_again_within_sixty_seconds(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    await account.execute(DeleteQueue(queue.url))
    await clock.advance(59)
    with pytest.raises(QueueDeletedRecently) as caught:
        await AQueue.create(account)
    assert caught.value.message == (
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name."
    )
    await AQueue.create(account, "other")
    account.sixty_second_rules = False
    await AQueue.create(account)
    account.sixty_second_rules = True
    await account.execute(DeleteQueue(queue.url))
    await clock.advance(60)
    await AQueue.create(account)


@pytest.mark.parametrize("length", [127, 128, 129])
async def test_b8_the_length_of_a_deduplication_id(account: Account, length: int) -> None:
    queue = await AQueue.create(account, "q.fifo")
    text = "x" * length
    if length <= 128:
        await queue.send(message_deduplication_id=text, message_group_id=text)
        [message] = await queue.receive(attribute_names=["All"])
        assert message.attributes["MessageDeduplicationId"] == text
        assert message.attributes["MessageGroupId"] == text
        return
    for parameter in ("message_deduplication_id", "message_group_id"):
        with pytest.raises(RefusedError, match="1 to 128 in length") as caught:
            await queue.send(**{parameter: text})
        assert caught.value.code == "InvalidParameterValue"
    assert await queue.counts() == (0, 0, 0)


@pytest.mark.parametrize("text", ["", "a b", "é", "a\n", "a\x00"])
async def test_b8_the_characters_of_a_deduplication_id(account: Account, text: str) -> None:
    queue = await AQueue.create(account, "q.fifo")
    with pytest.raises(RefusedError) as caught:
        await queue.send(message_deduplication_id=text)
    assert caught.value.message == (
        f"Value {text} for parameter MessageDeduplicationId is invalid. Reason: "
        "MessageDeduplicationId can only include alphanumeric and punctuation characters. "
        "1 to 128 in length."
    )


async def test_b9_a_delay_of_its_own_on_a_fifo_queue(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    with pytest.raises(RefusedError) as caught:
        await queue.send(delay_seconds=5)
    assert caught.value.message == (
        "Value 5 for parameter DelaySeconds is invalid. Reason: The request include parameter "
        "that is not valid for this queue type."
    )
    await queue.send("zero", delay_seconds=0)
    await queue.send("none", delay_seconds=None)
    assert await queue.bodies() == ["zero", "none"]


async def test_b10_a_group_on_a_standard_queue(account: Account) -> None:
    queue = await AQueue.create(account)
    for number in range(4):
        sent = await queue.send(str(number), message_group_id="tenant")
        assert sent.sequence_number is None
    first = await queue.receive(2, attribute_names=["MessageGroupId"])
    assert [message.attributes for message in first] == [{"MessageGroupId": "tenant"}] * 2
    assert await queue.bodies() == ["2", "3"]  # though two of the group are in flight
