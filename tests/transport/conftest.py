"""What the transport's tests share: time that passes, a served endpoint, and harel's SQS."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pumphouse.clock import VirtualClock
from support.serve_process import serve


@pytest.fixture
def go(clock: VirtualClock) -> Callable[[Awaitable[Any]], Awaitable[Any]]:
    """Do something, and let the time pass that it takes."""

    async def go(work: Awaitable[Any]) -> Any:
        task = asyncio.ensure_future(work)
        await clock.run_until(task.done)
        return task.result()

    return go


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """The URL of a `pumphouse serve` process."""
    with serve() as url:
        yield url


@pytest.fixture(scope="session")
def aioboto3_path() -> str:
    """What `PYTHONPATH` needs for aioboto3, which harel's own worker uses; "" if nothing.

    It pins botocore to the patch, so `make` puts it in a folder of its own, beside this
    environment's packages.
    """
    if importlib.util.find_spec("aioboto3") is not None:
        return ""
    folder = Path(sys.prefix) / "aioboto3"
    if not (folder / "aioboto3").is_dir():
        pytest.skip("harel's own worker needs aioboto3: make .venv/.aioboto3")
    return str(folder)
