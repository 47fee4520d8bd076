"""`pumphouse send` and `pumphouse replay` against the served account."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pumphouse import cli
from pumphouse.account import Account
from pumphouse.errors import NetworkError
from pumphouse.protocol.operations import CreateQueue, SendMessageBatch
from pumphouse.sink.letter import DeadLetter
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
    assert out.endswith("; 1 line skipped\n")
    assert "skipped line 2" in err


def test_groups_that_nobody_named_are_said(
    command: Command, served: Served, tmp_path: Path
) -> None:
    (tmp_path / "customers.jsonl").write_text('{"customer":"a"}\n{"customer":"b"}\n')
    (tmp_path / "plain.jsonl").write_text('{"n":1}\n{"n":2}\n')
    _, _, err = command("send", "q.fifo", "-i", "customers.jsonl")
    assert err == "groups: by 'customer', a usual key (--group-by takes another)\n"
    _, _, err = command("send", "q.fifo", "-i", "plain.jsonl")
    assert err.startswith("groups: all in one group: no --group-by")
    assert command("send", "q.fifo", "-i", "customers.jsonl", "-g", "customer")[2] == ""
    assert command("send", "q", "-i", "customers.jsonl")[2] == ""


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


def test_a_missing_queue_is_one_error_before_anything_is_read(
    command: Command, served: Served, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text("no event\n")
    code, out, err = command("send", "missing", "-i", "bad.jsonl")
    assert (code, out) == (78, "")
    assert err.startswith("pumphouse: QueueDoesNotExist")
    assert err.count("\n") == 1
    assert not (tmp_path / "refused.jsonl").exists()


def test_what_a_missing_queue_refused_is_replayed_once_it_is_there(
    command: Command, served: Served, tmp_path: Path
) -> None:
    letters = [DeadLetter("later", "refused", NetworkError("no"), 1, 0.0, str(n)) for n in range(3)]
    (tmp_path / "x.jsonl").write_bytes(b"".join(letter.to_json() for letter in letters))
    for arguments in ((), ("-q", "missing")):
        code, out, err = command("replay", "x.jsonl", *arguments)
        assert (code, out, err.count("\n")) == (78, "", 1)
        assert "QueueDoesNotExist" in err
    served.run(_account(served).execute(CreateQueue("later")))
    assert command("replay", "x.jsonl")[0] == 0
    assert len(_account(served).sent("later")) == 3
    assert not list(tmp_path.iterdir())


def test_reasons_are_told_once_each_where_some_destinations_are_there(
    command: Command, served: Served, tmp_path: Path
) -> None:
    queues = ["q", *["gone"] * 3, "gone.fifo"]
    letters = [DeadLetter(q, "refused", NetworkError("no"), 1, 0.0, "b") for q in queues]
    (tmp_path / "x.jsonl").write_bytes(b"".join(letter.to_json() for letter in letters))
    code, out, err = command("replay", "x.jsonl")
    assert (code, out) == (1, "1 stored, 4 failed, 0 left out\n")
    lines = err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("x.jsonl:2: QueueDoesNotExist")
    assert lines[0].endswith("(and 2 more)")
    assert lines[1].startswith("x.jsonl:5: QueueDoesNotExist")


def test_what_may_be_stored_already_is_left_out_and_told(
    command: Command, served: Served, tmp_path: Path
) -> None:
    letters = [DeadLetter("q", "unknown", NetworkError("no"), 1, 0.0, str(n)) for n in range(3)]
    for wanted in ("--unknown", "--kind=unknown"):
        (tmp_path / "x.jsonl").write_bytes(b"".join(letter.to_json() for letter in letters))
        code, out, err = command("replay", "x.jsonl")
        assert (code, out) == (0, "0 stored, 0 failed, 3 left out\n")
        assert err.startswith("3 of those left out may be stored already; ")
        assert "--unknown sends them" in err
        assert command("replay", "x.jsonl", wanted) == (0, "3 stored, 0 failed, 0 left out\n", "")


def test_an_endpoint_that_is_down_is_75_and_one_line(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    letters = [DeadLetter("q", "refused", NetworkError("no"), 1, 0.0, str(n)) for n in range(3)]
    (tmp_path / "x.jsonl").write_bytes(b"".join(letter.to_json() for letter in letters))
    code = cli.run_command(["replay", "x.jsonl", "--endpoint-url", "http://127.0.0.1:1"])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (75, "", 1)
    assert (tmp_path / "x.jsonl").exists()
