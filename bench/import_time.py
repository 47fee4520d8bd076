"""What `import pumphouse` costs: the best of ten fresh interpreters, in milliseconds.

The figures are those of `python -X importtime`: the sum of what `import pumphouse` loads, and of
what the interpreter would have loaded without it.
"""

from __future__ import annotations

import re
import subprocess
import sys

GOAL_MILLISECONDS = 120
_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \| (\s*)(\S+)")


def measure(module: str) -> float:
    """Cumulative milliseconds of one import, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in done.stderr.splitlines():
        found = _LINE.fullmatch(line)
        if found and found[4] == module:
            return int(found[2]) / 1_000
    raise RuntimeError(f"{module} does not show in the output of -X importtime")


def main() -> None:
    for module in (
        "pumphouse",
        "pumphouse.account",
        "pumphouse.sink",
        "pumphouse.app",
        "pumphouse.cli",
    ):
        best = min(measure(module) for _ in range(10))
        goal = f"   goal: under {GOAL_MILLISECONDS}" if module == "pumphouse" else ""
        print(f"import {module:20} {best:7.1f} ms{goal}")


if __name__ == "__main__":
    main()
