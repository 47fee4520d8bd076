"""`pumphouse send`: JSON lines to a queue or topic, confirmed, batched, in order in each group.

What could not be sent is written to a file of dead letters with the reason, which `pumphouse
replay` sends again. How events are read is `jsonl.py`'s business.
"""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pumphouse.addressing import Topic, destination
from pumphouse.backend import Backend
from pumphouse.cli.events import read_events
from pumphouse.cli.progress import progress_bar
from pumphouse.cli.words import counted
from pumphouse.errors import NotSentError, OutcomeUnknownError, PumphouseError, UsageError
from pumphouse.http import connect
from pumphouse.jsonl import Event, Events, load
from pumphouse.model import Receipt
from pumphouse.signals import Signals
from pumphouse.sink import Sink
from pumphouse.sink.batcher import kind_of
from pumphouse.sink.chains import in_order
from pumphouse.sink.letter import DeadLetter
from pumphouse.sink.outgoing import attribute_values


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
    """Send; the exit code is 0 when every event was stored, else 1."""
    attributes = _attributes(options.attributes)
    if Path(options.refused).exists():
        raise UsageError(
            f"{options.refused} is there already, with what an earlier send did not store: "
            f"`{_replay_command(options)}` sends that, and --refused names another file for this "
            "send"
        )
    events = read_events(lambda: load(options.input, options.group_by), options.on_bad_line)
    backend = connect(
        region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
    )
    return asyncio.run(_send_and_close(options, events, attributes, backend))


async def _send_and_close(
    options: Options, events: Events, attributes: dict[str, str], backend: Backend
) -> int:
    try:
        return await send_events(options, events, attributes, backend)
    finally:
        await backend.aclose()


async def send_events(
    options: Options, events: Events, attributes: dict[str, str], backend: Backend
) -> int:
    """Send every event over the backend, and report. An interrupt ends it in order: nothing more
    is sent, answers are awaited, and what was not stored is kept; a second one does not wait."""
    began = time.monotonic()
    failed: list[tuple[Event, PumphouseError]] = []
    stored = 0
    to = destination(options.queue)
    unsettled = {event.line for event in events.events}
    under_way: set[int] = set()
    main = asyncio.current_task()

    def interrupted() -> None:
        if len(signals.received) > 1 and main is not None:
            main.cancel()

    def wanted() -> Iterator[Event]:
        for event in events.events:
            if signals.received:
                unsettled.discard(event.line)
                failed.append((event, _left(False)))
            else:
                yield event

    with Signals(interrupted) as signals:
        async with Sink(to, backend) as sink:
            grouped = sink.fifo or options.group_by is not None
            with progress_bar("sent", len(events.events)) as show:

                async def send(event: Event) -> Receipt:
                    if signals.received:
                        raise _left(False)
                    under_way.add(event.line)
                    return await sink.send(
                        event.body,
                        id=_id(events.source, event) if sink.fifo else None,
                        group_id=event.group if grouped else None,
                        tenant=event.group,
                        attributes=attributes,
                        wait=True,
                    )

                def settled(event: Event, outcome: Receipt | PumphouseError) -> None:
                    nonlocal stored
                    unsettled.discard(event.line)
                    if isinstance(outcome, PumphouseError):
                        failed.append((event, outcome))
                    else:
                        stored += 1
                    show(stored + len(failed))

                def chain(event: Event) -> str | None:
                    return event.group if sink.fifo else None

                try:
                    await in_order(wanted(), chain, send, done=settled)
                except asyncio.CancelledError:
                    if len(signals.received) < 2 or main is None:
                        raise
                    main.uncancel()
                    await sink.aclose(0)
                    failed += (
                        (event, _left(event.line in under_way))
                        for event in events.events
                        if event.line in unsettled
                    )
            requests = sink.stats["requests"]
    seconds = time.monotonic() - began
    print(
        f"{stored} of {len(events.events)} stored in {options.queue}, confirmed, "
        f"with {counted(requests, 'request')} in {seconds:.2f} s"
    )
    if not failed:
        return 0
    failed.sort(key=lambda each: each[0].line)
    _write_refused(options, to, attributes, failed, fifo=sink.fifo, source=events.source)
    event, error = failed[0]
    print(
        f"{len(failed)} not stored, the first is line {event.line}: {error}\n"
        f"they are in {options.refused}; `{_replay_command(options)}` sends them again"
        + (" (--unknown: also those that may be stored)" if _any_unknown(failed) else ""),
        file=sys.stderr,
    )
    return 128 + signals.received[0] if signals.received else 1


def _left(under_way: bool) -> PumphouseError:
    """What became of an event when there was an interrupt."""
    if under_way:
        return OutcomeUnknownError("interrupted before it was answered")
    return NotSentError("not sent: interrupted")


def _any_unknown(failed: Sequence[tuple[Event, PumphouseError]]) -> bool:
    return any(isinstance(error, OutcomeUnknownError) for _, error in failed)


def _replay_command(options: Options) -> str:
    words = ["pumphouse", "replay", options.refused]
    for name in ("endpoint_url", "region", "profile"):
        if value := getattr(options, name):
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)


def _write_refused(
    options: Options,
    to: str | Topic,
    attributes: dict[str, str],
    failed: list[tuple[Event, PumphouseError]],
    *,
    fifo: bool,
    source: str,
) -> None:
    with open(options.refused, "xb") as file:
        for event, error in failed:
            letter = DeadLetter(
                queue=options.queue,
                kind=kind_of(error),
                error=error,
                attempts=0,
                at=time.time(),
                body=event.body,
                attributes=attribute_values(attributes),
                id=_id(source, event) if fifo else None,
                tenant=event.group,
                group_id=event.group if fifo or options.group_by else None,
                to_topic=isinstance(to, Topic),
            )
            file.write(letter.to_json())


def _id(source: str, event: Event) -> str:
    """A deduplication id that is the same when the same file is sent again."""
    return hashlib.sha256(f"{source}:{event.line}:{event.body}".encode()).hexdigest()


def _attributes(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"--attribute is NAME=VALUE, not {text!r}")
        if name in found:
            raise UsageError(f"--attribute {name} is given twice")
        found[name] = value
    return found
