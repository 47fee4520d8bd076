"""SNS's query protocol: there and back, against botocore's own serializer, and XML from outside."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode

import botocore.session
import msgspec
import pytest
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.errors import (
    RefusedError,
    ServiceError,
    TopicDoesNotExist,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.protocol import sns_query, xml_reader
from pumphouse.protocol.faults import fault
from pumphouse.protocol.operations import DONE, BatchResultErrorEntry, MessageAttributeValue
from pumphouse.protocol.sns_operations import (
    SNS_OPERATIONS,
    AddTopicPermission,
    ConfirmSubscription,
    CreateTopic,
    CreateTopicResult,
    DeleteTopic,
    GetTopicAttributes,
    GetTopicAttributesResult,
    ListSubscriptions,
    ListSubscriptionsResult,
    ListTagsForResource,
    ListTagsForResourceResult,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
    PublishBatchResult,
    PublishBatchResultEntry,
    PublishResult,
    Subscribe,
    SubscriptionReference,
    Tag,
    TagResource,
    TagResourceResult,
    UntagResource,
)

MODEL = botocore.session.get_session().get_service_model("sns")
TOPIC = "arn:aws:sns:us-east-1:000000000000:topic"

ATTRIBUTES = {
    "text": MessageAttributeValue("String", "ä & <b> \"q\" 'a' +%=\n\t"),
    "bytes": MessageAttributeValue("Binary", binary_value=b"\x00\xff=&"),
}
OPERATIONS = [
    AddTopicPermission(TOPIC, "label", ["1", "2"], ["Publish"]),
    ConfirmSubscription(TOPIC, "token", "true"),
    CreateTopic("name", {"DisplayName": "a b", "FifoTopic": "true"}, [Tag("k", "v"), Tag("l", "")]),
    DeleteTopic(TOPIC),
    Publish("m&essage=ü+", TOPIC, subject="s", message_attributes=ATTRIBUTES, message_group_id="g"),
    PublishBatch(
        TOPIC,
        [
            PublishBatchRequestEntry("1", "m", message_attributes=ATTRIBUTES),
            PublishBatchRequestEntry("2", "n", message_structure="json"),
        ],
    ),
    Subscribe(TOPIC, "sqs", "arn", {"FilterPolicy": '{"a": ["b"]}'}, True),
    TagResource(TOPIC, [Tag("k", "v")]),
    UntagResource(TOPIC, ["k", "l"]),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.action)
def test_a_request_comes_back(operation: Any) -> None:
    target, form = sns_query.encode_request(operation)
    assert target == ""
    assert sns_query.decode_request(form) == operation


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.action)
def test_a_request_is_the_one_that_botocore_writes(operation: Any) -> None:
    parameters = msgspec.to_builtins(operation, builtin_types=(bytes,))
    serializer = create_serializer("query", include_validation=False)
    written = serializer.serialize_to_request(parameters, MODEL.operation_model(operation.action))
    _, form = sns_query.encode_request(operation)
    assert dict(parse_qsl(form.decode(), keep_blank_values=True)) == {
        name: str(value) for name, value in written["body"].items()
    }


RESULTS = [
    (AddTopicPermission(TOPIC, "l", ["1"], ["Publish"]), DONE),
    (CreateTopic("n"), CreateTopicResult(TOPIC)),
    (GetTopicAttributes(TOPIC), GetTopicAttributesResult({"Policy": '{"<a>": "&amp;"}', "b": ""})),
    (
        ListSubscriptions(),
        ListSubscriptionsResult([SubscriptionReference("a", "o", "sqs", "e", TOPIC)], "token"),
    ),
    (ListTagsForResource(TOPIC), ListTagsForResourceResult([])),
    (Publish("m"), PublishResult("id", "10000")),
    (
        PublishBatch(TOPIC, []),
        PublishBatchResult(
            [PublishBatchResultEntry("1", "m")],
            [BatchResultErrorEntry("2", True, "InvalidParameter", "words")],
        ),
    ),
    (TagResource(TOPIC, []), TagResourceResult()),
]


@pytest.mark.parametrize(("operation", "result"), RESULTS, ids=lambda each: type(each).__name__)
def test_an_answer_comes_back_to_us_and_to_botocore(operation: Any, result: Any) -> None:
    document = sns_query.encode_answer(operation.action, result, "request-1")
    assert sns_query.decode_answer(operation, 200, {}, document) == result
    parsed = create_parser("query").parse(
        {"status_code": 200, "headers": {}, "body": document},
        MODEL.operation_model(operation.action).output_shape,
    )
    metadata = parsed.pop("ResponseMetadata")
    assert metadata["RequestId"] == "request-1"
    expected = {
        each.encode_name: msgspec.to_builtins(value)
        for each in msgspec.structs.fields(result)
        if (value := getattr(result, each.name)) is not None
    }
    assert parsed == expected


def test_an_error_comes_back_to_us_and_to_botocore() -> None:
    error = fault("NotFound", "Topic does not <exist>", "sns")
    document = sns_query.encode_error(error, "request-1")
    with pytest.raises(TopicDoesNotExist, match="does not <exist>") as raised:
        sns_query.decode_answer(DeleteTopic(TOPIC), 404, {}, document)
    assert raised.value.request_id == "request-1"
    assert (raised.value.status, raised.value.sender_fault) == (404, True)
    parsed = create_parser("query").parse(
        {"status_code": 404, "headers": {}, "body": document}, None
    )
    assert parsed["Error"] == {
        "Type": "Sender",
        "Code": "NotFound",
        "Message": "Topic does not <exist>",
    }


# --- what is left out, and what is wrong --------------------------------------------------------


def _refused(form: bytes) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        sns_query.decode_request(form)
    return raised.value


def test_a_parameter_that_is_left_out() -> None:
    error = _refused(b"Action=DeleteTopic&Version=2010-03-31")
    assert type(error) is RefusedError
    assert str(error) == (
        "InvalidParameter: Invalid parameter: TopicArn Reason: no value for required parameter"
    )
    error = _refused(b"Action=PublishBatch&TopicArn=a&PublishBatchRequestEntries.member.1.Id=1")
    assert error.code == "ValidationError"
    assert "Value null at 'publishBatchRequestEntries.1.member.message'" in error.message


@pytest.mark.parametrize(
    ("form", "code"),
    [
        (b"", "MissingAction"),
        (b"Action=Nothing", "InvalidAction"),
        (b"Action=Publish&Message.part=1&Message=2", "MalformedQueryString"),
        (b"Action=CreateTopic&Name=n&Attributes=x", "MalformedQueryString"),
        (b"Action=CreateTopic&Name=n&Attributes.entry=x", "MalformedQueryString"),
        (b"Action=CreateTopic&Name=n&Attributes.entry.1=x", "MalformedQueryString"),
        (b"Action=CreateTopic&Name=n&Attributes.entry.x.key=x", "MalformedQueryString"),
        (b"Action=CreateTopic&Name=n&Attributes.entry.1.key=x", "MalformedQueryString"),
        (b"Action=TagResource&ResourceArn=n&Tags.member.1=x", "MalformedQueryString"),
        (
            b"Action=Subscribe&TopicArn=a&Protocol=p&ReturnSubscriptionArn=yes",
            "InvalidParameterValue",
        ),
        (
            b"Action=Publish&Message=m&MessageAttributes.entry.1.Name=n"
            b"&MessageAttributes.entry.1.Value.BinaryValue=!",
            "InvalidParameterValue",
        ),
    ],
)
def test_a_form_that_is_wrong(form: bytes, code: str) -> None:
    assert _refused(form).code == code


def test_lists_that_sqs_alone_has_are_passed_over() -> None:
    form = (
        b"Action=Publish&Message=m&MessageAttributes.entry.1.Name=n"
        b"&MessageAttributes.entry.1.Value.DataType=String"
        b"&MessageAttributes.entry.1.Value.StringListValues.member.1=x"
    )
    operation = sns_query.decode_request(form)
    assert operation == Publish("m", message_attributes={"n": MessageAttributeValue("String")})


def test_a_lone_surrogate_is_refused_before_any_request() -> None:
    with pytest.raises(UsageError, match=r"U\+D800, which SNS does not take"):
        sns_query.encode_request(Publish("a\ud800"))


@given(
    st.binary(max_size=300)
    | st.text("ActionVersion=&.%1member+Publish", max_size=80).map(str.encode)
)
def test_any_form_is_read_or_refused(form: bytes) -> None:
    try:
        sns_query.decode_request(form)
    except ServiceError as error:
        assert error.sender_fault  # noqa: PT017


@given(
    st.dictionaries(
        st.sampled_from(["Message", "TopicArn", "Subject", "MessageAttributes.entry.1.Name"]),
        st.text(max_size=20),
    )
)
def test_any_text_comes_through_a_form(fields: dict[str, str]) -> None:
    try:
        form = urlencode({"Action": "Publish", **fields}).encode()
    except UnicodeEncodeError:
        return
    try:
        operation: Any = sns_query.decode_request(form)
    except ServiceError:
        return
    assert operation.message == fields["Message"]


# --- XML from outside ---------------------------------------------------------------------------

_LAUGHS = b"".join(
    b'<!ENTITY l%d "%s">' % (number, b"&l%d;" % (number - 1) * 10) for number in range(1, 10)
)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "no element found"),
        (b"not xml", "syntax error"),
        (b"<PublishResponse><PublishResult>", "no element found"),
        (b"<html><body>proxy</body></html>", "a document of html"),
        (b"<PublishResponse></PublishResponse>", "no PublishResult"),
        (b"<PublishResponse><PublishResult/></PublishResponse>", "no MessageId"),
        (b'<!DOCTYPE a [<!ENTITY l0 "ha">%b]><a>&l9;</a>' % _LAUGHS, "document type declaration"),
        (b'<!DOCTYPE a SYSTEM "http://127.0.0.1:1/x.dtd"><a/>', "document type declaration"),
        (b"<a>" * 40 + b"</a>" * 40, "too deep"),
        (b"<a>" + b"<b/>" * (xml_reader.MAX_ELEMENTS + 1) + b"</a>", "too many elements"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "unknown encoding"),
        (b"<a>&undefined;</a>", "undefined entity"),
    ],
)
def test_xml_that_is_no_answer(document: bytes, reason: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match=reason):
        sns_query.decode_answer(Publish("m"), 200, {}, document)


def test_an_answer_may_be_laid_out_in_any_way() -> None:
    document = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n'
        b'<s:PublishResponse xmlns:s="http://sns.amazonaws.com/doc/2010-03-31/">\n'
        b"  <s:PublishResult>\n    <s:MessageId><![CDATA[a&b]]>&#65;</s:MessageId>\n"
        b"  </s:PublishResult>\n</s:PublishResponse>"
    )
    assert sns_query.decode_answer(Publish("m"), 200, {}, document) == PublishResult("a&bA")


def test_an_error_without_a_code_is_no_answer() -> None:
    for body in (b"<ErrorResponse/>", b"<html/>", b"gateway", json.dumps({"a": 1}).encode()):
        with pytest.raises(UnexpectedAnswerError):
            sns_query.decode_answer(Publish("m"), 503, {}, body)


def test_a_batch_that_answers_nothing_is_no_answer() -> None:
    document = sns_query.encode_answer("PublishBatch", PublishBatchResult(), "r")
    with pytest.raises(UnexpectedAnswerError, match="neither"):
        sns_query.decode_answer(PublishBatch(TOPIC, []), 200, {}, document)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for status in (200, 400):
        with pytest.raises((UnexpectedAnswerError, ServiceError)):
            sns_query.decode_answer(Publish("m"), status, {}, body)


def test_every_action_has_a_form() -> None:
    for action, kind in SNS_OPERATIONS.items():
        names = [each for each in msgspec.structs.fields(kind) if each.required]
        operation = kind(**{each.name: [] if "list" in str(each.type) else "x" for each in names})
        _, form = sns_query.encode_request(operation)
        assert sns_query.decode_request(form) == operation, action
