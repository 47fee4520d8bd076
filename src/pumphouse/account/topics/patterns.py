"""What a filter policy asks of one value, compiled: exact values as sets, the rest as functions.

The operators are those of "Amazon SNS subscription filter policies" in the developer guide. A value
is text, a number, true, false or null; an operator on text holds for nothing else. Numbers are
compared with five digits after the decimal point.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Value = str | int | float | bool | None
Check = Callable[[Value], bool]

MAX_NUMBER = 1e9
DIGITS = 5
_SCALE = 100_000  # ten to the power of DIGITS
_BEYOND = 10**400 * _SCALE


class BadPatternError(Exception):
    """A pattern that the service refuses, in its words."""


@dataclass(slots=True)
class Condition:
    """The alternatives of one key. It holds where any of them does."""

    strings: set[str] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    literals: set[Value] = field(default_factory=set)
    checks: list[Check] = field(default_factory=list)
    present: bool = False  # {"exists": true}
    absent: bool = False  # {"exists": false}
    values: int = 0
    """How many alternatives there are."""

    def test(self) -> Check:
        """Whether a value that is there satisfies it, as one function."""
        if self.present:
            return _any_value
        if not self.checks and not self.numbers and not self.literals:
            return frozenset(self.strings).__contains__
        if len(self.checks) == 1 and not (self.strings or self.numbers or self.literals):
            return self.checks[0]
        return self.holds

    def holds(self, value: Value) -> bool:
        """Whether a value that is there satisfies it."""
        if self.present:
            return True
        if isinstance(value, str):
            if value in self.strings:
                return True
        elif value is None or isinstance(value, bool):
            if any(value is literal for literal in self.literals):
                return True
        elif self.numbers and scaled(value) in self.numbers:
            return True
        return any(check(value) for check in self.checks)


def _any_value(value: Value) -> bool:
    return True


def scaled(number: float) -> int:
    """A number in units of its last digit that counts."""
    if isinstance(number, int):
        return number * _SCALE
    if math.isfinite(number):
        return round(number * _SCALE)
    return _BEYOND if number > 0 else -_BEYOND  # 1e400 in a body: larger than all, equal to none


def checked_number(text: str) -> int | float:
    """A number of a policy. Raises `BadPatternError` for one that is out of range."""
    number: int | float
    try:
        number = int(text)
    except ValueError:
        number = float(text)
    if not -MAX_NUMBER <= number <= MAX_NUMBER:
        raise BadPatternError("Value must be between -1.0E9 and 1.0E9, inclusive")
    return number


# --- operators ----------------------------------------------------------------------------------


def prefix(text: str) -> Check:
    return lambda value: isinstance(value, str) and value.startswith(text)


def suffix(text: str) -> Check:
    return lambda value: isinstance(value, str) and value.endswith(text)


def equals_ignore_case(text: str) -> Check:
    folded = text.casefold()
    return lambda value: isinstance(value, str) and value.casefold() == folded


def wildcard(text: str) -> Check:
    """`*` stands for any text; a backslash before `*` or another backslash takes its meaning."""
    parts = _wildcard_parts(text)
    if len(parts) == 1:
        return lambda value: value == parts[0]
    first, *middle, last = parts

    def check(value: Value) -> bool:
        if not isinstance(value, str) or len(value) < len(first) + len(last):
            return False
        if not (value.startswith(first) and value.endswith(last)):
            return False
        at, end = len(first), len(value) - len(last)
        for part in middle:
            at = value.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return check


def _wildcard_parts(text: str) -> list[str]:
    """The texts between the stars."""
    parts = [""]
    characters = iter(enumerate(text))
    before = -2  # where the last star was
    for position, character in characters:
        if character == "*":
            if before == position - 1:
                raise BadPatternError(f"Consecutive wildcard characters at pos {before}")
            before = position
            parts.append("")
            continue
        if character == "\\":
            _, character = next(characters, (0, ""))
            if character not in ("*", "\\"):
                raise BadPatternError(f"Invalid escape character at pos {position}")
        parts[-1] += character
    return parts


def wildcard_stars(text: str) -> int:
    """How many stars of a pattern stand for something."""
    return len(_wildcard_parts(text)) - 1


def cidr(text: str) -> Check:
    """Addresses of a network, IPv4 or IPv6."""
    parts = text.split("/")
    if len(parts) != 2 or not parts[1]:
        raise BadPatternError("Malformed CIDR, one '/' required")
    address, mask = parts
    try:
        bits = int(mask) if mask.isascii() and " " not in mask and "_" not in mask else None
    except ValueError:
        bits = None
    if bits is None:
        raise BadPatternError("Malformed CIDR, mask bits must be an integer")
    if bits < 0:
        raise BadPatternError("Malformed CIDR, mask bits must not be negative")
    try:
        parsed = ipaddress.ip_address(address if "%" not in address else "")
    except ValueError:
        raise BadPatternError(f"Nonstandard IP address: {address}") from None
    if bits >= parsed.max_prefixlen:
        raise BadPatternError(f"IPv{parsed.version} mask bits must be < {parsed.max_prefixlen}")
    network = ipaddress.ip_network(f"{address}/{bits}", strict=False)

    def check(value: Value) -> bool:
        if not isinstance(value, str):
            return False
        try:
            return ipaddress.ip_address(value) in network
        except ValueError:
            return False

    return check


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two; an end of None is open to infinity."""

    low: int | None = None
    high: int | None = None
    with_low: bool = True
    with_high: bool = True

    def __call__(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        number = scaled(value)
        return (
            self.low is None or number > self.low or (self.with_low and number == self.low)
        ) and (self.high is None or number < self.high or (self.with_high and number == self.high))


def anything_but(strings: Iterable[str], numbers: Iterable[int | float]) -> Check:
    """Every text and number but these; true, false and null too."""
    texts = frozenset(strings)
    others = frozenset(scaled(number) for number in numbers)

    def check(value: Value) -> bool:
        if isinstance(value, str):
            return value not in texts
        if value is None or isinstance(value, bool):
            return True
        return scaled(value) not in others

    return check


def none_of(checks: Iterable[Check]) -> Check:
    """What satisfies none of some checks of texts."""
    refused = tuple(checks)
    return lambda value: not any(check(value) for check in refused)


TEXT_OPERATORS: dict[str, Callable[[str], Check]] = {
    "prefix": prefix,
    "suffix": suffix,
    "equals-ignore-case": equals_ignore_case,
    "wildcard": wildcard,
    "cidr": cidr,
}
"""The operators on a text, by their names in policies."""
