"""The blocks of the README as a reader pastes them into `python -m asyncio`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.pages import ROOT, blocks

README = ROOT / "README.md"


def test_the_blocks_run_where_they_are_pasted(tmp_path: Path) -> None:
    pasted = ["from service import app, pack"]
    for block in blocks(README.read_text()):
        if block.language != "python":
            continue
        if title := block.options.get("title"):
            (tmp_path / title).write_text(block.text)
        else:
            pasted.append(block.text)
    done = subprocess.run(
        [sys.executable, "-u", "-m", "asyncio"],
        cwd=tmp_path,
        input="\n\n".join([*pasted, "print('the end')\n"]),
        capture_output=True,
        text=True,
        timeout=60,
    )
    raised = set(re.findall(r"^[>. ]*(\w+Error\b.*)", done.stderr, re.MULTILINE))
    assert raised == {"ValueError: order 1 has nothing to pack"}, done.stderr  # as a handler does
    for says in ("stored as ", "nothing was sent: ", "machine-1", "the end"):
        assert says in done.stdout
