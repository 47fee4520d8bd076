"""The report is worked out from what happened: each way for a run to go wrong shows in it."""

from __future__ import annotations

import random

import pytest

from pumphouse.demo.report import Journal, Moment, Report
from pumphouse.jsonl import Event

S, H, F, D = Moment.STARTED, Moment.HANDLED, Moment.FAILED, Moment.DEAD_LETTERED
EVENTS = [Event(1, "a", "1"), Event(2, "a", "2"), Event(3, "b", "3"), Event(4, "b", "4")]


def report(moments, *, unconfirmed: dict[int, str] | None = None, left: int = 0) -> Report:
    journal = Journal()
    journal.unconfirmed.update(unconfirmed or {})
    journal.confirmed.update(
        event.line for event in EVENTS if event.line not in (unconfirmed or {})
    )
    for moment, line in moments:
        journal.note(moment, line)
    return Report.of(
        EVENTS, journal, left=left, requests={"SendMessageBatch": 1, "Receive": 2}, seconds=1.5
    )


RIGHT = [(S, 1), (S, 3), (H, 1), (S, 2), (F, 3), (S, 3), (H, 3), (S, 4), (H, 4), (H, 2)]


def test_a_run_in_which_all_went_well() -> None:
    good = report(RIGHT)
    assert good.ok
    assert (good.events, good.groups, good.sent, good.handled, good.retried) == (4, 2, 4, 4, 1)
    assert (good.at_once, good.left, good.requests_per_message) == (2, 0, 0.75)
    assert (good.dead_lettered, good.lost, good.twice, good.out_of_order) == ([], [], [], [])


def test_a_dead_letter_is_no_loss() -> None:
    moments = [
        (S, 1),
        (F, 1),
        (S, 1),
        (F, 1),
        (S, 2),
        (D, 1),
        (H, 2),
        (S, 3),
        (H, 3),
        (S, 4),
        (H, 4),
    ]
    outcome = report(moments)
    assert outcome.ok
    assert (outcome.dead_lettered, outcome.handled, outcome.retried) == ([1], 3, 1)


def test_what_was_confirmed_and_never_ended_is_lost() -> None:
    outcome = report([moment for moment in RIGHT if moment != (H, 4)])
    assert not outcome.ok
    assert outcome.lost == [4]


def test_what_was_not_confirmed_is_no_success() -> None:
    moments = [moment for moment in RIGHT if moment[1] != 4]
    outcome = report(moments, unconfirmed={4: "refused"})
    assert not outcome.ok
    assert (outcome.sent, outcome.lost, outcome.unconfirmed) == (3, [], {4: "refused"})


@pytest.mark.parametrize("again", [[(S, 4), (H, 4)], [(D, 4)]])
def test_what_came_out_twice_is_seen(again) -> None:
    outcome = report([*RIGHT, *again])
    assert not outcome.ok
    assert outcome.twice == [4]


def test_what_is_left_in_the_queue_is_seen() -> None:
    assert not report(RIGHT, left=1).ok


@pytest.mark.parametrize(
    "moments",
    [
        [(S, 2), (H, 2), (S, 1), (H, 1)],  # the later one first
        [(S, 1), (S, 2), (H, 1), (H, 2)],  # both at once
        [(S, 1), (F, 1), (S, 2), (H, 2), (S, 1), (H, 1)],  # past a failed head
        [(S, 1), (S, 1), (H, 1), (S, 2), (H, 2)],  # one event twice at once
    ],
)
def test_a_group_out_of_order_is_seen(moments) -> None:
    outcome = report([(S, 3), *moments, (H, 3), (S, 4), (H, 4)])
    assert outcome.out_of_order == ["a"]
    assert not outcome.ok


def test_order_is_a_matter_of_each_group_alone() -> None:
    rng = random.Random(1)
    for _ in range(200):
        lanes = [[(S, 1), (F, 1), (S, 1), (H, 1), (S, 2), (H, 2)], [(S, 3), (H, 3), (S, 4), (H, 4)]]
        mixed = []
        while lanes := [lane for lane in lanes if lane]:
            mixed.append(rng.choice(lanes).pop(0))
        assert report(mixed).ok
