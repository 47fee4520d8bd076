"""What handlers are given, as type checkers see it: never run, only checked by mypy and pyright."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, assert_type

from pumphouse import App, Depends, Header, Message, Reject, Retry, Settle, State


@dataclass
class Order:
    id: int


class Database:
    def find(self, order: int) -> str | None: ...


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[None]:
    assert_type(app.state.put(Database()), Database)
    assert_type(app.state.get(Database), Database)
    app.state.put(Database(), name="replica")
    app.state.put(Database(), name=1)  # type: ignore[arg-type]
    yield


app = App("orders", lifespan=lifespan)
App("orders", lifespan=Database())  # type: ignore[arg-type]


async def session(database: Annotated[Database, State()]) -> AsyncIterator[str]:
    yield "session"


def tenant(order: Order, x_tenant: Annotated[str, Header()]) -> str:
    if order.id < 0:
        raise Settle(Reject("a negative id"))
    raise Settle(Retry)


@app.subscriber("orders")
async def handle(
    order: Order,
    message: Message,
    app: App,
    session: Annotated[str, Depends(session)],
    database: Annotated[Database, State("replica")],
    count: Annotated[int | None, Header("x-count")],
    tenant: str = Depends(tenant),
    mode: str = Header("x-mode", default="fast"),
) -> None:
    assert_type(session, str)
    assert_type(database, Database)
    assert_type(database.find(order.id), str | None)
    assert_type(count, int | None)
    assert_type(tenant, str)
    count + 1  # type: ignore[operator]
    database.lose()  # type: ignore[attr-defined]


@app.subscriber("batches", batch=10)
def batches(
    orders: list[Order],
    messages: list[Message],
    tenants: Annotated[list[str], Header("x-tenant")],
) -> Iterator[str] | None:
    assert_type(tenants, list[str])
    return None


async def direct(message: Message) -> None:
    await handle(Order(1), message, app, "session", Database(), None)
    await handle(Order(1), message, app, "session", Database(), "one")  # type: ignore[arg-type]
    await handle(Order(1), message)  # type: ignore[call-arg]
    batches([Order(1)], [message], ["a"])
    batches([Order(1)], message, ["a"])  # type: ignore[arg-type]


def wrong() -> None:
    Depends(1)  # type: ignore[arg-type]
    Depends(tenant, cache=False)  # type: ignore[call-arg]
    Header(1)  # type: ignore[arg-type]
    State(1)  # type: ignore[arg-type]
    Settle(ValueError)  # type: ignore[arg-type]
    Settle("reject")  # type: ignore[arg-type]


def overrides() -> None:
    app.dependency_overrides[tenant] = lambda: "other"
    app.dependency_overrides = {}
    app.dependency_overrides = {tenant: lambda: "other"}
    app.dependency_overrides[tenant] = "other"  # type: ignore[assignment]
    app.dependency_overrides = 1  # type: ignore[assignment]
    app.dependency_overrides.clear()
