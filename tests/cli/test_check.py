"""`pumphouse check`: exit codes, and what people and programs are shown."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pumphouse import Account, cli
from pumphouse.check import Finding
from pumphouse.check.findings import found
from pumphouse.cli.check import as_json, is_sound, line, show, summary
from support.serving import serving

Command = Callable[..., tuple[int, str, str]]

SOUND = """
    from pumphouse import App, Queue

    app = App("shop")
    spent = Queue("spent", attributes={"MessageRetentionPeriod": "1209600"})

    @app.subscriber("orders", max_attempts=5, dead_letter=spent)
    async def pack(order: dict) -> None: ...
"""
LOOPING = """
    from pumphouse import App, Queue

    app = App("shop")

    @app.subscriber("orders")
    async def pack(order: dict) -> None: ...

    hasty = App("hasty")

    @hasty.subscriber(Queue("orders", extend=False), timeout=60)
    async def also_pack(order: dict) -> None: ...

    no_app = 3
"""


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Run the command in a folder of services: exit code, standard output, standard error."""
    for name, text in (("sound", SOUND), ("looping", LOOPING)):
        (tmp_path / f"checked_{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command(["check", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return command


def test_a_sound_service(command: Command) -> None:
    assert command("checked_sound:app", "--local", "--strict") == (
        0,
        "sound: 1 subscription checked\n",
        "",
    )


def test_warnings_count_where_it_is_strict(command: Command) -> None:
    code, out, err = command("checked_looping", "--local")
    assert (code, err) == (0, "")
    first, last = out.splitlines()
    assert first.startswith("orders: warning PH209: it has no redrive policy")
    assert "; to do: give max_attempts=" in first
    assert last == "1 warning; 1 subscription checked"
    assert command("checked_looping", "--local", "--strict")[0] == 1


def test_errors_count_always(command: Command) -> None:
    code, out, _ = command("checked_looping:hasty", "--local")
    assert code == 1
    assert "orders: error PH301" in out
    assert out.endswith("1 error, 1 warning, 1 info; 1 subscription checked\n")


def test_for_programs(command: Command) -> None:
    code, out, _ = command("checked_looping:hasty", "--local", "--json")
    answer = json.loads(out)
    assert code == 1
    assert (answer["sound"], answer["subscriptions"]) == (False, 1)
    assert answer["findings"][0].keys() == {"code", "severity", "queue", "message", "remedy"}
    assert [each["code"] for each in answer["findings"]] == ["PH301", "PH209", "PH307"]
    code, out, _ = command("checked_sound", "--local", "--json")
    assert json.loads(out) == {"sound": True, "subscriptions": 1, "findings": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_module"],
        ["checked_looping:no_app"],
        ["checked_sound", "--local", "--region", "eu-west-1"],
        ["checked_sound", "--arns"],
        ["checked_sound", "--no-such-option"],
        [],
    ],
)
def test_wrong_usage(command: Command, arguments: list[str]) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_no_way_to_aws_is_an_error_and_no_finding(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    code, out, err = command("checked_sound", "--endpoint-url", "http://127.0.0.1:9")
    assert (code, out) == (1, "")
    assert "127.0.0.1:9" in err
    assert err.count("\n") == 1
    assert "a-secret-key" not in err


def test_over_http(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-key")
    account = Account(ledger_room=100)
    with serving(account) as served:
        code, out, _ = command("checked_sound", "--endpoint-url", served.url, "--json")
    assert code == 1
    assert [each["code"] for each in json.loads(out)["findings"]] == ["PH101", "PH201"]
    assert not [each for each in account.ledger if not each.action.startswith(("Get", "List"))]


# --- permissions --------------------------------------------------------------------------------


def test_the_policy_without_asking_anyone(command: Command) -> None:
    code, out, err = command("checked_sound", "--permissions")
    policy = json.loads(out)
    assert (code, err) == (0, "")
    assert policy["Version"] == "2012-10-17"
    assert "arn:aws:sqs:*:*:spent" in out
    assert command("checked_looping", "--permissions")[2].count("--arns looks that up") == 1


def test_the_policy_with_arns(command: Command) -> None:
    code, out, _ = command("checked_sound", "--permissions", "--arns", "--local")
    assert code == 0
    assert "arn:aws:sqs:us-east-1:000000000000:orders" in out
    assert "*" not in out


# --- what people see ----------------------------------------------------------------------------

FINDINGS = [
    found("PH301", "orders", "a handler may take 1 min", "leave extend=True"),
    found("PH104", "orders", "it polls short", "wait for 20 s"),
    found("PH209", "mail.fifo", "nothing ends a message that always fails", "give max_attempts="),
]


def shown(width: int, *, terminal: bool = True) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=terminal, color_system=None, highlight=False
    )
    show(FINDINGS, 2, console)
    return [text.rstrip() for text in out.getvalue().splitlines()]


def test_a_wide_terminal() -> None:
    assert shown(100) == [
        "orders",
        "  error   PH301 a handler may take 1 min → leave extend=True",
        "  warning PH104 it polls short → wait for 20 s",
        "mail.fifo",
        "  warning PH209 nothing ends a message that always fails → give max_attempts=",
        "1 error, 2 warnings; 2 subscriptions checked",
    ]


def test_a_narrow_terminal() -> None:
    lines = shown(40)
    assert lines == [
        "orders",
        "  error   PH301 a handler may take 1 min",
        "                → leave extend=True",
        "  warning PH104 it polls short → wait",
        "                for 20 s",
        "mail.fifo",
        "  warning PH209 nothing ends a message",
        "                that always fails → give",
        "                max_attempts=",
        "1 error, 2 warnings; 2 subscriptions checked",
    ]


def test_no_terminal_has_one_line_each() -> None:
    assert shown(20, terminal=False) == [
        *(line(each) for each in FINDINGS),
        "1 error, 2 warnings; 2 subscriptions checked",
    ]


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ([], "sound: 2 subscriptions checked"),
        (["PH105", "PH107"], "sound: 2 subscriptions checked, 2 info"),
        (["PH104"], "1 warning; 2 subscriptions checked"),
        (["PH101", "PH101", "PH105"], "2 errors, 1 info; 2 subscriptions checked"),
    ],
)
def test_the_last_line(codes: list[str], said: str) -> None:
    assert summary([found(code, "q", "m", "r") for code in codes], 2) == said


@pytest.mark.parametrize(
    ("code", "sound", "strictly"),
    [("PH101", False, False), ("PH104", True, False), ("PH105", True, True)],
)
def test_what_counts(code: str, sound: bool, strictly: bool) -> None:
    findings: list[Finding] = [found(code, "q", "m", "r")]
    assert is_sound(findings, strict=False) is sound
    assert is_sound(findings, strict=True) is strictly
    answer: dict[str, Any] = json.loads(as_json(findings, 1, strict=True))
    assert answer["sound"] is strictly
