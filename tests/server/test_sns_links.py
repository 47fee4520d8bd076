"""What of SNS is done by links and deliveries: an HTTP endpoint that confirms, gets notifications,
and leaves; requests by hand; the certificate that verifies what came."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from conftest import SHARED_DATA
from pumphouse.account import Account
from pumphouse.account.topics.signing import string_to_sign
from pumphouse.protocol.sigv4 import Keys
from pumphouse.protocol.xml_reader import Element, read_xml
from pumphouse.server.auth import Gate
from pumphouse.server.http_delivery import deliver
from support.query_model import client
from support.recorded import Matcher, sns_recordings
from support.serving import Served, serving
from support.sns_clients import sns_client

FOLDER = SHARED_DATA / "aws-recorded"
ALL = ["All"]


class Receiver:
    """An HTTP endpoint that keeps what it is sent; it answers with the statuses of `answers` first,
    and then with 200."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], str]] = []
        self.answers: list[int] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with receiver._changed:
                    receiver.came.append((dict(self.headers.items()), body))
                    status = receiver.answers.pop(0) if receiver.answers else 200
                    receiver._changed.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def wait(self, count: int) -> tuple[dict[str, str], str]:
        """The latest delivery, once there have been so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.came) >= count, 10), self.came
            assert len(self.came) == count
            return self.came[-1]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    account = Account(deliver=deliver)
    with serving(account) as served:
        account.topics.base_url = served.url
        yield served
        served.run(account.aclose())


@pytest.fixture(scope="module")
def sns(served: Served) -> Iterator[Any]:
    made = sns_client(served.url, validate=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def sqs(served: Served) -> Iterator[Any]:
    made = client("json", endpoint_url=served.url)
    yield made
    made.close()


@pytest.fixture
def topic(sns: Any, unique: Callable[[str], str]) -> str:
    arn: str = sns.create_topic(Name=unique("linked"))["TopicArn"]
    return arn


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def as_dict(element: Element) -> Any:
    return (
        {child.name: as_dict(child) for child in element.children}
        if element.children
        else element.text
    )


def document(body: bytes, status: int) -> dict[str, Any]:
    """A document as the recordings show it: with its status beside the request's id."""
    root = read_xml(body)
    shown = as_dict(root)
    if "ResponseMetadata" in shown:
        shown["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": {}}
    return {root.name: shown}


# --- an HTTP endpoint, as recorded --------------------------------------------------------------


def _headers(headers: dict[str, str]) -> dict[str, str]:
    """Headers with the names that the recordings show, and without what varies."""
    shown = {"-".join(part.capitalize() for part in k.split("-")): v for k, v in headers.items()}
    return shown | {"Connection": "connection", "Content-Length": "content--length"}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no recorded answers here")
@pytest.mark.parametrize("variant", ["True", "False"])
def test_an_endpoint_is_asked_told_and_let_go(
    variant: str, sns: Any, served: Served, receiver: Receiver, topic: str
) -> None:
    recorded = next(
        each.answers
        for each in sns_recordings(FOLDER)
        if each.name == "test_subscribe_external_http_endpoint" and each.variant == variant
    )
    kept: dict[str, Any] = {}
    attributes = {"RawMessageDelivery": "true"} if variant == "True" else {}
    pending = sns.subscribe(
        TopicArn=topic, Protocol="http", Endpoint=receiver.url, Attributes=attributes
    )
    assert pending["SubscriptionArn"] == "pending confirmation"
    sns.publish(TopicArn=topic, Message="not yet")

    headers, body = receiver.wait(1)
    kept["http-confirm-sub-headers"] = _headers(headers)
    kept["subscription-confirmation"] = asked = json.loads(body)
    token = asked["Token"]

    def confirm(arn: str, token: str) -> dict[str, Any]:
        fields = {"Action": "ConfirmSubscription", "TopicArn": arn, "Token": token}
        status, answer = get(f"{served.url}/?{urlencode(fields)}")
        return document(answer, status)

    kept["broken-topic-arn-confirm"] = confirm("arn:aws:sns", token)
    kept["broken-token-confirm"] = confirm(topic, "abc123")
    kept["different-region-arn-confirm"] = confirm(topic.replace("us-east-1", "eu-west-1"), token)
    kept["nonexistent-token-confirm"] = confirm(f"{topic[:-1]}x", token)
    status, answer = get(asked["SubscribeURL"])
    kept["confirm-subscribe"] = document(answer, status)

    sns.publish(TopicArn=topic, Message="test_external_http_endpoint")
    headers, body = receiver.wait(2)
    if variant == "True":
        kept["http-message-headers-raw"] = _headers(headers)
        assert body == "test_external_http_endpoint"
        [subscription] = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        link = f"{served.url}/?Action=Unsubscribe&SubscriptionArn={subscription['SubscriptionArn']}"
    else:
        kept["http-message-headers"] = _headers(headers)
        kept["http-message"] = json.loads(body)
        link = kept["http-message"]["UnsubscribeURL"]
    status, answer = get(link)
    kept["unsubscribe-response"] = document(answer, status)
    _, body = receiver.wait(3)
    kept["unsubscribe-request"] = over = json.loads(body)

    assert recorded.keys() == kept.keys()
    matcher = Matcher("query")
    differences = [
        line
        for label, answer in recorded.items()
        for line in matcher.differences(answer, kept[label], label)
    ]
    assert not differences, "\n".join(differences)
    # the link of the last message brings the subscription back
    get(over["SubscribeURL"])
    sns.publish(TopicArn=topic, Message="again")
    receiver.wait(4)


