"""`pumphouse send`: what is not stored is known and kept, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.backend import Backend
from pumphouse.cli import send
from pumphouse.cli.event_file import EventFile, opened
from pumphouse.cli.refused import Refused, reserved
from pumphouse.cli.send import Options, send_events
from pumphouse.errors import NoCredentialsError, UsageError
from pumphouse.jsonl import InputError
from pumphouse.protocol.operations import (
    CreateQueue,
    GetQueueAttributes,
    GetQueueUrl,
    SendMessageBatch,
)
from pumphouse.sink.letter import DeadLetter

Sending = Callable[..., int]


@pytest.fixture
def account() -> Account:
    account = Account()
    for name, attributes in (("q", None), ("q.fifo", {"FifoQueue": "true"})):
        asyncio.run(account.execute(CreateQueue(name, attributes)))
    return account


class _Kept:
    """A backend that is not closed with the command."""

    def __init__(self, backend: Backend) -> None:
        self.execute = backend.execute

    async def aclose(self) -> None: ...


@pytest.fixture
def sending(account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sending:
    """Runs the command in a directory of its own, over the account or another backend."""
    monkeypatch.chdir(tmp_path)

    def sending(queue: str = "q", backend: Any = None, **options: Any) -> int:
        monkeypatch.setattr(send, "connect", lambda **_: _Kept(backend or account))
        return send.run(Options(queue, **{"input": "events.jsonl"} | options))

    return sending


def _events(count: int, path: str = "events.jsonl") -> None:
    Path(path).write_text("".join(f'{{"n":{n},"user":"{n % 7}"}}\n' for n in range(count)))


def _letters(path: str = "refused.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def _numbers(account: Account, queue: str = "q") -> set[int]:
    return {json.loads(sent.body)["n"] for sent in account.sent(queue)}


# --- before anything is sent --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attributes": ["AWS.x=1"]}, "AWS"),
        ({"attributes": ["a=\x00"]}, "attribute 'a'"),
        ({"attributes": [f"a{n}=1" for n in range(11)]}, "11 message attributes"),
        ({"refused": "no/such/directory/x"}, "can't be written: No such file"),
        ({"refused": "."}, "is no file"),
        ({"refused": "/dev/null"}, "is no file"),
        ({"on_bad_line": "x"}, "--on-bad-line"),
        ({"input": "."}, "cannot read"),
        ({"group_by": "."}, "--group-by"),
    ],
)
def test_what_can_not_work_is_told_before_anything_is_sent(
    sending: Sending, account: Account, options: dict[str, Any], says: str
) -> None:
    _events(3)
    with pytest.raises(UsageError, match=re.escape(says)):
        sending(**options)
    assert not account.sent("q")
    assert os.listdir() == ["events.jsonl"]


def test_without_credentials_it_ends_at_once(
    sending: Sending, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = 0

    class Nobody:
        async def execute(self, operation: Any) -> Any:
            nonlocal asked
            asked += 1
            raise NoCredentialsError("there are no credentials")

    _events(3_000)
    assert sending(backend=Nobody()) == 78
    assert capsys.readouterr() == ("", "pumphouse: there are no credentials\n")
    assert asked == 1
    assert os.listdir() == ["events.jsonl"]


@pytest.mark.parametrize(
    ("code", "ends"), [("InvalidClientTokenId", 78), ("AccessDenied", 0), ("AuthorizationError", 0)]
)
def test_what_may_not_be_read_may_be_sent_to_but_wrong_credentials_end_it(
    sending: Sending, account: Account, code: str, ends: int
) -> None:
    _events(3)
    account.faults.refuse(GetQueueAttributes, code, times=None)
    url = asyncio.run(account.execute(GetQueueUrl("q"))).queue_url
    assert sending(url) == ends
    assert len(account.sent("q")) == (0 if ends else 3)


def test_two_at_once_do_not_share_a_file_of_refused_events(
    sending: Sending, account: Account
) -> None:
    _events(3)
    with reserved(Path("refused.jsonl"), "") as first:
        with pytest.raises(UsageError, match="another send is writing to"):
            sending()
        assert sending(refused="other.jsonl") == 0
        assert not first.count
    assert sending() == 0
    Path("refused.jsonl").touch()  # of one that was killed
    assert sending() == 0
    assert os.listdir() == ["events.jsonl"]


@pytest.mark.parametrize("suffix", [".replaying", ".rest"])
def test_the_file_of_a_replay_that_was_not_finished_is_not_taken(
    sending: Sending, account: Account, suffix: str
) -> None:
    _events(3)
    Path(f"refused.jsonl{suffix}").touch()
    with pytest.raises(UsageError, match="goes on with it"):
        sending()
    assert not account.sent("q")


# --- while it sends -----------------------------------------------------------------------------


def _refuse_even(account: Account) -> None:
    account.faults.fail_entries(
        SendMessageBatch,
        lambda entry: json.loads(entry.message_body)["n"] % 2 == 0,
        "InvalidMessageContents",
        times=None,
    )


def test_what_is_refused_is_written_before_anything_is_said(
    sending: Sending, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    _events(10)
    _refuse_even(account)
    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(BrokenPipeError):
        sending()
    assert [json.loads(letter["body"])["n"] for letter in _letters()] == [0, 2, 4, 6, 8]
    assert stat.S_IMODE(os.stat("refused.jsonl").st_mode) == 0o600
    with open("refused.jsonl", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_where_refused_events_can_not_be_written_their_lines_are_told(
    sending: Sending,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    add = Refused.add

    def full(self: Refused, letter: DeadLetter) -> None:
        if self.count == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, letter)

    _events(5_000)
    _refuse_even(account)
    monkeypatch.setattr(Refused, "add", full)
    assert sending() == 1
    out, err = capsys.readouterr()
    stored = _numbers(account)
    assert out.startswith(f"{len(stored)} of 5000 stored")
    assert len(stored) < 1_000, "it does not go on"
    assert "3 of them are in refused.jsonl" in err
    [told] = re.findall(
        r"refused.jsonl can't be written: No space left on device; "
        r"not stored, and in no file, are lines (.*) of ",
        err,
    )
    lost = set()
    for each in told.split(", "):
        first, _, last = each.partition("-")
        lost |= set(range(int(first) - 1, int(last or first)))
    kept = {json.loads(letter["body"])["n"] for letter in _letters()}
    assert stored | kept | lost == set(range(5_000))
    assert len(stored) + len(kept) + len(lost) == 5_000


class _Interrupted:
    """A backend whose process gets signals at its third batch; after the second it never answers.
    `asked` has the numbers in all of its requests."""

    def __init__(self, account: Account, *signals: signal.Signals) -> None:
        self.account, self.signals = account, signals
        self.batches = 0
        self.asked: set[int] = set()

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, SendMessageBatch):
            self.batches += 1
            self.asked |= {json.loads(entry.message_body)["n"] for entry in operation.entries}
            if self.batches == 3:
                for number in self.signals:
                    signal.raise_signal(number)
                    await asyncio.sleep(0.01)
            if self.batches >= 3 and len(self.signals) > 1:
                await asyncio.Event().wait()
        return await self.account.execute(operation)


@pytest.fixture
def minded() -> Iterator[None]:
    """SIGHUP does something, also where the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGINT,),
        (signal.SIGTERM,),
        (signal.SIGHUP,),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGINT),
    ],
    ids=str,
)
@pytest.mark.parametrize("queue", ["q", "q.fifo"])
def test_a_signal_ends_it_in_order_and_loses_nothing(
    sending: Sending,
    account: Account,
    capsys: pytest.CaptureFixture[str],
    signals: tuple[signal.Signals, ...],
    queue: str,
    minded: None,
) -> None:
    _events(2_000)
    backend = _Interrupted(account, *signals)
    assert sending(queue, backend) == 128 + signals[0]
    out, err = capsys.readouterr()
    letters = _letters()
    stored = _numbers(account, queue)
    kept = {json.loads(letter["body"])["n"]: letter["kind"] for letter in letters}
    assert out.startswith(f"{len(stored)} of 2000 stored")
    assert stored | kept.keys() == set(range(2_000))
    assert not stored & kept.keys()
    unknown = {n for n, kind in kept.items() if kind == "unknown"}
    assert unknown == backend.asked - stored, "what was in no request is known not to be stored"
    assert {kept[n] for n in kept.keys() - unknown} == {"not_sent"}
    assert ("--unknown" in err) == bool(unknown)
    assert "`pumphouse replay refused.jsonl` sends them again" in err
    for user in range(7) if queue == "q.fifo" else ():
        of_user = [n for n in kept if n % 7 == user]
        assert of_user == sorted(of_user)


