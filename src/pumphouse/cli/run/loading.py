"""From `module:name` to the app, and to the folder that it lives in."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from pumphouse.app import App
from pumphouse.errors import PumphouseError, UsageError


def load(target: str, *, to_run: bool = True) -> App:
    """The app that `module:name` names; the name is `app` where none is given.

    Raises `UsageError` where there is none, or, `to_run`, where it has nothing to run; and
    whatever importing the module raises.
    """
    module_name, _, attribute = target.partition(":")
    if meant := _as_module(module_name):
        named = f"{meant}:{attribute}" if attribute else meant
        raise UsageError(f"an app is named by its module, not by a file: {named}, not {target}")
    if not module_name or module_name.startswith("."):
        raise UsageError(f"an app is named as module:name, service:app for example; not {target!r}")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        raise UsageError(f"there is no module {error.name!r} here or on the Python path") from None
    found: object = module
    for part in (attribute or "app").split("."):
        found = getattr(found, part, None)
    if not isinstance(found, App):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        there = [
            f"{module_name}:{name}" for name, each in vars(module).items() if isinstance(each, App)
        ]
        hint = f"; there is {', '.join(there[:5])}" if there else ""
        raise UsageError(
            f"{module_name}:{attribute or 'app'} is {what}, and no pumphouse App{hint}"
        )
    if to_run and not found.subscriptions:
        raise UsageError(f"{target} has no subscriber, so there is nothing to run")
    return found


def load_or_tell(
    target: str, tell: Callable[[Exception], object], *, to_run: bool = True
) -> App | None:
    """The app; None where its module raised, after `tell` was given the error.

    Raises `UsageError` where there is none.
    """
    try:
        return load(target, to_run=to_run)
    except PumphouseError:
        raise
    except Exception as error:
        tell(error)
        return None


def load_or_show(target: str) -> App | None:
    """An app to look at, not to run; None where its module raised, after its traceback was shown.

    Raises `UsageError` where there is none.
    """

    def show(error: Exception) -> None:
        traceback.print_exception(error)
        print(f"pumphouse: {target} can't be loaded", file=sys.stderr)

    return load_or_tell(target, show, to_run=False)


def _as_module(name: str) -> str:
    """The module that a file's path means, as a shell completes it; "" for a module's own name."""
    path = Path(name)
    if path.suffix != ".py" and len(path.parts) < 2 and os.sep not in name:
        return ""
    return ".".join(each for each in path.with_suffix("").parts if each not in ("/", ".", ".."))


def package_folder(target: str) -> str | None:
    """The folder of the loaded module's outermost package, or of the module itself."""
    name = target.partition(":")[0].partition(".")[0]
    path = getattr(sys.modules.get(name), "__file__", None)
    return str(Path(path).resolve().parent) if path else None
