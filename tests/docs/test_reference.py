"""The reference leaves out nothing that a public module exports."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import pytest

from support.pages import ROOT

PAGES = [path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
SHOWN = re.compile(r"^::: ([\w.]+)", re.MULTILINE)
MEMBERS = re.compile(r"^ +members: \[([\w, ]+)\]", re.MULTILINE)


def _targets() -> set[str]:
    return {target for page in PAGES for target in SHOWN.findall(page)}


def _exporting() -> list[str]:
    """The modules whose names the pages show, with those that say what they export."""
    found = {"pumphouse"} | {target.rpartition(".")[0] for target in _targets()}
    return sorted(name for name in found if hasattr(_module(name), "__all__"))


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None  # the class of a method


@pytest.mark.parametrize("name", _exporting())
def test_every_exported_name_is_in_the_reference(name: str) -> None:
    targets = _targets()
    shown = {target.rpartition(".")[2] for target in targets}
    for page in PAGES:
        for members in MEMBERS.findall(page):
            shown.update(members.split(", "))
    for target in targets:  # a whole module
        if (module := _module(target)) is not None:
            own = vars(module).items()
            shown |= {key for key, value in own if getattr(value, "__module__", "") == target}
    exported = set(importlib.import_module(name).__all__) - {"__version__"}
    assert exported <= shown, sorted(exported - shown)


def test_the_public_modules_are_among_them() -> None:
    assert {"pumphouse", "pumphouse.middleware", "pumphouse.testing"} <= set(_exporting())
