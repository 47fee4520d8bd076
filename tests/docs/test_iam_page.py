"""What the page on IAM says each feature needs is what the feature asks for when it runs.

Each feature of the tables has a scenario here, which runs it on an account whose ledger keeps every
operation. Encryption is left out: the account does not apply keys, and the page says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from pumphouse import (
    Account,
    App,
    Keys,
    LeaseTransport,
    Queue,
    Sink,
    Topic,
    VirtualClock,
    subscribe_queue_to_topic,
)
from pumphouse.check.permissions import look_up
from pumphouse.check.permissions import policy as policy_of
from pumphouse.errors import RefusedConfigError
from pumphouse.http.s3 import S3BlobStore
from pumphouse.protocol.names import parse_queue_url
from pumphouse.protocol.operations import CreateQueue, Operation
from pumphouse.protocol.sns_operations import CreateTopic
from pumphouse.queue_tools import overview, parse_condition, peek, receive, redrive
from pumphouse.queue_tools.purging import purge_of
from support.pages import ROOT

PAGE = (ROOT / "docs" / "guides" / "iam.md").read_text()
THE_QUEUE, THE_DEAD, THE_REPLIES = "the queue", "the dead-letter queue", "the queue of replies"
THE_TOPIC, THE_OBJECTS, EVERYTHING = "the topic", "the bucket's objects", "`*`"
NAMES = {
    **dict.fromkeys(["orders", "orders.fifo", "orders-new.fifo", "limited.fifo", "fed"], THE_QUEUE),
    "orders-dead.fifo": THE_DEAD,
    "replies.fifo": THE_REPLIES,
    "news": THE_TOPIC,
    "bodies/*": THE_OBJECTS,
}
NEWS = "arn:aws:sns:us-east-1:000000000000:news"
# "Specifying SendMessage, DeleteMessage, or ChangeMessageVisibility also grants permissions for the
# corresponding batch versions" (API reference, AddPermission); the same of SNS's Publish
BATCHES = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "PublishBatch": "Publish",
}
Needs = set[tuple[str, str]]
R = TypeVar("R")


class Features:
    """The tables of the page: what each feature needs, and what it can do without."""

    def __init__(self, page: str) -> None:
        self.needs: dict[str, Needs] = defaultdict(set)
        self.optional: dict[str, Needs] = defaultdict(set)
        feature = ""
        for name, actions, on in re.findall(r"^\| (.*?) ?\| (.*?) \| (.*?) \|$", page, re.M):
            if "sqs:" not in actions and "sns:" not in actions and "s3:" not in actions:
                continue
            if bold := re.fullmatch(r"\*\*(.*)\*\*", name):
                feature = bold[1]
            needed, _, optional = actions.partition("; optional: ")
            self.needs[feature] |= {(action, on) for action in re.findall(r"`(\w+:\w+)`", needed)}
            self.optional[feature] |= {
                (action, on) for action in re.findall(r"`(\w+:\w+)`", optional)
            }

    def all_of(self, feature: str) -> Needs:
        return self.needs[feature] | self.optional[feature]


FEATURES = Features(PAGE)


def need_of(operation: Operation[Any]) -> tuple[str, str]:
    """The IAM action of an operation, and the page's word for what it is on."""
    action = f"{operation.service}:{BATCHES.get(operation.action, operation.action)}"
    if url := getattr(operation, "queue_url", None):
        return action, NAMES[parse_queue_url(url).name]
    if name := getattr(operation, "queue_name", None):
        return action, NAMES[name]
    if arn := getattr(operation, "topic_arn", None) or getattr(operation, "source_arn", None):
        return action, NAMES[arn.rpartition(":")[2]]
    return action, EVERYTHING


def allowed_by(document: Any) -> Needs:
    """What a policy of IAM allows, in the words of the page."""
    allowed: Needs = set()
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        resources = statement["Resource"]
        for arn in [resources] if isinstance(resources, str) else resources:
            on = EVERYTHING if arn == "*" else NAMES[arn.rpartition(":")[2]]
            allowed |= {(action, on) for action in statement["Action"]}
    return allowed


class Policy:
    """A backend that carries out what is allowed, and answers the rest as AWS does."""

    def __init__(self, account: Account, allowed: Needs) -> None:
        self.account = account
        assert isinstance(account.clock, VirtualClock)
        self.clock = account.clock
        self.allowed = allowed
        self.used: Needs = set()
        self.refused: Needs = set()
        self.generated: Needs | None = None  # what `pumphouse check --permissions` prints

    async def execute(self, operation: Operation[R]) -> R:
        need = need_of(operation)
        if need not in self.allowed:
            self.refused.add(need)
            raise RefusedConfigError("no", code="AccessDenied", status=403, sender_fault=True)
        self.used.add(need)
        return await self.account.execute(operation)

    async def aclose(self) -> None: ...

    async def note_generated(self, app: App) -> None:
        found = await look_up(app, self.account)
        self.generated = allowed_by(policy_of(found.needs, found.arns))


