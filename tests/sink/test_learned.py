"""What a sink knows of its queue: looked up before a try begins, and again when it may be wrong."""

from __future__ import annotations

import asyncio

import pytest

from pumphouse.account import Account
from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    MessageTooLargeError,
    OutcomeUnknownError,
    QueueDoesNotExist,
    RefusedError,
    ThrottledError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    Operation,
    SendMessageBatch,
    SetQueueAttributes,
)
from pumphouse.sink import Sink, validate_options
from support.sending import outcomes, requests

from .conftest import MakeSink

FOR_EVER = RetryPolicy(base_seconds=0.1, cap_seconds=1, max_attempts=None, budget_seconds=None)
URL = "https://sqs.us-east-1.amazonaws.com/000000000000/orders"


class Slow:
    """A backend whose look-ups take almost a minute once a queue was gone, and whose sends take a
    while to leave; the answer to the first is lost."""

    total_timeout_seconds = 60.0

    def __init__(self, account: Account, clock: VirtualClock) -> None:
        self._account = account
        self._clock = clock
        self._slow = False
        self.sent: list[float] = []

    async def execute(self, operation: Operation) -> object:
        if isinstance(operation, GetQueueUrl) and self._slow:
            await self._clock.sleep(50.0)
        if isinstance(operation, SendMessageBatch):
            if "other" in [entry.message_body for entry in operation.entries]:
                self._slow = True
                raise QueueDoesNotExist("gone", code="QueueDoesNotExist", status=400)
            if len(self.sent) == 1:
                self.sent.append(self._clock.monotonic())
                error = ThrottledError("slow down", code="ThrottlingException", status=400)
                error.retry_after_seconds = 238.0
                raise error
            if self.sent:
                await self._clock.sleep(20.0)
            self.sent.append(self._clock.monotonic())
            answer = await self._account.execute(operation)
            if len(self.sent) == 1:
                raise OutcomeUnknownError("the answer was lost")
            return answer
        return await self._account.execute(operation)


