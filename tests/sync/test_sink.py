"""The sink for threads: one loop behind many of them, closed at exit, clear after a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pumphouse.account import Account
from pumphouse.errors import ClosedError, CrossThreadError, UsageError
from pumphouse.protocol.operations import CreateQueue, SendMessageBatch
from pumphouse.sink.outgoing import Draft
from pumphouse.sync.portal import Portal
from pumphouse.sync.sink import Sink
from support.serving import serving


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


@pytest.fixture
def real(portal: Portal) -> Account:
    account = Account()
    portal.call(account.execute, CreateQueue("q"))
    portal.call(account.execute, CreateQueue("q.fifo", {"FifoQueue": "true"}))
    return account


def test_what_many_threads_send_shares_batches(portal: Portal, real: Account) -> None:
    with Sink("q", real, portal=portal) as sink, ThreadPoolExecutor(20) as threads:
        receipts = list(threads.map(lambda n: sink.send(str(n)), range(200)))
    assert len({receipt.message_id for receipt in receipts}) == 200
    assert len(real.ledger.of(SendMessageBatch)) < 100
    assert sink.stats["stored"] == 200


def test_send_many_and_errors(portal: Portal, real: Account) -> None:
    with Sink("q.fifo", real, portal=portal) as sink:
        results = sink.send_many([Draft("a", group_id="g"), Draft("b", group_id="")])
        with pytest.raises(UsageError, match="group_id"):
            sink.send("x")
    assert results[0].sequence_number  # type: ignore[union-attr]
    assert isinstance(results[1], UsageError)
    with pytest.raises(ClosedError):
        sink.send("x", group_id="g")
    assert sink.describe()["queue"] == "q.fifo"


async def test_it_works_beside_a_running_loop_and_refuses_the_portals_own_thread(
    portal: Portal, real: Account
) -> None:
    sink = Sink("q", real, portal=portal)
    assert sink.send("from a thread with a loop").message_id

    async def inside() -> None:
        sink.send("from within")

    with pytest.raises(CrossThreadError):
        portal.call(inside)
    await asyncio.to_thread(sink.close)


_SCRIPT = """
import os, sys
from pumphouse.account import Account
from pumphouse.errors import ClosedError
from pumphouse.protocol.operations import CreateQueue
from pumphouse.sync.portal import shared
from pumphouse.sync.sink import Sink

account = Account()
shared().call(account.execute, CreateQueue("q"))
sink = Sink("q", account, batch_linger=60, on_dead_letter=print)
child = os.fork()
if child == 0:
    try:
        sink.send("in the child")
    except ClosedError as error:
        assert "forked" in str(error)
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

import threading

def send():
    print("stored", bool(sink.send("waits a minute").message_id), flush=True)

threading.Thread(target=send, daemon=True).start()
import time
while not sink.stats["waiting"]:
    time.sleep(0.001)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_at_exit_what_waits_is_sent_and_a_forked_child_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr


_SERVED = """
import sys, threading, time
from pumphouse import connect
from pumphouse.sync.sink import Sink

sink = Sink("q", connect(endpoint_url=sys.argv[1]), batch_linger=0.001)
print(bool(sink.send("x").message_id))
"""

_SERVED_AT_EXIT = """
import atexit, sys
atexit.register(lambda: print(sink.stats["stored"]))  # after pumphouse's own

import threading, time
from pumphouse import connect
from pumphouse.sync.sink import Sink

sink = Sink("q", connect(endpoint_url=sys.argv[1]), batch_linger=60)
threading.Thread(target=sink.send, args=("waits a minute",), daemon=True).start()
while not sink.stats["waiting"]:
    time.sleep(0.001)
if len(sys.argv) > 2:
    # some interpreters give no thread any more once they exit
    class NoThread(threading.Thread):
        def start(self):
            if not threading.main_thread().is_alive():
                raise RuntimeError("can't create new thread at interpreter shutdown")
            super().start()

    threading.Thread = NoThread
"""


@pytest.mark.parametrize(
    ("script", "more", "said"),
    [
        (_SERVED, (), "True"),
        (_SERVED_AT_EXIT, (), "1"),
        (_SERVED_AT_EXIT, ("no threads",), "1"),
    ],
    ids=["sent before", "the first request at exit", "without a new thread"],
)
def test_over_http_exit_sends_what_waits_and_says_nothing(
    script: str, more: tuple[str, ...], said: str
) -> None:
    account = Account()
    asyncio.run(account.execute(CreateQueue("q")))
    with serving(account) as served:
        done = subprocess.run(
            [sys.executable, "-c", script, served.url.replace("127.0.0.1", "localhost"), *more],
            env={
                **os.environ,
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any",
            },
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert done.stdout.strip() == said


def test_closing_after_the_portal_closed_it_is_no_error(portal: Portal, real: Account) -> None:
    sink = Sink("q", real, portal=portal)
    assert sink.send("x").message_id
    portal.close()
    sink.close()
    sink.close()
