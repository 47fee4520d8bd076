"""A queue on a backend, with a short word for each thing that tests do to it."""

from __future__ import annotations

import asyncio
from typing import Any

from pumphouse.account import Account
from pumphouse.backend import Backend
from pumphouse.clock import VirtualClock
from pumphouse.protocol.operations import (
    ChangeMessageVisibility,
    CreateQueue,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteMessageBatchRequestEntry,
    GetQueueAttributes,
    ReceivedMessage,
    ReceiveMessage,
    SendMessage,
    SendMessageBatch,
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageResult,
    SetQueueAttributes,
)


class AQueue:
    """The queue of one URL. Where it is FIFO, what a send leaves out is made up."""

    def __init__(self, backend: Backend, url: str) -> None:
        self.backend = backend
        self.url = url
        self.is_fifo = url.endswith(".fifo")
        self._sent = 0

    @classmethod
    async def create(cls, backend: Backend, name: str = "q", **attributes: object) -> AQueue:
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        texts = {key: str(value) for key, value in attributes.items()}
        return cls(backend, (await backend.execute(CreateQueue(name, texts))).queue_url)

    def _sending(self, body: str, more: dict[str, Any]) -> dict[str, Any]:
        self._sent += 1
        if self.is_fifo:
            more = {"message_group_id": "g", "message_deduplication_id": f"d{self._sent}", **more}
        return {"message_body": body, **more}

    async def send(self, body: str = "body", **more: Any) -> SendMessageResult:
        return await self.backend.execute(SendMessage(self.url, **self._sending(body, more)))

    async def send_batch(self, *bodies: str, **more: Any) -> SendMessageBatchResult:
        entries = [
            SendMessageBatchRequestEntry(str(number), **self._sending(body, dict(more)))
            for number, body in enumerate(bodies)
        ]
        return await self.backend.execute(SendMessageBatch(self.url, entries))

    async def receive(
        self,
        number: int = 10,
        *,
        visibility: int | None = None,
        wait: int | None = None,
        **more: Any,
    ) -> list[ReceivedMessage]:
        operation = ReceiveMessage(
            self.url,
            max_number_of_messages=number,
            visibility_timeout=visibility,
            wait_time_seconds=wait,
            **more,
        )
        return (await self.backend.execute(operation)).messages

    async def bodies(self, number: int = 10, **more: Any) -> list[str]:
        return [message.body for message in await self.receive(number, **more)]

    def poll(self, number: int = 10, *, wait: int = 20, **more: Any) -> asyncio.Task[list[str]]:
        """A receive that waits, as a task of the bodies that it brings."""
        return asyncio.ensure_future(self.bodies(number, wait=wait, **more))

    async def delete(self, *messages: ReceivedMessage | str) -> None:
        for message in messages:
            handle = message if isinstance(message, str) else message.receipt_handle
            await self.backend.execute(DeleteMessage(self.url, handle))

    async def delete_batch(self, *messages: ReceivedMessage) -> Any:
        entries = [
            DeleteMessageBatchRequestEntry(str(number), message.receipt_handle)
            for number, message in enumerate(messages)
        ]
        return await self.backend.execute(DeleteMessageBatch(self.url, entries))

    async def change(self, message: ReceivedMessage | str, seconds: int) -> None:
        handle = message if isinstance(message, str) else message.receipt_handle
        await self.backend.execute(ChangeMessageVisibility(self.url, handle, seconds))

    async def set(self, **attributes: object) -> None:
        texts = {key: str(value) for key, value in attributes.items()}
        await self.backend.execute(SetQueueAttributes(self.url, texts))

    async def counts(self) -> tuple[int, int, int]:
        """Visible, in flight and delayed."""
        answer = await self.backend.execute(GetQueueAttributes(self.url, ["All"]))
        return (
            int(answer.attributes["ApproximateNumberOfMessages"]),
            int(answer.attributes["ApproximateNumberOfMessagesNotVisible"]),
            int(answer.attributes["ApproximateNumberOfMessagesDelayed"]),
        )


def virtual(account: Account) -> VirtualClock:
    """The account's clock, which is a virtual one."""
    assert isinstance(account.clock, VirtualClock)
    return account.clock
