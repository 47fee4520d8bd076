"""Pairs of a filter policy and a message, each with AWS's verdict.

They are taken from what the developer guide says of each operator: "Key matching", "String value
matching", "Numeric value matching", "IP address matching", "AND and OR logic", "Filter policy
scope". A row is the section, the policy, the message, and whether it passes. Policies under `k` are
given as the list alone. Messages are message attributes (`S`, `N`, `A`, `B`) or, as `Body`, JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from pumphouse.protocol.operations import MessageAttributeValue

Attribute = MessageAttributeValue


@dataclass(frozen=True)
class Body:
    """A message of this body, filtered by it; text is taken as it is."""

    value: Any

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


def S(text: str) -> Attribute:  # noqa: N802
    return Attribute("String", text)


def N(text: str) -> Attribute:  # noqa: N802
    return Attribute("Number", text)


def A(*items: Any) -> Attribute:  # noqa: N802
    return Attribute("String.Array", json.dumps(items))


B = Attribute("Binary", binary_value=b"rugby")


class Row(NamedTuple):
    section: str
    policy: Any
    message: Any
    passes: bool

    @property
    def title(self) -> str:
        message = f"body {self.message.text}" if isinstance(self.message, Body) else self.message
        return f"{self.section}: {json.dumps(self.policy)} {message} {self.passes}"


def _rows(section: str, policy: Any, passing: list[Any], refused: list[Any]) -> list[Row]:
    """Under the key `k`: attributes by their values, bodies by theirs."""
    full = {"k": policy} if isinstance(policy, list) else policy

    def message(value: Any) -> Any:
        if value is None:
            return {}
        return {"k": value} if isinstance(value, Attribute) else value

    return [Row(section, full, message(each), True) for each in passing] + [
        Row(section, full, message(each), False) for each in refused
    ]


def K(value: Any) -> Body:  # noqa: N802
    """A body with this value under `k`."""
    return Body({"k": value})


TABLE: list[Row] = [
    # --- String value matching ---
    *_rows(
        "exact",
        ["rugby", "tennis"],
        [
            S("rugby"),
            S("tennis"),
            A("rugby", "tennis"),
            A("golf", "rugby"),
            K("rugby"),
            K("tennis"),
        ],
        [
            S("baseball"),
            A("baseball"),
            S("Rugby"),
            S("rugby "),
            S(""),
            N("1"),
            B,
            None,
            K("baseball"),
            K("RUGBY"),
            K(1),
            K(None),
            K({"rugby": 1}),
            Body({}),
            Body({"l": "rugby"}),
        ],
    ),
    *_rows(
        "exact in an array",
        ["rugby"],
        [K(["rugby"]), K(["golf", "rugby"]), K([["rugby"]])],
        [K([]), K(["golf"]), K([{"rugby": "rugby"}])],
    ),
    *_rows(
        "prefix",
        [{"prefix": "bas"}],
        [S("baseball"), S("basketball"), S("bas"), A("rugby", "baseball"), K("baseball")],
        [S("rugby"), S("Baseball"), S("ba"), S("abas"), N("1"), K("rugby"), K(1), K(None), None],
    ),
    *_rows("prefix of nothing", [{"prefix": ""}], [S("any"), K("any"), K("")], [K(1), None]),
    *_rows(
        "suffix",
        [{"suffix": "ball"}],
        [S("baseball"), S("ball"), A("rugby", "football"), K("basketball")],
        [S("rugby"), S("Ball"), S("balls"), S("all"), K("rugby"), K(1), None],
    ),
    *_rows(
        "equals-ignore-case",
        [{"equals-ignore-case": "tennis"}],
        [S("tennis"), S("Tennis"), S("TENNIS"), A("golf", "TenNis"), K("tEnnis")],
        [S("tenni"), S("tennis "), S("rugby"), K("rugby"), K(1), None],
    ),
    *_rows(
        "wildcard",
        [{"wildcard": "*ball"}],
        [S("baseball"), S("ball"), S("**ball"), K("football")],
        [S("balls"), S("rugby"), K("bal"), K(1), None],
    ),
    *_rows(
        "wildcard in the middle",
        [{"wildcard": "dir/*/src/*.js"}],
        [S("dir/a/src/b.js"), S("dir//src/.js"), K("dir/a/b/src/src/c.js")],
        [S("dir/src/b.js"), S("dir/a/src/b.ts"), S("xdir/a/src/b.js"), S("dir/a/src/b.js ")],
    ),
    *_rows(
        "wildcard and backslashes",
        [{"wildcard": "a\\*b\\\\*"}],
        [S("a*b\\"), S("a*b\\more")],
        [S("axb\\"), S("a*b"), S("a\\*b\\")],
    ),
    *_rows("wildcard alone", [{"wildcard": "*"}], [S("x"), K("")], [K(1), K(None), None]),
    *_rows("wildcard without a star", [{"wildcard": "x"}], [S("x")], [S("xx"), S("")]),
    # --- anything-but ---
    *_rows(
        "anything-but a list",
        [{"anything-but": ["rugby", "tennis"]}],
        [S("baseball"), S("football"), A("rugby", "baseball"), K("football"), K(["rugby", "golf"])],
        [S("rugby"), S("tennis"), A("rugby"), A("rugby", "tennis"), K("rugby"), K(["rugby"]), None],
    ),
    *_rows(
        "anything-but one",
        [{"anything-but": "rugby"}],
        [S("tennis"), S("Rugby"), N("1"), K(1), K(True), K(None)],
        [S("rugby"), K("rugby"), K([]), None],
    ),
    *_rows(
        "anything-but a prefix",
        [{"anything-but": {"prefix": "order-"}}],
        [S("data-entry"), S("order_number"), A("order-1", "data"), K("data-entry")],
        [S("order-cancelled"), S("order-"), A("order-1", "order-2"), K("order-x"), None],
    ),
    *_rows(
        "anything-but prefixes",
        [{"anything-but": {"prefix": ["order-", "pay-"]}}],
        [S("data-entry"), K("data")],
        [S("order-x"), S("pay-x"), K("pay-1")],
    ),
    *_rows(
        "anything-but a suffix",
        [{"anything-but": {"suffix": ".tmp"}}],
        [S("a.txt"), S("tmp"), K("a.TMP")],
        [S("a.tmp"), S(".tmp"), K("b.tmp"), None],
    ),
    *_rows(
        "anything-but equals-ignore-case",
        [{"anything-but": {"equals-ignore-case": ["TENNIS", "rugby"]}}],
        [S("golf"), S("tenni"), K("golf")],
        [S("tennis"), S("Rugby"), K("TeNNis"), None],
    ),
    *_rows(
        "anything-but a wildcard",
        [{"anything-but": {"wildcard": "*ball"}}],
        [S("rugby"), S("balls"), K("rugby")],
        [S("baseball"), S("ball"), K("football"), None],
    ),
    *_rows(
        "anything-but numbers",
        [{"anything-but": [100, 500]}],
        [N("101"), N("100.1"), K(101), K([100, 50]), S("100")],
        [N("100"), N("500.0"), N("1e2"), K(100), K([100]), K([]), None],
    ),
    *_rows(
        "anything-but or absent",
        [{"anything-but": ["rugby"]}, {"exists": False}],
        [S("golf"), None, Body({})],
        [S("rugby"), K("rugby")],
    ),
    # --- Numeric value matching ---
    *_rows(
        "numeric equals",
        [{"numeric": ["=", 301.5]}],
        [N("301.5"), N("3.015e2"), N("301.50"), K(301.5), Body('{"k": 3.015e2}')],
        [N("301.4"), N("301"), S("301.5"), K(301), K("301.5"), K(True), K(None), None],
    ),
    *_rows(
        "numeric below",
        [{"numeric": ["<", 0]}],
        [N("-1"), N("-0.00001"), K(-10)],
        [N("0"), N("5"), S("-1"), K(0), None],
    ),
    *_rows(
        "numeric up to",
        [{"numeric": ["<=", 10]}],
        [N("10"), N("10.0"), N("-5"), K(10)],
        [N("10.00001"), N("11"), K(10.5)],
    ),
    *_rows(
        "numeric above",
        [{"numeric": [">", 5]}],
        [N("6"), N("5.00001"), K(6)],
        [N("5"), N("4"), K(5)],
    ),
    *_rows("numeric from", [{"numeric": [">=", 5]}], [N("5"), K(5.0)], [N("4.99999"), K(-5)]),
    *_rows(
        "numeric range",
        [{"numeric": [">", 0, "<=", 150]}],
        [N("150"), N("0.1"), N("75"), K(150), A(200, 20)],
        [N("0"), N("151"), N("-1"), K(0), K("75"), A(200)],
    ),
    *_rows(
        "numeric ranges",
        [{"numeric": ["<", 1]}, {"numeric": [">=", 5, "<", 6]}, 3],
        [N("0"), N("5"), N("5.9"), N("3"), K(3.0)],
        [N("1"), N("6"), N("4"), K(2)],
    ),
    *_rows(
        "exact numbers",
        [100, 2.5],
        [N("100"), N("1e2"), N("2.5"), A(100), K(100.0)],
        [N("101"), S("100"), K("100"), K([2]), None],
    ),
    *_rows(
        "five digits after the point",
        [{"numeric": ["=", 1.00001]}],
        [N("1.00001"), N("1.000010"), K(1.00001)],
        [N("1.00002"), N("1"), K(1.0001)],
    ),
    # --- true, false, null ---
    *_rows(
        "true", [True], [A(True), A("x", True), K(True)], [S("true"), A(False), K(1), K("true")]
    ),
    *_rows("false", [False], [A(False), K(False)], [S("false"), N("0"), K(0), K(None), None]),
    *_rows("null", [None], [A(None), K(None)], [S("null"), K("null"), K(0), None, Body({})]),
    # --- Key matching ---
    *_rows(
        "exists",
        [{"exists": True}],
        [S("x"), N("1"), A("x"), K("x"), K(0), K(False), K(None), K("")],
        [None, B, A(), Body({}), K([]), K({"l": "x"})],
    ),
    *_rows(
        "exists not",
        [{"exists": False}],
        [None, B, Body({"l": 1}), K([]), K({"l": "x"})],
        [S("x"), N("1"), K("x"), K(None), K([1])],
    ),
    # --- IP address matching ---
    *_rows(
        "cidr",
        [{"cidr": "10.0.0.0/24"}],
        [S("10.0.0.0"), S("10.0.0.255"), A("1.1.1.1", "10.0.0.7"), K("10.0.0.1")],
        [S("10.1.1.0"), S("10.0.1.0"), S("no address"), S("10.0.0"), N("10"), K("::1"), None],
    ),
    *_rows(
        "cidr of version 6",
        [{"cidr": "2001:db8::/32"}],
        [S("2001:db8::1"), S("2001:0db8:0000::ff"), K("2001:db8:ffff::")],
        [S("2001:db9::1"), S("10.0.0.1"), K("2001:dc8::")],
    ),
    # --- OR logic in a list, AND logic between keys ---
    *_rows(
        "or in a list",
        ["golf", {"prefix": "bas"}, {"suffix": "ing"}, {"numeric": [">", 5]}],
        [S("golf"), S("baseball"), S("running"), N("6")],
        [S("rugby"), N("5"), None],
    ),
    *[
        Row(
            "and between keys", {"store": ["corp"], "event": [{"anything-but": "cancelled"}]}, m, ok
        )
        for m, ok in (
            ({"store": S("corp"), "event": S("placed")}, True),
            ({"store": S("corp"), "event": S("placed"), "other": S("x")}, True),
            ({"store": S("corp"), "event": S("cancelled")}, False),
            ({"store": S("shop"), "event": S("placed")}, False),
            ({"store": S("corp")}, False),
            ({}, False),
            (Body({"store": "corp", "event": "placed"}), True),
            (Body({"store": "corp", "event": "cancelled"}), False),
        )
    ],
    # --- the OR operator ---
    *[
        Row(
            "$or",
            {"source": ["cloudwatch"], "$or": [{"metric": ["cpu"]}, {"space": ["ec2", "es"]}]},
            m,
            ok,
        )
        for m, ok in (
            ({"source": S("cloudwatch"), "metric": S("cpu")}, True),
            ({"source": S("cloudwatch"), "space": S("es")}, True),
            ({"source": S("cloudwatch"), "space": S("s3"), "metric": S("cpu")}, True),
            ({"source": S("cloudwatch")}, False),
            ({"source": S("cloudwatch"), "space": S("s3")}, False),
            ({"source": S("other"), "metric": S("cpu")}, False),
            (Body({"source": "cloudwatch", "metric": "cpu"}), True),
            (Body({"source": "cloudwatch", "space": "ec2"}), True),
            (Body({"source": "cloudwatch", "metric": "mem"}), False),
        )
    ],
    *[
        Row(
            "$or within",
            {
                "$or": [{"metric": ["cpu", "read"]}, {"space": ["ec2"]}],
                "detail": {
                    "scope": ["Service"],
                    "$or": [{"source": ["cloudwatch"]}, {"type": ["alarm"]}],
                },
            },
            Body(m),
            ok,
        )
        for m, ok in (
            ({"metric": "cpu", "detail": {"scope": "Service", "source": "cloudwatch"}}, True),
            ({"metric": "read", "detail": {"scope": "Service", "type": "alarm"}}, True),
            ({"space": "ec2", "detail": {"scope": "Service", "type": "alarm"}}, True),
            ({"metric": "cpu", "detail": {"scope": "cloudwatch", "type": "alarm"}}, False),
            ({"metric": "cpu", "detail": {"scope": "Service", "type": "cpu"}}, False),
            ({"metric": "cpu", "detail": {"type": "alarm"}}, False),
            ({"metric": "cpu", "detail": {"scope": "Service"}}, False),
            ({"metric": "cpu", "scope": "Service"}, False),
        )
    ],
    # What stands under $or is a key like any other where it is no list of two objects.
    Row("$or as a key", {"$or": ["x", "y"]}, {"$or": S("x")}, True),
    Row("$or as a key", {"$or": ["x", "y"]}, {"k": S("x")}, False),
    Row("$or as a key", {"$or": [{"prefix": "a"}, {"prefix": "b"}]}, Body({"$or": "ab"}), True),
    Row("$or as a key", {"$or": [{"prefix": "a"}, {"prefix": "b"}]}, Body({"$or": "x"}), False),
    # --- the body ---
    *[
        Row("nested", {"object": {"key": [{"prefix": "auto-"}]}}, Body(m), ok)
        for m, ok in (
            ({"object": {"key": "auto-1"}}, True),
            ({"object": {"key": "home-1"}}, False),
            ({"object": {"other": "auto-1"}}, False),
            ({"object": "auto-1"}, False),
            ({"key": "auto-1"}, False),
            ({"object.key": "auto-1"}, True),
            ({"object": [{"key": "home-1"}, {"key": "auto-1"}]}, True),
            ({"object": [[{"key": "auto-1"}]]}, True),
            ({"object": {"key": ["home", "auto-2"]}}, True),
        )
    ],
    *[
        Row("a dot in a key", {"object.nested.test": ["v"]}, Body(m), ok)
        for m, ok in (
            ({"object": {"nested": {"test": "v"}}}, True),
            ({"object.nested.test": "v"}, True),
            ({"object.nested": {"test": "v"}}, True),
            ({"object": {"nested.test": "v"}}, True),
            ({"object": {"nested": {"test": "w"}}}, False),
        )
    ],
    *[
        Row("elements of one array", {"r": {"name": ["a"], "kind": ["x"]}}, Body(m), ok)
        for m, ok in (
            ({"r": [{"name": "a", "kind": "x"}]}, True),
            ({"r": [{"name": "b", "kind": "y"}, {"name": "a", "kind": "x"}]}, True),
            ({"r": [{"name": "a", "kind": "y"}, {"name": "b", "kind": "x"}]}, False),
            ({"r": [{"name": ["b", "a"], "kind": ["y", "x"]}]}, True),
            ({"r": {"name": "a", "kind": "x"}}, True),
            ({"r": [{"name": "a"}, {"kind": "x"}]}, False),
        )
    ],
    *[
        Row("no JSON object", {"k": [{"exists": False}]}, Body(m), False)
        for m in ("plain text", '"a string"', "[1]", "1", "null", "{", '{"k": NaN}x')
    ],
]
