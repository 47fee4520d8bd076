"""The account: SQS in memory, behind the same `execute` as AWS.

This module knows which queues there are and which handler carries out which operation. What a queue
does is in `queue.py`, what each action asks and refuses is in the module of its handler.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from pumphouse.account import control, moves, permissions
from pumphouse.account.ledger import Entry, Ledger
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.receiving import receive_message
from pumphouse.account.redrive import move_to_dead_letters
from pumphouse.account.sending import send_message, send_message_batch
from pumphouse.account.settling import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from pumphouse.clock import Clock, RealClock
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import QueueName, is_queue_url, parse_queue_arn, parse_queue_url
from pumphouse.protocol.operations import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    DeleteMessage,
    DeleteMessageBatch,
    Operation,
    ReceiveMessage,
    Result,
    SendMessage,
    SendMessageBatch,
)

R = TypeVar("R")

_KNOWN_URLS = 10_000

_FIRST_SEQUENCE_NUMBER = 18_850_000_000_000_000_000
_SEQUENCE_STEP = 256


class Account:
    """SQS in memory: a `Backend` for tests, local runs and the served endpoint.

    `clock` is the real one, or a `VirtualClock` that a test moves; long polls, delays, leases,
    retention and deduplication run on it. `region` and `account_id` are those of operations that
    are executed on the account itself; `within` gives others. `sixty_second_rules` (also an
    attribute that may be set later) is whether AWS's waiting times after a purge and a deletion
    hold. `ledger_room` is how many operations `ledger` keeps; 0 turns it off.

    One account belongs to one event loop at a time.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        region: str = "us-east-1",
        account_id: str = "000000000000",
        sixty_second_rules: bool = True,
        ledger_room: int = 10_000,
    ) -> None:
        self.clock: Clock = clock or RealClock()
        self.sixty_second_rules = sixty_second_rules
        self.ledger = Ledger(ledger_room)
        self.move_tasks = moves.MoveTasks()
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._numbers = itertools.count(1)
        # Shaped like a random UUID, and made without the cost of one.
        seed = secrets.token_hex(9)
        self._id_prefix = f"{seed[:8]}-{seed[8:12]}-4{seed[12:15]}-8{seed[15:18]}-"
        self._home = self.within(region=region, account_id=account_id)

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one operation, in the account's own region and account id."""
        return await self._home.execute(operation)

    async def aclose(self) -> None:
        """Stop what moves messages by itself; the account goes on."""
        self.move_tasks.close()

    def within(self, *, region: str | None = None, account_id: str | None = None) -> Scope:
        """A backend for another region or account id of the same store."""
        key = (region or self._home.region, account_id or self._home.account_id)
        if (scope := self._scopes.get(key)) is None:
            scope = self._scopes[key] = Scope(self, *key)
        return scope

    @property
    def queues(self) -> list[Queue]:
        """Every queue there is, of all regions and account ids."""
        return [queue for scope in self._scopes.values() for queue in scope.queues.values()]

    def find(self, arn: str) -> Queue | None:
        """The queue of an ARN, if there is one."""
        try:
            name = parse_queue_arn(arn)
        except ValueError:
            return None
        scope = self._scopes.get((name.region, name.account_id))
        return scope.queues.get(name.name) if scope else None

    def next_message_id(self) -> str:
        return f"{self._id_prefix}{next(self._numbers):012x}"

    def next_sequence_number(self) -> str:
        return str(_FIRST_SEQUENCE_NUMBER + _SEQUENCE_STEP * next(self._numbers))

    def redrive(self, source: Queue, message: Message, now: float) -> bool:
        """Move a message to its queue's dead-letter queue; False where that does not exist."""
        policy = source.settings.redrive_policy
        target = self.find(policy.target_arn) if policy else None
        if target is None or target is source:
            return False
        move_to_dead_letters(source, message, target, now, self.next_sequence_number())
        return True

    def __repr__(self) -> str:
        queues = self.queues
        lines = [f"<Account {self._home.account_id} {self._home.region}: {len(queues)} queues"]
        lines += [f"  {queue!r}" for queue in queues[:20]]
        if len(queues) > 20:
            lines.append(f"  and {len(queues) - 20} more")
        return "\n".join(lines) + ">"


class Scope:
    """The queues of one region and account id; a `Backend`."""

    __slots__ = ("_known", "account", "account_id", "clock", "deleted", "queues", "region")

    def __init__(self, account: Account, region: str, account_id: str) -> None:
        self.account = account
        self.region = region
        self.account_id = account_id
        self.clock = account.clock
        self.queues: dict[str, Queue] = {}
        self.deleted: dict[str, float] = {}
        """Names of queues that were deleted, and when."""
        self._known: dict[str, Queue] = {}

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one operation."""
        handler = _HANDLERS.get(type(operation))
        if handler is None:
            raise fault(
                "InvalidAction", f"The action {operation.action} is not valid for this endpoint."
            )
        ledger = self.account.ledger
        if not ledger.room:
            outcome = handler(self, operation)
            result: R = outcome if isinstance(outcome, Result) else await outcome
            return result
        started_at = self.clock.now()
        error: BaseException | None = None
        done: Result | None = None
        try:
            outcome = handler(self, operation)
            done = outcome if isinstance(outcome, Result) else await outcome
            return done  # type: ignore[return-value]
        except Exception as raised:
            error = raised
            raise
        finally:
            ledger.record(Entry(started_at, self.region, self.account_id, operation, done, error))

    async def aclose(self) -> None:
        """Nothing is held."""

    def queue(self, url: str) -> Queue:
        """The queue that a URL names. Raises AWS's `QueueDoesNotExist` where there is none."""
        queue = self._known.get(url)
        if queue is None or queue.deleted:
            queue = self._look_up(url)
            if len(self._known) >= _KNOWN_URLS:
                self._known.clear()
            self._known[url] = queue
        return queue

    def _look_up(self, url: str) -> Queue:
        name = QueueName(url)
        if is_queue_url(url):
            try:
                name = parse_queue_url(url)
            except ValueError:
                raise fault("QueueDoesNotExist") from None
        scope = self.account.within(
            region=self.region, account_id=name.account_id or self.account_id
        )
        queue = scope.queues.get(name.name)
        if queue is None:
            raise fault("QueueDoesNotExist")
        return queue

    def url_of(self, name: str) -> str:
        return f"https://sqs.{self.region}.amazonaws.com/{self.account_id}/{name}"

    def next_message_id(self) -> str:
        return self.account.next_message_id()

    def next_sequence_number(self) -> str:
        return self.account.next_sequence_number()

    def __repr__(self) -> str:
        return f"<Scope {self.account_id} {self.region}: {len(self.queues)} queues>"


Handler = Callable[[Scope, Any], Any]

_HANDLERS: dict[type[Operation[Any]], Handler] = {
    SendMessage: send_message,
    SendMessageBatch: send_message_batch,
    ReceiveMessage: receive_message,
    DeleteMessage: delete_message,
    DeleteMessageBatch: delete_message_batch,
    ChangeMessageVisibility: change_message_visibility,
    ChangeMessageVisibilityBatch: change_message_visibility_batch,
    **control.HANDLERS,
    **permissions.HANDLERS,
    **moves.HANDLERS,
}
