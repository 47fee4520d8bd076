"""`pumphouse replay`: sends a directory of dead letters again, or a file that `send` left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pumphouse.addressing import Topic, destination
from pumphouse.backend import Backend
from pumphouse.cli.progress import progress_bar
from pumphouse.envelope import replayed
from pumphouse.http import connect
from pumphouse.model import Receipt
from pumphouse.replay import Replayed, replay
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
    """Replay; the exit code is 0 when no letter failed, else 1."""
    backend = connect(
        region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
    )

    async def all_of_it() -> Replayed:
        try:
            return await replay_letters(options, backend)
        finally:
            await backend.aclose()

    done = asyncio.run(all_of_it())
    print(f"{done.stored} stored, {len(done.failed)} failed, {done.skipped} left out")
    for file, line, reason in done.failed[:_SHOWN]:
        print(f"{file}:{line}: {reason}", file=sys.stderr)
    if len(done.failed) > _SHOWN:
        print(f"and {len(done.failed) - _SHOWN} more", file=sys.stderr)
    return 1 if done.failed else 0


async def replay_letters(options: Options, backend: Backend) -> Replayed:
    """Send the letters over the backend, each to its own queue or to the one that is named."""
    sinks: dict[str | Topic, Sink] = {}
    elsewhere = destination(options.queue) if options.queue else None

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        to = elsewhere or letter.destination
        if (sink := sinks.get(to)) is None:
            sink = sinks[to] = Sink(to, backend, hash_ids=True, wait=True)
        of_topic = letter if isinstance(to, Topic) else None
        body, attributes = replayed(letter.body, letter.message_attributes(), replay_id)
        return await sink.send(
            body,
            id=letter.id or letter.deduplication_id,
            tenant=letter.tenant,
            source=letter.source,
            group_id=letter.group_id,
            replay_id=replay_id,
            attributes=attributes,
            delay=letter.delay,
            subject=of_topic.subject if of_topic else None,
            message_structure=of_topic.message_structure if of_topic else None,
        )

    with progress_bar("replayed", None) as show:
        try:
            return await replay(
                Path(options.path),
                send,
                kinds=options.kinds or None,
                unknown=options.unknown,
                replay_id=options.replay_id,
                progress=lambda done: show(done.stored + len(done.failed)),
            )
        finally:
            for sink in sinks.values():
                await sink.aclose()
