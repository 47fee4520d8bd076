"""The client against a server that breaks in every way: what a caller is told is what happened."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.confirmation import confirm
from pumphouse.errors import (
    Md5MismatchError,
    NetworkError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedConfigError,
    RefusedError,
    ServiceError,
    ThrottledError,
    TransientError,
    UnexpectedAnswerError,
)
from pumphouse.http import HttpBackend, Keys
from pumphouse.http.events import RequestStarted
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    DeleteMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)
from support.fault_server import PLAYS, FaultServer, Request
from support.sent import Sent

KEYS = Keys("AKIDEXAMPLE", "secret")
QUICK = RetryPolicy(base_seconds=0.0, cap_seconds=0.0, max_attempts=4, budget_seconds=None)


def client(server: FaultServer, retry: RetryPolicy = QUICK, **options) -> HttpBackend:
    options.setdefault("read_timeout_seconds", 0.05)
    return HttpBackend(
        region="us-east-1", endpoint_url=server.url, credentials=KEYS, retry=retry, **options
    )


def first(play: str) -> Callable[[Request], str]:
    """The play for the first request with a body, and `ok` from then on."""
    return lambda request: play if request.attempt == 1 else "ok"


CARRIED_OUT_AND_TOLD = ["ok", "trickle", "chunked", "interim", "close", "until_end", "reset_after"]


@pytest.mark.parametrize("play", CARRIED_OUT_AND_TOLD)
async def test_an_answer_in_any_form_is_read(play: str) -> None:
    async with FaultServer(lambda request: play) as server, client(server, NO_RETRIES) as backend:
        for number in range(3):
            await backend.execute(SendMessage(server.queue, f"m{number}"))
            await asyncio.sleep(0)
        assert server.ledger.stored == Counter(m0=1, m1=1, m2=1)


UNKNOWN = ["lost", "reset_before", "reset_during", "half", "cut_short", "silence", "cut_json"]
UNKNOWN += ["garbage", "html_503", "html_200", "bare_500"]


@pytest.mark.parametrize("play", UNKNOWN)
async def test_a_lost_answer_is_unknown_and_a_plain_send_is_not_sent_again(play: str) -> None:
    def script(request: Request) -> str:
        return play if request.body["MessageBody"] == "m" else "ok"

    async with FaultServer(script) as server, client(server) as backend:
        with pytest.raises(OutcomeUnknownError):
            await backend.execute(SendMessage(server.queue, "m"))
        assert len(server.ledger.requests) == 1
        await backend.execute(SendMessage(server.queue, "n"))  # the backend is as good as before
        assert server.ledger.stored["n"] == 1


@pytest.mark.parametrize("play", UNKNOWN)
async def test_a_deduplicated_send_and_a_delete_are_sent_again(play: str) -> None:
    async with FaultServer(first(play)) as server, client(server) as backend:
        send = SendMessage(
            server.queue + ".fifo", "m", message_deduplication_id="d", message_group_id="g"
        )
        await backend.execute(send)
        await backend.execute(DeleteMessage(server.queue, "handle"))
        assert len(server.ledger.requests) == 4
        assert server.ledger.stored == Counter(m=1)
        assert server.ledger.deleted["handle"] >= 1


@pytest.mark.parametrize(
    ("play", "error", "code"),
    [
        ("error_500", TransientError, "InternalFailure"),
        ("throttle_400", ThrottledError, "ThrottlingException"),
        ("throttle_403", ThrottledError, "RequestThrottled"),
        ("throttle_429", ThrottledError, "TooManyRequestsException"),
        ("throttle_503", ThrottledError, "ServiceUnavailable"),
        ("refuse", RefusedError, "InvalidMessageContents"),
        ("denied", RefusedConfigError, "AccessDenied"),
        ("gone", QueueDoesNotExist, "QueueDoesNotExist"),
    ],
)
async def test_every_answer_has_its_class(play: str, error: type[ServiceError], code: str) -> None:
    async with FaultServer(lambda request: play) as server, client(server) as backend:
        with pytest.raises(error) as caught:
            await backend.execute(SendMessage(server.queue, "m"))
        assert type(caught.value) is error
        assert caught.value.code == code
        assert caught.value.request_id == "r-1"
        assert not server.ledger.stored
        again = issubclass(error, (TransientError, ThrottledError))
        assert len(server.ledger.requests) == (4 if again else 1)


@pytest.mark.parametrize("play", ["html_503", "html_200", "bare_500", "cut_json"])
async def test_an_answer_that_is_no_document_says_so(play: str) -> None:
    async with FaultServer(lambda request: play) as server, client(server) as backend:
        with pytest.raises(UnexpectedAnswerError) as caught:
            await backend.execute(DeleteMessage(server.queue, "h"))
        assert caught.value.status == {"html_503": 503, "bare_500": 500}.get(play, 200)
        assert len(server.ledger.requests) == 4


async def test_throttling_carries_the_delay_to_wait_and_honours_the_services() -> None:
    retry = RetryPolicy(base_seconds=8.0, cap_seconds=8.0, max_attempts=1)
    async with (
        FaultServer(lambda request: "throttle_429") as server,
        client(server, retry) as backend,
    ):
        delays = set()
        for _ in range(5):
            with pytest.raises(ThrottledError) as caught:
                await backend.execute(SendMessage(server.queue, "m"))
            delays.add(caught.value.retry_after_seconds)
        assert len(delays) == 5  # full jitter
        assert all(0 <= delay <= 8 for delay in delays)
        server.extra_headers["Retry-After"] = "17"
        with pytest.raises(ThrottledError) as caught:
            await backend.execute(SendMessage(server.queue, "m"))
        assert caught.value.retry_after_seconds == 17


async def test_a_wrong_md5_is_seen_by_who_confirms() -> None:
    async with FaultServer(lambda request: "wrong_md5") as server, client(server) as backend:
        answer = await backend.execute(SendMessage(server.queue, "m"))
        [outcome] = confirm(server.queue, [Sent("m")], answer).outcomes
        assert isinstance(outcome, Md5MismatchError)


async def test_keep_alive_that_ends_as_the_next_request_is_sent() -> None:
    """Nothing of an answer came and the connection had been used before: that is no proof."""
    async with FaultServer(lambda r: "close_on_next" if r.body["MessageBody"] == "a" else "ok") as (
        server
    ):
        async with client(server) as backend:
            await backend.execute(SendMessage(server.queue, "a"))
            with pytest.raises(OutcomeUnknownError):
                await backend.execute(SendMessage(server.queue, "b"))
            await backend.execute(SendMessage(server.queue, "a", message_deduplication_id="1"))
            await backend.execute(SendMessage(server.queue, "c", message_deduplication_id="2"))
        assert server.ledger.stored == Counter(a=2, c=1)


async def test_a_connection_that_was_seen_to_close_costs_nothing() -> None:
    """The end had arrived before the request was written: it goes out on another connection."""
    async with FaultServer(lambda request: "reset_after") as server:
        async with client(server, NO_RETRIES) as backend:
            for number in range(50):
                await backend.execute(SendMessage(server.queue, f"m{number}"))
                await server.idle.wait()
                await asyncio.sleep(0.001)  # and the end has to arrive
        assert sum(server.ledger.stored.values()) == 50


async def test_no_connection_is_a_network_error_and_tried_again() -> None:
    async with FaultServer() as server:
        url = server.url
    events = []
    async with HttpBackend(
        region="us-east-1", endpoint_url=url, credentials=KEYS, retry=QUICK
    ) as backend:
        backend.hooks.on(RequestStarted, events.append)
        with pytest.raises(NetworkError, match=r"no connection to http://127\.0\.0\.1:"):
            await backend.execute(SendMessage(f"{url}/0/q", "m"))
    assert [event.attempt for event in events] == [1, 2, 3, 4]


async def test_a_later_refusal_does_not_settle_an_earlier_doubt() -> None:
    plays = iter(["lost", "denied", "lost", "denied"])
    async with FaultServer(lambda request: next(plays)) as server, client(server) as backend:
        send = SendMessage(server.queue, "m", message_deduplication_id="d", message_group_id="g")
        with pytest.raises(OutcomeUnknownError) as caught:
            await backend.execute(send)
        assert isinstance(caught.value.__cause__, RefusedConfigError)
        assert server.ledger.stored == Counter(m=1)
        with pytest.raises(RefusedConfigError):  # a delete is done or not, and the word stands
            await backend.execute(DeleteMessage(server.queue, "h"))


async def test_a_proxys_page_does_not_settle_an_earlier_doubt_either() -> None:
    """Whoever takes a page with 503 as "not processed" must not take it so for the whole call."""
    plays = iter(["lost", "html_503", "html_503", "html_503"])
    async with FaultServer(lambda request: next(plays)) as server, client(server) as backend:
        send = SendMessage(server.queue, "m", message_deduplication_id="d", message_group_id="g")
        with pytest.raises(OutcomeUnknownError) as caught:
            await backend.execute(send)
        assert type(caught.value) is OutcomeUnknownError
        assert isinstance(caught.value.__cause__, UnexpectedAnswerError)
        assert server.ledger.stored == Counter(m=1)


# --- ten thousand calls ---------------------------------------------------------------------------


async def test_ten_thousand_mixed_calls_end_as_what_the_ledger_says() -> None:
    rng = random.Random(20260101)
    names = sorted(set(PLAYS) - {"skewed", "expired_token", "drop_next", "hold"})
    rare = {"silence": 0.3, "half": 0.3, "trickle": 0.1}  # they take time, or thousands of turns
    weights = [40 if name == "ok" else rare.get(name, 1) for name in names]
    told: Counter[str] = Counter()
    played: Counter[str] = Counter()

    def script(request: Request) -> str:
        play = rng.choices(names, weights)[0]
        played[play] += 1
        return play

    async with FaultServer(script) as server, client(server, max_connections=24) as backend:

        async def one(number: int) -> None:
            kind = number % 4
            if kind == 3:
                await delete(f"h{number}")
                return
            fifo = kind == 1 or number % 8 == 2
            size = 3 if kind == 2 else 1
            sent = [
                Sent(f"{number}.{i}", deduplication_id=f"{number}.{i}" if fifo else None)
                for i in range(size)
            ]
            group = "g" if fifo else None
            operation = (
                SendMessageBatch(
                    server.queue,
                    [
                        SendMessageBatchRequestEntry(
                            str(i),
                            message.body,
                            message_deduplication_id=message.deduplication_id,
                            message_group_id=group,
                        )
                        for i, message in enumerate(sent)
                    ],
                )
                if kind == 2
                else SendMessage(
                    server.queue,
                    sent[0].body,
                    message_deduplication_id=sent[0].deduplication_id,
                    message_group_id=group,
                )
            )
            try:
                answer = await backend.execute(operation)
            except PumphouseError as error:
                answer = error
            for message, outcome in zip(
                sent, confirm(server.queue, sent, answer).outcomes, strict=True
            ):
                judge(message.body, outcome)

        def judge(body: str, outcome: Receipt | PumphouseError) -> None:
            count = server.ledger.stored[body]
            if isinstance(outcome, Receipt):
                told["stored"] += 1
                assert count == 1, (body, outcome)
            elif isinstance(outcome, OutcomeUnknownError):
                told["unknown"] += 1
                assert count <= 1, (body, outcome)
            else:
                told["refused"] += 1
                assert isinstance(outcome, (ServiceError, NetworkError))
                assert count == 0, (body, outcome)

        async def delete(handle: str) -> None:
            try:
                await backend.execute(DeleteMessage(server.queue, handle))
            except OutcomeUnknownError:
                told["unknown"] += 1
            except (ServiceError, NetworkError):
                told["refused"] += 1
            else:
                told["done"] += 1
                assert server.ledger.deleted[handle] >= 1

        numbers = iter(range(10_000))

        async def worker() -> None:
            for number in numbers:
                await one(number)

        async with asyncio.TaskGroup() as workers:
            for _ in range(24):
                workers.create_task(worker())
        lanes = backend._loops.pool().lanes
        assert all(lane.sizes[1:] == (0, 0) for lane in lanes)
    assert set(names) == set(played)
    assert sum(told.values()) == 2_500 * 6  # two single sends, one batch of three, one delete
    assert min(told[kind] for kind in ("stored", "refused", "unknown", "done")) > 200
