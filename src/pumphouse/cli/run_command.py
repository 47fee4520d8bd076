"""The command line of `pumphouse run`: its options and their help. What it does is `run/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from pumphouse.cli.options import EndpointUrl, GroupBy, Region

if TYPE_CHECKING:
    from pumphouse.event_loop import LoopName


def run_app(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:APP]", help="The app to run; its name is app if not given."
        ),
    ],
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    local: Annotated[
        bool, typer.Option("--local", help="Run on SQS in memory, with the queues it names.")
    ] = False,
    send: Annotated[
        list[str] | None,
        typer.Option(
            "--send",
            metavar="QUEUE=FILE",
            help="With --local: send these JSON lines first; - is stdin. May be repeated.",
        ),
    ] = None,
    group_by: GroupBy = None,
    until_empty: Annotated[
        bool,
        typer.Option("--until-empty", help="With --local: end when nothing is left to handle."),
    ] = False,
    serve_port: Annotated[
        int | None,
        typer.Option(
            "--serve-port",
            metavar="PORT",
            help="With --local: serve the account on 127.0.0.1 for other programs.",
        ),
    ] = None,
    drain_seconds: Annotated[
        float | None,
        typer.Option("--drain-seconds", min=0, help="How long handlers get at a stop."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", metavar="N", help="Run so many processes, and mind them."),
    ] = None,
    stop_seconds: Annotated[
        float | None,
        typer.Option(
            "--stop-seconds",
            min=0,
            metavar="SECONDS",
            help="When a worker that does not end is killed; by default what its drain may take.",
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Drain and start anew when the source changes.")
    ] = False,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", metavar="PORT", help="Answer /live, /ready and /health."),
    ] = None,
    health_host: Annotated[
        str, typer.Option("--health-host", metavar="HOST", help="Where it listens.")
    ] = "127.0.0.1",
    plain: Annotated[
        bool, typer.Option("--plain", help="Log lines only, on a terminal as well.")
    ] = False,
    waiting_every: Annotated[
        float,
        typer.Option(
            "--waiting-every",
            metavar="SECONDS",
            help="How often the live view asks SQS what waits; a request a queue. 0: never.",
        ),
    ] = 5.0,
    log_level: Annotated[str, typer.Option("--log-level", metavar="LEVEL")] = "info",
    log_format: Annotated[str, typer.Option("--log-format", metavar="text|json")] = "text",
    loop: Annotated[
        str,
        typer.Option(
            "--loop",
            metavar="auto|asyncio|uvloop",
            help="The event loop of the app, in every worker; auto is uvloop if installed.",
        ),
    ] = "auto",
) -> int:
    """Run an app until SIGTERM or SIGINT, then drain it."""
    from pumphouse.cli.run import Options, run

    return run(
        Options(
            target=target,
            endpoint_url=endpoint_url,
            region=region,
            local=local,
            send=send or [],
            group_by=group_by,
            until_empty=until_empty,
            serve_port=serve_port,
            drain_seconds=drain_seconds,
            workers=workers,
            stop_seconds=stop_seconds,
            reload=reload,
            plain=plain,
            waiting_every=waiting_every,
            health_port=health_port,
            health_host=health_host,
            log_level=log_level,
            log_format=log_format,
            loop=cast("LoopName", loop),
        )
    )
