"""`pumphouse check service:app`: what is wrong with its queues, before it starts.

Finding it is `pumphouse.check`'s; here is how it is shown. On a terminal findings are grouped by
queue and wrapped to its width; otherwise each is one line. The exit code is 0 for a sound service,
1 where there are errors (with `--strict` warnings too), 2 for wrong usage. What keeps it from
looking (network, credentials) is one line on standard error and 1.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pumphouse.app import App
from pumphouse.backend import Backend
from pumphouse.check import Finding, check
from pumphouse.check.findings import Severity
from pumphouse.check.permissions import look_up, needs_of, policy
from pumphouse.cli.exit_codes import FAILED, OK
from pumphouse.cli.run.loading import load_or_show
from pumphouse.errors import UsageError

R = TypeVar("R")

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said."""

    target: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    local: bool = False
    as_json: bool = False
    strict: bool = False
    permissions: bool = False
    arns: bool = False


def run(options: Options) -> int:
    """Check, and show what was found; the exit code.

    Raises `UsageError` where there is no such app, and what keeps it from looking.
    """
    if options.local and (options.endpoint_url or options.region or options.profile):
        raise UsageError(
            "--local checks on an account in memory; it has no endpoint, region or profile"
        )
    if options.arns and not options.permissions:
        raise UsageError("--arns is for --permissions")
    app = load_or_show(options.target)
    if app is None:
        return FAILED
    if options.permissions:
        return _permissions(app, options)
    findings = asyncio.run(_over_backend(app, options, check))
    count = len(app.subscriptions)
    if options.as_json:
        print(as_json(findings, count, strict=options.strict))
    else:
        show(findings, count, Console(highlight=False))
    return OK if is_sound(findings, strict=options.strict) else FAILED


def is_sound(findings: Sequence[Finding], *, strict: bool) -> bool:
    """Whether nothing was found that counts: errors, and warnings where it is strict."""
    counting = {"error", "warning"} if strict else {"error"}
    return not any(each.severity in counting for each in findings)


async def _over_backend(
    app: App, options: Options, work: Callable[[App, Backend], Awaitable[R]]
) -> R:
    backend: Backend
    if options.local:
        from pumphouse.account import Account
        from pumphouse.in_process import make_queues

        backend = Account(ledger_room=0)
        await make_queues(backend, app)
    else:
        from pumphouse.http import connect

        backend = connect(
            region=options.region, endpoint_url=options.endpoint_url, profile=options.profile
        )
    try:
        return await work(app, backend)
    finally:
        await backend.aclose()


# --- findings -------------------------------------------------------------------------------------


def as_json(findings: Sequence[Finding], count: int, *, strict: bool) -> str:
    """The findings for programs."""
    found: dict[str, Any] = {
        "sound": is_sound(findings, strict=strict),
        "subscriptions": count,
        "findings": msgspec.to_builtins(list(findings)),
    }
    return json.dumps(found, indent=2, ensure_ascii=False)


def show(findings: Sequence[Finding], count: int, console: Console) -> None:
    """The findings for people: by queue and wrapped on a terminal, one line each elsewhere."""
    if console.is_terminal:
        for queue, group in groupby(findings, key=lambda each: each.queue):
            console.print(Text(queue, style="bold"))
            console.print(_table(list(group)))
    else:
        for each in findings:
            console.print(Text(line(each)), soft_wrap=True)
    console.print(Text(summary(findings, count)), soft_wrap=True)


def line(finding: Finding) -> str:
    """A finding as one line: where, how bad, what, and what to do."""
    return (
        f"{finding.queue}: {finding.severity} {finding.code}: {finding.message}; "
        f"to do: {finding.remedy}"
    )


def _table(findings: Sequence[Finding]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=7, no_wrap=True)
    table.add_column(width=5, no_wrap=True)
    table.add_column(overflow="fold")
    for each in findings:
        words = Text(each.message).append(f" → {each.remedy}", style="dim")
        table.add_row("", Text(each.severity, style=_STYLES[each.severity]), each.code, words)
    return table


def summary(findings: Sequence[Finding], count: int) -> str:
    """The last line."""
    subscriptions = f"{count} subscription{'' if count == 1 else 's'} checked"
    counts = {
        severity: sum(each.severity == severity for each in findings)
        for severity in ("error", "warning", "info")
    }
    said = list(_counted(counts))
    if counts["error"] or counts["warning"]:
        return f"{', '.join(said)}; {subscriptions}"
    return f"sound: {', '.join([subscriptions, *said])}"


def _counted(counts: dict[str, int]) -> Iterator[str]:
    for severity, count in counts.items():
        if count:
            plural = "" if count == 1 or severity == "info" else "s"
            yield f"{count} {severity}{plural}"


# --- permissions ----------------------------------------------------------------------------------


def _permissions(app: App, options: Options) -> int:
    """Print the policy; what it can't know without looking is said beside it."""
    if options.arns:
        found = asyncio.run(_over_backend(app, options, look_up))
        print(json.dumps(policy(found.needs, found.arns), indent=2))
        return OK
    needs = needs_of(app)
    print(json.dumps(policy(needs), indent=2))
    if needs.unknown:
        print(
            f"pumphouse: {', '.join(needs.unknown)}: where their own redrive policies lead is not "
            "in it, nor are keys; --arns looks that up",
            file=sys.stderr,
        )
    return OK
