"""Verification: good, tampered, from elsewhere, expired; and what is fetched and kept."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from pumphouse.content import UndecodableError
from pumphouse.errors import NetworkError
from pumphouse.notifications import Notification, SignatureError, Verifier
from pumphouse.notifications.document import read
from pumphouse.notifications.signatures import MAX_CERTIFICATES
from pumphouse.protocol.operations import CreateQueue, ReceiveMessage
from pumphouse.protocol.sns_operations import CreateTopic, Publish, SetTopicAttributes, Subscribe

ARN = "arn:aws:sns:us-east-1:000000000000:t"


class Fetcher:
    """Certificates of an account, and which were asked for."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.asked: list[str] = []

    async def __call__(self, url: str, max_bytes: int) -> bytes:
        self.asked.append(url)
        await asyncio.sleep(0)
        return self.account.signing_certificate(url.rpartition("/")[2])


async def envelope(account: Account, version: str = "1", subject: str | None = None) -> str:
    """What a subscribed queue gets."""
    await account.execute(CreateTopic("t"))
    await account.execute(SetTopicAttributes(ARN, "SignatureVersion", version))
    await account.execute(CreateQueue("q"))
    await account.execute(Subscribe(ARN, "sqs", "arn:aws:sqs:us-east-1:000000000000:q"))
    await account.execute(Publish("héllo\n", ARN, subject=subject))
    [message] = (await account.execute(ReceiveMessage(account.queue("q").url))).messages
    return message.body


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("subject", [None, "Subject", "Grüße 件名"])
async def test_what_the_account_signed(
    account: Account, clock: VirtualClock, version: str, subject: str | None
) -> None:
    document = read(await envelope(account, version, subject))
    assert document.signature_version == version
    fetch = Fetcher(account)
    verifier = Verifier(fetch, clock=clock)
    await asyncio.gather(*(verifier.verify(document) for _ in range(5)))
    assert len(fetch.asked) == 1, "fetched once for all, and kept"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Message", "other"),
        ("MessageId", "1"),
        ("Subject", "put in"),
        ("Timestamp", "2026-01-01T00:00:00.000Z"),
        ("TopicArn", "arn:aws:sns:us-east-1:000000000000:u"),
        ("Type", "SubscriptionConfirmation"),
        ("SignatureVersion", "2"),
        ("SignatureVersion", "3"),
        ("Signature", "c2ln"),
        ("Signature", "not base64!"),
        ("Signature", ""),
    ],
)
async def test_what_was_tampered_with(
    account: Account, clock: VirtualClock, field: str, value: str
) -> None:
    fields = json.loads(await envelope(account))
    fields[field] = value
    with pytest.raises(SignatureError):
        await Verifier(Fetcher(account), clock=clock).verify(read(json.dumps(fields)))


@pytest.mark.parametrize(
    "url",
    [
        "http://sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com/x.txt",
        "https://sns.us-east-1.amazonaws.com.evil.example/x.pem",
        "https://evil.example/sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com@evil.example/x.pem",
        "https://evil@sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com:8443/x.pem",
        "https://sns.us-east-1.amazonaws.com:x/x.pem",
        "https://s3.us-east-1.amazonaws.com/x.pem",
        "https://sns.s3-us-west-2.amazonaws.com/x.pem",
        "https://sns.s3-website-us-west-2.amazonaws.com/x.pem",
        "https://sns.s3-accelerate.amazonaws.com/x.pem",
        "https://sns.s3.us-east-1.amazonaws.com/x.pem",
        "https://sns.execute-api.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.elb.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com.cn.evil.example/x.pem",
        "https://sns.us-east-1.amazonaws.com./x.pem",
        "https://SNS.us-east-1.amazonaws.com\\@evil.example/x.pem",
        "https://snsXus-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.eu/x.pem",
        "https://sns.us-east-1.amazonaws.com.cn/x.pem",
        "https://sns.cn-north-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.c2s.ic.gov/x.pem",
        "https://sns.eusc-de-east-1.amazonaws.eu.evil.example/x.pem",
        "https://sns.us-iso-east-1.c2s.ic.gov.evil.example/x.pem",
        "https://sns.amazonaws.com/x.pem",
        "https://us-east-1.amazonaws.com/x.pem",
        "https://sns.sns.us-east-1.amazonaws.com/x.pem",
        "https://sns.us-east-1.amazonaws.com/x.pem?y",
        "https://sns.us-east-1.amazonaws.com/?x.pem",
        "https://127.0.0.1/x.pem",
        "file:///etc/x.pem",
        "https://[/x.pem",
        "",
    ],
)
async def test_no_certificate_comes_from_elsewhere(
    account: Account, clock: VirtualClock, url: str
) -> None:
    document = msgspec.structs.replace(read(await envelope(account)), signing_cert_url=url)
    fetch = Fetcher(account)
    with pytest.raises(SignatureError):
        await Verifier(fetch, clock=clock).verify(document)
    assert not fetch.asked


@pytest.mark.parametrize(
    "url",
    [
        "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0.pem",
        "https://sns.eu-central-1.amazonaws.com:443/x.pem",
        "https://sns.cn-north-1.amazonaws.com.cn/x.pem",
        "https://sns.us-gov-west-1.amazonaws.com/x.pem",
        "https://sns.ap-southeast-7.amazonaws.com/x.pem",
        "https://sns.mx-central-1.amazonaws.com/x.pem",
        "https://sns.il-central-1.amazonaws.com/x.pem",
        "https://sns.cn-northwest-1.amazonaws.com.cn/x.pem",
        "https://sns.eusc-de-east-1.amazonaws.eu/x.pem",
        "https://sns.us-iso-east-1.c2s.ic.gov/x.pem",
        "https://sns.us-isob-east-1.sc2s.sgov.gov/x.pem",
        "https://sns.us-isof-south-1.csp.hci.ic.gov/x.pem",
        "https://sns.eu-isoe-west-1.cloud.adc-e.uk/x.pem",
    ],
)
def test_the_hosts_of_sns(url: str, account: Account) -> None:
    assert Verifier(Fetcher(account)).check_url(url) == url


