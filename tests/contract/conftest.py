"""One suite of cases, three backends: the account in process, our client through our own served
endpoint, and our client against moto's server, which others wrote.

Where moto does not do as AWS does, `@pytest.mark.moto_differs("how")` says so: the case must then
fail against it, so that the mark goes when moto is put right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count

import pytest
from moto.server import ThreadedMotoServer

from pumphouse.account import Account
from pumphouse.backend import Backend
from pumphouse.http import HttpBackend, Keys
from pumphouse.protocol.operations import CreateQueue
from support.serving import Served, serving

KEYS = Keys("AKIDEXAMPLE", "secret")

_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "moto_differs(how): moto's server does not do here as AWS does"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("moto_differs")
        callspec = getattr(item, "callspec", None)
        if mark is not None and callspec is not None and callspec.params["backend"] == "moto":
            item.add_marker(pytest.mark.xfail(strict=True, reason=f"moto: {mark.args[0]}"))


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with serving(Account(sixty_second_rules=False)) as served:
        yield served


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["account", "served", "moto"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    made: Backend
    if request.param == "account":
        made = Account(sixty_second_rules=False)
    else:
        url = (
            request.getfixturevalue("moto_url")
            if request.param == "moto"
            else request.getfixturevalue("served").url
        )
        made = HttpBackend(region="us-east-1", endpoint_url=url, credentials=KEYS)
    yield made
    await made.aclose()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda name="queue": f"{name}-{next(_numbers)}"


@pytest.fixture
async def queue(backend: Backend, unique: Callable[[str], str]) -> str:
    return (await backend.execute(CreateQueue(unique("queue")))).queue_url


@pytest.fixture
async def fifo(backend: Backend, unique: Callable[[str], str]) -> str:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    return (await backend.execute(CreateQueue(unique("queue") + ".fifo", attributes))).queue_url
