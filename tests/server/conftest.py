"""The served endpoint for these tests: one for all, on the real clock, and clients for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pumphouse.account import Account
from support.query_model import client
from support.serving import Served, serving

_numbers = count(1)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with serving(Account(sixty_second_rules=False)) as served:
        yield served


@pytest.fixture(scope="session", params=["json", "query"])
def sqs(request: pytest.FixtureRequest, served: Served) -> Iterator[Any]:
    """botocore's client, which checks MD5s, over both protocols."""
    made = client(request.param, endpoint_url=served.url)
    yield made
    made.close()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    return lambda name="queue": f"{name}-{next(_numbers)}"


@pytest.fixture
def queue(sqs: Any, unique: Callable[[str], str]) -> str:
    url: str = sqs.create_queue(QueueName=unique("queue"))["QueueUrl"]
    return url
