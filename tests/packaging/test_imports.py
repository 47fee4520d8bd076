"""What importing the library brings along, and what it must not."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import pumphouse
from pumphouse import Account, VirtualClock

SOURCE = Path(pumphouse.__file__).parent
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(SOURCE)], "pumphouse."))


@cache
def loaded_by(statement: str) -> frozenset[str]:
    """The modules that a fresh interpreter has loaded after one statement."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return frozenset(done.stdout.split())


def packages(modules: frozenset[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_importing_pumphouse_loads_next_to_nothing() -> None:
    loaded = loaded_by("import pumphouse")
    assert {module for module in loaded if module.startswith("pumphouse")} == {"pumphouse"}
    assert not packages(loaded) - {"pumphouse"} - set(sys.stdlib_module_names)
    assert "asyncio" not in loaded


@pytest.mark.parametrize(
    "unwanted", ["botocore", "boto3", "pumphouse.account", "pumphouse.server", "pumphouse.testing"]
)
def test_importing_pumphouse_does_not_load(unwanted: str) -> None:
    assert unwanted not in loaded_by("import pumphouse")


@pytest.mark.parametrize("name", sorted(set(pumphouse.__all__) - {"__version__"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pumphouse, name).__name__ == name
    assert name in dir(pumphouse)


def test_every_public_name_is_known_to_type_checkers() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guarded = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    typed = {
        alias.asname or alias.name
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert typed == set(pumphouse.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pumphouse.nonsense  # noqa: B018


def test_the_public_names_do_not_load_botocore() -> None:
    names = ", ".join(sorted(set(pumphouse.__all__) - {"__version__"}))
    assert not packages(loaded_by(f"from pumphouse import {names}")) & {
        "botocore",
        "boto3",
        "click",
        "rich",
        "uvicorn",
        "pytest",
        "hypothesis",
    }


@pytest.mark.parametrize("module", MODULES)
def test_every_module_imports_without_the_tools_of_the_tests(module: str) -> None:
    """Only a pytest plugin may import pytest, and nothing may import hypothesis or boto3."""
    imported, _ = _read(module)
    tools = {"hypothesis", "boto3", "moto", "pytest"}
    if module == "pumphouse.pytest_plugin":
        tools.discard("pytest")
    assert not imported & tools


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    _, docstring = _read(module)
    assert docstring, f"{module} has no docstring"


def test_the_pytest_plugin_loads_nothing_until_a_fixture_is_used() -> None:
    loaded = loaded_by("import pumphouse.pytest_plugin")
    ours = {module for module in loaded if module.startswith("pumphouse")}
    assert ours == {"pumphouse", "pumphouse.pytest_plugin"}


def test_the_fixtures_of_the_plugin(virtual_clock: VirtualClock, sqs_account: Account) -> None:
    assert sqs_account.clock is virtual_clock
    assert sqs_account.queues == []


def test_the_command_prints_its_help_without_loading_the_rest() -> None:
    loaded = loaded_by("import pumphouse.cli.command")
    assert not {module for module in loaded if module.startswith("pumphouse.account")}
    assert not packages(loaded) & {"asyncio", "botocore", "httptools", "rich", "uvicorn"}


def test_a_worker_process_loads_neither_the_command_line_nor_the_account() -> None:
    loaded = loaded_by("import pumphouse.cli.run.worker")
    assert "pumphouse.account" not in loaded
    assert not packages(loaded) & {"botocore", "click", "pydantic", "rich", "uvicorn"}


@cache
def _read(module: str) -> tuple[set[str], str | None]:
    """The packages that a module imports, and its docstring."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text())
    names = (name for node in ast.walk(tree) for name in _imported_names(node))
    return {name.partition(".")[0] for name in names}, ast.get_docstring(tree)


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []
