"""Names, URLs and ARNs of queues, there and back."""

from __future__ import annotations

import json
from pathlib import Path

import botocore
import pytest

from pumphouse.protocol.names import (
    QueueName,
    aws_host,
    is_aws_host,
    is_host_of,
    is_queue_name,
    parse_queue_arn,
    parse_queue_url,
    partition_of,
    region_of_host,
    safe_queue_name,
)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (
            "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
            QueueName("orders", "123456789012", "eu-west-1"),
        ),
        (
            "https://sqs.us-gov-west-1.amazonaws.com/123456789012/q.fifo",
            QueueName("q.fifo", "123456789012", "us-gov-west-1"),
        ),
        (
            "https://queue.amazonaws.com/123456789012/orders",
            QueueName("orders", "123456789012", "us-east-1"),
        ),
        (
            "https://eu-central-1.queue.amazonaws.com/123456789012/orders",
            QueueName("orders", "123456789012", "eu-central-1"),
        ),
        (
            "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders",
            QueueName("orders", "123456789012", "cn-north-1"),
        ),
        ("http://127.0.0.1:9324/000000000000/orders", QueueName("orders", "000000000000")),
        ("http://localhost:9324/queue/orders", QueueName("orders")),
        ("http://localhost:9324/orders/", QueueName("orders")),
        (
            "https://vpce-0a1b.sqs.eu-west-1.vpce.amazonaws.com/123456789012/orders",
            QueueName("orders", "123456789012", "eu-west-1"),
        ),
    ],
)
def test_urls(url: str, name: QueueName) -> None:
    assert parse_queue_url(url) == name


@pytest.mark.parametrize("url", ["https://sqs.eu-west-1.amazonaws.com", "https://host/", ""])
def test_a_url_without_a_name(url: str) -> None:
    with pytest.raises(ValueError, match="no queue name"):
        parse_queue_url(url)


def test_a_region_is_read_whole() -> None:
    assert region_of_host("SQS.AP-SOUTHEAST-2.AMAZONAWS.COM") == "ap-southeast-2"
    assert region_of_host("my-host-1.example.com") == ""
    assert region_of_host("localhost") == ""


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("eu-west-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-east-1", "aws-us-gov"),
        ("us-iso-east-1", "aws-iso"),
        ("us-isob-east-1", "aws-iso-b"),
        ("eu-isoe-west-1", "aws-iso-e"),
        ("us-isof-south-1", "aws-iso-f"),
        ("eusc-de-east-1", "aws-eusc"),
        ("", "aws"),
    ],
)
def test_partitions(region: str, partition: str) -> None:
    assert partition_of(region) == partition


def test_every_region_that_botocore_knows_has_its_partition_and_host() -> None:
    text = (Path(botocore.__file__).parent / "data" / "partitions.json").read_text()
    seen = 0
    for partition in json.loads(text)["partitions"]:
        outputs = partition["outputs"]
        for region in partition["regions"]:
            if region.endswith("-global"):
                continue
            seen += 1
            assert partition_of(region) == partition["id"]
            host = aws_host("sns", region)
            assert host == f"sns.{region}.{outputs['dnsSuffix']}"
            assert region_of_host(host) == region
            assert is_host_of("sns", host)
            assert not is_host_of("sqs", host)
            assert is_aws_host(host)
            assert is_aws_host(f"sqs.{region}.{outputs['dualStackDnsSuffix']}") or (
                "iso" in partition["id"]
            )
    assert seen > 40


def test_hosts_that_are_not_aws() -> None:
    for host in ("amazonaws.com.example", "localhost", "127.0.0.1", "xamazonaws.com", ""):
        assert not is_aws_host(host)
        assert not is_host_of("sns", host)


def test_arns_there_and_back() -> None:
    name = QueueName("q.fifo", "123456789012", "cn-north-1")
    assert name.arn() == "arn:aws-cn:sqs:cn-north-1:123456789012:q.fifo"
    assert parse_queue_arn(name.arn()) == name
    assert name.is_fifo


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "dummy",
        "arn:aws:sns:eu-west-1:123456789012:topic",
        "arn:aws:sqs:eu-west-1:123456789012:",
        "arn:aws:sqs:eu-west-1:123456789012",
        "arn:aws:sqs:eu-west-1:123456789012:a:b",
    ],
)
def test_what_is_no_arn_of_a_queue(arn: str) -> None:
    with pytest.raises(ValueError, match="not the ARN"):
        parse_queue_arn(arn)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("a", True),
        ("A-b_9", True),
        ("x" * 80, True),
        ("x" * 81, False),
        ("x" * 75 + ".fifo", True),
        ("x" * 76 + ".fifo", False),
        (".fifo", False),
        ("a.b", False),
        ("a.b.fifo", False),
        ("a\n", False),
        ("ä", False),
        ("", False),
    ],
)
def test_what_may_be_a_name(name: str, taken: bool) -> None:
    assert is_queue_name(name) is taken


def test_names_made_safe() -> None:
    assert safe_queue_name("tenant/source.v2") == "tenant-source-v2"
    assert safe_queue_name("größe.fifo") == "gr--e.fifo"
    assert safe_queue_name("fine_1") == "fine_1"
