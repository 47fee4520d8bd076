"""Envelopes and raw deliveries through the runtime, the subscription of a queue, and replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.addressing import Topic
from pumphouse.app import App
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.errors import ConfigError, QueueDoesNotExist, TopicDoesNotExist, UsageError
from pumphouse.model import Message
from pumphouse.notifications import Verifier, subscribe_queue_to_topic
from pumphouse.notifications.subscribing import merged
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    MessageAttributeValue,
    SendMessage,
    SetQueueAttributes,
)
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    GetSubscriptionAttributes,
    ListSubscriptions,
    Publish,
    Subscribe,
)
from pumphouse.sink import Sink
from pumphouse.subscriber.queue import Queue
from support.sending import outcomes

ARN = "arn:aws:sns:us-east-1:000000000000:t"
Collect = Callable[..., Any]


async def topic_with(account: Account, **queues: bool) -> None:
    """A topic `t`, and a queue for each name, raw or not."""
    await account.execute(CreateTopic("t"))
    for name, raw in queues.items():
        await account.execute(CreateQueue(name))
        await subscribe_queue_to_topic(account, name, Topic("t"), raw_message_delivery=raw)


async def consumed(account: Account, clock: VirtualClock, *queues: Queue, **options: Any) -> Any:
    """What the handlers of the queues get until the queues are empty: messages by queue name."""
    got: dict[str, list[Message]] = {queue.name: [] for queue in queues}
    app = App("t", **options)

    def declare(queue: Queue) -> None:
        async def note(message: Message) -> None:
            got[queue.name].append(message)

        app.subscriber(queue, undecodable="drop")(note)

    for queue in queues:
        declare(queue)
    async with app.running(account):
        await clock.advance(3)
    return got


def same(message: Message) -> tuple[Any, ...]:
    return message.body, message.headers


@pytest.mark.parametrize("mode", ["envelope", "auto"])
async def test_a_handler_gets_the_same_from_both(
    account: Account, clock: VirtualClock, mode: Any
) -> None:
    await topic_with(account, raw=True, wrapped=False)
    async with Sink(Topic("t"), account, clock=clock) as sink:
        sends = [
            sink.send("plain"),
            sink.send(b"\x00\xff", attributes={"bin": b"\x00\x01\xff", "n": 7, "s": "é\n"}),
            sink.send('{"Type": "Notification", "Message": "not one"}', subject="S"),
        ]
        await outcomes(clock, sends)
    got = await consumed(account, clock, Queue("raw", sns="auto"), Queue("wrapped", sns=mode))
    assert [same(m) for m in got["raw"]] == [same(m) for m in got["wrapped"]]
    assert [m.body for m in got["raw"]] == [
        b"plain",
        b"\x00\xff",
        b'{"Type": "Notification", "Message": "not one"}',
    ]
    assert got["wrapped"][1].headers == {"bin": b"\x00\x01\xff", "n": "7", "s": "é\n"}


async def test_a_payload_that_is_an_envelope_is_left_alone_where_nothing_brings_envelopes(
    account: Account, clock: VirtualClock
) -> None:
    await topic_with(account, raw=True)
    payload = json.dumps(
        {
            "Type": "Notification",
            "MessageId": "1",
            "TopicArn": ARN,
            "Message": "inner",
            "Timestamp": "2026-01-01T00:00:00.000Z",
            "SignatureVersion": "1",
            "Signature": "c2ln",
            "SigningCertURL": "https://sns.us-east-1.amazonaws.com/x.pem",
            "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/",
        }
    )
    await account.execute(Publish(payload, ARN))
    await account.execute(SendMessage(account.queue("raw").url, payload))
    got = await consumed(account, clock, Queue("raw", sns="auto"))
    assert [m.text for m in got["raw"]] == [payload, payload]


@pytest.mark.parametrize(
    "body",
    ["plain", '{"Type": "Notification"}', '{"a": 1}', "[1]", "{broken"],
)
async def test_auto_leaves_what_is_no_envelope_of_its_topics(
    account: Account, clock: VirtualClock, body: str
) -> None:
    await topic_with(account, wrapped=False)
    await account.execute(SendMessage(account.queue("wrapped").url, body))
    await account.execute(Publish("published", ARN))
    got = await consumed(account, clock, Queue("wrapped", sns="auto"))
    assert sorted(m.text for m in got["wrapped"]) == sorted([body, "published"])


async def test_where_all_are_envelopes_something_else_is_undecodable(
    account: Account, clock: VirtualClock
) -> None:
    await topic_with(account, wrapped=False)
    await account.execute(SendMessage(account.queue("wrapped").url, "direct"))
    await account.execute(Publish("published", ARN))
    got = await consumed(account, clock, Queue("wrapped", sns="envelope"))
    assert [m.text for m in got["wrapped"]] == ["published"]


async def test_raw_is_what_nobody_asks_for(account: Account, clock: VirtualClock) -> None:
    await topic_with(account, wrapped=False)
    await account.execute(Publish("published", ARN))
    got = await consumed(account, clock, Queue("wrapped"))
    assert json.loads(got["wrapped"][0].text)["Message"] == "published"
    assert not account.ledger.of(ListSubscriptions)


async def test_auto_says_what_it_is_refused(account: Account, clock: VirtualClock) -> None:
    await topic_with(account, wrapped=False)
    account.faults.refuse(ListSubscriptions, "AuthorizationError")
    with pytest.raises(ConfigError, match="sns='raw' or sns='envelope'"):
        await consumed(account, clock, Queue("wrapped", sns="auto"))


async def test_a_claim_ticket_inside_an_envelope(account: Account, clock: VirtualClock) -> None:
    await topic_with(account, wrapped=False)
    check = ClaimCheck(MemoryBlobStore(), inline_max_bytes=10)
    async with Sink(Topic("t"), account, clock=clock, claim_check=check) as sink:
        await outcomes(clock, [sink.send("x" * 100)])
    bodies: list[str] = []
    app = App("t")

    @app.subscriber(Queue("wrapped", sns="envelope"), claim_check=check)
    async def note(body: str) -> None:
        bodies.append(body)

    async with app.running(account):
        await clock.advance(3)
    assert bodies == ["x" * 100]


async def test_batches_and_partition_keys_see_what_was_published(
    account: Account, clock: VirtualClock
) -> None:
    await topic_with(account, one=False, many=False)
    for n in range(4):
        await account.execute(Publish(json.dumps({"k": n % 2, "n": n}), ARN))
    keys: list[str] = []
    ones: list[int] = []
    batches: list[int] = []
    app = App("t")

    def key(payload: Any) -> str:
        keys.append(str(payload["k"]))
        return keys[-1]

    @app.subscriber(Queue("one", sns="envelope"), partition_key=key)
    async def one(payload: dict[str, int]) -> None:
        ones.append(payload["n"])

    @app.subscriber(Queue("many", sns="auto"), batch=10)
    async def many(payloads: list[dict[str, int]]) -> None:
        batches.extend(each["n"] for each in payloads)

    async with app.running(account):
        await clock.advance(3)
    assert sorted(ones) == sorted(batches) == [0, 1, 2, 3]
    assert sorted(keys) == ["0", "0", "1", "1"]


async def test_a_dead_letter_keeps_its_envelope_and_is_opened_again(
    account: Account, clock: VirtualClock
) -> None:
    await topic_with(account, wrapped=False)
    await account.execute(CreateQueue("dead"))
    attributes = {"k": MessageAttributeValue("String", "v")}
    await account.execute(Publish("poison", ARN, message_attributes=attributes))
    app = App("t")

    @app.subscriber(Queue("wrapped", sns="auto"), max_attempts=1, dead_letter="dead")
    async def fails(body: str) -> None:
        raise RuntimeError("never")

    got: list[Message] = []

    @app.subscriber(Queue("dead", sns="envelope"))
    async def buried(message: Message) -> None:
        got.append(message)

    async with app.running(account):
        await clock.advance(5)
    [message] = got
    assert message.text == "poison"
    assert message.headers["k"] == "v"
    assert message.headers["pumphouse.attempts"] == "1"


async def test_verified_envelopes_pass_and_others_do_not(
    account: Account, clock: VirtualClock
) -> None:
    await topic_with(account, wrapped=False)

    async def fetch(url: str, max_bytes: int) -> bytes:
        return account.signing_certificate(url.rpartition("/")[2])

    await account.execute(Publish("good", ARN))
    forged = {
        "Type": "Notification",
        "MessageId": "1",
        "TopicArn": ARN,
        "Message": "forged",
        "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "c2ln",
        "SigningCertURL": "https://evil.example/x.pem",
        "UnsubscribeURL": "https://sns.us-east-1.amazonaws.com/",
    }
    await account.execute(SendMessage(account.queue("wrapped").url, json.dumps(forged)))
    queue = Queue("wrapped", sns="envelope", verify_sns_signatures=True)
    verifier = Verifier(fetch, clock=clock)
    got = await consumed(account, clock, queue, sns_verifier=verifier)
    assert [m.text for m in got["wrapped"]] == ["good"]


def test_what_a_queue_can_not_be() -> None:
    with pytest.raises(UsageError, match="sns is"):
        Queue("q", sns="guess")  # type: ignore[arg-type]
    for sns in ("raw", "auto"):  # with either, what is no envelope would pass unsigned
        with pytest.raises(UsageError, match="needs sns='envelope'"):
            Queue("q", sns=sns, verify_sns_signatures=True)  # type: ignore[arg-type]


# --- replies ------------------------------------------------------------------------------------


async def test_a_reply_goes_through_a_topic(account: Account, clock: VirtualClock) -> None:
    await topic_with(account, replies=True)
    await account.execute(CreateQueue("asked"))
    app = App("t")

    @app.subscriber("asked", publish=Topic("t"))
    async def answer(body: str) -> str:
        return body.upper()

    replies: list[str] = []

    @app.subscriber("replies")
    async def note(body: str) -> None:
        replies.append(body)

    await account.execute(SendMessage(account.queue("asked").url, "hello"))
    async with app.running(account):
        await clock.advance(3)
    assert replies == ["HELLO"]


async def test_the_topic_of_replies_is_looked_up_at_start(account: Account) -> None:
    await account.execute(CreateQueue("asked"))
    app = App("t")

    @app.subscriber("asked", publish=Topic("nowhere"))
    async def answer(body: str) -> str:
        return body

    with pytest.raises(ConfigError, match=r"publish= of .*answer: .* no topic 'nowhere'"):
        async with app.running(account):
            pass


# --- subscribing --------------------------------------------------------------------------------


async def policy_of(account: Account, queue: str) -> dict[str, Any]:
    asked = GetQueueAttributes(account.queue(queue).url, ["Policy"])
    text = (await account.execute(asked)).attributes.get("Policy", "{}")
    found: dict[str, Any] = json.loads(text)
    return found


async def test_the_policy_keeps_what_is_in_it_and_permits_the_topic_once(account: Account) -> None:
    await topic_with(account)
    await account.execute(CreateQueue("q"))
    own = {"Sid": "own", "Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Id": "mine", "Statement": [own]}
    url = account.queue("q").url
    await account.execute(SetQueueAttributes(url, {"Policy": json.dumps(policy)}))
    first = await subscribe_queue_to_topic(account, "q", "t")
    sets = len(account.ledger.of(SetQueueAttributes))
    assert await subscribe_queue_to_topic(account, "q", Topic(ARN)) == first
    assert len(account.ledger.of(SetQueueAttributes)) == sets, "the second time changes nothing"
    found = await policy_of(account, "q")
    assert found["Id"] == "mine"
    assert found["Statement"][0] == own
    [statement] = found["Statement"][1:]
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": ARN}}
    assert statement["Principal"] == {"Service": "sns.amazonaws.com"}
    assert statement["Resource"] == "arn:aws:sqs:us-east-1:000000000000:q"


@pytest.mark.parametrize("again", [False, True])
async def test_a_queue_of_another_account_has_to_confirm(account: Account, again: bool) -> None:
    await topic_with(account)
    other = account.within(account_id="111122223333")
    url = (await other.execute(CreateQueue("theirs"))).queue_url
    with pytest.raises(ConfigError, match="waits to be confirmed"):
        await subscribe_queue_to_topic(account, url, Topic("t"))
    if again:  # SNS shows no ARN of a subscription that it lists as pending
        with pytest.raises(ConfigError, match="waits to be confirmed"):
            await subscribe_queue_to_topic(account, url, Topic("t"), raw_message_delivery=False)
    elsewhere = Account(clock=account.clock).within(account_id="111122223333")
    await elsewhere.account.execute(CreateTopic("t"))
    url = (await elsewhere.execute(CreateQueue("theirs"))).queue_url
    assert await subscribe_queue_to_topic(elsewhere, url, ARN)


async def test_a_subscription_is_changed_to_fit(account: Account) -> None:
    await topic_with(account)
    for name in ("q", "dead"):
        await account.execute(CreateQueue(name))

    async def attributes(**options: Any) -> dict[str, str]:
        arn = await subscribe_queue_to_topic(account, "q", Topic("t"), **options)
        return (await account.execute(GetSubscriptionAttributes(arn))).attributes

    found = await attributes()
    assert found["RawMessageDelivery"] == "true"
    found = await attributes(
        raw_message_delivery=False,
        filter_policy={"a": {"b": ["c"]}},
        filter_policy_scope="MessageBody",
        dead_letter="dead",
    )
    assert found["RawMessageDelivery"] == "false"
    assert json.loads(found["FilterPolicy"]) == {"a": {"b": ["c"]}}
    assert found["FilterPolicyScope"] == "MessageBody"
    assert json.loads(found["RedrivePolicy"])["deadLetterTargetArn"].endswith(":dead")
    assert (await policy_of(account, "dead"))["Statement"][0]["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ARN}
    }
    found = await attributes(filter_policy={"a": ["b"]})
    assert (found["FilterPolicyScope"], found["FilterPolicy"]) == (
        "MessageAttributes",
        '{"a":["b"]}',
    )
    found = await attributes()
    assert "FilterPolicy" not in found
    assert "RedrivePolicy" not in found


async def test_what_can_not_be_subscribed(account: Account) -> None:
    await topic_with(account)
    with pytest.raises(QueueDoesNotExist):
        await subscribe_queue_to_topic(account, "nowhere", Topic("t"))
    with pytest.raises(TopicDoesNotExist):
        await subscribe_queue_to_topic(account, "nowhere", Topic("u"))
    with pytest.raises(UsageError, match="filter_policy_scope"):
        await subscribe_queue_to_topic(
            account,
            "q",
            Topic("t"),
            filter_policy_scope="Body",  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("policy", ["{", "[]", '{"Statement": 3}'])
def test_a_policy_that_can_not_be_read_is_not_replaced(policy: str) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        merged(policy, "arn:q", ARN)


def test_a_single_statement_is_kept() -> None:
    text = merged('{"Statement": {"Sid": "own"}}', "arn:q", ARN)
    assert text is not None
    statements = json.loads(text)["Statement"]
    assert [each["Sid"][:9] for each in statements] == ["own", "pumphouse"]
    assert merged(text, "arn:q", ARN) is None


async def test_a_service_that_verifies_runs_on_an_account_as_it_is_written() -> None:
    app = App()

    @app.subscriber(Queue("verified", sns="envelope", verify_sns_signatures=True))
    async def handle(body: str) -> None: ...

    async with app.in_process() as account:
        arn = (await account.execute(CreateTopic("news"))).topic_arn
        queue = "arn:aws:sqs:us-east-1:000000000000:verified"
        await account.execute(Subscribe(arn, "sqs", queue))
        await account.execute(Publish("signed", arn))
        await account.send("verified", '{"Type":"Notification","Message":"made up"}')
        await account.clock.run_until(lambda: len(handle.calls) == 1)
    assert [call.payload for call in handle.calls] == ["signed"]
