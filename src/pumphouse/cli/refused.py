"""The file of events that were not stored: reserved at the start, written as they come to be known.

Nobody else writes to it meanwhile, and it goes again when nothing was to be written. What it holds
are dead letters, which `pumphouse replay` sends.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pumphouse.errors import UsageError
from pumphouse.replay_file import interrupted
from pumphouse.sink.letter import DeadLetter
from pumphouse.sink.letter_files import append, is_at, open_private, try_lock


class Refused:
    """The file. `any_unknown` says whether there is a letter in it that may be stored."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self.count = 0
        self.any_unknown = False
        self._file = file

    def add(self, letter: DeadLetter) -> None:
        """Write a letter down; raises `OSError` when it can't be, and then nothing is."""
        append(self._file, letter.to_json(), sync=False)
        self.count += 1
        self.any_unknown = self.any_unknown or letter.kind == "unknown"


@contextmanager
def reserved(path: Path, replay_command: str) -> Iterator[Refused]:
    """Have the file for as long as a block runs.

    Raises `UsageError` where it can't be written, somebody else is writing to it, or an earlier
    send has left something in it.
    """
    file = _opened(path, replay_command)
    try:
        yield Refused(path, file)
    finally:
        if os.fstat(file).st_size:
            with suppress(OSError):
                os.fsync(file)
        elif is_at(path, file):
            with suppress(OSError):
                path.unlink()
        os.close(file)


def _opened(path: Path, replay_command: str) -> int:
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"--refused {path} is there, and is no file")
        if interrupted(path):
            raise UsageError(
                f"a replay of {path} was not finished: `{replay_command}` goes on with it, and "
                "--refused names another file for this send"
            )
        file = open_private(path)
    except OSError as error:
        raise UsageError(
            f"--refused {path}, where events go that are not stored, can't be written: "
            f"{error.strerror or error}"
        ) from None
    try:
        if not try_lock(file) or not is_at(path, file):
            raise UsageError(
                f"another send is writing to {path}; --refused names another file for this one"
            )
        if os.fstat(file).st_size:
            raise UsageError(
                f"{path} is there already, with what an earlier send did not store: "
                f"`{replay_command}` sends that, and --refused names another file for this send"
            )
    except BaseException:
        os.close(file)
        raise
    return file
