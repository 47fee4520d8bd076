"""Publishers: typed values that publish while their app runs, in handlers and outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from pumphouse import (
    Account,
    App,
    ConfigError,
    Depends,
    Message,
    Outgoing,
    Publisher,
    Queue,
    Receipt,
    Reply,
    Router,
    To,
    Topic,
    UsageError,
    VirtualClock,
    subscribe_queue_to_topic,
)
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.errors import (
    ClosedError,
    CrossThreadError,
    NotSentError,
    RefusedError,
    ThrottledError,
)
from pumphouse.model import CORRELATION_HEADER
from pumphouse.protocol.operations import CreateQueue, SendMessage, SendMessageBatch
from support.service import make_queue, receive


@dataclass
class Shipped:
    id: int


class Parcel(msgspec.Struct, tag=True):
    weight: float


class Letter(msgspec.Struct, tag=True):
    stamps: int


class Model(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


@pydantic.dataclasses.dataclass
class Checked:
    id: int


class Plain(TypedDict):
    id: int


class Colour(StrEnum):
    RED = "red"


async def note(
    order: Shipped, notes: Annotated[Publisher[str], To("notes")]
) -> AsyncIterator[Publisher[str]]:
    yield notes
    await notes.publish(f"done {order.id}")


def bodies(account: Account, queue: str) -> list[str]:
    return [sent.body for sent in account.sent(queue)]


async def failing(many: Any) -> None:
    """Raise the first error among the results."""
    for result in await many:
        if isinstance(result, Exception):
            raise result


# --- what is sent -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (Shipped, Shipped(1), '{"id":1}'),
        (Parcel, Parcel(2.5), '{"type":"Parcel","weight":2.5}'),
        (Parcel | Letter, Letter(3), '{"type":"Letter","stamps":3}'),
        (Model, Model(orderId=4), '{"orderId":4}'),
        (list[Model], [Model(orderId=4)], '[{"orderId":4}]'),
        (Checked, Checked(5), '{"id":5}'),
        (Plain, {"id": 6}, '{"id":6}'),
        (dict[str, int], {"a": 7}, '{"a":7}'),
        (list[int], [8, 9], "[8,9]"),
        (int, 10, "10"),
        (float, 11, "11"),
        (bool, True, "true"),
        (Colour, Colour.RED, '"red"'),
        (str, "text as it is", "text as it is"),
        (bytes, b"text as well", "text as well"),
        (bytes, b"\xff", "/w=="),
        (Any, {"what": "ever"}, '{"what":"ever"}'),
        (Shipped | None, None, "null"),
    ],
)
async def test_a_value_is_written_as_a_handler_of_its_type_reads_it(
    kind: Any, value: Any, body: str
) -> None:
    app = App()
    publisher = app.publisher("q", kind)

    async def handle(value: Any) -> None: ...

    handle.__annotations__["value"] = dict if kind is Any else kind
    handler = app.subscriber("q")(handle)
    async with app.in_process() as account:
        receipt = await publisher.publish(value)
        assert receipt.message_id == account.sent("q")[0].message_id
        await account.settle()
        assert bodies(account, "q") == [body]
    assert [call.payload for call in handler.calls] == [value]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Shipped, {"id": 1}, "it takes Shipped, not dict"),
        (Shipped, Parcel(1), "it takes Shipped, not Parcel"),
        (Shipped, Shipped("x"), r"Expected `int`, got `str` - at `\$.id`"),  # type: ignore[arg-type]
        (Model, Model.model_construct(order_id="x"), "Expected `int`.*order_id"),
        (Plain, {"id": "x"}, "Expected `int`, got `str`"),
        (Plain, [], "Expected `object`, got `array`"),
        (dict[str, int], {"a": "b"}, "Expected `int`, got `str`"),
        (Parcel | Letter, Shipped(1), "type"),
        (int, True, "Expected `int`, got `bool`"),
        (int, "1", "it takes int, not str"),
        (str, b"1", "it takes str, not bytes"),
        (str, "", "the body is empty"),
        (bytes, "1", "it takes bytes, not str"),
        (Any, object(), "can't be written as JSON"),
        (Any, {1: object()}, "can't be written as JSON"),
    ],
)
async def test_what_is_not_of_the_type_is_not_sent(kind: Any, value: Any, says: str) -> None:
    app = App()
    publisher = app.publisher("q", kind)
    async with app.in_process() as account:
        with pytest.raises(UsageError, match=says):
            await publisher.publish(value)
        with pytest.raises(UsageError, match=says):
            await failing(publisher.publish_many([value]))
        assert not account.ledger.of(SendMessageBatch)


async def test_every_option_of_a_message() -> None:
    app = App()
    fifo, standard = app.publisher("q.fifo", str), app.publisher("q", str)
    async with app.in_process() as account:
        for _ in range(2):
            receipt = await fifo.publish(
                "x", group_id="g", deduplication_id="d", headers={"h": "1", "b": b"2"}
            )
        assert receipt.deduplication_id == "d"
        (sent,) = account.sent("q.fifo")
        assert (sent.group_id, sent.deduplication_id) == ("g", "d")
        assert sent.attributes["h"].string_value == "1"
        assert sent.attributes["b"].binary_value == b"2"
        await fifo.publish("y", tenant="acme")
        assert account.sent("q.fifo")[1].group_id == "acme/"
        await standard.publish("later", delay_seconds=timedelta(seconds=30))
        assert account.queue("q").delayed == 1
        for options, says in (
            ({"delay_seconds": 901}, "0 to 900"),
            ({"deduplication_id": "d"}, "takes no deduplication id"),
            ({"headers": {"h": 1}}, "headers are str or bytes"),
            ({"subject": "s"}, "subject"),
            ({"delay": 3}, "publish has no option delay"),
        ):
            with pytest.raises(UsageError, match=says):
                await standard.publish("x", **options)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="give group_id"):
            await fifo.publish("x")
        with pytest.raises(UsageError, match="takes no delay"):
            await fifo.publish("x", group_id="g", delay_seconds=3)


async def test_to_a_topic() -> None:
    app = App()
    news = app.publisher(Topic("news"), Shipped)
    async with app.in_process() as account:
        await account.execute(CreateQueue("readers"))
        await subscribe_queue_to_topic(account, "readers", "news")
        receipt = await news.publish(Shipped(1), subject="new", headers={"h": "1"})
        assert receipt.topic_arn == "arn:aws:sns:us-east-1:000000000000:news"
        (got,) = await receive(account, account.queue("readers").url)
        assert (got.body, got.message_attributes["h"].string_value) == ('{"id":1}', "1")


async def test_a_publisher_with_options_has_a_sink_of_its_own() -> None:
    app, check = App(), ClaimCheck(MemoryBlobStore())
    large = app.publisher("q", str, claim_check=check)
    plain = app.publisher("q", str)

    @app.subscriber("q", claim_check=check)
    async def handle(body: str) -> None: ...

    async with app.in_process() as account:
        await large.publish("x" * 100_000)
        await plain.publish("small")
        sizes = [len(sent.body) for sent in account.sent("q")]
        assert sizes[0] < 1_000
        assert sizes[1] == len("small")
        await account.settle()
    assert sorted(len(call.payload) for call in handle.calls) == [5, 100_000]
    with pytest.raises(UsageError, match="a sink has no option batch_lingers"):
        app.publisher("q", str, batch_lingers=1)  # type: ignore[call-overload]


# --- many ---------------------------------------------------------------------------------------


async def test_many_in_the_order_of_their_groups() -> None:
    app = App()
    shipped = app.publisher("q.fifo", Shipped)
    async with app.in_process() as account:
        receipts = await shipped.publish_many(
            (Shipped(number) for number in range(30)),
            group_id=lambda value: f"g{value.id % 3}",
            deduplication_id=lambda value: str(value.id),
        )
        assert all(isinstance(each, Receipt) for each in receipts)
        found: dict[str, list[str]] = {}
        for sent in account.sent("q.fifo"):
            found.setdefault(str(sent.group_id), []).append(sent.body)
        assert found == {
            f"g{group}": [f'{{"id":{number}}}' for number in range(group, 30, 3)]
            for group in range(3)
        }


async def test_of_many_one_that_fails_takes_those_behind_it_in_its_group() -> None:
    app = App()
    shipped = app.publisher("q.fifo", Shipped)
    async with app.in_process() as account:
        account.faults.fail_entries(
            SendMessageBatch,
            lambda entry: entry.message_body == '{"id":2}',
            code="InvalidMessageContents",
            times=None,
            sender_fault=True,
        )
        results = await shipped.publish_many(
            [Shipped(number) for number in range(6)], group_id=lambda value: f"g{value.id % 2}"
        )
        kinds = [type(each) for each in results]
        assert kinds == [Receipt, Receipt, RefusedError, Receipt, NotSentError, Receipt]
        together = await shipped.publish_many(
            [Shipped(number) for number in range(10, 20)], group_id="one", ordered=False
        )
        assert all(isinstance(each, Receipt) for each in together)
        assert len(account.ledger.of(SendMessageBatch)[-1].operation.entries) == 10


async def test_gathered_publishes_share_batches() -> None:
    app = App()
    shipped = app.publisher("q", Shipped)
    async with app.in_process() as account:
        await asyncio.gather(*(shipped.publish(Shipped(number)) for number in range(10)))
        assert len(account.ledger.of(SendMessageBatch)) == 1


async def test_more_than_a_sink_holds_waits_for_room() -> None:
    app = App()
    shipped, hasty = app.publisher("q", Shipped), app.publisher("q", Shipped, wait=False)

    @app.subscriber("in", concurrency=1_200, publish="q")
    async def handle(body: str) -> str:
        return body

    async with app.in_process() as account:
        receipts = await asyncio.gather(*(shipped.publish(Shipped(n)) for n in range(1_200)))
        assert len({receipt.message_id for receipt in receipts}) == 1_200
        results = await asyncio.gather(
            *(hasty.publish(Shipped(n)) for n in range(1_200)), return_exceptions=True
        )
        full = [each for each in results if isinstance(each, ThrottledError)]
        assert {each.code for each in full} == {"SinkQueueFull"}
        before = len(account.sent("q"))
        for number in range(1_200):
            await account.send("in", str(number))
        await account.settle()
        assert len(account.sent("q")) == before + 1_200
    assert len(handle.calls) == 1_200, "a full sink is no failed attempt"


# --- where it works -----------------------------------------------------------------------------


async def test_only_while_the_app_runs(account: Account) -> None:
    app, router = App("shop"), Router()
    shipped, alone = app.publisher("q", Shipped), router.publisher("q", Shipped)
    with pytest.raises(
        ClosedError, match=r"the publisher of 'q' .*: the app 'shop' is not running"
    ):
        await shipped.publish(Shipped(1))
    with pytest.raises(ClosedError, match="its router is in no app"):
        await alone.publish(Shipped(1))
    with pytest.raises(ClosedError, match="not running"):
        await shipped.publish_many([Shipped(1)])
    with pytest.raises(ClosedError, match="not running"):
        await asyncio.to_thread(shipped.publish_sync, Shipped(1))
    app.include_router(router)
    with pytest.raises(ClosedError, match="'shop' is not running"):
        await alone.publish(Shipped(1))
    await make_queue(account, "q")
    async with app.running(account):
        await shipped.publish(Shipped(1))
        await alone.publish(Shipped(2))
    with pytest.raises(ClosedError, match="not running"):
        await shipped.publish(Shipped(3))
    assert len(account.sent("q")) == 2


async def test_in_the_lifespan_before_and_after() -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        await notes.publish("up")
        yield
        await notes.publish("down")

    app = App(lifespan=lifespan)
    notes = app.publisher("notes", str)
    async with app.in_process() as account:
        assert bodies(account, "notes") == ["up"]
    assert bodies(account, "notes") == ["up", "down"]


async def test_a_router_in_two_apps_belongs_to_the_one_that_runs(account: Account) -> None:
    router = Router()
    notes = router.publisher("notes", str)
    one, two = App("one"), App("two")
    one.include_router(router, prefix="one-")
    two.include_router(router, prefix="two-")
    await make_queue(account, "two-notes")
    async with two.running(account):
        await notes.publish("x")
    assert bodies(account, "two-notes") == ["x"]


async def test_given_to_a_handler_by_its_type() -> None:
    router = Router("eu-")

    @router.subscriber("q")
    async def handle(
        order: Shipped,
        late: Annotated[Publisher[Shipped], To("late.fifo")],
        any_kind: Annotated[Publisher, To("any")],  # type: ignore[type-arg]
        notes: Annotated[Publisher[str], Depends(note)],
    ) -> None:
        await late.publish(order, group_id="g")
        await any_kind.publish(["as", "it", "is"])
        await notes.publish("begun")
        with pytest.raises(UsageError, match="it takes Shipped, not int"):
            await late.publish(1, group_id="g")  # type: ignore[arg-type]

    app = App()
    app.include_router(router)
    assert {(str(each.destination), each.payload_type) for each in app.publishers} == {
        ("eu-late.fifo", Shipped),
        ("eu-any", Any),
        ("eu-notes", str),
    }
    async with app.in_process() as account:
        await account.send("eu-q", Shipped(1))
        await account.settle()
        assert bodies(account, "eu-late.fifo") == ['{"id":1}']
        assert bodies(account, "eu-any") == ['["as","it","is"]']
        assert bodies(account, "eu-notes") == ["begun", "done 1"]


def test_marks_that_do_not_fit() -> None:
    app = App()
    with pytest.raises(UsageError, match=r"parameter 'late': To\(…\) marks a Publisher"):

        @app.subscriber("a")
        async def handle(body: str, late: Annotated[str, To("q")]) -> None: ...

    with pytest.raises(UsageError, match="parameter 'late'"):

        @app.subscriber("b")
        async def bare(body: str, late: Publisher[str]) -> None: ...

    with pytest.raises(UsageError, match="needs a name"):

        @app.subscriber("c")
        async def unnamed(body: str, late: Annotated[Publisher[str], To("")]) -> None: ...

    with pytest.raises(UsageError, match=r"the publisher of 'q': .*read as"):
        app.publisher("q", App)
    assert app.subscriptions == ()
    assert app.publishers == ()


async def test_in_plain_functions() -> None:
    app = App()
    shipped = app.publisher("out.fifo", Shipped)

    @app.subscriber("q", concurrency=3)
    def handle(order: Shipped, message: Message) -> None:
        receipt = shipped.publish_sync(order, group_id="g", headers={"h": "1"})
        assert receipt.sequence_number
        with pytest.raises(UsageError, match="it takes Shipped"):
            shipped.publish_sync(1, group_id="g")  # type: ignore[arg-type]

    async with app.in_process() as account:
        with pytest.raises(CrossThreadError, match="await publish"):
            shipped.publish_sync(Shipped(1), group_id="g")
        for number in range(5):
            await account.send("q", Shipped(number))
        await account.settle()
        assert len(account.sent("out.fifo")) == 5
        outside = await asyncio.to_thread(shipped.publish_sync, Shipped(9), group_id="g")
        assert outside.message_id == account.sent("out.fifo")[-1].message_id
    assert [call.result for call in handle.calls] == [None] * 5
    own_ids = {call.message.message_id for call in handle.calls}
    carried = [sent.attributes.get(CORRELATION_HEADER) for sent in account.sent("out.fifo")[:5]]
    assert {each.string_value for each in carried if each} == own_ids


async def test_on_the_machines_clock() -> None:
    account = Account()
    for name in ("q", "out", "answers"):
        await make_queue(account, name)
    app = App()
    out = app.publisher("out", Shipped)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.subscriber(Queue("q", wait_time_seconds=1), publish="answers", concurrency=20)
    def handle(order: Shipped) -> Reply:
        out.publish_sync(order)
        if order.id == 19:
            loop.call_soon_threadsafe(done.set)
        return Reply(order)

    async with app.running(account):
        for number in range(20):
            await account.execute(SendMessage(account.queue("q").url, f'{{"id":{number}}}'))
        await asyncio.wait_for(done.wait(), 20)
        await out.publish(Shipped(20))
    assert sorted(bodies(account, "out")) == sorted(f'{{"id":{n}}}' for n in range(21))
    assert sorted(bodies(account, "answers")) == sorted(f'{{"id":{n}}}' for n in range(20))


# --- what is looked up at start -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("nowhere", "the publisher's queue 'nowhere' does not exist; create it, or declare it as"),
        (Topic("nowhere"), "the publisher of 'nowhere': .*there is no topic 'nowhere'"),
    ],
)
async def test_what_does_not_exist_is_said_at_the_start(
    account: Account, to: Any, says: str
) -> None:
    app = App()
    app.publisher(to, Shipped)
    with pytest.raises(ConfigError, match=says):
        async with app.running(account):
            pass


async def test_where_replies_go_is_looked_up_at_the_start(account: Account) -> None:
    await make_queue(account, "q")
    app = App()

    @app.subscriber("q", publish="nowhere")
    async def handle(body: str) -> str:
        return body

    with pytest.raises(ConfigError, match=r"publish= of .*handle: the queue 'nowhere' does not"):
        async with app.running(account):
            pass
    app.publisher(Queue("nowhere", create_if_missing=True))
    async with app.running(account):
        pass
    assert {queue.name.name for queue in account.queues} == {"q", "nowhere"}


async def test_a_queue_is_created_where_that_is_declared(account: Account) -> None:
    app = App()
    shipped = app.publisher(Queue("new.fifo", create_if_missing=True), Shipped)
    assert app.publishers == (shipped,)
    async with app.running(account):
        await shipped.publish(Shipped(1), group_id="g")
    assert bodies(account, "new.fifo") == ['{"id":1}']


# --- the correlation id -------------------------------------------------------------------------


async def test_a_correlation_id_is_carried_on() -> None:
    app = App()
    second, third = app.publisher("second", str), app.publisher("third", str)

    @app.subscriber("first", publish="answers")
    async def one(body: str, message: Message) -> str:
        await second.publish(body)
        await asyncio.gather(app.sink("raw").send("raw"), asyncio.create_task(third.publish("t")))
        return message.correlation_id

    @app.subscriber("second")
    def two(body: str, message: Message) -> None:
        third.publish_sync(message.correlation_id)

    app.publisher("raw")
    async with app.in_process() as account:
        await account.send("first", "given", headers={CORRELATION_HEADER: "abc"})
        await account.settle()
        for name in ("second", "third", "answers", "raw"):
            for sent in account.sent(name):
                assert sent.attributes[CORRELATION_HEADER].string_value == "abc", name
        assert bodies(account, "third") == ["t", "abc"]
        assert bodies(account, "answers") == ["abc"]
        await account.send("first", "none")
        await account.settle()
        own = one.calls[-1].message.message_id
        assert bodies(account, "third")[2:] == ["t", own]
        await second.publish("outside")
        assert account.sent("second")[-1].attributes is None


async def test_a_correlation_id_of_ones_own_is_kept() -> None:
    app = App()
    out = app.publisher("out", bytes)

    @app.subscriber("q")
    async def handle(body: str, message: Message) -> None:
        await out.publish(b"x", headers={CORRELATION_HEADER: "mine"})
        await out.publish(b"x", headers={f"h{number}": "v" for number in range(9)})
        await out.publish(b"\xff", headers={f"h{number}": "v" for number in range(9)})
        await out.publish(b"x", headers={f"h{number}": "v" for number in range(10)})
        with pytest.raises(UsageError, match="11 message attributes"):
            await out.publish(b"x", headers={f"h{number}": "v" for number in range(11)})

    async with app.in_process() as account:
        await account.send("q", "x", headers={CORRELATION_HEADER: b"bytes are none"})
        await account.settle()
        message_id = handle.calls[0].message.message_id
        assert handle.calls[0].message.correlation_id == message_id
        assert handle.calls[0].result is None
        found = [
            sent.attributes[CORRELATION_HEADER].string_value
            if CORRELATION_HEADER in sent.attributes
            else None
            for sent in account.sent("out")
        ]
        assert found == ["mine", message_id, None, None]


async def test_a_correlation_id_beside_attributes_that_a_sink_adds() -> None:
    app = App()
    out = app.publisher("out", str, add_attributes=lambda message: {"size": len(message.body)})

    @app.subscriber("q")
    async def handle(body: str) -> None:
        await out.publish(body)

    async with app.in_process() as account:
        await account.send("q", "four", headers={CORRELATION_HEADER: "c"})
        await account.settle()
        (sent,) = account.sent("out")
        found = {name: each.string_value for name, each in sent.attributes.items()}
        assert found == {"size": "4", CORRELATION_HEADER: "c"}


async def test_a_correlation_id_that_is_shared_by_a_batch() -> None:
    app = App()
    out = app.publisher("out", str)

    @app.subscriber("q", batch=10)
    async def handle(bodies: list[str]) -> None:
        await out.publish(str(len(bodies)))

    async with app.in_process() as account:
        for correlation_id in ("a", "a"):
            await account.send("q", "x", headers={CORRELATION_HEADER: correlation_id})
        await account.settle()
        for correlation_id in ("a", "b"):
            await account.send("q", "x", headers={CORRELATION_HEADER: correlation_id})
        await account.settle()
        first, second = account.sent("out")
        assert first.attributes[CORRELATION_HEADER].string_value == "a"
        assert second.attributes is None


# --- middleware ---------------------------------------------------------------------------------


class Noting:
    """Publish middleware that notes what passes."""

    def __init__(self, name: str, seen: list[tuple[str, Any]]) -> None:
        self.name = name
        self.seen = seen

    async def publish(self, outgoing: Outgoing, call_next: Any) -> Any:
        receipt = await call_next(outgoing)
        self.seen.append((self.name, outgoing.destination))
        return receipt


async def test_middleware_is_around_every_publisher_and_reply() -> None:
    seen: list[tuple[str, Any]] = []
    app = App(middleware=[Noting("app", seen)])
    router = Router("r-", middleware=[Noting("router", seen)])
    of_app, of_router = app.publisher("one", str), router.publisher("two", str)

    @router.subscriber("q", publish="three", middleware=[Noting("own", seen)])
    async def handle(body: str) -> str:
        await of_app.publish("1")
        await of_router.publish("2")
        return "3"

    app.include_router(router)
    async with app.in_process() as account:
        await account.send("r-q", "x")
        await account.settle()
        assert seen == [
            ("app", "one"),
            ("router", "r-two"),
            ("app", "r-two"),
            ("own", "r-three"),
            ("router", "r-three"),
            ("app", "r-three"),
        ]
        seen.clear()
        await of_app.publish_many(["a", "b"])
        await asyncio.to_thread(of_app.publish_sync, "c")
        assert seen == [("app", "one")] * 3


async def test_middleware_changes_what_is_sent() -> None:
    class Changing:
        async def publish(self, outgoing: Outgoing, call_next: Any) -> Any:
            if outgoing.body == "skip":
                return Receipt("none", "")
            return await call_next(
                replace(
                    outgoing,
                    destination="other.fifo",
                    body=outgoing.body + b"!" if isinstance(outgoing.body, bytes) else "?",
                    headers={**outgoing.headers, "signed": "yes"},
                    group_id="g",
                )
            )

    app = App(middleware=[Changing()])
    out = app.publisher("q", bytes)
    app.publisher("other.fifo")

    @app.subscriber("in", publish="q")
    async def handle(body: str) -> str:
        return body

    async with app.in_process() as account:
        await out.publish(b"x", headers={"h": "1"})
        await account.send("in", "skip")
        await account.settle()
        assert account.sent("q") == []
        (sent,) = account.sent("other.fifo")
        assert (sent.body, sent.group_id) == ("x!", "g")
        assert sorted(sent.attributes) == ["h", "signed"]


async def test_middleware_that_gives_no_receipt_or_fails() -> None:
    class Wrong:
        async def publish(self, outgoing: Outgoing, call_next: Any) -> Any:
            if outgoing.body == "raise":
                raise ZeroDivisionError("mine")
            if outgoing.body == "twice":
                await call_next(outgoing)
                return await call_next(outgoing)
            await call_next(outgoing)
            return None if outgoing.body == "none" else "no receipt"

    app = App(middleware=[Wrong()])
    out = app.publisher("q", str)
    async with app.in_process():
        assert isinstance(await out.publish("none"), Receipt)
        with pytest.raises(UsageError, match="returned 'no receipt'"):
            await out.publish("other")
        with pytest.raises(UsageError, match="call_next twice"):
            await out.publish("twice")
        with pytest.raises(ZeroDivisionError):
            await out.publish("raise")
        with pytest.raises(ZeroDivisionError):
            await out.publish_many(["none", "raise"])


# --- time ---------------------------------------------------------------------------------------


async def test_a_test_that_publishes_moves_the_clock_and_a_handler_does_not(
    account: Account, clock: VirtualClock
) -> None:
    await make_queue(account, "q")
    app = App()
    out = app.publisher("q", str)
    async with app.running(account):
        account.faults.throttle(SendMessageBatch, times=2)
        began = clock.monotonic()
        await out.publish("x")
        assert clock.monotonic() > began
        sending = asyncio.create_task(out.publish("cancelled"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert bodies(account, "q") == ["x"]
