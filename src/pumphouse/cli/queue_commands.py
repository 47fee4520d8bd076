"""The subcommands for queues, as the command line knows them; what they do is `queue_tools.py`'s.

Imported with the command itself, so it imports nothing that takes time.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pumphouse.cli.options import EndpointUrl, Profile, Region

_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
_Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue's name, URL or ARN.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the subcommands to the command."""
    app.command()(queues)
    app.command()(peek)
    app.command()(receive)
    app.command()(redrive)
    app.command()(purge)


def queues(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only queues whose name begins so.")
    ] = "",
    json: _Json = False,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """List queues: how much is visible, in flight and delayed, and where dead letters go."""
    from pumphouse.cli.queue_tools import Where, run_queues

    return run_queues(Where(endpoint_url, region, profile), prefix, as_json=json)


def peek(
    queue: _Queue,
    number: Annotated[int, typer.Option("--number", "-n", help="How many messages, at most.")] = 10,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Look although it counts as a receive for the redrive policy."
        ),
    ] = False,
    json: _Json = False,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Look at messages, which stay in the queue.

    On SQS a look is a receive: it raises each message's receive count by one, and on a FIFO queue
    holds up its group for a moment. On `pumphouse serve` it costs nothing.
    """
    from pumphouse.cli.queue_tools import Where, run_peek

    where = Where(endpoint_url, region, profile)
    return run_peek(where, queue, number, force=force, as_json=json)


def receive(
    queue: _Queue,
    number: Annotated[int, typer.Option("--number", "-n", help="How many messages, at most.")] = 10,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete each message once its line is written.")
    ] = False,
    wait: Annotated[
        int,
        typer.Option("--wait", metavar="SECONDS", help="How long to wait for messages, 0 to 20."),
    ] = 1,
    visibility_timeout: Annotated[
        int | None,
        typer.Option(
            "--visibility-timeout",
            metavar="SECONDS",
            help="How long they stay hidden; as the queue says where not given.",
        ),
    ] = None,
    json: _Json = False,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Receive messages and print them; without --delete they come again.

    Each is a line of JSON, but on a terminal, where they are shown as `peek` shows them; there
    --json and --delete print JSON as well.
    """
    from pumphouse.cli.queue_tools import Where, run_receive

    return run_receive(
        Where(endpoint_url, region, profile),
        queue,
        number,
        delete=delete,
        wait=wait,
        visibility_timeout=visibility_timeout,
        as_json=json,
    )


def redrive(
    queue: Annotated[
        str,
        typer.Argument(
            metavar="DLQ", help="The dead-letter queue: name, URL or ARN.", show_default=False
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="QUEUE", help="Where to; to where each message came from if not given."
        ),
    ] = None,
    filter: Annotated[  # noqa: A002 - it is the option's name
        list[str] | None,
        typer.Option(
            "--filter",
            "-f",
            metavar="CONDITION",
            help="Only such messages: reason~Timeout, attr.tenant=acme, body.order.id=5. With "
            "= != ~ !~; may be repeated, and then all must hold.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Move nothing; say what would be moved.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="At most so many a second.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", help="At most so many in all.")
    ] = None,
    task: Annotated[
        bool | None,
        typer.Option(
            "--task/--no-task",
            help="Insist on SQS's message move task, or do without it; taken where it can be if "
            "neither is given.",
            show_default=False,
        ),
    ] = None,
    json: _Json = False,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Move dead letters back to where they came from, or to another queue. Ctrl-C is safe."""
    from pumphouse.cli.queue_tools import Where, run_redrive

    return run_redrive(
        Where(endpoint_url, region, profile),
        queue,
        to=to,
        filters=filter or [],
        dry_run=dry_run,
        rate=rate,
        most=most,
        task=task,
        as_json=json,
    )


def purge(
    queue: _Queue,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: _Json = False,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Delete all messages of a queue, for good. It asks first."""
    from pumphouse.cli.queue_tools import Where, run_purge

    return run_purge(Where(endpoint_url, region, profile), queue, yes=yes, as_json=json)
