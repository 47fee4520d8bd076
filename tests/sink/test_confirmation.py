"""What an answer means: stored, refused, throttled, failed or unknown, entry by entry."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pumphouse.account import Account
from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    ConfigError,
    Md5MismatchError,
    MessageTooLargeError,
    NetworkError,
    NoCredentialsError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedError,
    ServiceError,
    ThrottledError,
    TransientError,
    UnexpectedAnswerError,
)
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    BatchResultErrorEntry,
    CreateQueue,
    SendMessage,
    SendMessageBatch,
)
from pumphouse.sink import classify_error
from support.sending import bodies, outcomes, requests

from .conftest import MakeSink


class Doctored:
    """A backend whose answers to batches are changed on their way back, or are errors."""

    def __init__(self, account: Account, change: Any) -> None:
        self.account = account
        self.change = change
        self.calls = 0

    async def execute(self, operation: Any) -> Any:
        if not isinstance(operation, SendMessageBatch | SendMessage):
            return await self.account.execute(operation)
        self.calls += 1
        if isinstance(self.change, Exception):
            raise self.change
        return self.change(await self.account.execute(operation))

    async def aclose(self) -> None:
        pass


# --- classes of errors --------------------------------------------------------------------------

REFUSED = [
    "InvalidMessageContents",
    "InvalidParameterValue",
    "MissingParameter",
    "InvalidAttributeName",
    "InvalidAttributeValue",
]
CONFIG = [
    "AccessDenied",
    "QueueDoesNotExist",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "MissingAuthenticationToken",
]
THROTTLED = [
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
    "ServiceUnavailable",
    "KmsThrottled",
]


@pytest.mark.parametrize("code", REFUSED)
def test_a_refused_message(code: str) -> None:
    error = classify_error(400, code, "why", 1)
    assert isinstance(error, RefusedError)
    assert (error.status, error.code, error.message) == (400, code, "why")


@pytest.mark.parametrize("code", CONFIG)
def test_refused_configuration_or_credentials(code: str) -> None:
    error = classify_error(403, code, None, 1)
    assert isinstance(error, ConfigError)
    assert (error.status, error.code) == (403, code)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, code) for code in THROTTLED] + [(403, "RequestThrottled"), (429, "Odd"), (503, "Odd")],
)
def test_throttling_has_a_full_jitter_delay_that_grows_with_the_attempt(
    status: int, code: str
) -> None:
    for attempt, ceiling in ((1, 0.1), (4, 0.8), (30, 20.0)):
        delays = []
        for _ in range(200):
            error = classify_error(status, code, "slow down", attempt)
            assert isinstance(error, ThrottledError)
            delays.append(error.retry_after_seconds)
        assert 0 <= min(delays) < 0.2 * ceiling
        assert 0.8 * ceiling < max(delays) <= ceiling


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (403, "ExpiredToken"), (400, "Unheard")]
)
def test_anything_else_is_transient(status: int, code: str) -> None:
    error = classify_error(status, code, "later", 1)
    assert isinstance(error, TransientError)
    assert error.status == status


# --- entries ------------------------------------------------------------------------------------


async def test_success_is_an_entry_with_the_right_md5s(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    [receipt] = await outcomes(clock, [make().send("hello", attributes={"a": "b", "n": 1})])
    [sent] = account.sent("orders")
    assert receipt.message_id == sent.message_id
    assert receipt.queue_url == "https://sqs.us-east-1.amazonaws.com/000000000000/orders"


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("what", ["body", "attributes", "no attributes"])
async def test_another_md5_is_a_mismatch(
    make: MakeSink, account: Account, clock: VirtualClock, what: str, batch: bool
) -> None:
    changed = {
        "body": {"md5_of_message_body": "0" * 32},
        "attributes": {"md5_of_message_attributes": "0" * 32},
        "no attributes": {"md5_of_message_attributes": None},
    }[what]

    def change(answer: Any) -> Any:
        if not batch:
            return msgspec.structs.replace(answer, **changed)
        entries = [msgspec.structs.replace(entry, **changed) for entry in answer.successful]
        return msgspec.structs.replace(answer, successful=entries)

    sink = make(backend=Doctored(account, change), batch=batch)
    [error] = await outcomes(clock, [sink.send("hello", attributes={"a": "b"})])
    assert isinstance(error, Md5MismatchError)
    assert error.what == ("body" if what == "body" else "attributes")
    assert sink.stats["unknown"] == 1


async def test_the_md5_of_the_trace_header_is_checked_too(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    def change(answer: Any) -> Any:
        return msgspec.structs.replace(
            answer,
            successful=[
                msgspec.structs.replace(e, md5_of_message_system_attributes="0" * 32)
                for e in answer.successful
            ],
        )

    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    good, bad = make(), make(backend=Doctored(account, change))
    results = await outcomes(clock, [each.send("x", trace_header=trace) for each in (good, bad)])
    assert results[0].message_id
    assert isinstance(results[1], Md5MismatchError)


async def test_each_failed_entry_has_its_own_class_and_its_neighbours_are_stored(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    codes = {
        "1": ("InvalidMessageContents", True),
        "3": ("AccessDenied", True),
        "5": ("RequestThrottled", True),
        "7": ("InternalError", False),
    }

    def change(answer: Any) -> Any:
        return msgspec.structs.replace(
            answer,
            successful=[entry for entry in answer.successful if entry.id not in codes],
            failed=[BatchResultErrorEntry(i, fault, code) for i, (code, fault) in codes.items()],
        )

    sink = make(backend=Doctored(account, change), retry=NO_RETRIES)
    results = await outcomes(clock, [sink.send(str(n)) for n in range(10)])
    kinds = [type(result).__name__ for result in results]
    assert kinds == [
        *("Receipt", "RefusedError", "Receipt", "RefusedConfigError", "Receipt"),
        *("ThrottledError", "Receipt", "TransientError", "Receipt", "Receipt"),
    ]
    assert results[1].status == 400
    assert results[7].status == 500
    assert results[5].retry_after_seconds > 0
    stats = sink.stats
    assert (stats["stored"], stats["refused"], stats["config_errors"]) == (6, 1, 1)
    assert (stats["throttled"], stats["transient"]) == (1, 1)


async def test_an_entry_that_is_left_out_or_named_twice_is_unknown_and_strangers_are_told(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    def change(answer: Any) -> Any:
        by_id = {entry.id: entry for entry in answer.successful}
        del by_id["2"]
        return msgspec.structs.replace(
            answer,
            successful=[
                *by_id.values(),
                *(msgspec.structs.replace(by_id["0"], id=i) for i in ("10", "x", "", "٣")),
            ],
            failed=[BatchResultErrorEntry("1", True, "InvalidParameterValue")],
        )

    sink = make(backend=Doctored(account, change))
    results = await outcomes(clock, [sink.send(str(n)) for n in range(4)])
    assert [type(r).__name__ for r in results] == [
        *("Receipt", "OutcomeUnknownError", "OutcomeUnknownError", "Receipt")
    ]
    assert sink.stats["strangers"] == 4


async def test_entry_ids_are_positions(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    await outcomes(clock, [sink.send("x", id="my-own-id") for _ in range(10)])
    [record] = account.ledger.of(SendMessageBatch)
    assert [entry.id for entry in record.operation.entries] == [str(n) for n in range(10)]


# --- requests that fail as a whole --------------------------------------------------------------

WHOLE: list[tuple[PumphouseError, type[PumphouseError]]] = [
    (from_answer("InternalError", status=500), TransientError),
    (from_answer("Odd", status=429), ThrottledError),
    (from_answer("RequestThrottled", status=403, sender_fault=True), ThrottledError),
    (from_answer("QueueDoesNotExist", status=400), QueueDoesNotExist),
    (from_answer("AccessDenied", status=403), ConfigError),
    (NetworkError("no connection"), NetworkError),
    (OutcomeUnknownError("no answer"), OutcomeUnknownError),
    (UnexpectedAnswerError(502, "<html>"), UnexpectedAnswerError),
    (UnexpectedAnswerError(200, "{"), UnexpectedAnswerError),
    (UnexpectedAnswerError(429, "<html>"), ThrottledError),
    (UnexpectedAnswerError(503, "<html>"), ThrottledError),
    (NoCredentialsError("none"), NoCredentialsError),
]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize(("error", "kind"), WHOLE, ids=lambda x: getattr(x, "__name__", ""))
async def test_a_request_that_fails_fails_each_as_a_single_send_would(
    make: MakeSink,
    account: Account,
    clock: VirtualClock,
    error: PumphouseError,
    kind: type[PumphouseError],
    batch: bool,
) -> None:
    sink = make(backend=Doctored(account, error), retry=NO_RETRIES, batch=batch)
    results = await outcomes(clock, [sink.send(str(n)) for n in range(3)])
    assert all(isinstance(result, kind) for result in results)
    assert len({id(result) for result in results}) == 3, "nobody shares an exception"
    if kind is ThrottledError:
        assert all(result.retry_after_seconds > 0 for result in results)
    if isinstance(error, ServiceError):
        assert [result.code for result in results] == [error.code] * 3


async def test_what_is_no_pumphouse_error_is_unknown_and_nobody_hangs(
    make: MakeSink, account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = make(backend=Doctored(account, ZeroDivisionError()))
    [error] = await outcomes(clock, [sink.send("x")])
    assert isinstance(error, OutcomeUnknownError)
    assert isinstance(error.__cause__.__cause__, ZeroDivisionError)  # type: ignore[union-attr]
    assert "unexpected" in caplog.text


async def test_a_batch_that_is_refused_as_one_shows_whose_fault_it_was(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    """An endpoint that refuses the whole batch for one bad entry hurts only that entry."""

    class Strict(Doctored):
        async def execute(self, operation: Any) -> Any:
            entries = getattr(operation, "entries", ())
            if any(entry.message_body == "bad" for entry in entries):
                self.calls += 1
                raise from_answer("InvalidMessageContents", status=400)
            return await super().execute(operation)

    backend = Strict(account, lambda answer: answer)
    sink = make(backend=backend)
    results = await outcomes(clock, [sink.send(body) for body in ("a", "bad", "b")])
    assert [type(result).__name__ for result in results] == ["Receipt", "RefusedError", "Receipt"]
    assert sorted(bodies(account, "orders")) == ["a", "b"]
    assert backend.calls == 4


# --- retries ------------------------------------------------------------------------------------


async def test_only_what_failed_is_sent_again_and_keeps_its_ids(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.fail_entries(SendMessageBatch, [2, 4])
    sink = make("orders.fifo")
    results = await outcomes(
        clock, [sink.send(str(n), id=f"id{n}", tenant="t", source="s") for n in range(6)]
    )
    assert all(result.message_id for result in results)
    first, second = (record.operation for record in account.ledger.of(SendMessageBatch))
    assert [e.message_deduplication_id for e in second.entries] == ["id2", "id4"]
    assert len(first.entries) == 6
    assert sink.stats["retried"] == 2


async def test_retries_end_with_the_policy_and_the_last_error(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.throttle(SendMessageBatch, times=None)
    sink = make()
    [error] = await outcomes(clock, [sink.send("x")])
    assert isinstance(error, ThrottledError)
    assert requests(account) == 4


async def test_the_budget_ends_retries_before_the_attempts_do(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.refuse(SendMessageBatch, "InternalError", times=None)
    began = clock.monotonic()
    policy = RetryPolicy(base_seconds=4, cap_seconds=4, max_attempts=None, budget_seconds=10)
    [error] = await outcomes(clock, [make(retry=policy).send("x")])
    assert isinstance(error, TransientError)
    assert clock.monotonic() - began <= 10.1


@pytest.mark.parametrize("kind", [RefusedError, ConfigError])
async def test_permanent_errors_are_not_tried_again(
    make: MakeSink, account: Account, clock: VirtualClock, kind: type[PumphouseError]
) -> None:
    code = "InvalidMessageContents" if kind is RefusedError else "AccessDenied"
    account.faults.refuse(SendMessageBatch, code, times=None)
    [error] = await outcomes(clock, [make().send("x")])
    assert isinstance(error, kind)
    assert requests(account) == 1


@pytest.mark.parametrize("error", [NetworkError("none"), NoCredentialsError("none")])
async def test_what_never_reached_the_queue_is_tried_again(
    make: MakeSink, account: Account, clock: VirtualClock, error: PumphouseError
) -> None:
    backend = Doctored(account, error)
    [result] = await outcomes(clock, [make(backend=backend).send("x")])
    assert isinstance(result, type(error))
    assert backend.calls == 4


async def test_a_lost_answer_on_fifo_is_asked_for_again_and_stores_once(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer(SendMessageBatch)
    [receipt] = await outcomes(clock, [make("orders.fifo").send("x", group_id="g")])
    assert receipt.sequence_number
    assert "1 visible" in repr(account.queue("orders.fifo"))


async def test_a_lost_answer_on_a_standard_queue_is_the_callers_to_decide(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer(SendMessageBatch)
    [error] = await outcomes(clock, [make().send("x")])
    assert isinstance(error, OutcomeUnknownError)
    assert requests(account) == 1
    account.faults.lose_answer(SendMessageBatch)
    [receipt] = await outcomes(clock, [make(retry_unknown=True).send("x")])
    assert receipt.message_id
    assert "3 visible" in repr(account.queue("orders")), "it may be there twice, as was accepted"


async def test_beyond_the_deduplication_window_a_lost_answer_is_not_asked_for_again(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer(SendMessageBatch)
    account.faults.throttle(SendMessageBatch, times=None)
    policy = RetryPolicy(base_seconds=50, cap_seconds=50, max_attempts=None, budget_seconds=None)
    began = clock.monotonic()
    [error] = await outcomes(clock, [make("orders.fifo", retry=policy).send("x", group_id="g")])
    assert isinstance(error, OutcomeUnknownError), "never a plain failure: it may be stored"
    assert clock.monotonic() - began <= 270


# --- the queue ----------------------------------------------------------------------------------


async def test_a_sink_never_creates_a_queue(account: Account, make: MakeSink) -> None:
    sink = make("missing", clock=account.clock)
    clock = account.clock
    assert isinstance(clock, VirtualClock)
    [error] = await outcomes(clock, [sink.send("x")])
    assert isinstance(error, QueueDoesNotExist)
    assert isinstance(error, ConfigError)
    assert not account.ledger.of(CreateQueue)
    assert sink.stats["config_errors"] == 1
    await account.execute(CreateQueue("missing"))
    [receipt] = await outcomes(clock, [sink.send("x")])
    assert receipt.message_id, "once an operator has made it, it works"


async def test_a_lookup_without_an_answer_is_no_unknown_send(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    account.faults.lose_answer("GetQueueUrl")
    [receipt] = await outcomes(clock, [make().send("x")])
    assert receipt.message_id


async def test_too_large_is_refused_before_any_request(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(max_message_bytes=100)
    [error] = await outcomes(clock, [sink.send("x" * 90, attributes={"name": "value"})])
    assert isinstance(error, MessageTooLargeError)
    assert (error.size, error.limit) == (90 + 4 + 6 + 5, 100)
    assert not account.ledger
    assert sink.stats["too_large"] == 1


async def test_a_look_up_that_fails_in_an_unexpected_way_holds_nothing_up(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    class Broken:
        async def execute(self, operation: Any) -> Any:
            if isinstance(operation, SendMessageBatch):
                return await account.execute(operation)
            raise ZeroDivisionError

    sink = make(backend=Broken())
    for error in await outcomes(clock, [sink.send("a"), sink.send("b")]):
        assert isinstance(error, NotSentError)
        assert "look-up failed with ZeroDivisionError" in str(error)
    assert not account.sent("orders")
    async with asyncio.timeout(5):
        await sink.aclose()
