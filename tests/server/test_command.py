"""`pumphouse serve` as a process: what it tells, what it refuses, and how it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pumphouse import cli
from pumphouse.cli.serve import Options, run
from support.query_model import client

SCRIPT = str(Path(sys.executable).parent / "pumphouse")
LINE = re.compile(r"export AWS_ENDPOINT_URL_SQS=(http://\S+)")


@contextmanager
def _serving(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on a free port, and its endpoint as the banner tells it."""
    process = subprocess.Popen(
        [SCRIPT, "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := LINE.search(line):
                break
        else:
            raise AssertionError(process.communicate()[1])
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _client(url: str, **options: Any) -> Iterator[Any]:
    made = client("json", endpoint_url=url, **options)
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_parked_polls_and_ends_it_with_0(number: signal.Signals) -> None:
    with _serving("--queue", "parked") as (process, url), _client(url) as sqs:
        queue = sqs.get_queue_url(QueueName="parked")["QueueUrl"]
        answers: list[Any] = []
        polls = [
            threading.Thread(
                target=lambda: answers.append(
                    sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)
                )
            )
            for _ in range(3)
        ]
        for poll in polls:
            poll.start()
        _until_connected(url, 3)
        process.send_signal(number)
        assert process.wait(15) == 0
        for poll in polls:
            poll.join(15)
        assert ["Messages" in answer for answer in answers] == [False] * 3
        assert process.stdout is not None
        assert process.stdout.read().endswith("pumphouse: stopped\n")
        assert process.stderr is not None
        assert process.stderr.read() == ""


def _until_connected(url: str, polls: int) -> None:
    """Return once that many clients are connected, and what they sent has surely been read."""
    table, port = Path("/proc/net/tcp"), f":{int(url.rpartition(':')[2]):04X}"
    if table.exists():
        for _ in range(500):
            rows = [line.split() for line in table.read_text().splitlines()[1:]]
            if sum(row[3] == "01" and row[2].endswith(port) for row in rows) >= polls:
                break
            time.sleep(0.01)
    time.sleep(0.3)


def test_queues_are_made_with_their_dead_letter_queues() -> None:
    arguments = ("--queue", "orders.fifo=dead.fifo:2", "-q", "plain")
    with _serving(*arguments) as (_, url), _client(url) as sqs:
        names = {each.rpartition("/")[2] for each in sqs.list_queues()["QueueUrls"]}
        assert names == {"orders.fifo", "dead.fifo", "plain"}
        queue = sqs.get_queue_url(QueueName="orders.fifo")["QueueUrl"]
        policy = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["RedrivePolicy"])
        assert '"maxReceiveCount":2' in policy["Attributes"]["RedrivePolicy"]


def test_the_banner_can_be_pasted() -> None:
    with _serving("--queue", "plain", "--region", "eu-west-1") as (process, url):
        process.terminate()
        assert process.wait(15) == 0
        assert process.stdout is not None
        rest = process.stdout.read()
        assert "export AWS_REGION=eu-west-1 AWS_DEFAULT_REGION=eu-west-1" in rest
        assert f"{url}/000000000000/plain" in rest


def test_keys_come_from_the_environment_and_are_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "a secret that nobody sees"
    keys = {"PUMPHOUSE_ACCESS_KEY_ID": "AKIDSERVE", "PUMPHOUSE_SECRET_ACCESS_KEY": secret}
    with _serving("--require-auth", "-q", "plain", **keys) as (process, url):
        with _client(url, aws_access_key_id="AKIDSERVE", aws_secret_access_key=secret) as sqs:
            assert len(sqs.list_queues()["QueueUrls"]) == 1
        with _client(url) as sqs, pytest.raises(sqs.exceptions.ClientError) as caught:
            sqs.list_queues()
        assert caught.value.response["Error"]["Code"] == "InvalidClientTokenId"
        process.terminate()
        assert process.wait(15) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert secret not in process.stdout.read() + process.stderr.read()
    assert secret not in repr(Options(secret_access_key=secret))
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    assert cli.run_command(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--secret-access-key" in shown
    assert secret not in shown


# --- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    def command(*arguments: str) -> tuple[int, str]:
        code = cli.run_command(["serve", *arguments])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return code, err

    return command


def test_a_port_that_is_taken(command: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, words = command("--port", str(port))
    assert code == 1
    assert f"127.0.0.1:{port} can't be listened on: Address already in use" in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "70000 is not between 0 and 65535"),
        (["--host", "no such host"], "can't be listened on"),
        (["--queue", "a b"], "'a b' is no queue name"),
        (["--queue", "a=b"], "NAME=DEADLETTERS:3"),
        (["--queue", "a=b:0"], "--queue a"),
        (["--queue", "a.fifo=b:3"], "--queue a.fifo"),
        (["--region", "mars"], "'mars' is no region"),
        (["--account-id", "12"], "'12' is no account id"),
        (["--require-auth"], "PUMPHOUSE_SECRET_ACCESS_KEY"),
    ],
)
def test_wrong_options_are_named(command: Any, arguments: list[str], words: str) -> None:
    code, said = command(*arguments)
    assert code == 2
    assert words in said


def test_a_host_that_others_reach_is_warned_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pumphouse.server import runner

    monkeypatch.setattr(runner.Server, "run", _start_only)
    monkeypatch.setattr(runner, "bind", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    assert run(Options(host="0.0.0.0", port=0)) == 0
    out, err = capsys.readouterr()
    assert "warning: 0.0.0.0 is reached from other machines" in err
    assert "export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:" in out
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1"):
        assert run(Options(host=host, port=0)) == 0
        assert capsys.readouterr().err == ""


def _start_only(server: Any, sockets: list[socket.socket]) -> None:
    sockets[0].close()
    server._on_start()


# --- the AWS CLI --------------------------------------------------------------------------------


def test_the_aws_cli_sends_receives_and_deletes(tmp_path: Path) -> None:
    import json

    aws = shutil.which("aws", path=str(Path(sys.executable).parent)) or shutil.which("aws")
    if aws is None:
        pytest.skip("the AWS CLI is not installed")

    def call(url: str, *arguments: str) -> Any:
        done = subprocess.run(
            [aws, "--endpoint-url", url, "sqs", *arguments, "--output", "json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "LC_ALL": "C.UTF-8",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any",
                "AWS_REGION": "us-east-1",
                "AWS_DEFAULT_REGION": "us-east-1",
            },
        )
        return json.loads(done.stdout or "{}")

    with _serving("--queue", "cli") as (_, url):
        queue = f"{url}/000000000000/cli"
        sent = call(url, "send-message", "--queue-url", queue, "--message-body", "from the CLI é")
        (message,) = call(url, "receive-message", "--queue-url", queue)["Messages"]
        assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "from the CLI é")
        handle = message["ReceiptHandle"]
        call(url, "delete-message", "--queue-url", queue, "--receipt-handle", handle)
        form = f"{queue}?Action=GetQueueAttributes&AttributeName.1=All"
        with urllib.request.urlopen(form, timeout=20) as counts:
            assert b"NotVisible</Name><Value>0<" in counts.read()
