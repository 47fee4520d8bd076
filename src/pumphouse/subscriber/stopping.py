"""Stopping one subscription without losing anything.

In order: no new polls; what waits is given back; what runs gets its time, then is cancelled and
given back; open polls end, and what they bring is given back; every settlement is confirmed. Leases
are kept until the last of it. A poll that is open may receive what was just given back, which costs
it a second receive: what is near its queue's limit on them is given back when the polls have ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pumphouse.clock import Clock, timeout
from pumphouse.subscriber.consumer import Consumer
from pumphouse.subscriber.delivery import RUNNING

CANCEL_GRACE_SECONDS = 5.0
FLUSH_SECONDS = 30.0
POLL_MARGIN_SECONDS = 15.0
_log = logging.getLogger("pumphouse.subscriber")


async def stop(
    consumer: Consumer, clock: Clock, drain_seconds: float, harder: asyncio.Event
) -> None:
    """Stop a subscription; `harder` cancels the handlers at once. Where it was cancelled itself,
    another call goes on with it."""
    exits = consumer.exits
    exits.stopping = True
    if consumer.subscription.queue.extend and not harder.is_set():  # so no lease ends meanwhile
        exits.settlement.keep(exits.in_place.receives_short)
    consumer.pump.stop()
    consumer.stop_collecting()
    exits.release_waiting()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_polls_closed(consumer, clock))
        await _handlers_done(consumer, clock, drain_seconds, harder)
    exits.settlement.hurry()
    if not await _until(consumer, clock, FLUSH_SECONDS, lambda: not exits.live):
        exits.settlement.abandon()
        _log.error("%s: stopped with %d messages unconfirmed", consumer.name, len(exits.live))
    exits.extender.close()
    await consumer.workers.close(abandon=set(exits.at_work.values()))
    consumer.runner.close()


async def _handlers_done(
    consumer: Consumer, clock: Clock, drain_seconds: float, harder: asyncio.Event
) -> None:
    exits = consumer.exits
    if await _until(consumer, clock, drain_seconds, lambda: not exits.at_work, harder):
        return
    for delivery, task in exits.at_work.items():
        _log.warning(
            "%s: the handler of %s is cancelled by the stop", consumer.name, delivery.message_id
        )
        delivery.stop_reason = "stop"
        task.cancel()
    if await _until(consumer, clock, CANCEL_GRACE_SECONDS, lambda: not exits.at_work):
        return
    for delivery in list(exits.at_work):
        _log.error(
            "%s: the handler of %s does not end; its message is given back while it runs",
            consumer.name,
            delivery.message_id,
        )
        if delivery.state is RUNNING:
            exits.release(delivery, unrun=True)


async def _polls_closed(consumer: Consumer, clock: Clock) -> None:
    wait = consumer.subscription.queue.wait_time_seconds
    limit = wait + POLL_MARGIN_SECONDS
    if wait and consumer.pump.open_receives:
        _log.info("%s: waiting for the open receive to end, up to %d s", consumer.name, wait)
    try:
        async with timeout(clock, limit):
            await consumer.pump.closed()
    except TimeoutError:
        _log.error("%s: a receive is still open after %g s", consumer.name, limit)
    consumer.exits.settlement.give_back()


async def _until(
    consumer: Consumer,
    clock: Clock,
    seconds: float,
    done: Callable[[], bool],
    harder: asyncio.Event | None = None,
) -> bool:
    """Wait until `done()`, at most `seconds`, or until `harder` is set."""
    try:
        async with timeout(clock, seconds):
            while not done():
                if harder is not None and harder.is_set():
                    return False
                consumer.quiet.clear()
                await consumer.quiet.wait()
    except TimeoutError:
        return done()
    return True
