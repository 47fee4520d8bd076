"""`Logging`, `MessageContext` and `JsonFormatter`: what a service's log says of its messages."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pumphouse import App, Drop, Queue, Reject, Reply, Retry, UsageError
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.middleware import JsonFormatter, Logging, MessageContext, TimeLimit, json_logging
from support.service import deleted, make_queue, send

FIELDS = ("queue", "message_id", "group_id", "attempt", "receive_count", "correlation_id")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pumphouse")
    caplog.set_level(logging.INFO, "shop")
    return caplog


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def about_messages(log: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in log.records if record.name == "pumphouse.messages"]


async def test_a_message_that_is_done_is_one_record_with_fields(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q.fifo")
    async def handle(text: str) -> None:
        await app.clock.sleep(1.5)

    async with app.in_process() as account:
        receipt = await account.send("q.fifo", "secret", group_id="g", headers={"x": "hidden"})
        await account.settle()
    (record,) = about_messages(log)
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        f"q.fifo: message {receipt.message_id}, attempt 1: ack (1.500 s)"
    )
    assert {name: getattr(record, name) for name in FIELDS} == {
        "queue": "q.fifo",
        "message_id": receipt.message_id,
        "group_id": "g",
        "attempt": 1,
        "receive_count": 1,
        "correlation_id": receipt.message_id,
    }
    assert (record.outcome, record.reason, record.duration_seconds) == ("ack", "", 1.5)
    shown = repr(record.__dict__)
    assert "secret" not in shown
    assert "hidden" not in shown


@pytest.mark.parametrize(
    ("outcome", "name", "level"),
    [
        (Drop("old"), "drop", logging.WARNING),
        (Reject("bad"), "reject", logging.WARNING),
        (Retry(reason="later"), "retry", logging.WARNING),
        (Retry(after=1, reason="busy", counts=False), "retry", logging.INFO),
    ],
)
async def test_what_a_handler_says_is_logged_with_its_reason(
    log: pytest.LogCaptureFixture, outcome: Any, name: str, level: int
) -> None:
    app = App(middleware=[Logging()])
    outcomes = [outcome]

    @app.subscriber("q", max_attempts=2, dead_letter=Queue("dead", create_if_missing=True), retry=1)
    async def handle(text: str) -> Any:
        return outcomes.pop() if outcomes else None

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    record = about_messages(log)[0]
    assert (record.outcome, record.reason, record.levelno) == (name, outcome.reason, level)


async def test_an_error_is_logged_once_with_what_on_error_makes_of_it(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", on_error={LookupError: Drop})
    async def handle(text: str) -> None:
        raise LookupError("no such order")

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    warnings = [record for record in log.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1  # the runtime says nothing of its own
    record: Any = warnings[0]
    assert record.name == "pumphouse.messages"
    assert (record.outcome, record.reason) == ("drop", "LookupError: no such order")
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError


async def test_an_error_from_outside_of_logging_is_logged_by_the_runtime(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[TimeLimit(1), Logging()])

    @app.subscriber("q", on_error={TimeoutError: Drop})
    async def handle(text: str) -> None:
        await app.clock.sleep(5)

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    inside, outside = [(r.name, r.getMessage()) for r in log.records]
    assert inside[0] == "pumphouse.messages"
    assert "stopped" in inside[1]
    assert outside[0] == "pumphouse.subscriber"
    assert "TimeoutError: it took longer than 1 s" in outside[1]


async def test_the_same_exception_object_of_two_messages_is_logged_for_each(
    log: pytest.LogCaptureFixture,
) -> None:
    error = LookupError("shared")

    def broken(text: str) -> None:
        raise error

    app = App()
    app.subscriber("a", on_error={LookupError: Drop}, middleware=[Logging()])(broken)
    app.subscriber("b", on_error={LookupError: Drop})(broken)
    async with app.in_process() as account:
        await account.send("a", "x")
        await account.settle()
        await account.send("b", "x")
        await account.settle()
    assert [r.name for r in log.records] == ["pumphouse.messages", "pumphouse.subscriber"]


async def test_an_undecodable_body_is_logged_once_and_not_shown(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", undecodable="drop")
    async def handle(order: dict[str, int]) -> None: ...

    async with app.in_process() as account:
        await account.send("q", "swordfish")
        await account.settle()
    (record,) = [r for r in log.records if r.levelno >= logging.WARNING]
    assert record.name == "pumphouse.messages"
    assert record.outcome == "drop"  # type: ignore[attr-defined]
    assert "UndecodableError" in record.getMessage()
    assert not record.exc_info
    assert "swordfish" not in record.getMessage()


async def test_a_stop_and_a_lost_lease_have_their_names(log: pytest.LogCaptureFixture) -> None:
    app = App(middleware=[Logging()], drain_seconds=0)

    @app.subscriber(Queue("q", visibility_timeout=10, create_if_missing=True))
    async def handle(text: str) -> None:
        await asyncio.get_running_loop().create_future()

    async with app.in_process() as account:
        await account.send("q", "stays")
        await account.clock.advance(1)
        account.faults.refuse("ChangeMessageVisibilityBatch", "ReceiptHandleIsInvalid", times=1)
        await account.clock.advance(6)  # the extension is refused: the lease is lost
        await account.clock.advance(6)  # and the message has come again
    lost, stopped = about_messages(log)
    assert (lost.outcome, lost.levelno) == ("lost", logging.WARNING)
    assert (stopped.outcome, stopped.levelno) == ("stopped", logging.INFO)


async def test_an_error_in_place_of_the_cancellation_of_a_stop(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()], drain_seconds=0)

    @app.subscriber("q")
    async def handle(text: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            raise ConnectionError("left in the middle")

    async with app.in_process() as account:
        await account.send("q", "stays")
        await account.clock.advance(1)
    (record,) = about_messages(log)
    assert (record.outcome, record.levelno) == ("stopped", logging.WARNING)
    assert record.exc_info
    assert "left in the middle" in record.reason
    assert [each for each in log.records if each.exc_info] == [record], "and nobody else logs it"


async def test_a_batch_is_a_record_for_each_message(log: pytest.LogCaptureFixture) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", batch=10, batch_window=1)
    async def handle(texts: list[str]) -> list[Any]:
        logging.getLogger("shop").info("a batch")
        await app.clock.sleep(2)
        return [Drop("b") if text == "b" else None for text in texts]

    log.handler.addFilter(MessageContext())
    async with app.in_process() as account:
        for text in "abc":
            await account.send("q", text)
        await account.settle()
    records = about_messages(log)
    assert [record.outcome for record in records] == ["ack", "drop", "ack"]
    assert {record.duration_seconds for record in records} == {2.0}
    assert {record.batch_size for record in records} == {3}
    assert len({record.message_id for record in records}) == 3
    (inside,) = [record for record in log.records if record.name == "shop"]
    assert inside.queue == "q"  # type: ignore[attr-defined]
    assert inside.batch_size == 3  # type: ignore[attr-defined]


async def test_an_error_of_a_batch_is_logged_once_for_each_message(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", batch=10, batch_window=1, on_error={LookupError: Drop})
    async def handle(texts: list[str]) -> None:
        raise LookupError("all of it")

    async with app.in_process() as account:
        await account.send("q", "a")
        await account.send("q", "b")
        await account.settle()
    warnings = [record for record in log.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["pumphouse.messages"] * 2


async def test_what_fails_alone_in_a_batch_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", batch=10, batch_window=1, undecodable="drop", publish="replies")
    async def handle(payloads: list[dict[str, int]]) -> list[Any]:
        return [Reply("x") for _ in payloads]

    async with app.in_process() as account:
        account.faults.refuse("SendMessageBatch", "AccessDenied", "not you", times=1)
        await account.send("q", "no json")
        await account.send("q", {"a": 1})
        await account.settle()
    warnings = [record for record in log.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["pumphouse.messages"] * len(warnings)
    assert sorted(record.outcome for record in about_messages(log)) == ["ack", "drop", "retry"]


async def test_on_error_is_asked_once_for_each_error(log: pytest.LogCaptureFixture) -> None:
    asked: list[BaseException] = []

    def on_error(error: BaseException) -> Any:
        asked.append(error)
        return Drop if len(asked) == 1 else Reject

    app = App(middleware=[Logging()])

    @app.subscriber("q", on_error=on_error)
    async def handle(text: str) -> None:
        raise LookupError(text)

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    assert len(asked) == 1
    assert [record.outcome for record in about_messages(log)] == ["drop"]
    assert deleted(account) == ["x"]


async def test_bodies_are_shown_where_asked_for_up_to_a_length(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging(bodies=True, body_bytes=5)])

    @app.subscriber("q")
    async def handle(body: bytes) -> None: ...

    async with app.in_process() as account:
        await account.send("q", "0123456789")
        await account.send("q", b"\xff\x00ab")
        await account.settle()
    shown = {(record.body, record.body_size) for record in about_messages(log)}
    assert shown == {("01234", 10), ("\ufffd\x00ab", 4)}


async def test_a_level_that_is_off_costs_no_record(log: pytest.LogCaptureFixture) -> None:
    app = App(middleware=[Logging(logger="shop.audit", level=logging.DEBUG)])

    @app.subscriber("q")
    async def handle(text: str) -> None: ...

    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
        assert not [r for r in log.records if r.name == "shop.audit"]
        log.set_level(logging.DEBUG, "shop.audit")
        await account.send("q", "x")
        await account.settle()
    assert len([r for r in log.records if r.name == "shop.audit"]) == 1


async def test_a_log_that_fails_fails_no_message(log: pytest.LogCaptureFixture) -> None:
    audit = logging.getLogger("shop.audit")

    def broken(record: logging.LogRecord) -> bool:
        raise OSError("the disk is full")

    audit.addFilter(broken)
    app = App(middleware=[Logging(logger=audit)])

    @app.subscriber("q")
    async def handle(text: str) -> None: ...

    try:
        async with app.in_process() as account:
            await account.send("q", "x")
            await account.settle()
    finally:
        audit.removeFilter(broken)
    assert len(handle.calls) == 1
    assert "could not be logged" in log.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"body_bytes": 0}, "body_bytes"),
        ({"level": "INFO"}, "level is a level of logging"),
        ({"failure_level": None}, "failure_level is a level"),
    ],
)
def test_options_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Logging(**options)


async def test_what_is_published_is_logged_where_that_is_wanted(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging(publish_level=logging.INFO)])

    @app.subscriber("q", publish="replies.fifo", retry=1)
    async def handle(text: str) -> Reply:
        return Reply("secret", group_id="g")

    log.handler.addFilter(MessageContext())
    async with app.in_process() as account:
        account.faults.refuse("SendMessageBatch", "AccessDenied", "not you", times=1)
        await account.send("q", "x")
        await account.settle()
    failed, retried, sent, done = about_messages(log)
    assert (failed.outcome, failed.destination) == ("failed", "replies.fifo")
    assert "AccessDenied" in failed.reason
    assert (sent.outcome, sent.sent_group_id, sent.queue) == ("sent", "g", "q")
    assert sent.sent_message_id == account.sent("replies.fifo")[0].message_id
    assert sent.message_id == retried.message_id == done.message_id  # of what is being handled
    assert "secret" not in log.text
    assert "secret" not in repr([record.__dict__ for record in log.records])


# --- the records of handlers --------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_what_a_handler_logs_carries_its_message(
    log: pytest.LogCaptureFixture, plain: bool
) -> None:
    shop = logging.getLogger("shop")
    app = App(middleware=[Logging()])

    async def handle(text: str) -> None:
        shop.info("packed %s", text)
        await app.clock.sleep(1)
        shop.info("sent %s", text)

    def handle_in_thread(text: str) -> None:
        shop.info("packed %s", text)
        shop.info("sent %s", text)

    app.subscriber("q", concurrency=5)(handle_in_thread if plain else handle)
    log.handler.addFilter(MessageContext())
    async with app.in_process() as account:
        ids = {text: (await account.send("q", text)).message_id for text in "abc"}
        await account.settle()
        shop.info("outside")
    records: list[Any] = [record for record in log.records if record.name == "shop"]
    inside = [record for record in records if record.getMessage() != "outside"]
    assert len(inside) == 6
    for record in inside:
        assert record.message_id == ids[record.getMessage()[-1]]
        assert record.correlation_id == record.message_id
        assert record.queue == "q"
    assert not hasattr(records[-1], "queue")


async def test_a_field_that_a_record_has_is_left_alone(log: pytest.LogCaptureFixture) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q")
    async def handle(text: str) -> None:
        logging.getLogger("shop").info("mine", extra={"queue": "another"})

    log.handler.addFilter(MessageContext())
    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    (record,) = [record for record in log.records if record.name == "shop"]
    assert record.queue == "another"  # type: ignore[attr-defined]


# --- JSON lines ---------------------------------------------------------------------------------


async def test_one_line_of_set_up_gives_json_lines(
    root: logging.Logger, clock: VirtualClock
) -> None:
    out = io.StringIO()
    json_logging(stream=out, service="orders")
    app = App(middleware=[Logging()])

    @app.subscriber("q.fifo", retry=1)
    async def handle(text: str) -> None:
        logging.getLogger("shop").info("packing", extra={"lines": 3})
        if len(handle.calls) == 0:
            raise LookupError("no such thing")

    async with app.in_process(clock) as account:
        await account.send("q.fifo", "x", group_id="g")
        await account.settle()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {line["service"] for line in lines} == {"orders"}
    packing, failed, _, done = lines
    assert packing["logger"] == "shop"
    assert packing["message"] == "packing"
    assert packing["lines"] == 3
    assert packing["group_id"] == "g"
    assert failed["outcome"] == "retry"
    assert failed["error"] == "LookupError: no such thing"
    assert failed["traceback"].splitlines()[-1] == "LookupError: no such thing"
    assert failed["level"] == "WARNING"
    assert done["outcome"] == "ack"
    assert done["attempt"] == 2
    assert done["message_id"] == packing["message_id"] == failed["message_id"]
    assert "traceback" not in done
    assert done["time"].endswith("Z")


def formatted(**extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "hello %s", ("you",), None)
    record.created = 1_700_000_000.25
    record.__dict__.update(extra)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_is_json_whatever_is_in_it() -> None:
    class Strange:
        def __repr__(self) -> str:
            return "<strange>"

    loop: list[Any] = []
    loop.append(loop)
    line = formatted(
        lines="two\nlines",
        strange=Strange(),
        nested={"a": [Strange()]},
        surrogate="\ud800",
        loop=loop,
        keyed={Strange(): 1},
        nan=float("nan"),
        none=None,
        level="mine",
    )
    assert line["time"] == "2023-11-14T22:13:20.250Z"
    assert line["message"] == "hello you"
    assert line["level"] == "INFO"
    assert line["level_"] == "mine"
    assert line["lines"] == "two\nlines"
    assert line["strange"] == "<strange>"
    assert line["nested"] == {"a": ["<strange>"]}
    assert line["surrogate"] == "\\ud800"
    assert line["loop"] == "[[...]]"
    assert line["keyed"] == {"<strange>": 1}
    assert line["nan"] is None
    assert "none" not in line


def test_a_stack_that_was_asked_for_is_in_the_line() -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "hello", None, None)
    record.stack_info = "Stack (most recent call last): ..."
    assert json.loads(JsonFormatter(app="x").format(record))["stack"].startswith("Stack")


async def test_the_fields_are_gone_after_the_message(account: Account, clock: VirtualClock) -> None:
    """A worker that goes on to the next message takes nothing along."""
    seen: list[dict[str, object]] = []
    context = MessageContext()

    def fields() -> dict[str, object]:
        record = logging.LogRecord("shop", logging.INFO, __file__, 1, "x", None, None)
        context.filter(record)
        return {name: value for name, value in record.__dict__.items() if name in FIELDS}

    app = App()

    @app.subscriber("with", concurrency=1, middleware=[Logging()])
    async def first(text: str) -> None:
        seen.append(fields())

    @app.subscriber("without", concurrency=1)
    async def second(text: str) -> None:
        seen.append(fields())

    urls = [await make_queue(account, name) for name in ("with", "without")]
    async with app.running(account):
        for url in urls:
            await send(account, url, "x")
            await clock.advance(1)
    assert seen[0]["queue"] == "with"
    assert seen[1] == {}


async def test_a_message_that_is_carried_to_the_dead_letters_says_so(
    log: pytest.LogCaptureFixture,
) -> None:
    app = App(middleware=[Logging()])

    @app.subscriber("q", max_attempts=2, dead_letter="spent", retry=1)
    async def handle(text: str) -> None:
        raise ValueError("no")

    async with app.in_process() as account:
        receipt = await account.send("q", "one")
        await account.settle()
    (record,) = [each for each in log.records if "carried" in each.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"q: message {receipt.message_id}, attempt 2: carried to spent: ValueError: no"
    )
    assert (record.dead_letter, record.attempt) == ("spent", 2)  # type: ignore[attr-defined]
