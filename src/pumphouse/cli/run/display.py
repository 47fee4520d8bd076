"""How a run shows itself: a live view on a terminal, nothing but log lines anywhere else.

What is shown is `view.py`'s. Log records, and what handlers print, appear above the view. A thread
of its own writes it, so that a slow terminal holds up no event loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from rich.cells import cell_len
from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from pumphouse.cli.run.view import view
from pumphouse.cli.words import counted
from pumphouse.health.state import Snapshot

REFRESH_SECONDS = 0.5
MAX_LINES = 10_000
"""What waits for a slow terminal at most."""
_LEVEL_STYLES = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}


def terminal() -> Console | None:
    """Standard error, where it is a terminal that can show something in place; else None."""
    if sys.stderr is None:
        return None
    # a size that a shell has exported does not change with the terminal
    environment = {name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}}
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, _environ=environment)
    return console if console.is_terminal and not console.is_dumb_terminal else None


class LiveDisplay:
    """The view on a terminal, from `open` to `close`, which leaves the last one standing."""

    def __init__(
        self, console: Console, snapshot: Callable[[], Snapshot], *, waiting_every: float
    ) -> None:
        self._console = console
        self._snapshot = snapshot
        self._waiting_every = waiting_every
        self._lock = threading.RLock()
        self._shown: list[Text] = []
        self._width = console.width
        self._live: Live | None = None
        self._lines: deque[Text] = deque()  # to be written above the view
        self._left_out = 0
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(
            target=self._keep_showing, name="pumphouse-view", daemon=True
        )
        self._ascii_only = not console.encoding.startswith("utf")

    def handler(self) -> logging.Handler:
        """A logging handler that writes above the view."""
        return _ConsoleHandler(self)

    def open(self) -> None:
        """Take the terminal."""
        self._start()
        self.refresh()
        self._thread.start()

    def _keep_showing(self) -> None:
        due = 0.0
        while not self._ended:
            self._wake.wait(REFRESH_SECONDS)
            self._wake.clear()
            if (now := time.monotonic()) >= due:
                due = now + REFRESH_SECONDS
                self.refresh()
            else:
                self._write_lines()

    def _start(self) -> None:
        with self._lock:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=False,
                redirect_stderr=sys.stderr.isatty(),
                redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
                vertical_overflow="crop",
            )
            self._live.start()

    def refresh(self) -> None:
        """Show the app as it is now, below what has been said meanwhile."""
        self._write_lines()
        snapshot = self._snapshot()
        with self._lock:
            if self._live is None:
                return
            self._follow_size()
            size = self._console.size
            self._shown = view(
                snapshot,
                size.width,
                max(2, size.height - 2),
                waiting_every=self._waiting_every,
                ascii_only=self._ascii_only,
            )
            self._live.update(Group(*self._shown), refresh=True)

    def print(self, text: Text) -> None:
        """A line above the view, soon: whoever says something never waits for the terminal."""
        if len(self._lines) >= MAX_LINES:
            self._left_out += 1
            return
        self._lines.append(text)
        self._wake.set()

    def _write_lines(self) -> None:
        with self._lock:
            if self._live is not None and self._lines:
                self._follow_size()
            while self._lines:
                self._console.print(self._lines.popleft(), soft_wrap=True)
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                self._console.print(f"{counted(left_out, 'line')} left out: too many at once")

    def print_line(self, line: str) -> None:
        """A line that a worker process printed, with the colours it may have."""
        self.print(Text.from_ansi(line))

    def close(self, last_line: str = "") -> None:
        """Show it a last time, and let go of the terminal."""
        self._ended = True
        self._wake.set()
        self._thread.join(2.0)
        self.refresh()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None
        if last_line:
            self._console.print(Text(last_line))

    def _follow_size(self) -> None:
        """After the terminal has become narrower: take away the view, which was wrapped by it."""
        width = self._console.width
        if width == self._width or self._live is None:
            return
        rows = sum(max(0, cell_len(line.plain) - 1) // width for line in self._shown)
        self._width = width
        self._shown = []
        self._live.transient = True
        self._live.stop()
        self._console.control(
            Control(
                *[(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * rows,
            )
        )
        self._start()


class _ConsoleHandler(logging.Handler):
    def __init__(self, display: LiveDisplay) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        try:
            style = _LEVEL_STYLES.get(record.levelno, "")
            self._display.print(Text(self.format(record), style=style))
        except Exception:
            self.handleError(record)
