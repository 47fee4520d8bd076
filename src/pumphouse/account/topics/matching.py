"""How a message looks to filter policies, and whether a rule holds for it.

A view is made once for a publish and read by every subscription's policy. Message attributes are
values by name; a body, which has to be a JSON object, is flattened to values by dotted path. Values
that come out of an array know of which element: conditions on the elements of one array have to
hold for the same element.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from pumphouse.account.topics.patterns import Check, Value
from pumphouse.protocol.operations import Attributes

MAX_VALUES = 100_000
"""How many values of a body are looked at."""

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


def _of_attribute(data_type: str, text: str | None) -> list[Found] | None:
    base, _, label = data_type.partition(".")
    if text is None or base == "Binary":
        return None
    if label == "Array":
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(items, list):
            return None
        return [Found(item) for item in items if not isinstance(item, list | dict)]
    if base == "Number":
        try:
            return [Found(float(text))]
        except ValueError:
            return None
    return [Found(text)]


def _of_body(body: str) -> Values | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    values: Values = {}
    arrays = iter(range(MAX_VALUES))
    for number, (path, found) in enumerate(_flattened(document, "", (), arrays)):
        if number >= MAX_VALUES:
            break
        values.setdefault(path, []).append(found)
    return values


def _flattened(
    value: Any, path: str, places: Places, arrays: Iterator[int]
) -> Iterator[tuple[str, Found]]:
    """The leaves of a document; depth is bounded by the parser's."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flattened(item, f"{path}.{name}" if path else name, places, arrays)
    elif isinstance(value, list):
        array = next(arrays, 0)
        for index, item in enumerate(value):
            yield from _flattened(item, path, (*places, (array, index)), arrays)
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


def _fit_together(conditions: list[set[Places]]) -> bool:
    """Whether one place of each condition can be chosen so that no array has two elements."""
    shared = Counter(
        array for places in conditions for array in {array for each in places for array, _ in each}
    )
    # An array that one condition alone looks into can't be in the way.
    needed = [
        {frozenset(pair for pair in each if shared[pair[0]] > 1) for each in places}
        for places in conditions
    ]
    chosen: set[frozenset[tuple[int, int]]] = {frozenset()}
    for places in sorted(needed, key=len):
        if frozenset() in places:
            continue
        chosen = {one | other for one in chosen for other in places if _is_consistent(one | other)}
        if not chosen:
            return False
    return True


def _is_consistent(places: frozenset[tuple[int, int]]) -> bool:
    return len({array for array, _ in places}) == len(places)
