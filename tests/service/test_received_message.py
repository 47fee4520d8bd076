"""The message of a handler is a value like any other, although it is read only as far as needed."""

import copy
import dataclasses
import pickle
from typing import Annotated, Any

import pytest

from pumphouse import App, Depends, Message, VirtualClock
from pumphouse.model import Lease
from pumphouse.subscriber.handler import Call
from support.injecting import dead_app


async def test_every_field_is_what_was_sent() -> None:
    app = App()
    seen: list[Message] = []

    @app.subscriber("q.fifo")
    async def handle(message: Message) -> None:
        seen.append(message)

    async with app.in_process(VirtualClock(1_000.0)) as account:
        receipt = await account.send(
            "q.fifo", b"\xff\x00", group_id="g", deduplication_id="d", headers={"h": "1", "b": b"2"}
        )
        await account.settle()
    (message,) = seen
    assert (message.message_id, message.queue) == (receipt.message_id, "q.fifo")
    assert (message.body, message.headers) == (b"\xff\x00", {"h": "1", "b": b"2"})
    assert (message.group_id, message.deduplication_id) == ("g", "d")
    assert (message.attempt, message.receive_count) == (1, 1)
    assert message.sequence_number == receipt.sequence_number
    assert message.sent_at == message.first_received_at == 1_000.0
    assert message.attributes["MessageGroupId"] == "g"
    assert message.deadline > 1_000.0
    assert not message.lease_lost


def _fields(message: Message) -> dict[str, Any]:
    return {each.name: getattr(message, each.name) for each in dataclasses.fields(Message)}


async def test_it_can_be_changed_copied_and_pickled_and_not_assigned_to() -> None:
    app = App()
    seen: list[Message] = []

    @app.subscriber("q")
    async def handle(message: Message) -> None:
        changed = dataclasses.replace(message, body=b"other")
        assert isinstance(changed, Message)
        assert (changed.body, changed.lease) == (b"other", message.lease)
        seen.append(message)

    async with app.in_process() as account:
        await account.send("q", "a", headers={"h": "1"})
        await account.settle()
    (message,) = seen
    copied = copy.copy(message)
    assert _fields(copied) == _fields(message)
    sent_away = pickle.loads(pickle.dumps(message))
    assert (sent_away.body, sent_away.headers) == (b"a", {"h": "1"})
    assert repr(message).startswith("Message(message_id='")
    with pytest.raises(dataclasses.FrozenInstanceError, match="body"):
        message.body = b"x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="own"):
        message.own = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'own'"):
        message.own  # type: ignore[attr-defined] # noqa: B018


async def test_its_attempt_is_that_in_which_it_was_handed_over() -> None:
    app, subscriber = dead_app(max_attempts=3)
    seen: list[Message] = []

    @subscriber
    async def handle(message: Message) -> None:
        seen.append(message)
        raise LookupError

    async with app.in_process() as account:
        await account.send("q", "a")
        await account.settle()
    assert [message.attempt for message in seen] == [1, 2, 3]


async def test_a_broken_body_is_undecodable_for_a_handler_of_messages_alone() -> None:
    app, subscriber = dead_app(undecodable="reject")
    handled: list[Message] = []

    def note(message: Message) -> None:
        handled.append(message)

    @subscriber
    async def handle(_: Annotated[None, Depends(note)]) -> None: ...

    async with app.in_process() as account:
        await account.send("q", "no base64!", headers={"pumphouse.encoding": "base64"})
        await account.settle()
        (dead,) = account.sent("dead")
    assert handled == []
    assert "marked as base64" in dead.attributes["pumphouse.reason"].string_value


async def test_it_equals_a_message_that_is_made_by_hand() -> None:
    app = App()
    seen: list[Message] = []

    @app.subscriber("q")
    async def handle(message: Message) -> None:
        seen.append(message)

    async with app.in_process(VirtualClock(1_000.0)) as account:
        receipt = await account.send("q", "a", headers={"h": "1"})
        await account.settle()
    made = Message(
        message_id=receipt.message_id,
        queue="q",
        body=b"a",
        headers={"h": "1"},
        group_id=None,
        attempt=1,
        receive_count=1,
        sent_at=1_000.0,
        first_received_at=1_000.0,
        sequence_number=None,
        deduplication_id=None,
        attributes=seen[0].attributes,
        lease=Lease(1.0),
    )
    assert seen == [made]
    assert [made] == seen
    assert handle.calls == [Call(None, made, None)]
    for name, other in (("body", b"b"), ("attempt", 2), ("headers", {})):
        changed = dataclasses.replace(made, **{name: other})
        assert seen != [changed]
        assert [changed] != seen
    assert made != "a"


async def test_what_a_message_does_not_have_leads_to_what_it_has() -> None:
    app = App()
    said: list[str] = []

    @app.subscriber("q")
    async def handle(message: Message) -> None:
        try:
            message.json()  # type: ignore[attr-defined]  # pyright: ignore
        except AttributeError as error:
            said.append(str(error))

    async with app.in_process() as account:
        await account.send("q", "a")
        await account.settle()
    (words,) = said
    assert words.startswith("a Message has no attribute 'json'")
    assert "body (bytes) and text (str)" in words
