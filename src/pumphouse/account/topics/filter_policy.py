"""Filter policies: read, checked as AWS checks them, and compiled once into alternatives of keys.

A policy compiles to rules of which one has to hold; a rule is conditions on keys which all have to
hold. `$or` makes the alternatives. What a value must be is `patterns.py`'s, how a message is looked
at `matching.py`'s. The refusals are AWS's, with the column in the policy where its parser stood
("Amazon SNS subscription filter policies" and "Filter policy constraints" in the developer guide).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from pumphouse.account.topics import json_tokens as tokens
from pumphouse.account.topics.json_tokens import BadJsonError, Tokens, parse_json
from pumphouse.account.topics.matching import Clause, CompiledRule, MessageView, rule_holds
from pumphouse.account.topics.patterns import (
    TEXT_OPERATORS,
    BadPatternError,
    Check,
    Condition,
    Range,
    anything_but,
    checked_number,
    none_of,
    scaled,
    wildcard_stars,
)

ATTRIBUTES, BODY = "MessageAttributes", "MessageBody"
MAX_KEYS = 5
MAX_COMBINATIONS = 150
MAX_BYTES = 256 * 1024
MAX_WILDCARDS = 3
MAX_WILDCARD_POINTS = 100

Rule = list[tuple[tuple[str, ...], Condition]]

_NESTABLE = ("prefix", "suffix", "equals-ignore-case", "wildcard")
_KEYWORDS = frozenset({*TEXT_OPERATORS, "anything-but", "numeric", "exists"})


@dataclass(frozen=True, slots=True, eq=False)
class FilterPolicy:
    """A compiled policy; `text` is as it was set."""

    text: str
    scope: str
    rules: tuple[CompiledRule, ...]

    def accepts(self, message: MessageView) -> bool:
        """Whether a message passes."""
        values = message.body_values if self.scope == BODY else message.attribute_values
        if values is None:
            return False
        return any(rule_holds(rule, values) for rule in self.rules)


def compile_policy(text: str, scope: str) -> FilterPolicy:
    """A policy from its text. Raises `BadPatternError` with AWS's words for one that it refuses."""
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise BadPatternError("FilterPolicy: Filter policy is too large")
    try:
        value = parse_json(text)
    except BadJsonError as error:
        raise BadPatternError(f"FilterPolicy: failed to parse JSON. {error}") from None
    source = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        rules = _Compiler(source, value).rules()
    except BadPatternError as error:
        raise BadPatternError(f"FilterPolicy: {error}") from None
    if scope == ATTRIBUTES and any(len(path) > 1 for rule in rules for path, _ in rule):
        raise BadPatternError(
            "Filter policy scope MessageAttributes does not support nested filter policy"
        )
    _check_complexity(rules)
    return FilterPolicy(
        text,
        scope,
        tuple(
            tuple(
                Clause(".".join(path), condition.absent, condition.test())
                for path, condition in rule
            )
            for rule in rules
        ),
    )


def _check_complexity(rules: list[Rule]) -> None:
    if len({path[0] for rule in rules for path, _ in rule}) > MAX_KEYS:
        raise BadPatternError(f"FilterPolicy: Filter policy can not have more than {MAX_KEYS} keys")
    combinations = sum(prod(c.values * len(path) for path, c in rule) for rule in rules)
    if combinations > MAX_COMBINATIONS:
        raise BadPatternError("FilterPolicy: Filter policy is too complex")


