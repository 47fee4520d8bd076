"""Dead letters are kept in order, within their time, each for itself, in files that stay whole."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from pumphouse import Topic
from pumphouse.account import Account
from pumphouse.clock import RealClock, VirtualClock
from pumphouse.errors import ConfigError, NetworkError, RefusedError
from pumphouse.model import Receipt
from pumphouse.protocol.operations import CreateQueue, SendMessageBatch
from pumphouse.replay import replay
from pumphouse.sink import repeating
from pumphouse.sink.dead_letters import DeadLetters, DirectoryKeeper
from pumphouse.sink.letter import KINDS, DeadLetter, DeadLetterLine
from pumphouse.sink.sink import KEEPING_SECONDS
from support.sending import bodies, outcomes

from .conftest import MakeSink


def _letter(body: str, **fields: Any) -> DeadLetter:
    return DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, body, **fields)


def _bodies(directory: Path) -> list[str]:
    lines = [line for file in sorted(directory.iterdir()) for line in file.read_text().splitlines()]
    return [json.loads(line)["body"] for line in lines]


async def _stored(letter: DeadLetterLine, replay_id: str) -> Receipt:
    return Receipt("m", "q")


def test_there_is_a_word_for_every_failure() -> None:
    assert set(KINDS) == {kind for _, kind in repeating._KINDS} | {"failed"}


# --- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["callback", "dead.fifo"])
async def test_letters_of_a_group_are_kept_in_the_order_in_which_they_failed(
    make: MakeSink, account: Account, clock: VirtualClock, target: str
) -> None:
    await account.execute(CreateQueue("dead.fifo", {"FifoQueue": "true"}))
    told: list[str] = []

    async def keep(letter: DeadLetter) -> None:
        await clock.sleep(0.01 if int(letter.body) % 2 else 0.02)
        told.append(letter.body)

    account.faults.fail_entries(
        SendMessageBatch,
        lambda entry: "pumphouse.error" not in (entry.message_attributes or {}),
        "InvalidMessageContents",
        times=None,
    )
    sink = make("orders.fifo", on_dead_letter=keep if target == "callback" else target)
    await outcomes(clock, [sink.send(f"{n:02}", group_id="g") for n in range(30)])
    await sink.aclose()
    kept = told or bodies(account, "dead.fifo")
    assert kept == [f"{n:02}" for n in range(30)]


async def test_a_directory_has_the_letters_of_a_group_in_order(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    account.faults.refuse(SendMessageBatch, "AccessDenied", times=None)
    sink = make("orders.fifo", on_dead_letter=tmp_path, clock=RealClock(), batch_linger=0)
    sends = [sink.send(f"{n:03}", group_id="g") for n in range(100)]
    await asyncio.gather(*sends, return_exceptions=True)
    await sink.aclose()
    assert _bodies(tmp_path) == [f"{n:03}" for n in range(100)]


async def test_a_group_whose_letters_take_long_holds_no_other_up(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    kept: list[str] = []

    async def keep(letter: DeadLetter) -> None:
        if letter.group_id == "slow":
            await clock.sleep(20)
        kept.append(letter.body)

    account.faults.refuse(SendMessageBatch, "AccessDenied", times=None)
    sink = make("orders.fifo", on_dead_letter=keep, batch_max_entries=1)
    groups = ["slow", "slow", "quick", "quick"]
    tasks = [
        asyncio.create_task(sink.send(str(n), group_id=group)) for n, group in enumerate(groups)
    ]
    await clock.advance(1)
    assert kept == ["2", "3"]
    await clock.advance(60)
    assert kept == ["2", "3", "0", "1"], "each has its time from when it is its turn"
    assert all(task.exception() for task in tasks)
    assert sink.stats["dead_lettered"] == 4


# --- time ---------------------------------------------------------------------------------------


async def test_a_close_ends_what_has_been_hanging_before_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    async def hang(letter: DeadLetter) -> None:
        await clock.sleep(10_000)

    account.faults.refuse(SendMessageBatch, "AccessDenied", times=None)
    sink = make("orders.fifo", on_dead_letter=hang)
    tasks = [asyncio.create_task(sink.send(str(n), group_id="g")) for n in range(25)]
    await clock.advance(1)
    closing = asyncio.create_task(sink.aclose(0.5))
    await clock.advance(3)
    other = asyncio.create_task(sink.aclose(30))
    await clock.advance(2)
    assert closing.done()
    assert other.done()
    assert all(getattr(task.exception(), "code", None) == "AccessDenied" for task in tasks)
    assert sink.stats["dead_letters_failed"] == 25
    assert clock.next_timer is None


async def test_a_close_that_is_cancelled_waits_for_no_longer_than_letters_get_at_least(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    async def hang(letter: DeadLetter) -> None:
        await asyncio.Event().wait()

    sink = make(on_dead_letter=hang)
    account.faults.refuse(SendMessageBatch, "InvalidMessageContents", times=None)
    sending = asyncio.create_task(sink.send("x"))
    await clock.advance(2)
    closing = asyncio.create_task(sink.aclose(100))
    await clock.advance(1)
    closing.cancel()
    await clock.run_until(lambda: closing.done() and sending.done())
    assert closing.cancelled()
    assert isinstance(sending.exception(), RefusedError)
    assert clock.monotonic() == pytest.approx(3 + KEEPING_SECONDS)
    assert sink.stats["dead_letters_failed"] == 1


async def test_those_who_wait_for_one_that_hangs_wait_once(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    hangs = True
    kept: list[str] = []

    async def keep(letter: DeadLetter) -> None:
        await clock.sleep(10_000 if hangs else 20)
        kept.append(letter.body)

    account.faults.refuse(SendMessageBatch, "AccessDenied", times=None)
    sink = make("orders.fifo", on_dead_letter=keep)
    tasks = [asyncio.create_task(sink.send(str(n), group_id="g")) for n in range(60)]
    await clock.advance(100)
    assert all(task.done() for task in tasks), "not 60 times 30 seconds"
    assert sink.stats["dead_letters_failed"] == 60
    hangs = False
    await outcomes(clock, [sink.send(str(n), group_id="g") for n in range(3)])
    assert kept == ["0", "1", "2"], "however long it was, it is slow now"


async def test_one_that_hangs_takes_no_time_from_the_others_of_its_batch(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    kept: list[str] = []

    async def keep(letter: DeadLetter) -> None:
        if letter.body == "0":
            await clock.sleep(10_000)
        kept.append(letter.body)

    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make(on_dead_letter=keep)
    await outcomes(clock, [sink.send(str(n)) for n in range(3)])
    assert kept == ["1", "2"]
    assert sink.stats["dead_letters_failed"] == 1


async def test_a_stuck_directory_is_left_behind(
    clock: VirtualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")
    await keeper.take([_letter("first")])
    [file] = tmp_path.iterdir()
    with file.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        for body in ("second", "third"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(keeper.take([_letter(body)]), 0.01)
        assert time.monotonic() - began < 5
    await keeper.take([_letter("fourth")])
    assert _bodies(tmp_path) == ["first", "second", "fourth"], "one thread at a time"


async def test_a_directory_takes_no_virtual_time(
    make: MakeSink, account: Account, clock: VirtualClock, tmp_path: Path
) -> None:
    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make(on_dead_letter=tmp_path)
    task = asyncio.create_task(sink.send("x"))
    await clock.advance(1_000)
    assert task.done()
    assert sink.stats["dead_lettered"] == 1
    assert _bodies(tmp_path) == ["x"]


# --- each for itself ----------------------------------------------------------------------------


class _Name(str, Enum):  # noqa: UP042 - the texts of a StrEnum are others
    ACME = "acme"


@pytest.mark.parametrize(
    ("value", "text"), [(_Name.ACME, "acme"), ("caf\udce9", "caf\\udce9"), (5, "5"), (None, None)]
)
def test_every_letter_has_a_line(value: Any, text: str | None) -> None:
    letter = _letter("x", id=value, tenant=value, source=value, trace_header=value)
    line = json.loads(letter.to_json())
    assert (line["id"], line["tenant"], line["source"]) == (text, text, text)
    assert line.get("trace_header") == text


class _Unwritable(DeadLetter):
    def to_json(self) -> bytes:
        raise ValueError("no line for it")


async def test_what_can_not_be_written_takes_no_other_with_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    letters = DeadLetters("q", DirectoryKeeper(tmp_path, "q"), RealClock(), 30.0)
    made = [
        _letter("a"),
        _Unwritable("q", "refused", NetworkError("no"), 1, 0.0, "b"),
        _letter("c"),
    ]
    assert await letters._keep(made, 0.0) == 2
    assert _bodies(tmp_path) == ["a", "c"]


async def test_a_function_that_was_cancelled_takes_no_other_with_it(
    make: MakeSink, account: Account, clock: VirtualClock
) -> None:
    kept: list[str] = []

    async def keep(letter: DeadLetter) -> None:
        if letter.body == "0":
            raise asyncio.CancelledError
        kept.append(letter.body)

    account.faults.refuse(SendMessageBatch, "AccessDenied")
    sink = make(on_dead_letter=keep)
    found = await outcomes(clock, [sink.send(str(n)) for n in range(3)])
    assert [error.code for error in found] == ["AccessDenied"] * 3
    assert kept == ["1", "2"]
    assert (sink.stats["dead_lettered"], sink.stats["dead_letters_failed"]) == (2, 1)


@pytest.mark.parametrize("target", ["directory", "dead"])
async def test_the_trace_header_is_kept(
    make: MakeSink, account: Account, tmp_path: Path, target: str
) -> None:
    await account.execute(CreateQueue("dead"))
    account.faults.refuse(SendMessageBatch, "AccessDenied")
    to = tmp_path if target == "directory" else target
    sink = make(on_dead_letter=to, clock=RealClock(), batch_linger=0)
    with pytest.raises(Exception, match="AccessDenied"):
        await sink.send("x", trace_header="Root=1-abc")
    await sink.aclose()
    if target == "directory":
        [file] = tmp_path.iterdir()
        assert json.loads(file.read_text())["trace_header"] == "Root=1-abc"
    else:
        operation: Any = account.ledger.of(SendMessageBatch)[-1].operation
        [entry] = operation.entries
        assert entry.message_system_attributes["AWSTraceHeader"].string_value == "Root=1-abc"


# --- files --------------------------------------------------------------------------------------


@contextmanager
def _room(size: int) -> Iterator[None]:
    """Files can't grow beyond so many bytes, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, before)


