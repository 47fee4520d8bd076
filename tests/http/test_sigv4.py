"""Signatures: byte for byte botocore's, and read back by the checker."""

from __future__ import annotations

import datetime as dt
from unittest import mock

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.protocol.sigv4 import (
    UNSIGNED_HEADERS,
    Keys,
    Signer,
    amz_date,
    host_header,
    matches,
    parse_authorization,
    payload_hash,
    sign,
    template,
)

MOMENT = dt.datetime(2026, 2, 3, 4, 5, 6, tzinfo=dt.UTC)

printable = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/,"), min_size=1
)
path_text = st.text(
    st.one_of(
        st.sampled_from("/./.%~-_+*'()!$&=:@ aZ9é漢"),
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="?#\\[]"),
    ),
    max_size=30,
)
query_text = st.text(
    st.one_of(
        st.sampled_from("&&==%~-_+ aZ9é"),
        st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="#[]"),
    ),
    max_size=30,
)
header_name = st.one_of(
    st.sampled_from(sorted(UNSIGNED_HEADERS)),
    st.text(st.sampled_from("abcXYZ019-_"), min_size=1, max_size=12),
).filter(lambda name: name.lower() not in {"date", "host", "authorization"})
header_value = st.text(
    st.one_of(st.sampled_from(" \t  aZ;:,\"'"), st.characters(exclude_categories=("Cs", "Cc"))),
    max_size=20,
)


def by_botocore(
    keys: Keys, region: str, service: str, method: str, url: str, headers: dict[str, str], body
) -> dict[str, str]:
    request = AWSRequest(method=method, url=url, data=body, headers=headers)
    credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
    with mock.patch("botocore.auth.get_current_datetime", return_value=MOMENT):
        SigV4Auth(credentials, service, region).add_auth(request)
    return dict(request.headers.items())


@given(
    method=st.sampled_from(["POST", "GET", "put", "Delete"]),
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(["sqs.eu-west-1.amazonaws.com", "LOCALHOST", "127.0.0.1", "[::1]"]),
    port=st.sampled_from(["", ":80", ":443", ":9324"]),
    path=path_text,
    query=query_text,
    headers=st.dictionaries(header_name, header_value, max_size=6),
    body=st.binary(max_size=100),
    secret=printable,
    token=st.one_of(st.none(), printable),
    region=st.sampled_from(["eu-west-1", "cn-north-1", "us-gov-west-1"]),
    service=st.sampled_from(["sqs", "sns", "s3x"]),
)
@settings(max_examples=50, deadline=None)
def test_it_signs_as_botocore_does(
    method, scheme, host, port, path, query, headers, body, secret, token, region, service
) -> None:
    headers = {k: v for i, (k, v) in enumerate(headers.items()) if k.lower() not in {
        other.lower() for other in list(headers)[:i]
    }}  # fmt: skip
    url = f"{scheme}://{host}{port}/{path}" + (f"?{query}" if query else "")
    keys = Keys("AKIDEXAMPLE", secret, token)
    expected = by_botocore(keys, region, service, method, url, headers, body)
    ours = sign(keys, region, service, amz_date(MOMENT.timestamp()), method, url, headers, body)
    assert ours["Authorization"] == expected["Authorization"]
    assert ours["X-Amz-Date"] == expected["X-Amz-Date"]
    assert ours.get("X-Amz-Security-Token") == expected.get("X-Amz-Security-Token")


def test_a_signer_and_a_template_give_the_same_over_many_days() -> None:
    keys = Keys("AKIDEXAMPLE", "secret/with+odd=characters", "token==")
    signer = Signer(keys, "eu-west-1", "sqs")
    headers = {"Host": "sqs.eu-west-1.amazonaws.com", "X-Amz-Target": "AmazonSQS.SendMessage"}
    form = template("POST", "/", "", [*headers.items(), ("X-Amz-Security-Token", "token==")])
    for day in (0, 86_399, 86_400, 1_900_000_000, 5):
        date = amz_date(day)
        whole = sign(keys, "eu-west-1", "sqs", date, "POST", "https://x/", headers, b"{}")
        assert signer.authorization(form, date, payload_hash(b"{}")) == whole["Authorization"]


def test_a_signature_is_checked_and_anything_changed_is_noticed() -> None:
    keys = Keys("AKIDEXAMPLE", "secret")
    url = "http://127.0.0.1:9324/?b=2&a=1"
    headers = {"host": host_header(url), "content-type": "x"}
    date = amz_date(MOMENT.timestamp())
    headers |= sign(keys, "us-east-1", "sqs", date, "POST", url, headers, b"body")
    claim = parse_authorization(headers["Authorization"])
    assert claim is not None
    assert (claim.access_key_id, claim.region, claim.service) == (
        "AKIDEXAMPLE",
        "us-east-1",
        "sqs",
    )

    def check(secret="secret", method="POST", path="/", query="b=2&a=1", body=b"body", **changed):
        carried = [*(headers | {"user-agent": "any"} | changed).items()]
        return matches(claim, secret, method, path, query, carried, body)

    assert check()
    assert check(query="a=1&b=2")
    assert not check(secret="other")
    assert not check(method="GET")
    assert not check(path="/x")
    assert not check(query="a=2")
    assert not check(body=b"bodY")
    assert not check(**{"content-type": "y"})
    assert not check(**{"X-Amz-Date": "20260203T040507Z"})
    assert not check(**{"X-Amz-Date": "20260204T040506Z"})
    assert not check(**{"x-amz-content-sha256": payload_hash(b"another")})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Basic abc",
        "AWS4-HMAC-SHA256 Credential=a/20260101/r/s/aws4_request",
        "AWS4-HMAC-SHA256 Credential=a/b/20260101/r/s/aws4_request, SignedHeaders=h, Signature="
        + "0" * 64,
        "AWS4-HMAC-SHA256 Credential=a/20260101/r/s/aws4_request, SignedHeaders=h, Signature=0",
    ],
)
def test_what_is_no_authorization_is_none(text: str) -> None:
    assert parse_authorization(text) is None


def test_no_secret_in_a_repr() -> None:
    keys = Keys("AKIDEXAMPLE", "the-secret", "the-token")
    for text in (repr(keys), str(keys), f"{keys}", repr(Signer(keys, "eu-west-1", "sqs"))):
        assert "the-" not in text
        assert "AKID" in text
