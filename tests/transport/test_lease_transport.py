"""What `LeaseTransport` promises, call by call, on an account whose ledger tells every request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import one_try
from pumphouse.clock import VirtualClock
from pumphouse.content import UndecodableError
from pumphouse.errors import (
    ClosedError,
    LeaseLostError,
    Md5MismatchError,
    MessageTooLargeError,
    NetworkError,
    QueueNameExists,
    RefusedConfigError,
    RefusedError,
    ThrottledError,
    UsageError,
)
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ReceiveMessage,
    SendMessage,
)
from pumphouse.transport import Lease, LeaseTransport

Go = Callable[[Awaitable[Any]], Awaitable[Any]]
JOBS = "https://sqs.us-east-1.amazonaws.com/000000000000/jobs.fifo"


def asked(account: Account) -> Counter[str]:
    """How often each action was asked for."""
    return Counter(entry.operation.action for entry in account.ledger)


def receives(account: Account) -> list[ReceiveMessage]:
    return [e.operation for e in account.ledger if isinstance(e.operation, ReceiveMessage)]


@pytest.fixture
async def jobs(account: Account) -> LeaseTransport[Any]:
    return await LeaseTransport.create("jobs", account)


async def published(transport: LeaseTransport[Any], *events: str) -> None:
    """Publish `A1`, `A2`, `B1`, …: the letter is the group."""
    for event in events:
        await transport.publish(event[0], event)


async def claims(
    transport: LeaseTransport[Any], go: Go, count: int, visibility: float = 30, wait: float = 0
) -> list[Lease[Any]]:
    """The leases that so many claims at once get."""
    found = await go(
        asyncio.gather(
            *(transport.claim(f"w{n}", visibility, wait_seconds=wait) for n in range(count))
        )
    )
    return [lease for lease in found if lease is not None]


def events(leases: list[Lease[Any]]) -> list[Any]:
    return [lease.event for lease in leases]


# --- create -------------------------------------------------------------------------------------


async def test_create_makes_the_queue_and_appends_fifo(account: Account) -> None:
    transport = await LeaseTransport.create("jobs", account, attributes={"VisibilityTimeout": "7"})
    assert transport.queue_url == JOBS
    found = await account.execute(GetQueueAttributes(JOBS, ["All"]))
    assert found.attributes["FifoQueue"] == "true"
    assert found.attributes["VisibilityTimeout"] == "7"
    again = await LeaseTransport.create("jobs.fifo", account)
    assert again.queue_url == JOBS
    with pytest.raises(QueueNameExists):
        await LeaseTransport.create("jobs", account, attributes={"VisibilityTimeout": "8"})


async def test_create_tries_until_the_endpoint_answers(
    account: Account, clock: VirtualClock, go: Go
) -> None:
    account.faults.lose_request(CreateQueue, 3)
    account.faults.throttle(CreateQueue)
    transport = await go(LeaseTransport.create("jobs", account, retry_delay_seconds=2))
    assert transport.queue_url == JOBS
    assert clock.monotonic() == 8.0
    account.faults.lose_request(CreateQueue, None)
    with pytest.raises(NetworkError):
        await go(LeaseTransport.create("other", account, connect_retries=4))
    assert clock.monotonic() == 12.0


async def test_create_does_not_retry_what_an_operator_has_to_put_right(
    account: Account, clock: VirtualClock
) -> None:
    account.faults.refuse(CreateQueue, "InvalidClientTokenId")
    with pytest.raises(RefusedConfigError):
        await LeaseTransport.create("jobs", account)
    assert clock.monotonic() == 0


async def test_who_may_not_create_queues_gets_one_that_is_there(account: Account) -> None:
    await LeaseTransport.create("jobs", account)
    account.faults.refuse(CreateQueue, "AccessDenied")
    transport = await LeaseTransport.create("jobs", account)
    assert transport.queue_url == JOBS
    assert asked(account)[GetQueueUrl.action] == 1


@pytest.mark.parametrize("queue", ["", "x" * 90, "https://sqs.us-east-1.amazonaws.com/0/plain"])
async def test_a_queue_that_can_be_none_is_refused_before_any_request(
    account: Account, queue: str
) -> None:
    with pytest.raises(UsageError):
        await LeaseTransport.create(queue, account)
    assert not list(account.ledger)


# --- publish ------------------------------------------------------------------------------------


async def test_every_publish_has_a_deduplication_id_of_its_own(
    account: Account, jobs: LeaseTransport[Any]
) -> None:
    receipts = [await jobs.publish("A", "same") for _ in range(3)]
    assert len({receipt.message_id for receipt in receipts}) == 3
    assert len({receipt.deduplication_id for receipt in receipts}) == 3
    assert len(account.sent("jobs.fifo")) == 3


async def test_a_lost_answer_is_asked_for_again_and_nothing_is_stored_twice(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    account.faults.lose_answer(SendMessage, 2)
    await go(jobs.publish("A", 1))
    assert asked(account)["SendMessage"] == 3
    assert account.queue("jobs.fifo").visible == 1


async def test_a_wrong_md5_is_no_success(account: Account, jobs: LeaseTransport[Any]) -> None:
    account.faults.wrong_md5(SendMessage)
    with pytest.raises(Md5MismatchError):
        await jobs.publish("A", 1)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("A", 1, 3), ValueError, "PriorityTransport"),
        (("", 1), UsageError, "group id"),
        (("a b", 1), UsageError, "group id"),
        (("x" * 129, 1), UsageError, "group id"),
        (("A", float("nan")), UsageError, "JSON"),
        (("A", object()), UsageError, "JSON"),
        (("A", "x" * 2_000_000), MessageTooLargeError, "limit is 1048576"),
    ],
)
async def test_a_publish_that_can_be_none_is_refused_before_any_request(
    account: Account, jobs: LeaseTransport[Any], arguments: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        await jobs.publish(*arguments)
    assert asked(account)["SendMessage"] == 0


async def test_the_queues_own_size_limit_is_kept(account: Account) -> None:
    small = await LeaseTransport.create("s", account, attributes={"MaximumMessageSize": "2048"})
    await small.publish("A", "x" * 2046)  # and two quotes
    with pytest.raises(MessageTooLargeError, match="limit is 2048"):
        await small.publish("A", "x" * 2047)


# --- durations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "on_the_wire"),
    [
        (30, 30),
        (0.2, 1),
        (29.001, 30),
        (timedelta(minutes=1, milliseconds=1), 61),
        (43_200, 43_200),
    ],
)
async def test_durations_are_rounded_up(
    account: Account, jobs: LeaseTransport[Any], given: Any, on_the_wire: int
) -> None:
    assert await jobs.claim("w", given, wait_seconds=0) is None
    assert receives(account)[0].visibility_timeout == on_the_wire


@pytest.mark.parametrize(
    "bad", [-1, 43_201, 43_200.5, float("nan"), float("inf"), "30", None, True]
)
async def test_durations_out_of_range_are_refused_before_any_request(
    account: Account, jobs: LeaseTransport[Any], go: Go, bad: Any
) -> None:
    await published(jobs, "A1")
    (lease,) = await claims(jobs, go, 1)
    before = asked(account)
    for call in (
        jobs.claim("w", bad),
        jobs.nack(lease, bad),
        jobs.extend(lease, bad),
    ):
        with pytest.raises(UsageError):
            await call
    assert asked(account) == before
    await jobs.ack(lease)


async def test_a_claim_takes_no_priority(jobs: LeaseTransport[Any]) -> None:
    with pytest.raises(ValueError, match=r"min_priority=1.*PriorityTransport"):
        await jobs.claim("w", 30, 1)


# --- claims share receives, acks share deletes --------------------------------------------------


async def test_claims_that_wait_together_share_a_receive_for_as_many_as_they_are(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, *(f"{letter}1" for letter in "ABCDEFGHIJ"))
    assert len(await claims(jobs, go, 7)) == 7
    assert [receive.max_number_of_messages for receive in receives(account)] == [7]
    assert account.queue("jobs.fifo").visible == 3  # nothing was fetched for nobody


async def test_acks_share_a_delete_and_each_is_confirmed_by_its_own_entry(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1", "B1", "C1", "D1")
    leases = await claims(jobs, go, 4)
    account.faults.fail_entries("DeleteMessageBatch", [1], "InternalError")
    account.faults.fail_entries("DeleteMessageBatch", [0], "ReceiptHandleIsInvalid", "", True)
    results = await go(
        asyncio.gather(*(jobs.ack(lease) for lease in leases), return_exceptions=True)
    )
    assert [type(result) for result in results] == [
        type(None),
        LeaseLostError,
        type(None),
        type(None),
    ]
    batches = [
        len(entry.operation.entries)
        for entry in account.ledger
        if entry.operation.action == "DeleteMessageBatch"
    ]
    assert batches == [4, 1]  # only the one that failed was sent again


async def test_an_entry_that_the_answer_leaves_out_is_not_taken_as_done(
    account: Account, jobs: LeaseTransport[Any], go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    await published(jobs, "A1", "B1")
    leases = await claims(jobs, go, 2)
    execute, silent = account.execute, []

    async def leave_out(operation: Any) -> Any:
        if operation.action == "DeleteMessageBatch" and not silent:
            silent.append(operation)
            return operation.result([], [])
        return await execute(operation)

    monkeypatch.setattr(account, "execute", leave_out)
    await go(asyncio.gather(*(jobs.ack(lease) for lease in leases)))
    assert len(silent[0].entries) == 2
    assert account.queue("jobs.fifo").in_flight == 0
    assert [e.operation.action for e in account.ledger].count("DeleteMessageBatch") == 1


async def test_with_64_workers_a_third_of_the_requests_and_less(
    account: Account, clock: VirtualClock
) -> None:
    asked_by = {}
    for coalesce in (True, False):
        name = f"jobs-{coalesce}"
        transport = await LeaseTransport.create(name, account, coalesce=coalesce)
        for number in range(960):
            await transport.publish(f"g{number % 192}", number)
        before, done = asked(account), 0

        async def work(transport: LeaseTransport[Any] = transport) -> None:
            nonlocal done
            while (lease := await transport.claim("w", 30, wait_seconds=0)) is not None:
                await clock.sleep(0.001 * (lease.event % 7 + 1))
                await transport.ack(lease)
                done += 1

        tasks = [asyncio.ensure_future(work()) for _ in range(64)]
        await clock.run_until(lambda tasks=tasks: all(task.done() for task in tasks))
        assert done == 960
        asked_by[coalesce] = (asked(account) - before).total() / 960
        actions = asked(account) - before
        if not coalesce:
            assert actions["DeleteMessage"] == 960
            assert actions["ReceiveMessage"] >= 960
            assert actions.keys() == {"DeleteMessage", "ReceiveMessage"}
    assert asked_by[False] >= 2
    assert asked_by[True] <= 2 / 3, asked_by


# --- followers ----------------------------------------------------------------------------------


async def test_followers_are_handed_out_after_the_ack_of_the_one_before(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1", "A2", "A3")
    waiting = [asyncio.ensure_future(jobs.claim(f"w{n}", 30, wait_seconds=20)) for n in range(3)]
    await jobs._engine._clock.settle()  # type: ignore[attr-defined]
    got = []
    for _ in range(3):
        (done,) = [task for task in waiting if task.done()]
        waiting.remove(done)
        lease = done.result()
        assert lease is not None
        got.append((lease.event, lease.receive_count))
        await go(jobs.ack(lease))
    assert got == [("A1", 1), ("A2", 1), ("A3", 1)]
    answers = [entry for entry in account.ledger if entry.operation.action == "ReceiveMessage"]
    assert sum(bool(entry.result and entry.result.messages) for entry in answers) == 1


async def test_followers_go_back_with_a_nack_and_come_again_in_order(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2", "A3", "B1")
    a1, b1 = await claims(jobs, go, 4)
    assert events([a1, b1]) == ["A1", "B1"]
    await go(jobs.nack(a1, 5))  # parked: the group waits with it
    assert account.queue("jobs.fifo").in_flight == 2
    assert await claims(jobs, go, 2) == []
    await clock.advance(5)
    again = await claims(jobs, go, 1)
    assert [(lease.event, lease.receive_count) for lease in again] == [("A1", 2)]
    await go(jobs.ack(again[0]))
    assert events(await claims(jobs, go, 1)) == ["A2"]


async def test_followers_go_back_when_nobody_comes_for_them(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2")
    (lease,) = await claims(jobs, go, 2)
    await go(jobs.ack(lease))
    queue = account.queue("jobs.fifo")
    assert (queue.visible, queue.in_flight) == (0, 1)  # a worker may be about to claim again
    await clock.advance(0.1)
    assert (queue.visible, queue.in_flight) == (1, 0)


async def test_followers_are_extended_with_their_head(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2")
    (lease,) = await claims(jobs, go, 2, visibility=10)
    for _ in range(8):
        await clock.advance(9)
        await go(jobs.extend(lease, 10))
    assert account.queue("jobs.fifo").in_flight == 2
    await go(jobs.ack(lease))
    (follower,) = await claims(jobs, go, 1)
    assert (follower.event, follower.receive_count) == ("A2", 1)
    assert follower.remaining_seconds > 29  # what this claim asked for


async def test_a_follower_is_topped_up_to_what_its_claim_asked_for(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2")
    (head,) = await claims(jobs, go, 2, visibility=10)
    await clock.advance(4)
    await go(jobs.ack(head))
    changes = asked(account)["ChangeMessageVisibilityBatch"]
    (follower,) = await claims(jobs, go, 1, visibility=10)
    promised = clock.monotonic() + 10
    assert asked(account)["ChangeMessageVisibilityBatch"] == changes  # a quick worker needs none
    await clock.advance(9.5)
    assert not follower.lost
    assert follower.deadline >= promised - 0.1
    assert asked(account)["ChangeMessageVisibilityBatch"] == changes + 1
    await go(jobs.ack(follower))


async def test_followers_go_back_when_the_ack_of_the_one_before_fails(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1", "A2")
    (lease,) = await claims(jobs, go, 2)
    account.faults.fail_entries("DeleteMessageBatch", [0], "AccessDenied", sender_fault=True)
    with pytest.raises(RefusedConfigError):
        await go(jobs.ack(lease))
    assert not lease.lost
    assert account.queue("jobs.fifo").in_flight == 1
    await go(jobs.ack(lease))  # it is still held, and can be acked again
    assert events(await claims(jobs, go, 1)) == ["A2"]


# --- leases that end ----------------------------------------------------------------------------


async def test_a_lease_says_that_it_is_lost_and_its_ack_does_not_pretend(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2", "A3")
    (lease,) = await claims(jobs, go, 3, visibility=5)
    assert not lease.lost
    assert lease.deadline == clock.monotonic() + 5
    await clock.advance(5)
    assert lease.lost
    before = asked(account)
    for call in (jobs.ack(lease), jobs.nack(lease), jobs.extend(lease, 5)):
        with pytest.raises(LeaseLostError, match="has ended"):
            await call
    assert asked(account) == before
    (again,) = await claims(jobs, go, 1)
    assert (again.event, again.receive_count) == ("A1", 2)  # before its successors


@pytest.mark.parametrize("coalesce", [True, False])
async def test_a_lease_that_sqs_has_ended_is_lost_to_the_one_that_asks(
    account: Account, go: Go, coalesce: bool
) -> None:
    transport = await LeaseTransport.create("jobs", account, coalesce=coalesce)
    await published(transport, "A1", "B1", "C1", "D1")
    leases = await claims(transport, go, 4)
    for lease in leases[:3]:
        account.faults.expire_handle(lease.token)
    calls = [
        transport.ack(leases[0]),
        transport.nack(leases[1]),
        transport.extend(leases[2], 9),
        transport.ack(leases[3]),
    ]
    results = await go(asyncio.gather(*calls, return_exceptions=True))
    assert [type(r).__name__ for r in results] == [*["LeaseLostError"] * 3, "NoneType"]
    assert [lease.lost for lease in leases] == [True, True, True, False]


async def test_a_group_that_is_handed_out_again_ends_the_older_lease(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1", "A2")
    (old,) = await claims(jobs, go, 2)
    account.faults.expire_handle(old.token)
    (new,) = await claims(jobs, go, 1)
    assert new.event == "A1"
    assert old.lost
    assert not new.lost
    await go(jobs.ack(new))


async def test_more_than_12_hours_from_the_receive_is_refused_and_the_lease_is_kept(
    jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1")
    (lease,) = await claims(jobs, go, 1, visibility=43_200)
    await clock.advance(60)
    with pytest.raises(RefusedError, match="43200"):
        await go(jobs.extend(lease, 43_200))
    assert not lease.lost
    await go(jobs.ack(lease))


async def test_a_settled_lease_can_not_be_settled_again(jobs: LeaseTransport[Any], go: Go) -> None:
    await published(jobs, "A1")
    (lease,) = await claims(jobs, go, 1)
    first, second = await go(
        asyncio.gather(jobs.ack(lease), jobs.ack(lease), return_exceptions=True)
    )
    assert first is None
    assert isinstance(second, LeaseLostError)
    assert lease.settled
    assert not lease.lost


# --- cancelled claims ---------------------------------------------------------------------------


async def test_what_comes_for_a_cancelled_claim_goes_back_at_once(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.settle()
    claim.cancel()
    await published(jobs, "A1")
    await clock.settle()
    queue = account.queue("jobs.fifo")
    assert (queue.visible, queue.in_flight) == (1, 0)
    assert asked(account)["ReceiveMessage"] == 1


async def test_what_comes_for_a_cancelled_claim_goes_to_another_one(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock, go: Go
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.settle()
    claim.cancel()
    other = asyncio.ensure_future(jobs.claim("v", 60, wait_seconds=19))
    await clock.settle()
    await published(jobs, "A1")
    lease = await go(other)
    assert lease is not None
    assert (lease.worker_id, lease.receive_count) == ("v", 1)
    await clock.advance(0.1)
    assert lease.remaining_seconds == pytest.approx(60, abs=1)


async def test_a_message_that_meets_its_cancellation_is_not_lost(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock
) -> None:
    await published(jobs, "A1")
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=0))
    while not any(future.done() for future in jobs._engine._claims.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    claim.cancel()
    await clock.settle()
    assert claim.cancelled()
    assert account.queue("jobs.fifo").visible == 1


# --- claims wait, and hear errors ---------------------------------------------------------------


@pytest.mark.parametrize("wait", [0, 1, 5, 20])
async def test_a_claim_waits_as_long_as_it_was_told(
    jobs: LeaseTransport[Any], clock: VirtualClock, go: Go, wait: int
) -> None:
    assert await go(jobs.claim("w", 30, wait_seconds=wait)) is None
    assert clock.monotonic() == wait


async def test_many_idle_claims_ask_as_much_as_one(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock
) -> None:
    async def work(delay: float) -> None:
        await clock.sleep(delay)
        while True:
            await jobs.claim("w", 30, wait_seconds=20)

    tasks = [asyncio.ensure_future(work(number * 0.31)) for number in range(64)]
    await clock.advance(220)
    before = asked(account)["ReceiveMessage"]
    await clock.advance(200)
    assert asked(account)["ReceiveMessage"] - before <= 200  # 64 pollers would ask 640 times
    for task in tasks:
        task.cancel()
    await clock.advance(20)


async def test_passing_failures_of_a_receive_are_tried_again(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1")
    account.faults.throttle(ReceiveMessage)
    account.faults.lose_request(ReceiveMessage)
    assert events(await claims(jobs, go, 1)) == ["A1"]
    attempts = [receive.receive_request_attempt_id for receive in receives(account)]
    assert len(set(attempts)) == 3


async def test_a_lost_answer_is_asked_for_with_the_same_attempt_id(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1")
    account.faults.lose_answer(ReceiveMessage)
    await claims(jobs, go, 1)
    attempts = [receive.receive_request_attempt_id for receive in receives(account)]
    assert len(attempts) == 2
    assert attempts[0] == attempts[1]


async def test_each_try_of_a_receive_is_asked_for_here_and_counted_from_its_own_beginning(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    class Throttled:
        """SQS behind a client that would try again by itself, and says when it may be asked."""

        tries: list[tuple[float, bool]] = []  # noqa: RUF012

        async def execute(self, operation: Any) -> Any:
            if isinstance(operation, ReceiveMessage):
                self.tries.append((clock.monotonic(), one_try.get()))
                if len(self.tries) == 1:
                    error = ThrottledError("slow down", code="RequestThrottled")
                    error.retry_after_seconds = 40.0
                    raise error
            return await account.execute(operation)

        async def aclose(self) -> None: ...

    await published(jobs, "A1")
    backend = Throttled()
    throttled: LeaseTransport[Any] = LeaseTransport(backend, JOBS, clock=clock)
    lease = await go(throttled.claim("w", 30, wait_seconds=0))
    assert lease is not None
    assert lease.remaining_seconds == 30
    assert backend.tries == [(0.0, True), (40.0, True)]


async def test_a_failure_for_good_reaches_every_claim_that_waits(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    account.faults.refuse(ReceiveMessage, "AccessDenied")
    results = await go(
        asyncio.gather(*(jobs.claim("w", 30) for _ in range(3)), return_exceptions=True)
    )
    assert [type(result) for result in results] == [RefusedConfigError] * 3


# --- bodies -------------------------------------------------------------------------------------


async def test_a_body_that_can_not_be_decoded_is_in_the_workers_hands(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await account.execute(SendMessage(JOBS, "not json", None, None, None, "1", "A"))
    (lease,) = await claims(jobs, go, 1)
    with pytest.raises(UndecodableError, match="no JSON"):
        _ = lease.event
    assert lease.body == b"not json"
    await go(jobs.ack(lease))


# --- dead letters -------------------------------------------------------------------------------


async def test_f3_followers_of_a_failing_head_are_not_spent_by_it(account: Account, go: Go) -> None:
    await LeaseTransport.create("dead", account)
    arn = await account.execute(GetQueueAttributes(JOBS.replace("jobs", "dead"), ["QueueArn"]))
    policy = f'{{"deadLetterTargetArn":"{arn.attributes["QueueArn"]}","maxReceiveCount":"3"}}'
    processes = [
        await LeaseTransport.create("jobs", account, attributes={"RedrivePolicy": policy})
        for _ in range(4)
    ]
    await published(processes[0], "A1", "A2", "A3")
    for process in processes[:3]:
        (lease,) = await claims(process, go, 5)
        assert lease.event == "A1"
        await go(process.nack(lease))
    handled = []
    for _ in range(2):
        (lease,) = await claims(processes[3], go, 5)
        handled.append((lease.event, lease.receive_count))
        await go(processes[3].ack(lease))
    assert handled == [("A2", 1), ("A3", 1)]
    assert account.queue("dead.fifo").visible == 1


# --- the end ------------------------------------------------------------------------------------


async def test_close_gives_back_what_nobody_has_and_leaves_what_workers_hold(
    account: Account, jobs: LeaseTransport[Any], go: Go
) -> None:
    await published(jobs, "A1", "A2", "A3", "B1")
    leases = await claims(jobs, go, 4)
    assert events(leases) == ["A1", "B1"]
    acking = asyncio.ensure_future(jobs.ack(leases[1]))
    await asyncio.sleep(0)
    await go(jobs.close())
    assert acking.done()
    assert acking.exception() is None
    queue = account.queue("jobs.fifo")
    assert (queue.visible, queue.in_flight) == (2, 1)
    for call in (jobs.claim("w", 3), jobs.publish("A", 1), jobs.ack(leases[0])):
        with pytest.raises(ClosedError):
            await call
    await jobs.close()


async def test_close_waits_for_the_open_receive_and_gives_back_what_it_brings(
    account: Account, go: Go, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "cancel_is_exact", False)  # as over HTTP
    jobs = await LeaseTransport.create("jobs", account)
    waiting = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.settle()
    closing = asyncio.ensure_future(jobs.close())
    await clock.settle()
    assert waiting.result() is None
    assert not closing.done()
    other = await LeaseTransport.create("jobs", account)
    await published(other, "A1")
    await go(closing)
    assert account.queue("jobs.fifo").visible == 1
    assert clock.monotonic() < 1


async def test_close_ends_the_open_receive_at_once_where_that_takes_nothing(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock
) -> None:
    waiting = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.settle()
    await jobs.close()
    assert waiting.result() is None
    assert clock.monotonic() == 0
    other = await LeaseTransport.create("jobs", account)
    await published(other, "A1")
    assert account.queue("jobs.fifo").visible == 1


async def test_p6_an_answer_that_the_loop_kept_waiting_is_extended_before_it_is_handed_out(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    """Something blocked the loop for longer than the lease: it is not handed out as if fresh."""
    await published(jobs, "A1")
    account.faults.delay(ReceiveMessage, 40, answer=True)
    claim = asyncio.ensure_future(jobs.claim("slow", 30, wait_seconds=0))
    await clock.advance(35)  # SQS has ended the lease, and its answer is still to come
    other = await LeaseTransport.create("jobs", account)
    (lease,) = await claims(other, go, 1)
    assert lease.event == "A1"
    assert await go(claim) is None
    await go(other.ack(lease))


@pytest.mark.parametrize("wait", [0, 20])
async def test_a_late_answer_whose_lease_still_lasts_is_extended_first(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock, wait: int
) -> None:
    await published(jobs, "A1")
    account.faults.delay(ReceiveMessage, 24, answer=True)
    lease = await go(jobs.claim("slow", 30, wait_seconds=wait))
    assert lease.remaining_seconds == 30
    assert asked(account)["ChangeMessageVisibilityBatch"] == 1


@pytest.mark.parametrize("late", [0.5, 2, 6, 11, 13, 17, 19, 21, 40])
@pytest.mark.parametrize("wait", [0, 1, 20])
async def test_l1_no_lease_is_believed_for_longer_than_sqs_holds_it(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock, wait: int, late: float
) -> None:
    """However late the answer is, also within its wait: nobody else has the message before the one
    who has it knows that the lease is over. Nothing is extended here, so nothing hides that."""
    await published(jobs, "A1")
    other = await LeaseTransport.create("jobs", account)
    account.faults.throttle("ChangeMessageVisibilityBatch", times=None)
    account.faults.delay(ReceiveMessage, late, answer=True)
    claim = asyncio.ensure_future(jobs.claim("slow", 20, wait_seconds=wait))
    await clock.settle()
    asked_at = clock.monotonic()
    elsewhere = asyncio.ensure_future(other.next_lease("quick", 600, wait_seconds=1))
    lost_at = None
    while not elsewhere.done():
        await clock.advance(0.25)
        if lost_at is None and claim.done() and (lease := claim.result()) is not None:
            assert lease.deadline == asked_at + 20
            lost_at = clock.monotonic() if lease.lost else None
            assert lost_at is not None or not elsewhere.done()
    assert clock.monotonic() >= asked_at + 20
    await clock.advance(50)
    assert claim.done()
    assert (late < 14) == (claim.result() is not None)
    assert elsewhere.result().event == "A1"  # type: ignore[union-attr]


@pytest.mark.parametrize(("seconds", "wait"), [(1, 1), (2, 1), (10, 6), (30, 20), (600, 20)])
async def test_l1_a_receive_of_claims_waits_for_two_thirds_of_a_lease_at_most(
    account: Account, jobs: LeaseTransport[Any], clock: VirtualClock, seconds: int, wait: int
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", seconds, wait_seconds=20))
    await clock.advance(18.5)
    assert not claim.done()  # the claim itself waits for as long as it was told
    await clock.advance(2)
    assert claim.result() is None
    waits = [each.wait_time_seconds or 0 for each in receives(account)]
    assert max(waits) == wait
    assert 19 <= sum(waits) <= 20
    assert {each.visibility_timeout for each in receives(account)} == {seconds}


async def test_l1_a_message_that_comes_late_in_a_wait_is_handed_out_at_once_and_topped_up(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    claim = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.advance(19)
    await published(jobs, "A1")
    await clock.settle()
    lease = claim.result()
    assert lease is not None
    assert lease.remaining_seconds == 11  # counted from when it was asked for
    await clock.advance(5)
    assert asked(account)["ChangeMessageVisibilityBatch"] == 0  # a quick worker needs none
    await clock.advance(24.5)
    assert asked(account)["ChangeMessageVisibilityBatch"] == 1
    assert not lease.lost  # it lasts for as long as was asked
    await go(jobs.ack(lease))


async def test_an_answer_of_usual_speed_is_worth_no_extension(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1")
    account.faults.delay(ReceiveMessage, 0.2, answer=True)
    lease = await go(jobs.claim("w", 30, wait_seconds=0))
    await clock.advance(29)
    await go(jobs.ack(lease))
    assert asked(account)["ChangeMessageVisibilityBatch"] == 0


async def test_a_nack_is_not_overtaken_by_an_extension_that_is_under_way(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1")
    (lease,) = await claims(jobs, go, 1)
    account.faults.delay("ChangeMessageVisibilityBatch", 2)
    extending = asyncio.ensure_future(jobs.extend(lease, 600))
    await clock.advance(1)
    nacking = asyncio.ensure_future(jobs.nack(lease))
    await clock.run_until(nacking.done)
    nacking.result()
    await asyncio.gather(extending, return_exceptions=True)
    assert clock.monotonic() == 2
    assert account.queue("jobs.fifo").visible == 1


async def test_a_follower_whose_lease_has_ended_is_not_handed_out(
    account: Account, jobs: LeaseTransport[Any], go: Go, clock: VirtualClock
) -> None:
    await published(jobs, "A1", "A2", "A3")
    (head,) = await claims(jobs, go, 3, visibility=10)
    account.faults.fail_entries(
        "ChangeMessageVisibilityBatch", lambda entry: entry.receipt_handle != head.token, times=None
    )
    extending = asyncio.ensure_future(jobs.extend(head, 60))
    await clock.advance(30)
    extending.result()
    account.faults.clear()
    waiting = asyncio.ensure_future(jobs.claim("w", 30, wait_seconds=20))
    await clock.settle()
    await go(jobs.ack(head))
    lease = await go(waiting)
    assert (lease.event, lease.receive_count) == ("A2", 2)  # received again, not kept