def test_links_lead_to_the_region_of_their_topic(served: Served, receiver: Receiver) -> None:
    sns = sns_client(served.url, region="eu-west-1")
    topic = sns.create_topic(Name="afar")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url)
    status, _ = get(json.loads(receiver.wait(1)[1])["SubscribeURL"])
    assert status == 200
    sns.publish(TopicArn=topic, Message="m")
    status, _ = get(json.loads(receiver.wait(2)[1])["UnsubscribeURL"])
    assert status == 200
    assert sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    pem = json.loads(receiver.came[1][1])["SigningCertURL"]
    assert get(pem)[0] == 200
    status, _ = get(json.loads(receiver.wait(3)[1])["SubscribeURL"])
    assert status == 200
    assert len(sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]) == 1
    sns.delete_topic(TopicArn=topic)
    sns.close()


def test_a_delivery_is_tried_again(sns: Any, receiver: Receiver, topic: str) -> None:
    at_once = {
        "healthyRetryPolicy": {
            "numRetries": 3,
            "numNoDelayRetries": 3,
            "minDelayTarget": 1,
            "maxDelayTarget": 1,
        }
    }
    receiver.answers = [500, 503, 429]
    sns.subscribe(
        TopicArn=topic,
        Protocol="http",
        Endpoint=receiver.url,
        Attributes={"DeliveryPolicy": json.dumps(at_once)},
    )
    _, body = receiver.wait(4)
    assert len({body for _, body in receiver.came}) == 1
    assert json.loads(body)["Type"] == "SubscriptionConfirmation"


def test_a_delivery_that_is_refused_goes_to_the_dead_letters(
    sns: Any, sqs: Any, receiver: Receiver, topic: str, unique: Callable[[str], str]
) -> None:
    dead = sqs.create_queue(QueueName=unique("dead"))["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:000000000000:{dead.rpartition('/')[2]}"
    sns.subscribe(
        TopicArn=topic,
        Protocol="http",
        Endpoint=receiver.url,
        Attributes={
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn}),
            "RawMessageDelivery": "true",
        },
    )
    get(json.loads(receiver.wait(1)[1])["SubscribeURL"])
    receiver.answers = [404]
    sns.publish(TopicArn=topic, Message="unwanted")
    receiver.wait(2)
    answer = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=5)
    assert [message["Body"] for message in answer["Messages"]] == ["unwanted"]


# --- requests by hand ---------------------------------------------------------------------------


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no recorded answers here")
def test_publish_by_the_parameters_of_the_path(
    sns: Any, sqs: Any, served: Served, topic: str, queue_of: Callable[[str], str]
) -> None:
    recorded = next(
        each.answers
        for each in sns_recordings(FOLDER)
        if each.name == "test_publish_by_path_parameters"
    )
    url = queue_of(topic)
    fields = {
        "Action": "Publish",
        "Version": "2010-03-31",
        "TopicArn": topic,
        "Message": "test message direct post request",
    }
    request = urllib.request.Request(f"{served.url}/?{urlencode(fields)}", b"", method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        kept: dict[str, Any] = {"post-request": document(answer.read(), answer.status)}
    kept["messages"] = sqs.receive_message(QueueUrl=url)
    matcher = Matcher("query")
    differences = [
        line
        for label, one in recorded.items()
        for line in matcher.differences(one, kept[label], label)
    ]
    assert not differences, "\n".join(differences)


@pytest.fixture
def queue_of(sns: Any, sqs: Any, unique: Callable[[str], str]) -> Callable[[str], str]:
    """Makes a queue that is subscribed to a topic."""

    def make(topic: str) -> str:
        url: str = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
        arn = f"arn:aws:sqs:us-east-1:000000000000:{url.rpartition('/')[2]}"
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        return url

    return make


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_certificate_verifies_what_came(
    version: str, sns: Any, sqs: Any, topic: str, queue_of: Callable[[str], str]
) -> None:
    url = queue_of(topic)
    sns.set_topic_attributes(
        TopicArn=topic, AttributeName="SignatureVersion", AttributeValue=version
    )
    for more in ({}, {"Subject": "a subject"}):
        sns.publish(TopicArn=topic, Message="signed: ü\n", **more)
        [message] = sqs.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        envelope = json.loads(message["Body"])
        assert envelope["SignatureVersion"] == version
        status, pem = get(envelope["SigningCertURL"])
        assert status == 200
        key = x509.load_pem_x509_certificate(pem).public_key()
        assert isinstance(key, RSAPublicKey)
        lines = "".join(
            f"{name}\n{envelope[name]}\n"
            for name in ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
            if name in envelope
        ).encode()
        assert string_to_sign(envelope) == lines
        digest = hashes.SHA1() if version == "1" else hashes.SHA256()
        key.verify(base64.b64decode(envelope["Signature"]), lines, PKCS1v15(), digest)


def test_no_other_certificate_is_served(served: Served) -> None:
    assert get(f"{served.url}/SimpleNotificationService-{'0' * 32}.pem")[0] == 404


# --- who may ------------------------------------------------------------------------------------


def test_links_need_no_signature_and_all_else_does(receiver: Receiver) -> None:
    account = Account(deliver=deliver)
    keys = Keys("any", "any")
    with serving(account, gate=Gate(keys)) as served:
        account.topics.base_url = served.url
        sns = sns_client(served.url)
        topic = sns.create_topic(Name="guarded")["TopicArn"]
        sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url)
        status, _ = get(json.loads(receiver.wait(1)[1])["SubscribeURL"])
        assert status == 200
        for query in (
            f"Action=Publish&Version=2010-03-31&TopicArn={topic}&Message=m",
            "Action=ListTopics&Version=2010-03-31",
        ):
            status, body = get(f"{served.url}/?{query}")
            assert status == 403
            assert b"MissingAuthenticationToken" in body
        sns.publish(TopicArn=topic, Message="m")
        _, body = receiver.wait(2)
        status, _ = get(json.loads(body)["UnsubscribeURL"])
        assert status == 200
        sns.close()
        served.run(account.aclose())


