"""Events from JSON lines: what is an event, what is a bad line, and what the group is."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pumphouse.demo.sample import sample
from pumphouse.errors import UsageError
from pumphouse.jsonl import ONE_GROUP, Events, InputError, load
from pumphouse.protocol.attributes import MAX_MESSAGE_BYTES, is_token


@pytest.fixture
def read(tmp_path: Path):
    def read(content: bytes | str, group_by: str | None = None) -> Events:
        path = tmp_path / "events.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load(str(path), group_by)

    return read


def reasons(events: Events) -> list[str]:
    return [str(line) for line in events.bad_lines]


def test_the_sample_is_small_and_whole() -> None:
    events = sample()
    assert 40 <= len(events.events) <= 60
    assert events.groups >= 5
    assert not events.bad_lines


def test_the_line_itself_is_the_body(read) -> None:
    events = read('{"a": 1}\r\n\n  \n{"a" :2 }').events
    assert [(event.line, event.body) for event in events] == [(1, '{"a": 1}'), (4, '{"a" :2 }')]


def test_a_byte_order_mark_is_no_part_of_the_first_event(read) -> None:
    assert read(b'\xef\xbb\xbf{"a":1}\n').events[0].body == '{"a":1}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"what", "not JSON: invalid character (byte 0)"),
        (b'{"a":1', "not JSON: Input data was truncated"),
        (b'{"a":1} x', "not JSON: trailing characters (byte 9)"),
        (b'{"a":NaN}', "not JSON: invalid character (byte 5)"),
        (b'{"a":"\xff"}', "not UTF-8: byte 0xff at 7"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8: byte 0xff at 1"),
        (b"[1]", "an array, and an event is an object"),
        (b"null", "null, and an event is an object"),
        (b'"text"', "a string, and an event is an object"),
        (b"1", "a number, and an event is an object"),
        (b"true", "true or false, and an event is an object"),
        (b"x" * (MAX_MESSAGE_BYTES + 1), "longer than the 1,048,576 bytes of a message"),
        (b"x" * (5 * MAX_MESSAGE_BYTES), "longer than the 1,048,576 bytes of a message"),
    ],
)
def test_a_bad_line_has_a_number_and_a_reason(read, line: bytes, reason: str) -> None:
    events = read(b'{"a":1}\n' + line + b'\n{"a":2}\n')
    assert [event.body for event in events.events] == ['{"a":1}', '{"a":2}']
    assert reasons(events) == [f"line 2: {reason}"]


def test_half_a_surrogate_pair_is_a_bad_line(read) -> None:
    assert reasons(read(b'{"a":1}\n{"a":"\\ud800"}\n'))[0].startswith("line 2: not JSON")


def test_deep_nesting_is_a_bad_line(read) -> None:
    depth = 100_000
    events = read(b'{"a":' + b"[" * depth + b"]" * depth + b'}\n{"a":2}\n')
    assert len(events.events) == 1
    assert reasons(events)[0].startswith("line 1: not JSON")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_body_of_exactly_a_mebibyte_passes(read, mark: bytes, end: bytes) -> None:
    def line(size: int) -> bytes:
        return b'{"a":"' + b"x" * (size - 8) + b'"}'

    assert len(read(mark + line(MAX_MESSAGE_BYTES) + end).events) == 1
    with pytest.raises(InputError, match="line 1: longer than"):
        read(mark + line(MAX_MESSAGE_BYTES + 1) + end)


def test_a_body_that_outgrows_the_limit_as_base64_is_a_bad_line(read) -> None:
    text = '{"a":"\uffff' + "x" * 800_000 + '"}'
    events = read(text + '\n{"a":2}')
    assert reasons(events) == ["line 1: as a message longer than the 1,048,576 bytes of a message"]


@pytest.mark.parametrize(
    ("event", "key", "group"),
    [
        ('{"a":"x"}', "a", "x"),
        ('{"a":7}', "a", "7"),
        ('{"a":1.5}', "a", "1.5"),
        ('{"a":true}', "a", "true"),
        ('{"a":{"b":{"c":"deep"}}}', "a.b.c", "deep"),
        ('{"a.b":"whole","a":{"b":"parts"}}', "a.b", "whole"),
        ('{"a":{"b.c":"rest"}}', "a.b.c", "rest"),
    ],
)
def test_the_group_is_the_value_at_the_key(read, event: str, key: str, group: str) -> None:
    assert read(event, key).events[0].group == group


@pytest.mark.parametrize("value", ["two words", "", "Zoë", "x" * 129])
def test_a_value_that_is_no_group_id_is_hashed(read, value: str) -> None:
    events = read(f'{{"a":"{value}"}}\n{{"a":"{value}"}}\n{{"a":"other one"}}', "a").events
    assert all(is_token(event.group) for event in events)
    assert events[0].group == events[1].group != events[2].group


def test_an_event_without_the_key_is_a_bad_line(read) -> None:
    events = read('{"a":1}\n{"b":1,"c":2}\n{"a":null}\n{"a":{}}\n{"a":[]}', "a")
    assert reasons(events) == [
        "line 2: nothing at the key 'a'; the event has b, c",
        "line 3: null at the key 'a', and a group is text or a number",
        "line 4: an object at the key 'a', and a group is text or a number",
        "line 5: an array at the key 'a', and a group is text or a number",
    ]


def test_keys_from_the_input_are_fit_to_be_shown(read) -> None:
    events = read('{"a":1}\n{"\\u001b[31m\\n":1,"' + "x" * 50 + '":2}', "a")
    assert reasons(events) == [f"line 2: nothing at the key 'a'; the event has ?[31m?, {'x' * 40}…"]


def test_a_key_that_no_event_has_is_one_error(read) -> None:
    with pytest.raises(InputError, match=r"no event has a group: line 1: .*has a \(and 1 more bad"):
        read('{"a":1}\n{"a":2}', "zz")


def test_without_a_key_the_first_usual_one_that_all_have_decides(read) -> None:
    events = read('{"source":"s","tenant":1}\n{"tenant":2,"group":null}')
    assert [event.group for event in events.events] == ["1", "2"]
    assert "'tenant'" in events.grouping


def test_without_any_key_all_events_are_one_group(read) -> None:
    events = read('{"a":1}\n{"a":2}')
    assert {event.group for event in events.events} == {ONE_GROUP}
    assert "--group-by" in events.grouping


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_no_events_is_an_error(read, content: str) -> None:
    with pytest.raises(InputError, match="holds no events: it is empty"):
        read(content)


def test_nothing_but_bad_lines_is_one_error(read) -> None:
    with pytest.raises(InputError, match=r"no events: line 1: not JSON.* \(and 2 more bad lines\)"):
        read("x\ny\nz\n")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no/such/file", "cannot read no/such/file: No such file or directory"),
        ("/", "cannot read /: Is a directory"),
        ("nul\0byte", "embedded null byte"),
        ("", "--input needs the name of a file"),
    ],
)
def test_input_that_cannot_be_opened_is_one_error(path: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(path)


def test_an_endless_input_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pumphouse.jsonl.MAX_INPUT_BYTES", 3 * MAX_MESSAGE_BYTES)
    with pytest.raises(UsageError, match="larger than 3 MiB"):
        load("/dev/zero")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"group":"g"}\n')))
    assert load("-").events[0].group == "g"
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="closed"):
        load("-")


@pytest.mark.parametrize("key", ["", ".", ".."])
def test_an_empty_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="--group-by"):
        load("-", key)


def test_the_real_input(shared_data: Path) -> None:
    events = load(str(shared_data / "github-webhooks.jsonl"), "source")
    assert (len(events.events), events.groups, len(events.bad_lines)) == (329, 16, 0)