def test_a_host_that_is_trusted_beside_them(account: Account) -> None:
    verifier = Verifier(Fetcher(account), trusted_hosts=["127.0.0.1:9324"])
    assert verifier.check_url("http://127.0.0.1:9324/x.pem")
    for url in (
        "http://127.0.0.1:9325/x.pem",
        "http://127.0.0.1/x.pem",
        "ftp://127.0.0.1:9324/x.pem",
    ):
        with pytest.raises(SignatureError):
            verifier.check_url(url)


async def test_an_expired_certificate(account: Account, clock: VirtualClock) -> None:
    document = read(await envelope(account))
    verifier = Verifier(Fetcher(account), clock=clock)
    await verifier.verify(document)
    await clock.advance(400 * 86_400)
    with pytest.raises(SignatureError, match="not valid now"):
        await verifier.verify(document)


async def test_a_certificate_is_fetched_again_after_a_day(
    account: Account, clock: VirtualClock
) -> None:
    document = read(await envelope(account))
    fetch = Fetcher(account)
    verifier = Verifier(fetch, clock=clock)
    await verifier.verify(document)
    await clock.advance(86_399)
    await verifier.verify(document)
    assert len(fetch.asked) == 1
    await clock.advance(2)
    await verifier.verify(document)
    assert len(fetch.asked) == 2


async def test_few_certificates_are_kept(account: Account, clock: VirtualClock) -> None:
    document = read(await envelope(account))
    pem = account.signing_certificate((document.signing_cert_url or "").rpartition("/")[2])

    async def fetch(url: str, max_bytes: int) -> bytes:
        return pem

    verifier = Verifier(fetch, clock=clock)
    for n in range(3 * MAX_CERTIFICATES):
        url = f"https://sns.us-east-1.amazonaws.com/{n}.pem"
        await verifier.verify(msgspec.structs.replace(document, signing_cert_url=url))
    assert repr(verifier) == f"<Verifier: {MAX_CERTIFICATES} certificates>"


@pytest.mark.parametrize("pem", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nx"])
async def test_what_is_no_certificate(account: Account, clock: VirtualClock, pem: bytes) -> None:
    async def fetch(url: str, max_bytes: int) -> bytes:
        return pem

    with pytest.raises(SignatureError, match="no certificate at"):
        await Verifier(fetch, clock=clock).verify(read(await envelope(account)))


async def test_a_certificate_that_can_not_be_had_now_is_no_verdict(
    account: Account, clock: VirtualClock
) -> None:
    document = read(await envelope(account))
    good = Fetcher(account)
    down = True

    async def fetch(url: str, max_bytes: int) -> bytes:
        if down:
            raise NetworkError("no way there")
        return await good(url, max_bytes)

    verifier = Verifier(fetch, clock=clock)
    with pytest.raises(NetworkError):
        await verifier.verify(document)
    down = False
    await verifier.verify(document)


async def test_a_certificate_of_another_kind_of_key(account: Account, clock: VirtualClock) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = datetime.fromtimestamp(clock.now(), UTC)
    pem = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )

    async def fetch(url: str, max_bytes: int) -> bytes:
        return pem

    with pytest.raises(SignatureError, match="no RSA key"):
        await Verifier(fetch, clock=clock).verify(read(await envelope(account)))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"Type": "Notification"}', "\udc00", "[" * 9999]
)
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(UndecodableError):
        read(text)


def test_a_binary_attribute_that_is_no_base64() -> None:
    document = Notification(
        "Notification", "1", ARN, "m", "t", message_attributes=_shown("Binary", "%%")
    )
    with pytest.raises(UndecodableError, match="no base64"):
        document.attributes()


def _shown(kind: str, value: str) -> Any:
    fields: dict[str, Any] = dict.fromkeys(("Type", "MessageId", "TopicArn", "Message"), "")
    fields |= {"Timestamp": "", "MessageAttributes": {"a": {"Type": kind, "Value": value}}}
    return read(json.dumps(fields)).message_attributes


async def test_a_document_is_good_for_a_while(account: Account, clock: VirtualClock) -> None:
    document = read(await envelope(account))
    verifier = Verifier(Fetcher(account), clock=clock)
    await clock.advance(3600)
    await verifier.verify(document, max_age_seconds=3600)
    await clock.advance(1)
    with pytest.raises(SignatureError, match="the document is 3601 s old, and 3600 s are allowed"):
        await verifier.verify(document, max_age_seconds=3600)
    await verifier.verify(document)


@pytest.mark.parametrize("timestamp", ["", "yesterday", "99999-01-01T00:00:00Z"])
async def test_a_document_of_no_time(
    account: Account, monkeypatch: pytest.MonkeyPatch, timestamp: str
) -> None:
    path = "pumphouse.account.topics.envelope.timestamp"
    monkeypatch.setattr(path, lambda _: timestamp)  # signed all the same
    document = read(await envelope(account))
    verifier = Verifier(Fetcher(account), clock=account.clock)
    await verifier.verify(document)
    with pytest.raises(SignatureError, match="is none"):
        await verifier.verify(document, max_age_seconds=3600)
