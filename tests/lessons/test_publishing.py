"""The rows on publishing of the lessons: B1 to B10, and S3 and S4."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from pumphouse import content
from pumphouse.account import Account
from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    ClosedError,
    MessageTooLargeError,
    NetworkError,
    OutcomeUnknownError,
    RefusedError,
    ThrottledError,
    TransientError,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    CreateQueue,
    GetQueueAttributes,
    ReceiveMessage,
    SendMessageBatch,
)
from pumphouse.sink import Sink
from support.sending import batches, bodies, outcomes, requests

POLICY = RetryPolicy(base_seconds=1, cap_seconds=8, max_attempts=4, budget_seconds=60)


async def made(
    account: Account, name: str = "q", attributes: dict[str, str] | None = None, **options: Any
) -> Sink:
    """A sink for a new queue on the account's clock."""
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    await account.execute(CreateQueue(name, fifo | (attributes or {}) or None))
    account.ledger.clear()
    backend = options.pop("backend", account)
    options = {"clock": account.clock, "retry": POLICY, "rng": random.Random(5)} | options
    return Sink(name, backend, **options)


async def test_b1_exact_results_for_every_entry_and_accepted_ones_are_not_sent_again(
    account: Account, clock: VirtualClock
) -> None:
    class Odd:
        """Of the first request: entries 1, 3 and 5 fail, 7 is left out, a stranger is named; the
        second of three chunks raises."""

        calls = 0

        async def execute(self, operation: Any) -> Any:
            if not isinstance(operation, SendMessageBatch):
                return await account.execute(operation)
            self.calls += 1
            if self.calls == 2:
                raise NetworkError("chunk 2 of 3")
            if self.calls != 1:
                return await account.execute(operation)
            good = [entry for entry in operation.entries if entry.id not in "135"]
            answer = await account.execute(msgspec.structs.replace(operation, entries=good))
            stored = [entry for entry in answer.successful if entry.id != "7"]
            stranger = msgspec.structs.replace(stored[0], id="42")
            failed = [BatchResultErrorEntry(i, True, "InvalidMessageContents") for i in "135"]
            return msgspec.structs.replace(answer, successful=[*stored, stranger], failed=failed)

        async def aclose(self) -> None:
            pass

    sink = await made(account, backend=Odd(), batch_max_inflight=1)
    results = await outcomes(clock, [sink.send(str(n)) for n in range(30)])
    for n in (1, 3, 5):
        assert isinstance(results[n], RefusedError)
    assert isinstance(results[7], OutcomeUnknownError)
    assert all(isinstance(results[n], Receipt) for n in range(30) if n not in (1, 3, 5, 7))
    stored = bodies(account, "q")
    assert sorted(stored) == sorted(str(n) for n in range(30) if n not in (1, 3, 5))
    assert len(stored) == len(set(stored))
    assert sink.stats["strangers"] == 1


async def test_b2_only_failed_entries_are_retried_by_code_and_within_one_budget(
    account: Account, clock: VirtualClock
) -> None:
    account.faults.fail_entries(SendMessageBatch, [1, 2])
    account.faults.fail_entries(SendMessageBatch, [0], "RequestThrottled", sender_fault=True)
    sink = await made(account)
    results = await outcomes(clock, [sink.send(str(n)) for n in range(5)])
    assert all(isinstance(result, Receipt) for result in results)
    assert clock.monotonic() > 0.1, "it backed off"
    sent = [
        entry.message_body
        for r in account.ledger.of(SendMessageBatch)
        for entry in r.operation.entries
    ]
    assert [sent.count(str(n)) for n in (0, 3, 4)] == [1, 1, 1]

    account.ledger.clear()
    account.faults.throttle(
        SendMessageBatch, times=None
    )  # 403, and AWS calls it the sender's fault
    [error] = await outcomes(clock, [sink.send("x")])
    assert isinstance(error, ThrottledError)
    assert error.status == 403
    assert requests(account) == POLICY.max_attempts, "one budget: every try is one request"


