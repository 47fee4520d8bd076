"""What becomes of a message that is published, on the virtual clock: doubles, sizes, dead letters,
deliveries over HTTP and their retries, and the end of them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from pumphouse.account import Account
from pumphouse.account.topics.delivery_policy import (
    BadDeliveryPolicyError,
    RetryPlan,
    check_subscription_policy,
    check_topic_policy,
    effective_policy,
    plan_of,
)
from pumphouse.account.topics.notifying import HttpDelivery, is_loopback
from pumphouse.account.topics.signing import UNSIGNED, Signer, string_to_sign
from pumphouse.clock import VirtualClock
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteQueue,
    MessageAttributeValue,
    ReceivedMessage,
    ReceiveMessage,
)
from pumphouse.protocol.sns_operations import (
    ConfirmSubscription,
    CreateTopic,
    DeleteTopic,
    GetSubscriptionAttributes,
    GetTopicAttributes,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    SetSubscriptionAttributes,
    SetTopicAttributes,
    Subscribe,
    Unsubscribe,
)

RAW = {"RawMessageDelivery": "true"}
FIFO_TOPIC = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
HOOK = "http://127.0.0.1:9/hook"


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


async def make(account: Account, *queues: str, topic: str = "topic", **attributes: str) -> str:
    made = (await account.execute(CreateTopic(topic, attributes or None))).topic_arn
    for queue in queues:
        fifo = {"FifoQueue": "true"} if queue.endswith(".fifo") else None
        await account.execute(CreateQueue(queue, fifo))
        await account.execute(Subscribe(made, "sqs", arn(queue), RAW))
    return made


async def received(account: Account, queue: str) -> list[ReceivedMessage]:
    operation = ReceiveMessage(
        queue, attribute_names=["All"], message_attribute_names=["All"], max_number_of_messages=10
    )
    return (await account.execute(operation)).messages


async def bodies(account: Account, queue: str) -> list[str]:
    return [message.body for message in await received(account, queue)]


# --- doubles and order --------------------------------------------------------------------------


async def test_a_double_is_noticed_for_five_minutes(account: Account, clock: VirtualClock) -> None:
    topic = await make(account, "queue", topic="topic.fifo", **FIFO_TOPIC)
    first = await account.execute(Publish("m", topic, message_group_id="g"))
    await clock.advance(299)
    assert await account.execute(Publish("m", topic, message_group_id="g")) == first
    await clock.advance(1)
    again = await account.execute(Publish("m", topic, message_group_id="g"))
    assert again.message_id != first.message_id
    assert int(again.sequence_number or 0) > int(first.sequence_number or 0)
    assert await bodies(account, "queue") == ["m", "m"]


@pytest.mark.parametrize(("scope", "count"), [("Topic", 1), ("MessageGroup", 2)])
async def test_doubles_are_those_of_the_topic_or_of_a_group(
    account: Account, scope: str, count: int
) -> None:
    more = {**FIFO_TOPIC, "FifoThroughputScope": scope}
    topic = await make(account, "queue", topic="topic.fifo", **more)
    for group in ("a", "b", "a"):
        await account.execute(
            Publish("m", topic, message_group_id=group, message_deduplication_id="d")
        )
    assert await bodies(account, "queue") == ["m"] * count


async def test_the_scope_of_doubles_can_be_changed(account: Account) -> None:
    topic = await make(account, "queue", topic="topic.fifo", **FIFO_TOPIC)
    await account.execute(SetTopicAttributes(topic, "FifoThroughputScope", "MessageGroup"))
    shown = (await account.execute(GetTopicAttributes(topic))).attributes
    assert shown["FifoThroughputScope"] == "MessageGroup"
    for group in ("a", "b"):
        await account.execute(Publish("m", topic, message_group_id=group))
    assert len(await bodies(account, "queue")) == 2


async def test_a_fifo_queue_has_each_group_in_order(account: Account) -> None:
    topic = await make(account, "queue.fifo", topic="topic.fifo", **FIFO_TOPIC)
    entries = [
        PublishBatchRequestEntry(str(n), f"{n}", message_group_id="ab"[n % 2]) for n in range(10)
    ]
    answer = await account.execute(PublishBatch(topic, entries))
    numbers = [int(each.sequence_number or 0) for each in answer.successful]
    assert numbers == sorted(numbers)
    messages = await received(account, "queue.fifo")
    for group in "ab":
        mine = [int(m.body) for m in messages if m.attributes["MessageGroupId"] == group]
        assert mine == sorted(mine)
        assert len(mine) == 5


async def test_a_standard_topic_passes_on_the_group(account: Account) -> None:
    topic = await make(account, "queue")
    await account.execute(Publish("m", topic, message_group_id="tenant"))
    [message] = await received(account, "queue")
    assert message.attributes["MessageGroupId"] == "tenant"
    with pytest.raises(RefusedError, match="not valid for this topic type"):
        await account.execute(Publish("m", topic, message_deduplication_id="d"))


async def test_a_fifo_topic_tells_a_standard_queue_no_group(account: Account) -> None:
    topic = await make(account, "ordered.fifo", "plain", topic="topic.fifo", **FIFO_TOPIC)
    await account.execute(Publish("m", topic, message_group_id="g"))
    [message] = await received(account, "ordered.fifo")
    assert message.attributes["MessageGroupId"] == "g"
    [message] = await received(account, "plain")
    assert "MessageGroupId" not in message.attributes
    assert "MessageDeduplicationId" not in message.attributes


async def test_what_fifo_and_standard_refuse_of_each_other(account: Account) -> None:
    standard = await make(account)
    fifo = await make(account, topic="topic.fifo", **FIFO_TOPIC)
    with pytest.raises(RefusedError, match="FIFO SQS Queues can not be subscribed to standard"):
        await account.execute(Subscribe(standard, "sqs", arn("queue.fifo")))
    with pytest.raises(RefusedError, match="Invalid protocol type: http"):
        await account.execute(Subscribe(fifo, "http", HOOK))
    subscription = await account.execute(Subscribe(fifo, "sqs", arn("queue.fifo")))
    policy = json.dumps({"deadLetterTargetArn": arn("dead")})
    with pytest.raises(RefusedError, match="must use a FIFO queue as DLQ"):
        await account.execute(
            SetSubscriptionAttributes(subscription.subscription_arn or "", "RedrivePolicy", policy)
        )


# --- sizes --------------------------------------------------------------------------------------


async def test_the_size_is_the_topics(account: Account) -> None:
    topic = await make(account, "queue")
    value = MessageAttributeValue("String", "v")
    await account.execute(SetTopicAttributes(topic, "MaximumMessageSize", "1024"))
    most = 1024 - len("kStringv")
    await account.execute(Publish("x" * most, topic, message_attributes={"k": value}))
    with pytest.raises(RefusedError, match="Message too long"):
        await account.execute(Publish("x" * (most + 1), topic, message_attributes={"k": value}))
    entries = [PublishBatchRequestEntry("1", "x" * 1000), PublishBatchRequestEntry("2", "y" * 25)]
    with pytest.raises(RefusedError) as raised:
        await account.execute(PublishBatch(topic, entries))
    assert raised.value.code == "BatchRequestTooLong"
    await account.execute(SetTopicAttributes(topic, "MaximumMessageSize", "1048576"))
    await account.execute(Publish("é" * 524_288, topic))
    assert len((await bodies(account, "queue"))[1]) == 524_288
    for wrong in ("1023", "1048577", "much", ""):
        with pytest.raises(RefusedError, match="MaximumMessageSize"):
            await account.execute(SetTopicAttributes(topic, "MaximumMessageSize", wrong))


async def test_a_topic_of_large_messages_has_few_subscriptions_and_to_queues(
    account: Account,
) -> None:
    topic = await make(account)
    await account.execute(SetTopicAttributes(topic, "MaximumMessageSize", "300000"))
    for number in range(100):
        await account.execute(Subscribe(topic, "sqs", arn(f"q{number}")))
    for operation in (Subscribe(topic, "sqs", arn("one-more")), Subscribe(topic, "http", HOOK)):
        with pytest.raises(RefusedError, match="MaximumMessageSize"):
            await account.execute(operation)
    other = await make(account, topic="other")
    await account.execute(Subscribe(other, "http", HOOK))
    with pytest.raises(RefusedError, match="MaximumMessageSize"):
        await account.execute(SetTopicAttributes(other, "MaximumMessageSize", "300000"))


async def test_what_a_queue_does_not_take_is_a_dead_letter(account: Account) -> None:
    topic = await make(account, "small", "other")
    await account.execute(CreateQueue("dead"))
    await account.execute(DeleteQueue("small"))
    account.sixty_second_rules = False
    await account.execute(CreateQueue("small", {"MaximumMessageSize": "1024"}))
    policy = json.dumps({"deadLetterTargetArn": arn("dead")})
    small = next(each for each in account.topics.subscriptions.values() if "small" in each.endpoint)
    await account.execute(SetSubscriptionAttributes(small.arn, "RedrivePolicy", policy))
    await account.execute(Publish("x" * 2000, topic))
    assert await bodies(account, "small") == []
    assert [len(body) for body in await bodies(account, "dead")] == [2000]
    assert [len(body) for body in await bodies(account, "other")] == [2000]


async def test_raw_delivery_takes_ten_attributes(account: Account) -> None:
    topic = await make(account, "raw")
    await account.execute(CreateQueue("enveloped"))
    await account.execute(Subscribe(topic, "sqs", arn("enveloped")))
    for count in (10, 11):
        attributes = {f"k{n}": MessageAttributeValue("String", "v") for n in range(count)}
        await account.execute(Publish(str(count), topic, message_attributes=attributes))
    assert await bodies(account, "raw") == ["10"]
    envelopes = [json.loads(body) for body in await bodies(account, "enveloped")]
    assert [len(each["MessageAttributes"]) for each in envelopes] == [10, 11]
    [lost] = account.topics.undelivered
    assert "[11] exceeds the allowed maximum [10]" in lost.reason


async def test_a_message_for_no_queue_is_told_of(account: Account) -> None:
    topic = await make(account)
    done = await account.execute(Subscribe(topic, "sqs", arn("nowhere")))
    sent = await account.execute(Publish("m", topic))
    [lost] = account.topics.undelivered
    assert (lost.subscription_arn, lost.message_id) == (done.subscription_arn, sent.message_id)
    assert lost.reason == f"there is no queue {arn('nowhere')}"


async def test_topics_of_other_accounts_and_regions(account: Account) -> None:
    topic = await make(account, "queue")
    other = account.within(account_id="111111111111")
    await other.execute(Publish("from another account", topic))
    assert await bodies(account, "queue") == ["from another account"]
    elsewhere = account.within(region="eu-west-1")
    there = (await elsewhere.execute(CreateTopic("topic"))).topic_arn
    assert there == "arn:aws:sns:eu-west-1:000000000000:topic"
    await elsewhere.execute(Subscribe(there, "sqs", arn("queue"), RAW))
    await elsewhere.execute(Publish("from afar", there))
    assert await bodies(account, "queue") == ["from afar"]


async def test_a_deleted_topic_delivers_no_more(account: Account) -> None:
    topic = await make(account, "queue")
    await account.execute(DeleteTopic(topic))
    again = (await account.execute(CreateTopic("topic"))).topic_arn
    assert again == topic
    await account.execute(Publish("m", topic))
    assert await bodies(account, "queue") == []


async def test_what_is_over_is_forgotten(account: Account, clock: VirtualClock) -> None:
    for number in range(3):
        topic = await make(account, topic=f"t{number}")
        await account.execute(Subscribe(topic, "sqs", arn("queue")))
        await account.execute(Subscribe(topic, "http", HOOK))
        await account.execute(DeleteTopic(topic))
        await clock.advance(61)
    assert len(account.topics.subscriptions) <= 2
    assert not account.topics.by_token


async def test_a_pending_subscription_that_was_ended_is_confirmed_no_more(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    pending = await notifying.execute(Subscribe(topic, "http", HOOK, return_subscription_arn=True))
    await clock.settle()
    token = endpoint.bodies()[-1]["Token"]
    await notifying.execute(Unsubscribe(pending.subscription_arn or ""))
    with pytest.raises(RefusedError, match="Token"):
        await notifying.execute(ConfirmSubscription(topic, token))


# --- deliveries over HTTP -----------------------------------------------------------------------


class Endpoint:
    """What an account is given to deliver with: it keeps what it is given, and when."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.came: list[tuple[float, HttpDelivery]] = []
        self.answer: Callable[[], int] = lambda: 200

    async def deliver(self, delivery: HttpDelivery) -> int:
        self.came.append((self.clock.monotonic(), delivery))
        return self.answer()

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.came]

    def bodies(self) -> list[Any]:
        return [json.loads(delivery.body) for _, delivery in self.came]


