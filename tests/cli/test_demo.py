"""`pumphouse demo` as its users meet it: on a terminal and in a pipe, with good input and bad."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

from pumphouse import cli
from pumphouse.cli.demo import report_lines
from pumphouse.demo import service
from pumphouse.demo.report import Report
from pumphouse.demo.sample import sample
from support.troubled import LosingAccount, ReorderingAccount

SCRIPT = str(Path(sys.executable).parent / "pumphouse")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def demo(capsys: pytest.CaptureFixture[str]):
    """Run the demo in this process: exit code, standard output, standard error."""

    def demo(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command(["demo", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return demo


@pytest.fixture
def lines(tmp_path: Path):
    def lines(*content: str | bytes) -> str:
        path = tmp_path / "events.jsonl"
        path.write_bytes(
            b"".join(line.encode() + b"\n" if isinstance(line, str) else line for line in content)
        )
        return str(path)

    return lines


def row(out: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}: +(.*)$", out, flags=re.MULTILINE)
    return found


def test_the_sample(demo) -> None:
    code, out, err = demo()
    assert (code, err) == (0, "")
    assert out.startswith("48 events from the sample in 6 groups, grouped by 'source'")
    assert row(out, "sent") == "48 of 48, confirmed"
    assert row(out, "handled") == "47"
    assert row(out, "retried") == "6"
    assert row(out, "dead-lettered") == f"1 (line {service.poison_of(sample().events)})"
    assert row(out, "lost") == "0"
    assert row(out, "order").startswith("kept in 6 groups")
    assert re.match(r"\d\.\d\d per message, \d+ in all \(", row(out, "requests"))
    assert re.fullmatch(r"\d+\.\d\d s", row(out, "time"))
    assert out.endswith("nothing lost, order kept in every group\n")


def test_the_real_input(demo, shared_data: Path) -> None:
    code, out, _ = demo(
        "--input", str(shared_data / "github-webhooks.jsonl"), "--group-by", "source"
    )
    assert code == 0
    assert row(out, "sent") == "329 of 329, confirmed"
    assert int(row(out, "handled")) + int(row(out, "dead-lettered").split()[0]) == 329
    assert row(out, "order").startswith("kept in 16 groups")


def test_events_from_a_pipe() -> None:
    events = "".join(json.dumps({"n": n, "who": {"id": n % 3}}) + "\n" for n in range(30))
    done = subprocess.run(
        [SCRIPT, "demo", "--input", "-", "--group-by", "who.id"],
        input=events,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("30 events from standard input in 3 groups, grouped by 'who.id'")


@pytest.mark.parametrize(
    ("account", "complaint"),
    [
        (LosingAccount, "FAILED: lost 1 (line "),
        (ReorderingAccount, "FAILED: out of order in group "),
    ],
)
def test_a_run_that_goes_wrong_ends_with_1(
    demo, monkeypatch: pytest.MonkeyPatch, account: type, complaint: str
) -> None:
    monkeypatch.setattr(service, "Account", account)
    monkeypatch.setattr(service, "STALL_SECONDS", 0.3)
    code, out, _ = demo()
    assert code == 1
    assert complaint in out
    assert "nothing lost" not in out


def test_a_bad_line_stops_the_run_before_anything_is_sent(demo, lines) -> None:
    path = lines('{"a":1}', "broken", '{"a":3}', "again")
    code, out, err = demo("--input", path)
    assert (code, out) == (1, "")
    assert err == (
        f"pumphouse: {path}: line 2: not JSON: invalid character (byte 0) (and 1 more bad line); "
        "nothing was sent (--on-bad-line skip leaves bad lines out)\n"
    )


def test_a_bad_line_is_skipped_and_told_when_asked(demo, lines) -> None:
    path = lines('{"a":1}', "broken", b"\xff\n", '{"a":3}', "[]")
    code, out, err = demo("--input", path, "--on-bad-line", "skip")
    assert code == 0
    assert err.splitlines() == [
        f"{path}: skipped line 2: not JSON: invalid character (byte 0)",
        f"{path}: skipped line 3: not UTF-8: byte 0xff at 1",
        f"{path}: skipped line 5: an array, and an event is an object",
    ]
    assert row(out, "sent") == "2 of 2, confirmed"
    assert row(out, "bad lines") == "3 skipped"


def test_a_line_longer_than_a_message_is_a_bad_line(demo, lines) -> None:
    path = lines('{"a":1}', '{"a":"' + "x" * 2**20 + '"}', '{"a":2}')
    code, _, err = demo("--input", path, "--on-bad-line", "skip")
    assert code == 0
    assert "skipped line 2: longer than the 1,048,576 bytes of a message" in err


@pytest.mark.parametrize(
    ("content", "arguments", "code", "complaint"),
    [
        ([], [], 1, "holds no events: it is empty"),
        ([b"\xff\xfe"], [], 1, "holds no events: line 1: not UTF-8"),
        (["[bold]"], [], 1, "holds no events: line 1: not JSON"),
        (['{"a":1}'], ["-g", "no.key"], 1, "nothing at the key 'no.key'; the event has a"),
        (['{"a":1}', '{"b":1}'], ["-g", "a"], 1, "line 2: nothing at the key 'a'"),
    ],
)
def test_input_that_cannot_be_used_is_one_line(
    demo, lines, content, arguments: list[str], code: int, complaint: str
) -> None:
    ended, out, err = demo("--input", lines(*content), *arguments)
    assert (ended, out) == (code, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_an_unreadable_file_is_one_line(demo, lines) -> None:
    path = lines('{"a":1}')
    os.chmod(path, 0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    code, _, err = demo("--input", path)
    assert (code, err) == (2, f"pumphouse: cannot read {path}: Permission denied\n")


def test_names_are_not_taken_for_markup(demo, tmp_path: Path) -> None:
    path = tmp_path / "[red]x.jsonl"
    path.write_text('{"[bold]": 1}\n{"[bold]": 2}\n')
    _, out, _ = demo("--input", str(path), "--group-by", "[bold]")
    assert "[red]x.jsonl" in out
    assert "grouped by '[bold]'" in out


def test_progress_is_plain_lines_in_a_pipe(demo) -> None:
    _, out, _ = demo()
    assert "\x1b" not in out
    assert re.search(r"^sent 48/48, handled 47, retried 6, dead-lettered 1$", out, re.MULTILINE)


def on_terminal(columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run the demo on a terminal of its own: exit code, and what the terminal got."""
    main, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [SCRIPT, "demo"],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(side)
    got = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([main], [], [], 1)[0]:
            continue
        try:
            chunk = os.read(main, 65_536)
        except OSError:  # the other side has gone
            break
        if not chunk:
            break
        got += chunk
    os.close(main)
    return process.wait(10), got.decode()