async def test_a_disk_that_is_full_in_mid_line_leaves_nothing_of_it(tmp_path: Path) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")
    await keeper.take([_letter("before")])
    with _room(700), pytest.raises(OSError, match="large"):
        await keeper.take([_letter("x" * 500)])
    await keeper.take([_letter("after")])
    assert _bodies(tmp_path) == ["before", "after"]
    assert (await replay(tmp_path, _stored)).stored == 2


async def test_a_line_that_somebody_left_unfinished_takes_no_other_with_it(tmp_path: Path) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")
    await keeper.take([_letter("whole"), _letter("cut")])
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-10])
    await keeper.take([_letter("after")])
    done = await replay(tmp_path, _stored)
    assert (done.stored, len(done.failed)) == (2, 1)


async def test_files_and_directories_are_for_their_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "of" / "mine"
    await DirectoryKeeper(directory, "q").take([_letter("x")])
    [file] = directory.iterdir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, directory, directory.parent)]
    assert [oct(mode) for mode in modes] == ["0o600", "0o700", "0o700"]


@pytest.mark.parametrize("kind", ["a file", "below a file", "not ours"])
async def test_a_place_where_nothing_can_be_kept_is_told_when_the_sink_opens(
    make: MakeSink, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "letters"
    if kind == "not ours":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        place.write_text("")
    target = place / "below" if kind == "below a file" else place
    with pytest.raises(ConfigError, match=f"on_dead_letter: nothing can be kept in {target}: "):
        await make(on_dead_letter=target).__aenter__()


async def test_a_long_name_is_cut_in_the_name_of_the_file(
    make: MakeSink, account: Account, tmp_path: Path
) -> None:
    sink = make(Topic("t" * 256), on_dead_letter=tmp_path, clock=RealClock(), batch_linger=0)
    with pytest.raises(Exception, match="topic"):
        await sink.send("x")
    await sink.aclose()
    [name] = os.listdir(tmp_path)
    assert len(name) < 200
    assert json.loads((tmp_path / name).read_text())["queue"] == "t" * 256


async def test_a_file_that_was_taken_away_is_not_made_again(tmp_path: Path) -> None:
    keeper = DirectoryKeeper(tmp_path, "q")
    await keeper.take([_letter("first")])
    [file] = tmp_path.iterdir()
    file.rename(tmp_path / "taken")
    await keeper.take([_letter("second")])
    assert not file.exists()
    assert len(list(tmp_path.iterdir())) == 2
