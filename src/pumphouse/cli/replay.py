"""`pumphouse replay`: sends a directory of dead letters again, or a file that `send` left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumphouse.addressing import Topic, destination
from pumphouse.backend import Backend
from pumphouse.cli import say
from pumphouse.cli.exit_codes import FAILED, OK, code_of
from pumphouse.cli.finding import find
from pumphouse.cli.progress import progress_bar
from pumphouse.envelope import replayed
from pumphouse.errors import NoCredentialsError, PumphouseError
from pumphouse.http import connect
from pumphouse.model import Receipt
from pumphouse.replay import Replayed, check, replay
from pumphouse.signals import Signals
from pumphouse.sink import Sink
from pumphouse.sink.letter import DeadLetterLine

_SHOWN = 10


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    path: str
    queue: str | None = None
    kinds: Sequence[str] = ()
    unknown: bool = False
    replay_id: str | None = None
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None


def run(options: Options) -> int:
    """Replay; the exit code is 0 when no letter failed, 1 when one did, 128 and the signal where
    one ended it, and that of `exit_codes.py` when the one destination can't be found."""
    backend = connect(
        region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
    )

    received: list[int] = []

    async def all_of_it() -> Replayed:
        try:
            return await replay_letters(options, backend, received)
        finally:
            await backend.aclose()

    try:
        done = asyncio.run(all_of_it())
    except PumphouseError as error:
        say(str(error))
        return code_of(error)
    print(f"{done.stored} stored, {len(done.failed)} failed, {done.skipped} left out")
    _tell_failures(done)
    if done.doubtful:
        print(
            f"{done.doubtful} of those left out may be stored already; "
            "once you know that they are not, --unknown sends them",
            file=sys.stderr,
        )
    for file in done.moved:
        print(f"what is left is in {file}, as its own file was made anew", file=sys.stderr)
    if received:
        print(f"interrupted; what was not sent is still at {options.path}", file=sys.stderr)
        return 128 + received[0]
    return FAILED if done.failed else OK


def _tell_failures(done: Replayed) -> None:
    """Each reason once, with the first letter that failed for it."""
    alike: dict[str, list[tuple[Path, int]]] = {}
    for file, line, reason in done.failed:
        alike.setdefault(reason, []).append((file, line))
    for reason, [(file, line), *others] in list(alike.items())[:_SHOWN]:
        more = f" (and {len(others)} more)" if others else ""
        print(f"{file}:{line}: {reason}{more}", file=sys.stderr)
    if len(alike) > _SHOWN:
        left = sum(map(len, list(alike.values())[_SHOWN:]))
        print(f"and {left} more, for other reasons", file=sys.stderr)


async def replay_letters(
    options: Options, backend: Backend, received: list[int] | None = None
) -> Replayed:
    """Send the letters over the backend, each to its own queue or to the one that is named. After a
    first signal answers are awaited; after a second they are not, and letters that may be stored
    stay as `unknown`. The signals that came are added to `received`."""
    check(Path(options.path), options.kinds or None)
    destinations = _Destinations(backend)
    elsewhere = destination(options.queue) if options.queue else None
    if elsewhere is not None:
        await find(elsewhere, backend)

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        to = elsewhere or letter.destination
        sink = await destinations.sink(to)
        of_topic = letter if isinstance(to, Topic) else None
        body, attributes = replayed(letter.body, letter.message_attributes(), replay_id)
        return await sink.send(
            body,
            id=letter.deduplication_id or letter.id or letter.key,
            tenant=letter.tenant,
            source=letter.source,
            group_id=letter.group_id,
            replay_id=replay_id,
            attributes=attributes,
            delay=letter.delay,
            trace_header=letter.trace_header,
            subject=of_topic.subject if of_topic else None,
            message_structure=of_topic.message_structure if of_topic else None,
        )

    def interrupted() -> None:
        if len(signals.received) == 2:
            destinations.give_up()

    with Signals(interrupted, hangup=True) as signals, progress_bar("replayed", None) as show:
        try:
            done = await replay(
                Path(options.path),
                send,
                kinds=options.kinds or None,
                unknown=options.unknown,
                replay_id=options.replay_id,
                progress=lambda done: show(done.stored + len(done.failed)),
                stop=lambda: bool(signals.received) or destinations.no_credentials is not None,
                elsewhere=options.queue,
                ready=lambda letter: destinations.sink(elsewhere or letter.destination),
            )
        finally:
            await destinations.aclose()
        if destinations.no_credentials is not None:
            raise destinations.no_credentials
        if not (done.stored or signals.received) and (missing := destinations.missing) is not None:
            raise missing
        if received is not None:
            received += signals.received
        return done


class _Destinations:
    """The sinks of a replay, one for each queue or topic that there is."""

    def __init__(self, backend: Backend) -> None:
        self.no_credentials: NoCredentialsError | None = None
        self._backend = backend
        self._found: dict[str | Topic, Sink | PumphouseError] = {}
        self._finding = asyncio.Lock()
        self._closing: list[asyncio.Task[None]] = []

    async def sink(self, to: str | Topic) -> Sink:
        """The sink for a destination; raises why there is none, asked once."""
        if to not in self._found:
            async with self._finding:
                if to not in self._found:
                    self._found[to] = await self._find(to)
        found = self._found[to]
        if isinstance(found, PumphouseError):
            raise found
        return found

    async def _find(self, to: str | Topic) -> Sink | PumphouseError:
        try:
            sink = Sink(to, self._backend, hash_ids=True, wait=True)
            await find(to, self._backend)
        except NoCredentialsError as error:
            self.no_credentials = error
            return error
        except PumphouseError as error:
            return error
        return sink

    @property
    def missing(self) -> PumphouseError | None:
        """Why there is not even the one destination that all letters had."""
        found = list(self._found.values())
        return found[0] if len(found) == 1 and isinstance(found[0], PumphouseError) else None

    def _sinks(self) -> list[Sink]:
        return [each for each in self._found.values() if isinstance(each, Sink)]

    def give_up(self) -> None:
        """Wait for no answer any more: each letter under way gets its outcome at once."""
        self._closing += [asyncio.create_task(sink.aclose(0)) for sink in self._sinks()]

    async def aclose(self) -> None:
        await asyncio.gather(*self._closing, *(sink.aclose() for sink in self._sinks()))
