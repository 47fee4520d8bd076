"""Headers, the app and its state, batches and overrides: what handlers are given of them.

Without `from __future__ import annotations`, so that handlers inside of tests can be annotated with
what stands there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, Protocol
from uuid import UUID

import pytest

from pumphouse import Account, App, Depends, Header, Message, Settle, State, VirtualClock
from pumphouse.errors import ConfigError, UsageError
from pumphouse.protocol.operations import MessageAttributeValue, SendMessage
from pumphouse.subscriber.outcomes import Reject
from support.injecting import Log, dead_app, reasons, run, scoped
from support.service import make_queue

# --- headers --------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


async def test_headers_are_read_as_their_annotation_says() -> None:
    app, subscriber = dead_app()
    seen = []

    @subscriber
    async def handle(
        x_tenant: Annotated[str, Header()],
        count: Annotated[int, Header("x-count")],
        ratio: Annotated[float, Header()],
        flag: Annotated[bool, Header()],
        colour: Annotated[Colour, Header()],
        level: Annotated[Level, Header()],
        mode: Annotated[Literal["a", "b"], Header()],
        id: Annotated[UUID, Header()],  # noqa: A002
        at: Annotated[datetime, Header()],
        raw: Annotated[bytes, Header()],
        also: Annotated[str | bytes, Header("raw")],
        tenant: str = Header("x-tenant"),
    ) -> None:
        seen.append((x_tenant, count, ratio, flag, colour, level, mode, id, at, raw, also, tenant))

    headers = {
        "x-tenant": "t1",
        "x-count": "5",
        "ratio": "0.5",
        "flag": "true",
        "colour": "red",
        "level": "3",
        "mode": "b",
        "id": str(UUID(int=1)),
        "at": "2026-01-02T03:04:05Z",
        "raw": b"\xff\x00",
    }
    account = await run(app, "a", headers=headers)
    assert reasons(account) == []
    assert seen == [
        (
            *("t1", 5, 0.5, True, Colour.RED, Level.HIGH, "b", UUID(int=1)),
            *(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), b"\xff\x00", b"\xff\x00", "t1"),
        )
    ]


async def test_headers_that_may_be_missing() -> None:
    app, subscriber = dead_app()
    seen = []

    @subscriber
    async def handle(
        body: str,
        none: Annotated[str | None, Header()],
        own: Annotated[int, Header()] = 3,
        style: str = Header("x-style", default="s"),
        optional: int | None = Header(default=4),
    ) -> None:
        seen.append((body, none, own, style, optional))

    await run(app, "a")
    await run(app, "b", headers={"none": "n", "own": "1", "x-style": "z", "optional": "2"})
    assert seen == [("a", None, 3, "s", 4), ("b", "n", 1, "z", 2)]


async def test_headers_of_data_type_number_and_binary_text() -> None:
    app, subscriber = dead_app()
    seen = []

    @subscriber
    async def handle(
        number: Annotated[int, Header()],
        text: Annotated[str, Header()],
        data: Annotated[bytes, Header()],
    ) -> None:
        seen.append((number, text, data))

    async with app.in_process() as account:
        url = await make_queue(account, "q")
        await account.execute(
            SendMessage(
                url,
                "a",
                message_attributes={
                    "number": MessageAttributeValue("Number.int", "12"),
                    "text": MessageAttributeValue("Binary", binary_value="é".encode()),
                    "data": MessageAttributeValue("String", "é"),
                },
            )
        )
        await account.settle()
    assert seen == [(12, "é", "é".encode())]


async def test_headers_that_are_missing_or_unreadable_make_a_message_undecodable() -> None:
    app, subscriber = dead_app(undecodable="reject")
    handled = []

    @subscriber
    async def handle(body: str, x_count: Annotated[int, Header()]) -> None:
        handled.append(body)

    async with app.in_process() as account:
        await account.send("q", "missing")
        await account.send("q", "unreadable", headers={"x-count": "secret"})
        await account.send("q", "binary", headers={"x-count": b"\xff"})
        await account.send("q", "fine", headers={"x-count": "1"})
        await account.settle()
    assert handled == ["fine"]
    assert sorted(reasons(account)) == [
        "header 'x-count' can't be read as int",
        "header 'x-count' is Binary and no text; take it as bytes",
        "header 'x-count' is missing",
    ]


async def test_a_dependencys_header_is_read_before_anything_is_opened() -> None:
    app, subscriber = dead_app(undecodable="drop")
    log = Log()

    def tenant(x_tenant: Annotated[str, Header()]) -> str:
        return x_tenant

    @subscriber
    async def handle(
        body: str,
        session: Annotated[str, Depends(scoped(log))],
        tenant: Annotated[str, Depends(tenant)],
    ) -> None: ...

    await run(app, "a")
    assert log == []


# --- the app and its state ------------------------------------------------------------------------


class Database:
    def __init__(self, name: str = "main") -> None:
        self.name = name


class Repository(Protocol):
    name: str


Region = NewType("Region", str)


async def test_the_app_and_its_state_are_given_by_type() -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        app.state.put(Database())
        app.state.put(Database("replica"), name="replica")
        app.state.put(Database("repo"), Repository)
        app.state.put("eu-west-1", Region)
        yield

    class Mine(App): ...

    app = Mine("service", lifespan=lifespan)
    app.state.put(7)
    seen: list[Any] = []

    def nested(replica: Annotated[Database, State("replica")], app: App) -> tuple[str, App]:
        return replica.name, app

    @app.subscriber("q")
    async def handle(
        body: str,
        database: Annotated[Database, State()],
        repository: Annotated[Repository, State()],
        region: Annotated[Region, State()],
        number: Annotated[int, State()],
        nested: Annotated[tuple[str, App], Depends(nested)],
        mine: Mine,
        base: App,
    ) -> None:
        seen[:] = [database.name, repository.name, region, number, nested, mine, base]

    await run(app, "a")
    assert seen == ["main", "repo", "eu-west-1", 7, ("replica", app), app, app]
    assert app.state.get(int) == 7, "what was put before the run stays"
    with pytest.raises(ConfigError, match="no Database"):
        app.state.get(Database)


async def test_state_that_was_never_put_fails_the_start_after_the_lifespans() -> None:
    log = Log()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        log.append("entered")
        try:
            yield
        finally:
            log.append("left")

    app = App("service", lifespan=lifespan)

    def repository(database: Annotated[Database, State()]) -> str:
        return database.name

    @app.subscriber("q")
    async def handle(body: str, name: Annotated[str, Depends(repository)]) -> None: ...

    account = Account(clock=VirtualClock())
    with pytest.raises(ConfigError) as caught:
        async with app.running(account):
            pytest.fail("it started")
    assert list(account.ledger) == [], "it is told before any request"
    text = str(caught.value)
    assert "handler" in text
    assert "handle" in text
    assert "dependency" in text
    assert "repository" in text
    assert "parameter 'database'" in text
    assert "app.state has no Database" in text
    assert log == ["entered", "left"]


async def test_state_is_found_by_a_base_class_where_it_is_the_only_one() -> None:
    class Replica(Database): ...

    class Primary(Database): ...

    app = App()
    replica = app.state.put(Replica())
    assert app.state.get(Database) is replica
    app.state.put(Primary())
    with pytest.raises(ConfigError, match=r"several values that are a Database \(.*Replica.*"):
        app.state.get(Database)
    meant = app.state.put(Primary(), Database)
    assert app.state.get(Database) is meant
    with pytest.raises(UsageError, match="can't be put into the state as"):
        app.state.put(1, Database)
    with pytest.raises(UsageError, match="can't be put"):
        app.state.put(1, [])
    assert repr(app.state) == "<AppState: Database, Primary, Replica>"
    assert Database in app.state
    assert str not in app.state


async def test_state_that_is_put_while_the_app_runs_is_given_from_then_on() -> None:
    app = App()
    app.state.put(Database("first"))
    seen = []

    @app.subscriber("q")
    async def handle(body: str, database: Annotated[Database, State()]) -> None:
        seen.append(database.name)

    async with app.in_process() as account:
        await account.send("q", "a")
        await account.settle()
        app.state.put(Database("second"))
        await account.send("q", "b")
        await account.settle()
    assert seen == ["first", "second"]


# --- batches --------------------------------------------------------------------------------------


async def test_batches_resolve_once_and_headers_are_lists() -> None:
    app, subscriber = dead_app(batch=10, undecodable="reject")
    log = Log()

    def total(bodies: list[int], messages: list[Message]) -> int:
        log.append("total")
        return sum(bodies) + 100 * len(messages)

    async def session() -> AsyncIterator[str]:
        log.append("opened")
        yield "session"
        log.append("closed")

    @subscriber
    async def handle(
        numbers: list[int],
        tenants: Annotated[list[str], Header("x-tenant")],
        hints: Annotated[list[str | None], Header("hint")],
        sizes: Annotated[list[int], Header("size", default=1)],
        total: Annotated[int, Depends(total)],
        session: Annotated[str, Depends(session)],
    ) -> None:
        log.append((numbers, tenants, hints, sizes, total))

    async with app.in_process() as account:
        for number in range(3):
            await account.send("q", number, headers={"x-tenant": f"t{number}"})
        await account.send("q", 3, headers={"x-tenant": "t3", "hint": "h", "size": "9"})
        await account.send("q", 4)
        await account.settle()
    batch = [each for each in log if isinstance(each, tuple)]
    assert sorted(number for each in batch for number in each[0]) == [0, 1, 2, 3]
    for numbers, tenants, hints, sizes, total in batch:
        assert tenants == [f"t{number}" for number in numbers]
        assert hints == ["h" if number == 3 else None for number in numbers]
        assert sizes == [9 if number == 3 else 1 for number in numbers]
        assert total == sum(numbers) + 100 * len(numbers)
    assert log.count("total") == log.count("opened") == log.count("closed") == len(batch)
    assert reasons(account) == ["header 'x-tenant' is missing"]


async def test_a_dependency_that_raises_fails_the_whole_batch() -> None:
    app, subscriber = dead_app(batch=10)

    def failing() -> None:
        raise Settle(Reject("closed"))

    @subscriber
    async def handle(bodies: list[str], _: Annotated[None, Depends(failing)]) -> None: ...

    assert reasons(await run(app, "a", "b")) == ["closed", "closed"]


# --- overrides ------------------------------------------------------------------------------------


async def test_overrides_take_the_place_of_dependencies_wherever_they_are() -> None:
    app, subscriber = dead_app()
    log = Log()

    def connect() -> str:
        return "real"

    def repository(connection: Annotated[str, Depends(connect)]) -> str:
        return f"repository of {connection}"

    async def instead(message: Message) -> AsyncIterator[str]:
        yield f"other for {message.text}"
        log.append("left")

    @subscriber
    async def handle(
        body: str,
        repository: Annotated[str, Depends(repository)],
        connection: Annotated[str, Depends(connect)],
    ) -> None:
        log.append((repository, connection))

    app.dependency_overrides[connect] = instead
    await run(app, "a")
    assert log == [("repository of other for a", "other for a"), "left"]
    log.clear()
    async with app.in_process() as account:
        await account.send("q", "b")
        await account.settle()
        app.dependency_overrides.clear()
        await account.send("q", "c")
        await account.settle()
        app.dependency_overrides |= {repository: lambda: "none"}
        await account.send("q", "d")
        await account.settle()
        del app.dependency_overrides[repository]
        await account.send("q", "e")
        await account.settle()
    assert log == [
        ("repository of other for b", "other for b"),
        "left",
        ("repository of real", "real"),
        ("none", "real"),
        ("repository of real", "real"),
    ]


async def test_overrides_that_can_not_be_called() -> None:
    app, subscriber = dead_app()

    def connect() -> str:
        return "real"

    def bad(what: int) -> str:
        return "bad"

    seen = []

    @subscriber
    async def handle(body: str, connection: Annotated[str, Depends(connect)]) -> None:
        seen.append(connection)

    with pytest.raises(UsageError, match="dependency_overrides has functions, not 1"):
        app.dependency_overrides[connect] = 1  # type: ignore[assignment]
    app.dependency_overrides = {connect: bad}
    with pytest.raises(UsageError, match="bad: parameter 'what'"):
        async with app.in_process():
            pytest.fail("it started")
    app.dependency_overrides = {}
    async with app.in_process() as account:
        with pytest.raises(UsageError, match="bad: parameter 'what'"):
            app.dependency_overrides[connect] = bad
        assert connect not in app.dependency_overrides
        await account.send("q", "a")
        await account.settle()
    assert seen == ["real"]
    assert dict(app.dependency_overrides) == {}
