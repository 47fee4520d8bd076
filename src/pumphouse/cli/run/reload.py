"""Which source files a service has, and which of them have changed.

Times and sizes are looked at once a second. That needs no library and works on file systems of
containers and of the network, where notifications are lost; a folder of source is a few hundred
files. Virtual environments, hidden folders and the like are left out.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pumphouse.clock import Clock, RealClock

LOOK_SECONDS = 0.5
MAX_FILES = 20_000
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_log = logging.getLogger("pumphouse")


class Sources:
    """The Python files below some folders."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self._folders = {Path(each).resolve() for each in folders}
        self._told = False
        self._known = self._look()

    def add(self, folder: str | Path) -> None:
        """Look at this folder as well; what is in it now is not a change."""
        path = Path(folder).resolve()
        if not any(path == each or each in path.parents for each in self._folders):
            self._folders.add(path)
            self._known.update(self._look([path]))

    def changed(self) -> list[Path]:
        """The files that are new, gone or different since the last call."""
        now = self._look()
        before, self._known = self._known, now
        paths = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
        return [Path(path) for path in sorted(paths)]

    def _look(self, folders: Iterable[Path] | None = None) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for folder in self._folders if folders is None else folders:
            for entry in _python_files(str(folder)):
                if len(found) >= MAX_FILES:
                    if not self._told:
                        self._told = True
                        _log.warning(
                            "there are more than %d source files in %s; only so many are watched",
                            MAX_FILES,
                            folder,
                        )
                    return found
                try:
                    status = entry.stat()
                except OSError:
                    continue
                found[entry.path] = (status.st_mtime_ns, status.st_size)
        return found


def _python_files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry
        elif entry.name.startswith(".") or entry.name in _LEFT_OUT:
            continue
        elif entry.is_dir(follow_symlinks=False):
            yield from _python_files(entry.path)


def mistakes(paths: Iterable[Path]) -> list[str]:
    """What of these can't be compiled, and why: one text for each."""
    found: list[str] = []
    for path in paths:
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            found.append(f"{path}:{error.lineno}: {error.msg}")
        except ValueError as error:  # null bytes
            found.append(f"{path}: {error}")
        except OSError:
            continue  # it is gone, and then it is not what is wrong
    return found


async def watch(
    sources: Sources, on_change: Callable[[], object], *, clock: Clock | None = None
) -> None:
    """Call `on_change` when files have changed, and have come to rest, and compile; for ever.

    What does not compile is logged, and nothing happens until the next change.
    """
    clock = clock or RealClock()
    waiting: set[Path] = set()  # changed, and not yet acted on
    wrong: list[str] = []
    while True:
        await clock.sleep(LOOK_SECONDS)
        if changed := await asyncio.to_thread(sources.changed):
            waiting.update(changed)
            wrong = []
            continue  # an editor may be writing still
        if not waiting or wrong:
            continue
        if wrong := mistakes(sorted(waiting)):
            for text in wrong:
                _log.error("%s; what runs goes on until the next change", text)
            continue
        names = ", ".join(path.name for path in sorted(waiting)[:3])
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        _log.info("%s%s changed: draining, and starting anew", names, more)
        waiting.clear()
        on_change()
