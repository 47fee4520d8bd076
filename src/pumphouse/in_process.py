"""An app in a test: as it is written, against an account in memory, on a virtual clock.

`App.in_process()` makes the queues that the app names, starts the app, and gives the account. The
account is the whole of SQS in memory and refuses what AWS refuses, so nothing succeeds here that
fails there; what is added is only what a test needs: to send, and to let everything come to rest.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pumphouse.account import Account
from pumphouse.addressing import QueueUrls, Topic
from pumphouse.backend import Backend
from pumphouse.clock import VirtualClock
from pumphouse.content import Headers, encode, header_attributes
from pumphouse.model import Receipt
from pumphouse.protocol.operations import CreateQueue, SendMessage
from pumphouse.protocol.sns_operations import CreateTopic
from pumphouse.running import Running
from pumphouse.subscriber.decoding import encode_reply
from pumphouse.subscriber.events import Handled
from pumphouse.subscriber.queue import Queue, as_queue

if TYPE_CHECKING:
    from pumphouse.app import App


class InProcessAccount(Account):
    """The account that an app runs on in a test.

    `account.clock` moves time (`await account.clock.advance(30)`), `account.sent("queue")` lists
    what was sent, `account.faults` makes operations fail, `account.ledger` has all of them.
    """

    clock: VirtualClock  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, app: App, clock: VirtualClock) -> None:
        super().__init__(clock=clock, ledger_room=100_000)
        self._app = app
        self._urls = QueueUrls(self)
        self._running: Running | None = None

    async def send(
        self,
        queue: str,
        body: object,
        *,
        group_id: str | None = None,
        deduplication_id: str | None = None,
        headers: Headers | None = None,
        delay_seconds: int | None = None,
    ) -> Receipt:
        """Send one message as a producer would: text and bytes as they are, the rest as JSON.

        On a FIFO queue without a deduplication id every message is a new one.
        """
        url = await self._urls.resolve(queue)
        text, attributes = encode(encode_reply(body), header_attributes(headers))
        if url.endswith(".fifo") and deduplication_id is None:
            deduplication_id = uuid.uuid4().hex
        answer = await self.execute(
            SendMessage(
                url,
                text,
                delay_seconds=delay_seconds,
                message_attributes=attributes or None,
                message_deduplication_id=deduplication_id,
                message_group_id=group_id,
            )
        )
        return Receipt(answer.message_id, url, answer.sequence_number, deduplication_id)

    async def settle(self, *, limit_seconds: float = 3_600.0) -> None:
        """Let time pass until nothing moves any more.

        Nothing moves when no subscribed queue has a message left (visible, delayed or in flight),
        no handler runs, and the runtime has nothing to settle. Messages in queues that nobody
        subscribes to don't count. Raises `TimeoutError`, and says what is left and what failed
        last, when that has not come about after `limit_seconds` of virtual time: a message that
        always fails and has no dead-letter queue, for example.
        """
        reasons: dict[str, str] = {}

        def note(event: Handled) -> None:
            if event.reason:
                reasons[event.queue] = event.reason

        stop = self._app.hooks.on(Handled, note)
        try:
            await self.clock.run_until(lambda: not any(self._left()), limit_seconds=limit_seconds)
        except TimeoutError:
            left = [*self._left(), *(f"the last of {name}: {why}" for name, why in reasons.items())]
            raise TimeoutError(
                f"the app has not come to rest in {limit_seconds:g} virtual seconds: "
                + "; ".join(left)
            ) from None
        finally:
            stop()

    def _left(self) -> Iterator[str]:
        """What still moves, in words."""
        if self._running is None or self._running.finished:
            return
        for consumer in self._running.consumers:
            if consumer.exits.live:
                states = sorted(delivery.state.name.lower() for delivery in consumer.exits.live)
                yield f"{consumer.name} holds {len(states)} messages ({', '.join(states[:5])})"
            elif not consumer.pump.ended and (held := self._messages_in(consumer.name)):
                yield f"{consumer.name} has {held} messages ({consumer.pump.reason or 'waiting'})"

    def _messages_in(self, name: str) -> int:
        queue = self._home.queues.get(name)
        return queue.visible + queue.delayed + queue.in_flight if queue is not None else 0


@asynccontextmanager
async def in_process(
    app: App, clock: VirtualClock | None = None
) -> AsyncIterator[InProcessAccount]:
    """Run an app on an account of its own; see `App.in_process`."""
    account = InProcessAccount(app, clock or VirtualClock())
    await make_queues(account, app)
    for handler in app.handlers:
        handler.calls.clear()
    async with app.running(account, record_calls=True) as running:
        account._running = running
        yield account


async def make_queues(backend: Backend, app: App) -> None:
    """Make every queue that an app names, as it is declared, and every topic."""
    for queue in queues_of(app):
        await backend.execute(CreateQueue(queue.known_as.name, queue.creation_attributes() or None))
    for topic in topics_of(app):
        await backend.execute(
            CreateTopic(topic.name, {"FifoTopic": "true"} if topic.is_fifo else None)
        )


def queues_of(app: App) -> list[Queue]:
    """Every queue that an app names: read, dead-letter, and written to."""
    named = [
        *(each.queue for each in app.subscriptions),
        *(each.dead_letter for each in app.subscriptions),
        *(each.queue for each in app.publishers),
        *(each.publish for each in app.subscriptions),
    ]
    found: dict[str, Queue] = {}
    for each in named:
        if each is not None and not isinstance(each, Topic):
            queue = as_queue(each)
            found.setdefault(queue.known_as.name, queue)
    return list(found.values())


def topics_of(app: App) -> list[Topic]:
    """Every topic that an app publishes to."""
    named = [
        *(each.destination for each in app.publishers),
        *(each.publish for each in app.subscriptions),
    ]
    return list({each.name: each for each in named if isinstance(each, Topic)}.values())
