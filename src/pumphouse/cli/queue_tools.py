"""`pumphouse queues`, `peek`, `receive`, `redrive` and `purge`: what they print, and for whom.

People get a table or lines, programs (`--json`) get JSON, and so does whatever `receive` writes to
but a terminal; what is not the result goes to standard error. Texts out of messages are printed
with everything escaped that a terminal would act on. What is done is in `pumphouse.queue_tools`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pumphouse.cli.exit_codes import FAILED, INTERRUPTED, OK
from pumphouse.cli.options import DEFAULT_NUMBER
from pumphouse.cli.progress import progress_bar
from pumphouse.errors import PumphouseError, PurgeQueueInProgress, UsageError
from pumphouse.http import HttpBackend, connect
from pumphouse.http.look import look_at_served
from pumphouse.queue_tools import results
from pumphouse.queue_tools.overview import QueueOverview, overview
from pumphouse.queue_tools.purging import TAKES_SECONDS, purge_of
from pumphouse.queue_tools.reading import Peeked, peek, receive, shown
from pumphouse.queue_tools.redrive import redrive
from pumphouse.queue_tools.results import Redriven, Trouble
from pumphouse.queue_tools.selection import parse_condition
from pumphouse.signals import Signals

MAX_BODY_CHARACTERS = 2_000
_SHOWN = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """The account that is meant."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None

    def run(self, work: Callable[[HttpBackend], Awaitable[T]]) -> T:
        """Connect, do it, and close."""
        backend = connect(region=self.region, endpoint_url=self.endpoint_url, profile=self.profile)

        async def and_close() -> T:
            try:
                return await work(backend)
            finally:
                await backend.aclose()

        return asyncio.run(and_close())


# --- queues -------------------------------------------------------------------------------------


def run_queues(where: Where, prefix: str, *, as_json: bool) -> int:
    """List the queues; the exit code is 1 where one could not be read."""
    found = where.run(
        lambda backend: overview(backend, prefix, look=partial(look_at_served, backend))
    )
    if as_json:
        _print_json([asdict(queue) for queue in found])
    elif not found:
        print(f"there is no queue{f' that begins with {prefix}' if prefix else ''}")
    else:
        _console().print(queue_table(found))
    for queue in found:
        if queue.problem and not as_json:
            _note(f"{queue.name}: {queue.problem}")
    return FAILED if any(queue.problem for queue in found) else OK