class _Compiler:
    """Reads one policy."""

    def __init__(self, source: str, value: Any) -> None:
        self._tokens = Tokens(source)
        self._value = value
        self._wildcard_points = 0

    def rules(self) -> list[Rule]:
        if self._tokens.next() is not tokens.START_OBJECT:
            self._refuse("Filter is not an object")
        return self._object((), self._value)

    def _refuse(self, message: str) -> Any:
        here = self._tokens
        raise BadPatternError(
            f'{message}\n at [Source: (String)"{here.source}"; line: 1, column: {here.column}]'
        )

    # --- keys ---

    def _object(self, path: tuple[str, ...], value: dict[str, Any]) -> list[Rule]:
        """The rules of an object whose brace was read."""
        rules: list[Rule] = [[]]
        here = self._tokens
        empty = True
        while here.next() is not tokens.END_OBJECT:
            empty = False
            name = here.name
            kind = here.next()
            if name == "$or" and _is_or(value[name]):
                rules = _joined(rules, self._alternatives(path, value[name]))
            elif kind is tokens.START_OBJECT:
                rules = _joined(rules, self._object((*path, name), value[name]))
            elif kind is tokens.START_ARRAY:
                condition = self._condition()
                for rule in rules:
                    rule.append(((*path, name), condition))
            else:
                self._refuse(f'"{name}" must be an object or an array')
        if empty:
            self._refuse("Empty objects are not allowed")
        return rules

    def _alternatives(self, path: tuple[str, ...], choices: list[dict[str, Any]]) -> list[Rule]:
        rules: list[Rule] = []
        for choice in choices:
            self._tokens.next()
            rules += self._object(path, choice)
        self._tokens.next()
        return rules

    # --- values ---

    def _condition(self) -> Condition:
        """The alternatives of a key whose bracket was read."""
        found = Condition()
        here = self._tokens
        while (kind := here.next()) is not tokens.END_ARRAY:
            found.values += 1
            if kind is tokens.START_OBJECT:
                self._expression(found)
            elif kind is tokens.STRING:
                found.strings.add(here.text)
            elif kind is tokens.NUMBER:
                found.numbers.add(scaled(checked_number(here.text)))
            elif kind in (tokens.TRUE, tokens.FALSE, tokens.NULL):
                found.literals.add({tokens.TRUE: True, tokens.FALSE: False}.get(kind))
            else:
                self._refuse("Match value must be String, number, true, false, or null")
        if not found.values:
            self._refuse("Empty arrays are not allowed")
        return found

    def _expression(self, found: Condition) -> None:
        """One `{"operator": …}` whose brace was read."""
        here = self._tokens
        if here.next() is not tokens.NAME:
            self._refuse("Match expression name not found")
        operator = here.name
        if operator in TEXT_OPERATORS:
            found.checks.append(self._text_operator(operator))
        elif operator == "numeric":
            found.checks.append(self._numeric())
        elif operator == "anything-but":
            found.checks.append(self._anything_but())
        elif operator == "exists":
            kind = here.next()
            if kind not in (tokens.TRUE, tokens.FALSE):
                self._refuse("exists match pattern must be either true or false.")
            if kind is tokens.TRUE:
                found.present = True
            else:
                found.absent = True
        else:
            self._refuse(f"Unrecognized match type {operator}")
        if here.next() is not tokens.END_OBJECT:
            self._refuse("Only one key allowed in match expression")

    def _text_operator(self, operator: str) -> Check:
        if self._tokens.next() is not tokens.STRING:
            named = "prefix" if operator == "cidr" else operator  # AWS says prefix for both
            self._refuse(f"{named} match pattern must be a string")
        return self._text_check(operator, self._tokens.text)

    def _text_check(self, operator: str, text: str) -> Check:
        check = TEXT_OPERATORS[operator](text)
        if operator == "wildcard":
            stars = wildcard_stars(text)
            self._wildcard_points += stars if stars <= 1 else 3 * stars
            if stars > MAX_WILDCARDS or self._wildcard_points > MAX_WILDCARD_POINTS:
                raise BadPatternError(
                    "Rule is too complex - try using fewer wildcard characters or fewer repeating "
                    "character sequences after a wildcard character"
                )
        return check

    def _anything_but(self) -> Check:
        here = self._tokens
        kind = here.next()
        operator = ""
        if kind is tokens.START_OBJECT:
            if here.next() is not tokens.NAME:
                self._refuse("Anything-But expression name not found")
            operator = here.name
            if operator not in _NESTABLE:
                self._refuse(f"Unsupported anything-but pattern: {operator}")
            kind = here.next()
        strings: list[str] = []
        numbers: list[int | float] = []
        if kind is tokens.START_ARRAY:
            self._list(operator, strings, numbers)
        elif kind is tokens.STRING:
            strings.append(here.text)
        elif kind is tokens.NUMBER and not operator:
            numbers.append(checked_number(here.text))
        elif operator:
            self._refuse(f"{operator} match pattern must be a string")
        else:
            self._refuse("Value of anything-but must be an array or single string/number value.")
        if not operator:
            return anything_but(strings, numbers)
        if here.next() is not tokens.END_OBJECT:
            self._refuse("Only one key allowed in match expression")
        return none_of(self._text_check(operator, text) for text in strings)

    def _list(self, operator: str, strings: list[str], numbers: list[int | float]) -> None:
        """The values of an anything-but list whose bracket was read."""
        here = self._tokens
        while (kind := here.next()) is not tokens.END_ARRAY:
            if kind is tokens.STRING:
                strings.append(here.text)
            elif operator:
                self._refuse(f"{operator} match pattern must be a string")
            elif kind is tokens.NUMBER:
                numbers.append(checked_number(here.text))
            else:
                self._refuse("Inside anything but list, start|null|boolean is not supported.")
        if bool(strings) == bool(numbers):
            self._refuse(
                "Inside anything but list, either all values are number or string, "
                "mixed type is not supported"
            )

    def _numeric(self) -> Check:
        here = self._tokens
        if here.next() is not tokens.START_ARRAY:
            self._refuse("Value of numeric must be an array.")
        if here.next() is not tokens.STRING:
            self._refuse(f"Invalid member in numeric match: {here.text}")
        operator = here.text
        if operator in ("=", "<", "<="):
            number = self._number("equals" if operator == "=" else operator)
            if here.next() is not tokens.END_ARRAY:
                self._refuse("Too many elements in numeric expression")
            low = number if operator == "=" else None
            return Range(low, number, with_high=operator != "<")
        if operator not in (">", ">="):
            here.next()
            self._refuse(f"Unrecognized numeric range operator: {operator}")
        low, with_low = self._number(operator), operator == ">="
        kind = here.next()
        if kind is tokens.END_ARRAY:
            return Range(low, with_low=with_low)
        if kind is not tokens.STRING:
            self._refuse(f"Bad value in numeric range: {here.text}")
        operator = here.text
        if operator not in ("<", "<="):
            self._refuse(f"Bad numeric range operator: {operator}")
        high = self._number(operator)
        if here.next() is not tokens.END_ARRAY:
            self._refuse("Too many terms in numeric range expression")
        if low >= high:
            self._refuse("Bottom must be less than top")
        return Range(low, high, with_low, operator == "<=")

    def _number(self, operator: str) -> int:
        if self._tokens.next() is not tokens.NUMBER:
            self._refuse(f"Value of {operator} must be numeric")
        return scaled(checked_number(self._tokens.text))


def _is_or(value: Any) -> bool:
    """Whether what stands under `$or` are alternatives; otherwise it is a key like any other."""
    return (
        isinstance(value, list)
        and len(value) >= 2
        and all(isinstance(each, dict) and not (each.keys() & _KEYWORDS) for each in value)
    )


def _joined(rules: list[Rule], others: list[Rule]) -> list[Rule]:
    """Every rule with every other."""
    if len(rules) * len(others) > MAX_COMBINATIONS:
        raise BadPatternError("Filter policy is too complex")
    return [[*rule, *other] for rule in rules for other in others]
