"""What tests may ask of an account: faults, the ledger, what was sent, and its state in words."""

from __future__ import annotations

import asyncio

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import (
    NetworkError,
    OutcomeUnknownError,
    QueueDoesNotExist,
    ReceiptHandleExpired,
    RefusedError,
    ThrottledError,
    TransientError,
    UsageError,
)
from pumphouse.protocol.attributes import md5_of_body
from pumphouse.protocol.operations import (
    DeleteMessage,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
)
from support.a_queue import AQueue


async def test_throttled_a_few_times(account: Account) -> None:
    queue = await AQueue.create(account)
    account.faults.throttle("SendMessage", times=2)
    for _ in range(2):
        with pytest.raises(ThrottledError):
            await queue.send()
    await queue.send("a")
    assert await queue.bodies() == ["a"]


async def test_refused_by_a_known_and_an_unknown_code(account: Account) -> None:
    queue = await AQueue.create(account)
    account.faults.refuse(SendMessage, "AccessDenied", "no", times=None)
    account.faults.refuse(ReceiveMessage, "SomethingNew", "what")
    for _ in range(3):
        with pytest.raises(Exception, match="AccessDenied: no"):
            await queue.send()
    with pytest.raises(TransientError, match="SomethingNew: what"):
        await queue.receive()
    account.faults.clear()
    await queue.send("a")
    assert await queue.bodies() == ["a"]


async def test_some_entries_fail(account: Account) -> None:
    queue = await AQueue.create(account)
    account.faults.fail_entries("SendMessageBatch", [0, 2])
    account.faults.fail_entries(
        SendMessageBatch,
        lambda entry: entry.message_body == "b",
        "InvalidMessageContents",
        "x",
        True,
    )
    account.faults.fail_entries("SendMessageBatch", range(10))
    first = await queue.send_batch("a", "b", "c")
    assert [entry.id for entry in first.successful] == ["1"]
    assert [(entry.id, entry.code, entry.sender_fault) for entry in first.failed] == [
        ("0", "InternalError", False),
        ("2", "InternalError", False),
    ]
    second = await queue.send_batch("a", "b", "c")
    assert [(entry.id, entry.code, entry.message) for entry in second.failed] == [
        ("1", "InvalidMessageContents", "x")
    ]
    third = await queue.send_batch("a", "b", "c")
    assert third.successful == []
    assert [entry.id for entry in third.failed] == ["0", "1", "2"]
    assert await queue.bodies() == ["b", "a", "c"]
    with pytest.raises(UsageError, match="SendMessage has no entries"):
        account.faults.fail_entries("SendMessage", [0])


async def test_lost_answers_and_lost_requests(account: Account) -> None:
    queue = await AQueue.create(account)
    account.faults.lose_answer("SendMessage")
    account.faults.lose_request("SendMessage")
    with pytest.raises(OutcomeUnknownError):
        await queue.send("carried out")
    with pytest.raises(NetworkError):
        await queue.send("not carried out")
    assert await queue.bodies() == ["carried out"]
    assert [sent.body for sent in account.sent("q")] == ["carried out"]
    lost, unsent = account.ledger.of("SendMessage")
    assert isinstance(lost.error, OutcomeUnknownError)
    assert lost.result is not None
    assert isinstance(unsent.error, NetworkError)
    assert unsent.result is None


async def test_slow_requests_and_slow_answers(account: Account, clock: VirtualClock) -> None:
    queue = await AQueue.create(account)
    account.faults.delay("SendMessage", 5)
    account.faults.delay("SendMessage", 5, answer=True)
    slow = asyncio.ensure_future(queue.send("slow request"))
    await clock.settle()
    late = asyncio.ensure_future(queue.send("slow answer"))
    await clock.settle()
    assert await queue.bodies() == ["slow answer"]
    assert not late.done()
    await clock.advance(5)
    assert slow.done()
    assert late.done()
    assert await queue.bodies() == ["slow request"]


async def test_wrong_md5s(account: Account) -> None:
    queue = await AQueue.create(account)
    for action in ("SendMessage", "SendMessageBatch", "ReceiveMessage"):
        account.faults.wrong_md5(action)
    right = md5_of_body("a")
    assert (await queue.send("a")).md5_of_message_body != right
    assert (await queue.send_batch("a")).successful[0].md5_of_message_body != right
    first, second = await queue.receive()
    assert first.md5_of_body != right
    assert second.md5_of_body != right
    with pytest.raises(UsageError):
        account.faults.wrong_md5("DeleteMessage")


@pytest.mark.parametrize("name", ["q", "q.fifo"])
async def test_an_expired_handle(account: Account, clock: VirtualClock, name: str) -> None:
    queue = await AQueue.create(account, name)
    await queue.send("a")
    [message] = await queue.receive()
    poll = queue.poll()
    await clock.settle()
    account.faults.expire_handle(message.receipt_handle)
    await clock.settle()
    assert await poll == ["a"]
    for attempt in (queue.delete(message), queue.change(message, 9)):
        with pytest.raises(ReceiptHandleExpired):
            await attempt
    with pytest.raises(UsageError):
        account.faults.expire_handle(message.receipt_handle)
    with pytest.raises(UsageError):
        account.faults.expire_handle("nonsense")


async def test_a_fault_for_an_action_that_is_none(account: Account) -> None:
    with pytest.raises(UsageError, match="'SendMesage' is no action"):
        account.faults.throttle("SendMesage")
    with pytest.raises(UsageError, match="times is 0"):
        account.faults.throttle("SendMessage", times=0)
    assert not account.faults
    account.faults.throttle("SendMessage", times=2)
    account.faults.lose_answer("DeleteMessage", times=None)
    assert repr(account.faults) == "<Faults: SendMessage (2), DeleteMessage (always)>"


