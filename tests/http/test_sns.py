"""SNS through the wire client: where requests go, how they are signed, what comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pumphouse.account import Account
from pumphouse.errors import RefusedConfigError, TopicDoesNotExist
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.retry import deduplicated, repeatable
from pumphouse.protocol.operations import CreateQueue
from pumphouse.protocol.sns_operations import (
    CreateTopic,
    DeleteTopic,
    GetTopicAttributes,
    Publish,
    PublishBatch,
    PublishBatchRequestEntry,
)
from pumphouse.server.auth import Gate
from support.serving import Served, serving

KEYS = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG")
TOPIC = "arn:aws:sns:us-east-1:000000000000:topic"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    with serving(Account(), gate=Gate(KEYS)) as served:
        yield served


async def test_requests_are_signed_for_their_service(guarded: Served) -> None:
    async with HttpBackend(
        region="us-east-1", endpoint_url=guarded.url, credentials=KEYS
    ) as backend:
        topic = (await backend.execute(CreateTopic("signed"))).topic_arn
        await backend.execute(Publish("ü & more\n", topic))
        assert (await backend.execute(CreateQueue("beside"))).queue_url.endswith("/beside")
        with pytest.raises(TopicDoesNotExist):
            await backend.execute(GetTopicAttributes(f"{topic}-nowhere"))
    other = Keys("AKIDEXAMPLE", "another secret")
    async with HttpBackend(
        region="us-east-1", endpoint_url=guarded.url, credentials=other
    ) as backend:
        with pytest.raises(RefusedConfigError) as raised:
            await backend.execute(CreateTopic("signed"))
        assert raised.value.code == "SignatureDoesNotMatch"


async def test_the_environment_names_each_services_endpoint(
    guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", guarded.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1")
    async with HttpBackend(region="us-east-1", credentials=KEYS) as backend:
        assert (await backend.execute(CreateTopic("found"))).topic_arn.endswith(":found")
    monkeypatch.delenv("AWS_ENDPOINT_URL_SNS")
    monkeypatch.setenv("AWS_ENDPOINT_URL", guarded.url)
    async with HttpBackend(region="us-east-1", credentials=KEYS) as backend:
        assert (await backend.execute(CreateTopic("found"))).topic_arn.endswith(":found")


async def test_the_arn_tells_the_region_where_nothing_else_does(
    guarded: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    west = guarded.backend
    assert isinstance(west, Account)
    topic = (await west.within(region="eu-west-1").execute(CreateTopic("west"))).topic_arn
    async with HttpBackend(endpoint_url=guarded.url, credentials=KEYS) as backend:
        await backend.execute(Publish("m", topic))
        await backend.execute(Publish("m", target_arn=topic))


def test_what_may_be_sent_again() -> None:
    assert not repeatable(Publish("m", TOPIC))
    assert repeatable(Publish("m", TOPIC, message_deduplication_id="d"))
    entry = PublishBatchRequestEntry("1", "m", message_deduplication_id="d")
    assert deduplicated(PublishBatch(TOPIC, [entry]))
    assert not deduplicated(PublishBatch(TOPIC, [entry, PublishBatchRequestEntry("2", "m")]))
    assert repeatable(DeleteTopic(TOPIC))


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "sns.eu-west-1.amazonaws.com"),
        ("cn-north-1", "sns.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sns.us-gov-west-1.amazonaws.com"),
    ],
)
def test_the_endpoint_is_botocores(region: str, host: str) -> None:
    from pumphouse.http.endpoint import Configuration

    endpoint, fixed = Configuration(region=region, endpoint_url=None, profile=None).endpoint(
        "sns", ""
    )
    assert (endpoint.origin.host, endpoint.service, endpoint.region) == (host, "sns", region)
    assert fixed
