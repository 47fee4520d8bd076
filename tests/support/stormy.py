"""A backend that does everything bad to sends, at random: for simulations on a virtual clock."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from pumphouse.account import Account
from pumphouse.errors import NetworkError, OutcomeUnknownError
from pumphouse.protocol.faults import from_answer
from pumphouse.protocol.operations import BatchResultErrorEntry, SendMessageBatch

GARBLED = "?"


class StormyBackend:
    """Throttles, fails, loses, leaves out and corrupts, and takes its time about it. With
    `garbles` bodies are changed on their way, too: they are stored with `GARBLED` at their end.

    `counts` says what it has done. `trouble` is the share of requests that something happens to;
    that an answer is lost shows after `silence` seconds, half of them at least.
    """

    def __init__(
        self,
        account: Account,
        seed: int,
        *,
        trouble: float,
        seconds: float,
        silence: float = 0.0,
        garbles: bool = False,
    ) -> None:
        self.account = account
        self.rng = random.Random(seed)
        self.trouble = trouble
        self.seconds = seconds
        self.silence = silence
        self.garbles = garbles
        self.counts: dict[str, int] = {}

    async def execute(self, operation: Any) -> Any:
        if not isinstance(operation, SendMessageBatch):
            return await self.account.execute(operation)
        await self.account.clock.sleep(self.rng.uniform(0.5, 1.5) * self.seconds)
        what = "nothing"
        if self.rng.random() < self.trouble:
            what = self.rng.choice(_TROUBLES)
            if what == "wrong MD5" and self.garbles and self.rng.random() < 0.5:
                what = "garbled"
        self.counts[what] = self.counts.get(what, 0) + 1
        match what:
            case "throttled":
                code, status = self.rng.choice([("RequestThrottled", 403), ("Throttling", 400)])
                raise from_answer(code, "slow down", status=status, sender_fault=True)
            case "failed":
                raise from_answer("InternalError", "it broke", status=500)
            case "unreached":
                raise NetworkError("no connection")
            case "lost":
                await self.account.execute(operation)
                await self._silence()
                raise OutcomeUnknownError("the answer was lost")
            case "lost before":
                await self._silence()
                raise OutcomeUnknownError("the request was lost, which nobody can know")
            case "entries failed":
                return await self._with_failures(operation)
            case "garbled":
                operation = self._garbled(operation)
        answer = await self.account.execute(operation)
        stored = list(answer.successful)
        at = self.rng.randrange(len(stored)) if stored else 0
        if what == "left out" and stored:
            del stored[at]
        elif what == "wrong MD5" and stored:
            stored[at] = msgspec.structs.replace(stored[at], md5_of_message_body="0" * 32)
        elif what == "shuffled":
            self.rng.shuffle(stored)
        return msgspec.structs.replace(answer, successful=stored)

    def _garbled(self, operation: SendMessageBatch) -> SendMessageBatch:
        entries = list(operation.entries)
        at = self.rng.randrange(len(entries))
        changed = entries[at].message_body + GARBLED
        entries[at] = msgspec.structs.replace(entries[at], message_body=changed)
        return msgspec.structs.replace(operation, entries=entries)

    async def _silence(self) -> None:
        if self.silence:
            await self.account.clock.sleep(self.rng.uniform(0.5, 1.0) * self.silence)

    async def _with_failures(self, operation: SendMessageBatch) -> Any:
        bad = {entry.id for entry in operation.entries if self.rng.random() < 0.4}
        failed = [
            BatchResultErrorEntry(i, code == "RequestThrottled", code, "this one not")
            for i in bad
            for code in [self.rng.choice(["InternalError", "RequestThrottled", "Refuse"])]
        ]
        failed = [
            msgspec.structs.replace(f, code="InvalidParameterValue", sender_fault=True)
            if f.code == "Refuse"
            else f
            for f in failed
        ]
        good = [entry for entry in operation.entries if entry.id not in bad]
        if not good:
            return type(await _empty())(successful=[], failed=failed)
        answer = await self.account.execute(msgspec.structs.replace(operation, entries=good))
        return msgspec.structs.replace(answer, failed=failed)

    async def aclose(self) -> None:
        pass


async def _empty() -> Any:
    from pumphouse.protocol.operations import SendMessageBatchResult

    return SendMessageBatchResult()


_TROUBLES = (
    "throttled",
    "failed",
    "unreached",
    "lost",
    "lost before",
    "entries failed",
    "left out",
    "wrong MD5",
    "shuffled",
)