async def test_a_look_up_before_another_try_does_not_carry_it_out_of_the_window(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    backend = Slow(account, clock)
    sink = make("orders.fifo", backend, batch_linger=0, retry=FOR_EVER)
    first = asyncio.create_task(sink.send("message", group_id="a"))
    await clock.advance(200)
    other = asyncio.create_task(sink.send("other", group_id="b"))
    await clock.run_until(lambda: first.done() and other.done(), limit_seconds=10_000)
    assert isinstance(first.exception(), OutcomeUnknownError)
    assert all(when < 300 for when in backend.sent)
    assert [sent.body for sent in account.sent("orders.fifo")] == ["message"]


@pytest.mark.parametrize(("seconds", "requests_made"), [(60.0, 2), (120.0, 1)])
async def test_a_backend_that_may_take_longer_to_send_leaves_less_of_the_window(
    make: MakeSink, account: Account, clock: VirtualClock, seconds: float, requests_made: int
) -> None:
    class Patient:
        total_timeout_seconds = seconds

        async def execute(self, operation: Operation) -> object:
            return await account.execute(operation)

    sink = make("orders.fifo", Patient(), retry=RetryPolicy(200, 200, None, None))
    account.faults.lose_answer(SendMessageBatch)
    sink._batcher._repeating.draw = lambda attempt: 200.0  # type: ignore[method-assign]
    await outcomes(clock, [sink.send("x", group_id="g")])
    assert requests(account) == requests_made


# --- the limit ------------------------------------------------------------------------------------


async def test_a_limit_that_was_raised_is_asked_for_again_before_a_message_is_refused(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    await account.execute(SetQueueAttributes(URL, {"MaximumMessageSize": "1024"}))
    sink = make()
    large = "x" * 2_000

    async def sent() -> object:
        [outcome] = await outcomes(clock, [sink.send(large)])
        return outcome

    assert isinstance(await outcomes(clock, [sink.send("small")]), list)
    for _ in range(2):
        assert isinstance(await sent(), MessageTooLargeError)
    assert len(account.ledger.of(GetQueueAttributes)) == 1, "it has just been asked"
    await account.execute(SetQueueAttributes(URL, {"MaximumMessageSize": "65536"}))
    await clock.advance(60)
    assert isinstance(await sent(), Receipt)
    assert sink.describe()["max_message_bytes"] == 65_536
    assert len(account.ledger.of(GetQueueAttributes)) == 2
    await clock.advance(3_600)
    assert isinstance(await sent(), Receipt)
    assert len(account.ledger.of(GetQueueAttributes)) == 2, "nothing was to be refused"


async def test_order_is_kept_where_a_limit_is_asked_for_again(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    url = URL + ".fifo"
    await account.execute(SetQueueAttributes(url, {"MaximumMessageSize": "1024"}))
    sink = make("orders.fifo", group_id="g")
    await outcomes(clock, [sink.send("warm")])
    await account.execute(SetQueueAttributes(url, {"MaximumMessageSize": "65536"}))
    await clock.advance(61)
    account.faults.delay(GetQueueAttributes, 0.5)
    await outcomes(clock, [sink.send("x" * 2_000), sink.send("behind it")])
    assert [sent.body[0] for sent in account.sent("orders.fifo")] == ["w", "x", "b"]


async def test_a_queue_that_was_made_anew_has_its_own_limit(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    await account.execute(SetQueueAttributes(URL, {"MaximumMessageSize": "1024"}))
    sink = make()
    await outcomes(clock, [sink.send("small")])
    await account.execute(DeleteQueue(URL))
    await clock.advance(61)
    [gone] = await outcomes(clock, [sink.send("small")])
    assert isinstance(gone, QueueDoesNotExist)
    await account.execute(CreateQueue("orders", {"MaximumMessageSize": "65536"}))
    [receipt] = await outcomes(clock, [sink.send("x" * 2_000)])
    assert isinstance(receipt, Receipt)


async def test_a_limit_that_was_given_is_not_asked_for(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(max_message_bytes=1_000)
    await clock.advance(3_600)
    [error] = await outcomes(clock, [sink.send("x" * 1_001)])
    assert isinstance(error, MessageTooLargeError)
    assert not account.ledger.of(GetQueueAttributes)


# --- refused with others --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [NO_RETRIES, RetryPolicy(max_attempts=2), RetryPolicy(budget_seconds=0.5)]
)
async def test_who_was_refused_with_others_is_looked_at_by_itself_whatever_the_policy(
    make: MakeSink, account: Account, clock: VirtualClock, policy: RetryPolicy
) -> None:
    class Strict:
        async def execute(self, operation: Operation) -> object:
            if isinstance(operation, SendMessageBatch):
                await clock.sleep(0.6)
                if any(entry.message_body == "bad" for entry in operation.entries):
                    raise RefusedError("bad one", code="InvalidMessageContents", status=400)
            return await account.execute(operation)

    sink = make(backend=Strict(), retry=policy)
    results = await outcomes(clock, [sink.send(body) for body in ("one", "bad", "two")])
    assert [type(result) for result in results] == [Receipt, RefusedError, Receipt]


async def test_alone_it_has_the_tries_of_its_policy_and_no_more(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(retry=NO_RETRIES)
    account.faults.refuse(SendMessageBatch, "InvalidMessageContents")
    account.faults.throttle(SendMessageBatch, times=None)
    results = await outcomes(clock, [sink.send("one"), sink.send("two")])
    assert all(isinstance(result, ThrottledError) for result in results)
    assert requests(account) == 3


# --- what can't be used ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hooks", "rng", "clock", "retry", "batch_linger"])
def test_an_option_that_is_none_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        validate_options({name: None})


@pytest.mark.parametrize("options", [None, ["wait"], "wait"])
def test_options_that_are_no_mapping(options: object) -> None:
    with pytest.raises(UsageError, match="they are names with values"):
        validate_options(options)  # type: ignore[arg-type]


async def test_an_option_that_no_message_has_is_named(account: Account) -> None:
    async with Sink("orders", account) as sink:
        with pytest.raises(UsageError, match="a message has no option nope; its options are"):
            await sink.send("x", nope=1)  # type: ignore[call-arg]
