"""Dependencies of plain handlers: in the handler's thread, or on the event loop.

Without `from __future__ import annotations`, so that handlers inside of tests can be annotated with
what stands there.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

from pumphouse import App, Depends
from support.injecting import Log, dead_app, reasons, run
from support.service import deleted


async def test_plain_dependencies_run_in_the_thread_of_a_plain_handler() -> None:
    app, subscriber = dead_app()
    log = Log()
    loop_thread = threading.get_ident()

    def where() -> str:
        return "loop" if threading.get_ident() == loop_thread else "thread"

    async def on_loop() -> AsyncIterator[int]:
        log.append(("async opened", where()))
        yield 1
        log.append(("async left", where()))

    def database() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(":memory:")  # may only be used in the thread that made it
        log.append(("opened", where()))
        yield connection
        connection.close()
        log.append(("closed", where()))

    @subscriber
    def handle(
        body: str,
        connection: Annotated[sqlite3.Connection, Depends(database)],
        one: Annotated[int, Depends(on_loop)],
    ) -> None:
        log.append((connection.execute("select ?", (body,)).fetchone()[0], where()))

    await run(app, "a")
    assert log == [
        ("async opened", "loop"),
        ("opened", "thread"),
        ("a", "thread"),
        ("closed", "thread"),
        ("async left", "loop"),
    ]


async def test_plain_dependencies_that_the_loop_needs_of_a_plain_handler() -> None:
    app, subscriber = dead_app()
    log = Log()

    def settings() -> Iterator[str]:
        log.append("settings")
        yield "settings"
        log.append("settings left")

    async def pool(settings: Annotated[str, Depends(settings)]) -> AsyncIterator[str]:
        log.append("pool")
        yield f"pool of {settings}"
        log.append("pool left")

    def session(pool: Annotated[str, Depends(pool)]) -> Iterator[str]:
        yield f"session of {pool}"
        log.append("session left")

    @subscriber
    def handle(body: str, session: Annotated[str, Depends(session)]) -> None:
        log.append(session)
        if body == "bad":
            raise LookupError("bad")

    account = await run(app, "good")
    whole = [
        *("settings", "pool", "session of pool of settings"),
        *("session left", "pool left", "settings left"),
    ]
    assert log == whole
    log.clear()
    account = await run(app, "bad")
    assert reasons(account) == ["LookupError: bad"]
    assert "session left" not in log, "what stands behind a yield is not run after an exception"


async def test_clean_up_in_the_thread_after_an_exception_and_after_an_error_of_its_own() -> None:
    app, subscriber = dead_app()
    log = Log()

    def outer() -> Iterator[int]:
        try:
            yield 1
        except BaseException as error:
            log.append(f"outer saw {type(error).__name__}")
            raise

    def inner(outer: Annotated[int, Depends(outer)]) -> Iterator[int]:
        try:
            yield 2
        except LookupError:
            log.append("inner swallowed")
        else:
            raise OSError("clean-up")

    @subscriber
    def handle(body: str, inner: Annotated[int, Depends(inner)]) -> None:
        if body == "bad":
            raise LookupError("bad")

    account = await run(app, "bad")
    assert reasons(account) == ["LookupError: bad"]
    assert log == ["inner swallowed", "outer saw LookupError"] * 2
    log.clear()
    account = await run(app, "good")
    assert reasons(account) == ["OSError: clean-up"]
    assert log == ["outer saw OSError"] * 2


async def test_a_plain_function_around_an_async_handler_is_left_after_it() -> None:
    app, subscriber = dead_app()
    log = Log()

    def session() -> Iterator[int]:
        yield 1
        log.append("left")

    async def inner() -> None:
        await asyncio.sleep(0)
        log.append("handled")

    @subscriber
    def handle(body: str, one: Annotated[int, Depends(session)]) -> Any:
        return inner()

    await run(app, "a")
    assert log == ["handled", "left"]


async def test_a_stop_while_a_dependency_is_in_its_thread_does_not_start_the_handler() -> None:
    app = App("service")
    log = Log()
    inside, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        inside.set()
        assert go_on.wait(30)
        try:
            yield 1
        finally:
            log.append("left")

    async def on_loop(one: Annotated[int, Depends(slow)]) -> int:
        log.append("not reached")
        return one

    @app.subscriber("q")
    def handle(body: str, one: Annotated[int, Depends(on_loop)]) -> None:
        log.append("not reached either")

    async with app.in_process() as account:
        await account.send("q", "a")
        while not inside.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        assert app.run_now is not None
        app.run_now.request_stop()
        app.run_now.request_stop()  # the second time it cancels at once
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        await app.run_now.drain()
    assert log == ["left"]


async def test_a_stop_while_a_plain_function_runs_does_not_start_what_it_returns() -> None:
    app = App("service")
    log = Log()
    inside, go_on = threading.Event(), threading.Event()

    async def inner() -> None:
        log.append("not reached")

    def session() -> Iterator[int]:
        try:
            yield 1
        finally:
            log.append("left")

    @app.subscriber("q")
    def handle(body: str, one: Annotated[int, Depends(session)]) -> Any:
        inside.set()
        assert go_on.wait(30)
        return inner()

    async with app.in_process() as account:
        await account.send("q", "a")
        while not inside.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        assert app.run_now is not None
        app.run_now.request_stop()
        app.run_now.request_stop()  # the second time it cancels at once
        asyncio.get_running_loop().call_later(0.1, go_on.set)
        await app.run_now.drain()
    assert log == ["left"]
    assert account.sent("q")[0].body == "a"
    assert deleted(account) == []


@pytest.mark.parametrize("error", [StopIteration, GeneratorExit])
async def test_what_ends_a_coroutine_is_an_error_when_a_plain_handler_raises_it(
    error: type[BaseException],
) -> None:
    """Awaited, it would end what stands around the handler without a word."""
    app, subscriber = dead_app(max_attempts=2)

    @subscriber
    def handle(body: str) -> None:
        raise error

    account = await run(app, "a")
    assert len(handle.calls) == 2
    assert reasons(account) == [f"RuntimeError: the handler raised {error.__name__}"]
