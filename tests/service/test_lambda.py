"""`app.lambda_handler`: the same handlers behind an SQS event source mapping of AWS Lambda."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from pumphouse import Depends, Header, Queue, Router, State
from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.claim_check import ClaimCheck, DirectoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.errors import ConfigError, CrossThreadError, UsageError
from pumphouse.lambda_handler import BatchFailedError, LambdaHandler
from pumphouse.middleware import Idempotency, MemoryStore
from pumphouse.model import Message
from pumphouse.protocol.operations import (
    ChangeMessageVisibilityBatch,
    CreateQueue,
    SendMessage,
    SendMessageBatch,
)
from pumphouse.sink.outgoing import Draft
from pumphouse.subscriber.events import Handled
from pumphouse.subscriber.outcomes import Ack, Drop, Reject, Reply, Retry
from pumphouse.testing import EventSourceMapping, LambdaContext, lambda_event
from support.service import changes, make_queue, send
from support.serving import Served, serving

# An event as Lambda's developer guide shows it for a standard queue: two records, written by hand.
EVENT: dict[str, Any] = {
    "Records": [
        {
            "messageId": "059f36b4-87a3-44ab-83d2-661975830a7d",
            "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
            "body": '{"id":1}',
            "attributes": {
                "ApproximateReceiveCount": "3",
                "SentTimestamp": "1545082649183",
                "SenderId": "AIDAIENQZJOLO23YVJ4VO",
                "ApproximateFirstReceiveTimestamp": "1545082649185",
            },
            "messageAttributes": {
                "tenant": {
                    "stringValue": "acme",
                    "stringListValues": [],
                    "binaryListValues": [],
                    "dataType": "String",
                },
                "raw": {
                    "binaryValue": "AAH/",
                    "stringListValues": [],
                    "binaryListValues": [],
                    "dataType": "Binary",
                },
            },
            "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
            "md5OfMessageAttributes": "00484c68d6a5a4a6d1c9b8b9e9b4e2a1",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:my-queue",
            "awsRegion": "us-east-2",
        },
        {
            "messageId": "2e1424d4-f796-459a-8184-9c92662be6da",
            "receiptHandle": "AQEBzWwaftRI0KuVm4tP+/7q1rGgNqicHq",
            "body": '{"id":2}',
            "attributes": {
                "ApproximateReceiveCount": "1",
                "SentTimestamp": "1545082650636",
                "SenderId": "AIDAIENQZJOLO23YVJ4VO",
                "ApproximateFirstReceiveTimestamp": "1545082650649",
            },
            "messageAttributes": {},
            "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:my-queue",
            "awsRegion": "us-east-2",
        },
    ]
}
FIRST, SECOND = (record["messageId"] for record in EVENT["Records"])


def failed(answer: dict[str, Any]) -> list[str]:
    assert list(answer) == ["batchItemFailures"]
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


async def invoke(handler: LambdaHandler, event: object, clock: VirtualClock) -> list[str]:
    """Let time pass until an invocation is answered; what it named as failed."""
    invocation = asyncio.create_task(handler.invoke(event, LambdaContext(30, clock)))
    await clock.run_until(invocation.done)
    return failed(invocation.result())


@pytest.fixture
async def lamb(account: Account) -> AsyncIterator[Callable[..., LambdaHandler]]:
    """Makes handlers on the account, and closes them."""
    made: list[LambdaHandler] = []

    def make(app: App, **options: Any) -> LambdaHandler:
        handler = LambdaHandler(app, account, record_calls=True, **options)
        made.append(handler)
        return handler

    yield make
    for handler in made:
        await handler.aclose()


Make = Callable[..., LambdaHandler]


# --- what comes in ------------------------------------------------------------------------------


async def test_a_record_is_the_message_that_the_runtime_would_have_received(lamb: Make) -> None:
    app = App()
    seen: list[Message] = []

    @app.subscriber("my-queue")
    async def handle(payload: dict[str, int], message: Message) -> None:
        assert payload == {"id": len(seen) + 1}
        seen.append(message)

    assert failed(await lamb(app).invoke(EVENT, LambdaContext(30))) == []
    first, second = seen
    assert first.headers == {"tenant": "acme", "raw": b"\x00\x01\xff"}
    assert (first.message_id, second.message_id) == (FIRST, SECOND)
    assert (first.attempt, first.receive_count, second.attempt) == (3, 3, 1)
    assert (first.sent_at, first.first_received_at) == (1545082649.183, 1545082649.185)
    assert (first.queue, first.group_id, second.headers) == ("my-queue", None, {})
    assert [call.payload for call in handle.calls] == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("app",), {}, "takes an App, not 'app'"),
        ((Router(),), {}, "takes an App, not <Router"),
        ((App("a"), "backend"), {}, "the backend is 'backend'"),
        ((App("a"),), {"reserve_seconds": "3"}, "reserve_seconds is 0 to 60, not '3'"),
        ((App("a"),), {"reserve_seconds": 61}, "reserve_seconds is 0 to 60, not 61"),
        ((App("a"),), {"reserve_seconds": float("nan")}, "not nan"),
        ((App("a"),), {"partial_responses": "no"}, "partial_responses is True or False, not 'no'"),
        ((App("a"),), {"change_visibility": None}, "change_visibility is True or False"),
    ],
)
def test_what_a_handler_can_not_be_made_of(arguments: Any, options: Any, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        LambdaHandler(*arguments, **options)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({}, "it is empty"),
        ({"Records": []}, r"no list of Records \(its Records are empty\)"),
        ([], "type list"),
        (None, "type NoneType"),
        ({"version": "0", "detail": {}}, "its keys are detail, version"),
        ({"Records": [{"eventSource": "aws:s3"}]}, "comes from 'aws:s3'"),
        ({"Records": ["x"]}, "comes from None"),
        ({"Records": [{"eventSource": "aws:sqs"}]}, "missing required field"),
        (
            {"Records": [{**EVENT["Records"][0], "body": None}]},
            r"record 0 .* `str`, got `null` - at `\$.body`",
        ),
        (
            {"Records": [EVENT["Records"][0], {**EVENT["Records"][0], "eventSourceARN": "q"}]},
            "record 1 .* not the ARN of a queue",
        ),
        ({"Records": [{**EVENT["Records"][0], "messageId": ""}]}, "an empty id"),
        (
            {
                "Records": [
                    {
                        **EVENT["Records"][0],
                        "messageAttributes": {"x": {"dataType": "Binary", "binaryValue": "?"}},
                    }
                ]
            },
            "base64",
        ),
        (
            {
                "Records": [
                    {
                        **EVENT["Records"][0],
                        "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:other",
                    }
                ]
            },
            "no subscriber of that queue .it has my-queue.",
        ),
    ],
)
async def test_what_is_no_event_of_ours_is_an_error_and_runs_nothing(
    lamb: Make, event: object, words: str
) -> None:
    app = App()

    @app.subscriber("my-queue")
    async def handle(payload: str) -> None: ...

    with pytest.raises(UsageError, match=words):
        await lamb(app).invoke(event, LambdaContext(30))
    assert handle.calls == []


async def test_a_context_that_is_none_is_an_error(lamb: Make) -> None:
    app = App()

    @app.subscriber("my-queue")
    async def handle(payload: str) -> None: ...

    with pytest.raises(UsageError, match="get_remaining_time_in_millis"):
        await lamb(app).invoke(EVENT, {})
    assert failed(await lamb(app).invoke(EVENT)) == []


@pytest.mark.parametrize(
    "reference",
    [
        "my-queue",
        "arn:aws:sqs:us-east-2:123456789012:my-queue",
        "https://sqs.us-east-2.amazonaws.com/123456789012/my-queue",
    ],
)
async def test_the_queue_may_be_declared_by_name_arn_or_url(lamb: Make, reference: str) -> None:
    app = App()

    @app.subscriber(reference)
    async def handle(payload: str) -> None: ...

    await lamb(app).invoke(EVENT)
    assert len(handle.calls) == 2


async def test_records_of_two_queues_go_to_their_own_handlers(lamb: Make) -> None:
    app = App()

    @app.subscriber("one")
    async def one(payload: str) -> None: ...

    @app.subscriber("two")
    async def two(payload: str) -> None:
        raise ValueError

    event = {
        "Records": [
            *lambda_event("one", ["a", "b"])["Records"],
            *lambda_event("two", ["c"])["Records"],
        ]
    }
    answer = await lamb(app, change_visibility=False).invoke(event)
    assert failed(answer) == [event["Records"][2]["messageId"]]
    assert [call.payload for call in one.calls] == ["a", "b"]


# --- outcomes -----------------------------------------------------------------------------------


async def test_outcomes_become_failures_or_none(lamb: Make, account: Account) -> None:
    await make_queue(account, "q")
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> Any:
        if payload == "raise":
            raise ValueError("no")
        if payload == "exit":
            raise SystemExit(3)
        return {"ack": Ack(), "none": None, "drop": Drop("why"), "retry": Retry(after=5)}[payload]

    told: list[tuple[str, str]] = []
    app.hooks.on(Handled, lambda event: told.append((event.outcome, event.reason)))
    event = lambda_event("q", ["ack", "none", "drop", "retry", "raise", "exit"])
    ids = [record["messageId"] for record in event["Records"]]
    assert set(failed(await lamb(app).invoke(event))) == set(ids[3:])
    assert told[:5] == [
        ("ack", ""),
        ("ack", ""),
        ("drop", "why"),
        ("retry", ""),
        ("retry", "ValueError: no"),
    ]


async def test_an_undecodable_body_follows_its_policy(lamb: Make) -> None:
    event = lambda_event("q", ["no json", '{"id":1}'])
    for policy, count in (
        ("drop", 0),
        ("retry", 1),
        ("reject", 1),
    ):  # there is no dead-letter queue
        app = App()

        @app.subscriber("q", undecodable=policy)
        async def handle(payload: dict[str, int]) -> None: ...

        answer = failed(await lamb(app, change_visibility=False).invoke(event))
        assert answer == [event["Records"][0]["messageId"]][:count]
        assert len(handle.calls) == 1


def _dead(app: App, **options: Any) -> None:
    @app.subscriber("q", max_attempts=3, dead_letter="dead", **options)
    async def handle(payload: str) -> Any:
        if payload == "reject":
            return Reject("bad order")
        raise ValueError("no")


async def test_rejected_and_spent_messages_go_to_the_dead_letter_queue_first(
    lamb: Make, account: Account
) -> None:
    await make_queue(account, "q")
    await make_queue(account, "dead")
    app = App()
    _dead(app)
    event = {
        "Records": [
            *lambda_event("q", [Draft("reject", headers={"a": "1"})])["Records"],
            *lambda_event("q", ["once"], receive_count=2)["Records"],
            *lambda_event("q", ["spent"], receive_count=3)["Records"],
        ]
    }
    answer = await lamb(app).invoke(event)
    assert failed(answer) == [event["Records"][1]["messageId"]]
    dead = {sent.body: sent.attributes or {} for sent in account.sent("dead")}
    assert set(dead) == {"reject", "spent"}
    assert dead["reject"]["pumphouse.reason"].string_value == "bad order"
    assert dead["reject"]["a"].string_value == "1"
    assert dead["spent"]["pumphouse.reason"].string_value == "ValueError: no"
    assert dead["spent"]["pumphouse.attempts"].string_value == "3"
    assert dead["spent"]["pumphouse.source"].string_value == "arn:aws:sqs:us-east-1:000000000000:q"


async def test_what_can_not_be_carried_fails_and_is_not_lost(lamb: Make, account: Account) -> None:
    await make_queue(account, "q")
    await make_queue(account, "dead")
    app = App()
    _dead(app)
    account.faults.refuse(SendMessage, "AccessDenied", "no")
    event = lambda_event("q", ["reject"])
    assert failed(await lamb(app).invoke(event)) == [event["Records"][0]["messageId"]]
    assert account.sent("dead") == []


async def test_a_reject_without_a_declared_queue_takes_the_queue_s_own_policy(
    lamb: Make, account: Account
) -> None:
    await make_queue(account, "dead")
    policy = {"deadLetterTargetArn": account.queue("dead").arn, "maxReceiveCount": "5"}
    await account.execute(CreateQueue("q", {"RedrivePolicy": json.dumps(policy)}))
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> Reject:
        return Reject()

    handler = lamb(app)
    assert failed(await handler.invoke(lambda_event("q", ["a", "b"]))) == []
    assert [sent.body for sent in account.sent("dead")] == ["a", "b"]
    assert [e.operation.action for e in account.ledger].count("GetQueueAttributes") == 1


async def test_replies_are_confirmed_before_success(
    lamb: Make, account: Account, clock: VirtualClock
) -> None:
    await make_queue(account, "q.fifo")
    await make_queue(account, "out.fifo")
    app = App()

    @app.subscriber("q.fifo", publish="out.fifo")
    async def handle(payload: str) -> Reply:
        return Reply(f"re {payload}", headers={"h": "1"})

    account.faults.fail_entries(
        SendMessageBatch, lambda entry: entry.message_body == "re bad", "InvalidMessageContents"
    )
    event = lambda_event("q.fifo", [Draft("good", group_id="g"), Draft("bad", group_id="h")])
    answer = await invoke(lamb(app), event, clock)
    assert answer == [event["Records"][1]["messageId"]]
    (sent,) = account.sent("out.fifo")
    assert (sent.body, sent.group_id) == ("re good", "g")


async def test_retries_come_again_after_their_delay(account: Account, clock: VirtualClock) -> None:
    await make_queue(account, "q", VisibilityTimeout="600")
    app = App()
    times: list[float] = []

    @app.subscriber("q", retry=30)
    async def handle(payload: str, message: Message) -> Retry | None:
        times.append(clock.monotonic())
        if message.attempt == 1:
            return Retry(after=7)
        if message.attempt == 2:
            raise ValueError
        return None

    await send(account, "q", "a")
    async with LambdaHandler(app, account) as handler:
        mapping = EventSourceMapping(account, "q", handler)
        for _ in range(60):
            await mapping.poll()
            await clock.advance(1)
    assert times == [0, 7, 37]
    assert account.queue("q").visible + account.queue("q").in_flight == 0


@pytest.mark.parametrize(("queue", "behind"), [("q.fifo", 0), ("q", 7)])
async def test_what_waits_behind_a_failure_never_overtakes_it(
    account: Account, clock: VirtualClock, queue: str, behind: int
) -> None:
    """A FIFO queue keeps what is free behind a hidden head; a standard queue doesn't."""
    await make_queue(account, queue, VisibilityTimeout="600")
    app = App()
    ran: list[tuple[float, str]] = []
    key = None if queue.endswith(".fifo") else (lambda payload: "one")

    @app.subscriber(queue, partition_key=key)
    async def handle(payload: str, message: Message) -> Retry | None:
        ran.append((clock.monotonic(), payload))
        return Retry(after=7) if payload == "a1" and message.attempt == 1 else None

    for body in ("a1", "a2", "a3"):
        await send(account, queue, body, "a" if key is None else None)
    async with LambdaHandler(app, account) as handler:
        mapping = EventSourceMapping(account, queue, handler)
        for _ in range(20):
            await mapping.poll()
            await clock.advance(1)
    assert [(body, seconds) for _, body, seconds in changes(account)] == [
        ("a1", 7),
        ("a2", behind),
        ("a3", behind),
    ]
    assert ran == [(0, "a1"), (7, "a1"), (7, "a2"), (7, "a3")]


