"""The account: SQS and SNS in memory, behind the same `execute` as AWS.

This module knows which queues and topics there are, in which region and under which account id, and
which handler carries out which operation. What a queue does is in `queue.py`; what each action asks
and refuses is in the module of its handler. SNS is in `topics/`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from pumphouse.account import control, moves, permissions, receiving, sending, settling
from pumphouse.account.faults import Faults
from pumphouse.account.ledger import Entry, Ledger, Sent, sent_to
from pumphouse.account.looking import look
from pumphouse.account.message import Message
from pumphouse.account.queue import Queue
from pumphouse.account.redrive import move_to_dead_letters
from pumphouse.account.topics import control as topic_control
from pumphouse.account.topics import publishing, subscribing
from pumphouse.account.topics.notifying import Deliver
from pumphouse.account.topics.store import Topics
from pumphouse.account.topics.topic import Topic
from pumphouse.clock import Clock, RealClock
from pumphouse.errors import UsageError
from pumphouse.protocol.faults import fault
from pumphouse.protocol.names import (
    QueueName,
    aws_host,
    is_arn,
    is_queue_url,
    parse_queue_arn,
    parse_queue_url,
)
from pumphouse.protocol.operations import Operation, ReceivedMessage, Result, misfit

R = TypeVar("R")

_KNOWN_URLS = 10_000
_FIRST_SEQUENCE_NUMBER = 18_850_000_000_000_000_000
_SEQUENCE_STEP = 256


class Scope:
    """The queues and topics of one region and account id; a `Backend`."""

    __slots__ = (
        "account",
        "account_id",
        "clock",
        "deleted",
        "known",
        "queues",
        "region",
        "topics",
        "topics_by_arn",
    )

    cancel_is_exact = True  # a receive that is cancelled has taken nothing

    def __init__(self, account: Account, region: str, account_id: str) -> None:
        self.account = account
        self.region = region
        self.account_id = account_id
        self.clock = account.clock
        self.queues: dict[str, Queue] = {}
        self.deleted: dict[str, float] = {}
        """Names of queues that were deleted, and when."""
        self.known: dict[str, Queue] = {}
        """Queues by each URL that was used, not more than `_KNOWN_URLS`."""
        self.topics: dict[str, Topic] = {}
        self.topics_by_arn: dict[str, Topic] = {}
        """Topics that were found by their ARN."""

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one operation. Raises the `ServiceError` that AWS answers with."""
        account = self.account
        if account.faults or account.ledger.room:
            return await account.watch(self, operation)  # type: ignore[no-any-return]
        outcome: Any = _begin(self, operation)
        if not isinstance(outcome, Result):
            outcome = await outcome
        return outcome  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Nothing is held; the account goes on."""

    def queue(self, url: str) -> Queue:
        """The queue that a URL names; a name alone will do. Raises AWS's `QueueDoesNotExist`."""
        queue = self.known.get(url)
        if queue is None or queue.deleted:
            self.known.pop(url, None)
            queue = self._look_up(url)
            if len(self.known) >= _KNOWN_URLS:
                self.known.clear()
            self.known[url] = queue
        return queue

    def _look_up(self, url: str) -> Queue:
        name = QueueName(url)
        if is_queue_url(url):
            try:
                name = parse_queue_url(url)
            except ValueError:
                raise fault("QueueDoesNotExist") from None
        if name.region and name.region != self.region:
            raise fault("InvalidAddress", f"The address {url} is not valid for this endpoint.")
        scope = self.account.scope(self.region, name.account_id or self.account_id)
        queue = scope.queues.get(name.name) if scope else None
        if queue is None:
            raise fault("QueueDoesNotExist")
        return queue

    def url_of(self, name: str) -> str:
        """The URL that a queue of this name has here."""
        return f"https://{aws_host('sqs', self.region)}/{self.account_id}/{name}"

    def next_message_id(self) -> str:
        return self.account.next_message_id()

    def next_sequence_number(self) -> str:
        return self.account.next_sequence_number()

    def __repr__(self) -> str:
        return f"<Scope {self.account_id} {self.region}: {_listed(self.queues.values())}>"


