"""Fixtures for every suite: an account on a virtual clock, and the real input, if it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from pumphouse.account import Account
from pumphouse.clock import VirtualClock

# How long an example takes is the load of the machine, and no property of the code. Examples are
# other ones in each run, so that few of them in many runs are as good as many in one.
settings.register_profile("suite", deadline=None, max_examples=50)
settings.load_profile("suite")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def account(clock: VirtualClock) -> Account:
    return Account(clock=clock)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real input and recorded answers; skips where it is not there."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED_DATA}")
    return SHARED_DATA
