"""The account in every situation of SNS that AWS was recorded in: same answers, same errors."""

from __future__ import annotations

import asyncio

import pytest

from conftest import SHARED_DATA
from pumphouse.account import Account
from pumphouse.clock import VirtualClock
from support.acting import act_on_backend
from support.recorded import Matcher, Recording, sns_recordings
from support.sns_situations import ELSEWHERE_ACTED_OUT, NOT_ACTED_OUT, PLAYS, play

FOLDER = SHARED_DATA / "aws-recorded"
RECORDINGS = list(sns_recordings(FOLDER)) if FOLDER.is_dir() else []


@pytest.mark.parametrize(
    "recording",
    [pytest.param(each, id=each.title) for each in RECORDINGS if each.name in PLAYS],
)
async def test_the_account_answers_as_aws_did(recording: Recording) -> None:
    clock = VirtualClock()
    account = Account(clock=clock)
    acted = asyncio.create_task(act_on_backend(play(recording), account, clock.sleep))
    await clock.run_until(acted.done)
    kept = await acted
    assert not recording.answers.keys() - kept.keys()
    matcher = Matcher("query")
    differences = [
        line
        for label, answer in recording.answers.items()
        for line in matcher.differences(answer, kept[label], label)
    ]
    assert not differences, "\n".join(differences)


@pytest.mark.skipif(not RECORDINGS, reason="no recorded answers here")
def test_every_recorded_situation_is_acted_out_or_named() -> None:
    named = PLAYS.keys() | ELSEWHERE_ACTED_OUT.keys() | NOT_ACTED_OUT.keys()
    assert {recording.name for recording in RECORDINGS} == named
    assert not PLAYS.keys() & NOT_ACTED_OUT.keys()
