"""A terminal that goes away: one more signal for those who want it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from pumphouse.signals import Signals


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """No test may end the process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def _hang_up() -> None:
    signal.raise_signal(signal.SIGHUP)
    await asyncio.sleep(0.001)


async def test_it_is_for_those_who_want_it_and_for_nobody_else() -> None:
    with Signals(lambda: None) as other, Signals(lambda: None, hangup=True) as signals:
        await _hang_up()
        assert signals.received == [signal.SIGHUP]
        assert other.received == []
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.001)
        assert other.received == [signal.SIGTERM]
        assert signals.exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


async def test_it_stays_ignored_where_it_was() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` has it
    with Signals(lambda: None, hangup=True) as signals:
        await _hang_up()
        assert signals.received == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