@pytest.mark.parametrize(
    ("status", "answer", "error", "tries"),
    [
        (503, "<html>busy</html>", ThrottledError, 3),
        (307, "<html>there</html>", UnexpectedAnswerError, 1),
        (500, '{"__type":"com.amazonaws.sqs#InternalError"}', TransientError, 3),
        (400, '{"__type":"com.amazonaws.sqs#RequestThrottled"}', ThrottledError, 3),
    ],
)
async def test_b2_the_http_client_adds_no_retries_or_redirects_to_the_sinks(
    account: Account, status: int, answer: str, error: type[Exception], tries: int
) -> None:
    """Over HTTP, too, the number of requests is the sink's number of tries."""
    from pumphouse.http import HttpBackend, Keys
    from support.one_answer import OneAnswer

    async with OneAnswer(status, answer.encode()) as server:
        backend = HttpBackend(
            region="us-east-1", endpoint_url=server.url, credentials=Keys("AKID", "secret")
        )
        policy = RetryPolicy(base_seconds=0, cap_seconds=0, max_attempts=3)
        url = f"{server.url}/000000000000/q"
        async with Sink(url, backend, retry=policy, batch_linger=0, max_message_bytes=1000) as sink:
            with pytest.raises(error):
                await sink.send("x")
        await backend.aclose()
        await server.drained()
    assert server.requests == sink.stats["requests"] == tries


