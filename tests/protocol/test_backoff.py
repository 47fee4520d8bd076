"""Full jitter: within its bounds, and spread over them."""

from __future__ import annotations

import random

import pytest

from pumphouse.backoff import full_jitter


@pytest.mark.parametrize(
    ("attempt", "ceiling"),
    [(1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 20.0), (1_000_000, 20.0), (0, 0.5), (-5, 0.5)],
)
def test_delays_fill_their_range(attempt: int, ceiling: float) -> None:
    rng = random.Random(7)
    delays = [full_jitter(attempt, base_seconds=0.5, rng=rng) for _ in range(2_000)]
    assert all(0 <= delay <= ceiling for delay in delays)
    assert min(delays) < ceiling * 0.02
    assert max(delays) > ceiling * 0.98
    assert sum(delays) / len(delays) == pytest.approx(ceiling / 2, rel=0.05)


def test_the_same_seed_gives_the_same_delays() -> None:
    one, other = random.Random(1), random.Random(1)
    assert [full_jitter(n, rng=one) for n in range(9)] == [
        full_jitter(n, rng=other) for n in range(9)
    ]


def test_two_callers_do_not_wait_in_step() -> None:
    assert len({full_jitter(5) for _ in range(50)}) == 50
