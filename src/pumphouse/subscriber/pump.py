"""The pump of one queue: receives, as many as there is room for, and none on an error's heels.

It is driven by events, not by a loop: `kick` opens the receives that are wanted now, and is called
whenever that may have changed. What the messages are for is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, cast

from pumphouse.backend import Backend
from pumphouse.backoff import full_jitter, one_try
from pumphouse.clock import Clock, Timer
from pumphouse.errors import NetworkError, OutcomeUnknownError, QueueDoesNotExist, ThrottledError
from pumphouse.hooks import Hooks
from pumphouse.protocol.operations import ReceivedMessage, ReceiveMessage
from pumphouse.subscriber.events import PumpHealed, PumpUnhealthy
from pumphouse.subscriber.queue import Queue

BACKOFF_BASE_SECONDS = 1.0
BACKOFF_CAP_SECONDS = 30.0
EMPTY_PAUSE_SECONDS = 1.0
"""Between receives that don't wait, while they bring nothing."""
MAX_AUTO_POLLERS = 16
ANSWER_SECONDS = 1.0
"""The way of an answer: SQS holds no receive for longer than its wait."""
_ALL = ["All"]
Health = Literal["healthy", "unhealthy", "ended"]
_log = logging.getLogger("pumphouse.subscriber")


class Owner(Protocol):
    """Who takes the messages, and knows how many fit."""

    def room(self) -> int:
        """How many more messages may be held now."""
        ...

    def hungry(self) -> bool:
        """Whether a handler is free and nothing waits for it."""
        ...

    def on_received(self, messages: list[ReceivedMessage], since: float) -> None:
        """Messages came; their leases run, and are counted from `since`."""

    def on_empty(self) -> None:
        """A receive brought nothing, or failed."""

    def on_gone(self) -> None:
        """The queue does not exist, and the subscription is to end with it."""


