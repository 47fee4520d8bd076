"""One log record for each message, with fields; and the message's ids on every other record.

`json_lines.py` writes such records as JSON; any other formatter or handler that reads `extra` does
as well.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pumphouse.clock import Clock, RealClock
from pumphouse.content import UndecodableError
from pumphouse.errors import UsageError
from pumphouse.model import Message, Receipt
from pumphouse.subscriber.chain import CallNext, CallNextBatch, Surroundings, mark_logged
from pumphouse.subscriber.outcomes import Ack, Outcome, Retry, Settle, describe

if TYPE_CHECKING:
    from pumphouse.publishers import Outgoing

LOGGER = "pumphouse.messages"
_own = logging.getLogger("pumphouse.middleware")

_current: ContextVar[Sequence[Message]] = ContextVar("pumphouse_logged_messages")


class Logging:
    """Logs each message when its handler has ended: what came of it and how long it took.

    - `logger`: a logger or its name, `pumphouse.messages` by default.
    - `level`: for messages that were done; `failure_level` for all others. Those that a stop gave
      back are logged at `level` too.
    - `bodies`: whether the body goes into the record (field `body`), up to `body_bytes` bytes.
      Not by default: bodies are the last thing that should end in a log by accident.

    A record has the fields `queue`, `message_id`, `group_id`, `attempt`, `receive_count`,
    `correlation_id`, `duration_seconds`, `outcome` ("ack", "retry", "drop", "reject", "stopped",
    "lost") and `reason`; an error is logged with its traceback, and by nobody else then. Of a batch
    every message has its own record, with the `duration_seconds` of the whole and its
    `batch_size`. Put it outermost, so that it sees what is carried out.

    What is published is logged at `publish_level` (debug), with `destination`, `outcome` ("sent",
    "failed"), `sent_message_id`, `sent_group_id`, `duration_seconds` and `reason`. An error goes on
    to whoever published.
    """

    logs_outcomes = True  # the runtime leaves it to this one to tell of them

    def __init__(
        self,
        *,
        logger: logging.Logger | str = LOGGER,
        level: int = logging.INFO,
        failure_level: int = logging.WARNING,
        publish_level: int = logging.DEBUG,
        bodies: bool = False,
        body_bytes: int = 1_024,
    ) -> None:
        if isinstance(body_bytes, bool) or not isinstance(body_bytes, int) or body_bytes < 1:
            raise UsageError(f"body_bytes is a number of bytes, at least 1; not {body_bytes!r}")
        levels = {"level": level, "failure_level": failure_level, "publish_level": publish_level}
        for name, value in levels.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name} is a level of logging (logging.INFO, …), not {value!r}")
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level
        self._failure_level = failure_level
        self._publish_level = publish_level
        self._bodies = bodies
        self._body_bytes = body_bytes
        self._clock: Clock = RealClock()
        self._surroundings: Surroundings | None = None

    def bind(self, surroundings: Surroundings) -> Logging:
        """The same, for one subscription."""
        bound = copy.copy(self)
        bound._clock = surroundings.clock
        bound._surroundings = surroundings
        return bound

    async def receive(self, message: Message, call_next: CallNext) -> Outcome:
        """Around one message."""
        messages = (message,)
        started = self._clock.monotonic()
        token = _current.set(messages)
        try:
            try:
                outcome = await call_next(message)
            except BaseException as error:
                self._failed(messages, error, started)
                raise
            self._ended(messages, (outcome,), started)
        finally:
            _current.reset(token)
        return outcome

    async def receive_batch(
        self, messages: list[Message], call_next: CallNextBatch
    ) -> list[Outcome]:
        """Around one batch."""
        started = self._clock.monotonic()
        token = _current.set(messages)
        try:
            try:
                outcomes = await call_next(messages)
            except BaseException as error:
                self._failed(messages, error, started)
                raise
            self._ended(messages, outcomes, started)
        finally:
            _current.reset(token)
        return outcomes

    async def publish(
        self, outgoing: Outgoing, call_next: Callable[[Outgoing], Awaitable[Receipt]]
    ) -> Receipt:
        """Around the sending of one message."""
        if not self._logger.isEnabledFor(self._publish_level):
            return await call_next(outgoing)
        to = outgoing.destination
        fields: dict[str, object] = {
            "destination": to if isinstance(to, str) else to.reference,
            "sent_group_id": outgoing.group_id,
        }
        if self._bodies:
            body = outgoing.body
            fields.update(self._body_of(body.encode() if isinstance(body, str) else body))
        started = self._clock.monotonic()
        try:
            receipt = await call_next(outgoing)
        except Exception as error:
            fields["outcome"], fields["reason"] = "failed", describe(error)
            self._log_sent(fields, started)
            raise
        fields["outcome"], fields["sent_message_id"] = "sent", receipt.message_id
        self._log_sent(fields, started)
        return receipt

    def _log_sent(self, fields: dict[str, object], started: float) -> None:
        seconds = self._clock.monotonic() - started
        fields["duration_seconds"] = round(seconds, 6)
        reason = f": {fields['reason']}" if "reason" in fields else ""
        args = (fields["destination"], fields["outcome"], seconds, reason)
        self._make(self._publish_level, "%s: %s (%.3f s)%s", args, fields)

    def _ended(
        self, messages: Sequence[Message], outcomes: Sequence[Outcome], started: float
    ) -> None:
        seconds = self._clock.monotonic() - started
        for message, outcome in zip(messages, outcomes, strict=True):
            done = type(outcome) is Ack or (isinstance(outcome, Retry) and not outcome.counts)
            level = self._level if done else self._failure_level
            if self._logger.isEnabledFor(level):
                name = type(outcome).__name__.lower()
                reason = getattr(outcome, "reason", "")
                self._log(level, message, len(messages), seconds, name, reason)

    def _failed(self, messages: Sequence[Message], error: BaseException, started: float) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return  # it is meant for the program
        seconds = self._clock.monotonic() - started
        for message in messages:
            name, reason, shown = self._outcome_of(message, error)
            fine = name == "ack" or (name == "stopped" and shown is None)
            level = self._level if fine else self._failure_level
            if self._logger.isEnabledFor(level):
                self._log(level, message, len(messages), seconds, name, reason, shown)
        mark_logged(error, [message.lease for message in messages])

    def _outcome_of(
        self, message: Message, error: BaseException
    ) -> tuple[str, str, BaseException | None]:
        """What becomes of it, why, and the error that is to be shown."""
        task = asyncio.current_task()
        if task is not None and task.cancelling() and not isinstance(error, Settle):
            name = "lost" if message.lease_lost else "stopped"
            if isinstance(error, asyncio.CancelledError):
                return name, "cancelled", None
            return name, describe(error), error  # in the place of the cancellation
        if self._surroundings is None:
            return "retry", describe(error), error
        outcome = self._surroundings.outcome_of(error)
        shown = None if isinstance(error, UndecodableError) else error  # its traceback says nothing
        return type(outcome).__name__.lower(), describe(error), shown

    def _log(
        self,
        level: int,
        message: Message,
        batch_size: int,
        seconds: float,
        outcome: str,
        reason: str,
        error: BaseException | None = None,
    ) -> None:
        fields = _ids(message)
        fields["attempt"] = message.attempt
        fields["receive_count"] = message.receive_count
        fields["duration_seconds"] = round(seconds, 6)
        fields["outcome"] = outcome
        fields["reason"] = reason
        if batch_size > 1:
            fields["batch_size"] = batch_size
        if self._bodies:
            fields.update(self._body_of(message.body))
        args = (
            message.queue,
            message.message_id,
            message.attempt,
            outcome,
            seconds,
            f": {reason}" if reason else "",
        )
        self._make(level, "%s: message %s, attempt %d: %s (%.3f s)%s", args, fields, error)

    def _body_of(self, body: bytes) -> dict[str, object]:
        shown = body[: self._body_bytes].decode(errors="replace")
        return {"body": shown, "body_size": len(body)}

    def _make(
        self,
        level: int,
        text: str,
        args: tuple[object, ...],
        fields: dict[str, object],
        error: BaseException | None = None,
    ) -> None:
        """Log as `Logger.log` does, without the search for the caller, which takes longest."""
        logger = self._logger
        shown = None if error is None else (type(error), error, error.__traceback__)
        try:
            logger.handle(
                logger.makeRecord(logger.name, level, __file__, 0, text, args, shown, extra=fields)
            )
        except Exception:  # a filter or a handler of the user's: no reason to run a message again
            _own.exception("a record could not be logged: %s", text % args)

    def __repr__(self) -> str:
        return f"Logging(logger={self._logger.name!r})"


class MessageContext(logging.Filter):
    """Gives every record that is made while a message is handled inside `Logging` the message's
    `queue`, `message_id`, `group_id` and `correlation_id`; of a batch, `queue` and `batch_size`.

    A filter of a *handler* (`handler.addFilter(MessageContext())`), so that it sees the records of
    all loggers. It lets everything pass. What a record has already is left alone.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        messages = _current.get(())
        if messages:
            fields: dict[str, object] = (
                _ids(messages[0])
                if len(messages) == 1
                else {"queue": messages[0].queue, "batch_size": len(messages)}
            )
            for name, value in fields.items():
                record.__dict__.setdefault(name, value)
        return True


def _ids(message: Message) -> dict[str, object]:
    return {
        "queue": message.queue,
        "message_id": message.message_id,
        "group_id": message.group_id,
        "correlation_id": message.correlation_id,
    }
