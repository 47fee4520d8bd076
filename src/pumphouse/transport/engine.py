"""The engine: the board's steps carried out over a backend, and its answers put on the board.

The one place where claims, receives, deletes, extensions and time meet. What is decided is decided
in `board.py`; how deletes and changes travel is in `settling.py`; what users see, and what they may
ask, is in `lease_transport.py`.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

from pumphouse.backend import Backend
from pumphouse.backoff import full_jitter, one_try
from pumphouse.clock import Clock, Timer
from pumphouse.content import ENCODING_ATTRIBUTE
from pumphouse.errors import (
    ClosedError,
    LeaseLostError,
    OutcomeUnknownError,
    RefusedError,
)
from pumphouse.protocol.operations import ReceivedMessage, ReceiveMessage
from pumphouse.transport.board import Board
from pumphouse.transport.pieces import (
    Chain,
    Deliver,
    Grant,
    Held,
    Nothing,
    Poll,
    Release,
    Renew,
    Waiter,
)
from pumphouse.transport.settling import LOST, PASSING, Settler
from pumphouse.transport.tasks import Tasks

MAX_ATTEMPTS = 5

_ATTEMPT_ID = "ReceiveRequestAttemptId"
_SYSTEM_ATTRIBUTES = [
    "ApproximateReceiveCount",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SequenceNumber",
]


class Engine:
    """See the module; made by `LeaseTransport`, whose options it takes."""

    def __init__(
        self,
        backend: Backend,
        queue_url: str,
        clock: Clock,
        *,
        coalesce: bool,
        one_per_receive: bool,
        ack_linger_seconds: float,
        grace_seconds: float,
        owns_backend: bool,
    ) -> None:
        self.tasks = Tasks()
        self._backend = backend
        self._queue_url = queue_url
        self._clock = clock
        self._owns_backend = owns_backend
        self._board = Board(share=coalesce and not one_per_receive, grace_seconds=grace_seconds)
        self._settler = Settler(
            backend,
            queue_url,
            clock,
            self.tasks,
            batch=coalesce,
            linger_seconds=ack_linger_seconds,
        )
        self._claims: dict[Waiter, asyncio.Future[Held | None]] = {}
        self._polling: asyncio.Handle | None = None
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._closed: asyncio.Future[None] | None = None
        self._exact = getattr(backend, "cancel_is_exact", False)
        self._receives: set[asyncio.Task[None]] = set()  # where cancelling one is exact
        self.stopped = False
        """Whether no more work is taken."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed is not None

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._closed is not None:
            raise ClosedError(f"the transport on {self._queue_url} is closed")

    # --- what workers do ------------------------------------------------------------------------

    async def claim(self, worker_id: str, visibility: int, wait: int) -> Held | None:
        """Wait for a message. Cancelled, it takes none: one that was on its way goes elsewhere."""
        if self.stopped:
            return None
        now = self._clock.monotonic()
        waiter = Waiter(worker_id, visibility, wait, now + wait)
        claim: asyncio.Future[Held | None] = asyncio.get_running_loop().create_future()
        self._claims[waiter] = claim
        self._board.join(waiter, now)
        self._step()
        try:
            return await claim
        except asyncio.CancelledError:
            held = None
            if not claim.cancelled() and claim.exception() is None:
                held = claim.result()
            if held is not None:
                self._board.returned(held, self._clock.monotonic())
            else:
                self._board.leave(waiter)
            self._step()
            raise
        finally:
            del self._claims[waiter]

    async def ack(self, held: Held) -> None:
        """Delete the message; its follower is handed out when that is confirmed."""
        self._board.settling(held, self._clock.monotonic(), keep_followers=True)
        done = self._settler.delete(held)
        if self._board.out == 0:
            self._settler.flush()  # no other worker has anything to ack soon
        await self._settle(held, done)

    async def nack(self, held: Held, seconds: int) -> None:
        """Make the message visible in `seconds`, and its followers at once."""
        self._board.settling(held, self._clock.monotonic(), keep_followers=False)
        await self._settle(held, self._settler.change(held, seconds))

    async def extend(self, held: Held, seconds: int) -> None:
        """Let the leases of the message and of its followers end in `seconds`."""
        first = self._extend(self._board.extending(held), seconds=seconds)
        try:
            await asyncio.shield(first)
        except (*LOST, LeaseLostError) as error:
            raise _lost(held, error) from error
        if held.lost:
            raise _lost(held, "it was extended too late")

    async def _settle(self, held: Held, done: asyncio.Future[float]) -> None:
        """Tell the board how it ends, whether or not the caller waits for that."""

        def report(_: object) -> None:
            if done.cancelled():
                return
            now = self._clock.monotonic()
            if (error := done.exception()) is None:
                self._board.settled(held, now)
            else:
                lost = isinstance(error, LOST) or held.deadline <= now
                self._board.not_settled(held, now, lost=lost)
            self._step()

        done.add_done_callback(report)
        self._step()
        try:
            await asyncio.shield(done)
        except Exception as error:
            if held.lost:
                raise _lost(held, error) from error
            raise

    def _extend(
        self, chain: list[Held], *, seconds: int = 0, until: float | None = None
    ) -> asyncio.Future[float]:
        """Extend a head and its followers; returns the head's outcome."""

        def extend(held: Held) -> asyncio.Future[float]:
            done = self._settler.change(held, seconds, until=until)

            def report(_: object) -> None:
                if done.cancelled():
                    return
                now = self._clock.monotonic()
                if (error := done.exception()) is None:
                    self._board.extended(held, done.result(), now)
                elif isinstance(error, LOST):
                    self._board.extended(held, None, now)
                self._step()

            done.add_done_callback(report)
            return done

        return [extend(held) for held in chain][0]  # noqa: RUF015 - all of them are extended

    # --- the board's steps ----------------------------------------------------------------------

    def _step(self) -> None:
        """Carry out what the board wants, and be there when it wants more."""
        for step in self._board.take_steps():
            match step:
                case Deliver(waiter, held):
                    self._answer(waiter, held)
                case Nothing(waiter, error):
                    self._answer(waiter, None, error)
                case Release(messages):
                    for held in messages:
                        self._settler.change(held, 0).add_done_callback(_heard)
                case Renew(head, until):
                    self._extend(self._board.extending(head), until=until)
                case Grant(chain, seconds):
                    self._grant(chain, seconds)
        if self._polling is None and not self.stopped:
            # On the loop's next round: until then the claims of this moment come together.
            self._polling = asyncio.get_running_loop().call_soon(self._start_polls)
        alarm = self._board.next_alarm()
        if alarm is not None and (self._timer is None or alarm < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = alarm
            self._timer = self._clock.call_later(alarm - self._clock.monotonic(), self._alarm)

    def _answer(
        self, waiter: Waiter, held: Held | None, error: BaseException | None = None
    ) -> None:
        claim = self._claims.get(waiter)
        if claim is None or claim.done():
            if held is not None:  # cancelled, and its task has not heard of it yet
                self._board.returned(held, self._clock.monotonic())
        elif error is not None:
            claim.set_exception(error)
        else:
            claim.set_result(held)

    def _grant(self, chain: Chain, seconds: int) -> None:
        def report(done: asyncio.Future[float]) -> None:
            if done.cancelled():
                return
            now = self._clock.monotonic()
            if (error := done.exception()) is None:
                self._board.granted(chain, now)
            else:
                self._board.refused(chain, now, lost=isinstance(error, LOST))
            self._step()

        self._extend(list(chain.members), seconds=seconds).add_done_callback(report)

    def _alarm(self) -> None:
        self._timer = None
        self._board.alarm(self._clock.monotonic())
        self._step()

    # --- receives -------------------------------------------------------------------------------

    def _start_polls(self) -> None:
        self._polling = None
        while not self.stopped:
            poll = self._board.next_poll(self._clock.monotonic())
            if poll is None:
                return
            receive = self.tasks.spawn(self._receive(poll))
            if self._exact:
                self._receives.add(receive)
                receive.add_done_callback(self._receives.discard)

    async def _receive(self, poll: Poll) -> None:
        """One receive, tried again after passing failures."""
        one_try.set(True)  # only here, so that each try is counted from its own beginning
        attempt_id, attempt = uuid4().hex, 1
        while True:
            asked_at = self._clock.monotonic()
            try:
                answer = await self._backend.execute(
                    ReceiveMessage(
                        self._queue_url,
                        message_system_attribute_names=_SYSTEM_ATTRIBUTES,
                        message_attribute_names=[ENCODING_ATTRIBUTE],
                        max_number_of_messages=poll.max_messages,
                        visibility_timeout=poll.visibility,
                        wait_time_seconds=poll.wait,
                        receive_request_attempt_id=attempt_id,
                    )
                )
            except asyncio.CancelledError:
                if not self.stopped:
                    raise
                now = self._clock.monotonic()
                self._board.answered(poll, (), now, now)  # it has taken nothing
                break
            except Exception as error:
                stale = isinstance(error, RefusedError) and _ATTEMPT_ID in error.message
                passing = stale or isinstance(error, PASSING)
                if not passing or attempt == MAX_ATTEMPTS or self.stopped:
                    self._board.failed(poll, error)
                    break
                # The same attempt id brings the messages whose answer was lost; SQS takes it again
                # for nothing else.
                if not isinstance(error, OutcomeUnknownError):
                    attempt_id = uuid4().hex
                at_least = getattr(error, "retry_after_seconds", 0.0)
                await self._clock.sleep(max(full_jitter(attempt), at_least))
                attempt += 1
            else:
                messages = [(_group_of(message), message) for message in answer.messages]
                # Nobody says when SQS gave the leases, or for how long its answer was kept from
                # this loop: only when we asked is known.
                self._board.answered(poll, messages, self._clock.monotonic(), asked_at)
                break
        self._step()

    # --- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more claims, and give back what nobody has.

        An open receive runs to its end, since what it is about to bring would be hidden until its
        lease ends; but where the backend says that cancelling is exact it is cancelled.
        """
        if not self.stopped:
            self.stopped = True
            self._board.close(self._clock.monotonic())
            for receive in self._receives:
                receive.cancel()
            self._step()

    async def close(self) -> None:
        """Stop, and end what is under way."""
        self.stop()
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._settler.hurry()
            self.tasks.spawn(self._finish(self._closed))
        await asyncio.shield(self._closed)

    async def _finish(self, closed: asyncio.Future[None]) -> None:
        try:
            while self._settler.flush() or len(self.tasks) > 1:
                await self.tasks.idle(besides=asyncio.current_task())
            if self._timer is not None:
                self._timer.cancel()
            if self._owns_backend:
                await self._backend.aclose()
        finally:
            if not closed.done():
                closed.set_result(None)

    def __repr__(self) -> str:
        state = "closed, " if self.closed else "stopped, " if self.stopped else ""
        return state + repr(self._board)


def _group_of(message: ReceivedMessage) -> str:
    return message.attributes.get("MessageGroupId", "")


def _heard(done: asyncio.Future[float]) -> None:
    """A give-back that failed needs nothing more: the lease ends by itself."""
    if not done.cancelled():
        done.exception()


def _lost(held: Held, error: object) -> LeaseLostError:
    return LeaseLostError(
        f"the lease on message {held.message.message_id} of group {held.group_id!r} had ended when "
        f"SQS was asked ({error}); the message is, or will be, delivered again"
    )
