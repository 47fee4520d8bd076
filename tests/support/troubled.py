"""Accounts that do what SQS never does, to see that it is noticed."""

from __future__ import annotations

from typing import Any

import msgspec

from pumphouse.account import Account
from pumphouse.protocol.operations import DeleteMessage, ReceiveMessage, SendMessageBatch


class LosingAccount(Account):
    """Loses one message: it is deleted as it is received, and nobody gets it."""

    lost = 0

    async def execute(self, operation: Any) -> Any:
        answer = await super().execute(operation)
        if isinstance(operation, ReceiveMessage) and answer.messages and not self.lost:
            self.lost += 1
            *others, last = answer.messages
            await super().execute(DeleteMessage(operation.queue_url, last.receipt_handle))
            return msgspec.structs.replace(answer, messages=others)
        return answer


class ReorderingAccount(Account):
    """Stores two messages of one group the wrong way round."""

    swapped = 0

    async def execute(self, operation: Any) -> Any:
        if isinstance(operation, SendMessageBatch) and not self.swapped:
            entries = list(operation.entries)
            groups = [entry.message_group_id for entry in entries]
            for later, group in enumerate(groups):
                if (first := groups.index(group)) < later:
                    entries[first], entries[later] = entries[later], entries[first]
                    self.swapped += 1
                    operation = msgspec.structs.replace(operation, entries=entries)
                    break
        return await super().execute(operation)
