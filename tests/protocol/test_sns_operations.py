"""Every SNS operation and result against AWS's own model (botocore's), and SNS's faults."""

from __future__ import annotations

from typing import Any

import botocore.session
import msgspec
import pytest
from botocore.model import ServiceModel

from pumphouse.errors import (
    RefusedError,
    SubscriptionDoesNotExist,
    ThrottledError,
    TopicDoesNotExist,
    TransientError,
)
from pumphouse.protocol.faults import SNS_TABLE, Fault, fault, from_answer, lookup
from pumphouse.protocol.operations import SQS_OPERATIONS, MessageAttributeValue
from pumphouse.protocol.sns_operations import OUTSIDE_THE_MODEL, SNS_OPERATIONS
from support.model_shapes import differences

MODEL: ServiceModel = botocore.session.get_session().get_service_model("sns")

# SQS's attribute values have lists too, which both services refuse or pass over.
_LEFT_OUT = {
    **OUTSIDE_THE_MODEL,
    MessageAttributeValue: {"string_list_values", "binary_list_values"},
}

_SMS_AND_PUSH = {
    "CheckIfPhoneNumberIsOptedOut",
    "CreatePlatformApplication",
    "CreatePlatformEndpoint",
    "CreateSMSSandboxPhoneNumber",
    "DeleteEndpoint",
    "DeletePlatformApplication",
    "DeleteSMSSandboxPhoneNumber",
    "GetEndpointAttributes",
    "GetPlatformApplicationAttributes",
    "GetSMSAttributes",
    "GetSMSSandboxAccountStatus",
    "ListEndpointsByPlatformApplication",
    "ListOriginationNumbers",
    "ListPhoneNumbersOptedOut",
    "ListPlatformApplications",
    "ListSMSSandboxPhoneNumbers",
    "OptInPhoneNumber",
    "SetEndpointAttributes",
    "SetPlatformApplicationAttributes",
    "SetSMSAttributes",
    "VerifySMSSandboxPhoneNumber",
}
_DATA_PROTECTION = {"GetDataProtectionPolicy", "PutDataProtectionPolicy"}


def test_all_actions_are_there_or_named() -> None:
    assert set(MODEL.operation_names) == SNS_OPERATIONS.keys() | _SMS_AND_PUSH | _DATA_PROTECTION
    assert all(each.action == action for action, each in SNS_OPERATIONS.items())
    assert {each.service for each in SNS_OPERATIONS.values()} == {"sns"}
    assert {each.service for each in SQS_OPERATIONS.values()} == {"sqs"}


@pytest.mark.parametrize("action", sorted(SNS_OPERATIONS))
def test_parameters_and_results_are_those_of_the_model(action: str) -> None:
    model = MODEL.operation_model(action)
    operation = SNS_OPERATIONS[action]
    assert not differences(model.input_shape, operation, action, _LEFT_OUT)
    assert not differences(model.output_shape, operation.result, f"{action}Result", _LEFT_OUT)


@pytest.mark.parametrize("action", sorted(SNS_OPERATIONS))
def test_what_aws_requires_has_no_default(action: str) -> None:
    fields = msgspec.structs.fields(SNS_OPERATIONS[action])
    required = {field.encode_name for field in fields if field.required}
    shape = MODEL.operation_model(action).input_shape
    assert required == set(shape.required_members if shape else ())


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", SNS_TABLE, ids=lambda row: row.code)
def test_a_fault_is_the_same_there_and_back(row: Fault) -> None:
    raised = fault(row.code, "words", "sns")
    assert (type(raised), raised.code, raised.query_code) == (row.error, row.code, row.code)
    read = from_answer(row.code, "words", status=raised.status, service="sns")
    assert (type(read), vars(read)) == (type(raised), vars(raised))


def _codes() -> list[Any]:
    found = []
    for shape in MODEL.error_shapes:
        metadata = shape.metadata.get("error", {})
        if metadata and shape.name != "OptedOutException":  # of text messages
            found.append(pytest.param(metadata, id=shape.name))
    return found


@pytest.mark.parametrize("metadata", _codes())
def test_every_fault_of_awss_model_is_in_the_table(metadata: dict[str, Any]) -> None:
    row = lookup(metadata["code"], "sns")
    assert row in SNS_TABLE
    assert row is not None
    assert row.status == metadata["httpStatusCode"]


def test_a_code_of_both_services_is_spelled_as_the_one_that_is_asked() -> None:
    code = "TooManyEntriesInBatchRequest"
    assert fault(code).query_code == f"AWS.SimpleQueueService.{code}"
    assert fault(code, service="sns").query_code == code
    assert type(from_answer(code, status=400, service="sns")) is RefusedError


def test_what_was_not_found_decides_the_class() -> None:
    for service in ("sqs", "sns"):
        topic = from_answer("NotFound", "Topic does not exist", status=404, service=service)
        assert type(topic) is TopicDoesNotExist
        gone = from_answer("NotFound", "Subscription does not exist", status=404, service=service)
        assert type(gone) is SubscriptionDoesNotExist


def test_too_much_and_what_may_pass() -> None:
    assert type(from_answer("Throttled", status=429, service="sns")) is ThrottledError
    assert type(from_answer("KMSThrottling", status=400, service="sns")) is ThrottledError
    assert type(from_answer("InternalError", status=500, service="sns")) is TransientError
    assert type(from_answer("ConcurrentAccess", status=400, service="sns")) is TransientError