async def test_without_the_permission_they_come_after_the_visibility_timeout(
    account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await make_queue(account, "q", VisibilityTimeout="40")
    account.faults.refuse(ChangeMessageVisibilityBatch, "AccessDenied", "no", times=9)
    app = App()
    times: list[float] = []

    @app.subscriber("q", retry=3)
    async def handle(payload: str) -> None:
        times.append(clock.monotonic())
        raise ValueError

    await send(account, "q", "a")
    async with LambdaHandler(app, account) as handler:
        mapping = EventSourceMapping(account, "q", handler)
        for _ in range(100):
            await mapping.poll()
            await clock.advance(1)
    assert times == [0, 40, 80]
    assert sum("permit sqs:ChangeMessageVisibility" in r.message for r in caplog.records) == 1
    assert [e.operation.action for e in account.ledger].count("ChangeMessageVisibilityBatch") == 1


async def test_without_partial_responses_a_failure_is_raised(lamb: Make) -> None:
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> None:
        if payload == "bad":
            raise ValueError

    handler = lamb(app, partial_responses=False, change_visibility=False)
    event = lambda_event("q", ["good", "bad"])
    with pytest.raises(BatchFailedError, match="1 of 2 messages failed") as caught:
        await handler.invoke(event)
    assert caught.value.failed == (event["Records"][1]["messageId"],)
    assert failed(await handler.invoke(lambda_event("q", ["good"]))) == []


# --- order --------------------------------------------------------------------------------------


async def test_after_a_failure_the_rest_of_its_group_fails_unrun_and_in_order(lamb: Make) -> None:
    app = App()
    ran: list[str] = []

    @app.subscriber("q.fifo")
    async def handle(payload: str) -> None:
        ran.append(payload)
        if payload == "a2":
            raise ValueError

    event = lambda_event(
        "q.fifo", [Draft(body, group_id=body[0]) for body in ("a1", "a2", "b1", "a3", "b2", "a4")]
    )
    ids = {record["body"]: record["messageId"] for record in event["Records"]}
    answer = failed(await lamb(app, change_visibility=False).invoke(event))
    assert answer == [ids["a2"], ids["a3"], ids["a4"]]
    assert [body for body in ran if body[0] == "a"] == ["a1", "a2"]
    assert [body for body in ran if body[0] == "b"] == ["b1", "b2"]


async def test_groups_run_at_once_and_a_group_one_at_a_time(
    lamb: Make, account: Account, clock: VirtualClock
) -> None:
    app = App()
    busy: dict[str, int] = {}
    most_in_group = most = 0

    @app.subscriber("q.fifo", concurrency=3)
    async def handle(payload: str, message: Message) -> None:
        nonlocal most, most_in_group
        group = message.group_id or ""
        busy[group] = busy.get(group, 0) + 1
        most_in_group = max(most_in_group, busy[group])
        most = max(most, sum(busy.values()))
        await clock.sleep(1)
        busy[group] -= 1

    event = lambda_event("q.fifo", [Draft("x", group_id=f"g{n % 5}") for n in range(10)])
    assert await invoke(lamb(app), event, clock) == []
    assert (most_in_group, most) == (1, 3)
    assert clock.monotonic() == 4  # 10 of 1 s, at most 3 at once


async def test_a_group_goes_on_behind_a_message_that_was_carried_away(
    lamb: Make, account: Account
) -> None:
    await make_queue(account, "dead.fifo")
    app = App()

    @app.subscriber("q.fifo", max_attempts=3, dead_letter="dead.fifo")
    async def handle(payload: str) -> Reject | None:
        return Reject("bad") if payload == "a1" else None

    event = lambda_event("q.fifo", [Draft(body, group_id="a") for body in ("a1", "a2")])
    assert failed(await lamb(app).invoke(event)) == []
    assert [call.payload for call in handle.calls] == ["a1", "a2"]
    assert [sent.group_id for sent in account.sent("dead.fifo")] == ["a"]


async def test_partition_keys_hold_on_a_standard_queue(lamb: Make) -> None:
    app = App()

    @app.subscriber("q", partition_key=lambda payload: payload[0])
    async def handle(payload: str) -> None:
        if payload == "a1":
            raise ValueError

    event = lambda_event("q", ["a1", "b1", "a2", "b2"])
    answer = failed(await lamb(app, change_visibility=False).invoke(event))
    assert set(answer) == {event["Records"][n]["messageId"] for n in (0, 2)}
    assert [call.payload for call in handle.calls] == ["a1", "b1", "b2"]


async def test_batches_are_lists_and_what_is_behind_a_failure_comes_again(lamb: Make) -> None:
    app = App()
    got: list[list[str]] = []

    @app.subscriber("q.fifo", batch=3)
    async def handle(payload: list[str]) -> list[Any]:
        got.append(payload)
        return [Retry() if each == "a2" else Ack() for each in payload]

    event = lambda_event(
        "q.fifo", [Draft(body, group_id=body[0]) for body in ("a1", "a2", "a3", "a4", "b1")]
    )
    ids = {record["body"]: record["messageId"] for record in event["Records"]}
    answer = failed(await lamb(app, change_visibility=False).invoke(event))
    assert answer == [ids["a2"], ids["a3"], ids["a4"]]
    assert sorted(map(tuple, got)) == [("a1", "a2", "a3"), ("b1",)]


async def test_a_fifo_queue_is_handled_once_and_in_order_by_a_mapping(
    account: Account, clock: VirtualClock
) -> None:
    await make_queue(account, "q.fifo", VisibilityTimeout="100")
    app = App()
    done: list[str] = []

    @app.subscriber("q.fifo", retry=2)
    async def handle(payload: str, message: Message) -> None:
        if payload.endswith("3") and message.receive_count < 3:
            raise ValueError
        done.append(payload)

    for number in range(8):
        for group in "ab":
            await send(account, "q.fifo", f"{group}{number}", group)
    async with LambdaHandler(app, account) as handler:
        mapping = EventSourceMapping(account, "q.fifo", handler)
        for _ in range(40):
            await mapping.poll()
            await clock.advance(1)
    assert not mapping.errors
    for group in "ab":
        assert [body for body in done if body[0] == group] == [f"{group}{n}" for n in range(8)]
    assert account.queue("q.fifo").visible + account.queue("q.fifo").in_flight == 0


async def test_a_mapping_without_partial_responses_deletes_what_failed(account: Account) -> None:
    """Why it has to be set, and why the handler can raise in its place."""
    await make_queue(account, "q")
    app = App()

    @app.subscriber("q", retry=0)
    async def handle(payload: str) -> None:
        raise ValueError

    for options, left in (({}, 0), ({"partial_responses": False}, 1)):
        await send(account, "q", "a")
        async with LambdaHandler(app, account, **options) as handler:
            mapping = EventSourceMapping(account, "q", handler, partial_responses=False)
            await mapping.poll()
        queue = account.queue("q")
        assert queue.visible + queue.in_flight == left


# --- time ---------------------------------------------------------------------------------------


async def test_nothing_starts_past_the_deadline_and_the_answer_comes_in_time(
    lamb: Make, clock: VirtualClock, account: Account
) -> None:
    await make_queue(account, "q")
    app = App()
    cancelled: list[str] = []

    @app.subscriber("q", concurrency=1)
    async def handle(payload: str, message: Message) -> None:
        assert message.deadline == clock.now() - clock.monotonic() + 9
        try:
            await clock.sleep(4)
        except asyncio.CancelledError:
            cancelled.append(payload)
            raise

    event = lambda_event("q", list("abcde"))
    invocation = asyncio.create_task(lamb(app).invoke(event, LambdaContext(10, clock)))
    await clock.run_until(invocation.done)
    assert clock.monotonic() == 9  # a tenth of the time is kept for the answer
    ids = [record["messageId"] for record in event["Records"]]
    assert set(failed(invocation.result())) == set(ids[2:])
    assert [call.payload for call in handle.calls] == ["a", "b", "c"]
    assert cancelled == ["c"]


async def test_an_invocation_without_time_starts_nothing(lamb: Make, clock: VirtualClock) -> None:
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> None: ...

    event = lambda_event("q", ["a", "b"])
    handler = lamb(app, change_visibility=False)
    assert len(failed(await handler.invoke(event, LambdaContext(0, clock)))) == 2
    assert handle.calls == []


async def test_a_thread_that_does_not_end_is_answered_for_as_failed(
    lamb: Make, clock: VirtualClock
) -> None:
    app = App()
    release, began = threading.Event(), threading.Event()

    @app.subscriber("q")
    def handle(payload: str) -> None:
        began.set()
        release.wait(20)

    event = lambda_event("q", ["a"])
    handler = LambdaHandler(app, None, change_visibility=False)
    account = Account()  # on the real clock: a virtual one stands still while a thread runs
    handler._backend = account
    try:
        answer = await handler.invoke(event, LambdaContext(0.6))
        assert began.is_set()
        assert failed(answer) == [event["Records"][0]["messageId"]]
        release.set()
        await asyncio.wait(handler._left)
    finally:
        release.set()
        await handler.aclose()


async def test_a_cancelled_invocation_cancels_its_handlers(lamb: Make, clock: VirtualClock) -> None:
    app = App()
    ended: list[str] = []

    @app.subscriber("q")
    async def handle(payload: str) -> None:
        try:
            await clock.sleep(100)
        finally:
            ended.append(payload)

    invocation = asyncio.create_task(
        lamb(app).invoke(lambda_event("q", ["a", "b"]), LambdaContext(300, clock))
    )
    await clock.settle()
    invocation.cancel()
    await clock.settle()
    with pytest.raises(asyncio.CancelledError):
        await invocation
    assert ended == ["a", "b"]


# --- the life of the process --------------------------------------------------------------------


def test_the_loop_and_the_lifespan_are_those_of_the_process() -> None:
    app = App()
    loops: list[asyncio.AbstractEventLoop] = []
    entered: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    @app.subscriber("q")
    async def handle(payload: str) -> None:
        loops.append(asyncio.get_running_loop())

    handler = LambdaHandler(app, Account())
    for _ in range(3):
        assert handler(lambda_event("q", ["a"]), LambdaContext(30)) == {"batchItemFailures": []}
    assert entered == ["in"]
    assert len(set(loops)) == 1
    handler.close()
    handler.close()
    assert entered == ["in", "out"]
    handler(lambda_event("q", ["a"]), LambdaContext(30))
    assert entered == ["in", "out", "in"]
    handler.close()


async def test_a_call_in_a_running_loop_points_to_invoke(lamb: Make) -> None:
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> None: ...

    with pytest.raises(UsageError, match=r"await handler\.invoke"):
        lamb(app)(lambda_event("q", ["a"]))
    assert handle.calls == []


def test_another_loop_needs_the_first_to_be_left() -> None:
    app = App()

    @app.subscriber("q")
    async def handle(payload: str) -> None: ...

    handler = LambdaHandler(app, Account())
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(handler.invoke(lambda_event("q", ["a"])))
        with pytest.raises(CrossThreadError, match="aclose"):
            second.run(handler.invoke(lambda_event("q", ["a"])))
        first.run(handler.aclose())
        assert second.run(handler.invoke(lambda_event("q", ["a"]))) == {"batchItemFailures": []}
        second.run(handler.aclose())


@pytest.mark.parametrize("broken_by", [KeyboardInterrupt, None], ids=["interrupt", "stop"])
def test_what_tears_the_loop_away_leaves_nothing_to_run_beside_the_next_invocation(
    broken_by: type[BaseException] | None,
) -> None:
    app = App()
    runs: list[str] = []
    ended: list[str] = []

    @app.subscriber("q.fifo")
    async def handle(payload: str) -> None:
        runs.append(payload)
        if payload == "later":
            return
        if payload == "breaks":
            if broken_by is not None:
                raise broken_by
            asyncio.get_running_loop().stop()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(payload)

    handler = LambdaHandler(app, Account())
    both = [Draft("slow", group_id="a"), Draft("breaks", group_id="b")]
    with pytest.raises(broken_by or RuntimeError):
        handler(lambda_event("q.fifo", both), LambdaContext(30))
    assert "slow" in ended
    runs.clear()
    later = lambda_event("q.fifo", [Draft("later", group_id="a")])
    assert handler(later, LambdaContext(30)) == {"batchItemFailures": []}
    assert runs == ["later"]
    handler.close()


async def test_a_start_that_fails_is_raised_and_tried_again(lamb: Make) -> None:
    app = App()
    tries = 0

    @app.lifespan
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConfigError("no database")
        yield

    @app.subscriber("q")
    async def handle(payload: str) -> None: ...

    handler = lamb(app)
    with pytest.raises(ConfigError, match="no database"):
        await handler.invoke(lambda_event("q", ["a"]))
    assert handle.calls == []
    assert failed(await handler.invoke(lambda_event("q", ["a"]))) == []


async def test_middleware_and_publishers_work_as_in_the_runtime(
    lamb: Make, account: Account, clock: VirtualClock
) -> None:
    await make_queue(account, "audit")
    order: list[str] = []

    async def middleware(message: Message, call_next: Any) -> Any:
        order.append("before")
        result = await call_next(message)
        order.append("after")
        return result

    app = App(middleware=[middleware])

    @app.subscriber("q")
    async def handle(payload: str) -> None:
        order.append(payload)
        await app.sink("audit").send("seen")

    assert await invoke(lamb(app), lambda_event("q", ["a"]), clock) == []
    assert order == ["before", "a", "after"]
    assert [sent.body for sent in account.sent("audit")] == ["seen"]


async def test_a_claim_check_is_fetched_and_left_in_the_store(lamb: Make, tmp_path: Path) -> None:
    check = ClaimCheck(DirectoryBlobStore(tmp_path))
    ticket = await check.offload("x" * 100, {}, "id")
    app = App()

    @app.subscriber("q", claim_check=check)
    async def handle(payload: bytes) -> None:
        assert payload == b"x" * 100

    body, attributes = ticket
    event = lambda_event("q", [Draft(body, attributes=attributes)])
    assert failed(await lamb(app, change_visibility=False).invoke(event)) == []
    assert any(path.is_file() for path in tmp_path.rglob("*"))


class Database:
    def __init__(self) -> None:
        self.rows: list[str] = []


_closed: list[str] = []


async def session(database: Annotated[Database, State()]) -> AsyncIterator[list[str]]:
    yield database.rows
    _closed.append("session")


async def test_dependencies_state_and_idempotency_work_across_invocations(
    lamb: Make, account: Account
) -> None:
    database, closed = Database(), _closed
    closed.clear()
    app = App()

    @app.lifespan
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        app.state.put(database)
        yield

    @app.subscriber("q", middleware=[Idempotency(MemoryStore())])
    async def handle(
        payload: dict[str, int],
        rows: Annotated[list[str], Depends(session)],
        tenant: Annotated[str, Header("tenant")],
    ) -> None:
        rows.append(f"{tenant} {payload['id']}")

    handler = lamb(app)
    event = lambda_event("q", [Draft({"id": 1}, headers={"tenant": "acme"})])
    for _ in range(2):  # Lambda brings a message twice now and then
        assert failed(await handler.invoke(event)) == []
    assert (database.rows, closed) == (["acme 1"], ["session"])


async def test_envelopes_of_sns_are_opened(lamb: Make) -> None:
    app = App()

    @app.subscriber(Queue("q", sns="envelope"), undecodable="drop")
    async def handle(payload: dict[str, int], message: Message) -> None:
        assert message.headers == {"h": "1"}

    envelope = {
        "Type": "Notification",
        "MessageId": "95df01b4-ee98-5cb9-9903-4c221d41eb5e",
        "TopicArn": "arn:aws:sns:us-east-1:000000000000:t",
        "Message": '{"id":1}',
        "Timestamp": "2024-01-01T00:00:00.000Z",
        "MessageAttributes": {"h": {"Type": "String", "Value": "1"}},
    }
    assert failed(await lamb(app).invoke(lambda_event("q", [envelope, "no envelope"]))) == []
    assert [call.payload for call in handle.calls] == [{"id": 1}]


async def test_what_is_no_attempt_does_not_use_them_up(lamb: Make, account: Account) -> None:
    await make_queue(account, "dead")
    app = App()

    @app.subscriber("q", max_attempts=1, dead_letter="dead")
    async def handle(payload: str) -> Retry:
        return Retry(after=5, counts=False)

    event = lambda_event("q", ["a"])
    answer = await lamb(app, change_visibility=False).invoke(event)
    assert failed(answer) == [event["Records"][0]["messageId"]]
    assert account.sent("dead") == []


async def test_routers_and_stacked_subscribers_are_found_by_their_own_names(lamb: Make) -> None:
    router = Router(prefix="eu-")
    app = App()

    @router.subscriber("one")
    @router.subscriber("two")
    async def handle(payload: str, message: Message) -> None:
        assert message.queue == f"eu-{payload}"

    app.include_router(router)
    handler = lamb(app)
    for name in ("one", "two"):
        assert failed(await handler.invoke(lambda_event(f"eu-{name}", [name]))) == []
    with pytest.raises(UsageError, match="no subscriber of that queue"):
        await handler.invoke(lambda_event("one", ["one"]))
    assert [call.payload for call in handle.calls] == ["one", "two"]


def test_a_function_s_module_works_as_lambda_runs_it(tmp_path: Path) -> None:
    """`app.lambda_handler` itself, in a process of its own, connected as its environment says."""
    (tmp_path / "function.py").write_text(
        textwrap.dedent(
            """
            import asyncio
            from contextlib import asynccontextmanager
            from pumphouse import App, Message

            app = App("orders")

            @app.lifespan
            @asynccontextmanager
            async def lifespan(app):
                print("up", flush=True)
                yield
                print("down", flush=True)

            @app.subscriber("orders", publish="replies")
            async def handle(order: dict, message: Message):
                if order["amount"] < 0:
                    raise ValueError("negative")
                return {"paid": order["amount"]}

            handler = app.lambda_handler
            """
        )
    )
    main = textwrap.dedent(
        """
        import json, sys
        from function import handler

        class Context:
            def get_remaining_time_in_millis(self):
                return 20_000

        for line in sys.stdin:
            print(json.dumps(handler(json.loads(line), Context())), flush=True)
        """
    )
    account = Account()
    with serving(account) as served:
        _run(served, account, tmp_path, main)


def _run(served: Served, account: Account, tmp_path: Path, main: str) -> None:
    served.run(account.execute(CreateQueue("orders")))
    served.run(account.execute(CreateQueue("replies")))
    events = [
        lambda_event("orders", [{"amount": 1}, {"amount": -1}]),
        lambda_event("orders", [{"amount": 2}]),
    ]
    done = subprocess.run(
        [sys.executable, "-c", main],
        input="".join(json.dumps(event) + "\n" for event in events),
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": served.url,
            "PYTHONWARNINGS": "error",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    up, first, second, down = done.stdout.splitlines()
    assert (up, down) == ("up", "down")
    assert failed(json.loads(first)) == [events[0]["Records"][1]["messageId"]]
    assert json.loads(second) == {"batchItemFailures": []}
    assert [sent.body for sent in account.sent("replies")] == ['{"paid":1}', '{"paid":2}']
