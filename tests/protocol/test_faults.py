"""The table of faults: against AWS's model, there and back, and which of three things decides."""

from __future__ import annotations

import botocore.session
import pytest

from pumphouse.errors import (
    ClockSkewError,
    OverLimit,
    QueueDoesNotExist,
    ReceiptHandleExpired,
    RefusedConfigError,
    RefusedError,
    ServiceError,
    ThrottledError,
    TransientError,
)
from pumphouse.protocol.faults import TABLE, Fault, fault, from_answer, lookup

MODEL = botocore.session.get_session().get_service_model("sqs")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.code)
def test_a_fault_is_the_same_there_and_back(row: Fault) -> None:
    raised = fault(row.code, "words")
    assert (type(raised), raised.code, raised.query_code) == (row.error, row.code, row.query_code)
    assert (raised.status, raised.sender_fault) == (row.status, row.status < 500)
    for spelling in (row.code, row.json_type, row.json_type.partition("#")[2], row.query_code):
        read = from_answer(spelling, "words", status=raised.status)
        assert type(read) is type(raised), spelling
        assert vars(read) == {**vars(raised), "query_code": row.query_code}, spelling


def test_no_spelling_means_two_faults() -> None:
    meanings: dict[str, str] = {}
    for row in TABLE:
        for spelling in {row.code, row.json_type, row.query_code}:
            assert meanings.setdefault(spelling, row.code) == row.code, spelling


@pytest.mark.parametrize("shape", MODEL.error_shapes, ids=lambda shape: shape.name)
def test_every_fault_of_awss_model_is_in_the_table(shape: object) -> None:
    row = lookup(shape.name)  # type: ignore[attr-defined]
    assert row is not None
    assert row.json_type == f"com.amazonaws.sqs#{shape.name}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "code",
    [
        "InvalidMessageContents",
        "InvalidParameterValue",
        "MissingParameter",
        "InvalidAttributeName",
        "InvalidAttributeValue",
    ],
)
def test_a_refused_message_stays_refused(code: str) -> None:
    error = from_answer(code, status=400)
    assert isinstance(error, RefusedError)
    assert not isinstance(error, RefusedConfigError)


@pytest.mark.parametrize(
    "code",
    [
        "AccessDenied",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
    ],
)
def test_a_refused_set_up_is_for_an_operator(code: str) -> None:
    assert isinstance(from_answer(code, status=400), RefusedConfigError)


@pytest.mark.parametrize(
    "code",
    [
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "TooManyRequestsException",
        "ServiceUnavailable",
        "KmsThrottled",
        "KMS.ThrottlingException",
        "OverLimit",
    ],
)
@pytest.mark.parametrize(("status", "sender_fault"), [(400, True), (403, True), (500, False)])
def test_throttling_is_told_by_its_code(code: str, status: int, sender_fault: bool) -> None:
    error = from_answer(code, status=status, sender_fault=sender_fault)
    assert isinstance(error, ThrottledError)
    assert error.sender_fault is sender_fault


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NeverHeardOf", 400, TransientError),
        ("NeverHeardOf", 403, TransientError),
        ("NeverHeardOf", 500, TransientError),
        ("NeverHeardOf", 429, ThrottledError),
        ("NeverHeardOf", 503, ThrottledError),
        ("InternalError", 500, TransientError),
        ("InternalError", 503, ThrottledError),
        ("InvalidParameterValue", 503, RefusedError),
        ("ExpiredToken", 403, TransientError),
        ("", 500, TransientError),
    ],
)
@pytest.mark.parametrize("sender_fault", [True, False])
def test_code_then_status_and_blame_never(
    code: str, status: int, kind: type[ServiceError], sender_fault: bool
) -> None:
    assert type(from_answer(code, status=status, sender_fault=sender_fault)) is kind


def test_an_unknown_code_keeps_its_name_without_the_namespace() -> None:
    error = from_answer("com.amazonaws.sqs#BrandNew", "m", status=400, request_id="r")
    assert (error.code, error.query_code, error.message) == ("BrandNew", "BrandNew", "m")
    assert error.request_id == "r"


def test_the_query_code_of_the_header_is_taken_where_the_type_is_unknown() -> None:
    error = from_answer(
        "com.amazonaws.sqs#SomethingNewer",
        status=400,
        query_code="AWS.SimpleQueueService.NonExistentQueue",
    )
    assert type(error) is QueueDoesNotExist


def test_a_fault_has_awss_words_where_they_are_always_the_same() -> None:
    assert fault("QueueDoesNotExist").message == "The specified queue does not exist."
    row = lookup("QueueDoesNotExist")
    assert row is not None
    assert row.query_message == "The specified queue does not exist for this wsdl version."


@pytest.mark.parametrize(
    "message",
    [
        "Signature expired: 20230101T000000Z is now earlier than 20230101T001500Z",
        "Signature not yet current: 20230101T003000Z is still later than 20230101T001500Z",
    ],
)
def test_a_skewed_clock_is_told_from_a_wrong_key(message: str) -> None:
    skewed = from_answer("InvalidSignatureException", message, status=403)
    assert type(skewed) is ClockSkewError
    wrong = from_answer("InvalidSignatureException", "does not match", status=403)
    assert type(wrong) is RefusedConfigError


@pytest.mark.parametrize(
    "reason",
    [
        "The receipt handle has expired.",
        "Message does not exist or is not available for visibility timeout change.",
    ],
)
def test_a_lease_that_is_over_is_told_by_its_words(reason: str) -> None:
    words = f"Value h for parameter ReceiptHandle is invalid. Reason: {reason}"
    assert type(from_answer("InvalidParameterValue", words, status=400)) is ReceiptHandleExpired
    assert type(from_answer("InvalidParameterValue", "else", status=400)) is RefusedError


def test_the_table_says_whose_limit_it_is() -> None:
    assert type(fault("OverLimit")) is OverLimit
    assert fault("OverLimit").status == 403
