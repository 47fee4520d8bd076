"""The same service on the account in process, through an endpoint in a thread, and through
`pumphouse serve` as a process of its own; on the real clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.http import HttpBackend, Keys
from pumphouse.model import Message
from pumphouse.protocol.operations import GetQueueAttributes
from pumphouse.subscriber.outcomes import Drop, Reject, Retry
from pumphouse.subscriber.queue import Queue
from support.serve_process import serve
from support.service import make_queue, receive, send
from support.serving import Served

_numbers = count(1)


@pytest.fixture(scope="module")
def command_url() -> Iterator[str]:
    with serve() as url:
        yield url


@pytest.fixture(params=["in process", "served", "command"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    if request.param == "in process":
        yield Account()
        return
    if request.param == "served":
        served = Served(Account())
        served.start()
        url, region, stop = served.url, "us-east-1", served.stop
    else:  # one process for all: each test has a region, and so queues, of its own
        url, region = request.getfixturevalue("command_url"), f"eu-west-{next(_numbers)}"
        stop = _nothing
    http = HttpBackend(region=region, endpoint_url=url, credentials=Keys("AKIAEXAMPLE", "secret"))
    try:
        yield http
    finally:
        await http.aclose()
        await asyncio.to_thread(stop)


def _nothing() -> None: ...


async def eventually(done: asyncio.Event) -> None:
    await asyncio.wait_for(done.wait(), 20)


async def empty(backend: Backend, url: str) -> bool:
    answer = await backend.execute(GetQueueAttributes(url, ["All"]))
    return {
        answer.attributes[f"ApproximateNumberOfMessages{part}"]
        for part in ("", "NotVisible", "Delayed")
    } == {"0"}


async def test_order_retries_and_dead_letters(backend: Backend) -> None:
    url = await make_queue(backend, "orders.fifo")
    dead = await make_queue(backend, "dead.fifo")
    for number in range(6):
        for group in "ABC":
            await send(backend, url, f"{group}{number}", group=group)
    app = App(drain_seconds=5)
    done: dict[str, list[str]] = {"A": [], "B": [], "C": []}
    attempts: Counter[str] = Counter()
    all_done = asyncio.Event()

    @app.subscriber(
        Queue("orders.fifo", wait_time_seconds=1),
        max_attempts=3,
        dead_letter="dead.fifo",
        retry=0.05,
    )
    async def handle(body: str, message: Message) -> None:
        attempts[body] += 1
        assert message.attempt == attempts[body]
        if body == "B2" or (body == "A1" and attempts[body] == 1):
            raise RuntimeError("as planned")
        done[message.group_id or ""].append(body)
        if sum(map(len, done.values())) == 17:
            all_done.set()

    async with app.running(backend):
        await eventually(all_done)
    assert done == {
        "A": [f"A{n}" for n in range(6)],
        "B": [f"B{n}" for n in (0, 1, 3, 4, 5)],
        "C": [f"C{n}" for n in range(6)],
    }
    assert attempts["B2"] == 3
    assert await empty(backend, url)
    (buried,) = await receive(backend, dead)
    assert buried.body == "B2"
    assert buried.message_attributes["pumphouse.reason"].string_value == "RuntimeError: as planned"


async def test_every_outcome(backend: Backend) -> None:
    url = await make_queue(backend, "q")
    dead = await make_queue(backend, "dead")
    for body in ("ack", "retry", "drop", "reject"):
        await send(backend, url, body)
    app = App()
    runs: Counter[str] = Counter()
    done = asyncio.Event()

    @app.subscriber(Queue("q", wait_time_seconds=1), max_attempts=5, dead_letter="dead")
    async def handle(body: str) -> object:
        runs[body] += 1
        if body == "retry" and runs[body] == 2:
            done.set()
            return None
        return {"retry": Retry(after=0), "drop": Drop(), "reject": Reject("no good")}.get(body)

    async with app.running(backend):
        await eventually(done)
    assert runs == {"ack": 1, "retry": 2, "drop": 1, "reject": 1}
    assert await empty(backend, url)
    assert [message.body for message in await receive(backend, dead)] == ["reject"]


async def test_a_lease_is_extended_past_its_timeout(backend: Backend) -> None:
    url = await make_queue(backend, "q", VisibilityTimeout="1")
    await send(backend, url, "long")
    app = App()
    runs: list[int] = []
    done = asyncio.Event()

    @app.subscriber(Queue("q", wait_time_seconds=1))
    async def handle(message: Message) -> None:
        runs.append(message.receive_count)
        await asyncio.sleep(2.3)
        done.set()

    async with app.running(backend):
        await eventually(done)
    assert runs == [1]
    assert await empty(backend, url)


async def test_a_stop_gives_back_what_is_not_done(backend: Backend) -> None:
    url = await make_queue(backend, "q", VisibilityTimeout="600")
    for number in range(10):
        await send(backend, url, str(number))
    app = App(drain_seconds=0)
    started = asyncio.Event()

    @app.subscriber(Queue("q", wait_time_seconds=1), concurrency=2)
    async def handle(body: str) -> None:
        started.set()
        await asyncio.sleep(60)

    async with app.running(backend):
        await eventually(started)
    assert len(await receive(backend, url)) == 10


async def test_plain_functions_and_replies(backend: Backend) -> None:
    url = await make_queue(backend, "q")
    out = await make_queue(backend, "out")
    for number in range(10):
        await send(backend, url, str(number))
    app = App()
    seen: list[str] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.subscriber(Queue("q", wait_time_seconds=1), concurrency=4, publish="out")
    def handle(body: int) -> dict[str, int]:
        seen.append(str(body))
        if len(seen) == 10:
            loop.call_soon_threadsafe(done.set)
        return {"twice": body * 2}

    async with app.running(backend):
        await eventually(done)
    assert await empty(backend, url)
    bodies = [message.body for message in await receive(backend, out)]
    assert sorted(bodies) == sorted(f'{{"twice":{2 * number}}}' for number in range(10))