class Pump:
    """Keeps receives open on one queue.

    `healthy` and `reason` tell how the last receive went; `empty` whether it brought nothing.
    """

    def __init__(
        self,
        backend: Backend,
        queue: Queue,
        queue_url: str,
        clock: Clock,
        hooks: Hooks,
        owner: Owner,
        tasks: asyncio.TaskGroup,
        *,
        lease_seconds: int,
        resolve: Callable[[], Awaitable[str]],
    ) -> None:
        self.queue_url = queue_url
        self.healthy = True
        self.reason = ""
        self.ended = False  # the queue is gone, and the subscription with it
        self.empty = False
        self.eager = False  # ask without waiting, to learn soon whether the queue is empty
        self.requests = 0
        self._backend = backend
        self._queue = queue
        self._clock = clock
        self._hooks = hooks
        self._owner = owner
        self._tasks = tasks
        self._resolve = resolve
        self._lease = lease_seconds
        # SQS does not say when it answered, only we know when we asked: from then on a lease that
        # can be extended is counted, and at least a third of it is to be left
        self._wait = queue.wait_time_seconds
        if queue.extend:
            self._wait = min(self._wait, max(1, lease_seconds * 2 // 3))
        self._open = 0
        self._asked = 0  # messages that the open receives may bring
        self._full = 0  # receives in a row that brought all that they asked for
        self._failures = 0
        self._pause: Timer | None = None
        self._kicking = False
        self._stopped = False
        self._lost: deque[tuple[str, int]] = deque(maxlen=64)  # receives whose answers were lost
        self._most = MAX_AUTO_POLLERS if queue.pollers == "auto" else queue.pollers
        self._worth = min(10, max(1, queue.prefetch))  # room that is worth a request
        self._exact = getattr(backend, "cancel_is_exact", False)
        self._receives: set[asyncio.Task[None]] = set()
        self._closed: list[asyncio.Future[None]] = []

    @property
    def open_receives(self) -> int:
        return self._open

    def kick(self) -> None:
        """Open the receives that are wanted now."""
        if self._kicking:  # by a receive of an eager task, which has run already
            return
        self._kicking = True
        try:
            self._open_wanted()
        finally:
            self._kicking = False

    def _open_wanted(self) -> None:
        # one at once, and one more for each that came back full
        while (
            self._open <= self._full
            and self._open < self._most
            and not self._stopped
            and self._pause is None
        ):
            room = self._owner.room() - self._asked
            if room < self._worth and not (room > 0 and not self._open and self._owner.hungry()):
                return
            most, attempt_id = min(10, room), None
            if self._queue.is_fifo:
                # with the same id, SQS hands out again what a lost answer would have brought
                attempt_id = uuid.uuid4().hex
                if self._lost:
                    attempt_id, most = self._lost.popleft()
            self._open += 1
            self._asked += most
            self._tasks.create_task(self._receive(most, attempt_id))

    def stop(self) -> None:
        """Open no more receives.

        The open ones run to their end, as what they are about to bring would be hidden until its
        lease ends; but where the backend says that cancelling is exact they are cancelled.
        """
        self._stopped = True
        for task in self._receives:
            task.cancel()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def closed(self) -> None:
        """Wait until no receive is open."""
        while self._open:
            waiter = asyncio.get_running_loop().create_future()
            self._closed.append(waiter)
            await waiter

    async def _receive(self, most: int, attempt_id: str | None) -> None:
        messages: list[ReceivedMessage] = []
        since = 0.0
        one_try.set(True)  # what fails is tried again by the pump, and only by it
        task = cast("asyncio.Task[None]", asyncio.current_task())
        if self._exact:
            self._receives.add(task)
        try:
            if self._stopped:
                return
            if self._failures:
                self.queue_url = await self._resolve()
            self.requests += 1
            # the first one waits for messages; the others are for those that are there
            short = self._open > 1 or (self.eager and not self.empty) or self._lost
            wait = 0 if short else self._wait
            since = self._clock.monotonic()
            answer = await self._backend.execute(
                ReceiveMessage(
                    queue_url=self.queue_url,
                    message_system_attribute_names=_ALL,
                    message_attribute_names=_ALL,
                    max_number_of_messages=most,
                    visibility_timeout=self._lease,  # always: the queue's own may change
                    wait_time_seconds=wait,
                    receive_request_attempt_id=attempt_id,
                )
            )
            messages = answer.messages
            if not self._queue.extend:  # nothing renews it: from when SQS has answered at last
                since = min(self._clock.monotonic(), since + wait + ANSWER_SECONDS)
        except asyncio.CancelledError:
            self._stopped = True  # by a stop, or with the whole app
            raise
        except Exception as error:
            if attempt_id and isinstance(error, OutcomeUnknownError | NetworkError):
                self._lost.append((attempt_id, most))
            self._failed(error)
        else:
            self._succeeded(messages, most)
        finally:
            self._receives.discard(task)
            self._open -= 1
            self._asked -= most
            if messages:
                self._owner.on_received(messages, since)
            else:
                self._owner.on_empty()
            if not self._open:
                for waiter in self._closed:
                    if not waiter.done():
                        waiter.set_result(None)
                self._closed.clear()
            self.kick()

    def _succeeded(self, messages: list[ReceivedMessage], most: int) -> None:
        self.empty = not messages
        if self.empty and not self._queue.wait_time_seconds and not self._stopped:
            self._rest(EMPTY_PAUSE_SECONDS)  # each request is paid for
        self._full = self._full + 1 if len(messages) == most else 0
        if self._failures:
            self._hooks.emit(PumpHealed(self._queue.name, self._failures))
            _log.info("%s: receiving again after %d failures", self._queue.name, self._failures)
        self._failures = 0
        self.healthy = True
        self.reason = ""

    def _failed(self, error: Exception) -> None:
        self._full = 0
        self._failures += 1
        self.healthy = False
        kind, text = type(error).__name__, str(error)
        self.reason = text if text.startswith(kind) else f"{kind}: {text}"
        if isinstance(error, QueueDoesNotExist) and self._queue.on_missing == "end":
            self.ended = True
            self.stop()
            self._owner.on_gone()
            return
        # half of it for certain, so that the calls of a minute are bounded
        ceiling = min(
            BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2.0 ** min(self._failures - 1, 30)
        )
        delay = ceiling / 2 + full_jitter(
            1, base_seconds=ceiling / 2, cap_seconds=BACKOFF_CAP_SECONDS
        )
        if isinstance(error, ThrottledError):
            delay = max(delay, error.retry_after_seconds)
        _log.warning(
            "%s: a receive failed (%s); again in %.1f s", self._queue.name, self.reason, delay
        )
        self._hooks.emit(PumpUnhealthy(self._queue.name, self.reason, self._failures, delay))
        if not self._stopped:
            self._rest(delay)

    def _rest(self, seconds: float) -> None:
        """Open no receive for so long."""
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._clock.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self.kick()