Scenario = Callable[[Policy], Awaitable[None]]

# --- the scenarios ------------------------------------------------------------------------------


def sending(to: str | Topic) -> Scenario:
    async def scenario(backend: Policy) -> None:
        async with Sink(to, backend, clock=backend.clock, batch_linger=0) as sink:
            assert await sink.send("sent", group_id=None if isinstance(to, Topic) else "g")

    return scenario


def reading(queue: str | Queue = "orders.fifo", *, fails: bool = False, **options: Any) -> Scenario:
    """The message that is there is handled, for longer than its lease, or given up."""

    async def scenario(backend: Policy) -> None:
        app = App()

        @app.subscriber(queue, **options)
        async def handle(body: str) -> dict[str, str] | None:
            await app.clock.sleep(40)
            if fails:
                raise ValueError(body)
            return {"answer": body} if "publish" in options else None

        await backend.note_generated(app)
        async with app.running(backend):
            await backend.clock.advance(300)
        there = backend.account.queue(queue if isinstance(queue, str) else queue.name)
        assert (there.visible, there.in_flight) == (0, 0)
        if fails:
            assert len(backend.account.sent("orders-dead.fifo")) == 3  # two were there before
        if "publish" in options:
            assert len(backend.account.sent("replies.fifo")) == 1

    return scenario


async def publishing(backend: Policy) -> None:
    app = App()
    publisher = app.publisher("replies.fifo", str)

    @app.subscriber("orders.fifo")
    async def handle(body: str) -> None:
        await app.clock.sleep(40)
        await publisher.publish(body, group_id="g")

    await backend.note_generated(app)
    async with app.running(backend):
        await backend.clock.advance(300)
    assert len(backend.account.sent("replies.fifo")) == 1


async def lease(backend: Policy) -> None:
    jobs: LeaseTransport[Any] = await LeaseTransport.create(
        "orders.fifo", backend, clock=backend.clock
    )
    await jobs.publish("group", 1)
    for _ in range(2):
        held = await jobs.claim("worker", 30)
        assert held is not None
        await jobs.extend(held, 30)
        await jobs.ack(held)
    await jobs.close()


async def subscribe(backend: Policy) -> None:
    await subscribe_queue_to_topic(backend, "orders", Topic(NEWS))
    await subscribe_queue_to_topic(backend, "orders", Topic(NEWS), filter_policy={"kind": ["a"]})


async def with_time(backend: Policy, work: Coroutine[Any, Any, R]) -> R:
    """Work that waits for a poll or a move, while time passes."""
    task = asyncio.create_task(work)
    await backend.clock.run_until(task.done)
    return await task


async def list_queues(backend: Policy) -> None:
    found = {each.name: each.problem for each in await overview(backend, "limited")}
    assert found == {"limited.fifo": ""}


async def look(backend: Policy) -> None:
    peeked = await with_time(backend, peek(backend, "orders.fifo"))
    assert len(peeked.messages) == 1


async def receive_and_delete(backend: Policy) -> None:
    async for _, delete in receive(backend, "orders.fifo", 1, wait_time_seconds=0):
        await delete()


async def purge(backend: Policy) -> None:
    await (await purge_of(backend, "orders.fifo")).carry_out()


def redriving(moved: int, **options: Any) -> Scenario:
    async def scenario(backend: Policy) -> None:
        to = "limited.fifo"
        moving = redrive(backend, "orders-dead.fifo", to=to, clock=backend.clock, **options)
        assert (await with_time(backend, moving)).moved == moved

    return scenario


