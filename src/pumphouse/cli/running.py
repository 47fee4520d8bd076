"""The command line of `pumphouse run`: its options and their help. What it does is `run/`."""

from __future__ import annotations

from typing import Any

import click

from pumphouse.cli.options import SECONDS, endpoint_url, group_by, region


@click.command(name="run")
@click.argument("target", metavar="MODULE[:APP]")
@endpoint_url
@region
@click.option("--local", is_flag=True, help="Run on SQS in memory, with the queues it names.")
@click.option(
    "--send",
    multiple=True,
    metavar="QUEUE=FILE",
    help="With --local: send these JSON lines first; - is stdin. May be repeated.",
)
@group_by
@click.option(
    "--until-empty", is_flag=True, help="With --local: end when nothing is left to handle."
)
@click.option(
    "--serve-port",
    type=int,
    metavar="PORT",
    help="With --local: serve the account on 127.0.0.1 for other programs.",
)
@click.option(
    "--drain-seconds",
    type=SECONDS,
    metavar="SECONDS",
    help="How long handlers get at a stop.",
)
@click.option(
    "--workers", "-w", type=int, metavar="N", help="Run so many processes, and mind them."
)
@click.option(
    "--stop-seconds",
    type=SECONDS,
    metavar="SECONDS",
    help="When a worker that does not end is killed; by default what its drain may take.",
)
@click.option("--reload", is_flag=True, help="Drain and start anew when the source changes.")
@click.option("--health-port", type=int, metavar="PORT", help="Answer /live, /ready and /health.")
@click.option(
    "--health-host", default="127.0.0.1", metavar="HOST", help="Where --health-port listens."
)
@click.option("--plain", is_flag=True, help="Log lines only, on a terminal as well.")
@click.option(
    "--waiting-every",
    type=SECONDS,
    default=5.0,
    metavar="SECONDS",
    help="How often the live view asks SQS what waits; a request a queue. 0: never.",
)
@click.option("--log-level", default="info", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", default="text", metavar="text|json", help="How lines are logged.")
@click.option(
    "--loop",
    default="auto",
    metavar="auto|asyncio|uvloop",
    help="The event loop of the app, in every worker; auto is uvloop if installed.",
)
def run_app(*, send: tuple[str, ...], **given: Any) -> int:
    """Run an app until SIGTERM or SIGINT, then drain it.

    MODULE[:APP] is the app to run; its name is app if not given.
    """
    from pumphouse.cli.run import Options, run

    return run(Options(send=list(send), **given))
