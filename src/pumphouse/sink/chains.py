"""Many jobs at once, but those of a chain one after another: `in_order`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar

from pumphouse.errors import NotSentError, PumphouseError

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
    """
    outcomes: dict[int, R | PumphouseError] = {}
    chains: dict[str, deque[tuple[int, J]]] = {}
    broken: dict[str, PumphouseError] = {}
    room = asyncio.Semaphore(window)

    def settle(at: int, job: J, outcome: R | PumphouseError) -> None:
        room.release()
        if done is None:
            outcomes[at] = outcome
        else:
            done(job, outcome)

    async def one(at: int, job: J) -> PumphouseError | None:
        try:
            result = await run(job)
        except PumphouseError as error:
            settle(at, job, error)
            return error
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

    async with asyncio.TaskGroup() as tasks:
        at = -1
        async for job in _each(jobs):
            at += 1
            await room.acquire()
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
    return [outcomes[at] for at in sorted(outcomes)]


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
