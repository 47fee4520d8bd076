"""What lies in a served queue, looked at without receiving it: the account's own address for it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pumphouse.account import Account
from pumphouse.backend import Backend
from pumphouse.http.look import look_at_served
from pumphouse.protocol.operations import CreateQueue, ReceiveMessage
from pumphouse.protocol.sigv4 import Keys
from pumphouse.server.auth import Gate
from pumphouse.server.looking import MAX_BYTES
from support.dead_letters import put
from support.serving import Served, serving

ARN = "arn:aws:sqs:us-east-1:000000000000:q"


@pytest.fixture
def served() -> Iterator[Served]:
    account = Account()
    with serving(account) as served:
        served.run(account.execute(CreateQueue("q")))
        for number in range(5):
            served.run(put(account, "q", str(number), name="é"))
        yield served


def _get(url: str, method: str = "GET") -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method), timeout=10
        ) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_first_visible_messages_are_shown_and_left_as_they_are(served: Served) -> None:
    served.run(served.backend.execute(ReceiveMessage("q")))  # "0" is in flight
    status, body = _get(f"{served.url}/_pumphouse/messages/{ARN}/3")
    found = json.loads(body)
    assert status == 200
    assert [each["Body"] for each in found] == ["1", "2", "3"]
    assert found[0]["Attributes"]["ApproximateReceiveCount"] == "0"
    assert found[0]["MessageAttributes"]["name"]["StringValue"] == "é"
    assert {each["ReceiptHandle"] for each in found} == {""}
    assert json.loads(_get(f"{served.url}/_pumphouse/messages/{ARN}/999999999999")[1])[3:]
    account = served.backend
    assert isinstance(account, Account)
    assert (account.queue("q").visible, account.queue("q").in_flight) == (4, 1)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        (f"{ARN}x/3", "GET", 404),
        (f"{ARN}/x", "GET", 404),
        (f"{ARN}/", "GET", 404),
        ("/3", "GET", 404),
        ("3", "GET", 404),
        (f"{ARN}/-1", "GET", 404),
        (f"{ARN}/3", "POST", 405),
        (f"{ARN}/3", "DELETE", 405),
    ],
)
def test_what_is_not_there_is_404_or_405(
    served: Served, path: str, method: str, status: int
) -> None:
    assert _get(f"{served.url}/_pumphouse/messages/{path}", method)[0] == status


def test_an_answer_is_bounded(served: Served) -> None:
    account = served.backend
    assert isinstance(account, Account)
    for _ in range(12):
        served.run(put(account, "q", "x" * 1_000_000))
    found = json.loads(_get(f"{served.url}/_pumphouse/messages/{ARN}/100")[1])
    assert 5 < len(found) < 17
    assert sum(len(each["Body"]) for each in found) <= MAX_BYTES


def test_where_requests_are_signed_nothing_is_shown() -> None:
    account = Account()
    with serving(account, gate=Gate(Keys("AKID", "secret"))) as served:
        served.run(account.execute(CreateQueue("q")))
        served.run(put(account, "q", "secret"))
        assert _get(f"{served.url}/_pumphouse/messages/{ARN}/3") == (404, b"")


def test_a_backend_that_can_not_be_looked_into_shows_nothing() -> None:
    class Closed:
        def __init__(self, backend: Backend) -> None:
            self.execute = backend.execute

        async def aclose(self) -> None: ...

    account = Account()
    with serving(Closed(account)) as served:  # type: ignore[arg-type]
        served.run(account.execute(CreateQueue("q")))
        assert _get(f"{served.url}/_pumphouse/messages/{ARN}/3")[0] == 404


async def test_the_client_asks_no_aws_host_and_takes_no_for_an_answer() -> None:
    class Asked(Exception):
        pass

    class Unasked:
        async def execute(self, operation: object) -> object:
            raise Asked

    for url in (
        "https://sqs.us-east-1.amazonaws.com/000000000000/q",
        "https://sqs.cn-north-1.amazonaws.com.cn/000000000000/q",
        "https://sqs.us-east-1.api.aws/000000000000/q",
        "q",
    ):
        assert await look_at_served(Unasked(), url, 1) is None  # type: ignore[arg-type]
    account = Account()
    url = (await account.execute(CreateQueue("q"))).queue_url
    nobody = url.replace("https://sqs.us-east-1.amazonaws.com", "http://127.0.0.1:9")
    assert await look_at_served(account, nobody, 1) is None
