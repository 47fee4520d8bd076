"""`LeaseTransport`: publish, claim, ack, nack and extend over one FIFO queue.

The messages' way is in `engine.py` and `board.py`; making sure of the queue is in `opening.py`.
The contract is that of a queue per group with one message in flight in each: SQS's message group is
the exclusivity, its visibility timeout the lease ("FIFO delivery logic" and "Amazon SQS visibility
timeout" in the developer guide).
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar
from uuid import uuid4

from pumphouse.backend import Backend
from pumphouse.backoff import full_jitter
from pumphouse.clock import Clock, RealClock
from pumphouse.content import encode
from pumphouse.errors import Md5MismatchError, MessageTooLargeError, UsageError
from pumphouse.model import Receipt
from pumphouse.protocol.attributes import (
    MAX_MESSAGE_BYTES,
    is_token,
    md5_of_attributes,
    md5_of_body,
    message_size,
)
from pumphouse.protocol.operations import SendMessage
from pumphouse.transport.codecs import codec_for
from pumphouse.transport.engine import MAX_ATTEMPTS, Engine
from pumphouse.transport.holding import Holding
from pumphouse.transport.lease import Duration, Lease, whole_seconds
from pumphouse.transport.opening import open_queue
from pumphouse.transport.pieces import Held
from pumphouse.transport.settling import PASSING
from pumphouse.transport.tasks import Tasks
from pumphouse.transport.waiting import MAX_WAIT_SECONDS

E = TypeVar("E")


class LeaseTransport(Holding[E]):
    """A FIFO queue as leases: at most one message of a group in flight, each group in order.

    Make one with `await LeaseTransport.create("jobs")`, or over a backend and a queue URL that are
    known. It belongs to the event loop that it is used in, and is closed with `close()` or
    `async with`. Any number of tasks may claim at once, and any number of processes may have a
    transport on the same queue.

    - `events`: what events are: None for JSON, `bytes`, `str`, a pydantic model, a msgspec type, or
      a `Codec`.
    - `wait_seconds`: how long a claim waits for a message, 0 to 20, unless it says otherwise.
    - `coalesce`: claims that wait at the same time share a receive, and acks share a request.
      False sends one request for each claim, ack, nack and extension.
    - `one_per_receive`: no receive brings more than one message. `create` turns it on for a queue
      with a redrive policy, where a message that comes along behind a failing one would use up its
      own receives.
    - `ack_linger_seconds`: how long an ack waits for others; not at all when no other lease is out.
    - `grace_seconds`: how long a follower waits for a worker after the ack of the one before, until
      it is given back for other processes to take.
    - `max_message_bytes`: what the queue takes; larger events are refused before any request.

    All arguments are checked before a request; a wrong one raises `UsageError`, a `ValueError`.
    """

    def __init__(
        self,
        backend: Backend,
        queue_url: str,
        *,
        events: Any = None,
        clock: Clock | None = None,
        wait_seconds: Duration = 1,
        coalesce: bool = True,
        one_per_receive: bool = False,
        ack_linger_seconds: float = 0.005,
        grace_seconds: float = 0.1,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        owns_backend: bool = False,
    ) -> None:
        if not queue_url.endswith(".fifo"):
            raise UsageError(
                f"{queue_url!r} is no FIFO queue, and only groups give one message in flight"
            )
        self.queue_url = queue_url
        self.codec = codec_for(events)
        self.coalesce = coalesce
        self.one_per_receive = one_per_receive
        self.backend = backend
        self.clock = clock or RealClock()
        self.wait_seconds = whole_seconds(wait_seconds, "wait_seconds", MAX_WAIT_SECONDS)
        self._max_message_bytes = max_message_bytes
        self._engine = Engine(
            backend,
            queue_url,
            self.clock,
            coalesce=coalesce,
            one_per_receive=one_per_receive,
            ack_linger_seconds=ack_linger_seconds,
            grace_seconds=grace_seconds,
            owns_backend=owns_backend,
        )

    @classmethod
    async def create(
        cls,
        queue: str,
        backend: Backend | None = None,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        profile: str | None = None,
        credentials: Any = None,
        attributes: dict[str, str] | None = None,
        tags: dict[str, str] | None = None,
        protect_dead_letters: bool = True,
        connect_retries: int = 30,
        retry_delay_seconds: float = 1.0,
        clock: Clock | None = None,
        **options: Any,
    ) -> LeaseTransport[E]:
        """A transport on a FIFO queue that is made sure to exist.

        `queue` is a name (`.fifo` is appended where it is missing), a URL or an ARN; only a name is
        created, with `attributes` and `tags`. Without a backend one is made with
        `pumphouse.connect(region=…, endpoint_url=…, profile=…, credentials=…)`, and closed with the
        transport. As long as the endpoint can't be reached or answers with passing errors, it is
        tried again: `connect_retries` times, `retry_delay_seconds` apart. Other options are those
        of the class.

        With `protect_dead_letters`, a queue that has a redrive policy is received from one message
        at a time (see `one_per_receive`).

        Raises `UsageError` for a name that can't be one, `ConfigError` for what an operator has to
        put right, `QueueNameExists` where the queue has other attributes, and the last error when
        all tries failed.
        """
        its_clock: Clock = clock or getattr(backend, "clock", None) or RealClock()
        owns = backend is None
        if backend is None:
            from pumphouse import connect

            backend = connect(
                region=region, endpoint_url=endpoint_url, profile=profile, credentials=credentials
            )
        try:
            found = await open_queue(
                queue,
                backend,
                its_clock,
                attributes=attributes,
                tags=tags,
                connect_retries=connect_retries,
                retry_delay_seconds=retry_delay_seconds,
            )
            options.setdefault("max_message_bytes", found.max_message_bytes)
            if protect_dead_letters and found.has_dead_letters:
                options.setdefault("one_per_receive", True)
            return cls(backend, found.url, clock=its_clock, owns_backend=owns, **options)
        except BaseException:
            if owns:
                await backend.aclose()
            raise

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._engine.closed

    @property
    def stopped(self) -> bool:
        """Whether `stop` or `close` was called: no more work is taken."""
        return self._engine.stopped

    @property
    def _background(self) -> Tasks:
        return self._engine.tasks

    # --- publishing -----------------------------------------------------------------------------

    async def publish(
        self, group_id: str, event: E, priority: int = 0, *, deduplication_id: str | None = None
    ) -> Receipt:
        """Put an event at the end of its group; returns when SQS has confirmed it.

        Every publish has a deduplication id of its own, so the same event can be published again,
        and a try whose answer was lost is repeated without a double. With a `deduplication_id` of
        yours, what you publish again within five minutes counts once.

        Raises `UsageError` for a priority other than 0, a group id that SQS does not take (1 to 128
        of A-Z, a-z, 0-9 and ASCII punctuation), and an event that the codec or SQS does not take;
        `MessageTooLargeError`; and what SQS answers, `OutcomeUnknownError` included.
        """
        self._engine.check_open()
        if priority:
            _refuse_priority(f"publish(priority={priority!r})")
        if not isinstance(group_id, str) or not is_token(group_id):
            raise UsageError(
                f"the group id {group_id!r} is not 1 to 128 letters, digits and ASCII punctuation"
            )
        if deduplication_id is not None and not is_token(deduplication_id):
            raise UsageError(
                f"the deduplication id {deduplication_id!r} is not 1 to 128 letters, digits and "
                "ASCII punctuation"
            )
        body, attributes = encode(self.codec.encode(event))
        if (size := message_size(body, attributes)) > self._max_message_bytes:
            raise MessageTooLargeError(size, self._max_message_bytes)
        operation = SendMessage(
            self.queue_url,
            body,
            message_attributes=attributes or None,
            message_deduplication_id=deduplication_id or uuid4().hex,
            message_group_id=group_id,
        )
        sent = await self._repeated(operation)
        for what, expected, got in (
            ("body", md5_of_body(body), sent.md5_of_message_body),
            ("attributes", md5_of_attributes(attributes), sent.md5_of_message_attributes),
        ):
            if expected != got:
                raise Md5MismatchError(what, str(expected), str(got))
        return Receipt(
            sent.message_id,
            self.queue_url,
            sent.sequence_number,
            operation.message_deduplication_id,
        )

    async def _repeated(self, operation: Any) -> Any:
        """Execute an operation that may be carried out twice, again after passing failures."""
        for attempt in range(1, MAX_ATTEMPTS):
            try:
                return await self.backend.execute(operation)
            except PASSING:
                await self.clock.sleep(full_jitter(attempt))
        return await self.backend.execute(operation)

    # --- claiming -------------------------------------------------------------------------------

    async def claim(
        self,
        worker_id: str,
        visibility: Duration,
        min_priority: int = 0,
        *,
        wait_seconds: Duration | None = None,
    ) -> Lease[E] | None:
        """Lease the next message of some group that has nothing in flight, for `visibility`.

        Waits up to `wait_seconds` (0 to 20; to within a second, since SQS counts in whole ones) and
        returns None when nothing came, or when the transport was stopped. The lease is counted from
        when its receive was asked for, and extended where that leaves too little. A claim that is
        cancelled takes no message: one that was on its way goes to another claim or is given back.
        `worker_id` is for your own logs.

        Raises `UsageError` for a `min_priority` other than 0 and for durations that SQS does not
        take, and what SQS answers the receive with, after passing failures were tried again.
        """
        self._engine.check_open()
        if min_priority:
            _refuse_priority(f"claim(min_priority={min_priority!r})")
        wait = self.wait_seconds
        if wait_seconds is not None:
            wait = whole_seconds(wait_seconds, "wait_seconds", MAX_WAIT_SECONDS)
        lease_for = whole_seconds(visibility, "visibility")
        held = await self._engine.claim(worker_id, lease_for, wait)
        return (
            None if held is None else Lease(held, worker_id, self.codec, self.clock, self.queue_url)
        )

    # --- settling -------------------------------------------------------------------------------

    async def ack(self, lease: Lease[E]) -> None:
        """The message was handled: delete it. Returns when SQS has confirmed it.

        Raises `LeaseLostError` when the lease has ended, is settled, or was lost by the time that
        SQS looked: the message is, or will be, delivered again. Any other error means that the
        delete was not confirmed within the lease; the lease is still held and can be acked again.
        """
        await self._engine.ack(self._held_by(lease))

    async def nack(self, lease: Lease[E], delay: Duration = 0) -> None:
        """Give the message back: at once, or parked for `delay` (up to 12 h from its receive).

        Its group stays blocked until then, and continues with this message. Raises as `ack`.
        """
        seconds = whole_seconds(delay, "delay")
        await self._engine.nack(self._held_by(lease), seconds)

    async def extend(self, lease: Lease[E], visibility: Duration) -> None:
        """Let the lease end `visibility` from now, which may also be sooner.

        Raises `LeaseLostError` as `ack` does, and `RefusedError` beyond 12 hours from the receive,
        which is the most that SQS gives: the lease then ends when it did before.
        """
        seconds = whole_seconds(visibility, "visibility")
        await self._engine.extend(self._held_by(lease), seconds)

    def _held_by(self, lease: Lease[E]) -> Held:
        if not isinstance(lease, Lease):
            raise UsageError(f"{lease!r} is no lease of this transport")
        self._engine.check_open()
        return lease.held()

    # --- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more work, and go on with what is held: for the start of an orderly end.

        Claims that wait, and later ones, get None, and `leases` ends. Leases that workers have can
        still be acked, nacked and extended, until `close`.
        """
        self._engine.stop()

    async def close(self) -> None:
        """Stop, and end what is under way.

        Claims that wait get None. Acks, nacks and extensions that were called are finished, a
        receive that is open is waited for (up to its `wait_seconds`), and what it brings and what
        is held for nobody is given back. A lease that a worker still has is left to end by itself:
        `stop` first, and let workers settle what they have. Closes the backend if the transport
        made it. May be called twice.
        """
        await self._engine.close()

    def __repr__(self) -> str:
        return f"<LeaseTransport on {self.queue_url}: {self._engine!r}>"


def _refuse_priority(call: str) -> NoReturn:
    raise UsageError(
        f"{call}: an SQS FIFO queue has no priorities, so LeaseTransport takes only 0; "
        "use PriorityTransport, which has one queue for each level"
    )
