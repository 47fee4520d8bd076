"""What a sink has to know of its destination before it can send: its address, and its limit.

Both are asked for with the first request, by one task for all. The limit is asked for again where
it would have a message refused and may be another by now; both are when the destination was gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pumphouse.clock import Clock, timeout
from pumphouse.errors import (
    PumphouseError,
    QueueDoesNotExist,
    RefusedConfigError,
    RefusedError,
    TopicDoesNotExist,
)
from pumphouse.sink.destination import Destination

_log = logging.getLogger("pumphouse.sink")

LIMIT_SECONDS, ASK_AGAIN_SECONDS = 1.0, 30.0
"""How long the answer to what the largest message is may take, and when it is asked for again."""

FRESH_SECONDS = 60.0
"""For how long no message is so large that the limit is asked for again."""


class Learned:
    """Of one destination. `given` is a limit that is not asked for; `tell` hears a new one."""

    def __init__(
        self, to: Destination, given: int | None, clock: Clock, tell: Callable[[int], None]
    ) -> None:
        self.address: str | None = None  # a queue's URL, or a topic's ARN
        self.limit = given
        self._to = to
        self._given = given
        self._clock = clock
        self._tell = tell
        self._asked_at = self._ask_at = 0.0  # when it was, and not before when it will be
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def complete(self) -> bool:
        """Whether there is nothing to be asked."""
        return self.address is not None and self.limit is not None

    @property
    def largest(self) -> int:
        """The largest message, in bytes, as far as is known."""
        return self.limit or self._to.largest

    @property
    def may_have_grown(self) -> bool:
        """Whether the limit was asked for some time ago."""
        return (
            self._given is None
            and self.limit is not None
            and self._clock.monotonic() >= self._asked_at + FRESH_SECONDS
        )

    def forget(self) -> None:
        """It is not there: look everything up again with the next request."""
        self.address = None
        self.limit = self._given
        self._to.forget()

    async def ask_again(self) -> None:
        """Ask for the limit once more, if nobody else has meanwhile."""
        if self.may_have_grown:
            self.limit, self._ask_at = None, 0.0
        if not self.complete:
            await self.learn()

    async def learn(self) -> str:
        """Look up the URL or ARN, and, where that is permitted, the `MaximumMessageSize`. Returns
        the address; raises what the backend raises where that can't be found."""
        async with self._one_at_a_time():
            if self.address is None:
                self.address = await self._to.look_up()
            address = self.address
            if self.limit is None and self._clock.monotonic() >= self._ask_at:
                try:
                    async with timeout(self._clock, LIMIT_SECONDS):
                        self._found(await self._to.limit(address))
                except (QueueDoesNotExist, TopicDoesNotExist):
                    self.forget()
                    raise
                except (RefusedConfigError, RefusedError) as error:
                    _log.info("%s: its MaximumMessageSize can't be read: %s", self._to.name, error)
                    self._found(self._to.largest)
                except TimeoutError:  # messages don't wait for what is of use for few of them
                    self._ask_at = self._clock.monotonic() + ASK_AGAIN_SECONDS
                except PumphouseError:
                    pass  # the next request asks again; this one goes out
            return address

    def _found(self, limit: int) -> None:
        self.limit = limit
        self._asked_at = self._clock.monotonic()
        self._tell(limit)

    def _one_at_a_time(self) -> asyncio.Lock:
        """One look-up at a time; in each event loop, since a lock belongs to one."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]
