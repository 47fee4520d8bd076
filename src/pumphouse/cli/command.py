"""The command line of `pumphouse`: its subcommands, their options and their help.

A subcommand is a function in `cli/<name>.py`. It is registered here by a thin signature that
imports it when it runs, so that `pumphouse --help` stays quick. It returns its exit code or raises.
"""

from __future__ import annotations

from typing import Any

import click

from pumphouse import __version__
from pumphouse.cli.describing import asyncapi, check_app
from pumphouse.cli.options import events_from, group_by, on_bad_line, refuse_empty, where
from pumphouse.cli.queue_commands import QUEUE_COMMANDS
from pumphouse.cli.running import run_app


@click.group(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, message="pumphouse %(version)s", help="Print the version.")
def command() -> None:
    """Amazon SQS and SNS: publish, consume, serve and test."""


@click.command(short_help="Send events to a FIFO queue in process, and handle them.")
@events_from(None)
@group_by
@on_bad_line
@click.option("--fan-out", is_flag=True, help="Publish them to a topic with three filtered queues.")
def demo(
    input: str | None,  # noqa: A002 - it is the option's name
    group_by: str | None,
    on_bad_line: str,
    fan_out: bool,
) -> int:
    """Send events to a FIFO queue and handle them in order, on an in-process account."""
    from pumphouse.cli.demo import run, run_fan_out

    return (run_fan_out if fan_out else run)(input, group_by, on_bad_line)


_OF_THE_PAIR: dict[str, Any] = {"default": "", "show_default": False, "show_envvar": True}


@click.command()
@click.option("--host", default="127.0.0.1", metavar="HOST", help="The address to listen on.")
@click.option(
    "--port", type=int, default=9324, metavar="PORT", help="The port; 0 takes any that is free."
)
@click.option(
    "--queue",
    "-q",
    "queues",
    multiple=True,
    metavar="NAME",
    help="A queue to make; NAME.fifo is a FIFO queue, and NAME=DEADLETTERS:3 gives one a "
    "dead-letter queue. May be repeated.",
)
@click.option(
    "--region", default="us-east-1", metavar="REGION", help="The region of requests that name none."
)
@click.option(
    "--account-id", default="000000000000", metavar="ID", help="The account id of its queues."
)
@click.option(
    "--require-auth", is_flag=True, help="Carry out only what is signed with the key pair."
)
@click.option("--access-key-id", envvar="PUMPHOUSE_ACCESS_KEY_ID", **_OF_THE_PAIR)
@click.option("--secret-access-key", envvar="PUMPHOUSE_SECRET_ACCESS_KEY", **_OF_THE_PAIR)
@click.option("--session-token", envvar="PUMPHOUSE_SESSION_TOKEN", **_OF_THE_PAIR)
def serve(**given: Any) -> int:
    """Serve SQS and SNS over HTTP from memory, for any AWS SDK."""
    from pumphouse.cli.serve import Options, run

    return run(Options(**given))


@click.command(short_help="Send events to a queue, confirmed and batched.")
@click.argument("queue", metavar="QUEUE")
@events_from("-")
@group_by
@click.option(
    "--attribute",
    "-a",
    "attributes",
    multiple=True,
    metavar="K=V",
    help="A message attribute. May be repeated.",
)
@on_bad_line
@click.option(
    "--refused",
    default="refused.jsonl",
    metavar="FILE",
    help="Where events go that were not stored, and why.",
)
@where
def send(**given: Any) -> int:
    """Send events to a queue, confirmed and batched, in order within each group.

    QUEUE is a queue's name, URL or ARN, or a topic's ARN. On a FIFO queue a file that is sent again
    within five minutes stores nothing twice, unless it was changed; standard input is always new.
    """
    from pumphouse.cli.send import Options, run

    return run(Options(**given))


@click.command()
@click.argument("path", metavar="PATH")
@click.option("--queue", "-q", metavar="QUEUE", help="Send to this queue, not their own.")
@click.option(
    "--kind",
    "-k",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only letters that failed so: refused, config_errors, too_large, throttled, transient, "
    "unreachable, unknown, not_sent or failed. May be repeated.",
)
@click.option(
    "--unknown",
    is_flag=True,
    help="Also send those that may be in the queue already, and could double.",
)
@click.option(
    "--replay-id", metavar="ID", help="The replay id of all of them; made up for each if not."
)
@where
def replay(**given: Any) -> int:
    """Send dead letters again. What fails again stays where it is.

    PATH is a directory of dead letters, or one file.
    """
    from pumphouse.cli.replay import Options, run

    return run(Options(**given))


for _each in (run_app, check_app, asyncapi, demo, serve, send, replay, *QUEUE_COMMANDS):
    command.add_command(refuse_empty(_each))
