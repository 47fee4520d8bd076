"""`pumphouse demo`: shows a run of `pumphouse.demo` and its report; what happens is decided there.

On a terminal the progress is live; anywhere else it is plain lines. The report goes to standard
output either way, bad lines and errors to standard error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
)

from pumphouse.cli.events import read_events
from pumphouse.cli.words import counted
from pumphouse.demo.fan_out import TOPIC, FanOut
from pumphouse.demo.fan_out import run as publish
from pumphouse.demo.report import Journal, Report
from pumphouse.demo.sample import sample
from pumphouse.demo.service import StagedFailure
from pumphouse.demo.service import run as run_service
from pumphouse.jsonl import BadLine, load

_SHOWN = 10  # of a list in the report


def run(path: str | None, group_by: str | None, on_bad_line: str) -> int:
    """Read, run, report; the exit code is 0 when nothing was lost and order was kept, else 1."""
    events = read_events(
        lambda: sample(group_by) if path is None else load(path, group_by), on_bad_line
    )
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{counted(len(events.events), 'event')} from {escape(events.source)} "
        f"in {counted(events.groups, 'group')}, grouped {escape(events.grouping)}"
    )
    with _unstaged_trouble_is_told(), _progress(console, len(events.events)) as watch:
        report = asyncio.run(run_service(events.events, watch=watch))
    for line in report_lines(report, events.bad_lines):
        console.print(line)
    return 0 if report.ok else 1


def run_fan_out(path: str | None, group_by: str | None, on_bad_line: str) -> int:
    """Read, publish, report; the exit code is 0 when every queue got what its filter says."""
    events = read_events(
        lambda: sample(group_by) if path is None else load(path, group_by), on_bad_line
    )
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{counted(len(events.events), 'event')} from {escape(events.source)} "
        f"to the topic {TOPIC}, which three queues are subscribed to"
    )
    with _unstaged_trouble_is_told():
        outcome = asyncio.run(publish(events.events))
    for line in fan_out_lines(outcome, events.bad_lines):
        console.print(line)
    return 0 if outcome.ok else 1


@contextmanager
def _unstaged_trouble_is_told() -> Iterator[None]:
    """Log warnings to standard error, but for the failures that the demo makes on purpose."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("pumphouse: %(message)s"))
    handler.addFilter(lambda record: not _is_staged(record))
    log = logging.getLogger("pumphouse")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _is_staged(record: logging.LogRecord) -> bool:
    """A failed attempt, or the dead letter that comes of several, of which the text alone tells."""
    if record.exc_info:
        return isinstance(record.exc_info[1], StagedFailure)
    return hasattr(record, "dead_letter") and f" {StagedFailure.__name__}: " in record.getMessage()


# --- progress -----------------------------------------------------------------------------------

Watch = Callable[[Journal], None]


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Watch]:
    """What is called with the journal while a run goes on."""
    if console.is_terminal and not console.is_dumb_terminal:
        with _live(console, total) as watch:
            yield watch
    else:
        yield _plain(console, total)


