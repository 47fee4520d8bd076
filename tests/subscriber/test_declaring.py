"""What can be declared, and what is refused before any I/O."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.clock import VirtualClock
from pumphouse.errors import ConfigError, UsageError
from pumphouse.model import Message
from pumphouse.protocol.operations import GetQueueAttributes
from pumphouse.subscriber.outcomes import Retry
from pumphouse.subscriber.queue import Queue
from pumphouse.subscriber.setup import receive_limit
from support.service import make_queue, make_redrive


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "  "}, "needs a name"),
        ({"name": "x" * 81}, "80 characters"),
        ({"wait_time_seconds": 21}, "wait_time_seconds is 21"),
        ({"wait_time_seconds": -1}, "wait_time_seconds is -1"),
        ({"wait_time_seconds": True}, "wait_time_seconds is True"),
        ({"visibility_timeout": 0}, "visibility_timeout is 0"),
        ({"visibility_timeout": 43_201}, "visibility_timeout is 43201"),
        ({"visibility_timeout": 1.5}, "whole number"),
        ({"prefetch": 11}, "prefetch is 11"),
        ({"pollers": 0}, "pollers is 0"),
        ({"on_missing": "explode"}, "on_missing"),
        ({"max_lease_seconds": 43_200}, "max_lease_seconds"),
        ({"in_place_seconds": -1}, "in_place_seconds"),
        ({"name": "https://sqs.us-east-1.amazonaws.com/1/q", "create_if_missing": True}, "by name"),
        ({"attributes": {"A": 1}}, "text to text"),
    ],
)
def test_a_queue_is_checked_when_it_is_declared(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Queue(**{"name": "q", **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 11}, "needs a batch_window"),
        ({"batch_window": 2}, "give batch="),
        ({"batch": 20, "batch_window": 301}, "0 to 300"),
        ({"max_attempts": 3}, "without dead_letter is half"),
        ({"dead_letter": "dead"}, "without max_attempts is half"),
        ({"max_attempts": 0, "dead_letter": "dead"}, "max_attempts is 0"),
        ({"max_attempts": 3, "dead_letter": "q"}, "its own dead-letter"),
        ({"max_attempts": 3, "dead_letter": "dead.fifo"}, "standard queue"),
        ({"timeout": 0}, "timeout"),
        ({"on_error": {ValueError: 3}}, "no outcome"),
        ({"on_error": {3: Retry}}, "exception classes"),
        ({"undecodable": "delete"}, "undecodable is one of"),
        ({"redrive": "maybe"}, "redrive is one of"),
        ({"on_lease_lost": "panic"}, "on_lease_lost is one of"),
        ({"partition_key": "name"}, "partition_key is a function"),
        ({"publish": ""}, "needs a name"),
        ({"priority": "high"}, "priority is 'high'"),
    ],
)
def test_a_subscriber_is_checked_when_it_is_declared(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):

        @App().subscriber("q", **options)
        async def handle(body: list[str]) -> None: ...


def test_kinds_of_queue_and_options_that_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="FIFO queue is ordered"):

        @App().subscriber("q.fifo", partition_key=str)
        async def first(body: str) -> None: ...

    app = App()

    @app.subscriber("q")
    async def second(body: str) -> None: ...

    with pytest.raises(UsageError, match="has a subscriber"):
        app.subscriber(Queue("q"))


def test_handlers_that_can_not_be_called() -> None:
    app = App()
    with pytest.raises(UsageError, match="neither the payload nor a Message"):

        @app.subscriber("a")
        async def two(first: str, second: str) -> None: ...

    with pytest.raises(UsageError, match="message twice"):

        @app.subscriber("b")
        async def twice(first: Message, second: Message) -> None: ...

    with pytest.raises(UsageError, match="payload is a list"):

        @app.subscriber("c", batch=10)
        async def single(body: str) -> None: ...

    with pytest.raises(UsageError, match="can't be read as"):

        @app.subscriber("d")
        async def unknown(body: VirtualClock) -> None: ...


def test_outcomes_are_checked() -> None:
    assert Retry(timedelta(minutes=2)).after_seconds == 120
    with pytest.raises(UsageError):
        Retry(-1)
    with pytest.raises(UsageError):
        Retry(43_201)


async def test_the_redrive_policy_is_written_with_room(
    account: Account, clock: VirtualClock
) -> None:
    url = await make_queue(account, "q")
    await make_queue(account, "dead")
    app = App()

    @app.subscriber("q", max_attempts=3, dead_letter="dead")
    async def handle(body: str) -> None: ...

    async with app.running(account):
        pass
    answer = await account.execute(GetQueueAttributes(url, ["RedrivePolicy"]))
    policy = json.loads(answer.attributes["RedrivePolicy"])
    assert int(policy["maxReceiveCount"]) == receive_limit(3)
    assert receive_limit(3) == 16
    assert receive_limit(900) == 1_000


@pytest.mark.parametrize(
    ("source", "attempts", "says"),
    [
        (None, 3, "no redrive policy"),
        (("dead", 2), 3, "after 2 receives, before its 3 attempts"),
        (("other", 20), 3, "names arn:aws:sqs:us-east-1:000000000000:other"),
    ],
)
async def test_the_redrive_policy_is_checked(
    account: Account, source: tuple[str, int] | None, attempts: int, says: str
) -> None:
    if source is None:
        await make_queue(account, "q")
    else:
        await make_redrive(account, "q", *source)
    await make_queue(account, "dead")
    app = App()

    @app.subscriber("q", max_attempts=attempts, dead_letter="dead", redrive="check")
    async def handle(body: str) -> None: ...

    with pytest.raises(ConfigError, match=says):
        async with app.running(account):
            pass


async def test_missing_queues_are_named(account: Account) -> None:
    app = App()

    @app.subscriber("q", max_attempts=3, dead_letter="dead")
    async def handle(body: str) -> None: ...

    with pytest.raises(ConfigError, match="the queue 'q' does not exist"):
        async with app.running(account):
            pass
    await make_queue(account, "q")
    with pytest.raises(ConfigError, match="the dead-letter queue 'dead' does not exist"):
        async with app.running(account):
            pass


async def test_queues_are_created_where_that_is_declared(account: Account) -> None:
    app = App()

    @app.subscriber(
        Queue("q.fifo", create_if_missing=True, visibility_timeout=77),
        max_attempts=3,
        dead_letter=Queue("dead.fifo", create_if_missing=True),
    )
    async def handle(body: str) -> None: ...

    async with app.running(account) as running:
        assert running.consumers[0].ready.lease_seconds == 77
    assert {queue.name.name for queue in account.queues} == {"q.fifo", "dead.fifo"}


async def test_a_queue_that_holds_nothing_is_refused(account: Account) -> None:
    await make_queue(account, "q", VisibilityTimeout="0")
    app = App()

    @app.subscriber("q")
    async def handle(body: str) -> None: ...

    with pytest.raises(ConfigError, match="visibility timeout of 0"):
        async with app.running(account):
            pass


def test_an_app_is_configuration_only() -> None:
    app = App("shop", drain_seconds=3)

    @app.subscriber("q")
    async def handle(body: str) -> str:
        return body

    assert app.health() == {}
    assert repr(app) == "<App shop: 1 subscribers>"
    assert handle.__name__ == "handle"
    with pytest.raises(UsageError):
        App(drain_seconds=-1)


def test_a_decorator_without_its_queue_says_how_it_is_written() -> None:
    async def handle(body: str) -> None: ...

    with pytest.raises(UsageError, match=r'not function; .* @app.subscriber\("queue"\)'):
        App().subscriber(handle)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"not int$"):
        App().subscriber(3)  # type: ignore[arg-type]


async def _coroutine(app: App) -> None: ...


async def _async_generator(app: App) -> AsyncIterator[None]:
    yield


def _generator(app: App) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("lifespan", "says"),
    [
        (_coroutine, "_coroutine makes no async context manager: it is a coroutine function"),
        (_async_generator, "it is an async generator; .* @asynccontextmanager"),
        (_generator, "it is a generator that is not async"),
        (
            asynccontextmanager(_async_generator)(App()),
            "it is one itself, and no function of the app",
        ),
        (3, "lifespan 3 .* no function, but int"),
    ],
)
def test_a_lifespan_that_is_no_context_manager_is_refused(lifespan: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        App(lifespan=lifespan)
    with pytest.raises(UsageError, match=says):
        App().lifespan(lifespan)


@pytest.mark.parametrize(
    ("lifespan", "gave"),
    [
        (lambda app: _coroutine(app), "coroutine"),
        (lambda app: None, "NoneType"),
        (contextmanager(_generator), "_GeneratorContextManager"),
    ],
)
async def test_a_lifespan_that_gives_no_context_manager_is_told_at_the_start(
    account: Account, lifespan: Any, gave: str
) -> None:
    with pytest.raises(UsageError, match=f"it gave {gave}; .* @asynccontextmanager"):
        async with App(lifespan=lifespan).running(account):
            pass
