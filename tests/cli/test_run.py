"""`pumphouse run`: what it refuses, what it tells, how it ends, and that workers, reloads and
signals lose nothing. It is a process of its own where signals and workers are; `here` runs it in
this one, which is quicker."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from fcntl import ioctl
from pathlib import Path
from typing import Any, TextIO

import pytest

from pumphouse import cli
from pumphouse.account import Account
from pumphouse.app import App
from pumphouse.cli.exit_codes import CONFIG, CRASH_LOOP, ENDED, FAILED, TRY_LATER, code_of
from pumphouse.cli.run import process
from pumphouse.cli.run.options import Options
from pumphouse.errors import (
    NetworkError,
    NoCredentialsError,
    OutcomeUnknownError,
    PumphouseError,
    QueueDoesNotExist,
    RefusedError,
    ThrottledError,
    TransientError,
    UsageError,
)
from pumphouse.health import HealthServer, Monitor
from pumphouse.protocol.operations import CreateQueue, DeleteQueue, SendMessage
from support.logs import kept_logging
from support.serving import Served, serving

SERVICE = """
import asyncio, os, sys, time
from pumphouse import App, Queue

app = App("shop", drain_seconds=30)

@app.subscriber(Queue("work", wait_time_seconds=1{more}), concurrency=4)
async def handle(body: str) -> None:
    if body == "die":
        os._exit(9)
    if body == "raise":
        raise ValueError("on purpose")
    if body == "block":
        time.sleep(3)
    while body == "forever":
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            print("cancelled", flush=True)
    if body == "sleep":
        print("asleep on", type(asyncio.get_running_loop()).__module__.split(".")[0], flush=True)
        await asyncio.sleep(30)
    print(f"{word} {{body}} {{os.getpid()}}\\n", end="", flush=True)
"""


def write_service(folder: Path, word: str = "done", more: str = "") -> Path:
    path = folder / "service.py"
    path.write_text(SERVICE.format(word=word, more=more))
    return path


ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Run:
    """A process of the command, and the lines that it prints."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pumphouse", "run", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **ENVIRONMENT, **environment},
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, pattern: str, times: int = 1) -> list[str]:
        """Wait for so many lines with this in them; returns them."""
        with self._news:
            found = self._news.wait_for(lambda: len(self._matching(pattern)) >= times, timeout=60)
        assert found, f"no {pattern!r} in\n{self.text}"
        return self._matching(pattern)

    def _matching(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

    def close(self) -> None:
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self, *numbers: signal.Signals) -> int:
        """Send these signals, and wait for the end; the exit code."""
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join(10)
        return code


@contextmanager
def running(folder: Path, *arguments: str, **environment: str) -> Iterator[Run]:
    run = Run(folder, "service:app", *arguments, **environment)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait(10)
        run.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(Account()) as served:
        yield served


@pytest.fixture
def work(served: Served) -> str:
    """The URL of a new queue `work` of the served account."""
    account = served.backend
    assert isinstance(account, Account)
    for queue in account.queues:
        served.run(account.execute(DeleteQueue(queue.url)))
    account.sixty_second_rules = False
    return served.run(account.execute(CreateQueue("work"))).queue_url