class Account:
    """SQS and SNS in memory: a `Backend` for tests, local runs and the served endpoint.

    `clock` is the real one, or a `VirtualClock` that a test moves; long polls, delays, leases,
    retention and deduplication run on it. `region` and `account_id` are those of operations that
    are executed on the account itself; `within` gives others. `sixty_second_rules`, which may be
    set later too, is whether AWS's waiting times after a purge and a deletion hold. `ledger_room`
    is how many operations the ledger keeps; 0 turns it off, and then it costs nothing. `deliver`
    sends SNS's requests to HTTP endpoints (`pumphouse.server.http_delivery.deliver` does); without
    it a topic delivers to queues only.

    A standard queue hands out messages in the order in which they became visible, which AWS does
    not promise. Access policies and encryption are stored and not applied.

    An account belongs to one event loop at a time.
    """

    cancel_is_exact = True  # a receive that is cancelled has taken nothing

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        region: str = "us-east-1",
        account_id: str = "000000000000",
        sixty_second_rules: bool = True,
        ledger_room: int = 10_000,
        deliver: Deliver | None = None,
    ) -> None:
        self.clock: Clock = clock or RealClock()
        self.sixty_second_rules = sixty_second_rules
        self.ledger = Ledger(ledger_room)
        self.faults = Faults(self.clock, _ACTIONS, self._expire_handle)
        self.move_tasks = moves.MoveTasks()
        self.topics = Topics(self.clock, deliver, region)
        self._numbers = itertools.count(1)
        # Shaped like a random UUID, and made without the cost of one.
        seed = secrets.token_hex(9)
        self._id_prefix = f"{seed[:8]}-{seed[8:12]}-4{seed[12:15]}-8{seed[15:18]}-"
        self._scopes: dict[tuple[str, str], Scope] = {}
        self._home = Scope(self, region, account_id)
        self._scopes[region, account_id] = self._home

    @property
    def region(self) -> str:
        """The region of what is executed on the account itself; `within` gives others."""
        return self._home.region

    @property
    def account_id(self) -> str:
        """The account id of what is executed on the account itself."""
        return self._home.account_id

    async def execute(self, operation: Operation[R]) -> R:
        """Carry out one operation, in the account's own region and account id. Raises the
        `ServiceError` that AWS answers with."""
        return await self._home.execute(operation)

    async def aclose(self) -> None:
        """Stop what runs by itself: message move tasks and deliveries to HTTP endpoints. The
        account can be used on."""
        self.move_tasks.close()
        await self.topics.aclose()

    def within(self, *, region: str | None = None, account_id: str | None = None) -> Scope:
        """A backend for another region or account id of the same store."""
        key = (region or self._home.region, account_id or self._home.account_id)
        if (scope := self._scopes.get(key)) is None:
            scope = self._scopes[key] = Scope(self, *key)
        return scope

    # --- for tests ------------------------------------------------------------------------------

    def queue(self, queue: str) -> Queue:
        """A queue by its name, URL or ARN, to look at. Raises `UsageError` where there is none."""
        name = QueueName(queue)
        with suppress(ValueError):
            if is_arn(queue):
                name = parse_queue_arn(queue)
            elif is_queue_url(queue):
                name = parse_queue_url(queue)
        scope = self.scope(name.region or self.region, name.account_id or self.account_id)
        found = scope.queues.get(name.name) if scope else None
        if found is None:
            raise UsageError(f"there is no queue {queue!r} in {self!r}")
        return found

    @property
    def queues(self) -> list[Queue]:
        """Every queue there is, of all regions and account ids."""
        return list(self._all())

    def sent(self, queue: str) -> list[Sent]:
        """The messages that were stored in a queue by sends, in order, as far as the ledger goes.

        `queue` is a name, a URL or an ARN. A message that has left the queue is listed too, one
        that its deduplication id or a fault kept out is not.
        """
        if not self.ledger.room:
            raise UsageError("the account's ledger is off (ledger_room=0)")
        return sent_to(self.queue(queue).name, self.ledger)

    async def look(self, queue: str, number: int = 10) -> list[ReceivedMessage]:
        """Up to `number` visible messages of a queue (name, URL or ARN), oldest first, which are
        not received by it: no count is raised, nothing is hidden, and there are no receipt handles.

        Raises `UsageError` where there is no such queue.
        """
        return look(self.queue(queue), number)

    def signing_certificate(self, file_name: str) -> bytes:
        """The certificate, as PEM, of the key that notifications are signed with.

        `file_name` is the last part of their `SigningCertURL`; nothing for any other.
        """
        signer = self.topics.signer
        return signer.certificate if file_name == signer.file_name else b""

    def needs_signature(self, operation: Operation[Any]) -> bool:
        """Whether AWS carries an operation out only for who has signed it: everything but the links
        of notifications, which confirm a subscription and end it. `AuthenticateOnUnsubscribe` at
        the confirmation makes both of them need one.
        """
        return subscribing.needs_signature(self.topics, operation)

    # --- for the scopes -------------------------------------------------------------------------

    async def watch(self, scope: Scope, operation: Operation[Any]) -> Any:
        """Carry out an operation with its fault, if it meets one, and write it into the ledger."""
        if not isinstance(operation, Operation):
            raise UsageError(f"{operation!r} is no operation")
        started_at = self.clock.now()
        result: Result | None = None
        error: BaseException | None = None

        async def carry_out(operation: Operation[Any]) -> Result:
            nonlocal result
            outcome = _begin(scope, operation)
            done: Result = outcome if isinstance(outcome, Result) else await outcome
            result = done
            return done

        try:
            behaviour = self.faults.meet(operation)
            if behaviour is None:
                await carry_out(operation)
            else:
                result = await behaviour(operation, carry_out)
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self.ledger.room:
                self.ledger.record(
                    Entry(started_at, scope.region, scope.account_id, operation, result, error)
                )

    def scope(self, region: str, account_id: str) -> Scope | None:
        """The scope of a region and account id, if anyone has used it."""
        return self._scopes.get((region, account_id))

    def find(self, arn: str) -> Queue | None:
        """The queue of an ARN, if there is one."""
        try:
            name = parse_queue_arn(arn)
        except ValueError:
            return None
        scope = self.scope(name.region, name.account_id)
        return scope.queues.get(name.name) if scope else None

    def forget_queue(self, queue: Queue, url: str) -> None:
        """Let go of a deleted queue under the names that it is mostly known by; the others are let
        go of when they are used, or when there are too many."""
        for scope in self._scopes.values():
            for name in (url, queue.url, queue.name.name):
                scope.known.pop(name, None)
        self.topics.known_queues.pop(queue.arn, None)

    def forget_topic(self, topic: Topic) -> None:
        """Let go of a deleted topic."""
        for scope in self._scopes.values():
            scope.topics_by_arn.pop(topic.arn, None)

    def redrive(self, source: Queue, message: Message, now: float) -> bool:
        """Move a message to its queue's dead-letter queue; False where that does not exist."""
        policy = source.settings.redrive_policy
        target = self.find(policy.target_arn) if policy else None
        if target is None or target is source:
            return False
        move_to_dead_letters(source, message, target, now, self.next_sequence_number())
        return True

    def next_message_id(self) -> str:
        return f"{self._id_prefix}{next(self._numbers):012x}"

    def next_sequence_number(self) -> str:
        return str(_FIRST_SEQUENCE_NUMBER + _SEQUENCE_STEP * next(self._numbers))

    def _all(self) -> Iterator[Queue]:
        return itertools.chain.from_iterable(
            scope.queues.values() for scope in self._scopes.values()
        )

    def _expire_handle(self, handle: str) -> bool:
        return any(queue.expire_handle(handle) for queue in self._all())

    def __repr__(self) -> str:
        return f"<Account {self.account_id} {self.region}: {_listed(self.queues)}>"


