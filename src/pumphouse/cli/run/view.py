"""What `pumphouse run` shows of an app on a terminal: pure functions of a snapshot and a size.

There are two layouts: from `WIDE` columns on with whole words and whole numbers, below it with
short ones. No line is longer than the width, and there are no more than the height; queues that
don't fit are counted in one line, unhealthy ones last to go. How it gets onto a terminal is
`display.py`'s.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from pumphouse.cli.words import counted
from pumphouse.health.state import QueueState, Snapshot, WorkerState, total

WIDE = 96

_MARKS = {"healthy": ("●", "*"), "unhealthy": ("!", "!"), "ended": ("-", "-")}
_STYLES = {"healthy": "green", "unhealthy": "bold red", "ended": "yellow"}


@dataclass(frozen=True)
class _Column:
    title: str
    width: int
    value: Callable[[QueueState, int], str]


def _in_flight(queue: QueueState, width: int) -> str:
    both = f"{queue.held}/{queue.running}"
    return both if len(both) <= width else number(queue.held, width)


_WIDE_COLUMNS = (
    _Column("waiting", 8, lambda queue, width: number(queue.waiting, width)),
    _Column("in flight", 9, _in_flight),
    _Column("handled", 9, lambda queue, width: number(queue.handled, width)),
    _Column("retried", 7, lambda queue, width: number(queue.retried, width)),
    _Column("dead", 6, lambda queue, width: number(queue.dead_lettered, width)),
    _Column("rate/s", 7, lambda queue, width: decimal(queue.rate, 1, width)),
    _Column("req/msg", 7, lambda queue, width: decimal(queue.requests_per_message, 2, width)),
)
_NARROW_COLUMNS = (
    _Column("wait", 5, lambda queue, width: number(queue.waiting, width)),
    _Column("held", 6, _in_flight),
    _Column("done", 5, lambda queue, width: number(queue.handled, width)),
    _Column("retry", 5, lambda queue, width: number(queue.retried, width)),
    _Column("dead", 5, lambda queue, width: number(queue.dead_lettered, width)),
    _Column("/s", 5, lambda queue, width: decimal(queue.rate, 1, width)),
    _Column("r/m", 4, lambda queue, width: decimal(queue.requests_per_message, 2, width)),
)
_STATUS_WIDTH = 9
_LEAST_NAME = 10


def view(
    snapshot: Snapshot,
    width: int,
    height: int = 0,
    *,
    waiting_every: float = 0,
    ascii_only: bool = False,
) -> list[Text]:
    """The lines that show an app; with `height`, at most so many.

    `waiting_every` is how often SQS is asked what waits, in seconds; 0 for never.
    """
    layout = _Layout(snapshot, width, ascii_only, waiting=waiting_every > 0)
    lines = [_heading(snapshot, width, ascii_only)]
    if snapshot.state != "stopped":
        trouble = (worker for worker in snapshot.workers if worker.state != "running")
        lines += [_trouble(worker, width) for worker in trouble]
    queues = list(snapshot.queues.items())
    if not queues:
        return _cut(lines, width, height)
    lines.append(layout.titles())
    last: list[Text] = []
    if len(queues) > 1:
        last.append(layout.row(f"all {len(queues)} queues", total(snapshot.queues.values()), "dim"))
    if waiting_every > 0 and (asked := sum(each.waiting_requests for _, each in queues)):
        made = sum(each.requests for _, each in queues)
        note = f"waiting: asked every {waiting_every:g} s, {asked:,} of {counted(made, 'request')}"
        last.append(Text(note, style="dim"))
    room = height - len(lines) - len(last) if height else 0
    lines += _rows(layout, queues, room, bounded=bool(height))
    return _cut(lines + last, width, height)


def summary(snapshot: Snapshot) -> str:
    """What came of a run, in one line."""
    queues = total(snapshot.queues.values())
    parts = [f"{queues.handled:,} handled", f"{queues.retried:,} retried"]
    parts.append(f"{queues.dead_lettered:,} dead-lettered")
    if queues.released:
        parts.append(f"{queues.released:,} given back unrun")
    if queues.settle_failed or queues.leases_lost:
        parts.append(f"{max(queues.settle_failed, queues.leases_lost):,} may come again")
    text = f"{snapshot.app}: {', '.join(parts)} in {duration(snapshot.uptime_seconds)}"
    if queues.requests_per_message is not None:
        text += (
            f"; {counted(queues.requests, 'request')}, {queues.requests_per_message:.2f} a message"
        )
    return text


# --- lines ----------------------------------------------------------------------------------------


class _Layout:
    """Where things stand in a row."""

    def __init__(self, snapshot: Snapshot, width: int, ascii_only: bool, *, waiting: bool) -> None:
        self.width = width
        self.wide = width >= WIDE
        self.ascii_only = ascii_only
        self.gap = 2 if self.wide else 1
        columns = list(_WIDE_COLUMNS if self.wide else _NARROW_COLUMNS)
        if not waiting and not any(each.waiting is not None for each in snapshot.queues.values()):
            del columns[0]
        status = _STATUS_WIDTH + self.gap if self.wide else 0
        longest = max((len(name) for name in snapshot.queues), default=0)
        longest = max(longest, len(f"all {len(snapshot.queues)} queues")) + 2  # with the mark
        while True:
            taken = status + sum(column.width + self.gap for column in columns)
            if width - taken >= min(longest, _LEAST_NAME) or len(columns) <= 1:
                break
            columns.pop()  # a terminal that is narrower than any should be
        self.columns = columns
        self.name = max(3, min(longest, width - taken))
        self.left = width - taken - self.name - self.gap
        self.short = distinct(list(snapshot.queues), self.name - 2, ascii_only)

    def titles(self) -> Text:
        text = Text("  queue".ljust(self.name)[: self.name], style="dim")
        if self.wide:
            text.append(" " * self.gap + "health".ljust(_STATUS_WIDTH))
        for column in self.columns:
            text.append(" " * self.gap + column.title.rjust(column.width))
        return text

    def row(self, name: str, queue: QueueState, style: str = "") -> Text:
        mark = _MARKS[queue.status][self.ascii_only]
        text = Text(style=style)
        text.append(" " if style else mark, "" if style else _STYLES[queue.status])
        shown = self.short.get(name) or elided(name, self.name - 2, self.ascii_only)
        text.append(" " + shown.ljust(self.name - 2))
        if self.wide:
            shown = "" if style else queue.status
            text.append(" " * self.gap + shown.ljust(_STATUS_WIDTH), _STYLES[queue.status])
        for column in self.columns:
            told = column.value(queue, column.width)[: column.width].rjust(column.width)
            alarming = column.title == "dead" and queue.dead_lettered and not style
            text.append(" " * self.gap + told, "red" if alarming else "")
        return text

    def lines_of(self, name: str, queue: QueueState) -> list[Text]:
        """A queue's row, and why it is not healthy: in the row if there is room, else below it."""
        row = self.row(name, queue)
        reason = plain(queue.reason)
        if not reason:
            return [row]
        if cell_len(reason) <= self.left:
            row.append(" " * self.gap + reason, "red")
            return [row]
        reason = elided_end(reason, self.width - 2, self.ascii_only)
        return [row, Text("  " + reason, style="red")]


