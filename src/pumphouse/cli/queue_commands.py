"""The subcommands for queues, as the command line knows them; what they do is `queue_tools.py`'s.

Imported with the command itself, so it imports nothing that takes time.
"""

from __future__ import annotations

import click

from pumphouse.cli.options import DEFAULT_NUMBER, RATE, as_json, where

_queue = click.argument("queue", metavar="QUEUE")
_number = click.option(
    "--number",
    "-n",
    type=int,
    default=DEFAULT_NUMBER,
    metavar="N",
    help="How many messages, at most.",
)


@click.command(short_help="List queues: how much waits, is in flight, is delayed.")
@click.argument("prefix", default="", metavar="[PREFIX]")
@as_json
@where
def queues(
    prefix: str, as_json: bool, endpoint_url: str | None, region: str | None, profile: str | None
) -> int:
    """List queues: how much is visible, in flight and delayed, and where dead letters go.

    With PREFIX, only queues whose name begins so.
    """
    from pumphouse.cli.queue_tools import Where, run_queues

    return run_queues(Where(endpoint_url, region, profile), prefix, as_json=as_json)


@click.command()
@_queue
@_number
@click.option(
    "--force", is_flag=True, help="Look although it counts as a receive for the redrive policy."
)
@as_json
@where
def peek(
    queue: str,
    number: int,
    force: bool,
    as_json: bool,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> int:
    """Look at messages, which stay in the queue. QUEUE is a queue's name, URL or ARN.

    On SQS a look is a receive: it raises each message's receive count by one, and on a FIFO queue
    holds up its group for a moment. On `pumphouse serve` it costs nothing.
    """
    from pumphouse.cli.queue_tools import Where, run_peek

    where = Where(endpoint_url, region, profile)
    return run_peek(where, queue, number, force=force, as_json=as_json)


@click.command(short_help="Receive messages and print them.")
@_queue
@_number
@click.option("--delete", is_flag=True, help="Delete each message once its line is written.")
@click.option(
    "--wait",
    type=int,
    default=1,
    metavar="SECONDS",
    help="How long to wait for messages, 0 to 20.",
)
@click.option(
    "--visibility-timeout",
    type=int,
    metavar="SECONDS",
    help="How long they stay hidden; as the queue says where not given.",
)
@as_json
@where
def receive(
    queue: str,
    number: int,
    delete: bool,
    wait: int,
    visibility_timeout: int | None,
    as_json: bool,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> int:
    """Receive messages and print them; without --delete they come again. QUEUE is a queue's name,
    URL or ARN.

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
        as_json=as_json,
    )


@click.command(short_help="Move dead letters back, or to another queue.")
@click.argument("queue", metavar="DLQ")
@click.option(
    "--to", metavar="QUEUE", help="Where to; to where each message came from if not given."
)
@click.option(
    "--filter",
    "-f",
    "filters",
    multiple=True,
    metavar="CONDITION",
    help="Only such messages: reason~Timeout, attr.tenant=acme, body.order.id=5. With = != ~ !~; "
    "may be repeated, and then all must hold.",
)
@click.option("--dry-run", is_flag=True, help="Move nothing; say what would be moved.")
@click.option("--rate", type=RATE, metavar="N", help="At most so many a second.")
@click.option("--max", "most", type=int, metavar="N", help="At most so many in all.")
@click.option(
    "--task/--no-task",
    default=None,
    help="Insist on SQS's message move task, or do without it; taken where it can be if neither is "
    "given.",
)
@as_json
@where
def redrive(
    queue: str,
    to: str | None,
    filters: tuple[str, ...],
    dry_run: bool,
    rate: float | None,
    most: int | None,
    task: bool | None,
    as_json: bool,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> int:
    """Move dead letters back to where they came from, or to another queue. Ctrl-C is safe.

    DLQ is the dead-letter queue: its name, URL or ARN.
    """
    from pumphouse.cli.queue_tools import Where, run_redrive

    return run_redrive(
        Where(endpoint_url, region, profile),
        queue,
        to=to,
        filters=list(filters),
        dry_run=dry_run,
        rate=rate,
        most=most,
        task=task,
        as_json=as_json,
    )


@click.command()
@_queue
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@as_json
@where
def purge(
    queue: str,
    yes: bool,
    as_json: bool,
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
) -> int:
    """Delete all messages of a queue, for good. It asks first. QUEUE is a queue's name, URL or
    ARN."""
    from pumphouse.cli.queue_tools import Where, run_purge

    return run_purge(Where(endpoint_url, region, profile), queue, yes=yes, as_json=as_json)


QUEUE_COMMANDS = (queues, peek, receive, redrive, purge)
