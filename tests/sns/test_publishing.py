"""A sink to a topic: batches, confirmation, faults, FIFO rules, claim checks, dead letters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.addressing import Topic, TopicArns
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.cli.replay import Options, replay_letters
from pumphouse.clock import VirtualClock
from pumphouse.confirmation import confirm, stored_in_topic
from pumphouse.errors import (
    MessageTooLargeError,
    OutcomeUnknownError,
    RefusedError,
    TopicDoesNotExist,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.operations import ReceivedMessage, ReceiveMessage
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    GetTopicAttributes,
    ListTopics,
    Publish,
    PublishBatch,
    PublishBatchResult,
    PublishBatchResultEntry,
    SetTopicAttributes,
)
from pumphouse.sink import Sink
from pumphouse.sink.outgoing import Outgoing
from sns.conftest import MakeSink
from support.sending import outcomes

ARN = "arn:aws:sns:us-east-1:000000000000:orders"


async def received(account: Account, queue: str) -> list[ReceivedMessage]:
    """Everything that is visible in a queue."""
    found: list[ReceivedMessage] = []
    url = account.queue(queue).url
    while True:
        asked = ReceiveMessage(
            url, ["All"], message_attribute_names=["All"], max_number_of_messages=10
        )
        messages = (await account.execute(asked)).messages
        if not messages:
            return found
        found += messages


def published(account: Account) -> list[list[str]]:
    return [
        [entry.message for entry in record.operation.publish_batch_request_entries]
        for record in account.ledger.of(PublishBatch)
    ]


async def test_many_travel_in_batches_of_ten_and_are_confirmed(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    sink = make()
    got = await outcomes(clock, [sink.send(f"m{n}") for n in range(35)])
    await sink.aclose()
    assert all(isinstance(each, Receipt) and each.topic_arn == ARN for each in got)
    assert len({each.message_id for each in got}) == 35
    assert [len(batch) for batch in published(account)] == [10, 10, 10, 5]
    assert len(account.ledger.of(ListTopics)) == 1, "looked up once"
    assert sorted(m.body for m in await received(account, "orders")) == sorted(
        f"m{n}" for n in range(35)
    )


async def test_a_batch_is_at_most_what_the_topic_takes(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    await account.execute(SetTopicAttributes(ARN, "MaximumMessageSize", "65536"))
    sink = make()
    await outcomes(clock, [sink.send("first")])  # the limit is learned with it
    got = await outcomes(clock, [sink.send("x" * 20_000) for _ in range(9)])
    assert all(isinstance(each, Receipt) for each in got)
    assert [len(batch) for batch in published(account)][1:] == [3, 3, 3]
    [error] = await outcomes(clock, [sink.send("x" * 65_537)])
    assert isinstance(error, MessageTooLargeError)
    assert error.limit == 65_536
    await sink.aclose()


async def test_a_topic_says_256_kib_where_it_says_nothing(
    clock: VirtualClock, make: MakeSink
) -> None:
    sink = make()
    [error] = await outcomes(clock, [sink.send("x" * 262_145)])
    assert isinstance(error, MessageTooLargeError)
    assert error.limit == 262_144
    await sink.aclose()


async def test_the_size_is_not_asked_where_it_may_not_be(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.refuse(GetTopicAttributes, "AuthorizationError")
    sink = make()
    got = await outcomes(clock, [sink.send("a"), sink.send("b")])
    assert all(isinstance(each, Receipt) for each in got)
    await sink.aclose()


async def test_only_failed_entries_are_sent_again(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.fail_entries(PublishBatch, [1, 4], code="InternalError", sender_fault=False)
    sink = make()
    got = await outcomes(clock, [sink.send(f"m{n}") for n in range(6)])
    await sink.aclose()
    assert all(isinstance(each, Receipt) for each in got)
    first, again = published(account)
    assert first == [f"m{n}" for n in range(6)]
    assert sorted(again) == ["m1", "m4"]


async def test_a_lost_answer_is_unknown_on_a_standard_topic_and_sent_again_on_fifo(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.lose_answer(PublishBatch)
    sink = make()
    [error] = await outcomes(clock, [sink.send("a")])
    await sink.aclose()
    assert isinstance(error, OutcomeUnknownError)

    account.faults.lose_answer(PublishBatch)
    sink = make("orders.fifo")
    [receipt] = await outcomes(clock, [sink.send("a", group_id="g", id="1")])
    await sink.aclose()
    assert isinstance(receipt, Receipt)
    assert receipt.sequence_number
    assert [m.body for m in await received(account, "orders.fifo")] == ["a"]


def outgoing(**fields: Any) -> Outgoing:
    message = Outgoing(None, 1, "", "")
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def test_what_is_confirmed_is_what_has_an_id() -> None:
    sent = [outgoing(deduplication_id=f"d{n}") for n in range(4)]
    answer = PublishBatchResult(
        successful=[
            PublishBatchResultEntry("0", "id-0", "001"),
            PublishBatchResultEntry("1", None),
            PublishBatchResultEntry("9", "stranger"),
            PublishBatchResultEntry(None, "nobody"),
            PublishBatchResultEntry("3", "id-3"),
            PublishBatchResultEntry("3", "id-3"),
        ]
    )
    confirmed = confirm(ARN, sent, answer, stored=stored_in_topic)
    first, *others = confirmed.outcomes
    assert first == Receipt("id-0", "", "001", "d0", ARN)
    assert all(isinstance(each, OutcomeUnknownError) for each in others)
    assert len(others) == 3
    assert confirmed.strangers == ["9", ""]


async def test_throttling_is_waited_for(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.throttle(PublishBatch, times=2)
    sink = make()
    [receipt] = await outcomes(clock, [sink.send("a")])
    assert isinstance(receipt, Receipt)
    assert sink.stats["retried"] == 2
    await sink.aclose()


async def test_the_order_of_a_group_holds_whatever_fails(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    account.faults.throttle(PublishBatch, times=1)
    account.faults.lose_answer(PublishBatch)
    sink = make("orders.fifo")
    sends = [sink.send(f"{n}", group_id=f"g{n % 3}", id=f"{n}") for n in range(30)]
    got = await outcomes(clock, sends)
    await sink.aclose()
    assert all(isinstance(each, Receipt) for each in got)
    bodies = [(m.attributes["MessageGroupId"], int(m.body)) for m in await drained(account)]
    assert len(bodies) == 30
    for group in ("g0", "g1", "g2"):
        numbers = [n for g, n in bodies if g == group]
        assert numbers == sorted(numbers)


async def drained(account: Account) -> list[ReceivedMessage]:
    """All of the FIFO queue, group by group, in its order."""
    from pumphouse.protocol.operations import DeleteMessage

    found: list[ReceivedMessage] = []
    url = account.queue("orders.fifo").url
    while messages := (
        await account.execute(ReceiveMessage(url, ["All"], max_number_of_messages=10))
    ).messages:
        for message in messages:
            await account.execute(DeleteMessage(url, message.receipt_handle))
        found += messages
    return found


async def test_fifo_rules_are_those_of_queues(make: MakeSink) -> None:
    sink = make("orders.fifo")
    with pytest.raises(UsageError, match="FIFO topic: give group_id"):
        await sink.send("a")
    await sink.aclose()
    sink = make()
    with pytest.raises(UsageError, match="standard topic, which takes no deduplication id"):
        await sink.send("a", deduplication_id="d")
    with pytest.raises(UsageError, match="delays nothing"):
        await sink.send("a", delay=5)
    await sink.aclose()


@pytest.mark.parametrize("subject", ["", "x" * 101, "a\nb", "a\u2028b", "a\x7fb", "\ud800", 7])
async def test_a_subject_that_sns_takes_not(make: MakeSink, subject: Any) -> None:
    sink = make()
    with pytest.raises(UsageError, match="subject"):
        await sink.send("a", subject=subject)
    await sink.aclose()


@pytest.mark.parametrize("body", ["no json", "[]", '{"sqs": "x"}', '{"default": 1}'])
async def test_a_structured_body_has_a_default(make: MakeSink, body: str) -> None:
    sink = make()
    with pytest.raises(UsageError, match="message_structure"):
        await sink.send(body, message_structure="json")
    with pytest.raises(UsageError, match="'json'"):
        await sink.send("{}", message_structure="yaml")
    await sink.aclose()


@pytest.mark.parametrize("subject", ["Hello", " Grüße 件名", "x" * 100])
async def test_subject_and_structure_travel(
    account: Account, clock: VirtualClock, make: MakeSink, subject: str
) -> None:
    body = {"default": "for all", "sqs": "for queues"}
    sink = make(batch=False)
    await outcomes(clock, [sink.send(body, subject=subject, message_structure="json")])
    await sink.aclose()
    [record] = account.ledger.of(Publish)
    assert record.operation.subject == subject
    assert [m.body for m in await received(account, "orders")] == ["for queues"]


async def test_a_queue_takes_neither_subject_nor_structure(account: Account) -> None:
    sink = Sink("orders", account)
    with pytest.raises(UsageError, match="are for messages to a Topic"):
        await sink.send("a", subject="s")
    await sink.aclose()


async def test_a_trace_header_goes_where_all_share_it(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    sink = make()
    await outcomes(clock, [sink.send(f"{n}", trace_header="Root=1-a") for n in range(2)])
    await outcomes(clock, [sink.send(f"{n}", trace_header=f"Root=1-{n}") for n in range(2)])
    await sink.aclose()
    headers = [record.operation.trace_header for record in account.ledger.of(PublishBatch)]
    assert headers == ["Root=1-a", None]


async def test_a_large_body_goes_to_the_claim_check_unless_sns_reads_it(
    account: Account, clock: VirtualClock, make: MakeSink
) -> None:
    store = MemoryBlobStore()
    check = ClaimCheck(store, inline_max_bytes=1_000)
    sink = make(claim_check=check)
    structured = json.dumps({"default": "y" * 2_000})
    got = await outcomes(
        clock, [sink.send("x" * 300_000), sink.send(structured, message_structure="json")]
    )
    await sink.aclose()
    assert all(isinstance(each, Receipt) for each in got)
    first, second = await received(account, "orders")
    assert (await check.restore(first.body, first.message_attributes))[0] == "x" * 300_000
    assert second.body == "y" * 2_000


async def test_a_name_is_looked_up_page_by_page_and_never_made(account: Account) -> None:
    for n in range(120):
        await account.execute(CreateTopic(f"topic-{n:03}"))
    arns = TopicArns(account)
    found = await arns.resolve(Topic("topic-119"))
    assert found.endswith(":topic-119")
    asked = len(account.ledger.of(ListTopics))
    assert asked == 2
    assert await arns.resolve(Topic("topic-119")) == found
    assert len(account.ledger.of(ListTopics)) == asked
    with pytest.raises(TopicDoesNotExist, match="'nowhere'"):
        await arns.resolve(Topic("nowhere"))
    assert await arns.resolve(Topic("arn:aws:sns:eu-west-1:123456789012:x")) == (
        "arn:aws:sns:eu-west-1:123456789012:x"
    )


@pytest.mark.parametrize(
    "reference", ["", "a b", "x" * 257, "arn:aws:sqs:us-east-1:000000000000:q", "arn:aws:sns", 7]
)
def test_what_is_no_topic(reference: Any) -> None:
    with pytest.raises(UsageError):
        Topic(reference)


async def test_what_failed_for_good_is_replayed_to_its_topic(
    account: Account, clock: VirtualClock, make: MakeSink, tmp_path: Path
) -> None:
    account.faults.refuse(PublishBatch, "InvalidParameter", times=1)
    sink = make(on_dead_letter=tmp_path)
    task = asyncio.ensure_future(sink.send("a", subject="S", attributes={"k": "v"}))
    # the dead letter is written by a thread, which virtual time does not wait for
    while not task.done():
        await clock.advance(1)
        await asyncio.sleep(0.001)
    assert isinstance(task.exception(), RefusedError)
    await sink.aclose()
    account.ledger.clear()
    done = await replay_letters(Options(str(tmp_path)), account)
    assert (done.stored, done.failed) == (1, [])
    [record] = account.ledger.of(PublishBatch)
    [entry] = record.operation.publish_batch_request_entries
    assert (entry.message, entry.subject) == ("a", "S")