def _rows(
    layout: _Layout, queues: Sequence[tuple[str, QueueState]], room: int, *, bounded: bool
) -> list[Text]:
    """The rows of the queues, in their order; of those that there is no room for, how many."""
    rows = [(name, queue, layout.lines_of(name, queue)) for name, queue in queues]
    if bounded and sum(len(lines) for _, _, lines in rows) > room:  # then without reasons
        rows = [(name, queue, lines[:1]) for name, queue, lines in rows]
    if not bounded or sum(len(lines) for _, _, lines in rows) <= room:
        return [line for _, _, lines in rows for line in lines]
    first = sorted(
        range(len(rows)),
        key=lambda at: (rows[at][1].status == "healthy", -(rows[at][1].rate or 0), at),
    )
    shown = set(first[: max(0, room - 1)])
    hidden = [rows[at][1] for at in range(len(rows)) if at not in shown]
    unwell = sum(queue.status != "healthy" for queue in hidden)
    how = f"{unwell} of them not healthy" if unwell else "all healthy"
    dots = "..." if layout.ascii_only else "…"
    lines = [line for at in sorted(shown) for line in rows[at][2]]
    return [*lines, Text(f"  {dots} and {len(hidden)} more, {how}", style="red" if unwell else "")]


def _heading(snapshot: Snapshot, width: int, ascii_only: bool) -> Text:
    dot = " - " if ascii_only else " · "
    parts = [plain(snapshot.app), snapshot.state, duration(snapshot.uptime_seconds)]
    if snapshot.workers and snapshot.state != "stopped":
        up = sum(worker.state == "running" for worker in snapshot.workers)
        parts.append(f"{up} of {counted(len(snapshot.workers), 'worker')}")
    if snapshot.blocked_seconds >= 2:
        parts.append(f"blocked for {snapshot.blocked_seconds:.0f} s")
    left = dot.join(parts)
    right = {
        "running": "Ctrl-C drains",
        "draining": "Ctrl-C again cancels",
    }.get(snapshot.state, "")
    style = "bold yellow" if snapshot.state == "draining" else "bold"
    text = Text(elided_end(left, width, ascii_only), style=style)
    space = width - text.cell_len - len(right)
    if right and space >= 2:
        text.append(" " * space + right, "not bold dim")
    return text


