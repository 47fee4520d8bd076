"""A queue that events come from: `Source`, for as long as the process lives.

What is found out about it once is kept here: its runner, its dead-letter queue, whether delays may
be set. An invocation makes a batch of its messages (`batch.py`), and afterwards has the failed ones
shown again when their outcomes say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from pumphouse import settling
from pumphouse.errors import PumphouseError, RefusedConfigError
from pumphouse.lambda_handler.batch import Batch
from pumphouse.notifications.reading import reading_for
from pumphouse.protocol.attributes import MAX_BATCH_ENTRIES
from pumphouse.protocol.names import QueueName, aws_host, is_queue_url, parse_queue_arn
from pumphouse.protocol.operations import GetQueueAttributes, ReceivedMessage
from pumphouse.running import Running
from pumphouse.subscriber.dead_letters import DeadLetters
from pumphouse.subscriber.delivery import Delivery
from pumphouse.subscriber.runner import Runner
from pumphouse.subscriber.setup import redrive_policy_of
from pumphouse.subscriber.stats import Stats
from pumphouse.subscriber.subscription import Subscription

_CONCURRENT_CHANGES = 8
_log = logging.getLogger("pumphouse.lambda")


class Source:
    """One subscription's queue; `open` makes it."""

    def __init__(
        self,
        running: Running,
        subscription: Subscription,
        arn: str,
        runner: Runner,
        stats: Stats,
    ) -> None:
        self.runner = runner
        self._running = running
        self._subscription = subscription
        self._arn = arn
        self._name = parse_queue_arn(arn)
        self._url = _url_of(self._name, subscription.queue.name)
        self._stats = stats
        self._dead_letters: tuple[DeadLetters, str] | None = None
        self._looked = False  # for the dead-letter queue in the queue's own redrive policy
        self._may_change = True

    @classmethod
    async def open(cls, running: Running, subscription: Subscription, arn: str) -> Source:
        """The source of a queue's ARN. Raises what the backend raises."""
        queue = subscription.queue
        verifier = running.verifier() if queue.verify_sns_signatures else None
        reading = await reading_for(queue.sns, running.backend, arn, verifier)
        stats = Stats()
        runner = running.runner_for(subscription, stats, reading)
        return cls(running, subscription, arn, runner, stats)

    def batch(
        self, messages: Sequence[ReceivedMessage], until: float
    ) -> tuple[Batch, list[Delivery]]:
        """What came of the queue in one invocation; its leases are taken to last `until`, on the
        clock's `monotonic()`."""
        clock = self._running.clock
        deliveries = []
        for message in messages:
            delivery = Delivery(message, clock.monotonic(), until)
            delivery.attempt = delivery.receive_count
            deliveries.append(delivery)
        hooks = self._running.app.hooks
        batch = Batch(
            self._subscription, self.runner, clock, hooks, self._stats, self._find_dead_letters
        )
        return batch, deliveries

    async def _find_dead_letters(self) -> tuple[DeadLetters, str] | None:
        """The dead-letter queue that was declared, otherwise that of the queue's own policy; with
        its name."""
        if self._looked:
            return self._dead_letters
        declared = self._subscription.dead_letter
        if declared is not None:
            target, reference = declared.known_as, declared.name
        else:
            answer = await self._running.backend.execute(
                GetQueueAttributes(self._url, ["RedrivePolicy"])
            )
            policy = redrive_policy_of(answer.attributes, self._name.name)
            if policy is None:
                self._looked = True
                return None
            target, reference = parse_queue_arn(policy.dead_letter_target_arn), ""
        account_id = target.account_id or self._name.account_id
        region = target.region or self._name.region
        url = _url_of(QueueName(target.name, account_id, region), reference)
        letters = DeadLetters(self._running.backend, url, self._running.clock, self._arn)
        self._dead_letters, self._looked = (letters, target.name), True
        return self._dead_letters

    async def show_again(self, failures: Mapping[Delivery, int]) -> None:
        """Let failed messages come again after so many seconds each. What can't be said so costs
        the queue's visibility timeout, nothing else."""
        room = asyncio.Semaphore(_CONCURRENT_CHANGES)
        items = list(failures.items())
        async with asyncio.TaskGroup() as tasks:
            for start in range(0, len(items), MAX_BATCH_ENTRIES):
                tasks.create_task(self._change(items[start : start + MAX_BATCH_ENTRIES], room))

    async def _change(self, some: list[tuple[Delivery, int]], room: asyncio.Semaphore) -> None:
        async with room:
            if not self._may_change:
                return
            changes = [(each.raw.receipt_handle, seconds) for each, seconds in some]
            try:
                refused = await settling.change_visibility(
                    self._running.backend, self._url, changes
                )
            except RefusedConfigError as error:
                self._may_change = False
                _log.warning(
                    "%s: failed messages come again after the visibility timeout, as their "
                    "delays can't be set (%s); permit sqs:ChangeMessageVisibility, or say "
                    "change_visibility=False",
                    self._name.name,
                    error,
                )
                return
            except PumphouseError as error:
                refused = dict.fromkeys(range(len(some)), error)
            for place, why in refused.items():
                _log.warning(
                    "%s: message %s comes again after the visibility timeout: %s",
                    self._name.name,
                    some[place][0].message_id,
                    why,
                )


def _url_of(name: QueueName, reference: str) -> str:
    """A queue's URL without asking for it, which takes no permission: what was given, or AWS's."""
    if is_queue_url(reference):
        return reference
    return f"https://{aws_host('sqs', name.region)}/{name.account_id}/{name.name}"
