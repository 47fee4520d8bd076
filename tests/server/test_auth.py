"""Requests that have to be signed: AWS's own errors for those that aren't, in both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sigv4 import Keys, amz_date, sign
from pumphouse.server.auth import Gate
from pumphouse.server.wire import Endpoint, Request
from support.query_model import client
from support.raw_http import ask, post
from support.serving import Served, serving

KEYS = Keys("AKIDGATE", "the secret of the gate")
NOW = 1_767_225_600.0


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    with serving(Account(), gate=Gate(KEYS)) as served:
        served.run(served.backend.execute(CreateQueue("plain")))
        yield served


@pytest.fixture(params=["json", "query"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _client(guarded: Served, protocol: str, **options: Any) -> Any:
    options.setdefault("aws_access_key_id", KEYS.access_key_id)
    options.setdefault("aws_secret_access_key", KEYS.secret_access_key)
    return client(protocol, endpoint_url=guarded.url, **options)


def _error(sqs: Any) -> tuple[str, int, str]:
    with pytest.raises(ClientError) as caught:
        sqs.list_queues()
    response = caught.value.response
    sqs.close()
    error = response["Error"]
    return error["Code"], response["ResponseMetadata"]["HTTPStatusCode"], error["Message"]


def test_what_is_signed_well_passes(guarded: Served, protocol: str) -> None:
    sqs = _client(guarded, protocol)
    url = sqs.get_queue_url(QueueName="plain")["QueueUrl"]
    body = "é 🚰 & = + % \r\n"
    sqs.send_message(QueueUrl=url, MessageBody=body)
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == body
    sqs.close()


def test_a_wrong_secret(guarded: Served, protocol: str) -> None:
    code, status, words = _error(_client(guarded, protocol, aws_secret_access_key="another"))
    assert (code, status) == ("SignatureDoesNotMatch", 403)
    assert "does not match the signature you provided" in words


def test_an_unknown_key(guarded: Served, protocol: str) -> None:
    code, status, words = _error(_client(guarded, protocol, aws_access_key_id="AKIDOTHER"))
    assert (code, status) == ("InvalidClientTokenId", 403)
    assert words == "The security token included in the request is invalid."


def test_a_session_token_that_does_not_belong_to_the_key(guarded: Served, protocol: str) -> None:
    code, _, _ = _error(_client(guarded, protocol, aws_session_token="token"))
    assert code == "InvalidClientTokenId"


async def test_no_signature_at_all(guarded: Served) -> None:
    answer = await ask(guarded.port, post({}, target="AmazonSQS.ListQueues"))
    assert answer.status == 403
    assert answer.json() == {
        "__type": "com.amazon.coral.service#MissingAuthenticationTokenException",
        "message": "Request is missing Authentication Token",
    }
    answer = await ask(guarded.port, post("Action=ListQueues"))
    assert answer.status == 403
    assert b"<Code>MissingAuthenticationToken</Code>" in answer.body


@pytest.mark.parametrize(
    "value", ["Basic dXNlcjpwYXNz", "AWS4-HMAC-SHA256 Credential=AKIDGATE", "x" * 5000]
)
async def test_a_signature_that_is_none(guarded: Served, value: str) -> None:
    request = post({}, target="AmazonSQS.ListQueues", headers={"Authorization": value})
    answer = await ask(guarded.port, request)
    assert answer.status == 403
    assert answer.json()["__type"].endswith("IncompleteSignatureException")
    assert value not in answer.body.decode()


async def test_health_needs_no_signature(guarded: Served) -> None:
    assert (await ask(guarded.port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")).status == 200


# --- by the clock -------------------------------------------------------------------------------


def _request(date: float, service: str = "sqs", **changed: Any) -> Request:
    body = b"{}"
    headers = {
        "host": "127.0.0.1",
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "AmazonSQS.ListQueues",
    }
    headers |= {
        name.lower(): value
        for name, value in sign(
            KEYS, "us-east-1", service, amz_date(date), "POST", "http://127.0.0.1/", headers, body
        ).items()
    }
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = Request("POST", "/", "/", b"", dict(fields), fields, body, "http://127.0.0.1:1")
    return request._replace(**changed)


async def _answer(request: Request) -> tuple[int, str]:
    clock = VirtualClock(NOW)
    endpoint = Endpoint(Account(clock=clock), gate=Gate(KEYS, clock=clock))
    status, _, body = await endpoint.answer(request)
    return status, body.decode()


@pytest.mark.parametrize("minutes", [0, 14.9, -14.9])
async def test_a_date_within_fifteen_minutes(minutes: float) -> None:
    assert await _answer(_request(NOW + minutes * 60)) == (200, "{}")


async def test_a_date_that_is_too_old() -> None:
    status, body = await _answer(_request(NOW - 16 * 60))
    assert status == 403
    assert "InvalidSignatureException" in body
    assert (
        "Signature expired: 20251231T234400Z is now earlier than 20251231T234500Z "
        "(20260101T000000Z - 15 min.)" in body
    )


async def test_a_date_that_is_too_early() -> None:
    status, body = await _answer(_request(NOW + 20 * 60))
    assert status == 403
    assert "Signature not yet current: 20260101T002000Z is still later than" in body


async def test_what_was_changed_after_signing() -> None:
    for change in (
        {"body": b'{"MaxResults": 1}'},
        {"method": "GET"},
        {"raw_path": "/other"},
        {"query": b"a=b"},
    ):
        status, body = await _answer(_request(NOW, **change))
        assert status == 403, change
        assert "InvalidSignatureException" in body


async def test_an_old_request_with_a_second_date_is_no_new_one() -> None:
    old = _request(NOW - 7 * 3600)
    date = (b"x-amz-date", amz_date(NOW).encode())
    for fields in ([*old.fields, date], [date, *old.fields]):
        status, body = await _answer(old._replace(fields=fields, headers=dict(fields)))
        assert status == 403
        assert "InvalidSignatureException" in body


async def test_a_target_that_was_not_signed() -> None:
    signed = _request(NOW)
    headers = {"host": "127.0.0.1", "content-type": "application/x-amz-json-1.0"}
    added = sign(
        KEYS, "us-east-1", "sqs", amz_date(NOW), "POST", "http://127.0.0.1/", headers, b"{}"
    )
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    fields += [(name.lower().encode(), value.encode()) for name, value in added.items()]
    fields.append((b"x-amz-target", b"AmazonSQS.ListQueues"))
    status, body = await _answer(signed._replace(fields=fields, headers=dict(fields)))
    assert status == 403
    assert "InvalidSignatureException" in body


async def test_a_signature_for_another_service() -> None:
    status, body = await _answer(_request(NOW, service="sns"))
    assert status == 403
    assert "Credential should be scoped to correct service: 'sqs'." in body


async def test_a_date_that_is_none() -> None:
    request = _request(NOW)
    fields = [(n, b"yesterday" if n == b"x-amz-date" else v) for n, v in request.fields]
    status, body = await _answer(request._replace(fields=fields, headers=dict(fields)))
    assert status == 403
    assert "IncompleteSignature" in body


def test_nothing_shows_the_secret() -> None:
    assert KEYS.secret_access_key not in repr(Gate(KEYS)) + repr(vars(Gate(KEYS)))
