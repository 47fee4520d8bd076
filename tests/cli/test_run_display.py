"""How the view gets onto a terminal: what is written above it, and what a change of size does."""

from __future__ import annotations

import io
import logging
import re
import threading

import pytest
from rich.console import Console

from pumphouse.cli.run.display import LiveDisplay
from pumphouse.health import QueueState, Snapshot

SNAPSHOT = Snapshot(
    app="shop", state="running", queues={"orders.fifo": QueueState(handled=3), "mail": QueueState()}
)


class Screen:
    """A terminal of a few rows that understands what a view writes, and wraps what is too long as
    terminals do, also when it becomes narrower."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines = [""]  # whole lines, each of as many rows as it takes
        self.row, self.column = 0, 0  # of the cursor: a row of the screen, not a line

    def _rows(self) -> list[tuple[int, int]]:
        """For each row of the screen its line, and where in the line it begins."""
        return [
            (at, start)
            for at, line in enumerate(self.lines)
            for start in range(0, max(1, len(line)), self.width)
        ]

    def resize(self, width: int) -> None:
        line, start = self._rows()[self.row]
        offset = start + self.column
        self.width = width
        rows = self._rows()
        self.row = max(
            at for at, (each, begin) in enumerate(rows) if each == line and begin <= max(0, offset)
        )
        self.column = offset - rows[self.row][1]

    def write(self, text: str) -> None:
        for code, char in re.findall(r"(\x1b\[[0-9;?]*[a-zA-Z])|(.|\n)", text, re.DOTALL):
            if code:
                self._obey(code[2:-1], code[-1])
            elif char == "\r":
                self.column = 0
            elif char == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row >= len(self._rows()):
                    self.lines.append("")
            else:
                self._put(char)

    def _obey(self, number: str, letter: str) -> None:
        if letter == "A":
            self.row = max(0, self.row - int(number or 1))
        elif letter == "K" and number == "2":
            line, start = self._rows()[self.row]
            self.lines[line] = self.lines[line][:start] + self.lines[line][start + self.width :]

    def _put(self, char: str) -> None:
        line, start = self._rows()[self.row]
        text = self.lines[line].ljust(start + self.column)
        at = start + self.column
        self.lines[line] = text[:at] + char + text[at + 1 :]
        self.column += 1

    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]


class Terminal:
    """A display, and the screen that it writes to."""

    def __init__(self, width: int) -> None:
        self.file = io.StringIO()
        self.console = Console(
            file=self.file,
            width=width,
            height=24,
            force_terminal=True,
            color_system=None,
            _environ={"TERM": "xterm"},
        )
        self.screen = Screen(width)
        self.display = LiveDisplay(self.console, lambda: SNAPSHOT, waiting_every=0)
        self._read = 0

    def resize(self, width: int) -> None:
        self.look()
        self.screen.resize(width)
        self.console.width = width

    def look(self) -> list[str]:
        written = self.file.getvalue()
        self.screen.write(written[self._read :])
        self._read = len(written)
        return self.screen.shown()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(LiveDisplay, "_keep_showing", lambda self: None)  # it is done by hand
    return Terminal(100)


def record(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelno": logging.WARNING})


def test_the_view_stays_below_what_is_logged(terminal: Terminal) -> None:
    terminal.display.open()
    handler = terminal.display.handler()
    try:
        for number in range(3):
            handler.emit(record(f"record {number}"))
            terminal.display.refresh()
        shown = terminal.look()
    finally:
        terminal.display.close("the end")
    assert shown[:3] == ["record 0", "record 1", "record 2"]
    assert [line.split()[0] for line in shown[3:]] == ["shop", "queue", "●", "●", "all"]
    assert terminal.look()[-1] == "the end"


@pytest.mark.parametrize("widths", [(60,), (60, 160), (160, 60, 100), (40, 30, 100)])
def test_a_change_of_size_leaves_nothing_of_the_old_view(
    terminal: Terminal, widths: tuple[int, ...]
) -> None:
    terminal.display.open()
    handler = terminal.display.handler()
    try:
        handler.emit(record("before"))
        for width in widths:
            terminal.resize(width)
            terminal.display.refresh()
            handler.emit(record(f"at {width}"))
            terminal.display.refresh()
        shown = terminal.look()
    finally:
        terminal.display.close()
    logged = ["before", *(f"at {width}" for width in widths)]
    assert shown[: len(logged)] == logged
    assert [line.split()[0] for line in shown[len(logged) :]] == ["shop", "queue", "●", "●", "all"]


def test_a_terminal_that_stands_still_holds_up_nobody(terminal: Terminal) -> None:
    """As after Ctrl-S: the view's thread is held up in a write, with the terminal in its hands."""
    handler = terminal.display.handler()
    with terminal.display._lock:
        done = threading.Thread(target=lambda: [handler.emit(record(f"{at}")) for at in range(9)])
        done.start()
        done.join(10)
        assert not done.is_alive()
        assert terminal.look() == []
    terminal.display.open()
    terminal.display.close()
    assert terminal.look()[:9] == [str(at) for at in range(9)]


def test_what_is_too_much_for_a_terminal_is_counted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pumphouse.cli.run.display.MAX_LINES", 3)
    for at in range(8):
        terminal.display.handler().emit(record(f"{at}"))
    terminal.display.open()
    terminal.display.close()
    assert terminal.look()[:4] == ["0", "1", "2", "5 lines left out: too many at once"]


def test_control_characters_of_a_record_do_not_move_the_cursor(terminal: Terminal) -> None:
    terminal.display.open()
    terminal.display.handler().emit(record("bad\x07\x08 record"))
    terminal.display.close()
    shown = terminal.look()
    assert shown[0] == "bad record"


def test_the_colours_of_a_workers_line_are_kept_and_the_rest_is_not(terminal: Terminal) -> None:
    terminal.display.open()
    terminal.display.print_line("\x1b[31mred\x1b[0m \x1b[2Jand plain")
    terminal.display.close()
    assert terminal.look()[0] == "red and plain"
