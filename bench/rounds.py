"""Measuring side by side: contenders take turns in rounds, and a table of medians with ratios.

What else the machine does changes from minute to minute; in turns it hits everyone alike, so the
ratios of one run hold where absolute figures do not.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version

OURS = "pumphouse"
OWN = (OURS, "uvloop", "bare asyncio")
"""Those that are not compared with ours: ourselves, ourselves on uvloop, and nobody at all."""
SECONDS = 100.0
"""No round begins after this; one that has begun is finished."""


class Results:
    """What each contender took in each round, and why some have nothing."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}
        self.missing: dict[str, str] = {}

    def median(self, name: str) -> float:
        return statistics.median(self.taken[name])

    def cell(self, name: str) -> str:
        """`median (best), ratio to ours`, or why there is none; a variant of ours has no ratio."""
        if name not in self.taken:
            return self.missing.get(name, "not measured")
        median, ours = self.median(name), self.median(OURS)
        times = "" if name in OWN else f", {median / ours:.1f}x"
        return f"{median:.1f} ({min(self.taken[name]):.1f}){times}"


def interleaved(
    contenders: Mapping[str, Callable[[], float]], rounds: int, seconds: float = SECONDS
) -> Results:
    """Let everyone run once in each round. A contender that fails is left out from there on, and
    what it failed with stands in its place; ours has to work."""
    results = Results()
    end = time.monotonic() + seconds
    for _ in range(rounds):
        for name, run in contenders.items():
            if name in results.missing:
                continue
            try:
                results.taken.setdefault(name, []).append(run())
            except Exception as error:
                if name == OURS:
                    raise
                results.taken.pop(name, None)
                results.missing[name] = f"failed: {type(error).__name__}"
        if time.monotonic() > end:
            break
    return results


def installed(*names: str) -> list[str]:
    """Which of these packages can be imported; says of the others that they are not measured."""
    found = [name for name in names if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {version(name)}" for name in found)
    print(f"Beside {versions or 'nothing'}.", flush=True)
    for name in names:
        if name not in found:
            print(f"{name} is not installed, and so not measured; `make bench` installs it.")
    return found
