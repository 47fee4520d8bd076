"""`redrive`: dead letters on their way back, by SQS's task and by the own move."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    ConfigError,
    QueueDoesNotExist,
    RefusedConfigError,
    RefusedError,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.protocol.operations import (
    CancelMessageMoveTask,
    CreateQueue,
    DeleteMessageBatch,
    DeleteQueue,
    ListDeadLetterSourceQueues,
    ListMessageMoveTasks,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    StartMessageMoveTask,
)
from pumphouse.queue_tools import parse_condition, redrive
from pumphouse.sink import Sink
from support.dead_letters import contents, kill_all, passing, put, queues, text
from support.service import count


def bodies(messages: list[Any]) -> list[str]:
    return [message.body for message in messages]


async def five(account: Account, *, fifo: bool = False) -> tuple[str, str]:
    suffix = ".fifo" if fifo else ""
    await queues(account, f"q{suffix}", dead=f"dead{suffix}")
    for number in range(5):
        await put(account, f"q{suffix}", str(number), "ab"[number % 2] if fifo else None)
    await kill_all(account, f"q{suffix}")
    assert account.queue(f"dead{suffix}").visible == 5
    return f"q{suffix}", f"dead{suffix}"


# --- SQS's own task -----------------------------------------------------------------------------


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_whole_queue_goes_home_with_sqs_s_task(
    account: Account, clock: VirtualClock, fifo: bool
) -> None:
    queue, dead = await five(account, fifo=fifo)
    seen: list[int] = []
    result = await passing(
        clock, redrive(account, dead, progress=lambda result: seen.append(result.moved))
    )
    assert (result.way, result.moved, result.ok) == ("task", 5, True)
    assert result.destinations == {queue: 5}
    assert seen[-1] == 5
    assert sorted(bodies(await contents(account, queue))) == list("01234")
    assert not any(
        entry.operation.queue_url.endswith(dead)
        for entry in account.ledger
        if isinstance(entry.operation, ReceiveMessage) and entry.operation.wait_time_seconds
    ), "the task receives nothing"


async def test_the_task_s_rate_is_sqs_s(account: Account, clock: VirtualClock) -> None:
    _, dead = await five(account)
    began = clock.monotonic()
    result = await passing(clock, redrive(account, dead, rate=1))
    assert (result.way, result.moved) == ("task", 5)
    assert clock.monotonic() - began >= 4


async def test_a_stop_cancels_the_task(account: Account, clock: VirtualClock) -> None:
    queue, dead = await five(account)
    stop = asyncio.Event()

    def progress(result: Any) -> None:
        if result.moved >= 2:
            stop.set()

    result = await passing(clock, redrive(account, dead, rate=1, stop=stop, progress=progress))
    assert (result.ended, result.ok) == ("interrupted", False)
    assert result.moved == account.queue(queue).visible
    assert account.queue(queue).visible + account.queue(dead).visible == 5
    result = await passing(clock, redrive(account, dead))
    assert account.queue(queue).visible == 5


async def test_a_task_that_may_not_be_cancelled_goes_on_and_that_is_said(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    account.faults.refuse(CancelMessageMoveTask, "AccessDenied", times=None)
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(ConfigError, match=r"can't be cancelled, and goes on \(AccessDenied"):
        await passing(clock, redrive(account, dead, rate=1, stop=stop))
    await clock.advance(10)
    assert account.queue(queue).visible == 5


async def test_a_task_that_runs_already_is_left_alone(
    account: Account, clock: VirtualClock
) -> None:
    _, dead = await five(account)
    await account.execute(
        StartMessageMoveTask(account.queue(dead).arn, max_number_of_messages_per_second=1)
    )
    with pytest.raises(ConfigError, match="running already"):
        await passing(clock, redrive(account, dead))
    await account.aclose()


async def test_a_lost_answer_to_the_start_is_looked_into(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    account.faults.lose_answer(StartMessageMoveTask)
    result = await passing(clock, redrive(account, dead))
    assert (result.way, result.moved) == ("task", 5)
    assert account.queue(queue).visible == 5


async def test_a_refused_task_becomes_the_own_move_unless_it_was_insisted_on(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    account.faults.refuse(StartMessageMoveTask, "AccessDenied", "no", times=2)
    with pytest.raises(ConfigError, match="AccessDenied"):
        await passing(clock, redrive(account, dead, task=True))
    result = await passing(clock, redrive(account, dead))
    assert (result.way, result.moved, result.ok) == ("move", 5, True)
    assert account.queue(queue).visible == 5


class NoTasks(NamedTuple):
    """A server that does not have the actions of message move tasks, and answers with a page."""

    account: Account

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, StartMessageMoveTask | ListMessageMoveTasks):
            raise UnexpectedAnswerError(500, "<!doctype html>")
        return await self.account.execute(operation)

    async def aclose(self) -> None: ...


async def test_a_server_without_tasks_is_moved_by_hand(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    server = NoTasks(account)
    with pytest.raises(UnexpectedAnswerError):
        await passing(clock, redrive(server, dead, task=True, clock=clock))
    result = await passing(clock, redrive(server, dead, clock=clock))
    assert (result.way, result.moved, result.ok) == ("move", 5, True)
    assert result.no_task == "the server has none"
    assert account.queue(queue).visible == 5


async def test_looks_at_a_task_that_fail_for_a_while_do_not_end_it(
    account: Account, clock: VirtualClock
) -> None:
    _, dead = await five(account)
    started = asyncio.create_task(redrive(account, dead, rate=1))
    await clock.advance(1)
    account.faults.throttle(ListMessageMoveTasks, times=3)
    await clock.run_until(started.done)
    assert started.result().moved == 5


# --- the own move -------------------------------------------------------------------------------


async def test_a_message_comes_home_as_it_was_sent(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q.fifo", dead="dead.fifo")
    carried = {
        "n": text("1"),
        "pumphouse.reason": text("ValueError: no"),
        "pumphouse.attempts": text("3"),
        "pumphouse.source": text(account.queue("q.fifo").arn),
        "pumphouse.message-id": text("x"),
    }
    await account.execute(
        SendMessage(
            "dead.fifo",
            "body",
            message_attributes=carried,
            message_system_attributes={"AWSTraceHeader": text("Root=1-5759e988-bd862e3fe1be46a9")},
            message_group_id="g",
            message_deduplication_id="d",
        )
    )
    result = await passing(clock, redrive(account, "dead.fifo", task=False))
    assert (result.way, result.moved, result.ok) == ("move", 1, True)
    (message,) = await contents(account, "q.fifo")
    assert message.body == "body"
    assert list(message.message_attributes) == ["n"]
    assert message.attributes["MessageGroupId"] == "g"
    assert message.attributes["AWSTraceHeader"] == "Root=1-5759e988-bd862e3fe1be46a9"
    assert not await contents(account, "dead.fifo")


async def test_to_another_queue_the_reasons_go_along(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q", dead="dead")
    await account.execute(CreateQueue("other"))
    await put(account, "dead", "a", **{"pumphouse.reason": "why"})
    result = await passing(clock, redrive(account, "dead", to="other", task=False))
    assert result.moved == 1
    (message,) = await contents(account, "other")
    assert message.message_attributes == {"pumphouse.reason": text("why")}


async def test_each_message_goes_to_the_queue_that_it_came_from(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "one", "two", dead="dead")
    await put(account, "one", "1")
    await put(account, "two", "2")
    await kill_all(account, "one")
    await kill_all(account, "two")
    await put(account, "dead", "carried", **{"pumphouse.source": account.queue("two").arn})
    await put(account, "dead", "stray")
    await put(account, "dead", "forged", **{"pumphouse.source": "arn:aws:sqs:us-east-1:1:evil"})
    result = await passing(clock, redrive(account, "dead"))
    assert (result.way, result.moved, result.ok) == ("move", 3, False)
    assert result.destinations == {"one": 1, "two": 2}
    assert sorted(reason for _, reason in result.failed.first) == [
        "it does not say which queue it came from; --to names one of one, two",
        "it names evil, which does not have this dead-letter queue; --to names one of one, two",
    ]
    assert bodies(await contents(account, "one")) == ["1"]
    assert sorted(bodies(await contents(account, "two"))) == ["2", "carried"]
    assert sorted(bodies(await contents(account, "dead"))) == ["forged", "stray"]


async def test_what_the_filter_does_not_mean_stays(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q", dead="dead")
    for number in range(30):
        await put(account, "dead", f'{{"order":{{"id":{number}}}}}', tenant="ab"[number % 2])
    conditions = [parse_condition("attr.tenant=a"), parse_condition("body.order.id!=4")]
    result = await passing(clock, redrive(account, "dead", to="q", conditions=conditions))
    assert (result.moved, result.left_out, result.ok) == (14, 16, True)
    dead = account.queue("dead")
    assert (dead.visible, dead.in_flight) == (16, 0), "what stays is given back"
    assert account.queue("q").visible == 14


async def test_behind_what_stays_of_a_group_nothing_can_be_seen_and_it_is_said(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q.fifo", dead="dead.fifo")
    for number in range(15):
        await put(account, "dead.fifo", f"m{number:02}", "g")
    for number in range(3):
        await put(account, "dead.fifo", f"x{number}", "h")
    result = await passing(
        clock, redrive(account, "dead.fifo", to="q.fifo", conditions=[parse_condition("body~x")])
    )
    assert (result.moved, result.left_out, result.unseen) == (3, 10, 5)
    assert bodies(await contents(account, "q.fifo")) == ["x0", "x1", "x2"]
    assert bodies(await contents(account, "dead.fifo")) == [f"m{n:02}" for n in range(15)]
    assert not result.ok, "nobody knows whether there is one that is meant"


def reached(group: list[bool]) -> int:
    """How many of a group can be looked at: to the end of the receive that the tenth that stays
    is in, at the latest."""
    stays = 0
    for place, meant in enumerate(group):
        stays += not meant
        if stays == 10:
            return place + 1
    return len(group)


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.lists(st.booleans(), max_size=40), min_size=1, max_size=5),
    most=st.none() | st.integers(1, 60),
    rate=st.none() | st.just(5.0),
)
async def test_what_is_behind_a_few_that_stay_is_moved_in_order(
    groups: list[list[bool]], most: int | None, rate: float | None
) -> None:
    clock = VirtualClock()
    account = Account(clock=clock)
    await queues(account, "q.fifo", dead="dead.fifo")
    for place in range(40):
        for number, group in enumerate(groups):
            if place < len(group):
                kind = "meant" if group[place] else "stays"
                await put(account, "dead.fifo", f"{kind}-{number}-{place:02}", f"g{number}")
    conditions = [parse_condition("body~meant")]
    result = await passing(
        clock,
        redrive(account, "dead.fifo", to="q.fifo", conditions=conditions, most=most, rate=rate),
    )
    moved, left = await contents(account, "q.fifo"), await contents(account, "dead.fifo")
    assert len(moved) == result.moved
    assert len(moved) + len(left) == sum(map(len, groups))
    for number, group in enumerate(groups):
        own = [body for body in bodies(moved) if body.split("-")[1] == str(number)]
        assert own == sorted(own), "in order"
        stayed = [body for body in bodies(left) if body.split("-")[1] == str(number)]
        assert [body[-2:] for body in stayed] == sorted(body[-2:] for body in stayed)
        if most is None:
            assert len(own) >= sum(group[: reached(group)])
    hidden = any(group[reached(group) :] for group in groups)
    if most is None:
        assert bool(result.unseen) <= hidden
        if all(group.count(False) < 10 for group in groups):
            assert result.moved == sum(map(sum, groups))
            assert (result.unseen, result.ok) == (0, True)
    else:
        assert result.moved <= most


async def test_what_stays_is_not_received_again_where_that_could_send_it_away(
    account: Account, clock: VirtualClock
) -> None:
    """A dead-letter queue with a dead-letter queue of its own: each receive counts."""
    await queues(account, "dead.fifo", dead="deader.fifo", receives=2)
    await account.execute(CreateQueue("q.fifo", {"FifoQueue": "true"}))
    for number in range(30):
        await put(account, "dead.fifo", f"{number:02}", "g")
    conditions = [parse_condition("body!=00")]
    result = await passing(clock, redrive(account, "dead.fifo", to="q.fifo", conditions=conditions))
    assert (result.moved, result.left_out, result.unseen, result.ok) == (9, 1, 20, False)
    assert account.queue("deader.fifo").visible == 0
    assert account.queue("dead.fifo").visible == 21


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_destination_that_goes_away_ends_the_run(
    account: Account, clock: VirtualClock, fifo: bool
) -> None:
    suffix = ".fifo" if fifo else ""
    await queues(account, f"q{suffix}", dead=f"dead{suffix}")
    for number in range(300):
        await put(account, f"dead{suffix}", f"{number:03}", f"g{number % 7}" if fifo else None)
    started = asyncio.create_task(
        redrive(account, f"dead{suffix}", to=f"q{suffix}", rate=50, task=False)
    )
    await clock.advance(2)
    before = account.queue(f"q{suffix}").visible
    await account.execute(DeleteQueue(f"q{suffix}"))
    account.ledger.clear()
    await clock.run_until(started.done)
    result = started.result()
    assert 0 < before <= result.moved < 200
    assert "QueueDoesNotExist" in result.ended
    assert f"q{suffix} takes no messages" in result.ended
    assert (result.failed.count, result.unknown.count, result.ok) == (0, 0, False)
    assert result.left == 300 - result.moved
    assert account.queue(f"dead{suffix}").visible == result.left, "all of it was given back"
    assert len(account.ledger.of(SendMessageBatch)) < 30, "and not tried one by one"


class Denying:
    """An account that lets nobody send to the queue `a`."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.refused: list[Any] = []

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, SendMessageBatch) and operation.queue_url.endswith("/a"):
            self.refused.append(operation)
            raise RefusedConfigError("no", code="AccessDenied", status=403)
        return await self.account.execute(operation)

    async def aclose(self) -> None: ...