async def test_b3_split_by_bytes_with_attributes_counted(
    account: Account, clock: VirtualClock
) -> None:
    sink = await made(account, batch_max_bytes=1_048_576)
    await outcomes(clock, [sink.send("x" * 200_000) for _ in range(6)])
    assert [len(batch) for batch in batches(account)] == [5, 1]

    account.ledger.clear()
    limit = 1_048_576
    attributes = {"näme"[0] + "ame": "value"}  # 4 + 6 (String) + 5 bytes
    exact = "é" * ((limit - 15) // 2) + "x"
    assert len(exact.encode()) + 15 == limit
    results = await outcomes(
        clock,
        [
            sink.send("small"),
            sink.send(exact, attributes=attributes),
            sink.send(exact, attributes=attributes | {"n": 1}),
            sink.send(exact + "x", attributes=attributes),
            sink.send("small too"),
        ],
    )
    kinds = [type(result).__name__ for result in results]
    assert kinds == [
        "Receipt",
        "Receipt",
        "MessageTooLargeError",
        "MessageTooLargeError",
        "Receipt",
    ]
    assert results[2].size == limit + 1 + 6 + 1
    assert results[3].size == limit + 1


@pytest.mark.parametrize("permitted", [True, False])
async def test_b4_the_limit_is_the_queues_own(
    account: Account, clock: VirtualClock, permitted: bool
) -> None:
    sink = await made(account, attributes={"MaximumMessageSize": "65536"})
    if not permitted:
        account.faults.refuse("GetQueueAttributes", "AccessDenied")
    results = await outcomes(clock, [sink.send("x" * n) for n in (65_536, 65_537, 10)])
    assert isinstance(results[0], Receipt)
    assert isinstance(results[2], Receipt)
    if permitted:
        assert isinstance(results[1], MessageTooLargeError)
        assert results[1].limit == 65_536
        assert max(len(body) for batch in batches(account) for body in batch) == 65_536
    else:
        assert isinstance(results[1], RefusedError), "the queue itself says no, to that entry alone"
    [again] = await outcomes(clock, [sink.send("x" * 65_537)])
    assert isinstance(again, MessageTooLargeError | RefusedError)
    assert len(account.ledger.of(GetQueueAttributes)) == 1, "asked once"


async def test_b4_a_configured_limit_is_taken_and_the_queue_is_not_asked(
    account: Account, clock: VirtualClock
) -> None:
    sink = await made(account, max_message_bytes=100)
    [error] = await outcomes(clock, [sink.send("x" * 101)])
    assert isinstance(error, MessageTooLargeError)
    await outcomes(clock, [sink.send("x" * 100)])
    assert not account.ledger.of(GetQueueAttributes)


async def test_b4_a_dead_letter_queue_that_is_smaller_than_its_source(
    account: Account, clock: VirtualClock
) -> None:
    await account.execute(CreateQueue("dead", {"MaximumMessageSize": "1024"}))
    sink = await made(account, on_dead_letter="dead")
    account.faults.refuse(SendMessageBatch, "InvalidMessageContents")
    [error] = await outcomes(clock, [sink.send("x" * 2_000)])
    assert isinstance(error, RefusedError), "the caller's error is about its own queue"
    assert sink.stats["dead_letters_failed"] == 1
    assert not bodies(account, "dead")
    await sink.aclose()


async def test_b5_ten_of_the_user_and_two_of_tracing(account: Account, clock: VirtualClock) -> None:
    tracing = {"traceparent": "00-1-2-01", "tracestate": "x=y"}
    sink = await made(account, add_attributes=lambda message: tracing)
    user = {f"user{n}": "x" for n in range(10)}
    eleven = user | {"user10": "x"}
    results = await outcomes(
        clock,
        [
            sink.send("ten", attributes=user),
            sink.send("nine", attributes=dict(list(user.items())[:9])),
            sink.send("eleven", attributes=eleven),
            sink.send(b"\xff binary", attributes=user),
        ],
    )
    assert isinstance(results[2], UsageError), "an eleventh is refused"
    assert isinstance(results[3], UsageError), "and so is a marker that would be it"
    found = {sent.body: set(sent.attributes or {}) for sent in account.sent("q")}
    assert found["ten"] == set(user)
    assert len(found["nine"]) == 10
    assert "traceparent" in found["nine"]
    assert requests(account) == 1


@pytest.mark.parametrize("value", ["", b"", None])
async def test_b6_an_empty_attribute_is_left_out_or_fails_alone(
    account: Account, clock: VirtualClock, value: Any
) -> None:
    sink = await made(account)
    sends = [sink.send(str(n), attributes={"a": value if n == 4 else "x"}) for n in range(10)]
    results = await outcomes(clock, sends)
    others = [result for n, result in enumerate(results) if n != 4]
    assert all(isinstance(result, Receipt) for result in others)
    assert isinstance(results[4], Receipt if value is None else UsageError)


@pytest.mark.parametrize(
    "bad",
    [
        *map(chr, range(9)),
        "\x0b",
        "\x0c",
        *map(chr, range(0x0E, 0x20)),
        "\ufffe",
        "\uffff",
        "\ud800",
    ],
    ids=lambda c: f"U+{ord(c):04X}",
)
async def test_b7_characters_that_sqs_takes_not_travel_marked(
    account: Account, clock: VirtualClock, bad: str
) -> None:
    sink = await made(account)
    results = await outcomes(clock, [sink.send(f"a{bad}b"), sink.send("neighbour")])
    assert all(isinstance(result, Receipt) for result in results)
    marked = next(sent for sent in account.sent("q") if sent.attributes)
    assert content.decode(marked.body, marked.attributes) == f"a{bad}b".encode(
        errors="surrogatepass"
    )
    [error] = await outcomes(clock, [sink.send("x", attributes={"a": bad})])
    assert isinstance(error, UsageError)


@pytest.mark.parametrize("good", ["\t", "\n", "\r", "😀", "\x7f", "\ufffd"])
async def test_b7_characters_that_sqs_takes_pass_untouched(
    account: Account, clock: VirtualClock, good: str
) -> None:
    sink = await made(account)
    await outcomes(clock, [sink.send(f"a{good}b")])
    [sent] = account.sent("q")
    assert (sent.body, sent.attributes) == (f"a{good}b", None)


async def test_b8_deduplication_ids_are_checked_and_hashed_only_when_asked(
    account: Account, clock: VirtualClock
) -> None:
    ids = ["x" * 127, "x" * 128, "x" * 129, "with space", "é", ""]
    sink = await made(account, "q.fifo")
    results = await outcomes(
        clock, [sink.send(i[:5] or "e", group_id="g", deduplication_id=i) for i in ids]
    )
    assert [isinstance(result, Receipt) for result in results] == [True, True, *[False] * 4]
    assert all(isinstance(result, UsageError) for result in results[2:])
    assert [sent.deduplication_id for sent in account.sent("q.fifo")] == ids[:2], "never cut"

    hashing = Sink("q.fifo", account, hash_ids=True, clock=clock)
    await outcomes(
        clock, [hashing.send(i, group_id="h", deduplication_id=i) for i in ("y" * 129, "y" * 130)]
    )
    first, second = (sent.deduplication_id or "" for sent in account.sent("q.fifo")[2:])
    assert len(first) == len(second) == 64
    assert first != second


@pytest.mark.parametrize("delay", [0, None])
async def test_b9_no_delay_is_left_out_on_fifo(
    account: Account, clock: VirtualClock, delay: float | None
) -> None:
    sink = await made(account, "q.fifo")
    [receipt] = await outcomes(clock, [sink.send("x", group_id="g", delay=delay)])
    assert isinstance(receipt, Receipt)
    [record] = account.ledger.of(SendMessageBatch)
    assert record.operation.entries[0].delay_seconds is None


async def test_b9_a_delay_on_fifo_is_a_clear_local_error(
    account: Account, clock: VirtualClock
) -> None:
    sink = await made(account, "q.fifo")
    [error] = await outcomes(clock, [sink.send("x", group_id="g", delay=5)])
    assert isinstance(error, UsageError)
    assert "FIFO queue takes no delay" in str(error)
    assert not account.ledger


async def test_b10_a_group_on_a_standard_queue_round_trips_and_orders_nothing(
    account: Account, clock: VirtualClock
) -> None:
    sink = await made(account)
    account.faults.delay(SendMessageBatch, 5)
    tasks = [asyncio.create_task(sink.send(str(n), group_id="tenant-a")) for n in range(10)]
    await clock.advance(0.1)
    [receipt] = await outcomes(clock, [sink.send("later", group_id="tenant-a")])
    assert isinstance(receipt, Receipt)
    assert not any(task.done() for task in tasks), "it did not wait for the request in flight"
    await clock.advance(5)
    await asyncio.gather(*tasks)
    answer = await account.execute(
        ReceiveMessage(
            receipt.queue_url,
            max_number_of_messages=10,
            message_system_attribute_names=["MessageGroupId"],
        )
    )
    assert {message.attributes["MessageGroupId"] for message in answer.messages} == {"tenant-a"}
    assert len(answer.messages) == 10, "a second one comes while the first is in flight"


@pytest.mark.parametrize("answers_after", [1, 1_000])
async def test_s3_closing_with_part_filled_batches_and_slow_answers(
    account: Account, clock: VirtualClock, answers_after: float
) -> None:
    sink = await made(account, batch_max_inflight=2, retry=NO_RETRIES, batch_linger=1)
    await outcomes(clock, [sink.send("warm")])
    account.faults.delay(SendMessageBatch, answers_after, times=None, answer=True)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(33)]
    await clock.settle()
    closing = asyncio.create_task(sink.aclose(10))
    await clock.advance(10)
    await closing
    results = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = {type(result) for result in results}
    answer = await account.execute(GetQueueAttributes("q", ["ApproximateNumberOfMessages"]))
    held = int(answer.attributes["ApproximateNumberOfMessages"]) - 1
    if answers_after == 1:
        assert kinds == {Receipt}
        assert held == 33
    else:
        assert kinds == {OutcomeUnknownError, ClosedError}
        assert held == sum(isinstance(result, OutcomeUnknownError) for result in results) == 20
    assert sink.stats["requests"] == (5 if answers_after == 1 else 3), "each was submitted once"


async def test_s4_one_caller_of_a_batch_is_cancelled(account: Account, clock: VirtualClock) -> None:
    sink = await made(account)
    early = [asyncio.create_task(sink.send(f"early {n}")) for n in range(4)]
    await clock.settle()
    early[0].cancel()  # before the send: withdrawn
    await clock.advance(0.1)
    account.faults.delay(SendMessageBatch, 1)
    late = [asyncio.create_task(sink.send(f"late {n}")) for n in range(4)]
    await clock.advance(0.1)
    late[0].cancel()  # it is on the wire: it goes its way
    await clock.advance(2)
    results = await asyncio.gather(*early, *late, return_exceptions=True)
    assert [isinstance(result, Receipt) for result in results] == [False, *[True] * 3] * 2
    assert "early 0" not in bodies(account, "q")
    assert "late 0" in bodies(account, "q")
    stats = sink.stats
    assert (stats["stored"], stats["withdrawn"], stats["waiting"]) == (7, 1, 0)
