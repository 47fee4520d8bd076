"""Every SQS action as a typed value, with the type of its result.

The shapes are AWS's (botocore's `sqs/2012-11-05` model), the field names AWS's in snake case. Which
values are allowed is not said here: the service refuses what it refuses (`account/`); the rules
that senders check first are in `attributes.py`. What an operation is, is in `shapes.py`, whose
names can be had from here as well; the actions of SNS are in `sns_operations.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from pumphouse.protocol.shapes import DONE as DONE
from pumphouse.protocol.shapes import Attributes as Attributes
from pumphouse.protocol.shapes import BatchResultErrorEntry as BatchResultErrorEntry
from pumphouse.protocol.shapes import Done as Done
from pumphouse.protocol.shapes import MessageAttributeValue as MessageAttributeValue
from pumphouse.protocol.shapes import Operation as Operation
from pumphouse.protocol.shapes import R as R
from pumphouse.protocol.shapes import Result as Result
from pumphouse.protocol.shapes import Shape as Shape
from pumphouse.protocol.shapes import misfit as misfit
from pumphouse.protocol.shapes import wire_name as wire_name

# --- messages -----------------------------------------------------------------------------------


class SendMessageResult(Result, frozen=True):
    md5_of_message_body: str
    message_id: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessage(Operation[SendMessageResult], frozen=True):
    action = "SendMessage"
    result = SendMessageResult
    repeatable = False  # on a FIFO queue it is; the caller knows

    queue_url: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: Attributes | None = None
    message_system_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchRequestEntry(Shape, frozen=True):
    id: str
    message_body: str
    delay_seconds: int | None = None
    message_attributes: Attributes | None = None
    message_system_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageBatchResultEntry(Shape, frozen=True):
    id: str
    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchResult(Result, frozen=True):
    successful: list[SendMessageBatchResultEntry] = field(default_factory=list)
    failed: list[BatchResultErrorEntry] = field(default_factory=list)


class SendMessageBatch(Operation[SendMessageBatchResult], frozen=True):
    action = "SendMessageBatch"
    result = SendMessageBatchResult
    repeatable = False

    queue_url: str
    entries: list[SendMessageBatchRequestEntry]


class ReceivedMessage(Shape, frozen=True):
    """A message as `ReceiveMessage` hands it out (AWS calls this shape `Message`).

    `attributes` are the system attributes that were asked for, all of them as text.
    """

    message_id: str
    receipt_handle: str
    md5_of_body: str
    body: str
    attributes: dict[str, str] = field(default_factory=dict)
    md5_of_message_attributes: str | None = None
    message_attributes: Attributes | None = None


class ReceiveMessageResult(Result, frozen=True):
    messages: list[ReceivedMessage] = field(default_factory=list)


class ReceiveMessage(Operation[ReceiveMessageResult], frozen=True):
    action = "ReceiveMessage"
    result = ReceiveMessageResult
    repeatable = False  # what a lost answer brought is in flight until its lease ends

    queue_url: str
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(Operation[Done], frozen=True):
    action = "DeleteMessage"
    result = Done

    queue_url: str
    receipt_handle: str


class DeleteMessageBatchRequestEntry(Shape, frozen=True):
    id: str
    receipt_handle: str


class DeleteMessageBatchResultEntry(Shape, frozen=True):
    id: str


class DeleteMessageBatchResult(Result, frozen=True):
    successful: list[DeleteMessageBatchResultEntry] = field(default_factory=list)
    failed: list[BatchResultErrorEntry] = field(default_factory=list)


class DeleteMessageBatch(Operation[DeleteMessageBatchResult], frozen=True):
    action = "DeleteMessageBatch"
    result = DeleteMessageBatchResult

    queue_url: str
    entries: list[DeleteMessageBatchRequestEntry]


class ChangeMessageVisibility(Operation[Done], frozen=True):
    action = "ChangeMessageVisibility"
    result = Done

    queue_url: str
    receipt_handle: str
    visibility_timeout: int


class ChangeMessageVisibilityBatchRequestEntry(Shape, frozen=True):
    id: str
    receipt_handle: str
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchResultEntry(Shape, frozen=True):
    id: str


class ChangeMessageVisibilityBatchResult(Result, frozen=True):
    successful: list[ChangeMessageVisibilityBatchResultEntry] = field(default_factory=list)
    failed: list[BatchResultErrorEntry] = field(default_factory=list)


class ChangeMessageVisibilityBatch(Operation[ChangeMessageVisibilityBatchResult], frozen=True):
    action = "ChangeMessageVisibilityBatch"
    result = ChangeMessageVisibilityBatchResult

    queue_url: str
    entries: list[ChangeMessageVisibilityBatchRequestEntry]


# --- queues -------------------------------------------------------------------------------------


class CreateQueueResult(Result, frozen=True):
    queue_url: str


class CreateQueue(Operation[CreateQueueResult], frozen=True):
    action = "CreateQueue"
    result = CreateQueueResult

    queue_name: str
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = field(default=None, name="tags")


class DeleteQueue(Operation[Done], frozen=True):
    action = "DeleteQueue"
    result = Done

    queue_url: str


class PurgeQueue(Operation[Done], frozen=True):
    action = "PurgeQueue"
    result = Done

    queue_url: str


class GetQueueUrlResult(Result, frozen=True):
    queue_url: str


class GetQueueUrl(Operation[GetQueueUrlResult], frozen=True):
    action = "GetQueueUrl"
    result = GetQueueUrlResult

    queue_name: str
    queue_owner_aws_account_id: str | None = None


class ListQueuesResult(Result, frozen=True):
    queue_urls: list[str] = field(default_factory=list)
    next_token: str | None = None


class ListQueues(Operation[ListQueuesResult], frozen=True):
    action = "ListQueues"
    result = ListQueuesResult

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class GetQueueAttributesResult(Result, frozen=True):
    attributes: dict[str, str] = field(default_factory=dict)


class GetQueueAttributes(Operation[GetQueueAttributesResult], frozen=True):
    action = "GetQueueAttributes"
    result = GetQueueAttributesResult

    queue_url: str
    attribute_names: list[str] | None = None


class SetQueueAttributes(Operation[Done], frozen=True):
    action = "SetQueueAttributes"
    result = Done

    queue_url: str
    attributes: dict[str, str]


class ListQueueTagsResult(Result, frozen=True):
    tags: dict[str, str] = field(default_factory=dict)


class ListQueueTags(Operation[ListQueueTagsResult], frozen=True):
    action = "ListQueueTags"
    result = ListQueueTagsResult

    queue_url: str


class TagQueue(Operation[Done], frozen=True):
    action = "TagQueue"
    result = Done

    queue_url: str
    tags: dict[str, str]


class UntagQueue(Operation[Done], frozen=True):
    action = "UntagQueue"
    result = Done

    queue_url: str
    tag_keys: list[str]


class AddPermission(Operation[Done], frozen=True):
    action = "AddPermission"
    result = Done
    repeatable = False  # the second time the label exists

    queue_url: str
    label: str
    aws_account_ids: list[str]
    actions: list[str]


class RemovePermission(Operation[Done], frozen=True):
    action = "RemovePermission"
    result = Done
    repeatable = False  # the second time the label is gone

    queue_url: str
    label: str


# --- dead letters -------------------------------------------------------------------------------


class ListDeadLetterSourceQueuesResult(Result, frozen=True):
    queue_urls: list[str] = field(default_factory=list, name="queueUrls")
    next_token: str | None = None


class ListDeadLetterSourceQueues(Operation[ListDeadLetterSourceQueuesResult], frozen=True):
    action = "ListDeadLetterSourceQueues"
    result = ListDeadLetterSourceQueuesResult

    queue_url: str
    next_token: str | None = None
    max_results: int | None = None


class StartMessageMoveTaskResult(Result, frozen=True):
    task_handle: str


class StartMessageMoveTask(Operation[StartMessageMoveTaskResult], frozen=True):
    action = "StartMessageMoveTask"
    result = StartMessageMoveTaskResult
    repeatable = False  # the second one is refused while the first runs

    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class CancelMessageMoveTaskResult(Result, frozen=True):
    approximate_number_of_messages_moved: int | None = None


class CancelMessageMoveTask(Operation[CancelMessageMoveTaskResult], frozen=True):
    action = "CancelMessageMoveTask"
    result = CancelMessageMoveTaskResult

    task_handle: str


class ListMessageMoveTasksResultEntry(Shape, frozen=True):
    status: str
    source_arn: str
    approximate_number_of_messages_moved: int | None = None
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int | None = None


class ListMessageMoveTasksResult(Result, frozen=True):
    results: list[ListMessageMoveTasksResultEntry] = field(default_factory=list)


class ListMessageMoveTasks(Operation[ListMessageMoveTasksResult], frozen=True):
    action = "ListMessageMoveTasks"
    result = ListMessageMoveTasksResult

    source_arn: str
    max_results: int | None = None


SQS_OPERATIONS: dict[str, type[Operation[Any]]] = {
    operation.action: operation
    for operation in (
        AddPermission,
        CancelMessageMoveTask,
        ChangeMessageVisibility,
        ChangeMessageVisibilityBatch,
        CreateQueue,
        DeleteMessage,
        DeleteMessageBatch,
        DeleteQueue,
        GetQueueAttributes,
        GetQueueUrl,
        ListDeadLetterSourceQueues,
        ListMessageMoveTasks,
        ListQueueTags,
        ListQueues,
        PurgeQueue,
        ReceiveMessage,
        RemovePermission,
        SendMessage,
        SendMessageBatch,
        SetQueueAttributes,
        StartMessageMoveTask,
        TagQueue,
        UntagQueue,
    )
}
"""All 23 SQS actions, by AWS's name."""
