"""`pumphouse send`: JSON lines to a queue or topic, confirmed, batched, in order in each group.

What could not be sent is written to a file of dead letters with the reason (`refused.py`), which
`pumphouse replay` sends again. How events are read is the business of `event_file.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pumphouse.addressing import Topic, destination
from pumphouse.backend import Backend
from pumphouse.cli import say
from pumphouse.cli.event_file import EventFile, opened
from pumphouse.cli.events import check
from pumphouse.cli.exit_codes import FAILED, OK, code_of
from pumphouse.cli.finding import find
from pumphouse.cli.progress import progress_bar
from pumphouse.cli.refused import Refused, reserved
from pumphouse.cli.words import counted
from pumphouse.content import check_attributes
from pumphouse.errors import ClosedError, NotSentError, PumphouseError, UsageError
from pumphouse.http import connect
from pumphouse.jsonl import Event, InputError
from pumphouse.model import Receipt
from pumphouse.signals import Signals
from pumphouse.sink import Sink
from pumphouse.sink.chains import in_order
from pumphouse.sink.letter import DeadLetter
from pumphouse.sink.outgoing import attribute_values
from pumphouse.sink.repeating import kind_of


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    queue: str
    input: str = "-"
    group_by: str | None = None
    attributes: Sequence[str] = ()
    on_bad_line: str = "stop"
    refused: str = "refused.jsonl"
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


def run(options: Options) -> int:
    """Send; the exit code is 0 when every event was stored, 1 when not, 128 and the signal where
    one ended it, and that of `exit_codes.py` when the destination can't be found."""
    attributes = _attributes(options.attributes)
    to = destination(options.queue)
    check(options.on_bad_line)
    with (
        reserved(Path(options.refused), _replay_command(options)) as refused,
        opened(options.input, options.group_by) as events,
        asyncio.Runner() as runner,
    ):
        backend = connect(
            region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
        )
        try:
            try:
                runner.run(find(to, backend))
            except PumphouseError as error:
                say(str(error))
                return code_of(error)
            events.look_through(options.on_bad_line)
            return runner.run(send_events(options, events, attributes, backend, refused))
        finally:
            runner.run(backend.aclose())


async def send_events(
    options: Options,
    events: EventFile,
    attributes: dict[str, str],
    backend: Backend,
    refused: Refused,
) -> int:
    """Send every event over the backend, and report. A signal ends it in order: nothing more is
    sent, answers are awaited, and what was not stored is kept; a second one does not wait."""
    began = time.monotonic()
    sending = _Sending(options, events, attributes, refused)

    def interrupted() -> None:
        sending.stopped = True
        if len(signals.received) == 2:
            sending.give_up()

    with Signals(interrupted, hangup=True) as signals:
        async with Sink(sending.to, backend) as sink:
            if sink.fifo and options.group_by is None:
                print(f"groups: {events.grouping}", file=sys.stderr)
            with progress_bar("sent", len(events)) as show:
                await sending.run(sink, show)
            requests = sink.stats["requests"]
    seconds = time.monotonic() - began
    print(
        f"{sending.stored} of {len(events)} stored in {options.queue}, confirmed, "
        f"with {counted(requests, 'request')} in {seconds:.2f} s"
        + (f"; {counted(events.skipped, 'line')} skipped" if events.skipped else "")
    )
    if sending.first is not None:
        line, error = sending.first
        print(f"{sending.failed} not stored, the first is line {line}: {error}", file=sys.stderr)
    if refused.count:
        print(
            f"{'they are' if refused.count == sending.failed else f'{refused.count} of them are'} "
            f"in {options.refused}; `{_replay_command(options)}` sends them again"
            + (" (--unknown: also those that may be stored)" if refused.any_unknown else ""),
            file=sys.stderr,
        )
    if sending.trouble is not None:
        print(f"{sending.trouble}; {sending.not_written()}", file=sys.stderr)
    if sending.first is None and sending.trouble is None:
        return OK
    return 128 + signals.received[0] if signals.received else FAILED


