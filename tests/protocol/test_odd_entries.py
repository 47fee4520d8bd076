"""Answers of batches in which single entries are odd: each stands or falls by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pumphouse.errors import UnexpectedAnswerError
from pumphouse.protocol import sqs_json
from pumphouse.protocol.operations import SendMessageBatch

_STORED = {"MessageId": "m", "MD5OfMessageBody": "0" * 32}
_ODD: dict[str, Any] = {
    "no SenderFault": {"Failed": [{"Id": "2", "Code": "InternalError"}]},
    "no Code": {"Failed": [{"Id": "2", "SenderFault": False}]},
    "no Id of a failure": {"Failed": [{"Code": "InternalError", "SenderFault": False}]},
    "no MessageId": {"Successful": [{"Id": "2", "MD5OfMessageBody": "0" * 32}]},
    "no MD5": {"Successful": [{"Id": "2", "MessageId": "m"}]},
    "no Id": {"Successful": [_STORED]},
    "a null": {"Successful": [None], "Failed": None},
    "no object": {"Successful": ["x", 5, []]},
    "a list for an id": {"Successful": [{**_STORED, "Id": ["2"]}]},
}


@pytest.mark.parametrize("name", _ODD)
def test_an_entry_that_can_not_be_read_is_left_out_of_the_answer(name: str) -> None:
    odd = _ODD[name]
    stored = [{**_STORED, "Id": "0"}, *odd.get("Successful", []), {**_STORED, "Id": "1"}]
    document = {"Successful": stored, "Failed": odd.get("Failed")}
    operation = SendMessageBatch("u", [])
    answer = sqs_json.decode_answer(operation, 200, {}, json.dumps(document).encode())
    assert [entry.id for entry in answer.successful] == ["0", "1"]
    assert answer.failed == []


@pytest.mark.parametrize(
    "document", [[], "x", {"Successful": 5}, {"Successful": [{}], "Failed": [{}]}, {"Failed": {}}]
)
def test_a_batch_without_one_readable_entry_is_no_answer(document: Any) -> None:
    with pytest.raises(UnexpectedAnswerError):
        sqs_json.decode_answer(SendMessageBatch("u", []), 200, {}, json.dumps(document).encode())
