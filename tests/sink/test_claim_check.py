"""Large bodies go to a store and come back, in our format and in that of AWS's extended clients."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from pumphouse import Topic, content, subscribe_queue_to_topic
from pumphouse.account import Account
from pumphouse.claim_check import BlobStore, ClaimCheck, DirectoryBlobStore, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.content import UndecodableError
from pumphouse.envelope import Envelope, open_envelope
from pumphouse.errors import (
    BlobDamagedError,
    BlobMissingError,
    ClosedError,
    ConfigError,
    NotSentError,
    OutcomeUnknownError,
    PumphouseError,
    ServiceError,
    ThrottledError,
    UsageError,
)
from pumphouse.http.s3 import S3BlobStore
from pumphouse.model import Receipt
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import (
    MessageAttributeValue,
    ReceivedMessage,
    ReceiveMessage,
    SendMessageBatch,
)
from pumphouse.protocol.sns_operations import CreateTopic
from pumphouse.sink import Sink
from pumphouse.sink.letter import DeadLetter
from support.sending import outcomes

from .conftest import MakeSink

TEXT = "ü" * 50_000


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobStore() if request.param == "memory" else DirectoryBlobStore(tmp_path / "b")


async def test_a_store_keeps_replaces_and_deletes(store: BlobStore) -> None:
    with pytest.raises(BlobMissingError):
        await store.get("a/b", 10)
    await store.put("a/b", b"one")
    await store.put("a/b", b"two")
    assert await store.get("a/b", 3) == b"two"
    with pytest.raises(BlobDamagedError):
        await store.get("a/b", 2)
    await store.delete("a/b")
    await store.delete("a/b")
    with pytest.raises(BlobMissingError):
        await store.get("a/b", 10)


@pytest.mark.parametrize(
    "key", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\\b", "a\0"]
)
async def test_a_key_never_leads_out_of_the_directory(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError):
        await DirectoryBlobStore(tmp_path).put(key, b"x")


async def _receive(account: Account) -> ReceivedMessage:
    [message] = (
        await account.execute(
            ReceiveMessage("orders", message_attribute_names=["All"], max_number_of_messages=10)
        )
    ).messages
    return message


@pytest.mark.parametrize("options", [{}, {"bucket": "ours"}, {"bucket": "ours", "legacy": True}])
@pytest.mark.parametrize("body", [TEXT, b"\xff" * 80_000])
async def test_a_large_body_comes_back(
    make: MakeSink,
    account: Account,
    clock: VirtualClock,
    options: dict[str, Any],
    body: str | bytes,
) -> None:
    check = ClaimCheck(MemoryBlobStore(), **options)
    sink = make(claim_check=check)
    await outcomes(clock, [sink.send(body, attributes={"mine": "1"}, id="m1")])
    message = await _receive(account)
    assert len(message.body) < 300
    text, attributes = await check.restore(message.body, message.message_attributes)
    assert content.decode(text, attributes) == (body.encode() if isinstance(body, str) else body)
    assert content.headers_of(attributes) == {"mine": "1"}


async def test_a_small_body_travels_by_itself(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(MemoryBlobStore())
    await outcomes(clock, [make(claim_check=check).send("x" * 65_536)])
    message = await _receive(account)
    assert message.message_attributes is None
    assert await check.restore(message.body, None) == (message.body, None)


async def test_the_pointer_of_awss_extended_clients(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(MemoryBlobStore(), bucket="ours", prefix="large/")
    await outcomes(clock, [make(claim_check=check).send(TEXT, id="m1")])
    message = await _receive(account)
    [key] = check.store.blobs  # type: ignore[attr-defined]
    assert json.loads(message.body) == [
        "software.amazon.payloadoffloading.PayloadS3Pointer",
        {"s3BucketName": "ours", "s3Key": key},
    ]
    assert re.fullmatch(r"large/m1-[0-9a-f]{32}", key)
    assert message.message_attributes == {
        "ExtendedPayloadSize": MessageAttributeValue("Number", "100000")
    }
    assert check.store.blobs[key] == TEXT.encode()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "pointer"),
    [
        ("ExtendedPayloadSize", "software.amazon.payloadoffloading.PayloadS3Pointer"),
        ("SQSLargePayloadSize", "software.amazon.payloadoffloading.PayloadS3Pointer"),
        ("SQSLargePayloadSize", "com.amazon.sqs.javamessaging.MessageS3Pointer"),
    ],
)
async def test_what_the_extended_clients_wrote_is_read(name: str, pointer: str) -> None:
    check = ClaimCheck(MemoryBlobStore(), bucket="theirs")
    key = "5a1c1d1e-0000-4000-8000-000000000000"
    await check.store.put(key, b"from java")
    body = json.dumps([pointer, {"s3BucketName": "theirs", "s3Key": key}])
    attributes = {
        name: MessageAttributeValue("Number", "9"),
        "user": MessageAttributeValue("String", "u"),
    }
    text, left = await check.restore(body, attributes)
    assert text == "from java"
    assert list(left or {}) == ["user"]


@pytest.mark.parametrize(
    ("marker", "body"),
    [
        ("pumphouse.claim", "no json"),
        ("pumphouse.claim", "{}"),
        ("pumphouse.claim", '{"v":2,"claim":"x","size":1,"sha256":"x"}'),
        ("ExtendedPayloadSize", "{}"),
        ("ExtendedPayloadSize", '["other.Class",{"s3BucketName":"ours","s3Key":"k"}]'),
        (
            "ExtendedPayloadSize",
            '["software.amazon.payloadoffloading.PayloadS3Pointer",'
            '{"s3BucketName":"someone-elses","s3Key":"k"}]',
        ),
    ],
)
async def test_tickets_that_are_none_are_refused(marker: str, body: str) -> None:
    check = ClaimCheck(MemoryBlobStore(), bucket="ours")
    with pytest.raises(UndecodableError):
        await check.restore(body, {marker: MessageAttributeValue("String", "v1")})


async def test_a_user_payload_that_only_looks_like_a_ticket_is_left_alone() -> None:
    body = '["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"b","s3Key":"k"}]'
    assert await ClaimCheck(MemoryBlobStore(), bucket="b").restore(body, None) == (body, None)


async def test_the_reader_checks_the_hash(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(MemoryBlobStore())
    await outcomes(clock, [make(claim_check=check).send(TEXT, id="m1")])
    [key] = check.store.blobs  # type: ignore[attr-defined]
    check.store.blobs[key] = TEXT.upper().encode()  # type: ignore[attr-defined]
    message = await _receive(account)
    with pytest.raises(BlobDamagedError):
        await check.restore(message.body, message.message_attributes)


async def test_stored_before_the_send_and_a_retry_writes_the_same_object(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    class Watched(MemoryBlobStore):
        requests_at_put: list[int] = []  # noqa: RUF012

        async def put(self, key: str, data: bytes) -> None:
            self.requests_at_put.append(len(account.ledger.of(SendMessageBatch)))
            await super().put(key, data)

    store = Watched()
    sink = make(claim_check=ClaimCheck(store))
    account.faults.lose_answer(SendMessageBatch)
    [error] = await outcomes(clock, [sink.send(TEXT, id="order 17/ü")])
    assert isinstance(error, OutcomeUnknownError)
    [receipt] = await outcomes(clock, [sink.send(TEXT, id="order 17/ü")])
    assert receipt.message_id
    assert store.requests_at_put == [0, 1]
    assert len(store.blobs) == 1


class Troubled(MemoryBlobStore):
    """A store that fails, or takes its time."""

    def __init__(self, clock: VirtualClock, *, error: Exception | None = None, seconds: float = 0):
        super().__init__()
        self.clock, self.error, self.seconds = clock, error, seconds

    async def put(self, key: str, data: bytes) -> None:
        if self.seconds:
            await self.clock.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        await super().put(key, data)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("no space left"), NotSentError),
        (OutcomeUnknownError("no answer"), NotSentError),
        (from_answer("SlowDown", status=503), ThrottledError),
        (ConfigError("no such bucket"), ConfigError),
    ],
)
async def test_what_can_not_be_stored_is_not_sent_and_is_kept_whole(
    make: MakeSink,
    account: Account,
    clock: VirtualClock,
    error: Exception,
    kind: type[PumphouseError],
) -> None:
    letters: list[DeadLetter] = []
    check = ClaimCheck(Troubled(clock, error=error))
    sink = make(claim_check=check, on_dead_letter=letters.append)
    [results] = await outcomes(clock, [sink.send_many([TEXT, "small"])])
    assert isinstance(results[0], kind), "never unknown: the message was not sent"
    assert error in (results[0], results[0].__cause__)
    assert results[1].message_id, "its neighbour is"
    assert [letter.body for letter in letters] == [TEXT]
    assert [sent.body for sent in account.sent("orders")] == ["small"]


@pytest.mark.parametrize("stored_after", [3, 1_000])
async def test_closing_waits_for_what_is_being_stored_but_not_for_ever(
    make: MakeSink, account: Account, clock: VirtualClock, stored_after: float
) -> None:
    sink = make(claim_check=ClaimCheck(Troubled(clock, seconds=stored_after)), batch_linger=60)
    task = asyncio.create_task(sink.send(TEXT))
    await clock.settle()
    closing = asyncio.create_task(sink.aclose(10))
    await clock.advance(10)
    assert closing.done()
    if stored_after == 3:
        assert (await task).message_id
    else:
        assert isinstance(task.exception(), ClosedError)
    with pytest.raises(ClosedError):
        await sink.send(TEXT)


async def test_no_message_has_the_body_of_another_whatever_their_ids_are(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    """The same id in another queue, of another tenant, with another body or sent as a replay."""
    check = ClaimCheck(MemoryBlobStore())
    one, two = make(claim_check=check), make("orders.fifo", claim_check=check)
    await outcomes(
        clock,
        [
            one.send(TEXT, id="m1"),
            two.send(TEXT, id="m1", group_id="g"),
            one.send(TEXT.upper(), id="m1"),
            one.send(TEXT, id="m1", tenant="t"),
            one.send(TEXT, id="m1", replay_id="r"),
            one.send(TEXT, id="m1"),  # the same message again
            *(one.send(Envelope(id="m1", source_id=s, body=TEXT.encode())) for s in "ab"),
        ],
    )
    assert len(check.store.blobs) == 7  # type: ignore[attr-defined]


async def test_ten_attributes_leave_no_place_for_the_ticket(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(claim_check=ClaimCheck(MemoryBlobStore()))
    ten = {f"a{n}": "x" for n in range(10)}
    [error] = await outcomes(clock, [sink.send(TEXT, attributes=ten)])
    assert isinstance(error, UsageError)
    assert not account.ledger


async def test_what_tells_an_envelope_whose_body_lies_elsewhere_has_its_place(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    """Otherwise nobody would know that there is a body to be deleted."""
    store = MemoryBlobStore()
    check = ClaimCheck(store, inline_max_bytes=10)
    sink = make(claim_check=check)
    envelope = Envelope(id="i", source_id="s", body=b"b" * 100)
    own = {f"own{n}": "x" for n in range(8)}
    [receipt] = await outcomes(clock, [sink.send(envelope, attributes=own)])
    assert isinstance(receipt, Receipt)
    everything = ReceiveMessage("orders", message_attribute_names=["All"])
    [message] = (await account.execute(everything)).messages
    await check.delete_message(account, "orders", message)
    assert not store.blobs
    [error] = await outcomes(clock, [sink.send(envelope, attributes=own | {"ninth": "x"})])
    assert isinstance(error, UsageError)
    assert "9 attributes" in str(error)
    assert not store.blobs
    assert len(account.sent("orders")) == 1


@pytest.mark.parametrize("enveloped", [False, True])
async def test_what_its_caller_changes_while_it_waits_is_sent_as_it_was(
    make: MakeSink, account: Account, clock: VirtualClock, enveloped: bool
) -> None:
    gate = asyncio.Event()

    class Slow(MemoryBlobStore):
        async def put(self, key: str, data: bytes) -> None:
            await gate.wait()
            await super().put(key, data)

    store = Slow()
    sink = make(
        "orders.fifo",
        claim_check=ClaimCheck(store, inline_max_bytes=10),
        batch_queue_max=1,
        wait=True,
        group_id=lambda message: "g",
    )
    row: dict[str, Any] = {"id": 0, "padding": "x" * 50}
    attributes = {"number": "0"}
    tasks = []
    for number in range(3):
        row["id"] = number
        attributes["number"] = str(number)
        body = Envelope(id=f"e{number}", source_id="s", body=b"x" * 50) if enveloped else row
        tasks.append(asyncio.create_task(sink.send(body, attributes=attributes)))
        await clock.settle()
    row.clear()
    attributes.clear()
    gate.set()
    await clock.run_until(lambda: all(task.done() for task in tasks))
    sent = account.sent("orders.fifo")
    assert [(each.attributes or {})["number"].string_value for each in sent] == ["0", "1", "2"]
    if not enveloped:
        assert sorted(json.loads(data)["id"] for data in store.blobs.values()) == [0, 1, 2]


async def test_it_is_deleted_only_after_its_message_was(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(MemoryBlobStore())
    await outcomes(clock, [make(claim_check=check).send(TEXT, id="m1")])
    message = await _receive(account)
    url = "https://sqs.us-east-1.amazonaws.com/000000000000/orders"
    account.faults.refuse("DeleteMessage", "InternalError")
    with pytest.raises(ServiceError):
        await check.delete_message(account, url, message)
    assert check.store.blobs  # type: ignore[attr-defined]
    await check.delete_message(account, url, message)
    assert not check.store.blobs  # type: ignore[attr-defined]


async def test_a_directory_as_store_with_a_sink_on_the_real_clock(
    account: Account, tmp_path: Path, make: MakeSink
) -> None:
    check = ClaimCheck(DirectoryBlobStore(tmp_path))
    async with Sink("orders", account, claim_check=check, batch_linger=0) as sink:
        await asyncio.gather(*(sink.send(TEXT + str(n), id=f"m{n}") for n in range(20)))
    names = [path.name.partition("-")[0] for path in tmp_path.iterdir()]
    assert sorted(names) == sorted(f"m{n}" for n in range(20))


@pytest.mark.parametrize("options", [{"inline_max_bytes": -1}, {"max_bytes": 0}])
def test_bad_sizes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        ClaimCheck(MemoryBlobStore(), **options)  # type: ignore[arg-type]


# --- what a message may choose ------------------------------------------------------------------

POINTER = "software.amazon.payloadoffloading.PayloadS3Pointer"


def _ticket(key: str, bucket: str | None) -> tuple[str, dict[str, MessageAttributeValue]]:
    if bucket is None:
        body: Any = {"v": 1, "claim": key, "size": 3, "sha256": hashlib.sha256(b"its").hexdigest()}
        return json.dumps(body), {"pumphouse.claim": MessageAttributeValue("String", "v1")}
    pointer = [POINTER, {"s3BucketName": bucket, "s3Key": key}]
    return json.dumps(pointer), {"ExtendedPayloadSize": MessageAttributeValue("Number", "3")}


@pytest.mark.parametrize("bucket", [None, "ours"])
@pytest.mark.parametrize("key", ["invoices/1", "order", "orders/../invoices/1", "orders/./x"])
async def test_only_what_lies_under_the_prefix_is_read_or_deleted(
    key: str, bucket: str | None
) -> None:
    store = MemoryBlobStore()
    check = ClaimCheck(store, prefix="orders/", bucket=bucket)
    store.blobs = {key: b"its", "orders/mine": b"its"}
    text, attributes = _ticket(key, bucket)
    with pytest.raises(UndecodableError, match=r"only those under its prefix 'orders/'"):
        await check.restore(text, attributes)
    await check.discard(text, attributes)
    assert key in store.blobs
    text, attributes = _ticket("orders/mine", bucket)
    assert await check.restore(text, attributes) == ("its", None)
    await check.discard(text, attributes)
    assert list(store.blobs) == [key]


async def test_an_envelope_reads_and_deletes_under_the_prefix_only() -> None:
    store = MemoryBlobStore()
    writer, reader = ClaimCheck(store, inline_max_bytes=1), ClaimCheck(store, prefix="orders/")
    hook = await Envelope(id="e", source_id="s", body=b"large").offloaded(writer)
    attributes = {k: MessageAttributeValue("String", v) for k, v in hook.attributes().items()}
    with pytest.raises(UndecodableError, match="under its prefix"):
        await open_envelope(hook.to_json(), reader)
    await reader.discard(hook.to_json().decode(), attributes)
    assert store.blobs
    await writer.discard(hook.to_json().decode(), attributes)
    assert not store.blobs


async def test_a_body_from_outside_that_looks_like_an_envelope_deletes_nothing(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    store = MemoryBlobStore()
    check = ClaimCheck(store, inline_max_bytes=250)
    sink = make(claim_check=check)
    await outcomes(clock, [sink.send("v" * 400, id="victim")])
    [key] = store.blobs
    document = {"v": 1, "id": "a", "source_id": "", "received_at": 1, "size": 1, "sha256": ""}
    body = json.dumps(document | {"claim": key})
    other = {"pumphouse_message_version": "1", "pumphouse_id": "b"}
    await outcomes(clock, [sink.send(body), sink.send(body, attributes=other)])
    for sent in account.sent("orders")[1:]:
        await check.discard(sent.body, sent.attributes)
    assert list(store.blobs) == [key]


async def test_a_key_that_the_store_can_not_have_is_undecodable_and_nothing_to_delete(
    tmp_path: Path,
) -> None:
    check = ClaimCheck(DirectoryBlobStore(tmp_path), bucket="ours")
    text, attributes = _ticket("my file.json", "ours")
    with pytest.raises(UndecodableError, match=r"'my file\.json' is no key"):
        await check.restore(text, attributes)
    await check.discard(text, attributes)


@pytest.mark.parametrize("prefix", ["/x y/", "../", "a//", "-", "/", "a/.", 5, None])
def test_a_prefix_that_no_key_can_begin_with_is_refused_at_once(
    store: BlobStore, prefix: Any
) -> None:
    with pytest.raises(UsageError, match="prefix is"):
        ClaimCheck(store, prefix=prefix)


@pytest.mark.parametrize("store", ["blobs", Path("blobs"), None, MemoryBlobStore])
def test_what_is_no_store_is_told_at_once(store: Any) -> None:
    if store is MemoryBlobStore:
        ClaimCheck(store())
        return
    with pytest.raises(UsageError, match="it is a BlobStore, as DirectoryBlobStore"):
        ClaimCheck(store)


def test_a_prefix_is_what_the_store_takes() -> None:
    bucket = S3BlobStore("bodies")
    assert ClaimCheck(bucket, prefix="dt=2026/my file ").prefix
    for prefix in ("../", "x" * 1_000, "\ud800"):
        with pytest.raises(UsageError, match="prefix is"):
            ClaimCheck(bucket, prefix=prefix)


# --- bodies that more than one reader wants -----------------------------------------------------


async def test_the_second_copy_on_a_standard_queue_has_no_body_unless_bodies_stay(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    for keep in (False, True):
        store = MemoryBlobStore()
        check = ClaimCheck(store, inline_max_bytes=10, delete_after_handling=not keep)
        account.faults.lose_answer(SendMessageBatch)
        await outcomes(clock, [make(claim_check=check, retry_unknown=True).send("x" * 99, id="m")])
        first, second = (
            await account.execute(
                ReceiveMessage("orders", message_attribute_names=["All"], max_number_of_messages=10)
            )
        ).messages
        assert first.body == second.body
        assert (await check.restore(first.body, first.message_attributes))[0] == "x" * 99
        await check.delete_message(account, "orders", first)
        if keep:
            assert (await check.restore(second.body, second.message_attributes))[0] == "x" * 99
        else:
            with pytest.raises(BlobMissingError):
                await check.restore(second.body, second.message_attributes)
        await check.delete_message(account, "orders", second)
        assert bool(store.blobs) is keep


@pytest.mark.parametrize("form", [{}, {"bucket": "ours"}, {"prefix": "large-"}])
@pytest.mark.parametrize("body", ["x" * 99, Envelope(id="e", source_id="s", body=b"x" * 99)])
async def test_the_body_of_a_topics_message_outlives_its_first_reader(
    make: MakeSink, account: Account, clock: VirtualClock, form: dict[str, Any], body: object
) -> None:
    await account.execute(CreateTopic("t"))
    await subscribe_queue_to_topic(account, "orders", Topic("t"))
    store = MemoryBlobStore()
    check = ClaimCheck(store, inline_max_bytes=10, **form)
    async with Sink(Topic("t"), account, clock=clock, claim_check=check) as sink:
        await outcomes(clock, [sink.send(body)])
    message = await _receive(account)
    await check.delete_message(account, "orders", message)
    [key] = store.blobs
    assert key.startswith(f"{check.prefix}shared/")


async def test_a_directorys_body_is_on_the_disk_with_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        directory = stat.S_ISDIR(os.fstat(handle).st_mode)
        done.append(os.readlink(f"/proc/self/fd/{handle}") if directory else "the file")
        sync(handle)

    def replaced(source: str, target: Path) -> None:
        done.append("its name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    await DirectoryBlobStore(tmp_path / "b").put("c/d", b"x")
    directories = [tmp_path / "b" / "c", tmp_path / "b", tmp_path]
    assert done == ["the file", "its name", *map(str, directories)]
    done.clear()
    await DirectoryBlobStore(tmp_path / "b").put("c/d", b"y")
    assert done == ["the file", "its name", str(directories[0])]
