"""What handlers return: replies, several of them, with groups and headers, and to whom."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from pumphouse import Account, App, Message, Outgoing, Reply, Retry, Topic, VirtualClock
from pumphouse.model import CORRELATION_HEADER
from pumphouse.protocol.operations import DeleteMessageBatch, SendMessage, SendMessageBatch
from support.service import deleted, make_queue, send


@dataclass
class Order:
    id: int


@dataclass
class Shipped:
    id: int


_HERE = "test_a_reply_that_can_not_be_sent_is_a_failed_attempt_and_not_lost"


def bodies(account: Account, queue: str) -> list[str]:
    return [sent.body for sent in account.sent(queue)]


async def test_a_reply_with_everything() -> None:
    app = App()
    app.publisher("later")

    @app.subscriber("q", publish="out.fifo")
    async def handle(body: str) -> list[Reply]:
        return [
            Reply(
                {"n": 1},
                group_id="g",
                deduplication_id="d",
                headers={"h": "1", CORRELATION_HEADER: "mine"},
            ),
            Reply(b"2", tenant="acme"),
            Reply("3", to="later", delay_seconds=timedelta(seconds=60)),
        ]

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        one, two = account.sent("out.fifo")
        assert (one.body, one.group_id, one.deduplication_id) == ('{"n":1}', "g", "d")
        assert one.attributes["h"].string_value == "1"
        assert one.attributes[CORRELATION_HEADER].string_value == "mine"
        assert (two.body, two.group_id) == ("2", "acme/")
        own = handle.calls[0].message.message_id
        assert two.attributes[CORRELATION_HEADER].string_value == own
        assert account.queue("later").delayed == 1


async def test_replies_are_stored_before_the_message_is_deleted() -> None:
    app = App()
    app.publisher("b")

    @app.subscriber("q", publish="a")
    async def handle(body: str) -> list[Reply]:
        return [Reply("1"), Reply("2", to="b")]

    async with app.in_process() as account:
        account.faults.delay(SendMessageBatch, 5, times=None)
        await account.send("q", "x")
        await account.settle()
        asked = [entry.started_at for entry in account.ledger.of(SendMessageBatch)]
        (gone,) = account.ledger.of(DeleteMessageBatch)
        assert gone.started_at >= max(asked) + 5
        assert (bodies(account, "a"), bodies(account, "b")) == (["1"], ["2"])


async def test_one_reply_that_fails_is_a_failed_attempt_and_the_others_are_not_doubled() -> None:
    """On FIFO queues: a rerun sends all again, with the same deduplication ids."""
    app = App()
    app.publisher("b.fifo")

    @app.subscriber("q.fifo", publish="a.fifo", retry=1)
    async def handle(body: str) -> tuple[Reply, ...]:
        return (Reply("1"), Reply("2"), Reply("3", to="b.fifo"), Reply("4"))

    async with app.in_process() as account:
        account.faults.fail_entries(
            SendMessageBatch,
            lambda entry: entry.message_body == "2",
            code="InvalidMessageContents",
            sender_fault=True,
            times=3,
        )
        await account.send("q.fifo", "x", group_id="g")
        await account.settle()
        assert bodies(account, "a.fifo") == ["1", "2", "4"], "in order, none of them twice"
        assert bodies(account, "b.fifo") == ["3"]
        ids = [sent.deduplication_id for sent in account.sent("a.fifo")]
        message_id = handle.calls[0].message.message_id
        assert ids == [f"reply-{message_id}", f"reply-{message_id}-1", f"reply-{message_id}-3"]
        assert {sent.group_id for sent in account.sent("a.fifo")} == {"g"}
    assert len(handle.calls) > 1


async def test_a_handler_that_runs_twice_answers_once(
    account: Account, clock: VirtualClock
) -> None:
    """The deletes are refused, and another process gets the message again."""
    url = await make_queue(account, "q.fifo", VisibilityTimeout="10")
    await make_queue(account, "out.fifo")
    await send(account, url, "x", group="g")
    account.faults.refuse("DeleteMessageBatch", "AccessDenied", times=None)
    runs = 0
    for _ in range(2):
        app = App(drain_seconds=0)
        out = app.publisher("out.fifo", str)

        @app.subscriber("q.fifo", publish="out.fifo")
        @out
        async def handle(body: str) -> list[Reply]:
            nonlocal runs
            runs += 1
            return [Reply("a"), Reply("b"), Reply("c", to="out.fifo")]

        async with app.running(account):
            await clock.advance(5)
        await clock.advance(60)
    assert runs == 2
    # "a" and "b" go to publish= and to the publisher that decorates the handler
    assert bodies(account, "out.fifo") == ["a", "a", "b", "b", "c"]


async def test_a_list_of_something_else_is_one_reply() -> None:
    app = App()

    @app.subscriber("q", publish="out")
    async def handle(body: str) -> list[int]:
        return [1, 2] if body == "some" else []

    async with app.in_process() as account:
        await account.send("q", "some")
        await account.send("q", "none")
        await account.settle()
        assert bodies(account, "out") == ["[1,2]", "[]"]


async def test_no_replies_at_all() -> None:
    app = App()

    @app.subscriber("q", publish="out")
    async def handle(body: str) -> list[Reply] | None:
        return [] if body == "none" else None

    @app.subscriber("r")
    async def other(body: str) -> tuple[Reply, ...]:
        return ()

    async with app.in_process() as account:
        for queue in ("q", "r"):
            await account.send(queue, "none")
        await account.settle()
        assert len(account.ledger.of(SendMessage)) == 2, "the two of this test"
        assert not account.ledger.of(SendMessageBatch)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Reply("x"), "nothing says where it goes: give Reply(to=…)"),
        ([Reply("x", to="out"), "y"], "a list of replies has a Reply for each of them"),
        (Reply("x", to=3), "is a queue's name, a Topic or a Publisher, not 3"),  # type: ignore[arg-type]
        (Reply("", to="out"), "the body is empty"),
        (Reply(object(), to="out"), "can't be written as JSON"),
        (Reply("x", to="out.fifo"), "give group_id"),
        (Reply("x", to="out.fifo", group_id="g", delay_seconds=3), "takes no delay"),
        (Reply("x", to="missing"), "to missing: the queue missing does not exist; create it"),
        (Reply("x", to="missing"), "app.publisher('missing') declares it"),
        (Reply("x", to="missing.fifo", group_id="g"), "the queue missing.fifo does not exist"),
        (Reply("x", to="missing.fifo"), "a FIFO queue, and the message has no group: give group"),
        (Reply("x", to=Topic("missing")), "the topic missing does not exist; create it"),
        (Reply("x", to="out", deduplication_id="d"), "takes no deduplication id"),
        (Reply("x", to="  "), "needs a name"),
    ],
)
async def test_a_reply_that_can_not_be_sent_is_a_failed_attempt_and_not_lost(
    value: Any, says: str
) -> None:
    app = App()
    app.publisher("out")
    app.publisher("out.fifo")

    @app.subscriber("q", max_attempts=1, dead_letter="dead")
    async def handle(body: str) -> Any:
        return value

    async with app.in_process() as account:
        await account.send("q", "keep me")
        await account.settle()
        (dead,) = account.sent("dead")
        assert dead.body == "keep me"
        reason = str(dead.attributes["pumphouse.reason"].string_value)
        assert says in reason
        assert f"a reply of {handle.__name__}" in reason.replace(f"{_HERE}.", "")
        assert bodies(account, "out") == []


async def test_a_destination_that_is_missing_holds_up_nothing_and_is_found_when_it_is_there() -> (
    None
):
    app = App()

    @app.subscriber("q", publish="out", retry=60)
    async def handle(body: str) -> Reply:
        return Reply(body, to="later.fifo", group_id="g") if body == "early" else Reply(body)

    async with app.in_process() as account:
        await account.send("q", "early")
        for number in range(20):
            await account.send("q", str(number))
        await account.clock.advance(5)
        assert sorted(bodies(account, "out"), key=int) == [str(number) for number in range(20)]
        assert account.queue("q").in_flight + account.queue("q").delayed == 1, "it is kept"
        await make_queue(account, "later.fifo")
        await account.settle()
        assert bodies(account, "later.fifo") == ["early"]


async def test_a_coroutine_that_is_returned_and_not_awaited_is_a_failed_attempt() -> None:
    app = App()

    async def pay(body: str) -> None:
        raise AssertionError("nobody awaits it")

    @app.subscriber("q", max_attempts=1, dead_letter="dead")
    async def handle(body: str) -> Any:
        return pay(body)

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        (dead,) = account.sent("dead")
    reason = dead.attributes["pumphouse.reason"].string_value
    assert "the handler returned a coroutine that nobody awaited" in reason


async def test_middleware_moves_replies_between_fifo_and_standard_queues() -> None:
    """The ids are those of where it arrives: dropped where there are none, and made where they are
    needed, the same in every attempt."""
    seen: list[tuple[str | None, str | None]] = []

    class Moving:
        async def publish(self, outgoing: Outgoing, call_next: Any) -> Any:
            seen.append((outgoing.group_id, outgoing.deduplication_id))
            to = {"a.fifo": "standard", "b": "b.fifo", "out": "out"}[str(outgoing.destination)]
            return await call_next(replace(outgoing, destination=to))

    app = App(middleware=[Moving()])
    for name in ("standard", "b.fifo", "b", "out"):
        app.publisher(name)
    moved = app.publisher("a.fifo")

    @app.subscriber("q.fifo", retry=1)
    async def handle(body: str) -> list[Reply]:
        moved = [Reply("1", to="a.fifo", deduplication_id="mine"), Reply("2", to="b")]
        return [*moved, Reply("fails once", to="out")]

    async with app.in_process() as account:
        account.faults.fail_entries(
            SendMessageBatch,
            lambda entry: entry.message_body == "fails once",
            code="InvalidMessageContents",
            sender_fault=True,
            times=3,
        )
        await account.send("q.fifo", "x", group_id="g")
        await account.settle()
        message_id = handle.calls[0].message.message_id
        assert len(handle.calls) > 1
        assert seen[:2] == [("g", "mine"), (None, None)]
        assert [sent.body for sent in account.sent("standard")] == ["1"] * len(handle.calls)
        assert [(each.group_id, each.deduplication_id) for each in account.sent("b.fifo")] == [
            ("g", f"reply-{message_id}-1")
        ]
        await moved.publish("3", group_id="h", deduplication_id="d")
        assert account.sent("standard")[-1].body == "3"


async def test_a_value_with_nowhere_to_go_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> str:
        return body

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.send("q", "y")
        await account.settle()
        assert sorted(deleted(account)) == ["x", "y"]
    assert caplog.text.count("nothing says where it goes (publish=)") == 1


async def test_destinations_that_messages_name_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pumphouse.outlet.MOST_SINKS", 3)
    app = App()
    for number in range(20):
        app.publisher(f"to-{number}")

    @app.subscriber("q", concurrency=5)
    async def handle(to: str) -> Reply:
        return Reply("x", to=to)

    async with app.in_process() as account:
        for number in range(20):
            await account.send("q", f"to-{number}")
        await account.settle()
        assert all(bodies(account, f"to-{number}") == ["x"] for number in range(20))
        running = app.run_now
        assert running is not None
        assert len(running.outlet._sinks) <= 5, "no more than were at work at once"


@pytest.mark.parametrize("seed", range(12))
async def test_under_random_troubles_every_reply_is_stored_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    app = App()
    app.publisher("other.fifo")
    failing = {(group, number) for group in "abc" for number in range(6) if chance.random() < 0.3}

    @app.subscriber("q.fifo", publish="out.fifo", retry=0.5, concurrency=4)
    async def handle(body: str, message: Message) -> list[Reply]:
        if message.attempt == 1 and (body[0], int(body[1:])) in failing:
            raise RuntimeError("as planned")
        return [Reply(f"{body}-{n}") for n in range(3)] + [Reply(f"{body}!", to="other.fifo")]

    async with app.in_process() as account:
        for _ in range(8):
            trouble = chance.choice(["throttle", "lose", "entries", "entries", "delete", "refuse"])
            if trouble == "throttle":
                account.faults.throttle(SendMessageBatch, times=chance.randint(1, 3))
            elif trouble == "lose":
                account.faults.lose_answer(SendMessageBatch)
            elif trouble == "entries":
                bad = chance.randrange(4)
                account.faults.fail_entries(
                    SendMessageBatch,
                    [bad],
                    code=chance.choice(["InternalError", "InvalidMessageContents"]),
                    sender_fault=chance.random() < 0.5,
                    times=2,
                )
            elif trouble == "delete":
                account.faults.lose_answer(DeleteMessageBatch)
            else:
                account.faults.refuse(SendMessageBatch, "AccessDenied")
        for number in range(6):
            for group in "abc":
                await account.send("q.fifo", f"{group}{number}", group_id=group)
        await account.settle()
        for group in "abc":
            found = [each.body for each in account.sent("out.fifo") if each.group_id == group]
            assert found == [f"{group}{number}-{n}" for number in range(6) for n in range(3)]
            found = [each.body for each in account.sent("other.fifo") if each.group_id == group]
            assert found == [f"{group}{number}!" for number in range(6)]


# --- publishers as decorators -------------------------------------------------------------------


async def test_a_publisher_decorates_a_handler_on_either_side() -> None:
    app = App()
    shipped = app.publisher("shipped", Shipped)

    @app.subscriber("one")
    @shipped
    async def one(order: Order) -> Shipped:
        return Shipped(order.id)

    @app.publisher("also.fifo", Shipped)
    @shipped
    @shipped
    @app.subscriber("two.fifo", publish="third.fifo")
    def two(order: Order, message: Message) -> Shipped | Retry:
        return Retry() if message.attempt == 1 else Shipped(order.id)

    assert await one(Order(3)) == Shipped(3)
    async with app.in_process() as account:
        await account.send("one", Order(1))
        await account.send("two.fifo", Order(2), group_id="g")
        await account.settle()
        assert bodies(account, "shipped") == ['{"id":1}', '{"id":2}']
        assert bodies(account, "also.fifo") == bodies(account, "third.fifo") == ['{"id":2}']
        assert account.sent("also.fifo")[0].group_id == "g"


async def test_what_a_publisher_does_not_take_is_a_failed_attempt() -> None:
    app = App()

    @app.subscriber("q", max_attempts=2, dead_letter="dead")
    @app.publisher("out", Shipped)
    async def handle(order: Order) -> Any:
        return order

    async with app.in_process() as account:
        await account.send("q", Order(1))
        await account.settle()
        reason = account.sent("dead")[0].attributes["pumphouse.reason"].string_value
        assert reason is not None
        assert reason.endswith(".handle: the publisher of 'out': it takes Shipped, not Order")
        assert bodies(account, "out") == []


async def test_what_comes_of_a_reply_is_for_on_error() -> None:
    app = App()

    class Broken:
        async def publish(self, outgoing: Any, call_next: Any) -> Any:
            raise LookupError("no route")

    @app.subscriber("q", publish="out", middleware=[Broken()], on_error={LookupError: Retry(7)})
    async def handle(body: str, message: Message) -> list[Reply] | None:
        return [Reply("a"), Reply("b")] if message.attempt == 1 else None

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        first, second = (call.message for call in handle.calls)
        assert second.attempt == 2
        assert account.clock.now() - first.sent_at >= 7


# --- batches ------------------------------------------------------------------------------------


async def test_a_batch_replies_to_each_of_its_messages() -> None:
    app = App()

    @app.subscriber("q.fifo", batch=10, publish="out.fifo", retry=1)
    async def handle(bodies: list[str], messages: list[Message]) -> list[Any]:
        found: list[Any] = []
        for body, message in zip(bodies, messages, strict=True):
            if body == "again":
                found.append(None if message.attempt > 1 else Retry())
            elif body == "two":
                found.append([Reply("2a"), Reply("2b", headers={"h": "1"})])
            else:
                found.append({"was": body})
        return found

    async with app.in_process() as account:
        for group, body in (("a", "one"), ("b", "again"), ("c", "two")):
            await account.send(
                "q.fifo", body, group_id=group, headers={CORRELATION_HEADER: f"id-{group}"}
            )
        await account.settle()
        found = [
            (sent.body, sent.group_id, sent.attributes[CORRELATION_HEADER].string_value)
            for sent in account.sent("out.fifo")
        ]
        assert sorted(found) == [
            ("2a", "c", "id-c"),
            ("2b", "c", "id-c"),
            ('{"was":"one"}', "a", "id-a"),
        ]
        assert sorted(deleted(account)) == ["again", "one", "two"]


async def test_a_reply_of_a_batch_fails_alone() -> None:
    app = App()

    @app.subscriber("q", batch=10, publish="out", max_attempts=1, dead_letter="dead")
    async def handle(bodies: list[str]) -> list[Any]:
        return [object() if body == "bad" else body for body in bodies]

    async with app.in_process() as account:
        for body in ("good", "bad", "fine"):
            await account.send("q", body)
        await account.settle()
        assert sorted(bodies(account, "out")) == ["fine", "good"]
        assert bodies(account, "dead") == ["bad"]


async def test_what_a_batch_may_not_return() -> None:
    app = App()

    @app.subscriber("q", batch=10, publish="out", max_attempts=1, dead_letter="dead")
    async def handle(bodies: list[str]) -> Any:
        return "one for all"

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        reason = account.sent("dead")[0].attributes["pumphouse.reason"].string_value
        assert reason is not None
        assert "a list of 1 outcomes or replies (one for each message" in reason
