"""The account: SQS in memory, behind the same `execute` as AWS.

This module knows which queues there are and which handler carries out which operation. What a queue
does is in `queue.py`, what each action asks and refuses is in the module of its handler.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

from pumphouse.account.control import HANDLERS as CONTROL
from pumphouse.account.dead_letters import check_dead_letter
from pumphouse.account.fifo import FifoQueue
from pumphouse.account.ledger import Entry, Ledger
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.receiving import receive_message
from pumphouse.account.redrive import move_to_dead_letters
from pumphouse.account.sending import send_message, send_message_batch
from pumphouse.account.settings import QueueSettings, created
from pumphouse.account.settling import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from pumphouse.account.standard import StandardQueue
from pumphouse.clock import Clock, RealClock
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import QueueName, is_queue_url, parse_queue_arn, parse_queue_url
from pumphouse.protocol.operations import (
    DONE,
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    CreateQueue,
    CreateQueueResult,
    DeleteMessage,
    DeleteMessageBatch,
    DeleteQueue,
    Done,
    GetQueueUrl,
    GetQueueUrlResult,
    Operation,
    PurgeQueue,
    ReceiveMessage,
    Result,
    SendMessage,
    SendMessageBatch,
)

R = TypeVar("R")

RULE_SECONDS = 60.0
"""How long AWS wants after a purge until the next, and after a deletion until a name is free."""
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
        """Nothing is held; the account goes on."""

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


def create_queue(scope: Scope, operation: CreateQueue) -> CreateQueueResult:
    name = operation.queue_name
    attributes = operation.attributes or {}
    if (existing := scope.queues.get(name)) is not None:
        if (different := existing.settings.difference(attributes)) is not None:
            raise fault(
                "QueueNameExists",
                "A queue already exists with the same name and a different value for attribute "
                f"{different}",
            )
        return CreateQueueResult(existing.url)
    settings = created(name, attributes)
    now = scope.clock.monotonic()
    deleted = scope.deleted.pop(name, None)
    if deleted is not None and now < deleted + RULE_SECONDS and scope.account.sixty_second_rules:
        scope.deleted[name] = deleted
        raise fault(
            "QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with "
            "the same name.",
        )
    queue_name = QueueName(name, scope.account_id, scope.region)
    check_redrive(scope, queue_name, settings, attributes)
    kind = FifoQueue if settings.fifo else StandardQueue
    queue = kind(queue_name, scope.url_of(name), settings, scope.clock, scope.account.redrive)
    queue.tags = dict(operation.tags or {})
    scope.queues[name] = queue
    return CreateQueueResult(queue.url)


def check_redrive(
    scope: Scope, source: QueueName, settings: QueueSettings, attributes: dict[str, str]
) -> None:
    """Raise AWS's fault where these settings name a dead-letter queue that they may not name."""
    policy = settings.redrive_policy
    if policy is not None and "RedrivePolicy" in attributes:
        target = scope.account.find(policy.target_arn)
        check_dead_letter(
            source,
            policy,
            attributes["RedrivePolicy"],
            target is not None,
            target.settings.redrive_allow_policy if target else None,
        )


def delete_queue(scope: Scope, operation: DeleteQueue) -> Done:
    queue = scope.queue(operation.queue_url)
    home = scope.account.within(region=queue.name.region, account_id=queue.name.account_id)
    del home.queues[queue.name.name]
    home.deleted[queue.name.name] = scope.clock.monotonic()
    queue.close()
    return DONE


def get_queue_url(scope: Scope, operation: GetQueueUrl) -> GetQueueUrlResult:
    owner = operation.queue_owner_aws_account_id or scope.account_id
    queue = scope.account.within(region=scope.region, account_id=owner).queues.get(
        operation.queue_name
    )
    if queue is None:
        raise fault("QueueDoesNotExist")
    return GetQueueUrlResult(queue.url)


def purge_queue(scope: Scope, operation: PurgeQueue) -> Done:
    queue = scope.queue(operation.queue_url)
    now = scope.clock.monotonic()
    if now < queue.purged + RULE_SECONDS and scope.account.sixty_second_rules:
        raise fault(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {queue.name.name} is allowed every 60 seconds.",
        )
    queue.purged = now
    queue.clear()
    return DONE


Handler = Callable[[Scope, Any], Any]

_HANDLERS: dict[type[Operation[Any]], Handler] = {
    SendMessage: send_message,
    SendMessageBatch: send_message_batch,
    ReceiveMessage: receive_message,
    DeleteMessage: delete_message,
    DeleteMessageBatch: delete_message_batch,
    ChangeMessageVisibility: change_message_visibility,
    ChangeMessageVisibilityBatch: change_message_visibility_batch,
    CreateQueue: create_queue,
    DeleteQueue: delete_queue,
    GetQueueUrl: get_queue_url,
    PurgeQueue: purge_queue,
    **CONTROL,
}
