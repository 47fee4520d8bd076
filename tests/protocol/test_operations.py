"""Every operation and result against AWS's own model of SQS, as botocore ships it."""

from __future__ import annotations

import types
import typing
from typing import Any

import botocore.session
import msgspec
import pytest
from botocore.model import OperationModel, ServiceModel, Shape

from pumphouse.protocol.operations import (
    SQS_OPERATIONS,
    DeleteMessage,
    Done,
    MessageAttributeValue,
    SendMessage,
    wire_name,
)

MODEL: ServiceModel = botocore.session.get_session().get_service_model("sqs")
ACTIONS = sorted(MODEL.operation_names)

_PLAIN = {
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "blob": bytes,
}


def without_none(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        [kind] = [each for each in typing.get_args(kind) if each is not type(None)]
    return kind


def differences(shape: Shape | None, kind: Any, where: str) -> list[str]:
    """How a type differs from a shape of the model, one line each."""
    kind = without_none(kind)
    if shape is None:
        return [] if kind is Done else [f"{where}: {kind} where AWS answers nothing"]
    if shape.type_name == "structure":
        members = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        found = [f"{where}.{name}: missing" for name in shape.members.keys() - members.keys()]
        found += [f"{where}.{name}: not AWS's" for name in members.keys() - shape.members.keys()]
        for name in shape.members.keys() & members.keys():
            found += differences(shape.members[name], members[name].type, f"{where}.{name}")
        return found
    if shape.type_name == "list":
        [item] = typing.get_args(kind)
        return differences(shape.member, item, f"{where}[]")
    if shape.type_name == "map":
        key, value = typing.get_args(kind)
        return differences(shape.key, key, f"{where}{{key}}") + differences(
            shape.value, value, f"{where}{{value}}"
        )
    expected = _PLAIN[shape.type_name]
    return [] if kind is expected else [f"{where}: {kind} instead of {expected}"]


def test_there_are_all_actions_and_no_others() -> None:
    assert sorted(SQS_OPERATIONS) == ACTIONS
    assert len(SQS_OPERATIONS) == 23
    assert all(operation.action == action for action, operation in SQS_OPERATIONS.items())


@pytest.mark.parametrize("action", ACTIONS)
def test_parameters_and_results_are_those_of_the_model(action: str) -> None:
    model: OperationModel = MODEL.operation_model(action)
    operation = SQS_OPERATIONS[action]
    assert not differences(model.input_shape, operation, action)
    assert not differences(model.output_shape, operation.result, f"{action}Result")


@pytest.mark.parametrize("action", ACTIONS)
def test_what_aws_requires_has_no_default(action: str) -> None:
    model: OperationModel = MODEL.operation_model(action)
    required = {
        field.encode_name
        for field in msgspec.structs.fields(SQS_OPERATIONS[action])
        if field.required
    }
    assert required == set(model.input_shape.required_members if model.input_shape else ())


def test_spelling() -> None:
    assert wire_name("queue_url") == "QueueUrl"
    assert wire_name("md5_of_message_body") == "MD5OfMessageBody"
    assert wire_name("aws_account_ids") == "AWSAccountIds"


def test_what_is_not_set_is_not_written() -> None:
    assert msgspec.to_builtins(SendMessage("u", "b", delay_seconds=0)) == {
        "QueueUrl": "u",
        "MessageBody": "b",
        "DelaySeconds": 0,
    }


def test_bytes_travel_as_base64() -> None:
    value = MessageAttributeValue("Binary", binary_value=b"\x00\xff")
    assert msgspec.json.encode(value) == b'{"DataType":"Binary","BinaryValue":"AP8="}'
    assert msgspec.json.decode(msgspec.json.encode(value), type=MessageAttributeValue) == value


def test_operations_are_values() -> None:
    assert DeleteMessage("u", "h") == DeleteMessage("u", "h")
    assert hash(DeleteMessage("u", "h")) == hash(DeleteMessage("u", "h"))
    with pytest.raises(AttributeError):
        DeleteMessage("u", "h").queue_url = "v"  # type: ignore[misc]


def test_a_list_default_is_never_shared() -> None:
    one = SQS_OPERATIONS["ReceiveMessage"].result()
    other = SQS_OPERATIONS["ReceiveMessage"].result()
    one.messages.append("x")
    assert other.messages == []
