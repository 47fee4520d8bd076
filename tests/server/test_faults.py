"""Faults of the account, seen through the endpoint: an SDK meets what it would meet at AWS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import RetryPolicy
from pumphouse.errors import (
    NetworkError,
    OutcomeUnknownError,
    RefusedError,
    ThrottledError,
    TransientError,
)
from pumphouse.http import HttpBackend, Keys
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    Operation,
    SendMessage,
)
from support.raw_http import ask, post
from support.serving import Served, serving

URL = "http://127.0.0.1/000000000000/plain"


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(Account()) as served:
        served.run(served.backend.execute(CreateQueue("plain")))
        yield served


@pytest.fixture
async def backend(served: Served) -> AsyncIterator[HttpBackend]:
    made = HttpBackend(
        region="us-east-1",
        endpoint_url=served.url,
        credentials=Keys("any", "any"),
        retry=RetryPolicy(max_attempts=1),
    )
    yield made
    await made.aclose()


def _account(served: Served) -> Account:
    assert isinstance(served.backend, Account)
    return served.backend


async def test_a_lost_answer_is_a_lost_connection(served: Served, backend: HttpBackend) -> None:
    _account(served).faults.lose_answer("SendMessage")
    with pytest.raises(OutcomeUnknownError):
        await backend.execute(SendMessage(URL, "stored all the same"))
    counts = await backend.execute(GetQueueAttributes(URL, ["All"]))
    assert counts.attributes["ApproximateNumberOfMessages"] == "1"


async def test_throttling_and_refusals(served: Served, backend: HttpBackend) -> None:
    _account(served).faults.throttle("SendMessage")
    with pytest.raises(ThrottledError):
        await backend.execute(SendMessage(URL, "x"))
    _account(served).faults.refuse("SendMessage", "InvalidMessageContents", "no such words")
    with pytest.raises(RefusedError, match="no such words"):
        await backend.execute(SendMessage(URL, "x"))
    await backend.execute(SendMessage(URL, "x"))


class _Broken:
    """A backend that fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def execute(self, operation: Operation[Any]) -> Any:
        raise self.error

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (NetworkError("no connection"), 503, "ServiceUnavailable", ThrottledError),
        (RuntimeError("a secret detail"), 500, "InternalError", TransientError),
    ],
)
async def test_a_backend_that_fails(
    error: Exception, status: int, code: str, kind: type[Exception]
) -> None:
    with serving(_Broken(error)) as served:
        body = {"QueueUrl": URL, "MessageBody": "x"}
        answer = await ask(served.port, post(body, target="AmazonSQS.SendMessage"))
        assert answer.status == status
        assert code in answer.json()["__type"]
        assert answer.headers["x-amzn-query-error"].startswith(code)
        assert "secret" not in answer.body.decode()
        form = post(f"Action=SendMessage&QueueUrl={URL}&MessageBody=x")
        assert (await ask(served.port, form)).status == status
        backend = HttpBackend(
            region="us-east-1",
            endpoint_url=served.url,
            credentials=Keys("any", "any"),
            retry=RetryPolicy(max_attempts=1),
        )
        with pytest.raises(kind):
            await backend.execute(SendMessage(URL, "x"))
        await backend.aclose()
