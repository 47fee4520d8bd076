"""Large bodies in S3, against moto's server, an independent one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer

from pumphouse.backoff import NO_RETRIES
from pumphouse.claim_check import ClaimCheck
from pumphouse.errors import (
    BlobDamagedError,
    BlobMissingError,
    ConfigError,
    NetworkError,
    UnexpectedAnswerError,
    UsageError,
)
from pumphouse.http.s3 import S3BlobStore
from pumphouse.protocol.sigv4 import Keys, payload_hash, template
from support.one_answer import OneAnswer

KEYS = Keys("AKIDEXAMPLE", "secret")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    url = f"http://127.0.0.1:{port}"
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
    )
    client.create_bucket(Bucket="bodies")
    yield url
    client.close()
    server.stop()


async def test_objects_are_stored_replaced_read_and_removed(moto: str) -> None:
    async with S3BlobStore(
        "bodies", region="us-east-1", endpoint_url=moto, credentials=KEYS
    ) as store:
        await store.put("a/b-1_2.json~", b"\x00one\xff")
        await store.put("a/b-1_2.json~", b"two")
        assert await store.get("a/b-1_2.json~", 3) == b"two"
        with pytest.raises(BlobDamagedError):
            await store.get("a/b-1_2.json~", 2)
        await store.delete("a/b-1_2.json~")
        await store.delete("a/b-1_2.json~")
        with pytest.raises(BlobMissingError):
            await store.get("a/b-1_2.json~", 10)


async def test_what_boto3_wrote_for_the_extended_client_is_restored(moto: str) -> None:
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=moto,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
    )
    client.put_object(Bucket="bodies", Key="from-java", Body=b"large body")
    async with S3BlobStore(
        "bodies", region="us-east-1", endpoint_url=moto, credentials=KEYS
    ) as store:
        check = ClaimCheck(store, bucket="bodies")
        text, attributes = await check.offload("x" * 300_000, {}, "from-python")
        assert await check.restore(text, attributes) == ("x" * 300_000, None)
        pointer = json.loads(text)[1]
        assert pointer["s3BucketName"] == "bodies"
        assert pointer["s3Key"].startswith("from-python")
        found = client.get_object(Bucket="bodies", Key=pointer["s3Key"])["Body"].read()
        assert found == b"x" * 300_000
        text = text.replace(pointer["s3Key"], "from-java")
        assert (await check.restore(text, attributes))[0] == "large body"
    client.close()


async def test_many_at_once(moto: str) -> None:
    async with S3BlobStore(
        "bodies", region="us-east-1", endpoint_url=moto, credentials=KEYS
    ) as store:
        await asyncio.gather(*(store.put(f"many/{n}", str(n).encode()) for n in range(50)))
        found = await asyncio.gather(*(store.get(f"many/{n}", 10) for n in range(50)))
    assert found == [str(n).encode() for n in range(50)]


async def test_a_missing_bucket_is_an_operators_matter(moto: str) -> None:
    async with S3BlobStore(
        "nothing-here", region="us-east-1", endpoint_url=moto, credentials=KEYS
    ) as store:
        with pytest.raises(ConfigError, match="nothing-here"):
            await store.put("k", b"x")


async def test_what_can_not_be_reached_or_read_is_tried_again_and_then_told() -> None:
    async with OneAnswer(503, b"<html>busy</html>") as server:
        async with S3BlobStore(
            "bodies", region="us-east-1", endpoint_url=server.url, credentials=KEYS
        ) as store:
            with pytest.raises(UnexpectedAnswerError):
                await store.get("k", 10)
        await server.drained()
        assert server.requests == 4
    async with S3BlobStore(
        "bodies",
        region="us-east-1",
        endpoint_url="http://127.0.0.1:1",
        credentials=KEYS,
        retry=NO_RETRIES,
    ) as store:
        with pytest.raises(NetworkError):
            await store.get("k", 10)
        assert "secret" not in repr(store)


ANY_KEYS = [
    *("my file.json", "dt=2026/01/uuid", "a//b", "/a", "a/", "a+b&c=d", "ü/é", "a?x#y", "100%"),
    *("a%20b", "a\r\nb", "(!*'):@,;$", "~._-", "...", "k" * 1_024),
]


@pytest.mark.parametrize("key", [key for key in ANY_KEYS if "\n" not in key])  # moto takes none
async def test_any_key_of_s3_is_the_one_that_boto3_means(moto: str, key: str) -> None:
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        endpoint_url=moto,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
    )
    try:
        async with S3BlobStore(
            "bodies", region="us-east-1", endpoint_url=moto, credentials=KEYS
        ) as store:
            await store.put(key, b"ours")
            found = await asyncio.to_thread(client.get_object, Bucket="bodies", Key=key)
            assert found["Body"].read() == b"ours"
            await asyncio.to_thread(client.put_object, Bucket="bodies", Key=key, Body=b"boto3's")
            assert await store.get(key, 10) == b"boto3's"
            await store.delete(key)
            with pytest.raises(BlobMissingError):
                await store.get(key, 10)
    finally:
        client.close()


@pytest.mark.parametrize("key", ANY_KEYS)
def test_any_key_is_signed_as_botocore_signs_it(key: str) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = f"https://bodies.s3.us-east-1.amazonaws.com/{quote(key, safe='/')}"
    request = AWSRequest("GET", url, headers={"X-Amz-Content-SHA256": payload_hash(b"")})
    request.context["timestamp"] = "20260101T000000Z"
    theirs = S3SigV4Auth(
        Credentials(KEYS.access_key_id, KEYS.secret_access_key), "s3", "us-east-1"
    ).canonical_request(request)
    form = template("GET", urlsplit(url).path, "", [], as_is=True)
    assert theirs.split("\n")[1] == form.before.decode().split("\n")[1]


@pytest.mark.parametrize(
    "key", ["", ".", "../a", "a/..", "a/./b", "\ud800", "k" * 1_025, "é" * 513]
)
async def test_keys_that_are_none(key: str) -> None:
    async with S3BlobStore("bodies", region="us-east-1", credentials=KEYS) as store:
        with pytest.raises(UsageError):
            await store.put(key, b"x")


@pytest.mark.parametrize("bucket", ["", "A", "a b", "../x", "x" * 64])
def test_buckets_that_are_none(bucket: str) -> None:
    with pytest.raises(UsageError):
        S3BlobStore(bucket)


async def test_on_aws_the_bucket_is_in_the_host_and_elsewhere_in_the_path() -> None:
    on_aws = S3BlobStore("bodies", region="eu-west-1", credentials=KEYS)
    elsewhere = S3BlobStore("bodies", endpoint_url="http://127.0.0.1:9000/base", credentials=KEYS)
    dotted = S3BlobStore("has.dots", region="eu-west-1", credentials=KEYS)
    assert (await on_aws._locate()).host_header == "bodies.s3.eu-west-1.amazonaws.com"
    assert (await elsewhere._locate()).path == "/base/bodies"
    assert (await dotted._locate()).path == "/has.dots"
