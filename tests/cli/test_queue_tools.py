"""`pumphouse queues`, `peek`, `receive`, `redrive` and `purge` against the served account."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from pumphouse import cli
from pumphouse.account import Account
from pumphouse.cli.queue_tools import queue_table, safe
from pumphouse.protocol.operations import (
    CancelMessageMoveTask,
    ChangeMessageVisibilityBatch,
    DeleteMessageBatch,
    GetQueueAttributes,
    PurgeQueue,
    ReceiveMessage,
)
from pumphouse.queue_tools import QueueOverview
from pumphouse.signals import AT_ONCE_SECONDS
from support.dead_letters import kill_all, put, queues
from support.serving import Served, serving

Command = Callable[..., tuple[int, str, str]]
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # nothing comes later here; the processes below poll as long as they do
    monkeypatch.setattr("pumphouse.queue_tools.move.WAIT_SECONDS", 0)
    account = Account()
    with serving(account) as served:
        served.run(queues(account, "orders", dead="orders-dead", receives=3))
        served.run(queues(account, "steps.fifo", dead="steps-dead.fifo"))
        yield served


@pytest.fixture
def account(served: Served) -> Account:
    assert isinstance(served.backend, Account)
    return served.backend


@pytest.fixture
def command(served: Served, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = cli.run_command([*arguments, "--endpoint-url", served.url])
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def fill(served: Served, account: Account) -> Callable[..., None]:
    def fill(queue: str, *bodies: str, **attributes: str) -> None:
        group = "g" if queue.endswith(".fifo") else None
        for body in bodies:
            served.run(put(account, queue, body, group, **attributes))

    return fill


Fill = Callable[..., None]


# --- queues -------------------------------------------------------------------------------------


def test_queues_is_a_table(command: Command, fill: Fill) -> None:
    fill("orders", "a", "b")
    code, out, err = command("queues")
    assert (code, err) == (0, "")
    lines = [re.split(r"  +", line.rstrip()) for line in out.splitlines()]
    assert lines[0] == ["QUEUE", "VISIBLE", "IN FLIGHT", "DELAYED", "OLDEST", "DEAD LETTERS"]
    assert lines[1][:4] == ["orders", "2", "0", "0"]
    assert re.fullmatch(r"\d+ s", lines[1][4])
    assert lines[1][5] == "-> orders-dead x3"
    assert lines[2] == ["orders-dead", "0", "0", "0", "-"]
    assert [line[0] for line in lines[3:]] == ["steps-dead.fifo", "steps.fifo"]


def test_queues_as_json_and_by_prefix(command: Command, fill: Fill) -> None:
    fill("steps.fifo", "a")
    code, out, err = command("queues", "steps.", "--json")
    assert (code, err) == (0, "")
    (queue,) = json.loads(out)
    assert queue["name"] == "steps.fifo"
    assert (queue["kind"], queue["visible"], queue["max_receives"]) == ("fifo", 1, 1)
    assert 0 <= queue["oldest_seconds"] < 60
    assert command("queues", "none") == (0, "there is no queue that begins with none\n", "")


def test_a_queue_without_permission_is_shown_and_told(command: Command, account: Account) -> None:
    account.faults.refuse(GetQueueAttributes, "AccessDenied", "not for you", times=1)
    code, out, err = command("queues", "orders")
    assert code == 1
    assert out.count("?") == 3
    assert "AccessDenied: not for you" in err


WIDE = """\
QUEUE                         VISIBLE  IN FLIGHT  DELAYED  OLDEST  DEAD LETTERS
a-queue-with-a-long-name            ?          ?        ?       -
orders-of-all-customers.fifo    1,234          5        0   2 min  -> orders-dead-letters.fifo x5
"""
NARROW = """\
                                                  DEAD
QUEUE        VISIBLE  IN FLIGHT  DELAYED  OLDEST  LETTERS
a-queue-wit        ?          ?        ?       -
h-a-long-na
me
orders-of-a    1,234          5        0   2 min  ->
ll-customer                                       orders-dead
s.fifo                                            -letters.fi
                                                  fo x5
