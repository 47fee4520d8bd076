"""`pumphouse run` as processes over `pumphouse serve`: signals, exit codes, and nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pumphouse.cli import run_command
from subscriber.processes import run_processes
from support.logs import kept_logging

# A message that has to wait for its lease waits for this long: longer than a test may take.
NEVER = 3_600


async def test_processes_that_are_terminated_lose_nothing_and_nothing_waits(tmp_path: Path) -> None:
    result = await run_processes(
        tmp_path, processes=2, messages=400, seconds=3, kill=False, visibility=NEVER, seed=1
    )
    assert not result.lost
    assert result.left == 0, (tmp_path / "log").read_text()[-2000:]
    assert result.terminated >= 1
    assert set(result.exits) <= {0, 128 + signal.SIGTERM}


@pytest.mark.soak
async def test_eight_processes_terminated_at_random_for_a_minute(tmp_path: Path) -> None:
    result = await run_processes(
        tmp_path, processes=8, messages=50_000, seconds=60, kill=False, visibility=NEVER, seed=2
    )
    print(result.terminated, dict(result.exits), f"{result.seconds:.0f} s")
    assert not result.lost
    assert result.left == 0
    assert set(result.exits) <= {0, 128 + signal.SIGTERM}


@pytest.mark.soak
async def test_eight_processes_terminated_and_killed_at_random_for_a_minute(tmp_path: Path) -> None:
    result = await run_processes(
        tmp_path, processes=8, messages=50_000, seconds=60, kill=True, visibility=10, seed=3
    )
    print(result.terminated, result.killed, dict(result.exits), f"{result.seconds:.0f} s")
    assert not result.lost
    assert result.left == 0


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing:app", "there is no module 'nothing'"),
        ("service:other", "service:other is nothing"),
        ("service:number", "is a int, and no pumphouse App"),
        ("service:idle", "has no subscriber"),
        ("", "it is empty"),
    ],
)
def test_an_app_that_is_not_there_is_one_clear_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    says: str,
) -> None:
    (tmp_path / "service.py").write_text("from pumphouse import App\nidle = App()\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "service", raising=False)
    try:
        with kept_logging():
            assert run_command(["run", target]) == 2
    finally:
        sys.modules.pop("service", None)
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


def test_local_runs_without_aws_and_drains_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from pumphouse import App\n"
        "app = App()\n"
        "@app.subscriber('orders.fifo', max_attempts=3, dead_letter='dead.fifo')\n"
        "async def handle(body: str) -> None: ...\n"
        "@app.lifespan\n"
        "@asynccontextmanager\n"
        "async def told(app):\n"
        "    print('up', flush=True)\n"
        "    yield\n"
        "    print('down', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pumphouse", "run", "service:app", "--local"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "down\n"), err
    finally:
        process.kill()
        process.wait()
