"""The account in every situation that real AWS was recorded in: same answers, same errors."""

from __future__ import annotations

import asyncio

import pytest

from conftest import SHARED_DATA
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_backend
from support.recorded import Matcher, Recording, recordings
from support.situations import PLAYS, play

FOLDER = SHARED_DATA / "aws-recorded"
RECORDINGS = list(recordings(FOLDER)) if FOLDER.is_dir() else []

# Differences that the query protocol itself makes, which an operation can't show.
ONLY_ON_THE_WIRE = {("test_message_system_attribute_names_with_attribute_names", "query")}


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(recording, id=f"{recording.protocol}:{recording.title}")
        for recording in RECORDINGS
        if (recording.name, recording.protocol) not in ONLY_ON_THE_WIRE
    ],
)
async def test_the_account_answers_as_aws_did(recording: Recording) -> None:
    clock = VirtualClock()
    account = Account(clock=clock)
    acted = asyncio.create_task(
        act_on_backend(play(recording), account, clock.sleep, protocol=recording.protocol)
    )
    await clock.run_until(acted.done)
    kept = await acted
    assert not recording.answers.keys() - kept.keys()
    matcher = Matcher(recording.protocol)
    differences = [
        line
        for label, answer in recording.answers.items()
        for line in matcher.differences(answer, kept[label], label)
    ]
    assert not differences, "\n".join(differences)


@pytest.mark.skipif(not RECORDINGS, reason="no recorded answers here")
def test_every_recorded_situation_is_acted_out() -> None:
    assert {recording.name for recording in RECORDINGS} == PLAYS.keys()
