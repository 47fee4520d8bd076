"""The envelope: what it says, what it leaves out, and what a reader refuses."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumphouse.account import Account
from pumphouse.claim_check import ClaimCheck, MemoryBlobStore
from pumphouse.clock import VirtualClock
from pumphouse.content import UndecodableError
from pumphouse.envelope import Envelope, forwarded_headers, open_envelope
from pumphouse.errors import BlobDamagedError, BlobMissingError, UsageError
from support.sending import outcomes

from .conftest import MakeSink

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)


def envelope(**changes: Any) -> Envelope:
    values: dict[str, Any] = {
        "id": "evt1",
        "source_id": "stripe",
        "tenant_id": "acme",
        "body": b'{"x":1}',
        "received_at": WHEN,
        "content_type": "application/json",
        "dedupe_key": "k1",
        "headers": {"X-GitHub-Event": "push", "Authorization": "secret"},
    }
    return Envelope(**(values | changes))


def test_the_document() -> None:
    assert json.loads(envelope(replay_id="r1").to_json()) == {
        "v": 1,
        "id": "evt1",
        "source_id": "stripe",
        "tenant_id": "acme",
        "received_at": 1_767_323_045_678,
        "content_type": "application/json",
        "size": 7,
        "dedupe_key": "k1",
        "replay_id": "r1",
        "headers": {"x-github-event": "push"},
        "sha256": hashlib.sha256(b'{"x":1}').hexdigest(),
        "body_base64": base64.b64encode(b'{"x":1}').decode(),
    }


@given(body=st.binary(max_size=300), text=st.text(max_size=20))
async def test_it_comes_back_as_it_was(body: bytes, text: str) -> None:
    sent = envelope(body=body, dedupe_key=text or None, content_type=text or None)
    if any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        return
    assert await open_envelope(sent.to_json()) == sent


async def test_a_reader_ignores_keys_that_it_does_not_know() -> None:
    document = json.loads(envelope().to_json()) | {"later": {"x": 1}}
    assert await open_envelope(json.dumps(document)) == envelope()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"v": 2}, UndecodableError),
        ({"id": None}, UndecodableError),
        ({"id": ""}, UndecodableError),
        ({"body_base64": "?"}, UndecodableError),
        ({"body_base64": None}, UndecodableError),
        ({"claim": "also"}, UndecodableError),
        ({"size": 8}, BlobDamagedError),
        ({"sha256": "0" * 64}, BlobDamagedError),
        ({"received_at": 10**30}, UndecodableError),
        ({"headers": 3}, UndecodableError),
    ],
)
async def test_what_a_reader_refuses(change: dict[str, Any], error: type[Exception]) -> None:
    document = json.loads(envelope().to_json()) | change
    with pytest.raises(error):
        await open_envelope(json.dumps(document))


@pytest.mark.parametrize("text", ["", "not json", "[]", "7", '{"v":1}'])
async def test_what_is_no_envelope(text: str) -> None:
    with pytest.raises(UndecodableError):
        await open_envelope(text)


@pytest.mark.parametrize(
    "changes",
    [{"id": ""}, {"body": None}, {"claim": "x"}, {"received_at": datetime(2026, 1, 1)}],
)
def test_what_is_none_from_the_start(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        envelope(**changes)


# --- headers ------------------------------------------------------------------------------------


def test_secrets_hop_by_hop_and_our_own_headers_are_never_forwarded() -> None:
    headers = [
        *[("Authorization", "x"), ("Proxy-Authorization", "x"), ("Cookie", "x")],
        *[("Set-Cookie", "x"), ("X-Api-Key", "x"), ("Host", "x"), ("Content-Length", "1")],
        *[("Content-Type", "x"), ("Connection", "keep-alive, X-Hop"), ("X-Hop", "x")],
        *[("Keep-Alive", "x"), ("Transfer-Encoding", "chunked"), ("TE", "x"), ("Trailer", "x")],
        *[("Cookie2", "x"), ("Set-Cookie2", "x")],
        *[("Upgrade", "x"), ("Expect", "x"), ("X-Pumphouse-Anything", "x")],
        *[("X-GitHub-Event", "push"), ("Accept", "a"), ("accept", "b")],
    ]
    assert forwarded_headers(headers) == {"x-github-event": "push", "accept": "a, b"}
    assert forwarded_headers(headers, only=["Accept", "Cookie"]) == {"accept": "a, b"}
    assert forwarded_headers(headers, only=[]) == {}


# --- the message around it ----------------------------------------------------------------------


async def test_the_attributes_of_its_message(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make("orders.fifo")
    await outcomes(clock, [sink.send(envelope(replay_id="r1"))])
    [sent] = account.sent("orders.fifo")
    assert {name: (v.data_type, v.string_value) for name, v in (sent.attributes or {}).items()} == {
        "pumphouse_id": ("String", "evt1"),
        "pumphouse_source_id": ("String", "stripe"),
        "pumphouse_tenant_id": ("String", "acme"),
        "pumphouse_message_version": ("String", "1"),
        "pumphouse_idempotency_key": ("String", "acme:stripe:k1"),
        "content_type": ("String", "application/json"),
        "pumphouse_dedupe_key": ("String", "k1"),
        "pumphouse_replay_id": ("String", "r1"),
    }
    assert sent.group_id == "acme/stripe"
    assert sent.deduplication_id == "evt1:replay:r1"
    assert await open_envelope(sent.body) == envelope(replay_id="r1")


async def test_empty_values_are_left_out_and_the_prefix_can_be_chosen(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    sink = make(attribute_prefix="ankusa_")
    await outcomes(clock, [sink.send(envelope(tenant_id=None, dedupe_key=""))])
    [sent] = account.sent("orders")
    assert sorted(sent.attributes or {}) == [
        "ankusa_id",
        "ankusa_idempotency_key",
        "ankusa_message_version",
        "ankusa_source_id",
        "content_type",
    ]


async def test_the_users_attributes_come_before_its_own(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    own = {f"user{n}": "x" for n in range(8)} | {"content_type": "mine"}
    await outcomes(clock, [make().send(envelope(), attributes=own)])
    [sent] = account.sent("orders")
    found = sent.attributes or {}
    assert len(found) == 10
    assert found.keys() >= own.keys()
    assert found["content_type"].string_value == "mine"


def test_the_idempotency_key() -> None:
    assert envelope().idempotency_key == "acme:stripe:k1"
    assert envelope(tenant_id=None).idempotency_key == "default:stripe:k1"
    assert envelope(dedupe_key=None, replay_id="r").idempotency_key == "evt1"


# --- with a claim check -------------------------------------------------------------------------


async def test_a_large_body_travels_as_a_claim(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    check = ClaimCheck(MemoryBlobStore(), inline_max_bytes=100)
    sink = make(claim_check=check)
    small, large = envelope(id="small", body=b"x" * 100), envelope(id="large", body=b"x" * 101)
    await outcomes(clock, [sink.send(small), sink.send(large)])
    documents = {d["id"]: d for d in (json.loads(sent.body) for sent in account.sent("orders"))}
    assert "body_base64" in documents["small"]
    [key] = check.store.blobs  # type: ignore[attr-defined]
    assert documents["large"]["claim"] == key
    assert documents["large"]["size"] == 101
    for sent in account.sent("orders"):
        assert await open_envelope(sent.body, check) in (small, large)
    store = check.store
    assert isinstance(store, MemoryBlobStore)
    document = json.dumps(documents["large"])
    with pytest.raises(UndecodableError):
        await open_envelope(document)
    store.blobs[key] = b"y" * 101
    with pytest.raises(BlobDamagedError):
        await open_envelope(document, check)
    store.blobs.clear()
    with pytest.raises(BlobMissingError):
        await open_envelope(document, check)


def test_received_at_has_milliseconds() -> None:
    assert envelope().received_at == WHEN - timedelta(microseconds=901)


# --- what no document can hold ------------------------------------------------------------------


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"headers": {"x-rate": 5}}, r"header 'x-rate' is of type int"),
        ({"headers": {"x-a": "caf\udce9"}}, r"header 'x-a' holds the lone surrogate U\+DCE9"),
        ({"headers": [(b"x-a", b"b")]}, r"a header's name is of type bytes"),
        ({"headers": {"x\udce9": "b"}}, r"a header's name holds the lone surrogate"),
        ({"headers": {"connection": 5}}, r"header 'connection' is of type int"),
        ({"headers": "x-a: b"}, r"headers are a mapping or pairs"),
        ({"headers": 5}, r"headers are a mapping or pairs"),
        ({"id": "caf\udce9"}, r"the envelope's id holds the lone surrogate U\+DCE9"),
        ({"id": 5}, r"id is 5"),
        ({"source_id": None}, r"source_id is of type NoneType"),
        ({"tenant_id": ["a"]}, r"tenant_id is of type list"),
        ({"dedupe_key": 5}, r"dedupe_key is of type int"),
        ({"replay_id": b"r"}, r"replay_id is of type bytes"),
        ({"content_type": "\ud800"}, r"content_type holds"),
        ({"body": "text"}, r"body is of type str; it is bytes"),
        ({"received_at": "2026-01-01"}, r"received_at is '2026-01-01'; it is a datetime"),
    ],
)
def test_what_no_document_can_hold_is_named(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        envelope(**changes)


async def test_texts_and_bytes_of_other_classes_are_the_plain_ones() -> None:
    given = envelope(
        id=Text("evt"), tenant_id=Text("t"), headers={Text("X-A"): Text("b")}, body=bytearray(b"x")
    )
    assert [type(given.id), type(given.tenant_id), type(given.body)] == [str, str, bytes]
    assert await open_envelope(given.to_json()) == given
    assert {type(each) for pair in given.headers.items() for each in pair} == {str}


def test_headers_that_look_like_our_attributes_are_never_forwarded() -> None:
    headers = {
        "Pumphouse.Claim": "v1",
        "pumphouse.encoding": "base64",
        "Pumphouse_Message_Version": "1",
        "pumphouses": "stay",
    }
    assert forwarded_headers(headers) == {"pumphouses": "stay"}