@pytest.fixture
def endpoint(clock: VirtualClock) -> Endpoint:
    return Endpoint(clock)


@pytest.fixture
def notifying(clock: VirtualClock, endpoint: Endpoint) -> Account:
    return Account(clock=clock, deliver=endpoint.deliver)


async def confirmed(account: Account, endpoint: Endpoint, topic: str, **attributes: str) -> str:
    await account.execute(Subscribe(topic, "http", HOOK, attributes or None))
    await endpoint.clock.settle()
    token = endpoint.bodies()[-1]["Token"]
    done = await account.execute(ConfirmSubscription(topic, token))
    endpoint.came.clear()
    return done.subscription_arn or ""


async def test_three_retries_twenty_seconds_apart(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await confirmed(notifying, endpoint, topic)
    endpoint.answer = lambda: 503
    await notifying.execute(Publish("m", topic))
    await clock.advance(3600)
    assert endpoint.times == [0, 20, 40, 60]
    [lost] = notifying.topics.undelivered
    assert lost.reason == "the endpoint answered 503"
    assert notifying.topics.notifier.under_way == 0


@pytest.mark.parametrize("status", [301, 400, 404, 410])
async def test_what_is_refused_is_not_tried_again(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock, status: int
) -> None:
    topic = await make(notifying)
    await confirmed(notifying, endpoint, topic)
    endpoint.answer = lambda: status
    await notifying.execute(Publish("m", topic))
    await clock.advance(3600)
    assert len(endpoint.came) == 1


async def test_no_connection_and_no_answer_are_tried_again(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await confirmed(notifying, endpoint, topic)
    answers = iter([ConnectionRefusedError("refused"), None, 200])

    async def deliver(delivery: HttpDelivery) -> int:
        endpoint.came.append((clock.monotonic(), delivery))
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        if answer is None:
            await clock.sleep(1000)
        return 200

    notifying.topics.notifier._deliver = deliver
    await notifying.execute(Publish("m", topic))
    await clock.advance(3600)
    assert endpoint.times == [0, 20, 55]  # an answer is waited for fifteen seconds
    assert not notifying.topics.undelivered


async def test_a_slow_endpoint_holds_up_nobody(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying, "queue")
    await confirmed(notifying, endpoint, topic)
    endpoint.answer = lambda: 500
    for number in range(3):
        await notifying.execute(Publish(f"{number}", topic))
    assert await bodies(notifying, "queue") == ["0", "1", "2"]
    await clock.settle()
    assert notifying.topics.notifier.under_way == 3
    assert endpoint.times == [0, 0, 0]


async def test_deliveries_end_with_the_account(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await confirmed(notifying, endpoint, topic)
    endpoint.answer = lambda: 500
    await notifying.execute(Publish("m", topic))
    await clock.settle()
    await notifying.execute(Publish("not begun", topic))
    before = asyncio.all_tasks()
    assert len(before) > 1
    await notifying.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert notifying.topics.notifier.under_way == 0
    await notifying.aclose()
    endpoint.came.clear()
    await notifying.execute(Publish("afterwards", topic))  # the account can be used on
    await clock.settle()
    assert len(endpoint.came) == 1
    await notifying.aclose()


async def test_an_endpoint_gets_raw_messages_too(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await confirmed(notifying, endpoint, topic, **RAW)
    attributes = {"k": MessageAttributeValue("String", "v")}
    await notifying.execute(Publish("not JSON", topic, message_attributes=attributes))
    await clock.settle()
    [(_, delivery)] = endpoint.came
    assert delivery.body == b"not JSON"
    assert delivery.headers["x-amz-sns-rawdelivery"] == "true"
    assert "not JSON" not in repr(delivery)


async def test_dead_letters_of_an_endpoint(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await notifying.execute(CreateQueue("dead"))
    policy = json.dumps({"deadLetterTargetArn": arn("dead")})
    await confirmed(notifying, endpoint, topic, RedrivePolicy=policy, **RAW)
    endpoint.answer = lambda: 500
    await notifying.execute(Publish("m", topic))
    await clock.advance(59)
    assert await bodies(notifying, "dead") == []
    await clock.advance(1)
    assert await bodies(notifying, "dead") == ["m"]


async def test_a_pending_subscription_gets_nothing_and_an_ended_one_is_told(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    await notifying.execute(Subscribe(topic, "http", HOOK))
    await notifying.execute(Publish("too early", topic))
    await clock.settle()
    assert [each["Type"] for each in endpoint.bodies()] == ["SubscriptionConfirmation"]
    subscription = await confirmed(notifying, endpoint, topic)
    await notifying.execute(Unsubscribe(subscription))
    await notifying.execute(Publish("too late", topic))
    await clock.settle()
    assert [each["Type"] for each in endpoint.bodies()] == ["UnsubscribeConfirmation"]


async def test_an_account_that_delivers_over_http_to_nobody_says_so(account: Account) -> None:
    topic = await make(account)
    await account.execute(Subscribe(topic, "http", HOOK))
    assert "no function that delivers" in account.topics.undelivered[-1].reason


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:80/x", True),
        ("http://127.5.5.5/", True),
        ("http://[::1]:8000/", True),
        ("https://localhost/x", True),
        ("http://localhost.example.com/", False),
        ("http://127.0.0.1@192.0.2.1/", False),
        ("http://0.0.0.0/", False),
        ("http://10.0.0.1/", False),
        ("http://[::ffff:10.0.0.1]/", False),
        ("http://2130706433/", False),
        ("http:///x", False),
        ("nonsense", False),
    ],
)
def test_which_endpoints_are_on_this_machine(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


async def test_an_endpoint_is_sent_twenty_requests_at_a_time(clock: VirtualClock) -> None:
    under_way: dict[str, int] = {}
    most: dict[str, int] = {}
    answer = asyncio.Event()

    async def deliver(delivery: HttpDelivery) -> int:
        url = delivery.url
        under_way[url] = under_way.get(url, 0) + 1
        most[url] = max(most.get(url, 0), under_way[url])
        if not url.endswith("free"):
            await answer.wait()
        under_way[url] -= 1
        return 200

    account = Account(clock=clock, deliver=deliver)
    topic = await make(account)
    hung, free = "http://127.0.0.1:9/hung", "http://127.0.0.1:10/free"
    for url in (hung, free):
        await account.execute(Subscribe(topic, "http", url))
    for subscription in account.topics.subscriptions.values():
        await account.execute(ConfirmSubscription(topic, subscription.token))
    for number in range(60):
        await account.execute(Publish(f"{number}", topic))
    await clock.settle()
    assert (most[hung], under_way[hung], under_way[free]) == (20, 20, 0)
    assert account.topics.notifier.under_way == 61, "the request to confirm is under way as well"
    answer.set()
    await clock.settle()
    assert (account.topics.notifier.under_way, most[hung]) == (0, 20)
    assert not account.topics.undelivered


# --- delivery policies --------------------------------------------------------------------------


def plan(**rules: Any) -> RetryPlan:
    policy = json.dumps({"healthyRetryPolicy": rules})
    check_subscription_policy("", policy)
    return plan_of("", policy)


def test_the_phases_of_a_delivery_policy() -> None:
    phases = plan(
        numRetries=8,
        numNoDelayRetries=2,
        numMinDelayRetries=1,
        numMaxDelayRetries=2,
        minDelayTarget=10,
        maxDelayTarget=40,
    )
    assert list(phases.delays()) == [0, 0, 10, 20, 30, 40, 40, 40]
    assert list(plan(numRetries=0).delays()) == []
    grows = plan(numRetries=2, minDelayTarget=1, maxDelayTarget=16, backoffFunction="geometric")
    assert list(grows.delays()) == [4, 16]


@pytest.mark.parametrize("function", ["linear", "arithmetic", "geometric", "exponential"])
def test_every_function_grows_from_the_least_to_the_greatest(function: str) -> None:
    delays = list(
        plan(numRetries=10, minDelayTarget=2, maxDelayTarget=50, backoffFunction=function).delays()
    )
    assert delays == sorted(delays)
    assert delays[-1] == pytest.approx(50)
    assert delays[0] >= 2


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "[]",
        '{"unknown": 1}',
        '{"healthyRetryPolicy": {"numRetries": 101}}',
        '{"healthyRetryPolicy": {"numRetries": -1}}',
        '{"healthyRetryPolicy": {"numRetries": "3"}}',
        '{"healthyRetryPolicy": {"minDelayTarget": 30, "maxDelayTarget": 20}}',
        '{"healthyRetryPolicy": {"numRetries": 1, "numNoDelayRetries": 2}}',
        '{"healthyRetryPolicy": {"backoffFunction": "guess"}}',
        '{"healthyRetryPolicy": {"numRetries": 100, "minDelayTarget": 60, "maxDelayTarget": 60}}',
        '{"healthyRetryPolicy": {"other": 1}}',
        '{"healthyRetryPolicy": []}',
        '{"healthyRetryPolicy": {"minDelayTarget": 0}}',
        '{"healthyRetryPolicy": {"maxDelayTarget": 3601}}',
        '{"sicklyRetryPolicy": 1}',
        '{"throttlePolicy": {"maxReceivesPerSecond": 0}}',
        '{"throttlePolicy": {"maxReceivesPerSecond": true}}',
        '{"throttlePolicy": {"other": 1}}',
        '{"requestPolicy": 5}',
        '{"requestPolicy": {"headerContentType": 5}}',
        '{"requestPolicy": {"headerContentType": "nonsense"}}',
        '{"requestPolicy": {"headerContentType": "text/plain\\r\\nx: y"}}',
        '{"requestPolicy": {"other": "text/plain"}}',
        '{"guaranteed": 1}',
    ],
)
def test_a_delivery_policy_that_can_not_be_used(policy: str) -> None:
    with pytest.raises(BadDeliveryPolicyError):
        check_subscription_policy("", policy)


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "[]",
        '{"unknown": 1}',
        '{"http": []}',
        '{"http": {"unknown": 1}}',
        '{"http": {"defaultHealthyRetryPolicy": {"minDelayTarget": 0}}}',
        '{"http": {"defaultSicklyRetryPolicy": "x"}}',
        '{"http": {"defaultRequestPolicy": "x"}}',
        '{"http": {"defaultRequestPolicy": {"headerContentType": ["text/plain"]}}}',
        '{"http": {"defaultThrottlePolicy": {"maxReceivesPerSecond": -1}}}',
        '{"http": {"disableSubscriptionOverrides": "true"}}',
    ],
)
async def test_a_topics_delivery_policy_that_can_not_be_used(account: Account, policy: str) -> None:
    topic = await make(account)
    with pytest.raises(BadDeliveryPolicyError):
        check_topic_policy(policy)
    with pytest.raises(RefusedError) as raised:
        await account.execute(SetTopicAttributes(topic, "DeliveryPolicy", policy))
    assert raised.value.message.startswith("Invalid parameter: DeliveryPolicy: ")
    assert "DeliveryPolicy" not in (await account.execute(GetTopicAttributes(topic))).attributes


async def test_a_delivery_policy_is_refused_in_aws_words(account: Account) -> None:
    topic = await make(account)
    policy = '{"healthyRetryPolicy": {"numRetries": 0, "minDelayTarget": 0, "maxDelayTarget": 0}}'
    with pytest.raises(RefusedError) as raised:
        await account.execute(Subscribe(topic, "http", HOOK, {"DeliveryPolicy": policy}))
    assert raised.value.message == (
        "Invalid parameter: Attributes Reason: DeliveryPolicy: "
        "healthyRetryPolicy.minDelayTarget must be greater than or equal to 1"
    )


async def test_a_delivery_policy_that_was_shown_can_be_set_again(account: Account) -> None:
    topic = await make(account)
    asked = Subscribe(topic, "http", HOOK, {}, return_subscription_arn=True)
    subscription = str((await account.execute(asked)).subscription_arn)

    async def shown() -> tuple[dict[str, str], dict[str, str]]:
        return (
            (await account.execute(GetTopicAttributes(topic))).attributes,
            (await account.execute(GetSubscriptionAttributes(subscription))).attributes,
        )

    before = await shown()
    policies = [each["EffectiveDeliveryPolicy"] for each in before]
    await account.execute(SetTopicAttributes(topic, "DeliveryPolicy", policies[0]))
    await account.execute(SetSubscriptionAttributes(subscription, "DeliveryPolicy", policies[1]))
    after = await shown()
    assert [each["DeliveryPolicy"] for each in after] == policies
    assert [each["EffectiveDeliveryPolicy"] for each in after] == policies


async def test_what_is_in_force_follows_the_topics_policy(account: Account) -> None:
    topic = await make(account)
    own = json.dumps({"healthyRetryPolicy": {"numRetries": 2}})
    asked = Subscribe(topic, "http", HOOK, {"DeliveryPolicy": own}, return_subscription_arn=True)
    subscription = str((await account.execute(asked)).subscription_arn)

    async def in_force(**http: Any) -> tuple[int, int, str]:
        policy = json.dumps({"http": http})
        await account.execute(SetTopicAttributes(topic, "DeliveryPolicy", policy))
        attributes = (await account.execute(GetSubscriptionAttributes(subscription))).attributes
        shown = json.loads(attributes["EffectiveDeliveryPolicy"])
        plan = account.topics.subscriptions[subscription].plan
        rules, request = shown["healthyRetryPolicy"], shown["requestPolicy"]
        assert (plan.retries, plan.least_seconds, plan.content_type) == (
            rules["numRetries"],
            rules["minDelayTarget"],
            request["headerContentType"],
        )
        return plan.retries, plan.least_seconds, plan.content_type

    rules = {"numRetries": 7, "minDelayTarget": 5}
    xml = {"headerContentType": "application/xml"}
    text = "text/plain; charset=UTF-8"
    assert await in_force() == (2, 20, text)
    assert await in_force(defaultHealthyRetryPolicy=rules) == (2, 5, text)
    assert await in_force(defaultHealthyRetryPolicy=rules, disableSubscriptionOverrides=True) == (
        7,
        5,
        text,
    )
    assert await in_force(defaultRequestPolicy=xml) == (2, 20, "application/xml")


async def test_a_topics_policy_holds_where_a_subscription_has_none(
    notifying: Account, endpoint: Endpoint, clock: VirtualClock
) -> None:
    topic = await make(notifying)
    rules = {"numRetries": 1, "minDelayTarget": 5, "maxDelayTarget": 5}
    policy = {
        "http": {
            "defaultHealthyRetryPolicy": rules,
            "defaultRequestPolicy": {"headerContentType": "application/json"},
        }
    }
    await notifying.execute(SetTopicAttributes(topic, "DeliveryPolicy", json.dumps(policy)))
    assert (
        effective_policy(json.dumps(policy))["http"]["defaultHealthyRetryPolicy"]["numRetries"] == 1
    )
    await confirmed(notifying, endpoint, topic)
    endpoint.answer = lambda: 500
    await notifying.execute(Publish("m", topic))
    await clock.advance(100)
    assert endpoint.times == [0, 5]
    assert endpoint.came[0][1].headers["Content-Type"] == "application/json"


# --- signatures ---------------------------------------------------------------------------------


def _key(account: Account) -> RSAPublicKey:
    pem = account.signing_certificate(account.topics.signer.file_name)
    key = x509.load_pem_x509_certificate(pem).public_key()
    assert isinstance(key, RSAPublicKey)
    return key


@pytest.mark.parametrize("version", ["1", "2"])
async def test_an_envelope_is_signed(account: Account, version: str) -> None:
    topic = await make(account, SignatureVersion=version)
    await account.execute(CreateQueue("queue"))
    await account.execute(Subscribe(topic, "sqs", arn("queue")))
    await account.execute(Publish("m\n", topic, subject="s"))
    [body] = await bodies(account, "queue")
    envelope = json.loads(body)
    digest = hashes.SHA256() if version == "2" else hashes.SHA1()
    signature = base64.b64decode(envelope["Signature"])
    _key(account).verify(signature, string_to_sign(envelope), PKCS1v15(), digest)
    envelope["Message"] = "another"
    with pytest.raises(InvalidSignature):
        _key(account).verify(signature, string_to_sign(envelope), PKCS1v15(), digest)


async def test_one_signature_serves_all_subscriptions(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make(account)
    for number in range(5):
        await account.execute(CreateQueue(f"q{number}"))
        await account.execute(Subscribe(topic, "sqs", arn(f"q{number}")))
    signed = []
    sign = Signer.sign
    monkeypatch.setattr(
        Signer, "sign", lambda self, fields, v: signed.append(v) or sign(self, fields, v)
    )
    await account.execute(Publish("m", topic))
    assert len(signed) == 1
    envelopes = [json.loads((await bodies(account, f"q{n}"))[0]) for n in range(5)]
    assert len({each["Signature"] for each in envelopes}) == 1
    assert len({each["UnsubscribeURL"] for each in envelopes}) == 5


async def test_raw_subscriptions_need_no_signature(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await make(account, "queue")
    monkeypatch.setattr(Signer, "sign", lambda *_: pytest.fail("signed"))
    await account.execute(Publish("m", topic))
    assert await bodies(account, "queue") == ["m"]


async def test_without_the_extra_nothing_is_signed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    topic = await make(account)
    await account.execute(CreateQueue("queue"))
    await account.execute(Subscribe(topic, "sqs", arn("queue")))
    await account.execute(Publish("m", topic))
    [body] = await bodies(account, "queue")
    assert json.loads(body)["Signature"] == UNSIGNED
    assert account.signing_certificate(account.topics.signer.file_name) == b""


async def test_the_account_gives_no_other_certificate(account: Account) -> None:
    assert account.signing_certificate("SimpleNotificationService-x.pem") == b""
