"""Many jobs at once, but those of a chain one after another: `in_order`.

The chains of messages are their groups: `group_of`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from pumphouse.envelope import Envelope
from pumphouse.errors import NotSentError, PumphouseError
from pumphouse.sink.outgoing import Draft, Outgoing

if TYPE_CHECKING:
    from pumphouse.sink.composer import Composer
    from pumphouse.sink.options import GroupOf

J = TypeVar("J")
R = TypeVar("R")


async def in_order(
    jobs: Iterable[J] | AsyncIterable[J],
    chain_of: Callable[[J], str | None],
    run: Callable[[J], Awaitable[R]],
    *,
    window: int = 1_024,
    done: Callable[[J, R | PumphouseError], object] | None = None,
) -> list[R | PumphouseError]:
    """Run every job; return the outcomes in order, errors among them.

    Jobs of one chain run one after another, and once one of them has failed, the rest of its chain
    is not run: its outcome is `NotSentError`. A chain of None is a job by itself. At most `window`
    jobs are read ahead of the slowest. `done` is told of each outcome when it is there; with it,
    nothing is kept and the list is empty.

    Any other exception than `PumphouseError`, of the jobs' source, of a job or of `done`, is raised
    when what was read before it has come to its end; the first one, as it is.
    """
    outcomes: dict[int, R | PumphouseError] = {}
    chains: dict[str, deque[tuple[int, J]]] = {}
    broken: dict[str, PumphouseError] = {}
    room = asyncio.Semaphore(window)
    foreign: list[Exception] = []

    def settle(at: int, job: J, outcome: R | PumphouseError) -> None:
        room.release()
        if done is None:
            outcomes[at] = outcome
            return
        try:
            done(job, outcome)
        except Exception as error:
            foreign.append(error)

    async def one(at: int, job: J) -> PumphouseError | None:
        try:
            result = await run(job)
        except PumphouseError as error:
            settle(at, job, error)
            return error
        except Exception as error:
            foreign.append(error)
            room.release()
            return NotSentError(f"{type(error).__name__}: {error}")
        settle(at, job, result)
        return None

    async def whole(chain: str) -> None:
        waiting = chains[chain]
        while waiting:
            at, job = waiting.popleft()
            if chain in broken:
                settle(at, job, _after(broken[chain]))
            elif (error := await one(at, job)) is not None:
                broken[chain] = error
        del chains[chain]

    async def start(tasks: asyncio.TaskGroup) -> None:
        at = -1
        async for job in _each(jobs):
            at += 1
            await room.acquire()
            if foreign:
                return
            try:
                chain = chain_of(job)
            except PumphouseError as error:
                settle(at, job, error)
                continue
            if chain is None:
                tasks.create_task(one(at, job))
            elif chain in chains:
                chains[chain].append((at, job))
            else:
                chains[chain] = deque([(at, job)])
                tasks.create_task(whole(chain))

    async with asyncio.TaskGroup() as tasks:
        try:
            await start(tasks)
        except Exception as error:
            foreign.append(error)
    if foreign:
        raise foreign[0]
    return [outcomes[at] for at in sorted(outcomes)]


def group_of(composer: Composer, group_id: GroupOf | None, draft: Draft) -> str | None:
    """The group of a message of a FIFO queue, also where nothing but its group can be made of it:
    what comes after it in that group comes after a failure. None where that can't be told."""
    try:
        return composer.compose(draft.body, **draft.options).group_id
    except Exception:  # `send` says why
        return _group_at_least(composer, group_id, draft)


def _group_at_least(composer: Composer, group_id: GroupOf | None, draft: Draft) -> str | None:
    """The group by what tells it, whatever is wrong with the rest."""
    body, options = draft.body, draft.options
    tenant, source, group = options.get("tenant"), options.get("source"), options.get("group_id")
    if isinstance(body, Envelope):
        tenant, source = tenant or body.tenant_id, source or body.source_id
    try:
        if group is None and callable(group_id):
            about = Outgoing(None, 0, tenant or "", "", original=body, source=source)
            about.id = options.get("id")
            group = group_id(about)
        return composer.compose("-", tenant=tenant, source=source, group_id=group).group_id
    except Exception:
        return None


def _after(error: PumphouseError) -> NotSentError:
    skipped = NotSentError(f"not sent: a message before it in its group failed ({error})")
    skipped.__cause__ = error
    return skipped


async def _each(jobs: Iterable[J] | AsyncIterable[J]) -> AsyncIterable[J]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield job
    else:
        for job in jobs:
            yield job