def _trouble(worker: WorkerState, width: int) -> Text:
    text = f"  worker {worker.number}: {worker.state}"
    if worker.restarts:
        text += f", restarted {worker.restarts} time{'s' if worker.restarts > 1 else ''}"
    return Text(text[:width], style="yellow")


def _cut(lines: list[Text], width: int, height: int) -> list[Text]:
    shown = lines[:height] if height else lines
    for line in shown:
        line.rstrip()
        if line.cell_len > width:
            line.truncate(width)
        line.no_wrap = True
    return shown


# --- words and numbers ----------------------------------------------------------------------------


def number(value: int | None, width: int) -> str:
    """A number in at most `width` (4 or more) characters: with commas, plain, or rounded."""
    if value is None:
        return "-"
    for text in (f"{value:,}", str(value)):
        if len(text) <= width:
            return text
    size = float(value)
    for unit in "kMGTP":
        size /= 1_000
        if round(size) < 1_000:
            text = f"{size:.1f}{unit}"
            return text if len(text) <= width else f"{size:.0f}{unit}"
    return "lots"


def decimal(value: float | None, places: int, width: int) -> str:
    """A number with so many places behind the point, fewer or none where there is no room."""
    if value is None:
        return "-"
    for digits in range(places, 0, -1):
        if len(text := f"{value:,.{digits}f}") <= width:
            return text
    return number(round(value), width)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds; days where there are any."""
    whole = int(seconds)
    days, whole = divmod(whole, 86_400)
    text = f"{whole // 3_600}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{days}d {text}" if days else text


def elided(name: str, width: int, ascii_only: bool = False) -> str:
    """A name in `width` characters, both its ends kept: FIFO queues differ in the middle."""
    if len(name) <= width:
        return name
    dots = "..." if ascii_only else "…"
    keep = max(0, width - len(dots))
    tail = keep // 3
    return (name[: keep - tail] + dots + name[len(name) - tail :])[:width]


def distinct(names: Sequence[str], width: int, ascii_only: bool = False) -> dict[str, str]:
    """The names in `width` characters each, cut where they still differ, if there is such a place:
    in the middle, at the beginning, at the end, or around what differs."""
    dots = "..." if ascii_only else "…"
    room = max(1, width - len(dots))
    common = len(os.path.commonprefix(list(names)))  # noqa: RUF071 - characters are meant

    def without_beginning(name: str) -> str:
        return dots + name[-room:]

    def without_end(name: str) -> str:
        return name[:room] + dots

    def around(name: str) -> str:
        inner = name[common:]
        if len(inner) <= room:
            return dots + name[-room:]
        return dots + inner[: max(1, room - len(dots))] + dots

    def in_the_middle(name: str) -> str:
        return elided(name, width, ascii_only)

    for cut in (in_the_middle, without_beginning, without_end, around):
        found = {name: name if len(name) <= width else cut(name)[:width] for name in names}
        if len(set(found.values())) == len(found):
            return found
    return {name: in_the_middle(name) for name in names}


def elided_end(text: str, width: int, ascii_only: bool = False) -> str:
    """A text in `width` cells, its end cut off."""
    if cell_len(text) <= width:
        return text
    dots = "..." if ascii_only else "…"
    return (set_cell_size(text, max(0, width - len(dots))).rstrip() + dots)[:width]


def plain(text: str) -> str:
    """A text as one line without control characters, whoever wrote it."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())
