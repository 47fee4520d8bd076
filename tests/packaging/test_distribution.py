"""The wheel holds what users need and nothing else, and the console script works."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import pumphouse

ROOT = Path(__file__).resolve().parents[2]
CORE = {"anyio", "botocore", "click", "httptools", "msgspec", "rich"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_is_typed_and_holds_the_sample(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    assert {"pumphouse/py.typed", "pumphouse/demo/sample.jsonl"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_module_and_nothing_but_the_package(wheel: zipfile.ZipFile) -> None:
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert sources <= packed
    assert {name.partition("/")[0] for name in packed} == {"pumphouse"}
    assert not [name for name in packed if "/test_" in name or "__pycache__" in name]


def test_the_core_needs_only_what_was_agreed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {item.partition(">")[0] for item in project["dependencies"]} == CORE
    assert project["version"] == pumphouse.__version__


def test_the_console_script_works() -> None:
    script = Path(sys.executable).parent / "pumphouse"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"pumphouse {pumphouse.__version__}\n")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pumphouse", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert (done.returncode, done.stdout) == (0, f"pumphouse {pumphouse.__version__}\n")
