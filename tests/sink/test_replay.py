"""A replay loses nothing and doubles nothing, whatever ends it and whoever writes meanwhile."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pumphouse import replay_file
from pumphouse.account import Account
from pumphouse.cli import command
from pumphouse.cli.replay import Options, replay_letters
from pumphouse.errors import (
    NetworkError,
    NoCredentialsError,
    OutcomeUnknownError,
    PumphouseError,
    RefusedError,
    ThrottledError,
    UsageError,
)
from pumphouse.model import Receipt
from pumphouse.protocol.operations import CreateQueue, SendMessageBatch
from pumphouse.replay import Replayed, replay
from pumphouse.sink.dead_letters import DirectoryKeeper
from pumphouse.sink.letter import KINDS, DeadLetter, DeadLetterLine
from support.sending import bodies

from .conftest import MakeSink

RECEIPT = Receipt("m", "q")


def _letter(body: str, queue: str = "orders", **fields: Any) -> DeadLetter:
    return DeadLetter(queue, "refused", NetworkError("no"), 1, 0.0, body, **fields)


def _write(file: Path, *letters: DeadLetter) -> Path:
    file.write_bytes(b"".join(letter.to_json() for letter in letters))
    return file


def _kept(directory: Path) -> list[str]:
    """The bodies in every file of letters, in the order in which a replay takes them."""
    files = sorted(directory.glob("*.jsonl"))
    assert sorted(directory.iterdir()) == files, "nothing but letters is left"
    return [json.loads(line)["body"] for file in files for line in file.read_text().splitlines()]


async def _stored(letter: DeadLetterLine, replay_id: str) -> Receipt:
    return RECEIPT


async def _refused(letter: DeadLetterLine, replay_id: str) -> Receipt:
    raise RefusedError("no", code="InvalidMessageContents", status=400)


class _Killed(BaseException):
    pass


async def _killed(letter: DeadLetterLine, replay_id: str) -> Receipt:
    raise _Killed


async def _kill(path: Path) -> None:
    with pytest.raises(BaseExceptionGroup):
        await replay(path, _killed, window=1)


# --- what is left -------------------------------------------------------------------------------


async def test_letters_of_a_live_sink_are_not_written_over(tmp_path: Path) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")
    await keeper.take([_letter("0"), _letter("1")])

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        await keeper.take([_letter(f"during {letter.body}")])
        return await _refused(letter, replay_id)

    assert (await replay(tmp_path, send, window=1)).moved == []
    await keeper.take([_letter("after")])
    assert _kept(tmp_path) == ["0", "1", "during 0", "during 1", "after"]


@pytest.mark.parametrize("links", [True, False])
async def test_a_file_that_was_made_meanwhile_is_not_written_over(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr("os.link", link)
    file = _write(tmp_path / "refused.jsonl", _letter("old"))

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        if letter.body == "old":
            _write(file, _letter("new"))
        return await _refused(letter, replay_id)

    done = await replay(file, send)
    assert done.moved == [tmp_path / "refused.1.jsonl"]
    assert _kept(tmp_path) == ["old", "new"]
    assert _kept(tmp_path)[0] in (tmp_path / "refused.1.jsonl").read_text()
    assert (await replay(tmp_path, _stored)).stored == 2


@pytest.mark.parametrize("name", ["link.jsonl", "."])
async def test_a_link_is_replayed_where_it_points_to(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    file = _write(tmp_path / "there" / "x.jsonl", _letter("0"), _letter("1"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link.jsonl").symlink_to(file)

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        return await (_stored if letter.body == "0" else _refused)(letter, replay_id)

    assert (await replay(tmp_path / "here" / name, send)).stored == 1
    assert _kept(tmp_path / "there") == _kept(tmp_path / "here") == ["1"]


# --- what was interrupted -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["refused.jsonl", "refused.jsonl.replaying", "."])
async def test_the_same_command_goes_on_with_a_file_that_was_not_finished(
    tmp_path: Path, name: str
) -> None:
    await _kill(_write(tmp_path / "refused.jsonl", *(_letter(n, "orders.fifo") for n in "01")))
    assert (await replay(tmp_path / name, _stored)).stored == 2
    assert _kept(tmp_path) == []


async def test_a_new_file_beside_one_that_was_not_finished_comes_after_it(tmp_path: Path) -> None:
    file = _write(tmp_path / "refused.jsonl", *(_letter(n, "orders.fifo") for n in "01"))
    await _kill(file)
    _write(file, _letter("2", "orders.fifo"))
    sent: list[str] = []

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        return await _refused(letter, replay_id)

    assert len((await replay(file, send)).failed) == 3
    assert sent == ["0", "1", "2"]
    assert _kept(tmp_path) == ["0", "1", "2"]


async def test_a_crash_after_the_rest_was_put_back_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _write(tmp_path / "refused.jsonl", _letter("0"))

    def crash(*_: object) -> None:
        raise _Killed

    link = replay_file.os.link
    monkeypatch.setattr("os.link", lambda *names: (link(*names), crash()))
    with pytest.raises(_Killed):
        await replay(file, _refused)
    assert (tmp_path / "refused.jsonl.rest").exists()
    monkeypatch.undo()
    assert (await replay(tmp_path, _stored)).stored == 1
    assert _kept(tmp_path) == []


@pytest.mark.parametrize("cut", [b"1", b"1\n2"])
async def test_a_note_that_was_cut_off_is_no_note(tmp_path: Path, cut: bytes) -> None:
    file = _write(tmp_path / "x.jsonl", *(_letter(str(n), "orders.fifo") for n in range(23)))
    await _kill(file)
    (tmp_path / "x.jsonl.done").write_bytes(cut)
    await _kill(file)
    done = await replay(file, _stored)
    assert done.stored == 23 - cut.count(b"\n")


@pytest.mark.parametrize("second", [False, True])
async def test_a_signal_ends_it_in_order(account: Account, tmp_path: Path, second: bool) -> None:
    await account.execute(CreateQueue("orders"))
    _write(tmp_path / "x.jsonl", *(_letter(str(n)) for n in range(400)))

    class Interrupted:
        batches = 0

        async def execute(self, operation: Any) -> Any:
            if not isinstance(operation, SendMessageBatch):
                return await account.execute(operation)
            self.batches += 1
            answer = await account.execute(operation)
            if self.batches == 3:
                signal.raise_signal(signal.SIGHUP)
                await asyncio.sleep(0.01)
                if second:
                    signal.raise_signal(signal.SIGINT)
                    await asyncio.Event().wait()
            return answer

        async def aclose(self) -> None: ...

    received: list[int] = []
    options = Options(str(tmp_path))
    first = await replay_letters(options, Interrupted(), received)
    assert received == [signal.SIGHUP, signal.SIGINT] if second else [signal.SIGHUP]
    assert 0 < first.stored < 400
    stored = len(account.sent("orders"))
    assert (len(first.failed), stored) == ((10, first.stored + 10) if second else (0, first.stored))
    again = await replay_letters(options, account)
    assert again.skipped == len(first.failed), "what may be stored is left out"
    counts = Counter(bodies(account, "orders"))
    assert len(counts) == 400
    assert set(counts.values()) == {1}


async def test_a_letter_that_may_be_stored_stays_as_unknown_with_its_replay_id(
    tmp_path: Path,
) -> None:
    ids: list[str] = []

    async def lost(letter: DeadLetterLine, replay_id: str) -> Receipt:
        ids.append(replay_id)
        raise OutcomeUnknownError("no answer")

    old = json.loads(_letter("old").to_json())
    del old["key"]
    (tmp_path / "x.jsonl").write_text(json.dumps(old) + "\n")
    _write(tmp_path / "y.jsonl", _letter("new"))
    assert len((await replay(tmp_path, lost)).failed) == 2
    assert (await replay(tmp_path, lost)).skipped == 2
    await replay(tmp_path, lost, unknown=True)
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2


async def test_a_disk_that_is_full_ends_it_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(self: replay_file.ReplayFile, number: int) -> None:
        self._done.add(number)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replay_file.ReplayFile, "note", note)
    _write(tmp_path / "x.jsonl", *(_letter(str(n)) for n in range(5)))
    with pytest.raises(OSError, match="No space left"):
        await replay(tmp_path, _stored, window=1)
    monkeypatch.undo()
    assert _kept(tmp_path) == ["1", "2", "3", "4"]


async def test_a_rest_that_can_not_be_written_leaves_everything_for_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replay_file.ReplayFile, "_left", full)
    _write(tmp_path / "x.jsonl", _letter("0"), _letter("1"))

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        return await (_stored if letter.body == "0" else _refused)(letter, replay_id)

    with pytest.raises(OSError, match="No space left"):
        await replay(tmp_path, send)
    monkeypatch.undo()
    assert (await replay(tmp_path, _stored)).stored == 1
    assert _kept(tmp_path) == []


async def test_letters_that_are_stored_and_could_not_be_noted_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        monkeypatch.setattr(replay_file, "append", full)
        return RECEIPT

    _write(tmp_path / "x.jsonl", *(_letter(str(n)) for n in range(9)))
    with pytest.raises(PumphouseError, match="the next replay takes for unknown: 1"):
        await replay(tmp_path, send, window=2)
    monkeypatch.undo()
    done = await replay(tmp_path, _stored)
    assert (done.stored, done.doubtful) == (8, 1)


async def test_nothing_is_sent_that_can_not_be_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    _write(tmp_path / "x.jsonl", *(_letter(str(n)) for n in range(9)))
    monkeypatch.setattr(replay_file, "append", full)
    with pytest.raises(OSError, match="No space left"):
        await replay(tmp_path, _killed, window=2)
    monkeypatch.undo()
    assert (await replay(tmp_path, _stored)).stored == 9


# --- what had left when a replay was killed -----------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "later", "options", "stored"),
    [
        ("orders", 1, {}, 0),
        ("orders", 1, {"unknown": True}, 1),
        ("orders", 1, {"kinds": ["refused"]}, 0),
        ("orders", 1, {"kinds": ["unknown"]}, 1),
        ("orders.fifo", 1, {}, 1),
        ("orders.fifo", 179, {}, 1),
        ("orders.fifo", 180, {}, 0),  # a try could reach the queue when it has forgotten
        ("orders.fifo", -1, {}, 0),  # a clock that was put back tells nothing
        ("orders.fifo", 9_999, {"unknown": True}, 1),
        ("orders.fifo", 1, {"replay_id": "another"}, 0),
        ("orders.fifo", 1, {"elsewhere": "another.fifo"}, 0),
        ("orders", 1, {"elsewhere": "another.fifo"}, 0),
    ],
)
async def test_a_letter_in_flight_at_a_kill_is_sent_again_only_where_it_is_recognised(
    tmp_path: Path, queue: str, later: float, options: dict[str, Any], stored: int
) -> None:
    file = _write(tmp_path / "x.jsonl", _letter("0", queue))
    with pytest.raises(BaseExceptionGroup):
        await replay(file, _killed, now=lambda: 1_000)
    done = await replay(file, _stored, now=lambda: 1_000 + later, **options)
    assert (done.stored, done.doubtful) == (stored, 1 - stored)
    assert _kept(tmp_path) == ["0"] * (1 - stored)
    if not stored:  # and it says so itself from then on
        assert json.loads(file.read_text())["kind"] == "unknown"


async def test_the_first_time_counts_for_a_letter_that_left_twice(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.jsonl", _letter("0", "orders.fifo"))
    for at in (1_000, 1_170):
        with pytest.raises(BaseExceptionGroup):
            await replay(file, _killed, now=lambda: at)  # noqa: B023 - it is called at once
    assert (await replay(file, _stored, now=lambda: 1_181)).doubtful == 1


async def test_a_letter_that_failed_before_a_kill_is_not_in_doubt(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.jsonl", _letter("refused"), _letter("in flight"))

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        return await (_refused if letter.body == "refused" else _killed)(letter, replay_id)

    with pytest.raises(BaseExceptionGroup):
        await replay(file, send, window=1)
    assert (await replay(file, _refused)).doubtful == 1  # which it stays, whatever is refused now
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()] == [
        "refused",
        "unknown",
    ]


async def test_a_letter_that_waits_for_its_queue_has_not_left(tmp_path: Path) -> None:
    file = _write(tmp_path / "x.jsonl", _letter("0"))

    async def killed(_: DeadLetterLine) -> None:
        raise _Killed

    with pytest.raises(BaseExceptionGroup):
        await replay(file, _stored, ready=killed)
    assert (await replay(file, _stored)).stored == 1


@pytest.mark.parametrize("asked", ["GetQueueUrl", "SendMessageBatch"])
async def test_the_command_takes_for_unknown_only_what_may_have_left(
    account: Account, tmp_path: Path, asked: str
) -> None:
    await account.execute(CreateQueue("orders"))
    directory, as_killed = tmp_path / "letters", tmp_path / "as killed"
    directory.mkdir()
    _write(directory / "x.jsonl", _letter("0"))
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Hanging:
        async def execute(self, operation: Any) -> Any:
            if type(operation).__name__ == asked:
                reached.set()
                await go_on.wait()
            return await account.execute(operation)

        async def aclose(self) -> None: ...

    hanging = asyncio.create_task(replay_letters(Options(str(directory)), Hanging()))
    await reached.wait()
    shutil.copytree(directory, as_killed)  # what a process that is killed here leaves
    go_on.set()
    assert (await hanging).stored == 1
    done = await replay_letters(Options(str(as_killed)), account)
    assert (done.stored, done.doubtful) == ((1, 0) if asked == "GetQueueUrl" else (0, 1))


@pytest.mark.parametrize("elsewhere", [None, "orders", "there.fifo"])
async def test_what_may_be_stored_holds_up_its_group_on_a_fifo_queue(
    tmp_path: Path, elsewhere: str | None
) -> None:
    letters = [
        _letter(f"{group}{n}", "orders.fifo", group_id=group) for n in (0, 1) for group in "gh"
    ]
    letters[0] = replace(letters[0], kind="unknown")
    _write(tmp_path / "1.jsonl", *letters)
    _write(tmp_path / "2.jsonl", _letter("g2", "orders.fifo", group_id="g"))
    sent: list[str] = []

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        return RECEIPT

    done = await replay(tmp_path, send, elsewhere=elsewhere)
    assert (done.skipped, done.doubtful) == (1, 1)
    if elsewhere == "orders":  # where there is no order to be kept
        assert (sent, done.failed) == (["h0", "h1", "g1", "g2"], [])
        return
    assert sent == ["h0", "h1"]
    assert len(done.failed) == 2
    assert all("before it in its group" in reason for *_, reason in done.failed)
    await replay(tmp_path, send, elsewhere=elsewhere, unknown=True)
    assert sent == ["h0", "h1", "g0", "g1", "g2"]


# --- which letters, and as what -----------------------------------------------------------------


async def test_a_group_that_has_failed_in_one_file_waits_in_the_next(tmp_path: Path) -> None:
    for n in range(3):
        _write(
            tmp_path / f"{n}.jsonl",
            *(_letter(f"{group}{n}", "orders.fifo", group_id=group) for group in "gh"),
        )
    sent: list[str] = []

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        sent.append(letter.body)
        if letter.body == "g1":
            raise ThrottledError("slow", code="Throttling", status=400)
        return RECEIPT

    done = await replay(tmp_path, send)
    assert sent == ["g0", "h0", "g1", "h1", "h2"]
    assert [reason for _, _, reason in done.failed][1].startswith("not sent: a letter before it")
    assert _kept(tmp_path) == ["g1", "g2"]


@pytest.mark.parametrize("replay_id", [None, "r1"])
async def test_messages_of_one_id_and_own_deduplication_ids_are_all_stored(
    make: MakeSink, account: Account, tmp_path: Path, replay_id: str | None
) -> None:
    make()
    letters = [
        _letter(body, "orders.fifo", group_id="g", id="order-1", deduplication_id=f"order-1-{body}")
        for body in ("paid", "shipped")
    ]
    _write(tmp_path / "x.jsonl", *letters)
    done = await replay_letters(Options(str(tmp_path), replay_id=replay_id), account)
    assert done.stored == 2
    assert bodies(account, "orders.fifo") == ["paid", "shipped"]


async def test_letters_without_an_id_are_told_apart_and_recognised_on_a_fifo_queue(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    make()
    letters = [_letter("same", tenant="t", source="s") for _ in range(3)]
    for _ in range(2):
        _write(tmp_path / "x.jsonl", *letters)
        options = Options(str(tmp_path), queue="orders.fifo", replay_id="r")
        assert (await replay_letters(options, account)).stored == 3
    assert len(account.sent("orders.fifo")) == 3


async def test_the_trace_header_goes_along(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    make()
    _write(tmp_path / "x.jsonl", _letter("x", trace_header="Root=1-abc"))
    await replay_letters(Options(str(tmp_path)), account)
    operation: Any = account.ledger.of(SendMessageBatch)[-1].operation
    [entry] = operation.entries
    assert entry.message_system_attributes["AWSTraceHeader"].string_value == "Root=1-abc"


def test_the_kinds_are_in_the_help() -> None:
    [option] = [each for each in command.replay.params if each.name == "kinds"]
    told = str(getattr(option, "help", ""))
    assert [kind for kind in KINDS if kind in told] == list(KINDS)


async def test_a_kind_that_no_letter_has_is_wrong_usage(tmp_path: Path) -> None:
    _write(tmp_path / "x.jsonl", _letter("x"))
    with pytest.raises(UsageError, match="refusd; kinds are refused, config_errors"):
        await replay(tmp_path, _stored, kinds=["refusd"])
    assert _kept(tmp_path) == ["x"]


async def test_a_file_that_is_being_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_file, "_WRITER_SECONDS", 0.0)
    file = _write(tmp_path / "x.jsonl", _letter("x"))
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="written to by another process"):
            await replay(tmp_path, _stored)
    assert _kept(tmp_path) == ["x"]


async def test_without_credentials_it_ends_at_once(tmp_path: Path) -> None:
    asked = 0

    class Nobody:
        async def execute(self, operation: Any) -> Any:
            nonlocal asked
            asked += 1
            raise NoCredentialsError("there are no credentials")

        async def aclose(self) -> None: ...

    _write(tmp_path / "x.jsonl", *(_letter(str(n)) for n in range(500)))
    with pytest.raises(NoCredentialsError):
        await replay_letters(Options(str(tmp_path)), Nobody())
    assert asked == 1
    assert len(_kept(tmp_path)) == 500
    assert isinstance(await replay(tmp_path, _stored), Replayed)
