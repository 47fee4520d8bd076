"""How a message looks to filter policies, and whether a rule holds for it.

A view is made once for a publish and read by every subscription's policy. Message attributes are
values by name; a body, which has to be a JSON object, is flattened to values by dotted path. Values
that come out of an array know of which element: conditions on the elements of one array have to
hold for the same element.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from pumphouse.account.topics.patterns import Check, Value
from pumphouse.protocol.operations import Attributes

MAX_VALUES = 100_000
"""How many values of a body are looked at."""
MAX_DEPTH = 100
"""How deep a body may be nested; a deeper one passes no filter."""

Places = tuple[tuple[int, int], ...]
"""Which element of which array a value belongs to, from the outermost in."""


class Found(NamedTuple):
    """A value of a message, and its places in arrays."""

    value: Value
    places: Places = ()


Values = dict[str, list[Found]]


class MessageView:
    """A message as filter policies see it; each half is made when it is first asked for."""

    __slots__ = ("_attribute_values", "_attributes", "_body", "_body_values", "_read")

    def __init__(self, body: str, attributes: Attributes | None) -> None:
        self._body = body
        self._attributes = attributes
        self._attribute_values: Values | None = None
        self._body_values: Values | None = None
        self._read = False

    @property
    def attribute_values(self) -> Values:
        """The message attributes by name; Binary ones are passed over."""
        if self._attribute_values is None:
            self._attribute_values = {
                name: found
                for name, attribute in (self._attributes or {}).items()
                if (found := _of_attribute(attribute.data_type, attribute.string_value)) is not None
            }
        return self._attribute_values

    @property
    def body_values(self) -> Values | None:
        """The values of the body by path; None where it is no JSON object."""
        if not self._read:
            self._read = True
            self._body_values = _of_body(self._body)
        return self._body_values


def _no_json(name: str) -> Any:
    """`NaN` and `Infinity`, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is no JSON")


def _of_attribute(data_type: str, text: str | None) -> list[Found] | None:
    base, _, label = data_type.partition(".")
    if text is None or base == "Binary":
        return None
    if label == "Array":
        try:
            items = json.loads(text, parse_constant=_no_json)
        except (ValueError, RecursionError):
            return None
        if not isinstance(items, list):
            return None
        return [Found(item) for item in items if not isinstance(item, list | dict)]
    if base == "Number":
        try:
            number = float(text)
        except ValueError:
            return None
        return None if math.isnan(number) else [Found(number)]
    return [Found(text)]


def _of_body(body: str) -> Values | None:
    try:
        document = json.loads(body, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    values: Values = {}
    arrays = itertools.count()
    leaves = itertools.islice(_flattened(document, "", (), arrays, 0), MAX_VALUES)
    try:
        for path, found in leaves:
            values.setdefault(path, []).append(found)
    except _TooDeepError:
        return None
    return values


class _TooDeepError(Exception):
    """A body is nested deeper than is looked at."""


def _flattened(
    value: Any, path: str, places: Places, arrays: Iterator[int], depth: int
) -> Iterator[tuple[str, Found]]:
    """The leaves of a document; `arrays` numbers its arrays."""
    if depth > MAX_DEPTH:
        raise _TooDeepError
    if isinstance(value, dict):
        for name, item in value.items():
            inside = f"{path}.{name}" if path else name
            yield from _flattened(item, inside, places, arrays, depth + 1)
    elif isinstance(value, list):
        array = next(arrays)
        for index, item in enumerate(value):
            yield from _flattened(item, path, (*places, (array, index)), arrays, depth + 1)
    else:
        yield path, Found(value, places)


# --- rules --------------------------------------------------------------------------------------


class Clause(NamedTuple):
    """One condition of a rule: where its values are, whether there may be none, and what one of
    them has to satisfy."""

    path: str
    may_be_absent: bool
    test: Check


CompiledRule = tuple[Clause, ...]


def rule_holds(rule: CompiledRule, values: Values) -> bool:
    """Whether every condition of a rule holds, in arrays for the same elements."""
    placed: list[set[Places]] = []
    for path, may_be_absent, test in rule:
        found = values.get(path)
        if not found:
            if not may_be_absent:
                return False
            continue
        places: set[Places] = set()
        for value, where in found:
            if test(value):
                if not where:
                    break
                places.add(where)
        else:
            if not places:
                return False
            placed.append(places)
    return len(placed) < 2 or _fit_together(placed)


class _Element:
    """An element of an array, or the whole body: which conditions hold right here (as bits), and
    the arrays within it with their elements."""

    __slots__ = ("arrays", "holds")

    def __init__(self) -> None:
        self.holds = 0
        self.arrays: dict[int, dict[int, _Element]] = {}

    def reachable(self) -> set[int]:
        """The conditions that hold together, for each choice of an element from every array."""
        found = {self.holds}
        for elements in self.arrays.values():
            choices = {each for element in elements.values() for each in element.reachable()}
            found |= {one | other for one in found for other in choices}
        return found


def _fit_together(conditions: list[set[Places]]) -> bool:
    """Whether one place of each condition can be chosen so that no array has two elements."""
    body = _Element()
    for number, places in enumerate(conditions):
        for path in places:
            element = body
            for array, index in path:
                elements = element.arrays.setdefault(array, {})
                element = elements.get(index) or elements.setdefault(index, _Element())
            element.holds |= 1 << number
    return (1 << len(conditions)) - 1 in body.reachable()
