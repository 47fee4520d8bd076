"""What every operation is made of, and the structures that SQS and SNS have in common.

An operation is a struct that is named on the wire as AWS names it (`wire_name`), so `msgspec` reads
and writes SQS's JSON protocol with it directly; bytes travel as base64. It knows about itself, as
class attributes: `service` (`sqs` or `sns`), `action` (AWS's name), `result` (the type of its
answer), and `repeatable` (whether carrying it out twice is as good as once, which decides what may
be sent again when an answer is lost).

The actions are in `operations.py` (SQS) and `sns_operations.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

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
