"""Deliveries over HTTP: each is tried until it succeeds, is refused, or its retries are used up.

The account sends nothing itself: it is given a function that does (`server/http_delivery.py`).
Waiting is on the account's clock. Deliveries run in a task group that lives as long as there are
any, and end with `aclose`. Endpoints on other machines are never called.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pumphouse.account.topics.delivery_policy import RetryPlan
from pumphouse.clock import Clock, timeout
from pumphouse.protocol import names

TIMEOUT_SECONDS = 15.0
"""How long SNS waits for an endpoint's answer."""
MAX_AT_ONCE = 20
"""How many requests one endpoint is sent at a time; the others wait for their turn."""

_log = logging.getLogger("pumphouse.account")


@dataclass(frozen=True)
class HttpDelivery:
    """One request to an HTTP endpoint: a POST of `body`."""

    url: str
    headers: dict[str, str]
    body: bytes = field(repr=False)


Deliver = Callable[[HttpDelivery], Awaitable[int]]
"""Sends a request and returns the status of its answer; raises `OSError` where there is none."""


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine, by its host alone: no name is looked up."""
    try:
        return names.is_loopback(urlsplit(url).hostname or "")
    except ValueError:  # it is no URL
        return False


class Notifier:
    """Carries out deliveries beside the operations that cause them."""

    def __init__(self, clock: Clock, deliver: Deliver | None) -> None:
        self._clock = clock
        self._deliver = deliver
        self._waiting: deque[Coroutine[Any, Any, None]] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._more = asyncio.Event()
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._owner: asyncio.Task[None] | None = None

    def notify(
        self, delivery: HttpDelivery, plan: RetryPlan, failed: Callable[[str], object]
    ) -> None:
        """Begin a delivery; `failed` is told why when it came to nothing."""
        if not is_loopback(delivery.url):
            failed("the endpoint is not on this machine, and only loopback endpoints are called")
            return
        if self._deliver is None:
            failed("the account was given no function that delivers over HTTP")
            return
        self._waiting.append(self._carry_out(self._deliver, delivery, plan, failed))
        if self._owner is None or self._owner.done():
            self._more = asyncio.Event()
            self._turns = {}
            self._owner = asyncio.get_running_loop().create_task(
                self._run(), name="pumphouse deliveries"
            )
        else:
            self._more.set()

    async def _run(self) -> None:
        """Own the deliveries, until none is left."""
        async with asyncio.TaskGroup() as group:
            while True:
                while self._waiting:
                    task = group.create_task(self._waiting.popleft())
                    self._running.add(task)
                    task.add_done_callback(self._ended)
                if not self._running:
                    return
                self._more.clear()
                await self._more.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._more.set()

    async def _carry_out(
        self,
        deliver: Deliver,
        delivery: HttpDelivery,
        plan: RetryPlan,
        failed: Callable[[str], object],
    ) -> None:
        delays = plan.delays()
        while True:
            reason, again = await self._try(deliver, delivery)
            if not reason:
                return
            delay = next(delays, None) if again else None
            if delay is None:
                _log.info("a delivery to %s came to nothing: %s", delivery.url, reason)
                failed(reason)
                return
            await self._clock.sleep(delay)

    async def _try(self, deliver: Deliver, delivery: HttpDelivery) -> tuple[str, bool]:
        """Why one try failed, or "", and whether another is worth it."""
        try:
            async with self._turn(delivery), timeout(self._clock, TIMEOUT_SECONDS):
                status = await deliver(delivery)
        except TimeoutError:
            return f"no answer in {TIMEOUT_SECONDS:g} seconds", True
        except OSError as error:
            return f"{type(error).__name__}: {error}", True
        except Exception as error:
            _log.exception("a delivery to %s failed", delivery.url)
            return f"{type(error).__name__}: {error}", False
        if 200 <= status < 300:
            return "", False
        return f"the endpoint answered {status}", status >= 500 or status == 429

    def _turn(self, delivery: HttpDelivery) -> asyncio.Semaphore:
        """What an endpoint's requests wait at: none holds up those of another."""
        endpoint = urlsplit(delivery.url).netloc
        return self._turns.setdefault(endpoint, asyncio.Semaphore(MAX_AT_ONCE))

    @property
    def under_way(self) -> int:
        """How many deliveries have not ended."""
        return len(self._waiting) + len(self._running)

    async def aclose(self) -> None:
        """Give up every delivery that has not ended."""
        owner, self._owner = self._owner, None
        if owner is not None and not owner.done():
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)
        while self._waiting:
            self._waiting.popleft().close()

    def __repr__(self) -> str:
        return f"<Notifier: {self.under_way} deliveries under way>"
