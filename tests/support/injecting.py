"""A service of one queue for tests of what handlers are given: "q", with a dead-letter queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from pumphouse import App


def dead_app(**options: Any) -> tuple[App, Callable[..., Any]]:
    """An app, and a decorator for the handler of its queue "q", with a dead-letter queue "dead"."""
    app = App("service")
    options = {"max_attempts": 2, "dead_letter": "dead", "retry": 1, **options}
    return app, app.subscriber("q", **options)


async def run(app: App, *bodies: Any, headers: Any = None) -> Any:
    """Send to "q", let everything come to rest, and give the account."""
    async with app.in_process() as account:
        for body in bodies:
            await account.send("q", body, headers=headers)
        await account.settle()
    return account


def reasons(account: Any) -> list[str]:
    """Why each message lies in "dead"."""
    return [each.attributes["pumphouse.reason"].string_value for each in account.sent("dead")]


class Log(list[Any]):
    """What happened, in order."""


def scoped(log: Log) -> Callable[[], AsyncIterator[str]]:
    """A dependency that notes how it was left."""

    async def session() -> AsyncIterator[str]:
        log.append("opened")
        try:
            yield "session"
        except BaseException as error:
            log.append(type(error).__name__)
            raise
        else:
            log.append("committed")
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    return session
