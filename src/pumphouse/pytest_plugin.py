"""Fixtures for the tests of services; pytest finds them by itself where pumphouse is installed.

The only module that imports pytest, and it imports nothing of pumphouse until a fixture is used:
every test run on the machine loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pumphouse.account import Account
    from pumphouse.clock import VirtualClock


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that a test moves."""
    from pumphouse.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def sqs_account(virtual_clock: VirtualClock) -> Account:
    """An empty SQS account in memory, on `virtual_clock`."""
    from pumphouse.account import Account

    return Account(clock=virtual_clock)
