"""Errors survive what errors go through: pickling, copying, printing."""

from __future__ import annotations

import copy
import pickle

import pytest

from pumphouse import errors
from pumphouse.errors import (
    Md5MismatchError,
    MessageTooLargeError,
    PumphouseError,
    ServiceError,
    ThrottledError,
    UnexpectedAnswerError,
)


def kinds(kind: type[PumphouseError] = PumphouseError) -> list[type[PumphouseError]]:
    found = [kind] if kind.__module__ == errors.__name__ else []
    for each in kind.__subclasses__():
        found += kinds(each)
    return list(dict.fromkeys(found))


def example(kind: type[PumphouseError]) -> PumphouseError:
    if issubclass(kind, ServiceError):
        return kind("words", code="Code", query_code="Q.Code", status=418, request_id="id")
    if issubclass(kind, MessageTooLargeError):
        return kind(12, 10)
    if issubclass(kind, Md5MismatchError):
        return kind("body", "a", "b")
    if issubclass(kind, UnexpectedAnswerError):
        return kind(502, "<html>", "no JSON")
    return kind("words")


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_an_error_comes_back_as_it_was(kind: type[PumphouseError], again: object) -> None:
    error = example(kind)
    back = again(error)  # type: ignore[operator]
    assert type(back) is kind
    assert str(back) == str(error)
    assert vars(back) == vars(error)
    assert back.args == error.args


def test_what_is_set_later_comes_back_too() -> None:
    error = ThrottledError("slow down", code="Throttling", status=400, sender_fault=True)
    error.retry_after_seconds = 2.5
    assert pickle.loads(pickle.dumps(error)).retry_after_seconds == 2.5


def test_an_error_says_its_code_and_words() -> None:
    assert str(ServiceError("words", code="Code")) == "Code: words"
    assert str(ServiceError("", code="Code")) == "Code"


def test_usage_errors_are_value_errors() -> None:
    assert issubclass(errors.UsageError, ValueError)
    assert issubclass(errors.CrossThreadError, RuntimeError)
    error = MessageTooLargeError(12, 10)
    assert "12 bytes" in str(error)
    assert "10" in str(error)