@contextmanager
def _live(console: Console, total: int) -> Iterator[Watch]:
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), MofNCompleteColumn()]
    if console.width >= 40:
        columns.insert(1, BarColumn(bar_width=min(40, console.width // 3)))
    if console.width >= 60:
        columns.append(TextColumn("{task.fields[note]}"))
    progress = Progress(*columns, console=console)
    with progress:
        sent = progress.add_task("sent", total=total, note="")
        settled = progress.add_task("settled", total=total, note="")

        def watch(journal: Journal) -> None:
            progress.update(sent, completed=len(journal.confirmed))
            note = f"{journal.retries} retried, {len(journal.dead_lettered)} dead-lettered"
            progress.update(settled, completed=journal.settled, note=note)

        yield watch


def _plain(console: Console, total: int) -> Watch:
    shown = -1

    def watch(journal: Journal) -> None:
        nonlocal shown
        quarter = 4 * journal.settled // total
        if quarter > shown:
            shown = quarter
            console.print(
                f"sent {len(journal.confirmed)}/{total}, handled {len(journal.handled)}, "
                f"retried {journal.retries}, dead-lettered {len(journal.dead_lettered)}"
            )

    return watch


# --- the report ---------------------------------------------------------------------------------


def report_lines(report: Report, bad_lines: Sequence[BadLine] = ()) -> Iterator[str]:
    """The report as lines of rich markup."""
    yield ""
    yield from _rows(
        {
            "sent": f"{report.sent} of {report.events}, confirmed",
            "handled": str(report.handled),
            "retried": str(report.retried),
            "dead-lettered": _with_lines(report.dead_lettered),
            "lost": _with_lines(report.lost),
            "order": _order(report),
            "requests": _requests(report),
            "time": f"{report.seconds:.2f} s",
        }
    )
    if bad_lines:
        yield from _rows({"bad lines": f"{len(bad_lines)} skipped"})
    yield ""
    if report.ok:
        yield "[green]nothing lost, order kept in every group[/green]"
        return
    for fault in _faults(report):
        yield f"[red]FAILED: {escape(fault)}[/red]"


def fan_out_lines(outcome: FanOut, bad_lines: Sequence[BadLine] = ()) -> Iterator[str]:
    """The outcome of a fan-out as lines of rich markup."""
    yield ""
    for each in outcome.branches:
        way = "enveloped" if each.branch.enveloped else "raw"
        yield f"{each.branch.queue + ':':16}{escape(each.branch.words)} ({way})"
        yield f"{'':16}{each.got.total()} handled, {len(each.expected)} by a plain filter"
    total = sum(outcome.requests.values())
    parts = ", ".join(f"{action} {count}" for action, count in outcome.requests.items())
    yield from _rows(
        {
            "published": f"{outcome.published} of {outcome.events}, confirmed",
            "requests": f"{total} in all ({parts})",
            "time": f"{outcome.seconds:.2f} s",
        }
    )
    if bad_lines:
        yield from _rows({"bad lines": f"{len(bad_lines)} skipped"})
    yield ""
    if outcome.ok:
        yield "[green]every queue got what its filter lets by, once and unchanged[/green]"
        return
    for line, reason in list(outcome.unconfirmed.items())[:_SHOWN]:
        yield f"[red]FAILED: line {line} was not confirmed: {escape(reason)}[/red]"
    for each in outcome.branches:
        for what, lines in (
            ("did not get", each.missing),
            ("should not have got", each.unwanted),
            ("got more than once", each.twice),
            ("got changed", each.damaged),
        ):
            if lines:
                yield f"[red]FAILED: {each.branch.queue} {what} {_some(lines, 'line')}[/red]"
    if outcome.left:
        yield f"[red]FAILED: {counted(outcome.left, 'message')} still in the queues[/red]"


def _rows(rows: Mapping[str, str]) -> Iterator[str]:
    for name, value in rows.items():
        yield f"{name + ':':15}{escape(value)}"


def _faults(report: Report) -> Iterator[str]:
    if report.lost:
        yield f"lost {_with_lines(report.lost)}"
    for line, reason in list(report.unconfirmed.items())[:_SHOWN]:
        yield f"line {line} was not confirmed: {reason}"
    if len(report.unconfirmed) > _SHOWN:
        yield f"{len(report.unconfirmed) - _SHOWN} more were not confirmed"
    if report.twice:
        yield f"came out more than once: {_with_lines(report.twice)}"
    if report.out_of_order:
        yield f"out of order in {_some(report.out_of_order, 'group')}"
    if report.left:
        yield f"{counted(report.left, 'message')} still in the queues"


def _order(report: Report) -> str:
    if report.out_of_order:
        return f"broken in {len(report.out_of_order)} of {counted(report.groups, 'group')}"
    return f"kept in {counted(report.groups, 'group')}, up to {report.at_once} at work at once"


def _requests(report: Report) -> str:
    parts = ", ".join(f"{action} {count}" for action, count in report.requests.items())
    total = sum(report.requests.values())
    return f"{report.requests_per_message:.2f} per message, {total} in all ({parts})"


def _with_lines(lines: Sequence[int]) -> str:
    return f"{len(lines)} ({_some(lines, 'line')})" if lines else "0"


def _some(items: Sequence[object], noun: str) -> str:
    shown = ", ".join(str(item) for item in items[:_SHOWN])
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"{noun if len(items) == 1 else noun + 's'} {shown}{more}"
