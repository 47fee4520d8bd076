"""The command `pumphouse`: its subcommands, and how it ends when something goes wrong.

A subcommand is a function in `cli/<name>.py`. It is registered here by a thin signature that
imports it when it runs, so that `pumphouse --help` stays quick. It returns its exit code or raises.

What goes wrong on purpose is one line on standard error and no traceback. The exit code is 2 for a
command that can't be carried out as it was written (`UsageError`, unknown options), 1 for any other
`PumphouseError` and for a fault of the operating system (a full disk), 130 for Ctrl-C, and 141 when
whoever reads the output has gone; those of `run` are finer (`exit_codes.py`). A traceback is a bug
in pumphouse, or in a service that is run.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from typing import Any

import click

from pumphouse import __version__
from pumphouse.cli.describing import asyncapi, check_app
from pumphouse.cli.exit_codes import FAILED, INTERRUPTED, OK, PIPE_CLOSED, WRONG_USAGE
from pumphouse.cli.options import events_from, group_by, on_bad_line, where
from pumphouse.cli.queue_commands import QUEUE_COMMANDS
from pumphouse.cli.run_command import run_app
from pumphouse.errors import PumphouseError, UsageError


@click.group(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, message="pumphouse %(version)s", help="Print the version.")
def command() -> None:
    """Amazon SQS and SNS: publish, consume, serve and test."""


@click.command()
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


@click.command()
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

    QUEUE is a queue's name, URL or ARN, or a topic's ARN.
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
    help="Only letters that failed so. May be repeated.",
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
    command.add_command(_each)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """As JSON escapes it, so that what is JSON stays so in any locale."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("pumphouse", _escaped)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and end the process with its exit code. The console script `pumphouse`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pumphouse")  # what the locale can't write is escaped
    sys.exit(run_command(arguments))


def run_command(arguments: list[str] | None = None) -> int:
    """Run the command; whatever it raises on purpose becomes a line and an exit code."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return code
    except click.ClickException as error:
        return _explain_command_line(error)
    except UsageError as error:
        _say(str(error))
        return WRONG_USAGE
    except PumphouseError as error:
        _say(str(error))
        return FAILED
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return PIPE_CLOSED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich ends so, with code 1
            _close_output()
            return PIPE_CLOSED
        raise
    except OSError as error:
        _say(": ".join(filter(None, (error.strerror or str(error), error.filename))))
        _close_output()
        return FAILED


def _run(arguments: list[str]) -> int:
    try:
        with command.make_context("pumphouse", list(arguments)) as context:
            return command.invoke(context) or OK
    except click.exceptions.Exit as end:  # of --help and --version
        return end.exit_code


def _explain_command_line(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message())
        return WRONG_USAGE
    path = context.command_path if context is not None else "pumphouse"
    text = " ".join(error.format_message().split())
    _say(f"{text.rstrip('.')} (`{path} --help` lists what there is)")
    return error.exit_code


def _say(text: str) -> None:
    """One line on standard error, whatever is in the text."""
    if sys.stderr is not None:
        line = " ".join(text.split())
        clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        sys.stderr.write(f"pumphouse: {clean}\n")


def _close_output() -> None:
    """Point standard output at nothing, so that the interpreter's last flush has nobody to miss."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