async def test_the_ledger_has_every_operation_and_its_outcome(
    account: Account, clock: VirtualClock
) -> None:
    queue = await AQueue.create(account)
    await clock.advance(1)
    await queue.send("a")
    with pytest.raises(QueueDoesNotExist):
        await account.execute(SendMessage("nowhere", "b"))
    account.faults.throttle("SendMessage")
    with pytest.raises(ThrottledError):
        await queue.send("c")
    poll = queue.poll(wait=20, visibility=0)
    assert await poll == ["a"]
    await queue.delete(*await queue.receive())
    given_up = queue.poll()
    await clock.settle()
    given_up.cancel()
    await clock.settle()
    assert [entry.action for entry in account.ledger] == [
        "CreateQueue",
        *["SendMessage"] * 3,
        *["ReceiveMessage"] * 2,
        "DeleteMessage",
        "ReceiveMessage",
    ]
    assert [type(entry.error) for entry in account.ledger.of(SendMessage)] == [
        type(None),
        QueueDoesNotExist,
        ThrottledError,
    ]
    sent = account.ledger.of("SendMessage")[0]
    assert sent.started_at == clock.now()
    assert sent.operation == SendMessage(queue.url, "a")
    assert sent.result is not None
    assert isinstance(account.ledger[-1].error, asyncio.CancelledError)
    assert account.ledger.counts["ReceiveMessage"] == 3
    assert repr(account.ledger).startswith("<Ledger: 8 operations: 3 SendMessage")
    account.ledger.clear()
    assert len(account.ledger) == 0
    assert not account.ledger.counts


async def test_the_ledger_is_bounded_and_can_be_off(clock: VirtualClock) -> None:
    account = Account(clock=clock, ledger_room=3)
    queue = await AQueue.create(account)
    for body in "abcde":
        await queue.send(body)
    assert [entry.operation.message_body for entry in account.ledger] == ["c", "d", "e"]
    assert account.ledger.counts["SendMessage"] == 5
    off = Account(clock=clock, ledger_room=0)
    queue = await AQueue.create(off)
    off.faults.throttle("SendMessage")
    with pytest.raises(ThrottledError):
        await queue.send("a")
    await queue.send("a")
    assert len(off.ledger) == 0
    assert not off.ledger.counts
    with pytest.raises(UsageError, match="ledger is off"):
        off.sent("q")


async def test_what_was_sent(account: Account) -> None:
    queue = await AQueue.create(account, "q.fifo")
    other = await AQueue.create(account, "other")
    await queue.send("a", message_group_id="g1")
    await queue.send("again", message_deduplication_id="d1")
    await other.send("elsewhere")
    await queue.send_batch("b", "c")
    account.faults.lose_request("SendMessage")
    with pytest.raises(NetworkError):
        await queue.send("lost")
    await queue.delete(*await queue.receive())
    for name in ("q.fifo", queue.url, account.queue("q.fifo").arn):
        assert [sent.body for sent in account.sent(name)] == ["a", "b", "c"]
    first = account.sent("q.fifo")[0]
    assert (first.group_id, first.deduplication_id) == ("g1", "d1")
    assert first.sequence_number is not None
    assert [sent.body for sent in account.sent("other")] == ["elsewhere"]
    with pytest.raises(UsageError, match="no queue 'nowhere'"):
        account.sent("nowhere")


async def test_its_state_in_words(account: Account, clock: VirtualClock) -> None:
    assert repr(account) == "<Account 000000000000 us-east-1: 0 queues>"
    queue = await AQueue.create(account)
    fifo = await AQueue.create(account, "q.fifo")
    await queue.send_batch("a", "b", "c")
    await queue.send("d", delay_seconds=9)
    await queue.receive(1, visibility=5)
    for group in "ab":
        await fifo.send(message_group_id=group)
    await fifo.receive()
    poll = fifo.poll()
    await clock.settle()
    assert repr(account) == (
        "<Account 000000000000 us-east-1: 2 queues\n"
        "  <StandardQueue q: 2 visible, 1 in flight, 1 delayed>\n"
        "  <FifoQueue q.fifo: 0 visible, 2 in flight, 2 groups, 1 receive waiting>>"
    )
    await clock.advance(9)
    assert repr(account.queue("q")) == "<StandardQueue q: 4 visible, 0 in flight>"
    poll.cancel()
    await clock.settle()
    for number in range(30):
        await AQueue.create(account, f"more-{number}")
    assert repr(account).endswith("and 12 more>")


async def test_scopes_are_apart(account: Account) -> None:
    here = await AQueue.create(account)
    elsewhere = await AQueue.create(account.within(region="eu-west-1"))
    theirs = await AQueue.create(account.within(account_id="111122223333"))
    await here.send("a")
    assert [len(await each.receive()) for each in (here, elsewhere, theirs)] == [1, 0, 0]
    assert account.queue("q").arn == "arn:aws:sqs:us-east-1:000000000000:q"
    assert account.queue(elsewhere.url).arn == "arn:aws:sqs:eu-west-1:000000000000:q"
    assert account.queue(theirs.url).arn == "arn:aws:sqs:us-east-1:111122223333:q"
    assert len(account.queues) == 3
    assert account.within(region="eu-west-1") is account.within(region="eu-west-1")


async def test_an_unknown_operation(account: Account) -> None:
    class Strange(DeleteMessage, frozen=True):  # type: ignore[misc]
        action = "Strange"

    with pytest.raises(RefusedError, match="The action Strange is not valid for this endpoint"):
        await account.execute(Strange("q", "h"))
