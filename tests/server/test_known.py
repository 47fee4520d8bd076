"""The endpoint's faults where nothing was recorded and AWS's are known all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_client
from support.known import KNOWN, LABEL, Known
from support.query_model import client
from support.recorded import Matcher
from support.serving import Served, serving


@pytest.fixture(scope="module")
def timed() -> Iterator[Served]:
    clock = VirtualClock()
    with serving(Account(clock=clock), clock=clock) as served:
        yield served


@pytest.fixture(scope="module")
def clients(timed: Served) -> Iterator[dict[str, Any]]:
    made = {name: client(name, endpoint_url=timed.url) for name in ("json", "query")}
    yield made
    for each in made.values():
        each.close()


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.title)
def test_the_endpoint_refuses_as_aws_does(
    known: Known, protocol: str, timed: Served, clients: dict[str, Any]
) -> None:
    kept = act_on_client(known.play(), clients, timed.pass_time, protocol=protocol)
    differences = Matcher(protocol).differences(known.answer, kept[LABEL])
    assert not differences, "\n".join(differences)
