"""Routers, publishers and replies as type checkers see them: never run, only checked.

A line that must not type-check says so with a `type: ignore`, and mypy complains of the ones that
are no longer needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, assert_type

from pumphouse import (
    App,
    Message,
    Outgoing,
    Publisher,
    Queue,
    Receipt,
    Reply,
    Router,
    To,
    Topic,
)
from pumphouse.errors import PumphouseError
from pumphouse.subscriber.subscription import Subscription


@dataclass
class Order:
    id: int


@dataclass
class Shipped:
    id: int


app = App("orders")
router = Router(prefix="orders-", concurrency=5, max_attempts=3, dead_letter="spent")
app.include_router(router, prefix="eu-")
app.include_router(app)  # type: ignore[arg-type]
Router(concurency=5)  # type: ignore[call-arg]
Router(concurrency="5")  # type: ignore[arg-type]

shipped = app.publisher("shipped.fifo", Shipped)
assert_type(shipped, Publisher[Shipped])
assert_type(router.publisher(Topic("news"), dict[str, int]), Publisher[dict[str, int]])
assert_type(app.publisher(Queue("any", create_if_missing=True)), Publisher[Any])
either: Publisher[Order | Shipped] = app.publisher("either", Order | Shipped)
app.publisher("large", Shipped, batch_linger=0.1)
app.publisher("large", Shipped, batch_lingers=0.1)  # type: ignore[call-overload]
app.publisher(3, Shipped)  # type: ignore[call-overload]


@router.subscriber("placed")
@router.subscriber(Queue("placed.fifo"), publish="answers", timeout=3)
async def handle(order: Order, late: Annotated[Publisher[Shipped], To("late")]) -> list[Reply]:
    assert_type(
        await shipped.publish(Shipped(order.id), group_id="g", headers={"h": b"1"}), Receipt
    )
    await late.publish(Shipped(1), delay_seconds=3)
    await late.publish(order)  # type: ignore[arg-type]
    await late.publish(Shipped(1), group="g")  # type: ignore[call-arg]
    await either.publish(order)
    await either.publish("text")  # type: ignore[arg-type]
    return [
        Reply(Shipped(1), to="other", group_id="g", headers={"a": "b"}, delay_seconds=1),
        Reply(Shipped(1), to=Topic("news")),
        Reply(Shipped(1), to=shipped),
    ]


@shipped
@app.subscriber("plain")
@app.publisher("also", Shipped)
def plain(order: Order, message: Message) -> Shipped:
    assert_type(message.correlation_id, str)
    assert_type(shipped.publish_sync(Shipped(1), tenant="acme"), Receipt)
    shipped.publish_sync(1)  # type: ignore[arg-type]
    return Shipped(order.id)


router.subscriber("q", middleware=[3])  # type: ignore[list-item]
Reply("x", to=3)  # type: ignore[arg-type]


async def many(message: Message) -> None:
    results = await shipped.publish_many([Shipped(1)], group_id=lambda value: str(value.id))
    assert_type(results, list[Receipt | PumphouseError])
    await shipped.publish_many([1])  # type: ignore[list-item]
    assert_type(await handle(Order(1), shipped), list[Reply])
    assert_type(plain(Order(1), message), Shipped)
    plain(1, message)  # type: ignore[arg-type]
    assert_type(app.subscriptions, tuple[Subscription, ...])
    assert_type(app.publishers, tuple[Publisher[Any], ...])


class Signing:
    async def publish(
        self, outgoing: Outgoing, call_next: Callable[[Outgoing], Awaitable[Receipt]]
    ) -> Receipt:
        assert_type(outgoing.destination, str | Topic)
        outgoing.body = b""  # type: ignore[misc]
        return await call_next(replace(outgoing, headers={**outgoing.headers, "signed": "yes"}))


App(middleware=[Signing()])
