"""`pumphouse send` and `pumphouse replay` against the served account."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pumphouse import cli
from pumphouse.account import Account
from pumphouse.cli.send import Options, send_events
from pumphouse.jsonl import load
from pumphouse.protocol.operations import CreateQueue, SendMessageBatch
from support.serving import Served, serving

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
    account = Account()
    with serving(account) as served:
        served.run(account.execute(CreateQueue("q")))
        served.run(account.execute(CreateQueue("q.fifo", {"FifoQueue": "true"})))
        yield served


@pytest.fixture
def command(
    served: Served,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command([*arguments, "--endpoint-url", served.url])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def _events(path: Path, count: int) -> None:
    lines = [json.dumps({"n": n, "user": {"name": "ab"[n % 2]}}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n")


def _account(served: Served) -> Account:
    assert isinstance(served.backend, Account)
    return served.backend


def test_every_event_is_stored_in_the_order_of_its_group(
    command: Command, served: Served, tmp_path: Path
) -> None:
    _events(tmp_path / "events.jsonl", 50)
    code, out, err = command(
        *("send", "q.fifo", "--input", "events.jsonl", "--group-by", "user.name"),
        *("--attribute", "kind=test", "-a", "with=a=b"),
    )
    assert (code, err) == (0, "")
    assert out.startswith("50 of 50 stored in q.fifo, confirmed")
    sent = _account(served).sent("q.fifo")
    for group, start in (("a", 0), ("b", 1)):
        found = [json.loads(m.body)["n"] for m in sent if m.group_id == group]
        assert found == list(range(start, 50, 2))
    attributes = sent[0].attributes or {}
    assert attributes["with"].string_value == "a=b"
    assert not (tmp_path / "refused.jsonl").exists()


def test_a_standard_queue_takes_batches_of_ten_and_no_group(
    command: Command, served: Served, tmp_path: Path
) -> None:
    _events(tmp_path / "events.jsonl", 40)
    code, out, _ = command("send", "q", "-i", "events.jsonl")
    assert code == 0
    assert "with 4 requests" in out
    assert {m.group_id for m in _account(served).sent("q")} == {None}


def test_what_was_refused_is_in_a_file_with_the_reason_and_replay_sends_it(
    command: Command, served: Served, tmp_path: Path
) -> None:
    _events(tmp_path / "events.jsonl", 10)
    account = _account(served)
    account.faults.fail_entries(
        SendMessageBatch, lambda e: '"n": 4' in e.message_body, "InvalidMessageContents", times=None
    )
    code, out, err = command("send", "q.fifo", "-i", "events.jsonl", "-g", "user.name")
    assert code == 1
    assert out.startswith("7 of 10 stored")
    assert "the first is line 5: InvalidMessageContents" in err
    lines = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert [(json.loads(line["body"])["n"], line["kind"]) for line in lines] == [
        *((4, "refused"), (6, "not_sent"), (8, "not_sent"))
    ]
    code, _, err = command("send", "q.fifo", "-i", "events.jsonl", "-g", "user.name")
    assert code == 2, "a file of refused events is never overwritten"
    assert "refused.jsonl is there already, with what an earlier send did not store" in err
    assert "`pumphouse replay refused.jsonl --endpoint-url" in err
    account.faults.clear()
    assert command("replay", "refused.jsonl") == (0, "3 stored, 0 failed, 0 left out\n", "")
    a = [json.loads(m.body)["n"] for m in account.sent("q.fifo") if m.group_id == "a"]
    assert a == [0, 2, 4, 6, 8]
    assert not (tmp_path / "refused.jsonl").exists()


def test_sending_the_same_file_again_at_once_doubles_nothing_on_fifo(
    command: Command, served: Served, tmp_path: Path
) -> None:
    _events(tmp_path / "events.jsonl", 10)
    for _ in range(2):
        assert command("send", "q.fifo", "-i", "events.jsonl", "-g", "user.name")[0] == 0
    assert "10 visible" in repr(_account(served).queue("q.fifo"))


def test_bad_lines_stop_or_are_skipped(command: Command, served: Served, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"n":1}\nnot json\n{"n":2}\n')
    code, _, err = command("send", "q", "-i", "bad.jsonl")
    assert code == 1
    assert "line 2" in err
    assert "nothing was sent" in err
    assert not _account(served).sent("q")
    code, out, err = command("send", "q", "-i", "bad.jsonl", "--on-bad-line", "skip")
    assert code == 0
    assert out.startswith("2 of 2 stored")
    assert "skipped line 2" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("send", "q", "-i", "no-such-file"), "cannot read no-such-file"),
        (("send", "q", "-i", "e.jsonl", "-a", "novalue"), "NAME=VALUE"),
        (("send", "q", "-i", "e.jsonl", "-a", "a=1", "-a", "a=2"), "given twice"),
        (("send", "q", "-i", "e.jsonl", "--on-bad-line", "x"), "--on-bad-line"),
        (("replay", "nothing-there"), "no dead letters"),
    ],
)
def test_wrong_usage(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    _events(tmp_path / "e.jsonl", 1)
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_missing_queue_fails_every_event_and_loses_none(
    command: Command, served: Served, tmp_path: Path
) -> None:
    _events(tmp_path / "events.jsonl", 3)
    code, out, err = command("send", "missing", "-i", "events.jsonl")
    assert code == 1
    assert out.startswith("0 of 3 stored")
    assert "QueueDoesNotExist" in err
    assert len((tmp_path / "refused.jsonl").read_text().splitlines()) == 3
    served.run(_account(served).execute(CreateQueue("missing")))
    assert command("replay", "refused.jsonl")[0] == 0
    assert len(_account(served).sent("missing")) == 3


class Interrupting:
    """A backend that is interrupted (Ctrl-C, then SIGTERM) when it gets its third batch: `times`
    times, and then answers, or never does."""

    def __init__(self, account: Account, times: int) -> None:
        self.account, self.times, self.batches = account, times, 0

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, SendMessageBatch):
            self.batches += 1
            if self.batches == 3:
                for number in (signal.SIGINT, signal.SIGTERM)[: self.times]:
                    signal.raise_signal(number)
                    await asyncio.sleep(0.01)
                if self.times > 1:
                    await asyncio.Event().wait()
        return await self.account.execute(operation)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("times", [1, 2])
async def test_an_interrupt_ends_it_in_order_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: int
) -> None:
    account = Account()
    await account.execute(CreateQueue("q"))
    _events(tmp_path / "events.jsonl", 5_000)
    refused = tmp_path / "refused.jsonl"
    options = Options("q", str(tmp_path / "events.jsonl"), refused=str(refused))
    code = await send_events(options, load(options.input, "n"), {}, Interrupting(account, times))
    assert code == 130
    out, err = capsys.readouterr()
    letters = [json.loads(line) for line in refused.read_text().splitlines()]
    stored = {json.loads(sent.body)["n"] for sent in account.sent("q")}
    kept = {json.loads(letter["body"])["n"]: letter["kind"] for letter in letters}
    assert out.startswith(f"{len(stored)} of 5000 stored") or times == 2
    assert stored | kept.keys() == set(range(5_000))
    assert all(kept[n] == "unknown" for n in stored & kept.keys())
    assert "pumphouse replay" in err
    if times == 1:
        assert not stored & kept.keys()
        assert set(kept.values()) == {"not_sent"}
    else:
        assert "unknown" in kept.values()
        assert "--unknown" in err
