"""Filter policies: AWS's verdicts, a slow reading of the same rules, and what is refused."""

from __future__ import annotations

import ipaddress
import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pumphouse.account.topics.filter_policy import compile_policy
from pumphouse.account.topics.matching import MessageView
from pumphouse.account.topics.patterns import BadPatternError
from pumphouse.protocol.operations import MessageAttributeValue
from support.filter_table import TABLE, Body, Row

ATTRIBUTES, BODY = "MessageAttributes", "MessageBody"


def test_the_table_is_long_and_even() -> None:
    assert len(TABLE) >= 150
    assert 0.3 < sum(row.passes for row in TABLE) / len(TABLE) < 0.7
    assert len({row.title for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.title)
def test_a_message_passes_or_does_not(row: Row) -> None:
    if isinstance(row.message, Body):
        policy = compile_policy(json.dumps(row.policy), BODY)
        view = MessageView(row.message.text, None)
    else:
        policy = compile_policy(json.dumps(row.policy), ATTRIBUTES)
        view = MessageView("a body", row.message)
    assert policy.accepts(view) is row.passes


@pytest.mark.parametrize(
    ("policy", "body", "passes"),
    [
        ({"a": [0]}, '{"a": NaN}', False),
        ({"a": [0]}, '{"a": -Infinity}', False),
        ({"a": ["x"]}, '{"a": "x", "b": NaN}', False),  # that is no JSON
        ({"a": [0]}, '{"a": 1e400}', False),
        ({"a": [{"numeric": ["<", 5]}]}, '{"a": 1e400}', False),
        ({"a": [{"numeric": [">", 5]}]}, '{"a": 1e400}', True),
        ({"a": [{"numeric": ["<", 5]}]}, '{"a": -1e400}', True),
        ({"a": [{"anything-but": [0]}]}, '{"a": 1e400}', True),
    ],
)
def test_numbers_beyond_all_bounds(policy: Any, body: str, passes: bool) -> None:
    assert compile_policy(json.dumps(policy), BODY).accepts(MessageView(body, None)) is passes


# --- a slow evaluator, word for word --------------------------------------------------------------


def slow(policy: dict[str, Any], body: dict[str, Any]) -> bool:
    """Whether a body passes, read from the policy every time: each key in turn, for each choice of
    an element from every array."""
    return any(_holds(policy, world, world, body, "") for world in _worlds(body))


def _worlds(value: Any) -> list[Any]:
    """The document once for each way to take one element of every array."""
    if isinstance(value, list):
        return [world for item in value for world in _worlds(item)] or [_NOTHING]
    if not isinstance(value, dict):
        return [value]
    worlds: list[dict[str, Any]] = [{}]
    for name, item in value.items():
        worlds = [world | {name: one} for world in worlds for one in _worlds(item)]
    return worlds


_NOTHING = object()


def _holds(policy: Any, here: Any, world: Any, body: Any, path: str) -> bool:
    for name, value in policy.items():
        if name == "$or" and isinstance(value, list) and len(value) > 1:
            if not any(_holds(each, here, world, body, path) for each in value):
                return False
            continue
        below = here.get(name, _NOTHING) if isinstance(here, dict) else _NOTHING
        full = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            if not _holds(value, below, world, body, full):
                return False
        elif isinstance(below, dict) or below is _NOTHING:
            if not ({"exists": False} in value and not _anywhere(body, full)):
                return False
        elif not any(_matches(each, below) for each in value):
            return False
    return True


def _anywhere(value: Any, path: str) -> bool:
    """Whether there is a value at a path, in any element of any array."""
    if isinstance(value, list):
        return any(_anywhere(item, path) for item in value)
    if not path:
        return not isinstance(value, dict)
    if not isinstance(value, dict):
        return False
    name, _, rest = path.partition(".")
    return name in value and _anywhere(value[name], rest)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _matches(pattern: Any, value: Any) -> bool:
    if not isinstance(pattern, dict):
        return _same(pattern, value)
    [(operator, operand)] = pattern.items()
    text = value if isinstance(value, str) else None
    if operator == "exists":
        return bool(operand)
    if operator == "prefix":
        return text is not None and text[: len(operand)] == operand
    if operator == "suffix":
        return text is not None and text[len(text) - len(operand) :] == operand
    if operator == "equals-ignore-case":
        return text is not None and text.lower() == operand.lower()
    if operator == "wildcard":
        return text is not None and _wild(operand, text)
    if operator == "cidr":
        try:
            return text is not None and ipaddress.ip_address(text) in ipaddress.ip_network(operand)
        except ValueError:
            return False
    if operator == "numeric":
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        pairs = zip(operand[::2], operand[1::2], strict=True)
        return all(_compare(value, how, limit) for how, limit in pairs)
    if isinstance(operand, dict):  # anything-but
        [(inner, texts)] = operand.items()
        texts = texts if isinstance(texts, list) else [texts]
        return not any(_matches({inner: each}, value) for each in texts)
    return not any(
        _same(each, value) for each in (operand if isinstance(operand, list) else [operand])
    )


def _wild(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return _wild(pattern[1:], text) or bool(text and _wild(pattern, text[1:]))
    return bool(text) and text[0] == pattern[0] and _wild(pattern[1:], text[1:])


def _compare(value: float, how: str, limit: float) -> bool:
    return {
        "=": value == limit,
        "<": value < limit,
        "<=": value <= limit,
        ">": value > limit,
        ">=": value >= limit,
    }[how]


_TEXTS = st.sampled_from(["", "a", "b", "ab", "ba", "A", "aab", "abb", "10.0.0.1", "10.0.1.1"])
_NUMBERS = st.sampled_from([-1, 0, 1, 2, 2.5, 100])
_SCALARS = st.one_of(_TEXTS, _NUMBERS, st.booleans(), st.none())
_NAMES = st.sampled_from(["p", "q", "r"])
_BODIES = st.dictionaries(
    _NAMES,
    st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
_PATTERNS = st.one_of(
    _SCALARS,
    st.builds(lambda text: {"prefix": text}, _TEXTS),
    st.builds(lambda text: {"suffix": text}, _TEXTS),
    st.builds(lambda text: {"equals-ignore-case": text}, _TEXTS),
    st.builds(lambda text: {"wildcard": text}, st.sampled_from(["*", "a*", "*b", "a*b", "*a*b*"])),
    st.builds(lambda flag: {"exists": flag}, st.booleans()),
    st.just({"cidr": "10.0.0.0/24"}),
    st.builds(
        lambda how, limit: {"numeric": [how, limit]},
        st.sampled_from(["=", "<", "<=", ">", ">="]),
        _NUMBERS,
    ),
    st.just({"numeric": [">", 0, "<=", 2]}),
    st.builds(lambda texts: {"anything-but": texts}, st.lists(_TEXTS, min_size=1, max_size=3)),
    st.builds(lambda these: {"anything-but": these}, st.lists(_NUMBERS, min_size=1, max_size=3)),
    st.builds(
        lambda inner, text: {"anything-but": {inner: text}},
        st.sampled_from(["prefix", "suffix", "equals-ignore-case"]),
        _TEXTS,
    ),
)
_CONDITIONS = st.lists(_PATTERNS, min_size=1, max_size=3)
_POLICIES = st.recursive(
    st.dictionaries(_NAMES, _CONDITIONS, min_size=1, max_size=2),
    lambda inner: (
        st.dictionaries(_NAMES, _CONDITIONS | inner, min_size=1, max_size=2)
        | st.builds(lambda one, two: {"$or": [one, two]}, inner, inner)
        | st.builds(lambda one, two, more: {**more, "$or": [one, two]}, inner, inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=60, deadline=None)
@given(_POLICIES, _BODIES)
def test_a_compiled_policy_says_what_the_slow_one_says(policy: Any, body: Any) -> None:
    try:
        compiled = compile_policy(json.dumps(policy), BODY)
    except BadPatternError as error:
        assert "too complex" in str(error) or "more than 5 keys" in str(error)  # noqa: PT017
        return
    assert compiled.accepts(MessageView(json.dumps(body), None)) is slow(policy, body)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(_NAMES, _CONDITIONS, min_size=1, max_size=3),
    st.dictionaries(
        _NAMES, st.one_of(_TEXTS.filter(bool), _NUMBERS, st.lists(_SCALARS)), max_size=3
    ),
)
def test_attributes_and_a_body_of_the_same_values_are_told_the_same(
    policy: Any, values: dict[str, Any]
) -> None:
    attributes = {}
    for name, value in values.items():
        if isinstance(value, list):
            attributes[name] = MessageAttributeValue("String.Array", json.dumps(value))
        elif isinstance(value, str):
            attributes[name] = MessageAttributeValue("String", value)
        else:
            attributes[name] = MessageAttributeValue("Number", str(value))
    text = json.dumps(policy)
    view = MessageView(json.dumps(values), attributes)
    assert compile_policy(text, ATTRIBUTES).accepts(view) is compile_policy(text, BODY).accepts(
        view
    )


# --- what is refused ----------------------------------------------------------------------------

_AT = '\n at [Source: (String)"{source}"; line: 1, column: {column}]'

REFUSED: list[tuple[Any, str, int]] = [
    ([1], "Filter is not an object", 2),
    ({}, "Empty objects are not allowed", 3),
    ({"key": {}}, "Empty objects are not allowed", 10),
    ({"key": "value"}, '"key" must be an object or an array', 9),
    ({"key": [{}]}, "Match expression name not found", 11),
    ({"key": [{"prefix": "a", "x": 1}]}, "Only one key allowed in match expression", 28),
    ({"key": [{"wildcard": 1}]}, "wildcard match pattern must be a string", 22),
    (
        {"key": [{"equals-ignore-case": []}]},
        "equals-ignore-case match pattern must be a string",
        32,
    ),
    ({"key": [{"numeric": 1}]}, "Value of numeric must be an array.", 21),
    ({"key": [{"exists": 1}]}, "exists match pattern must be either true or false.", 20),
    (
        {"key": [{"anything-but": {}}]},
        "Anything-But expression name not found",
        27,
    ),
    (
        {"key": [{"anything-but": {"exists": False}}]},
        "Unsupported anything-but pattern: exists",
        40,
    ),
    ({"key": [{"anything-but": {"prefix": 1}}]}, "prefix match pattern must be a string", 36),
    (
        {"key": [{"anything-but": True}]},
        "Value of anything-but must be an array or single string/number value.",
        29,
    ),
    (
        {"key": [{"anything-but": [True]}]},
        "Inside anything but list, start|null|boolean is not supported.",
        30,
    ),
    (
        {"key": [{"anything-but": ["a", 1]}]},
        "Inside anything but list, either all values are number or string, "
        "mixed type is not supported",
        32,
    ),
]


@pytest.mark.parametrize(("policy", "message", "column"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_policy_is_refused_where_its_fault_is(policy: Any, message: str, column: int) -> None:
    source = json.dumps(policy, separators=(",", ":"))
    with pytest.raises(BadPatternError) as raised:
        compile_policy(json.dumps(policy), ATTRIBUTES)
    assert str(raised.value) == f"FilterPolicy: {message}" + _AT.format(
        source=source, column=column
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"cidr": "10.0.0.0/32"}, "IPv4 mask bits must be < 32"),
        ({"cidr": "2001:db8::/128"}, "IPv6 mask bits must be < 128"),
        ({"cidr": "10.0.0.0/-1"}, "Malformed CIDR, mask bits must not be negative"),
        ({"cidr": "10.0.0.0/"}, "Malformed CIDR, one '/' required"),
        ({"cidr": "10.0.0.0/ 8"}, "Malformed CIDR, mask bits must be an integer"),
        ({"wildcard": "a**b"}, "Consecutive wildcard characters at pos 1"),
        ({"wildcard": "a\\b"}, "Invalid escape character at pos 1"),
        ({"wildcard": "*a*b*c*"}, "Rule is too complex"),
        ({"numeric": ["=", 1000000001]}, "Value must be between -1.0E9 and 1.0E9, inclusive"),
        (-1e10, "Value must be between -1.0E9 and 1.0E9, inclusive"),
    ],
)
def test_a_value_is_refused(value: Any, message: str) -> None:
    with pytest.raises(BadPatternError, match=message.replace("'", ".")):
        compile_policy(json.dumps({"key": [value]}), ATTRIBUTES)


def test_a_text_that_is_no_json_is_refused() -> None:
    for text in ("", "{", "{invalid}", '{"a": [1,]}', "nonsense", '{"a": NaN}', "[" * 100_000):
        with pytest.raises(BadPatternError, match="FilterPolicy: failed to parse JSON"):
            compile_policy(text, ATTRIBUTES)


def test_keys_are_counted() -> None:
    five = {f"k{number}": ["x"] for number in range(5)}
    compile_policy(json.dumps(five), ATTRIBUTES)
    with pytest.raises(BadPatternError, match="can not have more than 5 keys"):
        compile_policy(json.dumps(five | {"k5": ["x"]}), ATTRIBUTES)
    # of a nested policy the keys at the top count
    nested = {"k0": {name: ["x"] for name in "abcdef"}}
    compile_policy(json.dumps(nested), BODY)


def test_combinations_are_counted() -> None:
    def counted(**keys: int) -> str:
        return json.dumps({name: [f"v{n}" for n in range(count)] for name, count in keys.items()})

    compile_policy(counted(a=150), ATTRIBUTES)
    compile_policy(counted(a=10, b=15), ATTRIBUTES)
    for text in (counted(a=151), counted(a=100, b=2)):
        with pytest.raises(BadPatternError, match="Filter policy is too complex"):
            compile_policy(text, ATTRIBUTES)
    # the guide's example: 3 x 4 x 2 x 3 x 1 x 3 = 216
    nested = {"a": {"b": {"c": list("1234")}}, "d": {"e": list("123")}, "f": list("123")}
    with pytest.raises(BadPatternError, match="Filter policy is too complex"):
        compile_policy(json.dumps(nested), BODY)


def test_a_policy_of_many_alternatives_is_refused_soon() -> None:
    many = {"$or": [{"a": ["x"]}, {"b": ["x"]}]}
    for _ in range(9):
        many = {"c": ["x"], "$or": [many, {"d": ["y"], "$or": [many, many]}]}
    text = json.dumps(many)
    with pytest.raises(BadPatternError, match="Filter policy is too"):
        compile_policy(text, ATTRIBUTES)


def test_a_body_of_many_elements_is_soon_looked_through() -> None:
    policy = compile_policy(json.dumps({"r": {"a": {"x": ["1"], "y": ["1"]}}}), BODY)
    # a hundred arrays of a hundred elements, half with the one value and half with the other
    arrays = [[{"x": "1"} if n % 2 else {"y": "1"} for n in range(100)] for _ in range(100)]
    body: dict[str, Any] = {"r": [{"a": array} for array in arrays]}
    began = process_time()
    assert not policy.accepts(MessageView(json.dumps(body), None))
    body["r"][50]["a"].append({"x": "1", "y": "1"})
    assert policy.accepts(MessageView(json.dumps(body), None))
    assert process_time() - began < 5


def test_a_body_that_is_too_deep_passes_no_filter() -> None:
    policy = compile_policy(json.dumps({"k": [{"exists": False}]}), BODY)
    for depth, passes in ((90, True), (200, False), (50_000, False)):
        text = '{"a": ' * depth + "1" + "}" * depth
        assert policy.accepts(MessageView(text, None)) is passes
        text = '{"a": ' + "[" * depth + "1" + "]" * depth + "}"
        assert policy.accepts(MessageView(text, None)) is passes


def test_nesting_is_for_bodies() -> None:
    policy = json.dumps({"object": {"key": ["x"]}})
    compile_policy(policy, BODY)
    with pytest.raises(BadPatternError, match="does not support nested filter policy"):
        compile_policy(policy, ATTRIBUTES)


@settings(max_examples=60, deadline=None)
@given(st.recursive(_SCALARS, lambda i: st.lists(i) | st.dictionaries(st.text(max_size=3), i)))
def test_any_json_is_compiled_or_refused(value: Any) -> None:
    for scope in (ATTRIBUTES, BODY):
        try:
            compile_policy(json.dumps(value), scope)
        except BadPatternError as error:
            assert str(error)  # noqa: PT017


# --- texts of JSON ------------------------------------------------------------------------------

_PLACES = [
    '{{"a":[{0}]}}',
    '{{"a":[{{"numeric":["=",{0}]}}]}}',
    '{{"a":[{{"numeric":[">",{0}]}}]}}',
    '{{"a":[{{"anything-but":{0}}}]}}',
    '{{"a":[{{"anything-but":[{0}]}}]}}',
    '{{"a":[{0},{0}],"b":["x",{0}]}}',
]


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "1E+9999", "1000000000.1", "-1000000001", "1" + "0" * 400]
)
def test_a_number_that_is_too_large_in_any_notation(place: str, number: str) -> None:
    with pytest.raises(BadPatternError, match=r"must be between -1\.0E9 and 1\.0E9"):
        compile_policy(place.format(number), BODY)


@pytest.mark.parametrize("number", ["1E3", "1e+3", "1000", "1000.0", "0.1e4", "100000e-2"])
def test_a_number_in_any_notation(number: str) -> None:
    policy = compile_policy(_PLACES[0].format(number), BODY)
    for body in ('{"a":1000}', '{"a":1e3}', '{"a":1000.0}'):
        assert policy.accepts(MessageView(body, None))
    assert not policy.accepts(MessageView('{"a":1001}', None))


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*'{}[],:"0-.', "1e9", '"a"', '"numeric"', "true", "null", "NaN", "\\u00e9"]
        ),
        max_size=14,
    ).map("".join)
)
def test_any_text_is_taken_or_refused(text: str) -> None:
    for scope in (ATTRIBUTES, BODY):
        try:
            policy = compile_policy(text, scope)
        except BadPatternError:
            continue
        policy.accepts(MessageView('{"a": [1, "x", null]}', None))
