"""For the tests of services: run an app against SQS in memory, on a virtual clock.

::

    async def test_an_order_is_handled():
        async with app.in_process() as account:
            await account.send("orders.fifo", {"id": 1}, group_id="customer-1")
            await account.settle()
            assert [call.payload["id"] for call in handle.calls] == [1]
            assert not account.sent("orders-dead.fifo")

For Lambda there are `lambda_event`, `LambdaContext` and `EventSourceMapping`
(`lambda_handler/simulation.py`).

With pytest two fixtures are there by themselves: `virtual_clock`, and `sqs_account`, an empty
account on that clock (`pytest_plugin.py`).
"""

from __future__ import annotations

from pumphouse.account import Account
from pumphouse.app import Call
from pumphouse.clock import VirtualClock
from pumphouse.in_process import InProcessAccount, in_process
from pumphouse.lambda_handler.simulation import EventSourceMapping, LambdaContext, lambda_event

__all__ = [
    "Account",
    "Call",
    "EventSourceMapping",
    "InProcessAccount",
    "LambdaContext",
    "VirtualClock",
    "in_process",
    "lambda_event",
]
