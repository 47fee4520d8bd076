"""For the tests of services: run an app against SQS in memory, on a virtual clock.

::

    async def test_an_order_is_handled():
        async with app.in_process() as account:
            await account.send("orders.fifo", {"id": 1}, group_id="customer-1")
            await account.settle()
            assert [call.payload["id"] for call in handle.calls] == [1]
            assert not account.sent("orders-dead.fifo")

With pytest two fixtures are there by themselves (the plugin is found by pytest): `virtual_clock`,
and `sqs_account`, an empty account on that clock.
"""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.app import Call
from pumphouse.clock import VirtualClock
from pumphouse.in_process import InProcessAccount, in_process

__all__ = ["Account", "Call", "InProcessAccount", "VirtualClock", "in_process"]


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that a test moves."""
    return VirtualClock()


@pytest.fixture
def sqs_account(virtual_clock: VirtualClock) -> Account:
    """An empty SQS account in memory, on `virtual_clock`."""
    return Account(clock=virtual_clock)
