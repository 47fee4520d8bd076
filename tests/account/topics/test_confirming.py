"""Subscriptions that have to be confirmed: queues of other account ids; how long tokens hold."""

from __future__ import annotations

import json

import pytest

from pumphouse.account import Account
from pumphouse.account.account import Scope
from pumphouse.clock import VirtualClock
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import CreateQueue, ReceiveMessage
from pumphouse.protocol.sns_operations import (
    ConfirmSubscription,
    CreateTopic,
    DeleteTopic,
    GetSubscriptionAttributes,
    ListSubscriptions,
    ListSubscriptionsByTopic,
    Publish,
    Subscribe,
)

OTHER = "111122223333"
DAY = 86_400
FIFO_TOPIC = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}


def other(account: Account) -> Scope:
    return account.within(account_id=OTHER)


def arn(queue: str, owner: str = OTHER) -> str:
    return f"arn:aws:sqs:us-east-1:{owner}:{queue}"


async def bodies(backend: Scope, queue: str) -> list[str]:
    answer = await backend.execute(ReceiveMessage(queue, max_number_of_messages=10))
    return [message.body for message in answer.messages]


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_a_queue_of_another_account_id_is_asked(account: Account, suffix: str) -> None:
    fifo = {"FifoQueue": "true"} if suffix else None
    topic = (
        await account.execute(CreateTopic(f"topic{suffix}", FIFO_TOPIC if suffix else None))
    ).topic_arn
    await other(account).execute(CreateQueue(f"queue{suffix}", fifo))
    group = "g" if suffix else None
    endpoint = arn(f"queue{suffix}")
    raw = {"RawMessageDelivery": "true"}
    assert (await account.execute(Subscribe(topic, "sqs", endpoint, raw))).subscription_arn == (
        "pending confirmation"
    )
    await account.execute(Publish("too early", topic, message_group_id=group))
    [body] = await bodies(other(account), f"queue{suffix}")
    asked = json.loads(body)
    assert (asked["Type"], asked["TopicArn"]) == ("SubscriptionConfirmation", topic)
    assert asked["Token"] in asked["SubscribeURL"]
    [listed] = (await account.execute(ListSubscriptionsByTopic(topic))).subscriptions
    assert listed.subscription_arn == "PendingConfirmation"
    done = await other(account).execute(ConfirmSubscription(topic, asked["Token"]))
    await account.execute(Publish("m", topic, message_group_id=group))
    shown = await account.execute(GetSubscriptionAttributes(str(done.subscription_arn)))
    assert shown.attributes["PendingConfirmation"] == "false"
    account.queue(endpoint).clear()
    await account.execute(Publish("n", topic, message_group_id=group))
    assert await bodies(other(account), f"queue{suffix}") == ["n"]


async def test_the_owner_of_a_queue_subscribes_it_to_any_topic(account: Account) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    await other(account).execute(CreateQueue("queue"))
    made = await other(account).execute(Subscribe(topic, "sqs", arn("queue")))
    await account.execute(Publish("m", topic))
    [body] = await bodies(other(account), "queue")
    assert json.loads(body)["Message"] == "m"
    own = (await other(account).execute(ListSubscriptions())).subscriptions
    assert [each.subscription_arn for each in own] == [made.subscription_arn]
    assert not (await account.execute(ListSubscriptions())).subscriptions
    assert (await account.execute(ListSubscriptionsByTopic(topic))).subscriptions == own
    await account.execute(DeleteTopic(topic))
    assert not (await other(account).execute(ListSubscriptions())).subscriptions


async def test_a_queue_that_is_not_there_is_asked_in_vain(account: Account) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    await account.execute(Subscribe(topic, "sqs", arn("queue")))
    [lost] = account.topics.undelivered
    assert lost.reason == f"there is no queue {arn('queue')}"


@pytest.mark.parametrize(("days", "holds"), [(0, True), (2, True), (2.001, False)])
async def test_a_token_holds_for_two_days(
    account: Account, clock: VirtualClock, days: float, holds: bool
) -> None:
    topic = (await account.execute(CreateTopic("topic"))).topic_arn
    asked = Subscribe(topic, "email", "someone@example.com", return_subscription_arn=True)
    subscription = str((await account.execute(asked)).subscription_arn)
    token = account.topics.subscriptions[subscription].token
    await clock.advance(days * DAY)
    confirm = ConfirmSubscription(topic, token)
    if holds:
        assert (await account.execute(confirm)).subscription_arn == subscription
        return
    with pytest.raises(RefusedError, match="Invalid parameter: Token"):
        await account.execute(confirm)
    await account.execute(asked)  # asks again, with another token
    again = account.topics.subscriptions[subscription].token
    assert (await account.execute(ConfirmSubscription(topic, again))).subscription_arn
