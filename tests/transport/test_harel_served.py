"""harel against a served endpoint: its contract through HTTP, its own transport, its own worker."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import metadata
from itertools import count
from pathlib import Path

import pytest
from harel import definition_from_dsl
from harel.engine.aio.distributed import AsyncDistributedRunner
from harel.engine.aio_store import AsyncSqliteStore
from harel.engine.transport import SqsTransport
from harel.spec.states import Event
from harel.testing import assert_async_transport_contract, assert_transport_contract

from pumphouse.account import Account
from pumphouse.integrations.harel import AsyncHarelTransport, HarelTransport
from support.contract_clock import ContractClock
from support.serving import serving

Clock = Callable[[], float]

_names = (f"contract-{number}" for number in count())


@pytest.mark.parametrize("levels", [1, 3])
async def test_the_contract_with_its_timing_through_a_served_account(levels: int) -> None:
    now: list[Clock] = [lambda: 0.0]
    clock = ContractClock(lambda: now[0]())

    with serving(Account(clock=clock)) as served:

        async def make(contract_clock: Clock) -> AsyncHarelTransport:
            now[0] = contract_clock
            return await AsyncHarelTransport.create(
                served.url, next(_names), wait_seconds=0, levels=levels, clock=clock
            )

        await assert_async_transport_contract(make, timing=True, priorities=levels > 1)


@pytest.mark.parametrize("levels", [1, 3])
async def test_the_async_contract_through_pumphouse_serve(endpoint: str, levels: int) -> None:
    async def make(_: Clock) -> AsyncHarelTransport:
        return await AsyncHarelTransport.create(
            endpoint, next(_names), wait_seconds=0, levels=levels
        )

    await assert_async_transport_contract(make, timing=False, priorities=levels > 1)


@pytest.mark.parametrize("levels", [1, 3])
def test_the_sync_contract_through_pumphouse_serve(endpoint: str, levels: int) -> None:
    def make(_: Clock) -> HarelTransport:
        return HarelTransport.create(endpoint, next(_names), wait_seconds=0, levels=levels)

    assert_transport_contract(make, timing=False, priorities=levels > 1)


def test_harels_own_transport_and_ours_share_a_queue(endpoint: str) -> None:
    """boto3 is an independent client: what one side publishes the other claims."""
    name = next(_names)
    theirs = SqsTransport.create(endpoint, name)
    ours = HarelTransport.create(endpoint, name)
    try:
        event = Event(kind="hello", data={"n": 1})
        for sender, receiver in ((theirs, ours), (ours, theirs)):
            sender.publish("G", event)
            lease = receiver.claim("w", 30)
            assert lease is not None
            assert (lease.group_id, lease.event) == ("G", event)
            receiver.ack(lease)
    finally:
        ours.close()
        theirs.close()


def order_machine() -> str:
    """The state machine that harel's own description shows first."""
    description = metadata("harel").get_payload()
    blocks = re.findall(r"```\w*\n(.*?)```", description, re.DOTALL)
    return next(block for block in blocks if "machine order {" in block and "import" not in block)


@pytest.fixture
def worker(endpoint: str, aioboto3_path: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "order.stm").write_text(order_machine())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": aioboto3_path,
        "HAREL_TRANSPORT_BACKEND": "sqs",
        "HAREL_SQS_ENDPOINT": endpoint,
        "HAREL_SQS_QUEUE": "orders.fifo",
        "HAREL_STORE_BACKEND": "sqlite",
        "HAREL_STORE_DB": str(tmp_path / "store.db"),
        "HAREL_DEFINITIONS_DIR": str(tmp_path),
        "HAREL_VISIBILITY": "10",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "harel.worker"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=20)


async def test_an_unmodified_harel_worker_runs_its_example_to_the_end(
    endpoint: str, worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The worker talks to the endpoint with its own client; the events come from our transport."""
    definition = definition_from_dsl(order_machine(), "order")
    store = await AsyncSqliteStore.create(str(tmp_path / "store.db"))
    transport = await AsyncHarelTransport.create(endpoint, "orders.fifo")
    runner = AsyncDistributedRunner(store, transport, {definition.id: definition})
    try:
        orders = [(await runner.create(definition.id)).id for _ in range(3)]
        for kind in ("PlaceOrder", "PaymentAuthorized", "Delivered"):
            for order in orders:
                await runner.send(order, Event(kind=kind))
        deadline = time.monotonic() + 60
        while True:
            found = [await store.load(order) for order in orders]
            if all(execution.status.name == "DONE" for execution in found):
                break
            assert worker.poll() is None, worker.communicate()[0]
            assert time.monotonic() < deadline, [execution.status for execution in found]
            await asyncio.sleep(0.1)
        assert [(execution.active_path, execution.outcome) for execution in found] == [
            ("Delivered", "success")
        ] * 3
        worker.terminate()
        assert await asyncio.to_thread(worker.wait, 20) == 0
    finally:
        await transport.close()
        await store.close()