SCENARIOS: dict[str, Scenario] = {
    "Send to a queue": sending("orders.fifo"),
    "Send to a queue by its URL": sending(
        "https://sqs.us-east-1.amazonaws.com/000000000000/orders.fifo"
    ),
    "Publish to a topic by its ARN": sending(Topic(NEWS)),
    "Publish to a topic by its name": sending(Topic("news")),
    "Read a queue": reading(),
    "Read a queue that has a redrive policy": reading("limited.fifo", fails=True),
    "Declare `max_attempts` and `dead_letter`, written": reading(
        fails=True, max_attempts=1, dead_letter="orders-dead.fifo"
    ),
    'Declare them with `redrive="check"`': reading(
        "limited.fifo", fails=True, max_attempts=1, dead_letter="orders-dead.fifo", redrive="check"
    ),
    "Reply with `publish=`, beside reading": reading(publish="replies.fifo"),
    "Publish with `app.publisher` or `To`, beside reading": publishing,
    "Create the queue with `create_if_missing`, beside reading": reading(
        Queue("orders-new.fifo", create_if_missing=True)
    ),
    'Read with `sns="auto"`, beside reading': reading(Queue("fed", sns="auto")),
    "Lease from a queue": lease,
    "Subscribe a queue to a topic": subscribe,
    "`pumphouse queues`": list_queues,
    "`pumphouse peek`, on AWS": look,
    "`pumphouse receive --delete`": receive_and_delete,
    "`pumphouse purge`": purge,
    "`pumphouse redrive --filter`, or `--no-task`": redriving(
        1, conditions=[parse_condition("attr.kind=late")]
    ),
    "`pumphouse redrive --task`": redriving(2, task=True),
}
BESIDE_READING = {
    # nothing comes to a queue that has just been made
    "Create the queue with `create_if_missing`, beside reading": {
        ("sqs:DeleteMessage", THE_QUEUE),
        ("sqs:ChangeMessageVisibility", THE_QUEUE),
    },
}
OVER_HTTP = {"Offload bodies to S3", "Fetch bodies from S3, beside reading"}


@pytest.fixture
async def filled(account: Account) -> Account:
    """The queues and topics that the scenarios are about, and a message in each that is read."""
    await account.execute(CreateTopic("news"))
    for name in ("orders", "fed"):
        await account.execute(CreateQueue(name))
    for name in ("orders-dead.fifo", "replies.fifo", "orders.fifo", "limited.fifo"):
        attributes = {"FifoQueue": "true"}
        if name == "limited.fifo":
            dead = "arn:aws:sqs:us-east-1:000000000000:orders-dead.fifo"
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": dead, "maxReceiveCount": "1"}
            )
        await account.execute(CreateQueue(name, attributes))
    await subscribe_queue_to_topic(account, "fed", Topic(NEWS))
    for name in ("orders.fifo", "limited.fifo", "fed", "orders-dead.fifo"):
        async with Sink(name, account, clock=account.clock, batch_linger=0) as sink:
            await sink.send("there", group_id="g" if name.endswith(".fifo") else None)
            if name == "orders-dead.fifo":
                await sink.send("late", group_id="g", attributes={"kind": "late"})
    return account


def expected(feature: str, *, optional: bool) -> Needs:
    needs = FEATURES.all_of(feature) if optional else set(FEATURES.needs[feature])
    if "beside reading" in feature:
        needs |= FEATURES.needs["Read a queue"]
    return needs


def test_every_feature_has_a_scenario() -> None:
    assert set(FEATURES.needs) == set(SCENARIOS) | OVER_HTTP


@pytest.mark.parametrize("feature", SCENARIOS)
async def test_a_feature_asks_for_what_the_page_says(feature: str, filled: Account) -> None:
    policy = Policy(filled, expected(feature, optional=True))
    await SCENARIOS[feature](policy)
    assert not policy.refused
    assert policy.used == policy.allowed - BESIDE_READING.get(feature, set())
    if policy.generated is not None:
        assert policy.generated == policy.allowed, "pumphouse check --permissions says otherwise"


@pytest.mark.parametrize("feature", [name for name in SCENARIOS if FEATURES.optional[name]])
async def test_what_is_optional_can_be_refused(feature: str, filled: Account) -> None:
    policy = Policy(filled, expected(feature, optional=False))
    await SCENARIOS[feature](policy)
    assert policy.refused == FEATURES.optional[feature]


async def test_bodies_in_s3() -> None:
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        asked.append(head.partition(" ")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        S3BlobStore(
            "bodies",
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{port}",
            credentials=Keys("any", "any"),
        ) as store,
    ):
        await store.put("key", b"x")
        await store.get("key", 1)
        await store.delete("key")
    of_method = {
        "PUT": ("s3:PutObject", THE_OBJECTS),
        "GET": ("s3:GetObject", THE_OBJECTS),
        "DELETE": ("s3:DeleteObject", THE_OBJECTS),
    }
    needs = set.union(*(FEATURES.needs[feature] for feature in OVER_HTTP))
    assert {of_method[method] for method in asked} == needs


_POLICIES = re.findall(r"^For: (.*?)\n\n```json\n(.*?)```", PAGE, re.M | re.S)


@pytest.mark.parametrize(("features", "text"), _POLICIES)
def test_a_policy_allows_what_its_features_need(features: str, text: str) -> None:
    named = re.findall(r"\*\*(.*?)\*\*", features)
    allowed = allowed_by(json.loads(text))
    assert allowed == set.union(*(FEATURES.all_of(feature) for feature in named))


def test_there_is_a_policy_for_each_role() -> None:
    assert len(_POLICIES) >= 5