def queue_table(found: Sequence[QueueOverview]) -> Table:
    """The table of `pumphouse queues`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("QUEUE", overflow="fold")
    for heading in ("VISIBLE", "IN FLIGHT", "DELAYED", "OLDEST"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("DEAD LETTERS", overflow="fold")
    for queue in found:
        redrives = ""
        if queue.dead_letter is not None:
            redrives = f"-> {queue.dead_letter} x{queue.max_receives}"
        numbers = (queue.visible, queue.in_flight, queue.delayed)
        cells = ("?" if each is None else f"{each:,}" for each in numbers)
        oldest = "-" if queue.oldest_seconds is None else _duration(queue.oldest_seconds)
        table.add_row(Text(safe(queue.name)), *cells, oldest, Text(safe(redrives)))
    return table


# --- peek and receive ---------------------------------------------------------------------------


def run_peek(where: Where, queue: str, number: int, *, force: bool, as_json: bool) -> int:
    """Look; the exit code is 1 where a message could not be given back."""

    async def look(backend: HttpBackend) -> Peeked:
        return await peek(
            backend, queue, number, force=force, look=partial(look_at_served, backend)
        )

    found = where.run(look)
    if as_json:
        _print_json([shown(message) for message in found.messages])
    elif not found.messages:
        print("there is no visible message")
    else:
        for message in found.messages:
            _print_message(shown(message))
    if found.messages and found.received:
        _note("each of these was received for it: its receive count is one higher")
    if found.stuck:
        _note(f"{found.stuck} could not be given back, and come again within 30 s")
    return FAILED if found.stuck else OK


def _print_message(message: dict[str, Any]) -> None:
    heading = [message["message_id"]]
    if "group_id" in message:
        heading.append(f"group {message['group_id']}")
    age = max(0.0, time.time() - message["sent_at"])
    heading += [f"{_duration(age)} old", f"received {_times(message['receive_count'])}"]
    console = _console()
    console.print(Text(safe(", ".join(heading)), style="bold"))
    for name, attribute in message["attributes"].items():
        console.print(Text(safe(f"  {name} ({attribute['type']}): {attribute['value']}", 300)))
    console.print(Text("  " + safe(message["body"], MAX_BODY_CHARACTERS)))


def run_receive(
    where: Where,
    queue: str,
    number: int,
    *,
    delete: bool,
    wait: int,
    visibility_timeout: int | None,
    as_json: bool,
) -> int:
    """Print each message, and delete it then where that is wanted; the exit code is 1 where a
    delete was not confirmed. It is a line of JSON, but on a terminal; there as well for a message
    that is deleted, as nothing else has all of it."""

    output = sys.stdout
    if output is None:
        raise UsageError("standard output is closed, and the messages are written there")
    for_people = output.isatty() and not as_json and not delete

    async def receive_all(backend: HttpBackend) -> tuple[int, int]:
        count = failed = 0
        async with aclosing(
            receive(
                backend,
                queue,
                number,
                wait_time_seconds=wait,
                visibility_timeout=visibility_timeout,
            )
        ) as messages:
            async for message, delete_it in messages:
                if for_people:
                    _print_message(shown(message))
                else:
                    output.write(_json(msgspec.json.encode(shown(message))) + "\n")
                output.flush()  # a reader that has gone is told here, before anything is lost
                count += 1
                if delete:
                    try:
                        await delete_it()
                    except PumphouseError as error:
                        failed += 1
                        _note(f"message {message.message_id} was not deleted: {error}")
        return count, failed

    count, failed = where.run(receive_all)
    if count and not delete and visibility_timeout != 0:
        _note(f"{_messages(count)} hidden until the visibility timeout is over (no --delete)")
    if count == number == DEFAULT_NUMBER:  # who says a number knows
        _note(f"stopped after {number}; there may be more (--number)")
    return FAILED if failed else OK


# --- redrive ------------------------------------------------------------------------------------


def run_redrive(
    where: Where,
    queue: str,
    *,
    to: str | None,
    filters: Sequence[str],
    dry_run: bool,
    rate: float | None,
    most: int | None,
    task: bool | None,
    as_json: bool,
) -> int:
    """Move, and say what came of it: 0 when everything that was meant is moved, else 1; 130 when it
    was interrupted."""
    conditions = [parse_condition(each) for each in filters]

    by_task = False

    def told(result: Redriven, show: Callable[[int], object]) -> None:
        nonlocal by_task
        by_task = result.way == "task"
        show(result.moved)

    async def move(backend: HttpBackend) -> Redriven | None:
        stop = asyncio.Event()
        main = asyncio.current_task()

        def interrupted() -> None:
            stop.set()
            if len(signals.received) > 1 and main is not None:
                main.cancel()

        with Signals(interrupted, hangup=True) as signals, progress_bar("moved", None) as show:
            try:
                return await redrive(
                    backend,
                    queue,
                    to=to,
                    conditions=conditions,
                    rate=rate,
                    most=most,
                    dry_run=dry_run,
                    task=task,
                    stop=stop,
                    progress=lambda result: told(result, show),
                )
            except asyncio.CancelledError:
                if len(signals.received) < 2:
                    raise
                return None

    result = where.run(move)
    if result is None:
        _note(
            "broken off; SQS's message move task may go on, as it was not seen to end"
            if by_task
            else "broken off; what was on its way may be in both queues, all else is in one of them"
        )
        return INTERRUPTED
    if as_json:
        _print_json(asdict(result))
    else:
        _print_redriven(queue, result)
    if result.ended == results.INTERRUPTED:
        return INTERRUPTED
    return OK if result.ok else FAILED


def _print_redriven(queue: str, result: Redriven) -> None:
    verb = "would be moved" if result.dry_run else "moved"
    where = ", ".join(f"{count:,} to {name}" for name, count in result.destinations.items())
    way = " by SQS's message move task" if result.way == "task" else ""
    print(f"{result.moved:,} {verb}{way}{f': {where}' if where else ''}")
    if result.left_out:
        print(f"{result.left_out:,} left, as they are not meant by the filter")
    told: list[tuple[Trouble, str]] = [
        (result.failed, "not moved, and still in the queue"),
        (result.unknown, "not answered for: in the queue, and possibly moved as well"),
        (result.undeleted, "moved, and perhaps still in the queue: their delete is unconfirmed"),
    ]
    for trouble, words in told:
        if not trouble.count:
            continue
        _note(f"{trouble.count:,} {words}")
        for message_id, reason in trouble.first[:_SHOWN]:
            _note(f"  {message_id}: {reason}")
        if trouble.count > _SHOWN:
            _note(f"  and {trouble.count - _SHOWN:,} more")
    if result.hidden:
        _note(
            f"{result.hidden:,} are held by someone else, or by a run that was broken off: "
            "run it again in a few minutes"
        )
    if result.unseen:
        _note(
            f"about {result.unseen:,} were not seen: they are behind ten messages of their group "
            "that stay, or one that could not be moved, and SQS hands out nothing behind these; a "
            "wider filter that moves these as well reaches them"
        )
    if result.no_task:
        _note(f"moved one by one, without SQS's message move task: {result.no_task}")
    if result.ended:
        _note(f"{result.ended}: about {result.left:,} are left in {queue}; run it again to go on")


# --- purge --------------------------------------------------------------------------------------


def run_purge(where: Where, queue: str, *, yes: bool, as_json: bool) -> int:
    """Purge, after the name was typed; 1 where it was not."""
    asks = not yes
    if asks and not (sys.stdin is not None and sys.stdin.isatty()):
        raise UsageError("purge asks on a terminal, and there is none here; --yes does without")
    purge = where.run(partial(_as_purge, queue=queue))
    found = purge
    count = (
        "an unknown number of messages"
        if found.visible is None
        else f"about {found.visible:,} visible messages, {found.in_flight:,} in flight and "
        f"{found.delayed:,} delayed"
    )
    if asks:
        _note(f"{found.name} holds {count}. All of them are deleted, for good.")
        sys.stderr.write(f"Type the queue's name to purge it ({safe(found.name)}): ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() != found.name:
            _note("nothing was deleted")
            return FAILED

    async def carry_out(backend: HttpBackend) -> None:
        await (await purge_of(backend, queue)).carry_out()

    try:
        where.run(carry_out)
    except PurgeQueueInProgress:
        _note(
            f"{found.name} was purged less than {TAKES_SECONDS} s ago; SQS takes one in that time"
        )
        return FAILED
    if as_json:
        _print_json({"purged": found.name, "held": asdict(found)})
    else:
        print(
            f"{found.name} is being purged of {count}; that takes up to {TAKES_SECONDS} s, and "
            "what was sent just before or is in flight may survive it"
        )
    return OK


async def _as_purge(backend: HttpBackend, *, queue: str) -> QueueOverview:
    return (await purge_of(backend, queue)).queue


# --- output -------------------------------------------------------------------------------------


def safe(text: str, limit: int = 1_000) -> str:
    """A text from a message or a queue, fit for a terminal: nothing in it is acted on."""
    cut = text[:limit]
    clean = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut
    )
    return clean + (f"… ({len(text):,} characters)" if len(text) > limit else "")


def _console() -> Console:
    """Standard output: as wide as the terminal, and without a width where there is none."""
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=100_000, soft_wrap=True)
    return console


def _print_json(data: object) -> None:
    print(_json(msgspec.json.format(msgspec.json.encode(data), indent=2)))


def _json(encoded: bytes) -> str:
    """JSON as it is printed: the same values, and nothing in it that a terminal would act on, or
    that some programs take for the end of a line."""
    return "".join(
        each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1]
        for each in encoded.decode()
    )


def _note(text: str) -> None:
    print(safe(text), file=sys.stderr)


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
