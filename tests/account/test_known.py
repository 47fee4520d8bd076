"""The account's faults where nothing was recorded and AWS's are known all the same."""

from __future__ import annotations

import asyncio

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_backend
from support.known import KNOWN, LABEL, Known
from support.recorded import Matcher


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.title)
async def test_the_account_refuses_as_aws_does(
    account: Account, clock: VirtualClock, known: Known
) -> None:
    acted = asyncio.create_task(act_on_backend(known.play(), account, clock.sleep))
    await clock.run_until(acted.done)
    differences = Matcher().differences(known.answer, (await acted)[LABEL])
    assert not differences, "\n".join(differences)
