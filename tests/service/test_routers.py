"""Routers: handlers and publishers that are declared apart from the app."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from pumphouse import App, Message, Publisher, Queue, Reply, Router, Topic, UsageError
from pumphouse.protocol.operations import CreateQueue

URL = "https://sqs.us-east-1.amazonaws.com/000000000000/elsewhere"


async def nothing(body: str) -> None: ...


def names(app: App | Router) -> list[str]:
    return [each.queue.name for each in app.subscriptions]


async def test_a_router_is_part_of_the_app_that_includes_it() -> None:
    app, router = App(), Router(prefix="shop-")

    @router.subscriber("orders", publish="answers", max_attempts=2, dead_letter="dead")
    async def handle(order: dict[str, int], message: Message) -> dict[str, int]:
        if order["id"] < 0:
            raise ValueError("negative")
        return order

    app.include_router(router)
    assert names(app) == ["shop-orders"]
    assert app.handlers == (handle,)
    async with app.in_process() as account:
        await account.send("shop-orders", {"id": 1})
        await account.send("shop-orders", {"id": -1})
        await account.settle()
        assert [sent.body for sent in account.sent("shop-answers")] == ['{"id":1}']
        assert [sent.body for sent in account.sent("shop-dead")] == ['{"id":-1}']
    assert [call.message.queue for call in handle.calls] == ["shop-orders"] * 3


def test_prefixes_add_up_from_the_outside_inwards() -> None:
    app, outer, inner = App(), Router(prefix="b-"), Router("d-")
    inner.subscriber("q")(nothing)
    outer.subscriber("q")(nothing)
    outer.include_router(inner, prefix="c-")
    app.include_router(outer, prefix="a-")
    assert names(app) == ["a-b-q", "a-b-c-d-q"]
    assert names(outer) == ["b-q", "b-c-d-q"]
    assert names(inner) == ["d-q"]


def test_every_name_gets_the_prefix_and_no_url_or_arn() -> None:
    app, router = App(), Router("eu-")
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    router.subscriber(
        Queue("q.fifo", visibility_timeout=7),
        publish=Topic("answers"),
        max_attempts=1,
        dead_letter="dead.fifo",
    )(nothing)
    router.subscriber(URL, publish=URL, max_attempts=1, dead_letter=arn)(nothing)
    router.publisher("out")
    router.publisher(Queue("made", create_if_missing=True))
    router.publisher(Topic("news"))
    router.publisher("arn:aws:sns:us-east-1:000000000000:outside")
    app.include_router(router)
    first, second = app.subscriptions
    assert (first.queue.name, first.queue.visibility_timeout) == ("eu-q.fifo", 7)
    assert first.dead_letter is not None
    assert (first.publish, first.dead_letter.name) == (Topic("eu-answers"), "eu-dead.fifo")
    assert second.dead_letter is not None
    assert (second.queue.name, second.publish, second.dead_letter.name) == (URL, URL, arn)
    assert [each.destination for each in app.publishers] == [
        "eu-out",
        "eu-made",
        Topic("eu-news"),
        Topic("arn:aws:sns:us-east-1:000000000000:outside"),
    ]
    made = app.publishers[1].queue
    assert made is not None
    assert made.create_if_missing


def test_defaults_are_for_those_that_say_nothing_else() -> None:
    app = App()
    outer = Router("o-", concurrency=2, retry=5, max_attempts=3, dead_letter="dead")
    inner = Router("i-", concurrency=4, timeout=9)
    outer.subscriber("plain")(nothing)
    outer.subscriber("own", concurrency=7, max_attempts=1, dead_letter="mine")(nothing)
    outer.subscriber("none", max_attempts=None, dead_letter=None)(nothing)
    inner.subscriber("deep")(nothing)
    outer.include_router(inner)
    app.include_router(outer)
    app.subscriber("apps")(nothing)
    plain, own, none, deep, apps = app.subscriptions
    assert (plain.concurrency, plain.retry, plain.max_attempts) == (2, 5, 3)
    assert (own.concurrency, own.retry, own.max_attempts) == (7, 5, 1)
    assert (none.max_attempts, none.dead_letter) == (None, None)
    assert (deep.concurrency, deep.retry, deep.timeout_seconds) == (4, 5, 9)
    assert (apps.concurrency, apps.max_attempts) == (10, None)
    # a name is that of the router that says it
    assert [each.dead_letter and each.dead_letter.name for each in (plain, own, deep)] == [
        "o-dead",
        "o-mine",
        "o-dead",
    ]


def test_order_is_that_of_declaring_and_including() -> None:
    app, router = App(), Router()
    app.subscriber("first")(nothing)
    app.include_router(router)
    app.subscriber("third")(nothing)
    router.subscriber("second")(nothing)  # also what is declared after it was included
    assert names(app) == ["first", "second", "third"]


async def test_one_router_twice_under_different_prefixes() -> None:
    app, router = App(), Router()
    audit = router.publisher("audit", str)

    @router.subscriber("orders", publish="answers")
    async def handle(order: str) -> str:
        await audit.publish(f"saw {order}")
        return order

    app.include_router(router, prefix="eu-")
    app.include_router(router, prefix="us-")
    async with app.in_process() as account:
        await account.send("eu-orders", "e")
        await account.send("us-orders", "u")
        await account.settle()
        found = {
            name: [sent.body for sent in account.sent(name)]
            for name in ("eu-answers", "us-answers", "eu-audit", "us-audit")
        }
        with pytest.raises(UsageError, match=r"2 publishers \(eu-audit, us-audit\)"):
            await audit.publish("from nowhere")
        eu, us = app.publishers
        await us.publish("by hand")
        assert [sent.body for sent in account.sent("us-audit")] == ["saw u", "by hand"]
    assert found == {
        "eu-answers": ["e"],
        "us-answers": ["u"],
        "eu-audit": ["saw e"],
        "us-audit": ["saw u"],
    }
    assert sorted(call.message.queue for call in handle.calls) == ["eu-orders", "us-orders"]
    assert eu.destination == "eu-audit"


async def test_replies_to_a_name_are_the_routers_too() -> None:
    app, router = App(), Router("eu-")
    other = app.publisher("plain", str)
    router.publisher("named")

    @router.subscriber("q")
    async def handle(body: str) -> list[Reply]:
        return [Reply("r", to="named"), Reply("p", to=other)]

    app.include_router(router)
    async with app.in_process() as account:
        await account.send("eu-q", "x")
        await account.settle()
        assert [sent.body for sent in account.sent("eu-named")] == ["r"]
        assert [sent.body for sent in account.sent("plain")] == ["p"]


# --- what can't be ------------------------------------------------------------------------------


def test_two_subscribers_of_a_queue_are_found_when_a_router_is_included() -> None:
    app, router = App(), Router()
    app.subscriber("x-q")(nothing)
    router.subscriber("q")(nothing)
    with pytest.raises(UsageError, match="queue 'x-q' has two subscribers: nothing and nothing"):
        app.include_router(router, prefix="x-")
    assert names(app) == ["x-q"], "and nothing of it stays"
    app.include_router(router, prefix="y-")
    with pytest.raises(UsageError, match="'y-q' has two subscribers"):
        app.include_router(router, prefix="y-")
    assert names(app) == ["x-q", "y-q"]


def test_two_subscribers_of_a_queue_are_found_when_the_second_is_declared_later() -> None:
    app, middle, router = App(), Router("m-"), Router()
    app.subscriber("m-q")(nothing)
    middle.include_router(router)
    app.include_router(middle)
    with pytest.raises(UsageError, match="'m-q' has two subscribers"):
        router.subscriber("q")(nothing)
    assert names(app) == ["m-q"]
    router.subscriber("other")(nothing)
    with pytest.raises(UsageError, match="'m-other' has two subscribers"):
        app.subscriber("m-other")(nothing)
    assert names(app) == ["m-q", "m-other"]


def test_a_url_is_one_queue_under_every_prefix() -> None:
    app, router = App(), Router()
    router.subscriber(URL)(nothing)
    app.include_router(router, prefix="a-")
    with pytest.raises(UsageError, match="two subscribers"):
        app.include_router(router, prefix="b-")


def test_what_is_no_router_and_no_prefix() -> None:
    app, router = App(), Router()
    with pytest.raises(UsageError, match="takes a Router"):
        app.include_router(App())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="included in itself"):
        router.include_router(router)
    inner = Router()
    router.include_router(inner)
    with pytest.raises(UsageError, match="included in itself"):
        inner.include_router(router)
    for prefix in ("orders.", "a.fifo", "a b", "x" * 80, 3, None):
        with pytest.raises(UsageError, match="the prefix is"):
            Router(prefix=prefix)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="the prefix is"):
            app.include_router(inner, prefix=prefix)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurency": 3}, "a router has no option concurency; its options are batch"),
        ({"middleware": [3]}, "3 is no middleware"),
        ({"middleware": 3}, r"middleware is a list, not 3: middleware=\[…\]"),
    ],
)
def test_defaults_that_can_not_be(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Router("x-", **options)


def test_options_that_there_are_not() -> None:
    with pytest.raises(UsageError, match="a subscriber has no option concurency"):
        App().subscriber("q", concurency=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="a publisher decorates its handler"):
        App().subscriber("q", publish=App().publisher("x"))(nothing)  # type: ignore[arg-type]


async def test_nothing_more_is_declared_while_the_app_runs() -> None:
    app, router = App("shop"), Router()
    app.subscriber("q")(nothing)
    app.include_router(router)
    async with app.in_process():
        for declare in (
            lambda: app.subscriber("late")(nothing),
            lambda: router.subscriber("late")(nothing),
            lambda: router.include_router(Router()),
        ):
            with pytest.raises(UsageError, match="shop: 1 subscribers> is running"):
                declare()
    assert names(app) == ["q"]


def test_a_name_that_gets_too_long_is_said_when_it_is_included() -> None:
    app, router = App(), Router()
    router.subscriber("q" * 70)(nothing)
    with pytest.raises(UsageError, match="longer than the 80 characters"):
        app.include_router(router, prefix="a-long-prefix-")
    assert names(app) == []


def test_defaults_are_checked_with_the_subscriber_and_again_where_it_is_included() -> None:
    half = Router(max_attempts=3)
    with pytest.raises(UsageError, match="max_attempts without dead_letter"):
        half.subscriber("q")(nothing)
    half.subscriber("q", dead_letter="dead")(nothing)
    outer, inner = Router(partition_key=str), Router()
    inner.subscriber("q.fifo")(nothing)
    with pytest.raises(UsageError, match="FIFO queue is ordered"):
        outer.include_router(inner)


def test_an_app_that_is_gone_is_not_kept_by_its_routers() -> None:
    router = Router()
    router.subscriber("q")(nothing)
    app = App()
    app.include_router(router)
    gone = weakref.ref(app)
    del app
    gc.collect()
    assert gone() is None
    App().include_router(router)


# --- one handler on several queues --------------------------------------------------------------


async def test_one_handler_on_several_queues() -> None:
    app = App()

    @app.subscriber("a")
    @app.subscriber("b", concurrency=1)
    @app.subscriber("c.fifo", timeout=3)
    async def handle(body: str, message: Message) -> str:
        return f"{body} of {message.queue}"

    assert handle.queues == ("a", "b", "c.fifo")
    assert repr(handle).endswith("handle of a, b, c.fifo>")
    assert sorted(names(app)) == ["a", "b", "c.fifo"]
    assert app.handlers == (handle,)
    async with app.in_process() as account:
        await account.send("a", "1")
        await account.send("b", "2")
        await account.send("c.fifo", "3", group_id="g")
        await account.settle()
    assert sorted((call.message.queue, call.result) for call in handle.calls) == [
        ("a", "1 of a"),
        ("b", "2 of b"),
        ("c.fifo", "3 of c.fifo"),
    ]
    message = handle.calls[0].message
    assert await handle("still", message) == f"still of {message.queue}"


def test_a_queue_is_not_given_twice_to_one_handler() -> None:
    app = App()
    with pytest.raises(UsageError, match="has a subscriber already"):

        @app.subscriber("a")
        @app.subscriber("a")
        async def handle(body: str) -> None: ...


async def test_middleware_goes_from_the_app_to_the_subscriber() -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(message: Message, call_next: Any) -> Any:
            seen.append(name)
            return await call_next(message)

        return middleware

    app = App(middleware=[noting("app")])
    outer, inner = Router(middleware=[noting("outer")]), Router(middleware=[noting("inner")])

    @inner.subscriber("q", middleware=[noting("own")])
    async def handle(body: str) -> None:
        seen.append("handler")

    outer.include_router(inner)
    app.include_router(outer)
    async with app.in_process() as account:
        await account.send("q", "x")
        await account.settle()
    assert seen == ["app", "outer", "inner", "own", "handler"]


async def test_in_process_makes_the_queues_of_routers(account: Any) -> None:
    app, router = App(), Router("r-")
    late: Publisher[str] = router.publisher("late.fifo", str)
    app.include_router(router)
    async with app.in_process() as inside:
        await late.publish("x", group_id="g")
        assert [sent.body for sent in inside.sent("r-late.fifo")] == ["x"]
    await account.execute(CreateQueue("r-late.fifo", {"FifoQueue": "true"}))
    async with app.running(account):
        await late.publish("y", group_id="g")
    assert [sent.body for sent in account.sent("r-late.fifo")] == ["y"]
