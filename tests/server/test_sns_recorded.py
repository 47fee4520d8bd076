"""The endpoint in every situation of SNS that real AWS was recorded in, by botocore's clients: same
statuses, codes, messages and shapes of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import SHARED_DATA
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_client
from support.query_model import client
from support.recorded import Matcher, Recording, sns_recordings
from support.serving import Served, serving
from support.sns_clients import sns_client
from support.sns_situations import ELSEWHERE, PLAYS, play

FOLDER = SHARED_DATA / "aws-recorded"
RECORDINGS = list(sns_recordings(FOLDER)) if FOLDER.is_dir() else []


@pytest.fixture(scope="module")
def timed() -> Iterator[Served]:
    """An endpoint whose time is moved by the situations, not by the wall clock."""
    clock = VirtualClock()
    with serving(Account(clock=clock), clock=clock) as served:
        yield served


@pytest.fixture(scope="module")
def clients(timed: Served) -> Iterator[dict[str, Any]]:
    made = {
        "json": client("json", endpoint_url=timed.url),
        "sns": sns_client(timed.url),
        f"sns {ELSEWHERE}": sns_client(timed.url, region=ELSEWHERE),
    }
    yield made
    for each in made.values():
        each.close()


@pytest.mark.skipif(not RECORDINGS, reason="no recorded answers here")
@pytest.mark.parametrize(
    "recording",
    [pytest.param(each, id=each.title) for each in RECORDINGS if each.name in PLAYS],
)
def test_the_endpoint_answers_as_aws_did(
    recording: Recording, timed: Served, clients: dict[str, Any]
) -> None:
    kept = act_on_client(play(recording), clients, timed.pass_time)
    assert not recording.answers.keys() - kept.keys()
    matcher = Matcher("query")
    differences = [
        line
        for label, answer in recording.answers.items()
        for line in matcher.differences(answer, kept[label], label)
    ]
    assert not differences, "\n".join(differences)
