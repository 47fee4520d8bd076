"""The schedule by itself, against what must hold whatever happens: no clock, no tasks, no IO."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.sink.entry import DONE, Entry, Limits
from pumphouse.sink.schedule import Schedule

LIMITS = Limits(
    batch_max_bytes=100,
    batch_linger=1.0,
    batch_max_inflight=3,
    batch_queue_max=40,
    batch_queue_max_bytes=600,
    batch_queue_tenant_max=20,
)


@pytest.mark.parametrize("exclusive", [True, False])
@settings(max_examples=75, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_entry_leaves_once_and_in_order_whatever_happens(exclusive: bool, seed: int) -> None:
    rng = random.Random(seed)
    schedule: Schedule[Entry] = Schedule(LIMITS, exclusive=exclusive)
    now = 0.0
    inflight: list[list[Entry]] = []
    every: list[Entry] = []
    settled: dict[str, list[Entry]] = defaultdict(list)
    failed_ever: set[int] = set()

    def settle(batch: list[Entry]) -> None:
        retries = [(entry, now + rng.choice([0, 0.5, 3])) for entry in batch if rng.random() < 0.2]
        again = {id(entry) for entry, _ in retries}
        failed_ever.update(again)
        for entry in batch:
            if id(entry) not in again:
                settled[entry.lane].append(entry)
        schedule.finish(batch, retries, now)

    for _ in range(200):
        match rng.randrange(5):
            case 0 | 1:
                entry = Entry(None, rng.choice([1, 10, 60, 120]), rng.choice("abc"), "")
                entry.lane = rng.choice(["g1", "g2", f"of {entry.tenant}"])
                every.append(entry)
                if schedule.admit(entry, now) is None:
                    pass
                elif rng.random() < 0.7:
                    schedule.admission.park(entry)
                    schedule.admit_parked(now)
                else:
                    every.pop()
            case 2:
                now += rng.choice([0.1, 1.0])
                schedule.wake(now)
            case 3:
                if every:
                    schedule.withdraw(rng.choice(every), now)
            case 4:
                if inflight:
                    settle(inflight.pop(rng.randrange(len(inflight))))
        while (batch := schedule.take(now, flush=rng.random() < 0.1)) is not None:
            assert 1 <= len(batch) <= 10
            assert len(batch) == 1 or sum(entry.size for entry in batch) <= 100
            assert len({id(entry) for entry in batch}) == len(batch)
            if exclusive:
                lanes = {entry.lane for entry in batch}
                assert not lanes & {entry.lane for other in inflight for entry in other}
            inflight.append(batch)
            assert len(inflight) <= 3
        inside = schedule.admission
        assert inside.inside <= 40
        assert inside.bytes <= 600 or inside.inside == 1

    for _ in range(500):
        while inflight:
            settle(inflight.pop())
        now += 5
        schedule.wake(now)
        while (batch := schedule.take(now)) is not None:
            inflight.append(batch)
        if not inflight and schedule.next_time() == float("inf"):
            break
    assert schedule.admission.inside == schedule.admission.parked == 0
    assert all(entry.state == DONE for entry in every), "nothing was forgotten"
    done = [entry for entries in settled.values() for entry in entries]
    assert len({id(entry) for entry in done}) == len(done), "nothing left twice"
    assert not schedule._lanes
    assert not schedule.admission._guests
    if exclusive:
        position = {id(entry): at for at, entry in enumerate(every)}
        for entries in settled.values():
            straight = [e for e in entries if id(e) not in failed_ever]
            by_tenant: dict[str, list[int]] = defaultdict(list)
            for entry in straight:
                by_tenant[entry.tenant].append(position[id(entry)])
            for order in by_tenant.values():
                assert order == sorted(order)


def test_taking_costs_the_same_with_a_hundred_and_with_a_hundred_thousand_waiting() -> None:
    """Counted in steps of the interpreter, so that no clock decides."""
    import sys

    def steps(tenants: int, each: int) -> float:
        limits = Limits(
            batch_max_inflight=10**9, batch_queue_max=10**9, batch_queue_tenant_max=10**9
        )
        schedule: Schedule[Entry] = Schedule(limits, exclusive=True)
        for at in range(each):
            for tenant in range(tenants):
                schedule.admit(Entry(None, 10, str(tenant), f"{tenant}/{at % 3}"), 0.0)
        count = 0

        def trace(frame: object, event: str, _: object) -> object:
            nonlocal count
            count += event == "line"
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            for _ in range(20):
                batch = schedule.take(0.0)
                assert batch is not None
                schedule.finish(batch, (), 0.0)
        finally:
            sys.settrace(None)
        return count / 20

    assert steps(1000, 100) < 1.5 * steps(10, 30)


def test_entries_say_where_they_are() -> None:
    assert repr(Entry(None, 3, "t", "g")) == "Entry(new, lane='g', 3 bytes, tries=0)"
