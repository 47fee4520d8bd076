"""Options are checked where they are given: one way to say what an option is, and what it is not.

Each raises `UsageError`, whatever the value is; `where` begins its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pumphouse.errors import UsageError


def check_whole(where: str, option: str, value: object, low: int, high: int) -> None:
    """A whole number of a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{where}{option} is {value!r}; it is a whole number, {low} to {high:,}")


def check_number(where: str, option: str, value: object, low: float, high: float) -> None:
    """A number of a range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"{where}{option} is {value!r}; it is a number, {low:g} to {high:,}")


def check_choice(where: str, option: str, value: object, choices: Sequence[str]) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{where}{option} is one of {', '.join(choices)}; not {value!r}")


def check_switch(where: str, option: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{where}{option} is True or False, not {value!r}")


def check_texts(where: str, option: str, value: Any) -> None:
    """A mapping of texts to texts."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}{option} is {value!r}; it is a mapping of text to text")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError(f"{where}{option} are text to text; {name!r}: {text!r} is not")
