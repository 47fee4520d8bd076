"""Message move tasks: dead letters on their way back, at a rate, on the account's clock.

    RUNNING --> COMPLETED | CANCELLED | FAILED

A task moves what is visible in its source, in order, to its destination or, without one, each
message to the queue whose dead letter it is. It has one timer, whatever it moves: a tick moves as
many messages as its rate allows for the time to the next. As on AWS a moved message is a new one:
its id, its time and its receive count start anew, its body, attributes and group stay.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pumphouse.account.control import sources_of
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.clock import Timer
from pumphouse.errors import ServiceError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import QueueName
from pumphouse.protocol.operations import (
    CancelMessageMoveTask,
    CancelMessageMoveTaskResult,
    ListMessageMoveTasks,
    ListMessageMoveTasksResult,
    ListMessageMoveTasksResultEntry,
    Operation,
    StartMessageMoveTask,
    StartMessageMoveTaskResult,
)

if TYPE_CHECKING:
    from pumphouse.account.account import Scope

RUNNING, COMPLETED, CANCELLED, FAILED = "RUNNING", "COMPLETED", "CANCELLED", "FAILED"
MAX_RATE = 500
MAX_LISTED = 10
_TICKS_PER_SECOND = 10


class MoveTask:
    """One task. `rate` is in messages a second; None is as many as AWS moves at most."""

    __slots__ = (
        "_scope",
        "_timer",
        "destination",
        "failure",
        "handle",
        "moved",
        "rate",
        "source",
        "started_at",
        "status",
        "task_id",
        "to_move",
    )

    def __init__(
        self, scope: Scope, source: Queue, destination: Queue | None, rate: int | None
    ) -> None:
        self._scope = scope
        self.source = source
        self.destination = destination
        self.rate = rate
        self.task_id = scope.next_message_id()
        self.handle = _handle_of(self.task_id, source.arn)
        self.status = RUNNING
        self.failure: str | None = None
        self.moved = 0
        source.settle(scope.clock.monotonic())
        self.to_move = source.visible
        self.started_at = scope.clock.now()
        self._timer: Timer = scope.clock.call_later(0, self._tick)

    def cancel(self) -> None:
        """Stop; what was moved stays where it is."""
        self._end(CANCELLED)

    def shown(self) -> ListMessageMoveTasksResultEntry:
        """The task as `ListMessageMoveTasks` answers it: with its handle while it can be used."""
        return ListMessageMoveTasksResultEntry(
            status=self.status,
            source_arn=self.source.arn,
            approximate_number_of_messages_moved=self.moved,
            task_handle=self.handle if self.status == RUNNING else None,
            destination_arn=self.destination.arn if self.destination is not None else None,
            max_number_of_messages_per_second=self.rate,
            approximate_number_of_messages_to_move=self.to_move,
            failure_reason=self.failure,
            started_timestamp=int(self.started_at * 1000),
        )

    def _tick(self) -> None:
        rate = self.rate or MAX_RATE
        batch = max(1, rate // _TICKS_PER_SECOND)
        now = self._scope.clock.monotonic()
        self.source.settle(now)
        if self.source.deleted:
            self._end(FAILED, "AWS.SimpleQueueService.NonExistentQueue")
            return
        moved = self.source.withdraw(batch, self._may_move)
        for message in moved:
            if (target := self._target_of(message)) is not None:  # it is: `_may_move` saw it
                self._deliver(message, target, now)
        self.moved += len(moved)
        if self.failure:
            self._end(FAILED, self.failure)
        elif not self.source.has_next():
            self._end(COMPLETED)
        else:
            self._timer = self._scope.clock.call_later(batch / rate, self._tick)

    def _may_move(self, message: Message) -> bool:
        """Whether there is a queue for a message; why not, in `failure`."""
        if self.destination is None and message.source_arn is None:
            self.failure = "CouldNotDetermineMessageSource"
        elif (target := self._target_of(message)) is None or target.deleted:
            self.failure = "AWS.SimpleQueueService.NonExistentQueue"
        return self.failure is None

    def _target_of(self, message: Message) -> Queue | None:
        if self.destination is not None:
            return self.destination
        return self._scope.account.find(message.source_arn or "")

    def _deliver(self, message: Message, target: Queue, now: float) -> None:
        scope = self._scope
        target.settle(now)
        target.add(
            Message(
                scope.next_message_id(),
                message.body,
                message.md5_of_body,
                message.sender_id,
                scope.clock.now(),
                now,
                message.attributes,
                message.md5_of_attributes,
                message.trace_header,
                message.md5_of_system_attributes,
                message.group_id,
                message.deduplication_id,
                scope.next_sequence_number() if target.is_fifo else None,
            ),
            now,
        )
        if target.parking.occupied:
            target.wake()

    def _end(self, status: str, failure: str | None = None) -> None:
        self._timer.cancel()
        self.status = status
        self.failure = failure

    def __repr__(self) -> str:
        return f"<MoveTask of {self.source.name.name}: {self.status}, {self.moved} moved>"


class MoveTasks:
    """The tasks of an account, the last ten of each source."""

    __slots__ = ("_by_source",)

    def __init__(self) -> None:
        self._by_source: dict[QueueName, deque[MoveTask]] = {}

    def of(self, source: QueueName) -> list[MoveTask]:
        """The tasks of a source, the latest first."""
        return list(self._by_source.get(source, ()))

    def running(self, source: QueueName) -> MoveTask | None:
        """The task that is moving messages out of this source."""
        return next((task for task in self.of(source) if task.status == RUNNING), None)

    def add(self, task: MoveTask) -> None:
        tasks = self._by_source.setdefault(task.source.name, deque(maxlen=MAX_LISTED))
        tasks.appendleft(task)

    def forget(self, source: QueueName) -> None:
        """Stop and forget the tasks of a queue that is deleted."""
        for task in self._by_source.pop(source, ()):
            task.cancel()

    def close(self) -> None:
        """Stop everything."""
        for source in list(self._by_source):
            self.forget(source)


def start_message_move_task(
    scope: Scope, operation: StartMessageMoveTask
) -> StartMessageMoveTaskResult:
    """Begin to move the messages of a dead-letter queue; one task at a time for each."""
    source = _queue(scope, operation.source_arn, "SourceArn")
    destination = None
    if operation.destination_arn is not None:
        destination = _queue(scope, operation.destination_arn, "DestinationArn")
    rate = operation.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= MAX_RATE:
        raise fault(
            "InvalidParameterValue",
            "Value for parameter MaxNumberOfMessagesPerSecond is invalid. "
            f"Reason: You must enter a number that's between 1 and {MAX_RATE}.",
        )
    if destination is source:
        raise fault(
            "InvalidParameterValue",
            "Source queue arn and destination queue arn cannot be the same.",
        )
    if destination is not None and destination.is_fifo != source.is_fifo:
        raise fault(
            "InvalidParameterValue",
            "The source queue and destination queue must be of the same queue type.",
        )
    if not sources_of(scope, source):
        raise fault(
            "InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue."
        )
    if scope.account.move_tasks.running(source.name):
        raise fault(
            "InvalidParameterValue",
            "There is already a task running. Only one active task is allowed for a source queue "
            "arn at a given time.",
        )
    task = MoveTask(scope, source, destination, rate)
    scope.account.move_tasks.add(task)
    return StartMessageMoveTaskResult(task.handle)


def cancel_message_move_task(
    scope: Scope, operation: CancelMessageMoveTask
) -> CancelMessageMoveTaskResult:
    """Stop a task that runs; the answer is how many messages it had moved."""
    task_id, source_arn = _read_handle(operation.task_handle)
    source = _queue(scope, source_arn, "SourceArn")
    for task in scope.account.move_tasks.of(source.name):
        if task.task_id == task_id:
            break
    else:
        raise fault("ResourceNotFoundException", "Task does not exist.")
    if task.status != RUNNING:
        raise fault("InvalidParameterValue", "Only active tasks can be cancelled.")
    task.cancel()
    return CancelMessageMoveTaskResult(task.moved)


def list_message_move_tasks(
    scope: Scope, operation: ListMessageMoveTasks
) -> ListMessageMoveTasksResult:
    """The latest tasks of a source, newest first: one, or up to ten where they are asked for."""
    source = _queue(scope, operation.source_arn, "SourceArn")
    number = 1 if operation.max_results is None else operation.max_results
    if not 1 <= number <= MAX_LISTED:
        raise fault(
            "InvalidParameterValue",
            "Value for parameter MaxResults is invalid. "
            f"Reason: You must enter a number that's between 1 and {MAX_LISTED}.",
        )
    return ListMessageMoveTasksResult(
        [task.shown() for task in scope.account.move_tasks.of(source.name)[:number]]
    )


def _queue(scope: Scope, arn: str, parameter: str) -> Queue:
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn" or not all(parts):
        raise fault(
            "InvalidParameterValue",
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>",
        )
    queue = scope.account.find(arn)
    if queue is None or queue is not scope.queues.get(queue.name.name):
        raise fault(
            "ResourceNotFoundException",
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        )
    return queue


def _handle_of(task_id: str, source_arn: str) -> str:
    text = json.dumps({"taskId": task_id, "sourceArn": source_arn}, separators=(",", ":"))
    return b64encode(text.encode()).decode()


def _read_handle(handle: str) -> tuple[str, str]:
    try:
        content = json.loads(b64decode(handle, validate=True))
        return str(UUID(content["taskId"])), str(content["sourceArn"])
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError):
        raise _bad_handle() from None


def _bad_handle() -> ServiceError:
    return fault("InvalidParameterValue", "Value for parameter TaskHandle is invalid.")


HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {
    CancelMessageMoveTask: cancel_message_move_task,
    ListMessageMoveTasks: list_message_move_tasks,
    StartMessageMoveTask: start_message_move_task,
}