class _Sending:
    """Events on their way, and what became of them. `stopped` once no more are to be sent."""

    def __init__(
        self, options: Options, events: EventFile, attributes: dict[str, str], refused: Refused
    ) -> None:
        self.to = destination(options.queue)
        self.stopped = False
        self.stored = self.failed = 0
        self.first: tuple[int, PumphouseError] | None = None
        self.trouble: Exception | None = None
        self._options = options
        self._events = events
        self._attributes = attributes
        self._refused = refused
        self._lost: list[int] = []  # lines that are not stored, and not written down either
        self._closing: asyncio.Task[None] | None = None

    async def run(self, sink: Sink, show: Callable[[int], object]) -> None:
        """Send them all, or up to where it is stopped; the rest is written down as not sent."""
        self._sink = sink
        self._grouped = sink.fifo or self._options.group_by is not None

        def settled(event: Event, outcome: Receipt | PumphouseError) -> None:
            if isinstance(outcome, PumphouseError):
                self._refuse(event, outcome)
            else:
                self.stored += 1
            show(self.stored + self.failed)

        def chain(event: Event) -> str | None:
            return event.group if sink.fifo else None

        events = self._read()
        await in_order(self._until_stopped(events), chain, self._send, done=settled)
        if self._closing is not None:
            await self._closing
        for event in events:
            self._refuse(event, NotSentError("not sent: interrupted"))

    def give_up(self) -> None:
        """Wait for no answer any more: each event under way gets its outcome at once."""
        self._closing = asyncio.create_task(self._sink.aclose(0))

    def _read(self) -> Iterator[Event]:
        try:
            yield from self._events
        except (InputError, OSError) as error:
            self.stopped = True
            self.trouble = self.trouble or error

    def _until_stopped(self, events: Iterator[Event]) -> Iterator[Event]:
        while not self.stopped and (event := next(events, None)) is not None:
            yield event

    async def _send(self, event: Event) -> Receipt:
        if self.stopped:
            raise NotSentError("not sent: interrupted")
        return await self._sink.send(
            event.body,
            id=self._id(event),
            group_id=event.group if self._grouped else None,
            tenant=event.group,
            attributes=self._attributes,
            wait=True,
        )

    def _id(self, event: Event) -> str | None:
        """A deduplication id that is the same when the same file is sent again."""
        if not self._sink.fifo:
            return None
        text = f"{self._events.identity}:{event.line}:{event.body}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()

    def _refuse(self, event: Event, error: PumphouseError) -> None:
        if isinstance(error, ClosedError):  # given up before it was sent
            error = NotSentError("not sent: interrupted")
        self.failed += 1
        if self.first is None or event.line < self.first[0]:
            self.first = event.line, error
        letter = DeadLetter(
            queue=self._options.queue,
            kind=kind_of(error),
            error=error,
            attempts=0,
            at=time.time(),
            body=event.body,
            attributes=attribute_values(self._attributes),
            id=self._id(event),
            tenant=event.group,
            group_id=event.group if self._grouped else None,
            to_topic=isinstance(self.to, Topic),
        )
        try:
            self._refused.add(letter)
        except OSError as failure:
            self.stopped = True
            reason = f"{self._options.refused} can't be written: {failure.strerror or failure}"
            self.trouble = self.trouble or PumphouseError(reason)
            self._lost.append(event.line)

    def not_written(self) -> str:
        """Which lines are in no file, where the file could not be written."""
        if not self._lost:
            return "nothing more was sent"
        lines = sorted(self._lost)
        starts = [
            line for line, before in zip(lines, [-1, *lines], strict=False) if line - before > 1
        ]
        ends = [
            line
            for line, after in zip(lines, [*lines[1:], lines[-1] + 2], strict=True)
            if after - line > 1
        ]
        ranges = [
            str(start) if start == end else f"{start}-{end}"
            for start, end in zip(starts, ends, strict=True)
        ]
        return f"not stored, and in no file, are lines {', '.join(ranges)} of {self._events.source}"


def _replay_command(options: Options) -> str:
    words = ["pumphouse", "replay", options.refused]
    for name in ("endpoint_url", "region", "profile"):
        if value := getattr(options, name):
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)


def _attributes(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"--attribute is NAME=VALUE, not {text!r}")
        if name in found:
            raise UsageError(f"--attribute {name} is given twice")
        found[name] = value
    check_attributes(attribute_values(found))
    return found
