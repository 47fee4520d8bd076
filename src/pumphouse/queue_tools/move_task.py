"""Redriving with SQS's own message move task: started, watched, and cancelled on request.

SQS moves the whole queue by itself, with its own retries; what is done here is to say how far it
is. The limits are those of the `StartMessageMoveTask` page of the API reference: the source is the
dead-letter queue of an SQS queue, one task at a time for each, up to 500 messages a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pumphouse.backend import Backend
from pumphouse.clock import Clock, timeout
from pumphouse.errors import (
    ConfigError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    RefusedConfigError,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.operations import (
    CancelMessageMoveTask,
    ListMessageMoveTasks,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTask,
)
from pumphouse.queue_tools.results import INTERRUPTED, Redriven

MAX_RATE = 500
LOOK_SECONDS = 1.0
_MOST_FAILURES = 30  # looks in a row that were not answered
_PASSING = (ThrottledError, TransientError, NetworkError, OutcomeUnknownError)


async def latest(backend: Backend, source_arn: str) -> ListMessageMoveTasksResultEntry | None:
    """The latest task of a queue."""
    answer = await backend.execute(ListMessageMoveTasks(source_arn, 1))
    return answer.results[0] if answer.results else None


async def start(backend: Backend, source_arn: str, destination_arn: str, rate: int | None) -> None:
    """Start a task. Raises `ConfigError` where one runs already, and what SQS refuses it for."""
    task = await latest(backend, source_arn)
    if task is not None and task.status == "RUNNING":
        raise ConfigError(
            f"a message move task of this queue is running already, with "
            f"{task.approximate_number_of_messages_moved or 0} messages moved; wait for its end"
        )
    before = task.started_timestamp if task is not None else None
    try:
        await backend.execute(StartMessageMoveTask(source_arn, destination_arn, rate))
    except OutcomeUnknownError:  # it may have been started all the same
        task = await latest(backend, source_arn)
        if task is None or task.started_timestamp == before:
            raise


async def watch(
    backend: Backend,
    source_arn: str,
    destination_arn: str,
    result: Redriven,
    *,
    clock: Clock,
    stop: asyncio.Event,
    progress: Callable[[Redriven], object],
) -> None:
    """Wait for the end of the task that was started; `stop` cancels it. Raises `ConfigError` for
    one that fails."""
    name = destination_arn.rpartition(":")[2]
    failures = 0
    cancelled = False
    while True:
        if stop.is_set() and not cancelled:
            cancelled = await _cancel(backend, source_arn)
        try:
            task = await latest(backend, source_arn)
            failures = 0
        except _PASSING:
            failures += 1
            if failures > _MOST_FAILURES:
                raise
        else:
            if task is None:
                raise ConfigError(
                    "the server knows nothing of the message move task that it started; --no-task "
                    "does without one"
                )
            result.moved = task.approximate_number_of_messages_moved or 0
            result.to_move = task.approximate_number_of_messages_to_move or result.to_move
            result.destinations = {name: result.moved}
            progress(result)
            if task.status not in ("RUNNING", "CANCELLING"):
                break
        if stop.is_set():
            await clock.sleep(LOOK_SECONDS)
            continue
        try:
            async with timeout(clock, LOOK_SECONDS):
                await stop.wait()
        except TimeoutError:
            pass
    if task.status == "FAILED":
        raise ConfigError(
            f"the message move task failed after {result.moved} messages: "
            f"{task.failure_reason or 'SQS gives no reason'}; the rest is where it was"
        )
    if task.status == "CANCELLED":
        result.ended = INTERRUPTED


async def _cancel(backend: Backend, source_arn: str) -> bool:
    """Cancel the running task; whether that need not be tried again. Raises `ConfigError` where it
    is not permitted."""
    try:
        task = await latest(backend, source_arn)
        if task is not None and task.task_handle:
            await backend.execute(CancelMessageMoveTask(task.task_handle))
    except _PASSING:
        return False
    except RefusedConfigError as error:
        raise ConfigError(
            f"the message move task can't be cancelled, and goes on ({error})"
        ) from error
    except PumphouseError:  # it has just ended
        return True
    return True
