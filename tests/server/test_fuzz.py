"""Random bytes and damaged requests: the codecs raise only what they declare, and the endpoint
always answers as AWS would."""

from __future__ import annotations

import asyncio
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.errors import PumphouseError, ServiceError, UnexpectedAnswerError
from pumphouse.protocol import sqs_json, sqs_query
from pumphouse.protocol.operations import (
    SQS_OPERATIONS,
    CreateQueue,
    MessageAttributeValue,
    ReceiveMessage,
    SendMessage,
)
from pumphouse.server.wire import Endpoint, Request

unhurried = settings(deadline=None)  # a busy machine is no failure
TARGETS = [f"AmazonSQS.{action}" for action in SQS_OPERATIONS]
NAMES = sorted(
    {
        field.encode_name
        for operation in SQS_OPERATIONS.values()
        for field in msgspec.structs.fields(operation)
    }
    | {"Id", "MessageBody", "DataType", "StringValue", "BinaryValue", "ReceiptHandle", "__type"}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=12,
)
HEADERS = st.dictionaries(
    st.sampled_from(["x-amzn-query-error", "x-amzn-errortype", "content-type"]),
    st.text(max_size=30),
)
VALID = json.dumps(
    {
        "QueueUrl": "http://127.0.0.1/000000000000/q",
        "Entries": [
            {
                "Id": "1",
                "MessageBody": "body \u00e9",
                "DelaySeconds": 1,
                "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "AAE="}},
            }
        ],
    }
).encode()
FORM_WORDS = [
    *("Action", "Attribute", "Entries", "MessageAttribute", "Name", "Value", "Tag", "Key"),
    *("SendMessageBatchRequestEntry", "member", "entry", "DataType", "0", "1", "2", "-1"),
]
FORM_NAMES = st.lists(
    st.sampled_from(FORM_WORDS + NAMES) | st.text(max_size=4), min_size=1, max_size=5
).map(".".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with some bytes changed, cut or doubled."""
    data = bytearray(VALID)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 6))
        data[position : position + length] = draw(st.binary(max_size=6))
    return bytes(data)


BODIES = st.binary(max_size=200) | damaged() | JSON.map(lambda value: json.dumps(value).encode())


@unhurried
@given(st.sampled_from(TARGETS) | st.text(max_size=20), BODIES)
def test_json_requests(target: str, body: bytes) -> None:
    outcome = _outcome(sqs_json.decode_request, target, body)
    if isinstance(outcome, Exception):
        assert isinstance(outcome, ServiceError)
        assert 400 <= outcome.status < 500
    else:
        assert target.endswith(outcome.action)


def _outcome(work: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or what it raises on purpose."""
    try:
        return work(*arguments)
    except PumphouseError as error:
        return error


@unhurried
@given(st.sampled_from(list(SQS_OPERATIONS.values())), st.integers(100, 599), HEADERS, BODIES)
def test_json_answers(
    kind: type[Any], status: int, headers: Mapping[str, str], body: bytes
) -> None:
    operation = msgspec.convert(_least(kind), kind)
    outcome = _outcome(sqs_json.decode_answer, operation, status, headers, body)
    if isinstance(outcome, Exception):
        assert isinstance(outcome, ServiceError | UnexpectedAnswerError)
    else:
        assert 200 <= status < 300
        assert isinstance(outcome, kind.result)


def _least(kind: type[Any]) -> dict[str, Any]:
    values: dict[Any, Any] = {str: "x", int: 1}
    return {
        field.encode_name: values.get(field.type, [] if "list" in str(field.type) else {})
        for field in msgspec.structs.fields(kind)
        if field.required
    }


@unhurried
@given(st.lists(st.tuples(FORM_NAMES, st.text(max_size=12)), max_size=12), st.binary(max_size=20))
def test_forms(pairs: list[tuple[str, str]], more: bytes) -> None:
    form = urlencode(pairs, errors="replace").encode() + more
    for action in (b"", b"Action=SendMessageBatch&", b"Action=CreateQueue&"):
        outcome = _outcome(sqs_query.decode_request, action + form)
        if isinstance(outcome, Exception):
            assert isinstance(outcome, ServiceError)
            assert 400 <= outcome.status < 500
            ElementTree.fromstring(sqs_query.encode_error(outcome, "id").decode())


@unhurried
@given(
    st.sampled_from(["POST", "GET", "PUT", "HEAD"]),
    st.text(max_size=10),
    st.binary(max_size=40),
    st.dictionaries(
        st.sampled_from([b"x-amz-target", b"content-type", b"host", b"authorization"]),
        st.sampled_from([target.encode() for target in TARGETS])
        | st.sampled_from([b"application/x-amz-json-1.0", b"application/x-www-form-urlencoded"])
        | st.binary(max_size=20),
    ),
    BODIES,
)
def test_the_endpoint_always_answers_as_aws_would(
    method: str, path: str, query: bytes, headers: dict[bytes, bytes], body: bytes
) -> None:
    async def answer() -> Any:
        clock = VirtualClock()
        account = Account(clock=clock)
        await account.execute(CreateQueue("q"))
        request = Request(
            method,
            "/" + path,
            quote("/" + path),
            query,
            headers,
            [*headers.items()],
            body,
            "http://x",
        )
        answering = asyncio.create_task(Endpoint(account).answer(request))
        await clock.run_until(answering.done)
        return await answering

    status, fields, content = asyncio.run(answer())
    assert status == 200 or 400 <= status < 500, (status, content)
    kind = dict(fields).get(b"content-type")
    if kind == b"text/xml":
        ElementTree.fromstring(content.decode())
    elif status != 200 and kind is not None:
        assert json.loads(content)["__type"]


# --- there and back -----------------------------------------------------------------------------

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff").filter(
        lambda char: char >= " " or char in "\t\n\r"
    ),
    min_size=1,
    max_size=40,
)
ATTRIBUTES = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_-]{1,10}", fullmatch=True),
    st.builds(MessageAttributeValue, st.just("String"), TEXT)
    | st.builds(
        MessageAttributeValue, st.just("Binary"), binary_value=st.binary(min_size=1, max_size=20)
    ),
    min_size=1,
    max_size=3,
)


