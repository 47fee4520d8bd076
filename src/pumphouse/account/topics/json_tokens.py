"""JSON as the service's own parser meets it: token by token, with the columns it reports.

The service names a place in a filter policy as Jackson does: the column after what was consumed. A
number, `true` and a bracket are consumed with their token; a string only up to its opening quote,
and to its end once its text is asked for; with a name comes the beginning of its value. The text
that is read is the policy in its shortest form, and valid (`parse_json` says so first, in Jackson's
words).
"""

from __future__ import annotations

import json
import re
from typing import Any

START_OBJECT, END_OBJECT, START_ARRAY, END_ARRAY = "{", "}", "[", "]"
NAME, STRING, NUMBER, TRUE, FALSE, NULL, END = (
    "name",
    "string",
    "number",
    "true",
    "false",
    "null",
    "",
)

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NUMBER = re.compile(r"-?(?:Infinity|[0-9.]+(?:[eE][+-]?[0-9]+)?)")  # 1e400 is read as infinite
_LITERALS = {"t": TRUE, "f": FALSE, "n": NULL}


class BadJsonError(Exception):
    """A text is no JSON; worded as the service words it."""


class Tokens:
    """The tokens of a valid JSON text in its shortest form, one `next()` after the other."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.token = END
        self._at = 0  # what was consumed
        self._begin = 0  # where the token begins
        self._ahead = ""  # the value of a name, which was begun with it
        self._name = ""
        self._open: list[str] = []  # the brackets around

    @property
    def column(self) -> int:
        """Where the service says that it is."""
        return self._at + 1

    def next(self) -> str:
        """Consume a token and return its kind; END at the end."""
        if self._ahead:
            self.token, self._ahead = self._ahead, ""
            return self.token
        if self.token is STRING:
            self._finish()
        text = self.source
        while self._at < len(text) and text[self._at] in ",:":
            self._at += 1
        self.token = self._value(is_name=self._in_object())
        if self.token is NAME:
            self._name = self.text
            self._at += 1  # the colon
            self._ahead = self._value(is_name=False)
        return self.token

    @property
    def name(self) -> str:
        """The latest name."""
        return self._name

    @property
    def text(self) -> str:
        """The text of the token: a string's content, a number as it is written."""
        if self.token in (STRING, NAME):
            self._finish()
            return str(json.loads(self.source[self._begin : self._at]))
        return self.source[self._begin : self._at]

    def _value(self, *, is_name: bool) -> str:
        text = self.source
        self._begin = self._at
        if self._at >= len(text):
            return END
        first = text[self._at]
        if first == '"':
            self._at += 1
            return NAME if is_name else STRING
        if first in "{}[]":
            self._at += 1
            if first in "{[":
                self._open.append(first)
            else:
                self._open.pop()
            return first
        if first in _LITERALS:
            self._at += 5 if first == "f" else 4
            return _LITERALS[first]
        found = _NUMBER.match(text, self._at)
        if found is None:
            raise BadJsonError(f"unexpected {first!r}")
        self._at = found.end()
        return NUMBER

    def _finish(self) -> None:
        found = _STRING.match(self.source, self._begin)
        if found is not None:
            self._at = max(self._at, found.end())

    def _in_object(self) -> bool:
        """Whether a string that begins here is a name."""
        if not self._open or self._open[-1] != "{":
            return False
        return self.source[self._at - 1] in "{,"


# --- texts that are no JSON ---------------------------------------------------------------------

_REDACTED = "REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
_EXPECTED = {
    "Expecting property name enclosed in double quotes": (
        "was expecting double-quote to start field name"
    ),
    "Expecting ':' delimiter": "was expecting a colon to separate field name and value",
    "Expecting ',' delimiter": "was expecting comma to separate entries",
    "Illegal trailing comma before end of object": "was expecting double-quote to start field name",
}


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises `BadJsonError`, worded as the service's parser words it."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadJsonError(_worded(text, error)) from None
    except (ValueError, RecursionError) as error:
        raise BadJsonError(str(error)) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"Unrecognized token '{name}'")


def _worded(text: str, error: json.JSONDecodeError) -> str:
    where = f"\n at [Source: {_REDACTED}; line: {error.lineno}, column: {error.colno}]"
    if error.pos >= len(text):
        return f"Unexpected end-of-input{where}"
    found = text[error.pos]
    if error.msg in _EXPECTED:
        return (
            f"Unexpected character ('{found}' (code {ord(found)})): {_EXPECTED[error.msg]}{where}"
        )
    word = re.match(r"\w*", text[error.pos :])
    if word and word[0]:
        expected = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
        return f"Unrecognized token '{word[0]}': was expecting {expected}{where}"
    return (
        f"Unexpected character ('{found}' (code {ord(found)})): expected a valid value "
        f"(JSON String, Number, Array, Object or token 'null', 'true' or 'false'){where}"
    )
