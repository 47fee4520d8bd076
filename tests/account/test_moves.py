"""Message move tasks: at their rate, in order, to where they should, and one at a time."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import (
    CancelMessageMoveTask,
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    ListMessageMoveTasks,
    ListMessageMoveTasksResultEntry,
    MessageAttributeValue,
    ReceivedMessage,
    ReceiveMessage,
    SendMessage,
    StartMessageMoveTask,
)


def arn(name: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{name}"


async def create(account: Account, name: str, **attributes: str) -> str:
    if name.endswith(".fifo"):
        attributes["FifoQueue"] = "true"
    return (await account.execute(CreateQueue(name, attributes))).queue_url


async def pipe(account: Account, *sources: str, dead: str = "dead") -> None:
    """Queues whose dead letters go to `dead` after one receive, and a queue to move to."""
    suffix = ".fifo" if dead.endswith(".fifo") else ""
    await create(account, dead)
    await create(account, "target" + suffix)
    policy = json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 1})
    for source in sources:
        await create(account, source, RedrivePolicy=policy)


async def kill(account: Account, queue: str, *bodies: str) -> None:
    for body in bodies:
        fifo = {"message_group_id": "g", "message_deduplication_id": body}
        await account.execute(
            SendMessage(
                queue,
                body,
                message_attributes={"k": MessageAttributeValue("String", "v")},
                **(fifo if queue.endswith(".fifo") else {}),
            )
        )
    for _ in range(2 * len(bodies)):
        await account.execute(ReceiveMessage(queue, visibility_timeout=0))


async def receive(account: Account, queue: str) -> list[ReceivedMessage]:
    found = []
    while True:
        answer = await account.execute(
            ReceiveMessage(
                queue,
                max_number_of_messages=10,
                attribute_names=["All"],
                message_attribute_names=["All"],
            )
        )
        if not answer.messages:
            return found
        found += answer.messages


async def start(
    account: Account, source: str = "dead", target: str | None = "target", rate: int | None = None
) -> str:
    operation = StartMessageMoveTask(arn(source), arn(target) if target else None, rate)
    return (await account.execute(operation)).task_handle


async def tasks(account: Account, source: str = "dead") -> list[ListMessageMoveTasksResultEntry]:
    return (await account.execute(ListMessageMoveTasks(arn(source), 10))).results


async def count(account: Account, queue: str) -> int:
    answer = await account.execute(GetQueueAttributes(queue, ["ApproximateNumberOfMessages"]))
    return int(answer.attributes["ApproximateNumberOfMessages"])


async def test_a_moved_message_is_a_new_one_with_the_same_content(
    account: Account, clock: VirtualClock
) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a")
    [dead] = (await account.execute(ReceiveMessage("dead", visibility_timeout=0))).messages
    await clock.advance(10)
    await start(account)
    await clock.advance(0)
    [moved] = await receive(account, "target")
    assert moved.body == dead.body
    assert moved.message_id != dead.message_id
    assert moved.message_attributes == {"k": MessageAttributeValue("String", "v")}
    assert moved.attributes["ApproximateReceiveCount"] == "1"
    assert int(moved.attributes["SentTimestamp"]) == int(clock.now() * 1000)
    assert "DeadLetterQueueSourceArn" not in moved.attributes
    assert await count(account, "dead") == 0


async def test_a_task_as_it_is_listed(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a", "b", "c")
    handle = await start(account, rate=1)
    shown = json.loads(base64.b64decode(handle))
    assert shown["sourceArn"] == arn("dead")
    [running] = await tasks(account)
    assert running == ListMessageMoveTasksResultEntry(
        status="RUNNING",
        source_arn=arn("dead"),
        approximate_number_of_messages_moved=0,
        task_handle=handle,
        destination_arn=arn("target"),
        max_number_of_messages_per_second=1,
        approximate_number_of_messages_to_move=3,
        started_timestamp=1_700_000_000_000,
    )
    await clock.advance(5)
    [done] = await tasks(account)
    assert done == ListMessageMoveTasksResultEntry(
        status="COMPLETED",
        source_arn=arn("dead"),
        approximate_number_of_messages_moved=3,
        destination_arn=arn("target"),
        max_number_of_messages_per_second=1,
        approximate_number_of_messages_to_move=3,
        started_timestamp=1_700_000_000_000,
    )
    assert clock.next_timer is None


@pytest.mark.parametrize(
    ("rate", "seconds"), [(1, 59.0), (7, 59 / 7), (50, 1.1), (500, 0.1), (None, 0.1)]
)
async def test_rates(
    account: Account, clock: VirtualClock, rate: int | None, seconds: float
) -> None:
    await pipe(account, "q")
    await kill(account, "q", *(str(i) for i in range(60)))
    before = clock.monotonic()
    await start(account, rate=rate)
    timers = 0
    while (due := clock.next_timer) is not None:
        timers += 1
        await clock.advance(due - clock.monotonic())
        if rate:
            moved = (await tasks(account))[0].approximate_number_of_messages_moved or 0
            assert moved <= 1 + rate * (clock.monotonic() - before) + rate / 10
    assert clock.monotonic() - before == pytest.approx(seconds)
    assert [m.body for m in await receive(account, "target")] == [str(i) for i in range(60)]
    assert timers <= 60


async def test_each_goes_back_to_where_it_came_from(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q1", "q2")
    await kill(account, "q1", "a1", "b1")
    await kill(account, "q2", "a2")
    await start(account, target=None)
    await clock.advance(1)
    assert [m.body for m in await receive(account, "q1")] == ["a1", "b1"]
    assert [m.body for m in await receive(account, "q2")] == ["a2"]
    [task] = await tasks(account)
    assert (task.status, task.destination_arn) == ("COMPLETED", None)


async def test_a_group_keeps_its_order(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q.fifo", dead="dead.fifo")
    await kill(account, "q.fifo", *"abcde")
    await start(account, "dead.fifo", None, rate=2)
    await clock.advance(1)
    assert await count(account, "dead.fifo") == 2
    await clock.advance(10)
    back = await account.execute(
        ReceiveMessage("q.fifo", attribute_names=["All"], max_number_of_messages=10)
    )
    assert [message.body for message in back.messages] == list("abcde")
    numbers = [message.attributes["SequenceNumber"] for message in back.messages]
    assert numbers == sorted(numbers)
    assert {message.attributes["MessageGroupId"] for message in back.messages} == {"g"}


async def test_who_waits_at_the_destination_is_woken(account: Account, clock: VirtualClock) -> None:
    import asyncio

    await pipe(account, "q")
    await kill(account, "q", "a")
    waiting = asyncio.create_task(account.execute(ReceiveMessage("target", wait_time_seconds=20)))
    await clock.advance(1)
    await start(account)
    await clock.advance(0)
    assert waiting.done()
    assert [message.body for message in (await waiting).messages] == ["a"]


async def test_what_is_in_flight_stays(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a", "b")
    held = (await account.execute(ReceiveMessage("dead"))).messages[0]
    await start(account)
    await clock.advance(1)
    [task] = await tasks(account)
    assert (task.status, task.approximate_number_of_messages_to_move) == ("COMPLETED", 1)
    assert [m.body for m in await receive(account, "target")] == ["b"]
    await clock.advance(30)
    assert [m.body for m in await receive(account, "dead")] == [held.body]


async def test_an_empty_source_is_done_at_once(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await start(account)
    await clock.advance(0)
    [task] = await tasks(account)
    assert task.status == "COMPLETED"
    assert task.approximate_number_of_messages_moved == 0


step = st.one_of(
    st.tuples(st.just("advance"), st.floats(0, 3)),
    st.tuples(st.just("receive"), st.sampled_from(["dead", "target", "q"])),
    st.tuples(st.just("start"), st.sampled_from([None, 1, 3, 40])),
    st.tuples(st.just("start home"), st.sampled_from([None, 1, 3, 40])),
    st.tuples(st.just("cancel"), st.just(0)),
)


@pytest.mark.parametrize("suffix", ["", ".fifo"])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(step, min_size=5, max_size=40), number=st.integers(1, 9))
async def test_nothing_is_lost_or_doubled(
    suffix: str, steps: list[tuple[str, Any]], number: int
) -> None:
    clock = VirtualClock()
    account = Account(clock=clock)
    await pipe(account, "q" + suffix, dead="dead" + suffix)
    await kill(account, "q" + suffix, *(f"{i:02}" for i in range(number)))
    for what, value in steps:
        if what == "advance":
            await clock.advance(value)
        elif what == "receive":
            await account.execute(
                ReceiveMessage(value + suffix, max_number_of_messages=3, visibility_timeout=2)
            )
        elif what == "cancel":
            for task in await tasks(account, "dead" + suffix):
                if task.task_handle:
                    await account.execute(CancelMessageMoveTask(task.task_handle))
        elif not any(t.task_handle for t in await tasks(account, "dead" + suffix)):
            target = None if what == "start home" else "target" + suffix
            await start(account, "dead" + suffix, target, value)
    for task in await tasks(account, "dead" + suffix):
        if task.task_handle:
            await account.execute(CancelMessageMoveTask(task.task_handle))
    await clock.advance(3)
    assert clock.next_timer is None
    found: list[str] = []
    for name in ("q", "dead", "target"):  # from `q` they go to `dead`
        held = [message.body for message in await receive(account, name + suffix)]
        found += held
    assert sorted(found) == [f"{i:02}" for i in range(number)]


# --- ends ---------------------------------------------------------------------------------------


async def test_cancelling(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", *"abcdef")
    handle = await start(account, rate=1)
    await clock.advance(2.5)
    answer = await account.execute(CancelMessageMoveTask(handle))
    assert answer.approximate_number_of_messages_moved == 3
    await clock.advance(60)
    [task] = await tasks(account)
    assert (task.status, task.approximate_number_of_messages_moved) == ("CANCELLED", 3)
    assert task.task_handle is None
    assert [m.body for m in await receive(account, "target")] == ["a", "b", "c"]
    assert await count(account, "dead") == 3
    with pytest.raises(RefusedError) as raised:
        await account.execute(CancelMessageMoveTask(handle))
    assert raised.value.code == "InvalidParameterValue"
    await start(account)


async def test_a_message_that_is_nobodys_dead_letter(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a")
    await account.execute(SendMessage("dead", "sent here"))
    await account.execute(SendMessage("dead", "and here"))
    await start(account, target=None, rate=93)
    await clock.advance(5)
    [task] = await tasks(account)
    assert (task.status, task.failure_reason) == ("FAILED", "CouldNotDetermineMessageSource")
    assert task.approximate_number_of_messages_moved == 1
    assert [m.body for m in await receive(account, "q")] == ["a"]
    assert sorted(m.body for m in await receive(account, "dead")) == ["and here", "sent here"]


async def test_a_destination_that_goes_away(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a", "b", "c")
    await start(account, rate=1)
    await clock.advance(0.5)
    await account.execute(DeleteQueue("target"))
    await clock.advance(5)
    [task] = await tasks(account)
    assert task.status == "FAILED"
    assert task.failure_reason == "AWS.SimpleQueueService.NonExistentQueue"
    assert await count(account, "dead") == 2


async def test_a_source_that_goes_away(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a", "b", "c")
    handle = await start(account, rate=1)
    await clock.advance(0.5)
    await account.execute(DeleteQueue("dead"))
    assert clock.next_timer is None
    for operation in (ListMessageMoveTasks(arn("dead")), CancelMessageMoveTask(handle)):
        with pytest.raises(RefusedError) as raised:
            await account.execute(operation)
        assert raised.value.code == "ResourceNotFoundException"
        assert raised.value.status == 404


async def test_closing_the_account_stops_the_tasks(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    await kill(account, "q", "a", "b", "c")
    await start(account, rate=1)
    await account.aclose()
    assert clock.next_timer is None


async def test_the_latest_ten_are_listed(account: Account, clock: VirtualClock) -> None:
    await pipe(account, "q")
    for _ in range(12):
        await start(account)
        await clock.advance(1)
    found = await tasks(account)
    assert len(found) == 10
    times = [task.started_timestamp or 0 for task in found]
    assert times == sorted(times, reverse=True)
    latest = await account.execute(ListMessageMoveTasks(arn("dead")))
    assert latest.results == found[:1]


# --- what is refused ----------------------------------------------------------------------------

FORMAT = "You must use this format to specify the {}: "
FORMAT += "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
NOT_THERE = "The resource that you specified for the {} parameter doesn't exist."


@pytest.mark.parametrize(
    ("operation", "code", "words"),
    [
        (StartMessageMoveTask(""), "InvalidParameterValue", FORMAT.format("SourceArn")),
        (StartMessageMoveTask("dead"), "InvalidParameterValue", FORMAT.format("SourceArn")),
        (
            StartMessageMoveTask(arn("nowhere")),
            "ResourceNotFoundException",
            NOT_THERE.format("SourceArn"),
        ),
        (
            StartMessageMoveTask("arn:aws:sqs:eu-west-1:000000000000:dead"),
            "ResourceNotFoundException",
            NOT_THERE.format("SourceArn"),
        ),
        (
            StartMessageMoveTask(arn("dead"), "invalid"),
            "InvalidParameterValue",
            FORMAT.format("DestinationArn"),
        ),
        (
            StartMessageMoveTask(arn("dead"), arn("nowhere")),
            "ResourceNotFoundException",
            NOT_THERE.format("DestinationArn"),
        ),
        (
            StartMessageMoveTask(arn("dead"), arn("dead")),
            "InvalidParameterValue",
            "Source queue arn and destination queue arn cannot be the same.",
        ),
        (
            StartMessageMoveTask(arn("dead"), arn("other.fifo")),
            "InvalidParameterValue",
            "The source queue and destination queue must be of the same queue type.",
        ),
        (
            StartMessageMoveTask(arn("q"), arn("target")),
            "InvalidParameterValue",
            "Source queue must be configured as a Dead Letter Queue.",
        ),
        *(
            (
                StartMessageMoveTask(arn("dead"), None, rate),
                "InvalidParameterValue",
                "Value for parameter MaxNumberOfMessagesPerSecond is invalid. "
                "Reason: You must enter a number that's between 1 and 500.",
            )
            for rate in (0, -1, 501)
        ),
        (ListMessageMoveTasks("dead"), "InvalidParameterValue", FORMAT.format("SourceArn")),
        (
            ListMessageMoveTasks(arn("nowhere")),
            "ResourceNotFoundException",
            NOT_THERE.format("SourceArn"),
        ),
        *(
            (
                ListMessageMoveTasks(arn("dead"), number),
                "InvalidParameterValue",
                "Value for parameter MaxResults is invalid. "
                "Reason: You must enter a number that's between 1 and 10.",
            )
            for number in (0, 11)
        ),
        *(
            (
                CancelMessageMoveTask(handle),
                "InvalidParameterValue",
                "Value for parameter TaskHandle is invalid.",
            )
            for handle in ("", "foobared", "é", "bnVsbA==", "e30=", "WzFd")
        ),
    ],
)
async def test_requests_that_are_refused(
    account: Account, operation: StartMessageMoveTask, code: str, words: str
) -> None:
    await pipe(account, "q")
    await create(account, "other.fifo")
    with pytest.raises(RefusedError) as raised:
        await account.execute(operation)
    assert (raised.value.code, raised.value.message) == (code, words)
    assert raised.value.status == (404 if code == "ResourceNotFoundException" else 400)
