"""What the transport's tests share: time that passes, a served endpoint, and harel's SQS."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import subprocess
import sys
import venv
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pumphouse.clock import VirtualClock
from support.serve_process import serve

CACHE = Path(__file__).parents[2] / ".cache"


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
def harel_python() -> str:
    """An interpreter with `harel[sqs]`.

    aioboto3, which harel's worker uses, pins botocore to the patch, so where it is not installed
    it gets an environment of its own, once.
    """
    if importlib.util.find_spec("aioboto3") is not None:
        return sys.executable
    CACHE.mkdir(exist_ok=True)
    home = CACHE / "harel-sqs-0.9.0"
    python = home / "bin" / "python"
    with (CACHE / "harel-sqs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            venv.create(home, with_pip=True, clear=True)
            install = [str(python), "-m", "pip", "install", "-q", "harel[sqs]==0.9.0"]
            done = subprocess.run(install, capture_output=True, text=True, timeout=400, check=False)
            if done.returncode:
                pytest.skip(f"harel[sqs] can't be installed here: {done.stderr[-200:]}")
            (home / "complete").touch()
    return str(python)
