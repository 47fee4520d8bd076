"""The end of the road and the way back: dead letters, and their replay."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.cli.replay import Options, replay_letters
from pumphouse.clock import RealClock, VirtualClock
from pumphouse.envelope import Envelope, open_envelope, replayed
from pumphouse.errors import (
    MessageTooLargeError,
    NetworkError,
    QueueDoesNotExist,
    RefusedError,
    ThrottledError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.operations import (
    CreateQueue,
    MessageAttributeValue,
    ReceiveMessage,
    SendMessageBatch,
)
from pumphouse.replay import Replayed, replay
from pumphouse.sink.dead_letters import DirectoryKeeper
from pumphouse.sink.letter import DeadLetter, DeadLetterLine
from support.sending import bodies, outcomes

from .conftest import MakeSink


async def test_permanent_and_configuration_errors_go_there_at_once_counted_apart(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    letters: list[DeadLetter] = []
    sink = make(on_dead_letter=letters.append, max_message_bytes=1_000)
    account.faults.fail_entries(
        SendMessageBatch, lambda e: e.message_body == "bad", "InvalidMessageContents", times=1
    )
    results = await outcomes(clock, [sink.send("good"), sink.send("bad", id="m1", tenant="t")])
    assert isinstance(results[1], RefusedError), "the caller is told all the same"
    account.faults.refuse(SendMessageBatch, "AccessDenied")
    await outcomes(clock, [sink.send("denied"), sink.send("x" * 1_001)])
    assert sorted((letter.kind, letter.body[:6], letter.attempts) for letter in letters) == [
        ("config_errors", "denied", 1),
        ("refused", "bad", 1),
        ("too_large", "xxxxxx", 0),
    ]
    [bad] = [letter for letter in letters if letter.body == "bad"]
    assert (bad.id, bad.tenant, bad.queue) == ("m1", "t", "orders")
    assert bad.error is results[1]
    stats = sink.stats
    assert (stats["refused"], stats["config_errors"], stats["too_large"]) == (1, 1, 1)
    assert stats["dead_lettered"] == 3


async def test_transient_errors_go_there_when_the_retries_are_used_up(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    letters: list[DeadLetter] = []

    async def keep(letter: DeadLetter) -> None:
        letters.append(letter)

    account.faults.throttle(SendMessageBatch, times=None)
    await outcomes(clock, [make(on_dead_letter=keep).send("x")])
    assert [(letter.kind, letter.attempts) for letter in letters] == [("throttled", 4)]


async def test_a_caller_knows_only_when_its_message_is_kept(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    async def slowly(letter: DeadLetter) -> None:
        await clock.sleep(3)

    account.faults.refuse(SendMessageBatch, "AccessDenied")
    task = asyncio.create_task(make(on_dead_letter=slowly).send("x"))
    await clock.advance(2.9)
    assert not task.done()
    await clock.advance(1)
    assert isinstance(task.exception(), Exception)


async def test_a_target_that_fails_is_counted_and_the_caller_has_its_own_error(
    make: MakeSink, account: Account, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(letter: DeadLetter) -> None:
        raise OSError("no")

    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make(on_dead_letter=fail)
    [error] = await outcomes(clock, [sink.send("x")])
    assert error.code == "AccessDenied"
    assert sink.stats["dead_letters_failed"] == 1
    assert "could not be kept" in caplog.text


async def test_a_letter_that_can_not_be_kept_does_not_take_others_with_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    kept: list[str] = []

    def keep(letter: DeadLetter) -> None:
        if letter.body == "1":
            raise OSError("no")
        kept.append(letter.body)

    account.faults.fail_entries(SendMessageBatch, [0, 1, 2], "InvalidMessageContents")
    sink = make(on_dead_letter=keep)
    await outcomes(clock, [sink.send(str(n)) for n in range(4)])
    assert kept == ["0", "2"]
    stats = sink.stats
    assert (stats["dead_lettered"], stats["dead_letters_failed"]) == (2, 1)


async def test_a_message_with_no_room_for_the_reason_is_kept_without_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    await account.execute(CreateQueue("dead"))
    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make(on_dead_letter="dead")
    await outcomes(clock, [sink.send("x" * 1_048_576)])
    await sink.aclose()
    assert [len(sent.body) for sent in account.sent("dead")] == [1_048_576]
    assert sink.stats["dead_lettered"] == 1


@pytest.mark.parametrize("seconds", [0, 7])
async def test_a_target_that_hangs_holds_up_a_close_no_longer_than_said(
    make: MakeSink, account: Account, clock: VirtualClock, seconds: float
) -> None:
    async def hang(letter: DeadLetter) -> None:
        await clock.sleep(10_000)

    account.faults.throttle(SendMessageBatch, times=None)
    sink = make(on_dead_letter=hang, retry=RetryPolicy(base_seconds=50, cap_seconds=50))
    task = asyncio.create_task(sink.send("x"))
    await clock.advance(1)
    closing = asyncio.create_task(sink.aclose(seconds))
    await clock.advance(2 * seconds if seconds else 5)
    assert closing.done()
    assert isinstance(task.exception(), ThrottledError)
    assert sink.stats["dead_letters_failed"] == 1


@pytest.mark.parametrize("target", ["dead", "dead.fifo"])
async def test_another_queue_as_target(
    make: MakeSink, account: Account, clock: VirtualClock, target: str
) -> None:
    attributes = {"FifoQueue": "true"} if target.endswith(".fifo") else None
    await account.execute(CreateQueue(target, attributes))
    account.faults.fail_entries(SendMessageBatch, [1, 2], "InvalidMessageContents")
    sink = make("orders.fifo", on_dead_letter=target)
    sends = [sink.send(str(n), id=f"i{n}", group_id="g", attributes={"a": "b"}) for n in range(4)]
    await outcomes(clock, sends)
    await sink.aclose()
    sent = account.sent(target)
    assert [message.body for message in sent] == ["1", "2"]
    found = sent[0].attributes or {}
    assert found["a"].string_value == "b"
    assert found["pumphouse.error"].string_value == "refused"
    assert found["pumphouse.queue"].string_value == "orders.fifo"
    if attributes:
        assert [(m.group_id, m.deduplication_id) for m in sent] == [("g", "i1"), ("g", "i2")]


async def _fill(make: MakeSink, account: Account, directory: Path, **options: Any) -> None:
    """Let everything that is sent fail into the directory."""
    account.faults.refuse(SendMessageBatch, "AccessDenied", times=None)
    sink = make(
        "orders.fifo",
        on_dead_letter=directory,
        clock=RealClock(),
        batch_linger=0,
        retry=NO_RETRIES,
        **options,
    )
    for n in range(6):
        with pytest.raises(Exception, match="AccessDenied"):
            await sink.send(
                f"body {n}",
                id=f"m{n}",
                tenant="t",
                source="s",
                group_id="ab"[n % 2],
                attributes={"text": "x", "bin": b"\x00", "n": n},
            )
    await sink.aclose()
    account.faults.clear()


async def test_a_directory_has_a_line_for_each(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    await _fill(make, account, tmp_path / "dead")
    [file] = (tmp_path / "dead").iterdir()
    assert file.name.startswith("orders.fifo.")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["body"] for line in lines] == [f"body {n}" for n in range(6)]
    first = lines[0]
    assert first["kind"] == "config_errors"
    assert first["error"]["code"] == "AccessDenied"
    assert first["attributes"]["bin"] == {"type": "Binary", "base64": "AA=="}
    assert (first["id"], first["group_id"], first["attempts"]) == ("m0", "a", 1)


async def test_replay_sends_it_again_with_replay_ids_and_leaves_nothing(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    await _fill(make, account, tmp_path)
    done = await replay_letters(Options(str(tmp_path)), account)
    assert (done.stored, done.failed, done.skipped) == (6, [], 0)
    sent = account.sent("orders.fifo")
    for group in "ab":
        of_group = [message.body for message in sent if message.group_id == group]
        assert of_group == sorted(of_group)
    assert all(":replay:" in (message.deduplication_id or "") for message in sent)
    attributes = sent[0].attributes or {}
    assert attributes["bin"].binary_value == b"\x00"
    assert attributes["n"].data_type == "Number"
    assert not list(tmp_path.iterdir())


async def test_what_fails_again_stays_and_holds_its_group_back(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    await _fill(make, account, tmp_path)
    account.faults.fail_entries(
        SendMessageBatch, lambda e: e.message_body == "body 2", "InvalidMessageContents", times=None
    )
    done = await replay_letters(Options(str(tmp_path)), account)
    assert done.stored == 4
    assert [line for _, line, _ in done.failed] == [3, 5]
    [file] = tmp_path.iterdir()
    assert [json.loads(line)["body"] for line in file.read_text().splitlines()] == [
        "body 2",
        "body 4",
    ]
    account.faults.clear()
    again = await replay_letters(Options(str(tmp_path)), account)
    assert again.stored == 2
    assert sorted(bodies(account, "orders.fifo")) == [f"body {n}" for n in range(6)]


async def test_a_replay_that_was_killed_goes_on_and_doubles_nothing(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    await _fill(make, account, tmp_path)
    sent: list[str] = []

    class Killed(BaseException):
        pass

    async def dying(letter: DeadLetterLine, replay_id: str) -> Receipt:
        if len(sent) == 3:
            raise Killed
        sent.append(letter.body)
        return Receipt("m", "q")

    with pytest.raises(BaseExceptionGroup):
        await replay(tmp_path, dying, window=1)
    assert any(path.name.endswith(".replaying") for path in tmp_path.iterdir())

    async def living(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        return Receipt("m", "q")

    done = await replay(tmp_path, living, window=1)
    assert done.stored == 3
    assert sorted(sent) == [f"body {n}" for n in range(6)]
    assert not list(tmp_path.iterdir())


async def test_a_live_sink_goes_on_in_a_new_file_while_its_old_one_is_replayed(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")

    def letter(body: str) -> DeadLetter:
        return DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, body)

    await keeper.take([letter("first")])

    async def send(line: DeadLetterLine, replay_id: str) -> Receipt:
        if line.body == "first":
            await keeper.take([letter("second")])
        return Receipt("m", "q")

    assert (await replay(tmp_path, send)).stored == 1
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_text())["body"] == "second"


async def test_unknown_letters_are_replayed_only_when_asked_and_kinds_choose(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.jsonl"
    letters = [
        DeadLetter("q", kind, NetworkError("no"), 1, 0.0, kind)
        for kind in ("unknown", "refused", "throttled")
    ]
    file.write_bytes(b"".join(letter.to_json() for letter in letters) + b"no letter\n{}\n")

    async def send(line: DeadLetterLine, replay_id: str) -> Receipt:
        assert line.kind in wanted
        return Receipt("m", "q")

    wanted = {"refused"}
    done = await replay(tmp_path, send, kinds=["refused"])
    assert (done.stored, done.skipped, len(done.failed)) == (1, 2, 2)
    wanted = {"throttled"}
    done = await replay(file, send)
    assert (done.stored, done.skipped) == (1, 1)
    wanted = {"unknown"}
    done = await replay(file, send, unknown=True)
    assert done.stored == 1
    assert file.read_text() == "no letter\n{}\n", "what is no letter is not thrown away"


@pytest.mark.parametrize("stage", ["before the old file is gone", "after"])
async def test_a_crash_at_the_last_step_loses_and_doubles_nothing(
    tmp_path: Path, stage: str
) -> None:
    line = DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, "kept").to_json()
    other = DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, "stored").to_json()
    if stage == "after":
        (tmp_path / "x.jsonl.rest").write_bytes(line)
    else:
        (tmp_path / "x.jsonl.rest").write_bytes(line[:10])
        (tmp_path / "x.jsonl.replaying").write_bytes(other + line)
    (tmp_path / "x.jsonl.done").write_text("1\n")
    sent: list[str] = []

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        return Receipt("m", "q")

    assert (await replay(tmp_path, send)).stored == 1
    assert sent == ["kept"]
    assert not list(tmp_path.iterdir())


async def test_a_path_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        raise AssertionError

    with pytest.raises(UsageError, match="no dead letters at"):
        await replay(tmp_path / "nothing", send)
    assert isinstance(await replay(tmp_path, send), Replayed)


async def test_files_are_followed_by_new_ones_when_they_are_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.sink.letter_files.MAX_FILE_BYTES", 1_000)
    keeper = DirectoryKeeper(tmp_path, "https://sqs.us-east-1.amazonaws.com/1/my/../queue")
    for n in range(10):
        await keeper.take([DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, str(n))])
    files = sorted(tmp_path.iterdir())
    assert len(files) > 1
    assert all(path.name.startswith("queue.") and str(os.getpid()) in path.name for path in files)
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert [line["body"] for line in lines] == [str(n) for n in range(10)]


async def test_a_missing_queue_is_dead_lettered_and_replayed_once_it_is_there(
    make: MakeSink, account: Account, clock: VirtualClock, tmp_path: Path
) -> None:
    sink = make("later", on_dead_letter=tmp_path)
    [error] = await outcomes(clock, [sink.send("x", id="m1")])
    assert isinstance(error, QueueDoesNotExist)
    assert not isinstance(error, MessageTooLargeError)
    await account.execute(CreateQueue("later"))
    await outcomes(clock, [sink.aclose()])
    assert (await replay_letters(Options(str(tmp_path)), account)).stored == 1
    answer = await account.execute(ReceiveMessage("later"))
    assert [message.body for message in answer.messages] == ["x"]


async def test_two_replays_of_a_file_at_once_are_one_and_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    letters = [DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, str(n)) for n in range(3)]
    file.write_bytes(b"".join(letter.to_json() for letter in letters))
    sent: list[str] = []

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        for path in (tmp_path, file):
            with pytest.raises(UsageError, match=r"somebody else|no dead letters"):
                await replay(path, send)
        return Receipt("m", "q")

    assert (await replay(tmp_path, send)).stored == 3
    assert sorted(sent) == ["0", "1", "2"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("before", [None, "old"])
async def test_an_envelope_that_is_replayed_says_so_itself(
    make: MakeSink, account: Account, tmp_path: Path, before: str | None
) -> None:
    hook = Envelope(id="e1", source_id="s", tenant_id="t", body=b"x", replay_id=before)
    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make("orders.fifo", on_dead_letter=tmp_path, clock=RealClock(), batch_linger=0)
    with pytest.raises(Exception, match="AccessDenied"):
        await sink.send(hook)
    account.faults.clear()
    assert (await replay_letters(Options(str(tmp_path), replay_id="r7"), account)).stored == 1
    [sent] = account.sent("orders.fifo")
    assert await open_envelope(sent.body) == replace(hook, replay_id="r7")
    assert (sent.attributes or {})["pumphouse_replay_id"].string_value == "r7"
    assert sent.deduplication_id == ("e1:replay:old:replay:r7" if before else "e1:replay:r7")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ('{"v":1}', ["pumphouse_message_version", "pumphouse_id"]),
        ("text", ["pumphouse_message_version", "pumphouse_id"]),
        (Envelope(id="other", source_id="s", body=b"x").to_json().decode(), ["message_version"]),
        ("text", []),
    ],
)
def test_what_is_no_envelope_is_replayed_as_it_is(body: str, names: list[str]) -> None:
    attributes = {name: MessageAttributeValue("String", "e1") for name in names}
    assert replayed(body, attributes, "r") == (body, attributes)
