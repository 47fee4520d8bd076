"""Faults on purpose at SNS's operations, and what the ledger has of them."""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.errors import (
    OutcomeUnknownError,
    RefusedError,
    ServiceError,
    ThrottledError,
    UsageError,
)
from pumphouse.protocol.operations import AddPermission, CreateQueue
from pumphouse.protocol.sns_operations import (
    AddTopicPermission,
    CreateTopic,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    Subscribe,
)


@pytest.fixture
async def topic(account: Account) -> str:
    made = (await account.execute(CreateTopic("topic"))).topic_arn
    await account.execute(CreateQueue("queue"))
    await account.execute(
        Subscribe(
            made, "sqs", "arn:aws:sqs:us-east-1:000000000000:queue", {"RawMessageDelivery": "true"}
        )
    )
    return made


async def test_throttling_is_snss(account: Account, topic: str) -> None:
    account.faults.throttle(Publish)
    with pytest.raises(ThrottledError) as raised:
        await account.execute(Publish("m", topic))
    assert (raised.value.code, raised.value.message) == ("Throttling", "Rate exceeded")
    await account.execute(Publish("m", topic))
    assert account.queue("queue").visible == 1


async def test_some_entries_fail(account: Account, topic: str) -> None:
    account.faults.fail_entries(PublishBatch, [1], code="InternalError")
    entries = [PublishBatchRequestEntry(str(number), f"{number}") for number in range(3)]
    answer = await account.execute(PublishBatch(topic, entries))
    assert [each.id for each in answer.successful] == ["0", "2"]
    assert [(each.id, each.code) for each in answer.failed] == [("1", "InternalError")]
    assert account.queue("queue").visible == 2
    account.faults.fail_entries("PublishBatch", lambda entry: True)
    assert len((await account.execute(PublishBatch(topic, entries))).failed) == 3


async def test_a_lost_answer_was_carried_out(account: Account, topic: str) -> None:
    account.faults.lose_answer("Publish")
    with pytest.raises(OutcomeUnknownError):
        await account.execute(Publish("m", topic))
    assert account.queue("queue").visible == 1
    [entry] = account.ledger.of(Publish)
    assert isinstance(entry.error, OutcomeUnknownError)


async def test_a_refusal_is_spelled_as_the_service_spells_it(account: Account, topic: str) -> None:
    account.faults.refuse(PublishBatch, "TooManyEntriesInBatchRequest", "words")
    with pytest.raises(RefusedError) as raised:
        await account.execute(PublishBatch(topic, []))
    assert raised.value.query_code == "TooManyEntriesInBatchRequest"
    account.faults.refuse(Publish, "NeverHeardOf", "words")
    with pytest.raises(ServiceError, match="NeverHeardOf: words"):
        await account.execute(Publish("m", topic))


async def test_two_actions_of_one_name_are_told_apart_by_their_class(
    account: Account, topic: str
) -> None:
    account.faults.throttle(AddPermission)
    await account.execute(AddTopicPermission(topic, "l", ["123456789012"], ["Publish"]))
    with pytest.raises(ThrottledError):
        await account.execute(AddPermission("queue", "l", ["123456789012"], ["SendMessage"]))
    assert not account.faults
    account.faults.throttle("AddPermission")
    with pytest.raises(ThrottledError):
        await account.execute(AddTopicPermission(topic, "m", ["123456789012"], ["Publish"]))


async def test_an_action_that_is_none(account: Account) -> None:
    with pytest.raises(UsageError, match="no action"):
        account.faults.throttle("SetSMSAttributes")
