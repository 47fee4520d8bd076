"""The tutorial as a new user follows it: in a new environment, with what it says to install.

Marked `soak`, as it makes an environment and installs into it. The other tests run the tutorial in
the environment of the tests, in which more is installed than a reader has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import ROOT, Page

TUTORIAL = ROOT / "docs" / "tutorial.md"
_INSTALL = re.compile(r"^\$ python -m pip install (.*)$", re.MULTILINE)


@pytest.mark.soak
def test_the_tutorial_needs_nothing_but_what_it_installs(tmp_path: Path) -> None:
    [installed] = _INSTALL.findall(TUTORIAL.read_text())
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=120)
    subprocess.run(
        ["bash", "-c", f"{environment}/bin/python -m pip install --quiet {installed}"],
        cwd=ROOT,
        check=True,
        timeout=600,
    )
    folder = tmp_path / "orders"
    folder.mkdir()
    with Page(TUTORIAL, folder, commands=environment / "bin") as page:
        page.run()
