"""The runtime under random trouble; a failure prints the seed that replays it."""

from __future__ import annotations

import os
import random
import time

import pytest

from subscriber.simulation import World, simulate

SEED = int(os.environ.get("PUMPHOUSE_SEED", random.SystemRandom().randrange(10**9)))


def report(world: World) -> str:
    lines = "\n  ".join(world.wrong[:20])
    return f"replay it with PUMPHOUSE_SEED={world.seed}; {len(world.wrong)} faults:\n  {lines}"


@pytest.mark.parametrize("number", range(3))
async def test_nothing_is_lost_or_reordered(number: int) -> None:
    world = await simulate(SEED + number, queues=8, messages=1_600, seconds=60)
    assert not world.wrong, report(world)
    assert sum(map(len, world.sent.values())) == 1_600
    assert len(world.faults) >= 6


@pytest.mark.soak
async def test_a_hundred_thousand_messages_over_twenty_queues() -> None:
    began = time.process_time()
    world = await simulate(SEED, queues=20, messages=100_000, seconds=200)
    took = time.process_time() - began
    assert not world.wrong, report(world)
    print(
        f"seed {world.seed}: {world.runs.total()} runs, {world.clock.monotonic():.0f} virtual and "
        f"{took:.0f} CPU seconds; {dict(world.faults)}"
    )