def test_a_terminal_gets_live_progress() -> None:
    code, text = on_terminal()
    assert code == 0
    assert "\x1b[1A" in text  # the cursor goes up to draw the bars again
    assert "━" in text
    assert "nothing lost, order kept in every group" in ANSI.sub("", text)


def test_no_color_is_kept_and_a_narrow_terminal_loses_nothing() -> None:
    code, text = on_terminal(columns=20, NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)
    live = ANSI.sub("", text.partition("\x1b[?25l")[2].partition("\x1b[?25h")[0])
    frames = re.split(r"[\r\n]+", live)
    assert any(frame.split() == ["settled", "48/48"] for frame in frames)
    assert max(map(len, frames)) <= 20


def test_a_dumb_terminal_gets_plain_lines() -> None:
    code, text = on_terminal(TERM="dumb")
    assert code == 0
    assert "\x1b" not in text
    assert "sent 48/48" in text


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text('{"group":"one"}\n' * 5_000)  # about 10 s of one group
    process = subprocess.Popen(
        [SCRIPT, "demo", "--input", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background hands on that Ctrl-C is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()  # it is sending
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "pumphouse: interrupted\n")
    assert "nothing lost" not in out


def test_long_lists_in_the_report_are_cut() -> None:
    report = Report(
        events=50,
        groups=1,
        sent=50,
        handled=20,
        retried=0,
        dead_lettered=[],
        lost=range(1, 31),
        unconfirmed=dict.fromkeys(range(31, 43), "refused"),
        twice=[7],
        out_of_order=["[a]"],
        at_once=1,
        left=2,
        requests={"SendMessageBatch": 5},
        seconds=1,
    )
    text = "\n".join(report_lines(report))
    assert "lost 30 (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 20 more)" in text
    assert "2 more were not confirmed" in text
    assert "came out more than once: 1 (line 7)" in text
    assert "out of order in group \\[a]" in text
    assert "2 messages still in the queues" in text
