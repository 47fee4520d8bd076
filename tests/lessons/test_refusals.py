"""What the account refuses as AWS does: empty values, and characters that SQS does not take."""

from __future__ import annotations

import pytest

from pumphouse.account import Account
from pumphouse.errors import RefusedError
from pumphouse.protocol.operations import (
    CreateQueue,
    MessageAttributeValue,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
)


@pytest.fixture
async def url(account: Account) -> str:
    return (await account.execute(CreateQueue("q"))).queue_url


async def send(account: Account, url: str, body: str = "x", **attributes: object) -> None:
    await account.execute(SendMessage(url, body, message_attributes=attributes or None))  # type: ignore[arg-type]


async def send_among_good_ones(
    account: Account, url: str, body: str = "x", **attributes: object
) -> tuple[str, str]:
    """Send one entry in the middle of nine good ones: its fault's code and words."""
    entries = [SendMessageBatchRequestEntry(str(i), f"good {i}") for i in range(9)]
    bad = SendMessageBatchRequestEntry("bad", body, message_attributes=attributes or None)  # type: ignore[arg-type]
    result = await account.execute(SendMessageBatch(url, [*entries[:5], bad, *entries[5:]]))
    assert [entry.id for entry in result.successful] == [str(i) for i in range(9)]
    [failed] = result.failed
    assert failed.id == "bad"
    assert failed.sender_fault
    received = await account.execute(ReceiveMessage(url, max_number_of_messages=10))
    assert {message.body for message in received.messages} == {f"good {i}" for i in range(9)}
    return failed.code, failed.message or ""


EMPTY = {
    "text": MessageAttributeValue("String", ""),
    "bytes": MessageAttributeValue("Binary", binary_value=b""),
    "nothing": MessageAttributeValue("String"),
    "no bytes": MessageAttributeValue("Binary"),
    "number": MessageAttributeValue("Number", ""),
    "label": MessageAttributeValue("String.label", ""),
}


@pytest.mark.parametrize("kind", EMPTY)
async def test_b6_an_empty_attribute_is_refused(account: Account, url: str, kind: str) -> None:
    value = EMPTY[kind]
    with pytest.raises(RefusedError) as raised:
        await send(account, url, k=value)
    assert raised.value.code == "InvalidParameterValue"
    words = (
        f"Message (user) attribute 'k' must contain a non-empty value of type '{value.data_type}'."
    )
    assert raised.value.message == words
    assert await send_among_good_ones(account, url, k=value) == ("InvalidParameterValue", words)


async def test_b6_an_empty_body_fails_alone(account: Account, url: str) -> None:
    with pytest.raises(RefusedError) as raised:
        await send(account, url, "")
    assert raised.value.code == "MissingParameter"
    assert raised.value.message == "The request must contain the parameter MessageBody."
    _, words = await send_among_good_ones(account, url, "")
    assert "SendMessageBatchRequestEntry.6.MessageBody" in words


REFUSED = [*range(0x00, 0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF]
TAKEN = [0x09, 0x0A, 0x0D, 0x20, 0x7F, 0x85, 0xE000, 0xFFFD, 0x10000, 0x1F600, 0x10FFFF]


@pytest.mark.parametrize("code", REFUSED, ids=hex)
async def test_b7_a_body_with_a_character_that_sqs_does_not_take(
    account: Account, url: str, code: int
) -> None:
    body = f"before{chr(code)}after"
    with pytest.raises(RefusedError) as raised:
        await send(account, url, body)
    assert raised.value.code == "InvalidMessageContents"
    assert (await send_among_good_ones(account, url, body))[0] == "InvalidMessageContents"


@pytest.mark.parametrize("code", REFUSED, ids=hex)
async def test_b7_an_attribute_with_a_character_that_sqs_does_not_take(
    account: Account, url: str, code: int
) -> None:
    value = MessageAttributeValue("String", f"before{chr(code)}after")
    with pytest.raises(RefusedError) as raised:
        await send(account, url, k=value)
    assert raised.value.code == "InvalidParameterValue"
    assert (await send_among_good_ones(account, url, k=value))[0] == "InvalidParameterValue"


@pytest.mark.parametrize("code", TAKEN, ids=hex)
async def test_b7_characters_that_pass_untouched(account: Account, url: str, code: int) -> None:
    text = f"before{chr(code)}after"
    await send(account, url, text, k=MessageAttributeValue("String", text))
    answer = await account.execute(ReceiveMessage(url, message_attribute_names=["All"]))
    [message] = answer.messages
    assert message.body == text
    assert message.message_attributes == {"k": MessageAttributeValue("String", text)}


async def test_b7_bytes_of_any_kind_pass_as_a_binary_attribute(account: Account, url: str) -> None:
    value = MessageAttributeValue("Binary", binary_value=bytes(range(256)))
    await send(account, url, k=value)
    answer = await account.execute(ReceiveMessage(url, message_attribute_names=["All"]))
    assert answer.messages[0].message_attributes == {"k": value}
