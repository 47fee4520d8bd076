"""When batches leave, what is in them, and who waits: batching, fairness, ceilings, groups."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import ThrottledError, UsageError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import SendMessage, SendMessageBatch
from pumphouse.sink import Sink, validate_options
from support.sending import batches, bodies, outcomes

from .conftest import MakeSink


async def test_ten_leave_at_once_and_the_rest_when_it_has_lingered(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(13)]
    await clock.settle()
    assert batches(account) == [[str(n) for n in range(10)]]
    await clock.advance(0.019)
    assert len(batches(account)) == 1
    await clock.advance(0.001)
    assert batches(account)[1] == ["10", "11", "12"]
    assert all(task.done() for task in tasks)


async def test_ten_are_a_full_batch_and_nine_are_none(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(9)]
    await clock.settle()
    assert batches(account) == []
    tasks.append(asyncio.create_task(sink.send("9")))
    await clock.settle()
    assert batches(account) == [[str(n) for n in range(10)]]
    assert clock.monotonic() == 0.0
    await asyncio.gather(*tasks)


async def test_the_linger_counts_from_the_first_that_arrived(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    tasks = [asyncio.create_task(sink.send("first"))]
    await clock.advance(0.015)
    tasks.append(asyncio.create_task(sink.send("second")))
    await clock.advance(0.005)
    assert batches(account) == [["first", "second"]]
    await asyncio.gather(*tasks)


async def test_256_kib_are_a_full_batch(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    await outcomes(clock, [sink.send("warm")])
    tasks = [asyncio.create_task(sink.send(str(n) * 100_000)) for n in range(3)]
    await clock.settle()
    assert [len(batch) for batch in batches(account)[1:]] == [2], "the third would be too much"
    await clock.advance(0.02)
    assert [len(batch) for batch in batches(account)[1:]] == [2, 1]
    await asyncio.gather(*tasks)


async def test_a_message_larger_than_a_batch_travels_alone(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    await outcomes(clock, [sink.send(body) for body in ("a", "x" * 500_000, "b")])
    assert sorted(len(batch) for batch in batches(account)) == [1, 1, 1]


async def test_linger_zero_sends_what_is_there_whenever_a_slot_is_free(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_linger=0, batch_max_inflight=1)
    await outcomes(clock, [sink.send("warm")])
    account.faults.delay(SendMessageBatch, 1)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(4)]
    await clock.settle()
    assert sink.stats["requests"] == 2, "the first went at once, alone"
    await clock.advance(1)
    assert batches(account)[1:] == [["0"], ["1", "2", "3"]]
    await asyncio.gather(*tasks)


async def test_batch_false_sends_each_message_in_a_request_of_its_own(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch=False, batch_max_inflight=3)
    await outcomes(clock, [sink.send("warm")])
    account.faults.delay(SendMessage, 1, times=None)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(7)]
    await clock.settle()
    assert sink.stats["requests"] == 1 + 3, "three at a time"
    await clock.advance(3)
    assert len(account.ledger.of(SendMessage)) == 8
    assert not account.ledger.of(SendMessageBatch)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("queue", ["orders", "orders.fifo"])
async def test_both_kinds_of_queue_take_batches_and_single_sends(
    make: MakeSink, account: Account, clock: VirtualClock, queue: str, batch: bool
) -> None:
    sink = make(queue, batch=batch)
    results = await outcomes(clock, [sink.send(str(n), group_id=str(n)) for n in range(10)])
    assert all(receipt.message_id for receipt in results)
    assert len(account.ledger.of(SendMessageBatch)) == (1 if batch else 0)
    assert len(account.ledger.of(SendMessage)) == (0 if batch else 10)
    assert sorted(bodies(account, queue)) == [str(n) for n in range(10)]


async def test_a_send_returns_when_the_answer_of_its_batch_is_there_and_not_before(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    account.faults.delay(SendMessageBatch, 1, answer=True)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(10)]
    await clock.advance(0.9)
    assert "10 visible" in repr(account.queue("orders")), "stored, and not yet answered"
    assert not any(task.done() for task in tasks)
    await clock.advance(0.2)
    assert all(task.done() for task in tasks)
    await asyncio.gather(*tasks)


async def test_at_most_eight_requests_are_in_flight(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make()
    await outcomes(clock, [sink.send("warm")])
    account.faults.delay(SendMessageBatch, 1, times=None)
    tasks = [asyncio.create_task(sink.send(str(n))) for n in range(200)]
    await clock.settle()
    assert sink.stats["requests"] == 1 + 8
    await clock.advance(1)
    assert sink.stats["requests"] == 1 + 16
    await clock.advance(10)
    await asyncio.gather(*tasks)


async def test_batches_take_tenants_in_turn(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_max_inflight=1)
    await outcomes(clock, [sink.send("warm")])
    account.faults.delay(SendMessageBatch, 1, times=None)
    sends = [sink.send(f"big{n}", tenant="big") for n in range(100)]
    sends += [sink.send(f"{name}{n}", tenant=name) for n in range(3) for name in ("a", "b", "c")]
    await outcomes(clock, sends)
    second = batches(account)[2]
    assert [body for body in second if not body.startswith("big")] == [
        *("a0", "b0", "c0", "a1", "b1", "c1", "a2")
    ]
    assert len(second) == 10


# --- FIFO ---------------------------------------------------------------------------------------


async def test_a_group_has_one_request_in_flight_and_goes_ten_at_a_time(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    await outcomes(clock, [sink.send("warm", group_id="other")])
    account.faults.delay(SendMessageBatch, 1, times=None)
    tasks = [asyncio.create_task(sink.send(str(n), group_id="one")) for n in range(25)]
    await clock.settle()
    assert sink.stats["requests"] == 2
    await clock.advance(1)
    assert sink.stats["requests"] == 3
    await clock.advance(10)
    await asyncio.gather(*tasks)
    assert bodies(account, "orders.fifo")[1:] == [str(n) for n in range(25)]
    assert [len(batch) for batch in batches(account)[1:]] == [10, 10, 5]


async def test_one_group_that_is_in_flight_never_holds_up_another(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", batch_linger=0)
    await outcomes(clock, [sink.send("warm", group_id="x")])
    account.faults.delay(SendMessageBatch, 60)
    slow = asyncio.create_task(sink.send("slow", group_id="slow"))
    await clock.settle()
    others = await outcomes(clock, [sink.send(str(n), group_id=str(n)) for n in range(20)])
    assert all(receipt.sequence_number for receipt in others)
    assert not slow.done()
    await clock.advance(60)
    await slow


async def test_what_is_tried_again_goes_before_what_waits_behind_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    account.faults.refuse(SendMessageBatch, "InternalError")
    sends = [sink.send(f"{n:02}", group_id="g") for n in range(25)]  # ten of them in the request
    results = await outcomes(clock, sends)
    assert all(isinstance(result, Receipt) for result in results)
    assert bodies(account, "orders.fifo") == [f"{n:02}" for n in range(25)]


async def test_what_comes_while_another_try_is_waited_for_goes_behind_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", batch_linger=0)
    await outcomes(clock, [sink.send("warm", group_id="g")])
    account.faults.refuse(SendMessageBatch, "InternalError")
    tasks = [asyncio.create_task(sink.send("A1", group_id="g"))]
    await clock.settle()
    tasks += [asyncio.create_task(sink.send(body, group_id="g")) for body in ("A2", "A3")]
    tasks.append(asyncio.create_task(sink.send("B1", group_id="other")))
    await clock.settle()
    assert tasks[3].done(), "another group does not wait for the retry"
    await clock.advance(10)
    await asyncio.gather(*tasks)
    stored = bodies(account, "orders.fifo")
    assert [body for body in stored if body[0] == "A"] == ["A1", "A2", "A3"]


async def test_an_entry_of_a_group_shared_by_tenants_keeps_its_place(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo", batch_max_inflight=1)
    sends = [
        sink.send(f"{n}", tenant="abc"[n % 3], group_id="shared" if n % 2 else "abc"[n % 3])
        for n in range(60)
    ]
    await outcomes(clock, sends)
    shared = [int(sent.body) for sent in account.sent("orders.fifo") if sent.group_id == "shared"]
    assert shared == sorted(shared)
    assert len(shared) == 30


# --- ceilings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ({"batch_queue_max": 20}, 20),
        ({"batch_queue_tenant_max": 15}, 15),
        ({"batch_queue_max_bytes": 100}, 12),
    ],
)
async def test_past_a_ceiling_a_send_is_throttled_with_a_delay(
    make: MakeSink, account: Account, clock: VirtualClock, options: dict[str, Any], fits: int
) -> None:
    sink = make(batch_linger=5, batch_max_inflight=1, **options)
    account.faults.delay(SendMessageBatch, 1, times=None)
    tasks = [asyncio.create_task(sink.send("8 bytes.")) for n in range(25)]
    await clock.settle()
    refused = [task for task in tasks if task.done()]
    assert len(refused) == 25 - fits
    for task in refused:
        error = task.exception()
        assert isinstance(error, ThrottledError)
        assert error.code == "SinkQueueFull"
        assert 0 < error.retry_after_seconds <= 1
        assert next(iter(options)) in str(error)
    assert sink.stats["queue_full"] == 25 - fits
    await clock.advance(30)
    assert sink.stats["stored"] == fits


async def test_whoever_asks_waits_for_room_in_turn_across_tenants(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_queue_max=10, batch_max_inflight=1, wait=True)
    account.faults.delay(SendMessageBatch, 1, times=None)
    sends = [sink.send(f"big{n}", tenant="big") for n in range(50)]
    sends += [sink.send("small", tenant="small")]
    tasks = [asyncio.create_task(send) for send in sends]
    await clock.run_until(tasks[-1].done)
    assert sum(task.done() for task in tasks) <= 21, "it did not wait for the fifty"
    await clock.run_until(lambda: all(task.done() for task in tasks))
    assert len(await asyncio.gather(*tasks)) == 51
    big = [body for body in bodies(account, "orders") if body.startswith("big")]
    assert big == [f"big{n}" for n in range(50)]


async def test_one_call_can_wait_or_not_whatever_the_sink_does(
    make: MakeSink, clock: VirtualClock
) -> None:
    sink = make(batch_queue_max=1, batch_linger=1)
    first = asyncio.create_task(sink.send("1"))
    await clock.settle()
    waiting = asyncio.create_task(sink.send("2", wait=True))
    await clock.settle()
    with pytest.raises(ThrottledError):
        await sink.send("3")
    await clock.advance(5)
    await asyncio.gather(first, waiting)


async def test_a_cancelled_caller_that_waited_for_room_makes_way(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(batch_queue_max_bytes=100, batch_linger=1, wait=True)
    first = asyncio.create_task(sink.send("x" * 60))
    large = asyncio.create_task(sink.send("y" * 99, tenant="large"))
    small = asyncio.create_task(sink.send("z" * 10, tenant="small"))
    await clock.settle()
    large.cancel()
    await clock.advance(1)
    await asyncio.gather(first, small)
    assert batches(account) == [["x" * 60, "z" * 10]]


async def _async_function(message: object) -> str:
    return "group"


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 1),
        ("batch_linger", -0.001),
        ("batch_linger", 60.1),
        ("batch_linger", "20ms"),
        ("batch_max_entries", 0),
        ("batch_max_entries", 11),
        ("batch_max_bytes", 1_048_577),
        ("batch_max_bytes", 0),
        ("batch_max_inflight", 0),
        ("batch_queue_max", 0),
        ("batch_queue_max_bytes", 0),
        ("batch_queue_tenant_max", 0),
        ("batch_queue_tenant_max", 1.5),
        ("max_message_bytes", 1_048_577),
        ("retry", 3),
        ("group_id", ""),
        ("close_timeout_seconds", float("nan")),
        ("batch_lingr", 1),
        ("group_id", "a b"),
        ("group_id", _async_function),
        ("add_attributes", 1),
        ("attribute_prefix", "aws."),
        ("attribute_prefix", "a b"),
        ("attribute_prefix", b"a"),
        ("claim_check", {}),
        ("hooks", 1),
        ("clock", 1),
        ("rng", 1),
        ("on_dead_letter", 1),
        ("on_dead_letter", ""),
        ("on_dead_letter", "/var/dead/letters"),
    ],
)
async def test_a_bad_option_fails_when_the_sink_is_made_and_is_named(
    account: Account, name: str, value: Any
) -> None:
    with pytest.raises(UsageError, match=name):
        validate_options({name: value})
    with pytest.raises(UsageError, match=name):
        Sink("orders", account, **{name: value})
    assert not account.ledger


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_linger": 0},
        {"batch_linger": 60},
        {"batch_linger": timedelta(milliseconds=5)},
        {"batch_max_bytes": 1_048_576},
    ],
)
def test_good_options_pass(options: dict[str, Any]) -> None:
    validate_options(options)


def test_the_defaults_are_the_documented_ones(account: Account) -> None:
    described = Sink("orders", account).describe()
    assert described["batch"] == {
        "enabled": True,
        "linger_seconds": 0.02,
        "max_entries": 10,
        "max_bytes": 262_144,
        "max_inflight": 8,
    }
    assert described["ceilings"] == {
        "entries": 4_096,
        "bytes": 134_217_728,
        "entries_per_tenant": 1_024,
    }


async def test_two_sinks_share_nothing(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    """A batcher is of one queue and one set of credentials: of one sink."""
    other = account.within(account_id="000000000000")  # another backend, as of other credentials
    sinks = [make(), make(backend=other), make("orders.fifo", group_id="g")]
    await outcomes(clock, [sink.send(str(n)) for n in range(2) for sink in sinks])
    assert sorted(batches(account)) == [["0", "1"]] * 3
