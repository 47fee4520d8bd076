"""harel takes the transports for its own: its contract checks, in process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harel.engine.transport.base import AsyncTransport, Lease, Transport
from harel.spec.states import Event
from harel.testing import assert_async_transport_contract, assert_transport_contract

from pumphouse.account import Account
from pumphouse.errors import LeaseLostError, UsageError
from pumphouse.integrations.harel import AsyncHarelTransport, HarelTransport
from pumphouse.transport import LeaseTransport
from support.contract_clock import ContractClock

Clock = Callable[[], float]


def options(clock: Clock, levels: int, coalesce: bool) -> dict[str, object]:
    account = Account(clock=ContractClock(clock))
    return {"backend": account, "wait_seconds": 0, "levels": levels, "coalesce": coalesce}


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("levels", [1, 3, 5])
async def test_the_async_transport_keeps_harels_contract(levels: int, coalesce: bool) -> None:
    made = []

    async def make(clock: Clock) -> AsyncHarelTransport:
        made.append(await AsyncHarelTransport.create(**options(clock, levels, coalesce)))
        return made[-1]

    await assert_async_transport_contract(make, timing=True, priorities=levels > 1)
    assert len(made) == 6 + (levels > 1)
    assert all(isinstance(transport, AsyncTransport) for transport in made)


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("levels", [1, 3])
def test_the_sync_transport_keeps_harels_contract(levels: int, coalesce: bool) -> None:
    made = []

    def make(clock: Clock) -> HarelTransport:
        made.append(HarelTransport.create(**options(clock, levels, coalesce)))
        return made[-1]

    assert_transport_contract(make, timing=True, priorities=levels > 1)
    assert len(made) == 6 + (levels > 1)
    assert all(isinstance(transport, Transport) for transport in made)


async def test_harels_own_lease_comes_out_and_goes_in(account: Account) -> None:
    transport = await AsyncHarelTransport.create(backend=account, wait_seconds=0)
    event = Event(kind="go", data={"n": 1})
    await transport.publish("G", event)
    lease = await transport.claim("w", 30)
    assert isinstance(lease, Lease)
    assert (lease.group_id, lease.event, lease.seq) == ("G", event, 0)
    assert lease.token.startswith("AQEB")
    await transport.extend(lease, 60)
    await transport.ack(lease)
    with pytest.raises(LeaseLostError, match="acked or nacked before"):
        await transport.ack(lease)
    with pytest.raises(UsageError, match="was not claimed from this transport"):
        await transport.ack(Lease(0, "G", event, token="x"))
    await transport.close()


async def test_without_levels_priorities_are_refused_with_the_way_out(account: Account) -> None:
    transport = await AsyncHarelTransport.create(backend=account)
    with pytest.raises(ValueError, match="PriorityTransport"):
        await transport.publish("G", Event(kind="e"), priority=2)
    with pytest.raises(ValueError, match="PriorityTransport"):
        await transport.claim("w", 30, min_priority=1)
    await transport.close()


async def test_a_message_that_is_no_event_ends_no_worker_and_is_never_deleted(
    account: Account, go: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    transport = await AsyncHarelTransport.create(backend=account, wait_seconds=0)
    raw: LeaseTransport[str] = await LeaseTransport.create("harel", account, events=str)
    await raw.publish("bad", "no event")
    await transport.publish("good", Event(kind="go"))
    leases = [await go(transport.claim("w", 30)) for _ in range(2)]
    (lease,) = [lease for lease in leases if lease is not None]
    assert lease.group_id == "good"
    await go(transport.ack(lease))
    assert "group 'bad'" in caplog.text
    assert "UndecodableError" in caplog.text
    assert account.queue("harel.fifo").in_flight == 1
    await go(transport.close())
