"""The endpoint in every situation that real AWS was recorded in, by botocore over both protocols:
same statuses, codes, messages and shapes of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import SHARED_DATA
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_client
from support.query_model import client
from support.recorded import Matcher, Recording, recordings
from support.serving import Served, serving
from support.situations import play

FOLDER = SHARED_DATA / "aws-recorded"
RECORDINGS = list(recordings(FOLDER)) if FOLDER.is_dir() else []


@pytest.fixture(scope="module")
def timed() -> Iterator[Served]:
    """An endpoint whose time is moved by the situations, not by the wall clock."""
    clock = VirtualClock()
    with serving(Account(clock=clock), clock=clock) as served:
        yield served


@pytest.fixture(scope="module")
def clients(timed: Served) -> Iterator[dict[str, Any]]:
    made = {name: client(name, endpoint_url=timed.url) for name in ("json", "query")}
    yield made
    for each in made.values():
        each.close()


@pytest.mark.skipif(not RECORDINGS, reason="no recorded answers here")
@pytest.mark.parametrize(
    "recording",
    [pytest.param(each, id=f"{each.protocol}:{each.title}") for each in RECORDINGS],
)
def test_the_endpoint_answers_as_aws_did(
    recording: Recording, timed: Served, clients: dict[str, Any]
) -> None:
    kept = act_on_client(play(recording), clients, timed.pass_time, protocol=recording.protocol)
    assert not recording.answers.keys() - kept.keys()
    matcher = Matcher(recording.protocol)
    differences = [
        line
        for label, answer in recording.answers.items()
        for line in matcher.differences(answer, kept[label], label)
    ]
    assert not differences, "\n".join(differences)
