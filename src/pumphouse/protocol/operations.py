"""Every SQS action as a typed value, with the type of its result.

The shapes are AWS's (botocore's `sqs/2012-11-05` model), the field names AWS's in snake case. The
structs are named on the wire as AWS names them, so `msgspec` reads and writes SQS's JSON protocol
with them directly; bytes travel as base64. Which values are allowed is not said here: the service
refuses what it refuses (`account/`); the rules that senders check first are in `attributes.py`.

An operation knows about itself, as class attributes: `service` (`sqs`), `action` (AWS's name),
`result` (the type of its answer), and `repeatable` (whether carrying it out twice is as good as
once, which decides what may be sent again when an answer is lost).
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct, ValidationError, convert, field, to_builtins

R = TypeVar("R", covariant=True)

# What the wire calls a field where it isn't just the snake-case name in pascal case.
_SPELLING = {
    "md5_of_body": "MD5OfBody",
    "md5_of_message_body": "MD5OfMessageBody",
    "md5_of_message_attributes": "MD5OfMessageAttributes",
    "md5_of_message_system_attributes": "MD5OfMessageSystemAttributes",
    "aws_account_id": "AWSAccountId",
    "aws_account_ids": "AWSAccountIds",
    "queue_owner_aws_account_id": "QueueOwnerAWSAccountId",
}


def wire_name(field: str) -> str:
    """AWS's spelling of a field: `queue_url` is `QueueUrl`."""
    return _SPELLING.get(field) or "".join(part.capitalize() for part in field.split("_"))


class Shape(Struct, frozen=True, gc=False, omit_defaults=True, rename=wire_name):
    """A structure of AWS's model that is neither an operation nor a result."""


class Operation(Struct, Generic[R], frozen=True, gc=False, omit_defaults=True, rename=wire_name):
    """One action of AWS, ready to be executed by a `Backend`."""

    action: ClassVar[str]
    result: ClassVar[type[Any]]
    repeatable: ClassVar[bool] = True
    service: ClassVar[str] = "sqs"


def misfit(operation: object) -> str | None:
    """Which value of an operation is of a type that AWS's model does not have there; None where
    all are right. Structs take anything when they are made, so that making one costs little."""
    if not isinstance(operation, Operation):
        return f"{operation!r} is no operation"
    try:
        convert(
            to_builtins(operation, builtin_types=(bytes,)), type(operation), builtin_types=(bytes,)
        )
    except (ValidationError, TypeError) as error:  # TypeError: of a type that is no plain data
        return f"{operation.action}: {error}"
    return None


class Result(Struct, frozen=True, gc=False, omit_defaults=True, rename=wire_name):
    """What an operation is answered with."""


class Done(Result, frozen=True):
    """The result of an action that answers nothing but that it was done."""


DONE = Done()


# --- messages -----------------------------------------------------------------------------------


class MessageAttributeValue(Shape, frozen=True):
    """A message attribute: `data_type` is `String`, `Number` or `Binary`, with or without a label
    (`Number.int`), and one of the two values stands beside it."""

    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None  # in AWS's model, and refused by AWS
    binary_list_values: list[bytes] | None = None


Attributes = dict[str, MessageAttributeValue]


class BatchResultErrorEntry(Shape, frozen=True):
    """Why one entry of a batch failed."""

    id: str
    sender_fault: bool
    code: str
    message: str | None = None


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
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


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
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = None
    message_attributes: Attributes | None = None


class ReceiveMessageResult(Result, frozen=True):
    messages: list[ReceivedMessage] = []


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
    successful: list[DeleteMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


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
    successful: list[ChangeMessageVisibilityBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


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
    queue_urls: list[str] = []
    next_token: str | None = None


class ListQueues(Operation[ListQueuesResult], frozen=True):
    action = "ListQueues"
    result = ListQueuesResult

    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class GetQueueAttributesResult(Result, frozen=True):
    attributes: dict[str, str] = {}


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
    tags: dict[str, str] = {}


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
    results: list[ListMessageMoveTasksResultEntry] = []


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
