"""How the command ends: one line and an exit code for what goes wrong, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import pumphouse
from pumphouse import cli
from pumphouse.errors import PumphouseError, UsageError

SCRIPT = str(Path(sys.executable).parent / "pumphouse")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]):
    """Run the command in this process: exit code, standard output, standard error."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_version(command) -> None:
    assert command("--version") == (0, f"pumphouse {pumphouse.__version__}\n", "")


def test_help_lists_the_subcommands(command) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert "demo" in out
    assert "..." not in out.partition("Commands:")[2]  # none is cut off


def test_help_of_run_says_what_a_module_alone_means(command) -> None:
    code, out, _ = command("run", "--help")
    assert code == 0
    assert "MODULE[:APP]" in out
    assert "its name is app if not given" in " ".join(out.split())


def test_what_is_not_configured_is_told_in_words_of_the_command_line(command, monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    code, _, err = command("peek", "q")
    assert code == 1
    assert "--region" in err
    assert "AWS_REGION" in err
    code, _, err = command("peek", "q", "--endpoint-url", "http://127.0.0.1:9")
    assert code == 1
    assert "AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any" in err


def test_no_subcommand_shows_the_help(command) -> None:
    code, out, err = command()
    assert (code, err) == (2, "")
    assert "demo" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-option"],
        ["no-such-command"],
        ["demo", "--no-such-option"],
        ["demo", "--input"],
        ["demo", "unexpected"],
        ["demo", "--on-bad-line", "ignore"],
        ["demo", "--input", "no/such/file"],
        ["demo", "--group-by", ""],
        ["run", "m", "--drain-seconds", "nan"],
        ["run", "m", "--drain-seconds", "inf"],
        ["run", "m", "--drain-seconds", "-1"],
        ["run", "m", "--stop-seconds", "nan"],
        ["run", "m", "--waiting-every", "nan"],
        ["run", "m", "--waiting-every", "-1"],
        ["redrive", "q", "--rate", "nan"],
        ["redrive", "q", "--rate", "0"],
    ],
)
def test_wrong_usage_is_one_line_and_2(command, arguments: list[str]) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("pumphouse: ")
    assert err.count("\n") == 1


def _texts() -> Iterator[list[str]]:
    """Every command line in which one text is empty, as a variable of the shell may be."""
    from pumphouse.cli.command import command

    for name, each in command.commands.items():  # type: ignore[attr-defined]
        needed = ["x" for of in each.params if isinstance(of, click.Argument) and of.required]
        for of in each.params:
            if isinstance(of, click.Argument) and of.required:
                yield [name, ""]
            elif isinstance(of, click.Option) and of.type.name == "text" and of.default != "":
                yield [name, *needed, of.opts[0], " "]


@pytest.mark.parametrize("arguments", list(_texts()), ids=" ".join)
def test_a_text_that_is_empty_is_taken_for_nothing(command, arguments: list[str]) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "it is empty; is it a variable of the shell that is not set?" in err
    assert err.count("\n") == 1


def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = run(f'PYTHONPATH={tmp_path} "$PUMPHOUSE" --version')
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "pumphouse: interrupted\n")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("wrong"), 2, "pumphouse: wrong\n"),
        (PumphouseError("failed\nbadly"), 1, "pumphouse: failed badly\n"),
        (KeyboardInterrupt(), 130, "pumphouse: interrupted\n"),
        (OSError(28, "No space left on device"), 1, "pumphouse: No space left on device\n"),
        (OSError("odd"), 1, "pumphouse: odd\n"),
    ],
)
def test_what_goes_wrong_on_purpose(
    command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("pumphouse.cli.demo.run", fail)
    # An operating system's error closes the output for good; the rest of the suite needs it.
    monkeypatch.setattr(cli, "_close_output", lambda: None)
    assert command("demo") == (code, "", line)


def test_a_bug_is_a_traceback(command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("pumphouse.cli.demo.run", fail)
    with pytest.raises(ZeroDivisionError):
        command("demo")


def test_the_exit_code_of_a_subcommand_is_the_commands(command, monkeypatch) -> None:
    monkeypatch.setattr("pumphouse.cli.demo.run", lambda *_: 1)
    assert command("demo")[0] == 1


def run(line: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PUMPHOUSE": SCRIPT}
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    done = run('set -o pipefail; "$PUMPHOUSE" demo | head -n 1')
    assert done.returncode in (0, 141)  # the run may have been over before `head` was
    assert done.stdout.startswith("48 events")
    assert done.stderr == ""


def test_a_reader_that_never_was_is_no_traceback() -> None:
    done = run('set -o pipefail; "$PUMPHOUSE" demo | true')
    assert done.returncode == 141
    assert done.stderr == ""


def test_a_full_disk_is_one_line() -> None:
    done = run('"$PUMPHOUSE" demo > /dev/full')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pumphouse: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_fault(closed: str) -> None:
    assert run(f'"$PUMPHOUSE" --version {closed}').returncode == 0


def test_a_document_that_has_nowhere_to_go_is_one_line() -> None:
    done = run('"$PUMPHOUSE" asyncapi nowhere:app >&-')
    assert done.returncode == 2
    assert done.stderr == (
        "pumphouse: standard output is closed, and the document is written there\n"
    )


def test_a_run_that_nobody_sees_is_no_fault() -> None:
    assert run('"$PUMPHOUSE" demo >&- 2>&- <&-').returncode == 0


def test_what_a_locale_cannot_write_stays_json() -> None:
    written = json.dumps("Größe 😀", ensure_ascii=False).encode("ascii", "pumphouse")
    assert json.loads(written) == "Größe 😀"


def test_a_locale_that_cannot_write_a_name_is_no_fault() -> None:
    done = run('PYTHONIOENCODING=ascii "$PUMPHOUSE" demo --input "nowhere-é.jsonl"')
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "pumphouse: cannot read nowhere-\\u00e9.jsonl: No such file or directory\n"
    )