"""


@pytest.mark.parametrize(("width", "shown"), [(100, WIDE), (61, NARROW)])
def test_the_table_on_a_wide_and_on_a_narrow_terminal(width: int, shown: str) -> None:
    found = [
        QueueOverview("a-queue-with-a-long-name", "u", "standard", problem="AccessDenied"),
        QueueOverview(
            "orders-of-all-customers.fifo",
            "u",
            "fifo",
            visible=1_234,
            in_flight=5,
            delayed=0,
            oldest_seconds=130,
            dead_letter="orders-dead-letters.fifo",
            max_receives=5,
        ),
    ]
    console = Console(width=width, file=io.StringIO())
    console.print(queue_table(found))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "\n".join(line.rstrip() for line in lines) + "\n" == shown


# --- peek and receive ---------------------------------------------------------------------------


def test_peek_at_a_served_account_costs_nothing(
    command: Command, account: Account, fill: Fill
) -> None:
    fill("orders", '{"id": 1}', "\x1b[31mred\u202e\x7f".replace("\x1b", "\u009b"), tenant="acme")
    code, out, err = command("peek", "orders")
    assert (code, err) == (0, "")
    assert '{"id": 1}' in out
    assert "tenant (String): acme" in out
    assert "old, received 0 times" in out
    assert "\\x9b[31mred\\u202e\\x7f" in out
    assert not any(isinstance(entry.operation, ReceiveMessage) for entry in account.ledger)
    code, out, _ = command("peek", "orders", "-n", "1", "--json")
    assert [each["body"] for each in json.loads(out)] == ['{"id": 1}']
    assert command("peek", "orders-dead") == (0, "there is no visible message\n", "")


def test_peek_where_it_costs_a_receive_says_so(
    command: Command, account: Account, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_here(*_: object) -> None:
        return None

    monkeypatch.setattr("pumphouse.cli.queue_tools.look_at_served", not_here)
    fill("orders", "a")
    fill("orders-dead", "b")
    code, out, err = command("peek", "orders")
    assert (code, out) == (1, "")
    assert "moves one to orders-dead after 3" in err
    assert "--force looks all the same" in err
    code, out, err = command("peek", "orders", "--force")
    assert (code, "a" in out) == (0, True)
    assert err == "each of these was received for it: its receive count is one higher\n"
    code, out, err = command("peek", "orders-dead", "--json")
    assert json.loads(out)[0]["receive_count"] == 1
    assert account.queue("orders-dead").visible == 1
    account.faults.throttle(ChangeMessageVisibilityBatch, times=None)
    code, _, err = command("peek", "orders-dead")
    assert code == 1
    assert "1 could not be given back" in err


def test_receive_prints_lines_and_deletes_when_told(
    command: Command, account: Account, fill: Fill
) -> None:
    fill("orders", "a", "b", "c")
    code, out, err = command("receive", "orders", "-n", "1", "--wait", "0")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err == "1 message is hidden until the visibility timeout is over (no --delete)\n"
    code, out, err = command("receive", "orders", "--delete", "--wait", "0")
    assert (code, err) == (0, "")
    assert len([json.loads(line)["body"] for line in out.splitlines()]) == 2
    queue = account.queue("orders")
    assert (queue.visible, queue.in_flight) == (0, 1)
    fill("orders", *(str(number) for number in range(12)))
    code, out, err = command("receive", "orders", "--delete", "--wait", "0")
    assert (code, len(out.splitlines())) == (0, 10)
    assert err == "stopped after 10; there may be more (--number)\n"
    assert len(command("receive", "orders", "--delete", "--wait", "0")[1].splitlines()) == 2
    account.faults.fail_entries(DeleteMessageBatch, lambda entry: True, "AccessDenied")
    fill("orders", "d")
    code, out, err = command("receive", "orders", "--delete", "--wait", "0")
    assert (code, json.loads(out)["body"]) == (1, "d")
    assert "was not deleted: AccessDenied" in err


def test_a_broken_pipe_loses_nothing(
    served: Served, account: Account, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("orders", *(str(number) for number in range(20)))

    class Pipe(io.StringIO):
        lines = 0

        def flush(self) -> None:
            self.lines += 1
            if self.lines > 3:
                raise BrokenPipeError

    pipe = Pipe()
    monkeypatch.setattr("sys.stdout", pipe)
    monkeypatch.setattr("pumphouse.cli._close_output", lambda: None)
    arguments = ["receive", "orders", "-n", "20", "--delete", "--endpoint-url", served.url]
    assert cli.run_command(arguments) == 141
    queue = account.queue("orders")
    assert (queue.visible, queue.in_flight) == (17, 0)


def test_without_standard_output_nothing_is_received(
    command: Command, account: Account, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("orders", "a")
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", None)  # as `>&-` makes it
        code, _, err = command("receive", "orders", "--delete")
    assert (code, "standard output is closed" in err) == (2, True)
    assert account.queue("orders").visible == 1


# --- redrive ------------------------------------------------------------------------------------


def test_redrive_with_sqs_s_task(
    command: Command, served: Served, account: Account, fill: Fill
) -> None:
    fill("steps.fifo", "a", "b")
    served.run(kill_all(account, "steps.fifo"))
    dead = "steps-dead.fifo"
    code, out, err = command("redrive", dead, "--dry-run")
    assert (code, err) == (0, "")
    assert out == "2 would be moved by SQS's message move task: 2 to steps.fifo\n"
    assert account.queue(dead).visible == 2
    code, out, err = command("redrive", dead)
    assert (code, err) == (0, "")
    assert out == "2 moved by SQS's message move task: 2 to steps.fifo\n"
    assert account.queue("steps.fifo").visible == 2


def test_redrive_by_a_filter(command: Command, account: Account, fill: Fill) -> None:
    for reason in ("TimeoutError: x", "ValueError: y"):
        fill("orders-dead", f'{{"id": "{reason[:1]}"}}', **{"pumphouse.reason": reason})
    arguments = ("redrive", "orders-dead", "--filter", "reason~Timeout", "-f", "body.id=T")
    code, out, err = command(*arguments, "--dry-run", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert (result["moved"], result["left_out"], result["dry_run"]) == (1, 1, True)
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    assert out == "1 moved: 1 to orders\n1 left, as they are not meant by the filter\n"
    assert (account.queue("orders").visible, account.queue("orders-dead").visible) == (1, 1)
    code, out, err = command("redrive", "orders-dead", "--filter", "nothing")
    assert code == 2
    assert "is no condition" in err


def test_what_a_redrive_could_not_see_is_told(
    command: Command, account: Account, fill: Fill
) -> None:
    fill("steps-dead.fifo", *(f"{number:02}" for number in range(15)))
    code, out, err = command("redrive", "steps-dead.fifo", "--filter", "body=14")
    assert (code, out) == (1, "0 moved\n10 left, as they are not meant by the filter\n")
    assert "about 5 were not seen: they are behind ten messages of their group that stay" in err
    code, out, err = command("redrive", "steps-dead.fifo", "--filter", "body!=00")
    assert (code, out, err) == (
        0,
        "14 moved: 14 to steps.fifo\n1 left, as they are not meant by the filter\n",
        "",
    )


def test_a_destination_that_takes_nothing_ends_a_redrive(
    command: Command, account: Account, fill: Fill
) -> None:
    fill("orders-dead", *(str(number) for number in range(30)))
    account.faults.refuse("SendMessageBatch", "AccessDenied", "not yours", times=None)
    code, out, err = command("redrive", "orders-dead", "--no-task")
    assert (code, out) == (1, "0 moved\n")
    assert err == (
        "AccessDenied: orders takes no messages (not yours): about 30 are left in orders-dead; "
        "run it again to go on\n"
    )


def test_a_task_that_is_not_permitted_is_told(
    command: Command, served: Served, account: Account, fill: Fill
) -> None:
    fill("orders-dead", "a")
    account.faults.refuse("StartMessageMoveTask", "AccessDenied", "no")
    code, out, err = command("redrive", "orders-dead")
    assert (code, out) == (0, "1 moved: 1 to orders\n")
    assert err == "moved one by one, without SQS's message move task: AccessDenied: no\n"


def test_a_redrive_that_does_not_know_where_to_names_the_choices(
    command: Command, served: Served, account: Account, fill: Fill
) -> None:
    served.run(queues(account, "refunds", dead="orders-dead"))
    fill("orders-dead", "a")
    code, out, err = command("redrive", "orders-dead")
    assert (code, out) == (1, "0 moved\n")
    assert "1 not moved, and still in the queue" in err
    assert "--to names one of orders, refunds" in err
    assert command("redrive", "orders-dead", "--to", "refunds", "--no-task")[:2] == (
        0,
        "1 moved: 1 to refunds\n",
    )


def test_ctrl_c_ends_a_redrive_in_order_and_the_next_goes_on(
    served: Served, account: Account, fill: Fill
) -> None:
    fill("orders-dead", *(str(number) for number in range(60)))
    arguments = [sys.executable, "-m", "pumphouse", "redrive", "orders-dead", "--no-task"]
    arguments += ["--endpoint-url", served.url]
    process = subprocess.Popen(
        [*arguments, "--rate", "20"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 20
        while account.queue("orders").visible < 5 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    moved = account.queue("orders").visible
    assert 5 <= moved < 60
    assert out == f"{moved} moved: {moved} to orders\n"
    assert "run it again to go on" in err
    queue = account.queue("orders-dead")
    assert (queue.visible, queue.in_flight) == (60 - moved, 0)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert account.queue("orders").visible == 60


def test_a_task_that_ctrl_c_twice_leaves_behind_is_told(
    served: Served, account: Account, fill: Fill
) -> None:
    fill("orders-dead", *(str(number) for number in range(60)))
    account.faults.throttle(CancelMessageMoveTask, times=None)
    arguments = [sys.executable, "-m", "pumphouse", "redrive", "orders-dead", "--rate", "2"]
    process = subprocess.Popen(
        [*arguments, "--endpoint-url", served.url], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        until = time.monotonic() + 20
        while not account.queue("orders").visible and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        told = process.stderr.readline()  # the first is taken up
        time.sleep(2 * AT_ONCE_SECONDS)  # and the second is none that comes with it
        process.send_signal(signal.SIGINT)
        told += process.stderr.read()
        process.wait(timeout=30)
    finally:
        process.kill()
        process.stderr.close()
    assert process.returncode == 130, told
    assert "message move task may go on" in told
    assert account.queue("orders").visible < 60


# --- purge --------------------------------------------------------------------------------------


def test_purge_needs_a_terminal_or_yes(
    command: Command, account: Account, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("orders", "a")
    monkeypatch.setattr("sys.stdin", io.StringIO("orders\n"))
    code, _, err = command("purge", "orders")
    assert code == 2
    assert "--yes does without" in err
    assert account.queue("orders").visible == 1
    code, out, err = command("purge", "orders", "--yes")
    assert (code, err) == (0, "")
    assert "about 1 visible messages, 0 in flight and 0 delayed" in out
    assert "may survive it" in out
    assert account.queue("orders").visible == 0
    code, out, err = command("purge", "orders", "--yes")
    assert (code, out) == (1, "")
    assert "less than 60 s ago" in err
    assert command("purge", "none", "--yes")[0] == 1


def test_purge_asks_for_the_name_on_a_terminal(
    served: Served, account: Account, fill: Fill
) -> None:
    fill("orders", "a")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pumphouse", "purge", "orders", "--endpoint-url", served.url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while b"(orders): " not in shown:
            assert select.select([ours], [], [], 30)[0], shown
            shown += os.read(ours, 4096)
        assert account.queue("orders").visible == 1
        os.write(ours, b"orders\n")
        code = process.wait(30)
    finally:
        process.kill()
        os.close(ours)
    assert code == 0
    assert b"holds about 1 visible messages" in shown
    assert account.queue("orders").visible == 0
    assert len([each for each in account.ledger if isinstance(each.operation, PurgeQueue)]) == 1


@pytest.mark.parametrize("answer", ["y", ""])
def test_purge_takes_no_other_answer(
    command: Command, account: Account, fill: Fill, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    fill("orders", "a")
    ours, theirs = pty.openpty()
    with open(ours, "w") as typed, open(theirs) as stdin:
        typed.write(f"{answer}\n")
        typed.flush()
        monkeypatch.setattr("sys.stdin", stdin)
        code, _, err = command("purge", "orders")
    assert code == 1
    assert "nothing was deleted" in err
    assert account.queue("orders").visible == 1
    assert not [each for each in account.ledger if isinstance(each.operation, PurgeQueue)]


def test_receive_shows_messages_on_a_terminal_and_json_where_it_is_asked_for(
    command: Command, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill("orders", "a\x9b[31mb", tenant="acme")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    again = ("receive", "orders", "--wait", "0", "--visibility-timeout", "0", "-n", "1")
    code, out, _ = command(*again)
    assert code == 0
    assert out.splitlines()[0].endswith("received once")
    assert out.splitlines()[1:] == ["  tenant (String): acme", r"  a\x9b[31mb"]
    code, out, _ = command(*again, "--json")
    assert (code, json.loads(out)["body"]) == (0, "a\x9b[31mb")
    code, out, _ = command(*again, "--delete")
    assert (code, json.loads(out)["body"]) == (0, "a\x9b[31mb")


# --- output -------------------------------------------------------------------------------------


def test_what_a_terminal_would_act_on_is_escaped() -> None:
    assert safe("a\x1b]0;x\x07\nb\u202e\ud800é") == "a\\x1b]0;x\\x07\\nb\\u202e\\ud800é"
    assert safe("x" * 50, 10) == "xxxxxxxxxx… (50 characters)"


@pytest.mark.parametrize("arguments", [("receive",), ("peek", "--json")])
def test_json_has_nothing_that_a_terminal_would_act_on(
    command: Command, fill: Fill, arguments: tuple[str, ...]
) -> None:
    body = '\x9b31m red \u202e \u2028 \x85 \x7f \U000e0041 \N{PARTY POPPER} é \\ "'
    fill("orders", body, tenant=body)
    code, out, _ = command(arguments[0], "orders", *arguments[1:])
    assert code == 0
    assert out.split("\n") == [*out.splitlines(), ""]
    assert all(each.isprintable() for each in out.replace("\n", ""))
    found = json.loads(out)
    (found,) = found if isinstance(found, list) else [found]
    assert (found["body"], found["attributes"]["tenant"]["value"]) == (body, body)


def test_an_error_has_nothing_that_a_terminal_would_act_on(
    command: Command, account: Account
) -> None:
    account.faults.refuse(GetQueueAttributes, "Strange", "\x1b[31m\x9bred", times=None)
    code, _, err = command("redrive", "orders-dead")
    assert code == 1
    assert r"\x1b[31m\x9bred" in err


def test_the_help_stays_quick() -> None:
    """The commands are registered without what they need."""
    code = (
        "import sys, pumphouse.cli\n"
        "loaded = [m for m in sys.modules if m.startswith(('pumphouse.http', 'pumphouse.sink', "
        "'pumphouse.queue_tools', 'msgspec', 'asyncio'))]\n"
        "print(loaded)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stdout + done.stderr
