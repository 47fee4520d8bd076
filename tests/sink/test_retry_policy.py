"""`RetryPolicy`: growth, jitter, the cap, and the three ways to come to an end."""

from __future__ import annotations

import random

import pytest

from pumphouse.backoff import NO_RETRIES, RetryPolicy
from pumphouse.errors import UsageError


def test_delays_grow_to_the_cap_and_are_spread_evenly_below_it() -> None:
    policy = RetryPolicy(base_seconds=1, cap_seconds=8)
    rng = random.Random(7)
    for attempt, ceiling in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (500, 8)):
        draws = [policy.delay(attempt, rng) for _ in range(2000)]
        assert 0 <= min(draws) < 0.05 * ceiling
        assert 0.95 * ceiling < max(draws) <= ceiling
        assert sum(draws) / len(draws) == pytest.approx(ceiling / 2, rel=0.05)


def test_it_ends_after_max_attempts() -> None:
    policy = RetryPolicy(max_attempts=3, budget_seconds=None)
    assert policy.next_delay(2, 1e9) is not None
    assert policy.next_delay(3, 0) is None
    assert NO_RETRIES.next_delay(1, 0) is None


def test_it_never_waits_past_its_budget() -> None:
    policy = RetryPolicy(base_seconds=0, cap_seconds=0, max_attempts=None, budget_seconds=10)
    assert policy.next_delay(1000, 9.9) == 0
    assert policy.next_delay(1, 10.1) is None
    assert policy.next_delay(1, 8, at_least_seconds=2) == 2
    assert policy.next_delay(1, 8, at_least_seconds=2.1) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"base_seconds": -1},
        {"base_seconds": 2, "cap_seconds": 1},
        {"max_attempts": 0},
        {"budget_seconds": -1},
        {"budget_seconds": float("nan")},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        RetryPolicy(**bad)  # type: ignore[arg-type]