def test_who_confirmed_with_a_signature_leaves_with_one(receiver: Receiver) -> None:
    account = Account(deliver=deliver)
    with serving(account, gate=Gate(Keys("any", "any"))) as served:
        account.topics.base_url = served.url
        sns = sns_client(served.url)
        topic = sns.create_topic(Name="guarded")["TopicArn"]
        sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url)
        asked = json.loads(receiver.wait(1)[1])
        link = f"{asked['SubscribeURL']}&AuthenticateOnUnsubscribe=true"
        status, body = get(link)
        assert (status, b"MissingAuthenticationToken" in body) == (403, True)
        confirmed = sns.confirm_subscription(
            TopicArn=topic, Token=asked["Token"], AuthenticateOnUnsubscribe="true"
        )
        sns.publish(TopicArn=topic, Message="m")
        leave = json.loads(receiver.wait(2)[1])["UnsubscribeURL"]
        status, body = get(leave)
        assert (status, b"MissingAuthenticationToken" in body) == (403, True)
        assert len(account.topics.subscriptions) == 1
        sns.unsubscribe(SubscriptionArn=confirmed["SubscriptionArn"])
        assert not account.topics.subscriptions
        sns.close()
        served.run(account.aclose())


def test_a_backend_that_does_not_know_gets_no_links() -> None:
    class Elsewhere:
        """A backend with credentials of its own, which no stranger may use."""

        async def execute(self, operation: Any) -> Any:
            raise AssertionError("carried out")

        async def aclose(self) -> None:
            pass

    arn = "arn:aws:sns:us-east-1:000000000000:t:1d3ff5c5-8a41-4d9a-8c6c-0a1a3b9e8d11"
    with serving(Elsewhere(), gate=Gate(Keys("any", "any"))) as served:  # type: ignore[arg-type]
        status, body = get(f"{served.url}/?Action=Unsubscribe&SubscriptionArn={arn}")
        assert (status, b"MissingAuthenticationToken" in body) == (403, True)


def test_the_link_to_confirm_names_topic_and_token(
    sns: Any, receiver: Receiver, topic: str
) -> None:
    sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=receiver.url)
    asked = json.loads(receiver.wait(1)[1])
    assert parse_qs(urlsplit(asked["SubscribeURL"]).query) == {
        "Action": ["ConfirmSubscription"],
        "TopicArn": [topic],
        "Token": [asked["Token"]],
    }
    done = sns.confirm_subscription(TopicArn=topic, Token=asked["Token"])
    assert done["SubscriptionArn"].startswith(f"{topic}:")


def test_nothing_leaves_this_machine(sns: Any, served: Served, topic: str) -> None:
    account = served.backend
    assert isinstance(account, Account)
    for url in ("http://192.0.2.1/", "https://example.com/hook", "http://127.0.0.1.example.com/"):
        before = len(account.topics.undelivered)
        sns.subscribe(TopicArn=topic, Protocol=url.partition(":")[0], Endpoint=url)
        assert "not on this machine" in account.topics.undelivered[-1].reason
        assert len(account.topics.undelivered) == before + 1


async def test_deliver_refuses_other_machines_and_broken_headers() -> None:
    from pumphouse.account.topics.notifying import HttpDelivery

    with pytest.raises(OSError, match="not on this machine"):
        await deliver(HttpDelivery("http://192.0.2.1/", {}, b""))

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SMTP ready\r\n\r\n")
        writer.close()

    for answer in (hang_up, babble):
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            with pytest.raises(OSError, match=r"."):
                await deliver(HttpDelivery(f"http://127.0.0.1:{port}/", {}, b"x"))
            with pytest.raises(OSError, match="line break"):
                await deliver(HttpDelivery(f"http://127.0.0.1:{port}/", {"a": "b\r\nc: d"}, b""))
