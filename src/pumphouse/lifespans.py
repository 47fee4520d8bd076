"""What may be the lifespan of an app: a function of it that makes an async context manager.

Checked as it is declared, as far as a function shows what it gives, and again when it was called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from pumphouse.errors import UsageError

if TYPE_CHECKING:
    from pumphouse.app import App

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


def check_lifespan(lifespan: object) -> None:
    """Raises `UsageError` for what makes no async context manager, as far as it shows uncalled."""
    if hasattr(type(lifespan), "__aenter__"):
        raise _refused(lifespan, "it is one itself, and no function of the app")
    if not callable(lifespan):
        raise _refused(lifespan, f"it is no function, but {type(lifespan).__name__}")
    if inspect.isasyncgenfunction(lifespan):
        raise _refused(lifespan, "it is an async generator")
    if inspect.isgeneratorfunction(lifespan):
        raise _refused(lifespan, "it is a generator that is not async")
    if inspect.iscoroutinefunction(lifespan):
        raise _refused(lifespan, "it is a coroutine function")


def enterable(lifespan: Lifespan, app: App) -> AbstractAsyncContextManager[Any]:
    """The async context manager that a lifespan makes. Raises `UsageError` for anything else."""
    made: object = lifespan(app)
    if hasattr(type(made), "__aenter__") and hasattr(type(made), "__aexit__"):
        return made  # type: ignore[return-value]
    if inspect.iscoroutine(made):
        made.close()
    raise _refused(lifespan, f"it gave {type(made).__name__}")


def _refused(lifespan: object, why: str) -> UsageError:
    name = getattr(lifespan, "__qualname__", None) or repr(lifespan)
    return UsageError(
        f"the lifespan {name} makes no async context manager: {why}; write an async function with "
        "one yield, with @asynccontextmanager (of contextlib) right above it"
    )