async def test_of_several_destinations_one_that_goes_away_leaves_the_others(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "a", "b", dead="dead")
    for number in range(60):
        await put(account, "ab"[number % 2], str(number))
    await kill_all(account, "a")
    await kill_all(account, "b")
    denied = Denying(account)
    result = await passing(clock, redrive(denied, "dead", clock=clock))
    assert result.destinations == {"b": 30}
    assert (result.moved, result.failed.count, result.ended) == (30, 30, "")
    assert "a takes no messages" in result.failed.first[-1][1]
    assert len(denied.refused) <= 8, "no worker tries it twice"
    assert account.queue("dead").visible == 30


async def test_a_dry_run_moves_nothing(account: Account, clock: VirtualClock) -> None:
    queue, dead = await five(account)
    result = await passing(clock, redrive(account, dead, dry_run=True))
    assert (result.moved, result.destinations) == (5, {queue: 5})
    before = count(account, ReceiveMessage)
    conditions = [parse_condition("body!=3")]
    result = await passing(clock, redrive(account, dead, conditions=conditions, dry_run=True))
    assert (result.moved, result.left_out, result.destinations) == (4, 1, {queue: 4})
    assert count(account, ReceiveMessage) > before
    assert account.queue(queue).visible == 0
    assert (account.queue(dead).visible, account.queue(dead).in_flight) == (5, 0)


