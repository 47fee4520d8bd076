"""Every test that `docs/sink-reference.md` names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "sink-reference.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    for file in {file for file, _ in named}:
        functions = {
            node.name
            for node in ast.parse((ROOT / "tests" / file).read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for name in (name for of, name in named if of == file):
            assert name in functions, f"{file} has no {name}"