Here = Callable[..., tuple[int, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    """Run the command in this process, in a terminal of some width or in none: the exit code, and
    all that it wrote."""
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def here(target: str, *arguments: str, width: int = 0, **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with ExitStack() as stack:
            written, file = stack.enter_context(terminal(width) if width else no_terminal())
            stack.enter_context(redirect_stdout(file))
            stack.enter_context(redirect_stderr(file))
            code = cli.run_command(["run", target, *arguments])
        return code, written()

    with kept_logging():
        yield here
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@contextmanager
def no_terminal() -> Iterator[tuple[Callable[[], str], TextIO]]:
    file = io.StringIO()
    yield file.getvalue, file


@contextmanager
def terminal(width: int) -> Iterator[tuple[Callable[[], str], TextIO]]:
    """A terminal of that width, where the size is asked for: a function that gives what was
    written to it once it is closed, and the file to write to."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    pieces: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 65_536):
                pieces.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    stdin = os.dup(0)
    os.dup2(theirs, 0)  # it is the first that is asked for its size
    try:
        with open(theirs, "w", encoding="utf-8") as file:
            yield lambda: b"".join(pieces).decode(), file
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        reader.join(20)
        os.close(ours)


def send(served: Served, url: str, *bodies: str) -> None:
    for body in bodies:
        served.run(served.backend.execute(SendMessage(url, body)))


def get(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def health_url(run: Run) -> str:
    return run.until("health is at ")[0].split("health is at ")[1].split("/live")[0]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--local", "--workers", "2"], "would give each worker an account of its own"),
        (["--workers", "0"], "--workers is 1 to 256, not 0"),
        (["--send", "work=x"], "--send is for the account of --local"),
        (["--until-empty"], "--until-empty is for the account of --local"),
        (["--serve-port", "1"], "--serve-port is for the account of --local"),
        (["--local", "--send", "work"], "--send is QUEUE=FILE"),
        (["--local", "--send", "work=no/such/file"], "cannot read no/such/file"),
        (["--local", "--group-by", "x"], "none is given"),
        (["--local", "--reload", "--until-empty"], "--until-empty ends nothing"),
        (["--local", "--region", "x"], "--local runs on an account in memory"),
        (["--stop-seconds", "3"], "--stop-seconds is for the processes"),
        (["--waiting-every", "0.5"], "--waiting-every is 1 to 3,600 seconds, or 0"),
        (["--health-host", "::1"], "--health-host is where --health-port listens"),
        (["--log-level", "loud"], "--log-level is debug, info, warning or error"),
        (["--log-format", "xml"], "--log-format is text or json"),
        (["--loop", "fast"], "an event loop is auto, asyncio or uvloop, not 'fast'"),
    ],
)
def test_options_that_do_not_go_together_are_one_line_and_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert cli.run_command(["run", "service:app", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("", "it is empty"),
        (".two_apps:app", "an app is named as module:name"),
        ("pkg/two_apps.py:app", "by its module, not by a file: pkg.two_apps:app, not pkg/"),
        ("./two_apps.py", "by its module, not by a file: two_apps, not ./two_apps.py"),
        ("two_apps.py:one", "by its module, not by a file: two_apps:one, not two_apps.py:one"),
        ("no_such:app", "there is no module 'no_such' here"),
        ("two_apps", "two_apps:app is nothing, and no pumphouse App; there is two_apps:one, two_a"),
        ("two_apps:make", "two_apps:make is a function, and no pumphouse App; there is two_apps:o"),
        ("two_apps:two", "two_apps:two has no subscriber"),
    ],
)
def test_what_names_no_app_is_one_line_with_what_was_meant(
    tmp_path: Path, here: Here, target: str, says: str
) -> None:
    (tmp_path / "two_apps.py").write_text(
        "from pumphouse import App\none, two = App('one'), App('two')\ndef make(): return one\n"
    )
    code, told = here(target, "--local")
    assert code == 2
    assert says in told
    assert told.count("\n") == 1


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (QueueDoesNotExist("x"), CONFIG),
        (NoCredentialsError("x"), CONFIG),
        (RefusedError("x"), CONFIG),
        (ThrottledError("x"), TRY_LATER),
        (TransientError("x"), TRY_LATER),
        (NetworkError("x"), TRY_LATER),
        (OutcomeUnknownError("x"), TRY_LATER),
        (PumphouseError("x"), FAILED),
    ],
)
def test_the_exit_code_says_whether_a_restart_may_help(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_a_queue_that_is_not_there_is_78_and_one_line(
    tmp_path: Path, served: Served, here: Here
) -> None:
    write_service(tmp_path)
    for queue in served.backend.queues:  # type: ignore[attr-defined]
        served.run(served.backend.execute(DeleteQueue(queue.url)))
    code, told = here("service:app", "--endpoint-url", served.url)
    assert code == CONFIG
    with running(tmp_path, "--endpoint-url", served.url, "--workers", "2") as run:
        assert run.end() == CONFIG, run.text
    for text in (told, run.text):
        assert text.count("the queue 'work' does not exist; create it") == 1
        assert "Traceback" not in text


def test_a_module_that_raises_is_1_with_its_traceback(tmp_path: Path, here: Here) -> None:
    (tmp_path / "service.py").write_text("1 / 0\n")
    code, told = here("service:app", "--local")
    assert code == FAILED
    assert "ZeroDivisionError" in told


def test_a_queue_that_is_deleted_ends_it_with_69(tmp_path: Path, served: Served, work: str) -> None:
    write_service(tmp_path, more=", on_missing='end'")
    with running(tmp_path, "--endpoint-url", served.url) as run:
        send(served, work, "1")
        run.until("done 1")
        served.run(served.backend.execute(DeleteQueue(work)))
        assert run.end() == ENDED
        assert "every subscription has ended" in run.text


def test_a_second_signal_is_its_number_and_gives_everything_back(
    tmp_path: Path, served: Served, work: str
) -> None:
    write_service(tmp_path)
    send(served, work, "sleep")
    for more in (["--loop", "asyncio"], ["--loop", "uvloop", "--workers", "1"]):
        with running(tmp_path, "--endpoint-url", served.url, *more) as run:
            assert run.until("asleep")[0].endswith(more[1])
            run.process.send_signal(signal.SIGTERM)
            run.until("draining")
            assert run.end(signal.SIGINT) == 128 + signal.SIGINT
        queue = served.backend.queue("work")  # type: ignore[attr-defined]
        assert (queue.visible, queue.in_flight) == (1, 0)


def test_a_task_that_is_not_to_be_cancelled_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(process, "_exit_now", codes.append)
    monkeypatch.setattr(process, "LEFT_SECONDS", 0.01)

    async def stubborn() -> None:
        while not codes:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    async def service(*left: Coroutine[Any, Any, None]) -> int:
        tasks.extend(map(asyncio.create_task, left))
        await asyncio.sleep(0)
        return 3

    tasks: list[asyncio.Task[None]] = []
    assert asyncio.run(process.told(service(asyncio.sleep(10)))) == 3
    assert (codes, tasks[0].cancelled()) == ([], True)
    asyncio.run(process.told(service(stubborn())))
    assert codes == [3]
    assert "tasks still run that were cancelled, and are cut off: 1" in caplog.text


@pytest.mark.soak  # it waits for seven seconds; the one above does not
def test_a_handler_that_is_not_to_be_cancelled_ends_with_the_process(
    tmp_path: Path, served: Served, work: str
) -> None:
    write_service(tmp_path)
    send(served, work, "forever", "1")
    arguments = ("--endpoint-url", served.url, "--drain-seconds", "0")
    with running(tmp_path, *arguments) as run:
        run.until("done 1")
        assert run.end(signal.SIGTERM) == 0, run.text
        assert len(run.until("cancelled")) >= 2
        assert "tasks still run that were cancelled, and are cut off: 1" in run.text
    queue = served.backend.queue("work")  # type: ignore[attr-defined]
    assert (queue.visible, queue.in_flight) == (1, 0)


# --- the account of --local -----------------------------------------------------------------------


def test_local_is_fed_from_a_file_and_ends_when_it_is_empty(tmp_path: Path, here: Here) -> None:
    write_service(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    arguments = ("--local", "--send", "work=events.jsonl", "--until-empty")
    code, told = here("service:app", *arguments)
    assert code == 0, told
    assert told.count("done") == 2
    assert "shop: 2 handled, 0 retried, 0 dead-lettered in 0:00:0" in told


def test_local_says_where_a_file_can_not_go(tmp_path: Path, here: Here) -> None:
    write_service(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n')
    for more in ([], ["--reload"]):
        code, told = here("service:app", "--local", "--send", "other=events.jsonl", *more)
        assert code == 2
        assert "the app names no queue 'other'; it names work" in told
        assert "Traceback" not in told


def test_local_can_be_served_to_other_programs(tmp_path: Path) -> None:
    write_service(tmp_path)
    with running(tmp_path, "--local", "--serve-port", "0") as run:
        url = run.until("SQS and SNS are served at ")[0].split()[-1]
        assert url.startswith("http://127.0.0.1:")
        body = f"Action=SendMessage&Version=2012-11-05&MessageBody=hello&QueueUrl={url}/0/work"
        with urllib.request.urlopen(f"{url}/000000000000/work", body.encode(), 10) as answer:
            assert answer.status == 200
        run.until("done hello")
        assert run.end(signal.SIGTERM) == 0


# --- what is told ---------------------------------------------------------------------------------


def test_json_lines_have_a_time_a_level_and_the_worker(
    tmp_path: Path, served: Served, work: str
) -> None:
    write_service(tmp_path)
    send(served, work, "raise")
    arguments = ("--endpoint-url", served.url, "--log-format", "json", "--workers", "1")
    with running(tmp_path, *arguments) as run:
        run.until("on purpose")
        assert run.end(signal.SIGTERM) == 0
    records = [json.loads(line) for line in run.lines]
    failed = next(each for each in records if "on purpose" in each["message"])
    assert failed["level"] == "WARNING"
    assert failed["worker"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", failed["time"])
    assert "ValueError" in failed["error"]
    assert "shop: 0 handled, 1 retried" in records[-1]["message"]


def test_a_terminal_gets_a_view_with_the_log_above_it(tmp_path: Path, here: Here) -> None:
    write_service(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    arguments = ("--local", "--send", "work=events.jsonl", "--until-empty")
    # a shell's export does not count
    code, written = here("service:app", *arguments, width=100, TERM="xterm-256color", COLUMNS="80")
    assert code == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    frame = shown[shown.rindex("shop · stopped") :].splitlines()
    titles = "queue health waiting in flight handled retried dead rate/s req/msg"
    assert " ".join(frame[1].split()) == titles
    assert frame[2].split()[:3] == ["●", "work", "healthy"]
    assert frame[-1].startswith("shop: 2 handled, 0 retried, 0 dead-lettered in ")
    assert shown.index("2 events sent from events.jsonl") < shown.index("shop · ")
    assert 'done {"n": 1}' in shown
    assert "\x1b[?25h" in written[written.rindex("\x1b[?25l") :], "the cursor stays hidden"


@pytest.mark.parametrize(("arguments", "environment"), [((), {"TERM": "dumb"}), (("--plain",), {})])
def test_a_dumb_terminal_and_plain_get_lines(
    tmp_path: Path, here: Here, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    write_service(tmp_path)
    options = {"TERM": "xterm-256color", **environment}
    code, written = here("service:app", "--local", "--until-empty", *arguments, width=80, **options)
    assert code == 0
    assert "\x1b[" not in written
    assert "INFO pumphouse: shop: 0 handled" in written


def test_no_color_leaves_the_colours_out(tmp_path: Path, here: Here) -> None:
    write_service(tmp_path)
    options = {"TERM": "xterm-256color", "NO_COLOR": "1"}
    _, written = here("service:app", "--local", "--until-empty", width=80, **options)
    assert "shop · " in written
    assert "\x1b[32m" not in written


# --- health ---------------------------------------------------------------------------------------


def test_health_is_answered_while_a_handler_blocks_the_loop(
    tmp_path: Path, served: Served, work: str
) -> None:
    write_service(tmp_path)
    arguments = ("--endpoint-url", served.url, "--health-port", "0")
    with running(tmp_path, *arguments) as run:
        url = health_url(run)
        until(lambda: get(f"{url}/ready")[0] == 200, "it does not become ready")
        send(served, work, "block")
        until(lambda: get(f"{url}/health")[1]["blocked_seconds"] > 1, "nothing is blocked")
        assert get(f"{url}/live")[0] == 200
        until(lambda: get(f"{url}/health")[1]["queues"]["work"]["handled"] == 1, "not handled")
        send(served, work, "sleep")
        run.until("asleep")
        run.process.send_signal(signal.SIGTERM)
        until(lambda: get(f"{url}/ready") == (503, {"ready": False, "reason": "draining"}), "no")
        assert run.end(signal.SIGINT) == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("host", "warned"),
    [
        *(("0.0.0.0", True), ("::", True), ("10.1.2.3", True), ("some-host", True)),
        *(("127.0.0.1", False), ("127.0.0.2", False), ("::1", False), ("localhost", False)),
    ],
)
def test_a_health_host_that_others_reach_is_warned_of(
    host: str, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Here(HealthServer):
        """Listens on this machine whatever it is told."""

        def __init__(self, source: Any, *, port: int, host: str) -> None:
            super().__init__(source, port=port)
            self.host = host

    monkeypatch.setattr(process, "HealthServer", Here)
    with process.served_health(
        Options("service:app", health_port=0, health_host=host), Monitor(App())
    ):
        assert ("who reaches it reads the names of queues" in caplog.text) == warned


# --- workers --------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_share_the_work_restart_after_a_crash_and_drain_without_their_parent(
    tmp_path: Path, served: Served, work: str
) -> None:
    write_service(tmp_path)
    arguments = ("--endpoint-url", served.url, "--workers", "2", "--health-port", "0")
    with running(tmp_path, *arguments) as run:
        url = health_url(run)
        until(lambda: get(f"{url}/ready")[0] == 200, "it does not become ready")
        before = {each["number"]: each["pid"] for each in get(f"{url}/health")[1]["workers"]}
        send(served, work, *(str(number) for number in range(40)))
        run.until("done", 40)
        until(lambda: get(f"{url}/health")[1]["queues"]["work"]["deleted"] == 40, "not deleted")
        os.kill(before[2], signal.SIGKILL)
        run.until("worker 2 has ended with 137; it is started again")
        until(
            lambda: (
                get(f"{url}/ready")[0] == 200
                and get(f"{url}/health")[1]["workers"][1]["pid"] != before[2]
            ),
            "worker 2 does not come back",
        )
        health = get(f"{url}/health")[1]
        assert [each["restarts"] for each in health["workers"]] == [0, 1]
        send(served, work, *(str(number) for number in range(40, 60)))
        handled = [line.split()[1] for line in run.until("^done", 60)]
        assert sorted(map(int, handled)) == list(range(60))
        until(lambda: get(f"{url}/health")[1]["queues"]["work"]["deleted"] == 60, "not deleted")
        pids = [each["pid"] for each in get(f"{url}/health")[1]["workers"]]
        try:
            run.process.kill()
            run.until("the supervisor is gone: draining", 2)
            until(lambda: not any(map(alive, pids)), "a worker goes on")
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGKILL)
    queue = served.backend.queue("work")  # type: ignore[attr-defined]
    assert (queue.visible, queue.in_flight) == (0, 0)
    assert not alive(before[2])


@pytest.mark.soak  # it waits for fifteen seconds; `test_supervisor.py` does so on a virtual clock
def test_a_crash_loop_ends_with_70(tmp_path: Path, served: Served, work: str) -> None:
    (tmp_path / "service.py").write_text("import os\nos._exit(9)\n")
    with running(tmp_path, "--workers", "1", "--endpoint-url", served.url) as run:
        assert run.end() == CRASH_LOOP
        assert len(run.until("it is started again")) == 5
        assert "giving up" in run.text


# --- reload ---------------------------------------------------------------------------------------


def test_a_change_is_taken_up_and_loses_nothing_and_mistakes_are_waited_out(
    tmp_path: Path,
) -> None:
    path = write_service(tmp_path, "one")
    (tmp_path / "events.jsonl").write_text('{"n": 1}\n')
    arguments = ("--local", "--reload", "--send", "work=events.jsonl", "--serve-port", "0")
    with running(tmp_path, *arguments) as run:
        url = run.until("SQS and SNS are served at ")[0].split()[-1]

        def post(text: str) -> None:
            body = f"Action=SendMessage&Version=2012-11-05&MessageBody={text}"
            urllib.request.urlopen(f"{url}/000000000000/work", body.encode(), 10).close()

        old = int(run.until('one {"n": 1}')[0].split()[-1])
        write_service(tmp_path, "two")
        run.until("service.py changed: draining")
        post("second")
        run.until("(one|two) second")
        post("third")
        new = int(run.until("two third")[0].split()[-1])
        assert new != old
        path.write_text("def broken(:\n")
        run.until(r"service.py:1: .*; what runs goes on until the next change")
        post("fourth")
        assert run.until("two fourth")[0].split()[-1] == str(new)
        path.write_text("raise RuntimeError('at import')\n")
        run.until("a change of its source starts it")
        post("fifth")
        write_service(tmp_path, "three")
        run.until("three fifth")
        assert run.end(signal.SIGINT) == 0, run.text
        assert "shop: 5 handled, 0 retried" in run.lines[-1]


FLOWING = """
import asyncio, random
from pumphouse import App, Queue

app = App("flow", drain_seconds=5)

@app.subscriber(Queue("work.fifo", visibility_timeout=3600), concurrency=10)
async def handle(order: dict) -> None:
    await asyncio.sleep(random.uniform(0, 0.1))
    print(f"handled {order['n']}\\n", end="", flush=True)
"""


@pytest.mark.soak
def test_changes_while_work_flows_lose_nothing_and_keep_every_group_in_order(
    tmp_path: Path,
) -> None:
    """Under leases of an hour: what a change left hidden would not come again in this test."""
    count, groups = 2_000, 50
    path = tmp_path / "service.py"
    path.write_text(FLOWING)
    lines = (json.dumps({"n": number, "group": str(number % groups)}) for number in range(count))
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    with running(tmp_path, "--local", "--reload", "--send", "work.fifo=events.jsonl") as run:
        run.until("^handled")
        for change in range(1, 5):
            run.until("^handled", change * count // 6)
            path.write_text(FLOWING + f"# {change}\n")
            run.until("changed: draining", change)
        handled = [int(line.split()[1]) for line in run.until("^handled", count)]
        assert run.end(signal.SIGTERM) == 0, run.text
    assert sorted(handled) == list(range(count))
    for group in range(groups):
        assert (mine := [each for each in handled if each % groups == group]) == sorted(mine)