@unhurried
@given(TEXT, ATTRIBUTES, st.integers(0, 900) | st.none())
def test_what_is_written_is_read_over_both_protocols(
    body: str, attributes: dict[str, MessageAttributeValue], delay: int | None
) -> None:
    operation = SendMessage("http://x/1/q", body, delay, attributes)
    assert sqs_json.decode_request(*sqs_json.encode_request(operation)) == operation
    form = [("Action", "SendMessage"), ("QueueUrl", "http://x/1/q"), ("MessageBody", body)]
    if delay is not None:
        form.append(("DelaySeconds", str(delay)))
    for number, (name, value) in enumerate(attributes.items(), 1):
        path = f"MessageAttribute.{number}"
        form += [(f"{path}.Name", name), (f"{path}.Value.DataType", value.data_type)]
        if value.string_value is not None:
            form.append((f"{path}.Value.StringValue", value.string_value))
        else:
            encoded = msgspec.to_builtins(value)["BinaryValue"]
            form.append((f"{path}.Value.BinaryValue", encoded))
    assert sqs_query.decode_request(urlencode(form).encode()) == operation


@unhurried
@given(TEXT, ATTRIBUTES)
def test_an_answer_in_xml_holds_every_character(
    body: str, attributes: dict[str, MessageAttributeValue]
) -> None:
    async def received() -> bytes:
        account = Account(clock=VirtualClock())
        url = (await account.execute(CreateQueue("q"))).queue_url
        await account.execute(SendMessage(url, body, message_attributes=attributes))
        receive = ReceiveMessage(url, message_attribute_names=["All"])
        return sqs_query.encode_answer("ReceiveMessage", await account.execute(receive), "id")

    document = ElementTree.fromstring(asyncio.run(received()).decode())
    tag = f"{{{sqs_query.NAMESPACE}}}"
    (message,) = document.iter(f"{tag}Message")
    assert message.findtext(f"{tag}Body") == body
    texts = {
        each.findtext(f"{tag}Name"): each.findtext(f"{tag}Value/{tag}StringValue")
        for each in message.iter(f"{tag}MessageAttribute")
    }
    assert texts == {name: value.string_value for name, value in attributes.items()}


def test_a_lone_surrogate_is_refused_before_it_is_sent() -> None:
    with pytest.raises(PumphouseError, match=r"U\+D800"):
        sqs_json.encode_request(SendMessage("u", "a\ud800"))
