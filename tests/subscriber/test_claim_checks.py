"""Bodies that were stored apart: fetched before the handler, deleted after their message was."""

from __future__ import annotations

from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.content import UndecodableError
from pumphouse.envelope import Envelope, open_envelope
from pumphouse.errors import UsageError
from pumphouse.model import Message
from pumphouse.protocol.operations import CreateQueue, ReceiveMessage
from pumphouse.sink import Sink
from pumphouse.subscriber.outcomes import Drop, Reject

TEXT = "large " * 20_000


class Store(MemoryBlobStore):
    """Counts, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self.gets = 0

    async def get(self, key: str, max_bytes: int) -> bytes:
        self.gets += 1
        if self.failures:
            self.failures -= 1
            raise OSError("the store is away")
        return await super().get(key, max_bytes)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def check(store: Store) -> ClaimCheck:
    return ClaimCheck(store)


async def publish(account: Account, queue: str, check: ClaimCheck, *bodies: Any) -> None:
    fifo = queue.endswith(".fifo")
    await account.execute(CreateQueue(queue, {"FifoQueue": "true"} if fifo else None))
    async with Sink(
        queue, account, clock=account.clock, claim_check=check, batch_linger=0, group_id="g"
    ) as sink:
        for body in bodies:
            await sink.send(body, attributes={"mine": "1"})


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("batch", [None, 5])
async def test_a_handler_gets_the_body_and_the_store_is_empty_afterwards(
    account: Account,
    clock: VirtualClock,
    check: ClaimCheck,
    store: Store,
    queue: str,
    batch: int | None,
) -> None:
    await publish(account, queue, check, TEXT, "small", b"\xff" * 70_000)
    assert len(store.blobs) == 2
    app = App()
    seen: list[bytes] = []

    if batch:

        @app.subscriber(queue, claim_check=check, batch=batch)
        async def handle_all(bodies: list[bytes], messages: list[Message]) -> None:
            seen.extend(bodies)
            assert all(message.headers == {"mine": "1"} for message in messages)
    else:

        @app.subscriber(queue, claim_check=check)
        async def handle(body: bytes, message: Message) -> None:
            seen.append(body)
            assert message.headers == {"mine": "1"}
            assert message.body == body

    async with app.running(account) as running:
        await clock.run_until(lambda: len(seen) == 3)
        assert sum(consumer.stats.acked for consumer in running.consumers) <= 3
    assert sorted(seen) == sorted([TEXT.encode(), b"small", b"\xff" * 70_000])
    assert not store.blobs


async def test_a_body_stays_until_the_delete_of_its_message_is_confirmed(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store
) -> None:
    await publish(account, "q", check, TEXT)
    account.faults.refuse("DeleteMessageBatch", "InternalError", times=3)
    app = App()
    runs = 0

    @app.subscriber("q", claim_check=check)
    async def handle(body: str) -> None:
        nonlocal runs
        runs += 1

    async with app.running(account) as running:
        deleted = account.ledger
        await clock.run_until(lambda: len(deleted.of("DeleteMessageBatch")) == 3)
        assert store.blobs, "no delete was confirmed yet"
        await clock.run_until(lambda: not store.blobs)
        assert running.consumers[0].stats.deleted == 1
    assert runs == 1


async def test_a_store_that_fails_is_a_failed_attempt_and_keeps_the_order(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store
) -> None:
    await publish(account, "q.fifo", check, TEXT + "1", "2", TEXT + "3")
    store.failures = 2
    app = App()
    seen: list[str] = []

    @app.subscriber("q.fifo", claim_check=check, retry=1)
    async def handle(body: str) -> None:
        seen.append(body[-1])

    async with app.running(account) as running:
        await clock.run_until(lambda: len(seen) == 3)
        assert running.consumers[0].stats.retried == 2
    assert seen == ["1", "2", "3"]
    assert not store.blobs


@pytest.mark.parametrize("trouble", ["missing", "damaged"])
async def test_a_body_that_is_gone_or_damaged_is_undecodable_and_hurts_no_other(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store, trouble: str
) -> None:
    await publish(account, "q", check, TEXT, "small")
    [key] = store.blobs
    if trouble == "missing":
        store.blobs.clear()
    else:
        store.blobs[key] = b"something else"
    await account.execute(CreateQueue("dead"))
    app = App()
    seen: list[str] = []

    @app.subscriber(
        "q", claim_check=check, undecodable="reject", max_attempts=3, dead_letter="dead"
    )
    async def handle(body: str) -> None:
        seen.append(body)

    async with app.running(account) as running:
        stats = running.consumers[0].stats
        await clock.run_until(lambda: stats.dead_lettered == 1 and stats.acked == 1)
    assert seen == ["small"]


async def test_a_message_in_the_dead_letter_queue_keeps_its_body(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store
) -> None:
    await publish(account, "q", check, TEXT)
    await account.execute(CreateQueue("dead"))
    app = App()

    @app.subscriber("q", claim_check=check, max_attempts=3, dead_letter="dead")
    async def handle(body: str) -> Reject:
        assert body == TEXT
        return Reject("not wanted")

    async with app.running(account) as running:
        await clock.run_until(lambda: running.consumers[0].stats.deleted == 1)
    [message] = (
        await account.execute(ReceiveMessage("dead", message_attribute_names=["All"]))
    ).messages
    assert len(message.body) < 1_000, "it travels as a ticket"
    assert (await check.restore(message.body, message.message_attributes))[0] == TEXT


async def test_the_body_of_an_envelope_goes_with_its_message(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store
) -> None:
    hook = Envelope(id="e1", source_id="github", body=TEXT.encode())
    await publish(account, "q", check, hook)
    assert store.blobs
    app = App()
    opened: list[Envelope] = []

    @app.subscriber("q", claim_check=check)
    async def handle(body: str) -> Drop:
        opened.append(await open_envelope(body, check))
        return Drop("seen")

    async with app.running(account):
        await clock.run_until(lambda: not store.blobs)
    assert opened == [hook]


async def test_a_body_that_only_looks_like_a_claim_deletes_nothing(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store
) -> None:
    await store.put("kept", b"x")
    await publish(account, "q", check, {"claim": "kept"}, {"v": 1, "claim": "kept", "id": "x"})
    app = App()

    @app.subscriber("q", claim_check=check)
    async def handle(body: dict[str, Any]) -> None:
        pass

    async with app.running(account) as running:
        await clock.run_until(lambda: running.consumers[0].stats.deleted == 2)
    assert list(store.blobs) == ["kept"]


def test_options_that_do_not_go_together() -> None:
    app = App()
    for options in (
        {"claim_check": "no"},
        {"claim_check": ClaimCheck(MemoryBlobStore()), "partition_key": str},
    ):
        with pytest.raises(UsageError, match=r"claim.check"):

            @app.subscriber("q", **options)  # type: ignore[arg-type]
            async def handle(body: str) -> None:
                raise UndecodableError


@pytest.mark.parametrize("payload", [str, bytes, dict])
async def test_a_ticket_is_no_payload_where_there_is_no_claim_check(
    account: Account, clock: VirtualClock, check: ClaimCheck, store: Store, payload: type
) -> None:
    await publish(account, "q", check, {"text": TEXT}, {"text": "small"})
    await account.execute(CreateQueue("dead"))
    app = App()
    seen: list[object] = []

    async def handle(body: object) -> None:
        seen.append(body)

    handle.__annotations__["body"] = payload
    app.subscriber("q", undecodable="reject", max_attempts=3, dead_letter="dead")(handle)
    async with app.running(account) as running:
        stats = running.consumers[0].stats
        await clock.run_until(lambda: stats.dead_lettered == 1 and stats.acked == 1)
    assert len(seen) == 1
    assert "small" in str(seen[0])
    [dead] = account.sent("dead")
    reason = (dead.attributes or {})["pumphouse.reason"].string_value
    assert reason is not None
    assert "subscribe with claim_check=" in reason
    assert len(store.blobs) == 1
