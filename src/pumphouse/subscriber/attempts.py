"""How often a message has really been run, and how that differs from what SQS counts.

SQS counts receives. A receive is no attempt when the message never got to its handler: a follower
that came along with a failing head of its FIFO group, or a message that was given back at a stop.
So this process remembers, for the messages that it has seen and not finished, how often each one
ran here and how often it was given back unrun. For a standard queue everything else that SQS has
counted is taken as an attempt somewhere else; for a FIFO queue only what was seen here counts.

It also remembers messages that are done and whose delete SQS never confirmed, so that they are
deleted and not run when they come again. All of it is bounded; what is forgotten costs at most a
further attempt.
"""

from __future__ import annotations

from collections import OrderedDict

MEMORY = 50_000


class _Record:
    __slots__ = ("carried", "done", "not_carried", "runs", "unrun")

    def __init__(self) -> None:
        self.runs = 0
        self.unrun = 0
        self.not_carried = 0
        self.done = False
        self.carried = False


class Attempts:
    """The memory of one subscription; `records` is empty while nothing has to be remembered."""

    def __init__(self, *, fifo: bool, max_attempts: int | None = None) -> None:
        self.fifo = fifo
        self.max_attempts = max_attempts
        self.records: OrderedDict[str, _Record] = OrderedDict()

    def arrive(self, message_id: str, receive_count: int) -> int:
        """The number, from 1, of the attempt that a message which just arrived is about to be.

        More than `max_attempts` only for a message that this process knows to have been run that
        often: one that comes with a high count from elsewhere is still run here, once.
        """
        record = self.records.get(message_id)
        runs, unrun = (record.runs, record.unrun) if record else (0, 0)
        attempt = runs + 1
        if not self.fifo:
            elsewhere = receive_count - unrun
            if self.max_attempts is not None and runs < self.max_attempts:
                elsewhere = min(elsewhere, self.max_attempts)
            attempt = max(attempt, elsewhere)
        return attempt

    def ran(self, message_id: str, runs: int = 1) -> None:
        """A handler was started for it, and it isn't done."""
        self._record(message_id).runs += runs

    def unrun(self, message_id: str) -> None:
        """It was received and given back without having been started."""
        self._record(message_id).unrun += 1

    def not_carried(self, message_id: str) -> int:
        """It could not be carried to the dead-letter queue; returns how often that was."""
        record = self._record(message_id)
        record.not_carried += 1
        return record.not_carried

    def done_unconfirmed(self, message_id: str, *, carried: bool = False) -> None:
        """It is done, or carried to the dead-letter queue, and its delete is not confirmed."""
        record = self._record(message_id)
        record.done = True
        record.carried |= carried

    def is_done(self, message_id: str) -> bool:
        record = self.records.get(message_id)
        return record is not None and record.done

    def was_carried(self, message_id: str) -> bool:
        record = self.records.get(message_id)
        return record is not None and record.carried

    def forget(self, message_id: str) -> None:
        """It is deleted for certain."""
        self.records.pop(message_id, None)

    def __len__(self) -> int:
        return len(self.records)

    def _record(self, message_id: str) -> _Record:
        record = self.records.get(message_id)
        if record is None:
            record = self.records[message_id] = _Record()
            if len(self.records) > MEMORY:
                self.records.popitem(last=False)
        else:
            self.records.move_to_end(message_id)
        return record
