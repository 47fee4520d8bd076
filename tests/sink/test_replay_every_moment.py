"""A replay that is killed at any step loses no letter, and sends none again that may be stored, but
where a FIFO queue recognises it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pumphouse.errors import NetworkError, OutcomeUnknownError, RefusedError
from pumphouse.model import Receipt
from pumphouse.replay import replay
from pumphouse.sink.dead_letters import DirectoryKeeper
from pumphouse.sink.letter import DeadLetter, DeadLetterLine

STEPS = ("rename", "link", "ftruncate", "write", "fsync", "open")


class _Killed(BaseException):
    """The process is gone: nothing that it does afterwards has any effect."""


class _Mortal:
    """A process that is killed before or after its nth step on files."""

    def __init__(self, steps: int, *, after: bool) -> None:
        self.left = steps
        self.after = after
        self.killed = False

    def step(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.killed:
                raise _Killed
            self.left -= 1
            if self.left:
                return do(*arguments, **options)
            self.killed = True
            if self.after:
                do(*arguments, **options)
            raise _Killed

        return step


def _letter(body: str, queue: str) -> DeadLetter:
    return DeadLetter(queue, "refused", NetworkError("no"), 1, 0.0, body)


async def _die(directory: Path, mortal: _Mortal, stored: list[tuple[str, str]]) -> bool:
    """Replay as a process that is killed; False where it lives to the end."""

    async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
        if letter.body == "refused":
            raise RefusedError("no", code="InvalidMessageContents", status=400)
        if letter.body == "unknown":
            raise OutcomeUnknownError("no answer")
        if mortal.killed:
            raise _Killed
        stored.append((letter.body, replay_id))
        return Receipt("m", "q")

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, mortal.step(getattr(os, name)))
        patch.setattr(Path, "unlink", mortal.step(Path.unlink))
        try:
            await replay(directory, send, window=1)
        except BaseException:
            if not mortal.killed:
                raise
            return True
    return False


@pytest.mark.parametrize("queue", ["q", "q.fifo"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("second", [0, 1, 2, 3, 4, 7])
async def test_a_replay_may_be_killed_at_every_step(
    tmp_path: Path, queue: str, after: bool, second: int
) -> None:
    """…and the one that goes on with it at its first ones, where `second` says at which."""
    bodies = ["a", "refused", "b", "unknown", "c"]
    step = 0
    doubtful = 0
    alive = False
    while not alive:
        step += 1
        directory = tmp_path / str(step)
        keeper = DirectoryKeeper(directory, "q")
        await keeper.take([_letter(body, queue) for body in bodies])
        stored: list[tuple[str, str]] = []
        alive = not await _die(directory, _Mortal(step, after=after), stored)
        await keeper.take([_letter("meanwhile", queue)])
        if second:
            await _die(directory, _Mortal(second, after=after), stored)

        async def send(letter: DeadLetterLine, replay_id: str) -> Receipt:
            stored.append((letter.body, replay_id))  # noqa: B023 - it is called at once
            return Receipt("m", "q")

        done = await replay(directory, send)
        found = set(stored) if queue == "q.fifo" else stored  # which recognises a replay id
        counts = Counter(body for body, _ in found)
        assert set(counts.values()) == {1}, f"at step {step}"
        assert done.skipped == done.doubtful
        if queue == "q.fifo":
            assert counts.keys() >= {*bodies, "meanwhile"} - {"unknown"}
        else:
            doubtful += done.doubtful
            assert done.doubtful <= 2 + (second > 0), "that in flight, and what had no answer"
        await replay(directory, send, unknown=True) if done.doubtful else None
        assert {body for body, _ in stored} == {*bodies, "meanwhile"}, f"at step {step}"
        left = [path for path in directory.iterdir() if path.suffix != ".done"]
        assert left == []
    assert step > 15
    assert doubtful or queue == "q.fifo"


def test_the_steps_are_those_of_the_module() -> None:
    """Every function of `os` that changes something, and that a replay calls, is among them."""
    from pumphouse import replay_file
    from pumphouse.sink import letter_files

    called = {
        name
        for module in (replay_file, letter_files)
        for name in dir(os)
        if f"os.{name}(" in Path(str(module.__file__)).read_text()
    }
    assert called - set(STEPS) <= {"access", "close", "dup", "fstat", "getpid", "lseek", "read"}, (
        json.dumps(sorted(called))
    )
