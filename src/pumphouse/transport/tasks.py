"""The tasks that an object has under way, none of them forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("pumphouse.transport")


class Tasks:
    """Runs coroutines and keeps them until they end; one that fails is logged."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("work in the background failed", exc_info=error)

    async def idle(self, *, besides: asyncio.Task[Any] | None = None) -> None:
        """Wait until nothing else is under way, also what is started meanwhile."""
        while others := self._running - {besides}:
            await asyncio.wait(others)