async def test_at_most_so_many(account: Account, clock: VirtualClock) -> None:
    queue, dead = await five(account)
    began, before = clock.monotonic(), count(account, ReceiveMessage)
    result = await passing(clock, redrive(account, dead, most=3))
    assert (result.way, result.moved, result.ok) == ("move", 3, True)
    assert (account.queue(queue).visible, account.queue(dead).visible) == (3, 2)
    # the others were not received, and nothing waited for more
    assert count(account, ReceiveMessage) == before + 1
    assert clock.monotonic() - began < 1


async def test_the_rate_holds(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q", dead="dead")
    for number in range(40):
        await put(account, "dead", str(number))
    began = clock.monotonic()
    result = await passing(clock, redrive(account, "dead", rate=4, task=False))
    assert result.moved == 40
    assert 39 / 4 <= clock.monotonic() - began <= 39 / 4 + 10
    sent = [e.started_at for e in account.ledger if isinstance(e.operation, SendMessageBatch)]
    for start in sent:
        assert sum(start <= each < start + 1 for each in sent) <= 5


async def test_a_refused_message_stays_and_holds_up_its_group_only(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q.fifo", dead="dead.fifo")
    for group in "ab":
        for number in range(12):
            await put(account, "dead.fifo", f"{group}{number:02}", group)
    account.faults.fail_entries(
        SendMessageBatch, lambda e: e.message_body == "a03", "InvalidMessageContents", times=None
    )
    result = await passing(clock, redrive(account, "dead.fifo", task=False))
    assert (result.moved, result.failed.count, result.ok) == (15, 7, False)
    assert "InvalidMessageContents" in result.failed.first[0][1]
    assert result.unseen == 2
    moved = bodies(await contents(account, "q.fifo"))
    assert [each for each in moved if each[0] == "a"] == ["a00", "a01", "a02"]
    assert [each for each in moved if each[0] == "b"] == [f"b{n:02}" for n in range(12)]
    left = bodies(await contents(account, "dead.fifo"))
    assert left == [f"a{n:02}" for n in range(3, 12)]


async def test_throttling_and_lost_answers_double_nothing_on_a_fifo_queue(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account, fifo=True)
    account.faults.throttle(SendMessageBatch, times=2)
    account.faults.lose_answer(SendMessageBatch, times=2)
    account.faults.lose_answer(DeleteMessageBatch, times=2)
    account.faults.throttle(ReceiveMessage, times=1)
    result = await passing(clock, redrive(account, dead, task=False))
    assert (result.moved, result.ok) == (5, True)
    assert sorted(bodies(await contents(account, queue))) == list("01234")
    assert not await contents(account, dead)


async def test_an_unknown_outcome_on_a_standard_queue_is_told_and_stays(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    account.faults.lose_answer(SendMessageBatch, times=1)
    result = await passing(clock, redrive(account, dead, task=False))
    assert not result.ok
    assert result.unknown.count + result.moved == 5
    assert result.unknown.count >= 1
    assert len(await contents(account, dead)) == result.unknown.count
    assert sorted(bodies(await contents(account, queue))) == list("01234")


async def test_deletes_that_are_refused_are_told(account: Account, clock: VirtualClock) -> None:
    _, dead = await five(account)
    account.faults.fail_entries(DeleteMessageBatch, lambda e: True, "ReceiptHandleIsInvalid")
    result = await passing(clock, redrive(account, dead, task=False))
    assert result.moved == 5
    assert result.undeleted.count > 0
    assert not result.ok


async def test_what_someone_else_holds_is_told(account: Account, clock: VirtualClock) -> None:
    _, dead = await five(account)
    await account.execute(ReceiveMessage(dead, max_number_of_messages=2, visibility_timeout=3_000))
    result = await passing(clock, redrive(account, dead, task=False))
    assert (result.moved, result.hidden, result.ok) == (3, 2, False)


async def test_equal_ids_of_their_own_do_not_swallow_a_message(
    account: Account, clock: VirtualClock
) -> None:
    """Two messages with the same deduplication id, sent ten minutes apart, are both moved."""
    await queues(account, "q.fifo", dead="dead.fifo")
    for _ in range(2):
        await put(account, "dead.fifo", "same", "g")
        await clock.advance(600)
    result = await passing(clock, redrive(account, "dead.fifo", task=False))
    assert result.moved == 2
    assert bodies(await contents(account, "q.fifo")) == ["same", "same"]


async def test_a_stop_finishes_what_it_began(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q", dead="dead")
    for number in range(300):
        await put(account, "dead", str(number))
    stop = asyncio.Event()

    def progress(result: Any) -> None:
        if result.moved >= 50:
            stop.set()

    result = await passing(
        clock, redrive(account, "dead", task=False, stop=stop, progress=progress)
    )
    assert result.ended == "interrupted"
    assert 50 <= result.moved < 300
    moved, left = await contents(account, "q"), await contents(account, "dead")
    assert len(moved) == result.moved
    assert sorted(bodies(moved + left)) == sorted(str(number) for number in range(300))


async def test_a_group_that_failed_is_not_overtaken_by_what_comes_later(
    account: Account, clock: VirtualClock
) -> None:
    """What is held comes again when its lease is over, and with it what was sent behind it."""
    await queues(account, "q.fifo", dead="dead.fifo")
    for number in range(3):
        await put(account, "dead.fifo", f"a{number}", "a")
    for number in range(150):
        await put(account, "dead.fifo", f"b{number}", "b")
    account.faults.fail_entries(
        SendMessageBatch, lambda e: e.message_body == "a0", "InvalidMessageContents", times=None
    )
    run = asyncio.create_task(redrive(account, "dead.fifo", task=False, rate=0.5))
    await clock.advance(60)
    for number in range(3, 9):
        await put(account, "dead.fifo", f"a{number}", "a")
    await clock.run_until(run.done)
    assert (run.result().moved, run.result().failed.count) == (150, 9)
    assert not [each for each in bodies(await contents(account, "q.fifo")) if each[0] == "a"]
    assert bodies(await contents(account, "dead.fifo")) == [f"a{n}" for n in range(9)]


@pytest.mark.parametrize("fifo", [False, True])
async def test_what_takes_longer_than_its_lease_is_moved_once_and_in_order(
    account: Account, clock: VirtualClock, fifo: bool
) -> None:
    suffix = ".fifo" if fifo else ""
    await queues(account, f"q{suffix}", dead=f"dead{suffix}")
    sent = [
        f"{group}{n:02}"
        for group, n in [
            *(("a", n) for n in range(5)),
            *(("b", n) for n in range(5)),
            *(("a", n) for n in range(5, 25)),
        ]
    ]
    for body in sent:
        await put(account, f"dead{suffix}", body, body[0] if fifo else None)
    account.faults.delay(SendMessageBatch, 40 if fifo else 130, times=30)
    result = await passing(clock, redrive(account, f"dead{suffix}", task=False))
    assert (result.moved, result.ok) == (30, True)
    assert not await contents(account, f"dead{suffix}")
    moved = bodies(await contents(account, f"q{suffix}"))
    assert sorted(moved) == sorted(sent)
    if fifo:
        for group in "ab":
            assert [each for each in moved if each[0] == group] == sorted(
                each for each in sent if each[0] == group
            )


@pytest.mark.parametrize("rate", [0.02, 0.3, 2])
async def test_a_stop_does_not_wait_for_the_pace(
    account: Account, clock: VirtualClock, rate: float
) -> None:
    await queues(account, "q", dead="dead")
    for number in range(40):
        await put(account, "dead", str(number))
    stop = asyncio.Event()
    run = asyncio.create_task(redrive(account, "dead", task=False, rate=rate, stop=stop))
    await clock.advance(7)
    began = clock.monotonic()
    stop.set()
    await clock.run_until(run.done)
    assert clock.monotonic() - began < 1
    result = run.result()
    assert (result.ended, result.failed.count) == ("interrupted", 0)
    assert result.moved <= 7 * rate + 1
    assert account.queue("q").visible == result.moved
    assert account.queue("dead").visible == 40 - result.moved, "the rest is given back"


async def test_no_more_is_received_than_is_meant_to_be_moved(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q", dead="dead")
    for number in range(40):
        await put(account, "dead", str(number))
    await passing(clock, redrive(account, "dead", most=1))
    left = await contents(account, "dead")
    assert sum(each.attributes["ApproximateReceiveCount"] != "1" for each in left) <= 8


async def test_a_killed_run_with_a_filter_goes_on_while_sqs_knows_what_it_sent(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q.fifo", dead="dead.fifo")
    for number in range(20):
        await put(account, "dead.fifo", f"{number:02}", "ab"[number % 2], tenant="acme")
    wanted = [parse_condition("attr.tenant=acme")]
    account.faults.throttle(DeleteMessageBatch, times=None)
    run = asyncio.create_task(redrive(account, "dead.fifo", conditions=wanted))
    await clock.run_until(lambda: account.queue("q.fifo").visible >= 10)
    run.cancel()
    await clock.run_until(run.done)
    account.faults.clear()
    await clock.advance(290)
    result = await passing(clock, redrive(account, "dead.fifo", conditions=wanted))
    assert result.ok
    assert not await contents(account, "dead.fifo")
    assert sorted(bodies(await contents(account, "q.fifo"))) == [f"{n:02}" for n in range(20)]


# --- what can't be ------------------------------------------------------------------------------


async def test_what_can_not_be_is_said_before_anything_moves(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q", "p", dead="dead")
    await account.execute(CreateQueue("q.fifo", {"FifoQueue": "true"}))
    for arguments, words in (
        ({"rate": 0}, "the rate is"),
        ({"most": 0}, "at least 1"),
        ({"to": "dead"}, "moved to itself"),
        ({"to": "q.fifo"}, "of one kind"),
        ({"task": True}, "the messages go to several queues"),
        ({"task": True, "to": "q", "most": 3}, "moves the whole queue"),
        ({"task": True, "to": "q", "rate": 600}, "whole number up to 500"),
    ):
        with pytest.raises(UsageError, match=words):
            await redrive(account, "dead", **arguments)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no queue has this one"):
        await redrive(account, "q", to="p", task=True)
    for queue, to in (("none", None), ("dead", "none")):
        with pytest.raises(QueueDoesNotExist):
            await redrive(account, queue, to=to)


@pytest.mark.parametrize("to", ["gone", "https://sqs.us-east-1.amazonaws.com/000000000000/gone"])
async def test_a_queue_that_does_not_exist_is_named(account: Account, to: str) -> None:
    _, dead = await five(account)
    with pytest.raises(QueueDoesNotExist, match="there is no queue 'gone'"):
        await redrive(account, dead, to=to)


async def test_without_the_permission_to_list_sources_it_takes_their_own_word(
    account: Account, clock: VirtualClock
) -> None:
    queue, dead = await five(account)
    account.faults.refuse(ListDeadLetterSourceQueues, "AccessDenied", "no", times=None)
    result = await passing(clock, redrive(account, dead))
    assert (result.way, result.moved) == ("move", 5)
    assert account.queue(queue).visible == 5


async def test_what_a_sink_could_not_send_goes_where_it_was_meant_for(
    account: Account, clock: VirtualClock
) -> None:
    for name in ("q.fifo", "failed.fifo"):
        await account.execute(CreateQueue(name, {"FifoQueue": "true"}))
    account.faults.fail_entries(SendMessageBatch, lambda entry: True, "InvalidMessageContents")
    sink = Sink("q.fifo", account, on_dead_letter="failed.fifo", clock=clock)

    async def send() -> None:
        with pytest.raises(RefusedError):
            await sink.send("a", group_id="g", headers={"h": "1"})
        await sink.aclose()

    await passing(clock, send())
    assert account.queue("failed.fifo").visible == 1
    result = await passing(clock, redrive(account, "failed.fifo"))
    assert (result.way, result.moved, result.ok) == ("move", 1, True)
    (message,) = await contents(account, "q.fifo")
    assert (message.body, list(message.message_attributes)) == ("a", ["h"])


async def test_a_note_that_leads_elsewhere_is_not_followed(
    account: Account, clock: VirtualClock
) -> None:
    for name in ("q", "dead"):
        await account.execute(CreateQueue(name))
    for source in (
        "arn:aws:sqs:us-east-1:999999999999:q",
        "https://sqs.eu-west-1.amazonaws.com/000000000000/q",
        "q.fifo",
        "none",
        "",
    ):
        notes = {"pumphouse.source": source} if source else {}
        await put(account, "dead", f"to {source}", **notes)
    await put(account, "dead", "good", **{"pumphouse.source": "q"})
    result = await passing(clock, redrive(account, "dead"))
    assert (result.moved, result.failed.count) == (1, 5)
    assert sorted(reason.partition(";")[0] for _, reason in result.failed.first) == [
        "it does not say which queue it came from",
        "it names arn:aws:sqs:us-east-1:999999999999:q, which is elsewhere",
        "it names https://sqs.eu-west-1.amazonaws.com/000000000000/q, which is elsewhere",
        "it names q.fifo, which is of the other kind",
        "the queue that it came from, none, does not exist",
    ]
    assert bodies(await contents(account, "q")) == ["good"]


async def test_a_source_that_fails_ends_the_run_with_what_was_moved(
    account: Account, clock: VirtualClock
) -> None:
    await queues(account, "q", dead="dead")
    for number in range(300):
        await put(account, "dead", str(number))

    def progress(result: Any) -> None:
        if result.moved >= 50:
            account.faults.refuse(ReceiveMessage, "AccessDenied", "not any more", times=None)

    result = await passing(clock, redrive(account, "dead", task=False, progress=progress))
    assert "not any more" in result.ended
    assert not result.ok
    account.faults.clear()
    moved, left = await contents(account, "q"), await contents(account, "dead")
    assert len(moved) == result.moved
    assert sorted(bodies(moved + left)) == sorted(str(number) for number in range(300))


async def test_a_high_rate_has_several_workers(account: Account, clock: VirtualClock) -> None:
    await queues(account, "q", dead="dead")
    for number in range(500):
        await put(account, "dead", str(number))
    account.faults.delay(SendMessageBatch, 0.1, times=None)
    began = clock.monotonic()
    result = await passing(clock, redrive(account, "dead", rate=400, task=False))
    assert result.moved == 500
    assert 499 / 400 <= clock.monotonic() - began < 8
