"""The shared portal: threads, the portal's own thread, exit and fork."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pumphouse.errors import ClosedError, CrossThreadError
from pumphouse.sync.portal import Portal, shared


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


async def _ident() -> int:
    return threading.get_ident()


def test_it_starts_with_the_first_call_and_every_thread_shares_its_loop(portal: Portal) -> None:
    assert repr(portal) == "Portal(not started)"
    with ThreadPoolExecutor(16) as threads:
        idents = set(threads.map(lambda _: portal.call(_ident), range(200)))
    assert len(idents) == 1
    assert threading.get_ident() not in idents


async def test_a_thread_with_a_loop_of_its_own_may_call(portal: Portal) -> None:
    assert portal.call(_ident) != threading.get_ident()


def test_the_portals_own_thread_is_refused(portal: Portal) -> None:
    async def inner() -> None:
        portal.call(_ident)

    with pytest.raises(CrossThreadError, match="wait for itself"):
        portal.call(inner)


def test_errors_come_through(portal: Portal) -> None:
    async def fail() -> None:
        raise LookupError("as it was")

    with pytest.raises(LookupError, match="as it was"):
        portal.call(fail)


def test_closing_runs_the_closers_latest_first_and_only_those_still_there(portal: Portal) -> None:
    seen: list[str] = []

    def closer(name: str) -> None:
        async def close() -> None:
            seen.append(name)

        forget = portal.at_exit(close)
        if name == "forgotten":
            forget()

    for name in ("first", "forgotten", "last"):
        closer(name)
    portal.call(_ident)
    portal.close()
    portal.close()
    assert seen == ["last", "first"]
    with pytest.raises(ClosedError):
        portal.call(_ident)


def test_a_call_that_waits_when_the_portal_closes_is_told(portal: Portal) -> None:
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.call, wait)
        assert started.wait(10)
        portal.close()
        with pytest.raises(ClosedError, match="while the call was waiting"):
            waiting.result(10)


_EXIT = """
from pumphouse.sync.portal import shared

async def note():
    print("closed at exit", flush=True)

async def nothing():
    pass

shared().call(nothing)
shared().at_exit(note)
"""

_FORK = """
import os, sys, threading
from pumphouse.errors import ClosedError
from pumphouse.sync.portal import shared

async def number():
    return 7

before = shared()
assert before.call(number) == 7
child = os.fork()
if child == 0:
    try:
        before.call(number)
    except ClosedError as error:
        assert "forked" in str(error)
    else:
        os._exit(2)
    assert shared() is not before
    assert shared().call(number) == 7
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert shared() is before and before.call(number) == 7
print("both work")
"""


def _run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_closed_when_the_interpreter_exits() -> None:
    assert "closed at exit" in _run(_EXIT)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_after_a_fork_the_child_gets_a_fresh_one_and_old_objects_say_so() -> None:
    assert "both work" in _run(_FORK)


def test_the_shared_portal_is_one() -> None:
    assert shared() is shared()
