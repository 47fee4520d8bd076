"""The policy that `--permissions` prints: a service runs with it, and needs all of it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import pytest

from pumphouse import Account, App, Publisher, Queue, Topic, subscribe_queue_to_topic
from pumphouse.account.ledger import Entry
from pumphouse.check.permissions import look_up, needs_of, policy
from pumphouse.claim_check import ClaimCheck
from pumphouse.clock import VirtualClock
from pumphouse.errors import RefusedConfigError
from pumphouse.http.s3 import S3BlobStore
from pumphouse.protocol.operations import CreateQueue, Operation, ReceiveMessage, SendMessage
from pumphouse.protocol.sns_operations import CreateTopic

PLACE = "us-east-1:000000000000"


class Order(msgspec.Struct):
    id: int


def asked(operation: Operation[Any]) -> list[tuple[str, str]]:
    """The actions of IAM that an operation needs, each with its resource."""
    action = operation.action.removesuffix("Batch")
    if operation.service == "sns":
        arn = getattr(operation, "topic_arn", None) or "*"
        return [(f"sns:{action}", arn if action in ("Publish", "GetTopicAttributes") else "*")]
    name = getattr(operation, "queue_name", None) or operation.queue_url.rpartition("/")[2]  # type: ignore[attr-defined]
    return [(f"sqs:{action}", f"arn:aws:sqs:{PLACE}:{name}")]


def allows(statement: dict[str, Any], action: str, resource: str) -> bool:
    return action in statement["Action"] and any(
        fnmatchcase(resource, pattern) for pattern in statement["Resource"]
    )


class Enforcing:
    """An account that carries out only what a policy allows, and remembers what was asked for."""

    def __init__(self, account: Account, given: dict[str, Any]) -> None:
        self.account = account
        self.clock = account.clock
        self.statements = given["Statement"]
        self.used: set[tuple[str, str]] = set()

    async def execute(self, operation: Operation[Any]) -> Any:
        for action, resource in asked(operation):
            using = [each for each in self.statements if allows(each, action, resource)]
            if not using:
                raise RefusedConfigError(f"{action} on {resource}", code="AccessDenied", status=403)
            self.used |= {(each["Sid"], action) for each in using}
        return await self.account.execute(operation)

    async def aclose(self) -> None:
        """Nothing to give back."""


def shop(seen: list[int]) -> App:
    app = App("shop")

    @app.subscriber(
        Queue("orders", create_if_missing=True),
        max_attempts=1,
        dead_letter="spent",
        publish="shipped.fifo",
    )
    async def pack(order: Order) -> Any:
        from pumphouse import Reply

        if order.id < 0:
            raise ValueError("none of ours")
        seen.append(order.id)
        return Reply(order, group_id="1")

    @app.subscriber(Queue("news", sns="auto"), retry=60)
    async def read(order: Order) -> None:
        seen.append(order.id)
        if seen.count(order.id) == 1:
            raise ValueError("again")

    news: Publisher[Order] = app.publisher(Topic("news"), Order)
    app.news = news  # type: ignore[attr-defined]
    return app


async def ready(account: Account) -> None:
    policy = json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:{PLACE}:spent", "maxReceiveCount": 5})
    for name, attributes in (
        ("spent", None),
        ("shipped.fifo", {"FifoQueue": "true"}),
        ("news", {"RedrivePolicy": policy}),
    ):
        await account.execute(CreateQueue(name, attributes))
    await account.execute(CreateTopic("news"))
    await subscribe_queue_to_topic(account, "news", "news", raw_message_delivery=False)


@pytest.mark.parametrize("by_arn", [False, True])
async def test_a_service_runs_with_it_and_needs_all_of_it(
    clock: VirtualClock, by_arn: bool
) -> None:
    account = Account(clock=clock, ledger_room=1_000)
    await ready(account)
    seen: list[int] = []
    app = shop(seen)
    found = await look_up(app, account)
    given = policy(found.needs, found.arns if by_arn else None)
    backend = Enforcing(account, given)
    async with app.running(backend):
        await app.news.publish(Order(7))  # type: ignore[attr-defined]
        url = "https://sqs.us-east-1.amazonaws.com/000000000000/orders"
        for body in ('{"id": 1}', '{"id": -1}'):
            await account.execute(SendMessage(url, body))
        await clock.run_until(
            lambda: seen.count(7) == 2 and 1 in seen and len(_sent(account, "spent")) == 1,
            limit_seconds=600,
        )
    assert len(account.sent("shipped.fifo")) == 1
    every = {(each["Sid"], action) for each in given["Statement"] for action in each["Action"]}
    assert every - backend.used == set()
    if by_arn:
        resources = {each for entry in given["Statement"] for each in entry["Resource"]}
        # the queue that the start creates has no ARN yet
        assert {each for each in resources if "*" in each} == {"*", "arn:aws:sqs:*:*:orders"}
        assert f"arn:aws:sqs:{PLACE}:spent" in resources


def _sent(account: Account, queue: str) -> list[Any]:
    return account.sent(queue)


async def test_one_action_less_and_it_does_not_run(clock: VirtualClock) -> None:
    account = Account(clock=clock, ledger_room=1_000)
    await ready(account)
    given = policy(needs_of(shop([])))
    given["Statement"] = [each for each in given["Statement"] if each["Sid"] != "FindQueues"]
    with pytest.raises(RefusedConfigError, match="sqs:GetQueueUrl"):
        async with shop([]).running(Enforcing(account, given)):
            pass


def test_names_alone_tell_no_account() -> None:
    app = App("shop")
    app.subscriber(
        "arn:aws:sqs:eu-west-1:123456789012:orders",
        max_attempts=3,
        dead_letter="https://sqs.eu-west-1.amazonaws.com/123456789012/spent",
    )(_nothing)
    app.publisher(Topic("arn:aws:sns:eu-west-1:123456789012:news"), Order)
    given = policy(needs_of(app))
    text = json.dumps(given)
    assert "123456789012" not in text
    by_sid = {each["Sid"]: each for each in given["Statement"]}
    assert by_sid["FindQueues"]["Resource"] == ["arn:aws:sqs:*:*:orders"]  # not the URL's
    assert by_sid["PublishToTopics"]["Resource"] == ["arn:aws:sns:*:*:news"]
    assert "FindTopics" not in by_sid  # an ARN needs no looking up


def test_only_what_its_features_need() -> None:
    app = App("shop")
    app.subscriber("orders")(_nothing)
    needs = needs_of(app)
    assert needs.unknown == ["orders"]
    assert [each["Sid"] for each in policy(needs)["Statement"]] == ["FindQueues", "ReadQueues"]
    app = App("out")
    app.publisher("orders", Order)
    assert [each["Sid"] for each in policy(needs_of(app))["Statement"]] == ["FindQueues", "Publish"]


async def test_keys_by_id_arn_and_alias(account: Account) -> None:
    key = "arn:aws:kms:us-east-1:111111111111:key/0a1b"
    for name, kms in (("a", "0a1b-2c3d"), ("b", key), ("c", "alias/shop"), ("d", "alias/aws/sqs")):
        await account.execute(CreateQueue(name, {"KmsMasterKeyId": kms}))
    app = App("shop")
    for name in "abcd":
        app.subscriber(name)(_nothing)
    app.publisher("b", Order)
    found = await look_up(app, account)
    by_sid = {each["Sid"]: each for each in policy(found.needs, found.arns)["Statement"]}
    assert by_sid["ReadKeys"]["Action"] == ["kms:Decrypt"]
    assert by_sid["ReadKeys"]["Resource"] == [
        f"arn:aws:kms:{PLACE}:key/0a1b-2c3d",
        key,
    ]
    assert by_sid["ReadKeysByAlias"]["Condition"] == {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": ["alias/shop"]}
    }
    assert by_sid["WriteKeys"]["Resource"] == [key]


def test_bodies_in_s3() -> None:
    check = ClaimCheck(S3BlobStore("big-bodies"), prefix="shop/")
    app = App("shop")
    app.subscriber("orders", claim_check=check)(_nothing)
    app.publisher("shipped", Order, claim_check=check)
    by_sid = {each["Sid"]: each for each in policy(needs_of(app))["Statement"]}
    assert by_sid["FetchBodies"]["Resource"] == ["arn:aws:s3:::big-bodies/shop/*"]
    assert by_sid["FetchBodies"]["Action"] == ["s3:GetObject", "s3:DeleteObject"]
    assert by_sid["StoreBodies"]["Action"] == ["s3:PutObject"]


async def test_looking_up_changes_nothing(clock: VirtualClock) -> None:
    account = Account(clock=clock, ledger_room=1_000)
    await ready(account)
    account.ledger.clear()
    await look_up(shop([]), account)
    entries: list[Entry] = list(account.ledger)
    assert entries
    assert not [each for each in entries if not each.action.startswith(("Get", "List"))]
    assert not account.ledger.of(ReceiveMessage)


async def _nothing(order: dict) -> None: ...
