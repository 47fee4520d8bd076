"""Every operation and result against AWS's own model of SQS, as botocore ships it."""

from __future__ import annotations

import botocore.session
import msgspec
import pytest
from botocore.model import OperationModel, ServiceModel

from pumphouse.protocol.operations import (
    SQS_OPERATIONS,
    DeleteMessage,
    MessageAttributeValue,
    SendMessage,
    wire_name,
)
from support.model_shapes import differences

MODEL: ServiceModel = botocore.session.get_session().get_service_model("sqs")
ACTIONS = sorted(MODEL.operation_names)


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
