"""The in-process account of `pumphouse run --local`: made, fed from files, and served if wanted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.errors import ConfigError, PumphouseError, QueueNameExists, UsageError
from pumphouse.jsonl import Events, InputError, and_more, load
from pumphouse.protocol.operations import CreateQueue
from pumphouse.sink import Draft, Sink

if TYPE_CHECKING:
    from pumphouse.account import Account

_log = logging.getLogger("pumphouse")


class Feed:
    """What `--send QUEUE=FILE` sends: read, and checked, before anything runs.

    Raises `UsageError` for what is not QUEUE=FILE, `InputError` for a line that is no event.
    """

    def __init__(self, given: Sequence[str], group_by: str | None) -> None:
        self._files: list[tuple[str, Events]] = []
        for text in given:
            queue, sign, path = text.partition("=")
            if not sign or not queue or not path:
                raise UsageError(f"--send is QUEUE=FILE, and - is standard input; not {text!r}")
            events = load(path, group_by if queue.endswith(".fifo") else None)
            if events.bad_lines:
                raise InputError(
                    f"{events.source}: {events.bad_lines[0]}{and_more(events.bad_lines)}; "
                    "nothing was sent"
                )
            self._files.append((queue, events))

    def __bool__(self) -> bool:
        return bool(self._files)

    async def send(self, account: Account) -> None:
        """Send all of it, in order within each group. Raises `UsageError` where there is no such
        queue, and what a send was refused with."""
        names = {queue.name.name for queue in account.queues}
        for queue, _ in self._files:
            if queue not in names:
                raise UsageError(
                    f"--send {queue}=…: the app names no queue {queue!r}; it names "
                    f"{', '.join(sorted(names))}"
                )
        for queue, events in self._files:
            async with Sink(queue, account) as sink:
                group = sink.fifo
                outcomes = await sink.send_many(
                    Draft(event.body, group_id=event.group if group else None)
                    for event in events.events
                )
            for outcome in outcomes:
                if isinstance(outcome, PumphouseError):
                    raise outcome
            _log.info("%s: %d events sent from %s", queue, len(outcomes), events.source)


async def make_queues(backend: Backend, app: App) -> None:
    """Make what the app names; a queue that exists with other attributes stays as it is."""
    from pumphouse.in_process import make_queues as make_all
    from pumphouse.in_process import queues_of

    try:
        await make_all(backend, app)
    except QueueNameExists:
        for queue in queues_of(app):
            try:
                await backend.execute(
                    CreateQueue(queue.known_as.name, queue.creation_attributes() or None)
                )
            except QueueNameExists as error:
                _log.warning("%s stays as it was made before: %s", queue.name, error.message)


async def until_empty(account: Account, app: App) -> None:
    """Wait until nothing is left that the app would handle, then stop it."""
    while True:
        await asyncio.sleep(0.05)
        run = app.run_now
        if run is None or run.state != "running":
            continue
        if not any(each.exits.live for each in run.consumers) and not any(
            queue.visible + queue.delayed + queue.in_flight
            for queue in (account.queue(each.name) for each in run.consumers)
        ):
            run.request_stop()
            return


class Served(NamedTuple):
    """Where the account is, and how its open polls are answered, now and from now on."""

    url: str
    end_polls: Callable[[], object]


@asynccontextmanager
async def served(account: Account, port: int) -> AsyncIterator[Served]:
    """Serve the account on 127.0.0.1. Raises `ConfigError` without uvicorn, and where the port is
    taken."""
    try:
        from pumphouse.server import runner
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "uvicorn":
            raise
        raise ConfigError(
            "serving the account needs uvicorn: pip install 'pumphouse[server]'"
        ) from None
    from pumphouse.server.wire import Endpoint

    class Server(runner.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # they are for the app, and this ends with it

    socket = runner.bind("127.0.0.1", port)
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    account.topics.base_url = url
    endpoint = Endpoint(account)
    server = Server(endpoint, loop="none")
    serving = asyncio.create_task(server.serve([socket]), name="pumphouse serve")
    try:
        yield Served(url, endpoint.stop)
    finally:
        server.stop()
        await serving


def new_account() -> Account:
    """An account that keeps no ledger, as nobody looks at it."""
    from pumphouse.account import Account

    return Account(ledger_room=0)
