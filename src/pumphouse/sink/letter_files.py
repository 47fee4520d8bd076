"""Files of lines that nobody may lose: appended whole or not at all, under a lock, private.

What a line holds is the business of `dead_letters.py`; taking files away and putting back what is
left of them that of `replay.py`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pumphouse.errors import ConfigError

MAX_FILE_BYTES = 67_108_864
"""A directory's file is followed by the next one at this size (64 MiB)."""

_LONGEST_NAME = 120  # of the part that says where the letters were to go: file systems take 255
_APPENDING = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)


class LetterFiles:
    """Appends to files of a directory, which is made if need be: one file for each process and time
    of start, a new one every 64 MiB."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self._name = name[:_LONGEST_NAME]
        self._path: Path | None = None

    def append(self, lines: bytes) -> None:
        """Append, and return when it is on the disk. Raises `OSError`, and then nothing is."""
        while True:
            file = self._opened()
            try:
                lock(file)
                if (
                    self._path is not None
                    and is_at(self._path, file)
                    and os.fstat(file).st_size < MAX_FILE_BYTES
                ):
                    append(file, lines)
                    return
            finally:
                os.close(file)
            self._path = None  # a replay has taken the file away, or it is full

    def _opened(self) -> int:
        """The file that was written to last, if it is still there: one that a replay took away is
        never made again, as what is left of it comes back under its name."""
        if self._path is not None:
            with suppress(FileNotFoundError):
                return os.open(self._path, _APPENDING)
        make_directory(self.directory)
        while True:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
            path = self.directory / f"{self._name}.{stamp}.{os.getpid()}.jsonl"
            try:
                file = open_private(path, os.O_EXCL)
            except FileExistsError:
                continue
            self._path = path
            sync_directory(self.directory)
            return file


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file for reading and appending; one that is made is for its owner alone."""
    return os.open(path, _APPENDING | os.O_CREAT | flags, 0o600)


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, where they are missing, for their owner alone."""
    for each in reversed((directory, *directory.parents)):
        if not each.exists():
            with suppress(FileExistsError):
                each.mkdir(mode=0o700)


def check_directory(directory: Path) -> None:
    """Make a directory, if need be, before there is anything to lose. Raises `ConfigError` where
    nothing could be kept in it."""
    try:
        make_directory(directory)
        if not directory.is_dir():
            raise NotADirectoryError("it is no directory")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError("it may not be written to")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"on_dead_letter: nothing can be kept in {directory}: {reason}"
        ) from error


def append(file: int, lines: bytes, *, sync: bool = True) -> None:
    """Append whole lines to a file that is locked: all of it, or nothing and `OSError`.

    A line that somebody left unfinished is ended first, so that it takes no other with it.
    """
    size = os.fstat(file).st_size
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        if os.read(file, 1) != b"\n":
            lines = b"\n" + lines
    try:
        left = memoryview(lines)
        while left:
            left = left[os.write(file, left) :]
        if sync:
            os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk, where the system can say so."""
    with suppress(OSError):
        opened = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def is_at(path: Path, opened: int) -> bool:
    """Whether an open file is still the one that has this name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False


def lock(file: int) -> None:
    """Hold the file's lock until it is closed, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows: replay asks that writers be stopped
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def try_lock(file: int) -> bool:
    """Hold the file's lock until it is closed; False where somebody else does."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
