"""Lessons E6 and E7: how the served endpoint names a missing queue, and how it is asked for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pumphouse.account import Account
from pumphouse.errors import QueueDoesNotExist
from pumphouse.http import HttpBackend, Keys
from pumphouse.protocol.operations import CreateQueue, GetQueueUrl, ReceiveMessage, SendMessage
from support.query_model import client
from support.raw_http import ask, post
from support.serving import Served, serving

KEYS = Keys("AKIDEXAMPLE", "secret")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(Account()) as served:
        served.run(served.backend.execute(CreateQueue("pump")))
        yield served


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_e6_a_missing_queue_has_the_code_that_each_client_knows(
    served: Served, protocol: str
) -> None:
    sqs = client(protocol, endpoint_url=served.url)
    url = f"{served.url}/000000000000/not-there"
    for call in (
        lambda: sqs.get_queue_url(QueueName="not-there"),
        lambda: sqs.send_message(QueueUrl=url, MessageBody="x"),
        lambda: sqs.receive_message(QueueUrl=url),
        lambda: sqs.delete_queue(QueueUrl=url),
    ):
        with pytest.raises(sqs.exceptions.QueueDoesNotExist) as caught:
            call()
        response = caught.value.response
        assert response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    sqs.close()


async def test_e6_a_missing_queue_by_our_own_client(served: Served) -> None:
    backend = HttpBackend(region="us-east-1", endpoint_url=served.url, credentials=KEYS)
    with pytest.raises(QueueDoesNotExist):
        await backend.execute(GetQueueUrl("not-there"))
    await backend.aclose()


@pytest.mark.parametrize(
    "host", ["localhost:4566", "sqs.eu-west-1.amazonaws.com", "queues.internal", "[::1]:9324"]
)
async def test_e7_queue_urls_are_built_from_the_host_header(served: Served, host: str) -> None:
    request = post({"QueueName": "pump"}, target="AmazonSQS.GetQueueUrl", headers={"Host": host})
    answer = await ask(served.port, request)
    assert answer.json() == {"QueueUrl": f"http://{host}/000000000000/pump"}


async def test_e7_a_host_header_that_is_none_is_not_echoed(served: Served) -> None:
    for host in ("a b", 'x"><script>', "x/../y"):
        request = post(
            {"QueueName": "pump"}, target="AmazonSQS.GetQueueUrl", headers={"Host": host}
        )
        answer = await ask(served.port, request)
        assert answer.json() == {"QueueUrl": f"{served.url}/000000000000/pump"}


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:4566/000000000000/pump",
        "https://sqs.eu-west-1.amazonaws.com/000000000000/pump",
        "https://queue.amazonaws.com/000000000000/pump",
        "http://sqs.us-east-1.localhost.localstack.cloud:4566/000000000000/pump",
        "http://127.0.0.1:9324/queue/pump",
        "http://127.0.0.1/pump",
    ],
)
async def test_e7_any_url_that_names_the_queue_is_taken(served: Served, url: str) -> None:
    backend = HttpBackend(region="us-east-1", endpoint_url=served.url, credentials=KEYS)
    sent = await backend.execute(SendMessage(url, "x"))
    received = await backend.execute(ReceiveMessage(url, max_number_of_messages=10))
    assert sent.message_id in [message.message_id for message in received.messages]
    await backend.aclose()


async def test_e7_region_and_account_come_with_the_request(served: Served) -> None:
    for region in ("eu-west-1", "us-east-1"):
        backend = HttpBackend(region=region, endpoint_url=served.url, credentials=KEYS)
        made = await backend.execute(CreateQueue("regional"))
        await backend.execute(SendMessage(made.queue_url, f"in {region}"))
        await backend.aclose()
    for region in ("eu-west-1", "us-east-1"):
        backend = HttpBackend(region=region, endpoint_url=served.url, credentials=KEYS)
        url = (await backend.execute(GetQueueUrl("regional"))).queue_url
        (message,) = (await backend.execute(ReceiveMessage(url))).messages
        assert message.body == f"in {region}"
        other = url.replace("000000000000", "111111111111")
        with pytest.raises(QueueDoesNotExist):
            await backend.execute(ReceiveMessage(other))
        await backend.aclose()
