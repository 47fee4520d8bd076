"""A second signal that comes when what the first asked for is done: never a death by the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pumphouse import way_out
from pumphouse.signals import Signals

SERVICE = """
import asyncio, atexit, os, signal, sys, threading
from contextlib import asynccontextmanager
from pumphouse import App

app = App()
WHEN = os.environ["WHEN"]

def once_more(when, wanted=WHEN, write=os.write, kill=os.kill, me=os.getpid()):
    if when == wanted:
        write(1, b"once more\\n")
        kill(me, 15)

class Last:
    def __del__(self, once_more=once_more):
        once_more("the interpreter goes")

sys.last = Last()  # which is cleared last

async def left_behind():
    try:
        await asyncio.sleep(3600)
    finally:
        once_more("tasks end")

@app.subscriber("orders")
async def handle(body: str) -> None: ...

@app.lifespan
@asynccontextmanager
async def life(app):
    global task
    task = asyncio.create_task(left_behind())
    os.kill(os.getpid(), signal.SIGTERM)
    yield
    await asyncio.sleep(0.2)  # the same signal at once would be no second one
    once_more("it drains")
    await asyncio.sleep(0)

atexit.register(once_more, "hooks run")
threading._register_atexit(once_more, "threads end")
"""
ENDED_BY_THE_SECOND = 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("never", 0),
        ("it drains", ENDED_BY_THE_SECOND),
        ("tasks end", ENDED_BY_THE_SECOND),
        ("threads end", 0),
        ("hooks run", 0),
        ("the interpreter goes", 0),
    ],
)
def test_it_is_no_death_by_the_signal_wherever_it_comes(
    tmp_path: Path, when: str, code: int
) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    done = subprocess.run(
        [sys.executable, "-m", "pumphouse", "run", "service:app", "--local"],
        cwd=tmp_path,
        env={**os.environ, "WHEN": when},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ("" if when == "never" else "once more\n"), done.stderr


# --- what a library may do ------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(way_out, "_own", True)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


async def test_a_process_that_is_not_ours_gets_its_handlers_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Signals(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_one_of_ours_keeps_what_others_had_put_there(own: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGINT)
    with Signals(lambda: None):
        pass
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is before


async def test_signals_are_minded_again_after_the_first_time(own: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for _ in range(2):
        with Signals(lambda: None) as signals:
            signal.raise_signal(signal.SIGTERM)
            signals._ask(signal.SIGTERM)
        with pytest.raises(SystemExit, match=str(ENDED_BY_THE_SECOND)):
            signal.raise_signal(signal.SIGTERM)
