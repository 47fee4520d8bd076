"""Bodies that were stored apart from their messages: deleted after them, and never before.

Which message is deleted for certain is known in `exits.py`; how a body is stored and fetched, in
`claim_check.py`.
"""

from __future__ import annotations

import asyncio
import logging

from pumphouse.claim_check import ClaimCheck
from pumphouse.clock import Clock, timeout
from pumphouse.protocol.operations import ReceivedMessage
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.outcomes import describe

BODY_SECONDS = 20.0  # what the delete of a stored body may take; what is left over is logged
_log = logging.getLogger("pumphouse.subscriber")


class StoredBodies:
    """The stored bodies of one subscription's messages."""

    def __init__(
        self, check: ClaimCheck, clock: Clock, tasks: asyncio.TaskGroup, queue: str
    ) -> None:
        self._check = check
        self._clock = clock
        self._tasks = tasks
        self._queue = queue

    def forget(self, delivery: Delivery) -> None:
        """The message is deleted for certain: so is the body that was stored apart from it, unless
        the message is in the dead-letter queue, with its ticket."""
        raw = delivery.raw
        if not delivery.carried and self._check.has_ticket(raw.body, raw.message_attributes):
            self._tasks.create_task(self._delete(raw))

    async def _delete(self, raw: ReceivedMessage) -> None:
        try:
            async with timeout(self._clock, BODY_SECONDS):
                await self._check.discard(raw.body, raw.message_attributes)
        except Exception as error:
            _log.warning(
                "%s: the stored body of message %s is left over: %s",
                self._queue,
                raw.message_id,
                describe(error),
            )
