"""Run every benchmark and write `docs/benchmarks.md`: what was run, where, and what it printed.

    python -m bench [NAME ...] [--output docs/benchmarks.md]

A benchmark is a script of this folder that can be run by itself; names select some of them. Each
runs in a process of its own, one after the other, shorter than by itself (`SHORTER`), and ends
after three minutes at the latest (`LONGER`: some later). The page is written anew after each, so an
interrupted run keeps what it has. One that fails is shown with its error, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import os
import platform
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 180
LONGER = {"server": 600, "lease": 400}
"""Those that have slow peers beside them."""
SHORTER = {
    "consume": ("--messages", "20000"),
    "lease": ("--events", "600", "--rounds", "2"),
    "server": ("--seconds", "0.7", "--rounds", "2"),
}
"""Arguments with which the whole takes about five minutes on a quiet machine."""
PACKAGES = (
    *("pumphouse", "botocore", "boto3", "aiobotocore", "fanferro"),
    *("httptools", "uvloop", "uvicorn"),
)


def scripts() -> dict[str, Path]:
    """Every script that runs by itself, by name."""
    return {
        path.stem: path
        for path in sorted(HERE.glob("*.py"))
        if path.stem != "__main__" and 'if __name__ == "__main__":' in path.read_text()
    }


def title(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    return docstring.partition("\n")[0].rstrip(".")


def run(path: Path) -> tuple[str, bool]:
    """What a script printed, and whether it ended well."""
    script = subprocess.Popen(
        [sys.executable, "-u", str(path), *SHORTER.get(path.stem, ())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        start_new_session=True,  # so that the servers it started end with it
    )
    seconds = LONGER.get(path.stem, TIMEOUT_SECONDS)
    try:
        printed, complaints = script.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(script.pid, signal.SIGKILL)
        printed, _ = script.communicate()
        return f"{printed}\nIt did not end in {seconds} seconds.", False
    if script.returncode:
        return f"{printed}{complaints[-2000:]}\nexit code {script.returncode}", False
    return printed, True


def page(sections: list[str], command: str) -> str:
    today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Written by `make bench`; not edited by hand. What each benchmark does, and how it can",
            "be run by itself, stands at the top of its script in `bench/`.",
            "",
            f"- Run: {today}, with `{command}`",
            f"- Machine: {os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}; "
            f"load {_load()} as the run ended",
            f"- Python {platform.python_version()}; {', '.join(found)}",
            "",
            *sections,
        ]
    )


def _load() -> str:
    return f"{os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def section(name: str, path: Path, output: str) -> str:
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return "\n".join([f"## {name}", "", f"{title(path)}.", "", "```text", *lines, "```", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(scripts()))
    parser.add_argument("--output", type=Path, default=HERE.parent / "docs" / "benchmarks.md")
    options = parser.parse_args()
    known = scripts()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(known)}")
    command = " ".join(["python -m bench", *options.names])
    sections: list[str] = []
    fine = True
    for name in options.names or known:
        print(f"{name} …", flush=True)
        output, good = run(known[name])
        print(output)
        fine &= good
        sections.append(section(name, known[name], output))
        options.output.write_text(page(sections, command))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
