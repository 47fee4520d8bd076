"""Region and endpoint, as botocore's configuration says, with botocore itself as the judge."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import botocore.loaders
import botocore.session
import pytest

from pumphouse.errors import ConfigError, UsageError
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.endpoint import Configuration, Endpoint, check_endpoint_url, region_hint
from pumphouse.protocol.operations import ListMessageMoveTasks, ListQueues, SendMessage
from support.aws_settings import aws_files  # noqa: F401
from support.fault_server import FaultServer
from support.one_answer import OneAnswer

pytestmark = pytest.mark.usefixtures("aws_files")
KEYS = Keys("AKIDEXAMPLE", "secret")
_LOADER = botocore.loaders.create_loader()


def configured(region: str | None = None, endpoint_url: str | None = None, profile=None):
    return Configuration(region=region, endpoint_url=endpoint_url, profile=profile)


def url(configuration: Configuration, hint: str = "") -> tuple[str, str]:
    endpoint, _ = configuration.endpoint("sqs", hint)
    return f"{endpoint.origin.scheme}://{endpoint.host_header}", endpoint.region


def by_botocore(region: str) -> str:
    session = botocore.session.Session()
    session.register_component("data_loader", _LOADER)  # which keeps what it has loaded
    client = session.create_client(
        "sqs", region_name=region, aws_access_key_id="a", aws_secret_access_key="b"
    )
    heard: list[str] = []

    class Stop(Exception):
        pass

    def hear(request, **_: object) -> None:
        heard.append(request.url)
        raise Stop

    client.meta.events.register("before-send.sqs.ListQueues", hear)
    with pytest.raises(Stop):
        client.list_queues()
    return heard[0].rstrip("/")


@pytest.mark.parametrize(
    ("region", "variant"),
    [
        ("us-east-1", ()),
        ("cn-northwest-1", ()),
        ("us-gov-west-1", ()),
        ("us-iso-east-1", ()),
        ("fips-us-east-1", ()),
        ("us-east-1", ("FIPS",)),
        ("us-gov-west-1", ("FIPS",)),
        ("eu-central-2", ("DUALSTACK",)),
        ("us-east-1", ("FIPS", "DUALSTACK")),
        ("us-iso-east-1", ("FIPS", "DUALSTACK")),
    ],
)
def test_every_partition_and_variant_is_as_botocore_has_it(
    region: str, variant: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in variant:
        monkeypatch.setenv(f"AWS_USE_{name}_ENDPOINT", "true")
    try:
        expected = by_botocore(region)
    except Exception:
        with pytest.raises(ConfigError, match="no endpoint for sqs"):
            configured(region).endpoint("sqs", "")
        return
    assert url(configured(region)) == (expected, region.replace("fips-", ""))


def test_the_order_of_regions(aws_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    (aws_files / "config").write_text(
        "[default]\nregion = eu-west-2\n[profile other]\nregion = eu-west-3\n"
    )
    assert url(configured(), "ap-south-1")[1] == "eu-west-2"
    assert url(configured(profile="other"))[1] == "eu-west-3"
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert url(configured())[1] == "eu-west-3"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert url(configured(), "ap-south-1")[1] == "eu-north-1"
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert url(configured(), "ap-south-1")[1] == "eu-central-1"
    monkeypatch.setenv("AWS_REGION", "")
    assert url(configured(), "ap-south-1")[1] == "eu-north-1"
    assert url(configured("sa-east-1"), "ap-south-1")[1] == "sa-east-1"


def test_the_queue_url_tells_the_region_where_nothing_else_does() -> None:
    assert url(configured(), "ap-south-1") == (
        "https://sqs.ap-south-1.amazonaws.com",
        "ap-south-1",
    )
    with pytest.raises(ConfigError, match=r"no region: set AWS_REGION, .* --region .*region="):
        configured().endpoint("sqs", "")


@pytest.mark.parametrize(
    ("reference", "region"),
    [
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q", "eu-west-1"),
        ("https://eu-west-1.queue.amazonaws.com/123456789012/q", "eu-west-1"),
        ("https://queue.amazonaws.com/123456789012/q", "us-east-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q", "cn-north-1"),
        ("https://vpce-0a-b.sqs.us-gov-west-1.vpce.amazonaws.com/123456789012/q", "us-gov-west-1"),
        ("arn:aws:sqs:eu-west-3:123456789012:q", "eu-west-3"),
        ("http://localhost:9324/000000000000/q", ""),
        ("http://[broken/q", ""),
        ("", ""),
    ],
)
def test_what_region_a_reference_names(reference: str, region: str) -> None:
    assert region_hint(reference) == region


def test_the_order_of_endpoint_urls(
    aws_files: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (aws_files / "config").write_text(
        "[default]\nregion = eu-west-2\nendpoint_url = http://profile:1\nservices = mine\n"
        "[services mine]\nsqs =\n  endpoint_url = http://profile-sqs:1\n"
        "[profile plain]\nendpoint_url = http://plain:1\n"
    )
    assert url(configured(profile="plain"))[0] == "http://plain:1"
    assert url(configured()) == ("http://profile-sqs:1", "eu-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://environment:1")
    assert url(configured())[0] == "http://environment:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://environment-sqs:1")
    assert url(configured())[0] == "http://environment-sqs:1"
    assert url(configured(endpoint_url="http://argument:1"))[0] == "http://argument:1"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert url(configured())[0] == "https://sqs.eu-west-2.amazonaws.com"
    assert url(configured(endpoint_url="http://argument:1"))[0] == "http://argument:1"


def test_an_endpoint_url_needs_no_region() -> None:
    assert url(configured(endpoint_url="http://127.0.0.1:9324"))[1] == "us-east-1"
    assert url(configured(endpoint_url="http://127.0.0.1:9324"), "eu-west-3")[1] == "eu-west-3"
    vpc = "https://vpce-0a-b.sqs.eu-west-1.vpce.amazonaws.com"
    assert url(configured(endpoint_url=vpc)) == (vpc, "eu-west-1")


def test_a_profile_that_does_not_exist_and_an_endpoint_that_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        configured(profile="nobody").endpoint("sqs", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9324")
    with pytest.raises(UsageError, match="endpoint_url"):
        configured("eu-west-1").endpoint("sqs", "")


@pytest.mark.parametrize(
    "text",
    [
        "https://user:hidden@127.0.0.1",
        "ftp://user:hidden@127.0.0.1",
        "user:hidden@127.0.0.1:9324",
        "https://127.0.0.1/?token=hidden",
        "http://a..b:9324",
        "http://" + "a" * 64 + ".example",
        "http://127.0.0.1:0",
        "http://127.0.0.1/a path",
        "http://127.0.0.1/\x7f",
        "http://bücher.example",
        "http://[::1",
        "127.0.0.1:9324",
        "",
    ],
)
def test_an_endpoint_url_that_is_none_is_refused_before_anything_is_sent(text: str) -> None:
    with pytest.raises(UsageError, match="endpoint_url") as caught:
        HttpBackend(region="eu-west-1", endpoint_url=text)
    assert "hidden" not in str(caught.value)


def test_a_path_before_the_endpoint_stays() -> None:
    endpoint, _ = configured("eu-west-1", "http://localhost:4566/sqs").endpoint("sqs", "")
    assert endpoint.path == "/sqs"
    assert check_endpoint_url("https://[::1]:4566").host == "::1"


async def test_operations_of_several_regions_go_each_to_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, str]] = []
    async with FaultServer() as server:
        monkeypatch.setattr(
            Configuration,
            "endpoint",
            lambda self, service, hint: (
                seen.append((service, hint)) or Endpoint(service, server.url, hint),
                False,
            ),
        )
        async with HttpBackend(credentials=KEYS) as backend:
            for _ in range(2):
                for region in ("eu-west-1", "us-west-2"):
                    queue = f"https://sqs.{region}.amazonaws.com/123456789012/q"
                    await backend.execute(SendMessage(queue, "m"))
            await backend.execute(ListMessageMoveTasks("arn:aws:sqs:eu-west-1:123456789012:q"))
        assert seen == [("sqs", "eu-west-1"), ("sqs", "us-west-2")]
        scopes = [r.headers["authorization"].split("/")[2] for r in server.ledger.requests]
        assert scopes == ["eu-west-1", "us-west-2", "eu-west-1", "us-west-2", "eu-west-1"]


async def test_no_region_is_told_before_anything_is_sent() -> None:
    async with HttpBackend(credentials=KEYS) as backend:
        with pytest.raises(ConfigError, match="AWS_REGION"):
            await backend.execute(ListQueues())


@pytest.mark.parametrize("at_url", [True, False])
@pytest.mark.parametrize(
    ("source", "region"),
    [
        *product(
            ["AWS_REGION", "AWS_DEFAULT_REGION", "the URL or ARN of a queue"],
            ["us-east-1\r\nX-Evil: 1", "us-east-1\n", " us-east-1", "us/east", "us-east-1,x"],
        ),
        *product(["the profile"], ["us-east-1\n X-Evil: 1", "us/east", "us-east-1,x"]),
    ],
)
async def test_what_is_no_region_is_never_signed_for_wherever_it_comes_from(
    monkeypatch: pytest.MonkeyPatch,
    aws_files: Path,  # noqa: F811
    region: str,
    source: str,
    at_url: bool,
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    operation: ListQueues | ListMessageMoveTasks = ListQueues()
    if source == "the profile":
        (aws_files / "config").write_text(f"[default]\nregion = {region}\n")
    elif source.isupper():
        monkeypatch.setenv(source, region)
    else:
        operation = ListMessageMoveTasks(f"arn:aws:sqs:{region}:000000000000:q")
    async with OneAnswer(200, b"{}") as server:
        backend = HttpBackend(
            endpoint_url=server.url if at_url else None, credentials=Keys("AKID", "secret")
        )
        with pytest.raises(UsageError, match=f"of {source}.* can't be one"):
            await backend.execute(operation)
        await backend.aclose()
        assert not server.requests


def test_an_old_name_of_a_fips_endpoint_is_signed_as_its_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "fips-us-east-1")
    configuration = configured(endpoint_url="http://127.0.0.1:1")
    assert configuration.endpoint("sqs", "")[0].region == "us-east-1"