async def test_it_reads_no_further_ahead_than_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _events(5_000)
    account = Account()
    await account.execute(CreateQueue("q"))
    read = 0
    event = EventFile._event

    def counted(self: EventFile, line: Any) -> Any:
        nonlocal read
        read += 1
        return event(self, line)

    class Slow:
        batches = 0

        async def execute(self, operation: Any) -> Any:
            if isinstance(operation, SendMessageBatch):
                self.batches += 1
                assert read <= self.batches * 10 + 1_025
                await asyncio.sleep(0)
            return await account.execute(operation)

        async def aclose(self) -> None: ...

    with opened("events.jsonl") as events, reserved(Path("refused.jsonl"), "") as refused:
        events.look_through("stop")
        monkeypatch.setattr(EventFile, "_event", counted)
        assert await send_events(Options("q"), events, {}, Slow(), refused) == 0
    assert read == 5_000


# --- what is the same event ---------------------------------------------------------------------


def test_the_same_line_of_standard_input_is_another_event_every_time(
    sending: Sending, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        text = io.BytesIO(b'{"deposit":5}\n{"deposit":5}\n')
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
        assert sending("q.fifo", input="-") == 0
    assert len(account.sent("q.fifo")) == 4


@pytest.mark.parametrize("redirected", [True, False])
def test_standard_input_is_a_file_or_a_pipe(
    sending: Sending, account: Account, monkeypatch: pytest.MonkeyPatch, redirected: bool
) -> None:
    _events(30)
    read, write = os.pipe()
    os.write(write, Path("events.jsonl").read_bytes())
    os.close(write)
    with open(read) as pipe, open("events.jsonl") as file:
        stdin = file if redirected else pipe
        monkeypatch.setattr(sys, "stdin", stdin)
        assert sending(input="-") == 0
    assert _numbers(account) == set(range(30))


@pytest.mark.parametrize("how", ["in place", "anew", "elsewhere"])
def test_a_file_that_was_rewritten_has_other_events(
    sending: Sending, account: Account, how: str
) -> None:
    _events(3)
    for _ in range(2):
        assert sending("q.fifo") == 0
    assert account.queue("q.fifo").visible == 3, "it is the same file"
    name = "events.jsonl"
    if how == "elsewhere":
        _events(3, name := "other.jsonl")
    elif how == "anew":
        _events(3, "new.jsonl")
        os.utime("new.jsonl", ns=(0, os.stat(name).st_mtime_ns))
        os.rename("new.jsonl", name)
    else:
        os.utime(name, ns=(0, os.stat(name).st_mtime_ns + 1))
    assert sending("q.fifo", input=name) == 0
    assert account.queue("q.fifo").visible == 6


@pytest.mark.parametrize("change", ["shorter", "other", "longer"])
def test_a_file_that_changes_while_it_is_sent_is_told_or_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _events(20)
    with opened("events.jsonl", "user") as events:
        events.look_through("stop")
        with open("events.jsonl", "r+b") as file:
            if change == "shorter":
                file.truncate(100)
            elif change == "longer":
                file.seek(0, os.SEEK_END)
                file.write(b'{"user":"more"}\n')
            else:
                file.write(b'{"m":1}\n')
        if change == "longer":
            assert len(list(events)) == 20
        else:
            with pytest.raises(InputError, match="was changed while it was being sent"):
                list(events)


def test_bad_lines_are_counted_or_left_out_of_a_file_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text('\n{"a":1}\nno\n{"a":2}\n{"b":3}\n{"a":4')
    more = pytest.raises(InputError, match=r"line 3: .*\(and 2 more bad lines\); nothing was")
    with opened("x.jsonl", "a") as events, more:
        events.look_through("stop")
    with opened("x.jsonl", "a") as events:
        events.look_through("skip")
        assert [(event.line, event.group) for event in events] == [(2, "1"), (4, "2")]
        assert len(events) == 2
    assert re.findall(r"skipped line (\d)", capsys.readouterr().err) == ["3", "5", "6"]