def _listed(queues: Collection[Queue]) -> str:
    lines = [f"\n  {queue!r}" for queue in itertools.islice(queues, 20)]
    if len(queues) > 20:
        lines.append(f"\n  and {len(queues) - 20} more")
    return f"{len(queues)} queue{'' if len(queues) == 1 else 's'}{''.join(lines)}"


# --- which handler carries out what ---------------------------------------------------------------

Handler = Callable[[Scope, Any], Any]
"""Takes the scope and an operation; returns its result, or an awaitable of it."""

_HANDLERS: dict[type[Operation[Any]], Handler] = {
    **sending.HANDLERS,
    **receiving.HANDLERS,
    **settling.HANDLERS,
    **control.HANDLERS,
    **permissions.HANDLERS,
    **moves.HANDLERS,
    **topic_control.HANDLERS,
    **subscribing.HANDLERS,
    **publishing.HANDLERS,
}
_ACTIONS = frozenset(operation.action for operation in _HANDLERS)


def _begin(scope: Scope, operation: Operation[Any]) -> Any:
    """The result of an operation, or an awaitable of it. Raises AWS's `InvalidAction` for one that
    is not known, and `UsageError` where a value is of a type that it can't be of."""
    try:
        handler = _HANDLERS.get(type(operation))
        if handler is None:
            raise fault(
                "InvalidAction", f"The action {operation.action} is not valid for this endpoint."
            )
        return handler(scope, operation)
    except (TypeError, AttributeError) as error:
        if reason := misfit(operation):
            raise UsageError(reason) from error
        raise
