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
from typing import Annotated

import typer

from pumphouse import __version__
from pumphouse.cli import queue_commands
from pumphouse.cli.describing import asyncapi, check_app
from pumphouse.cli.exit_codes import FAILED, INTERRUPTED, OK, PIPE_CLOSED, WRONG_USAGE
from pumphouse.cli.options import (
    EndpointUrl,
    GroupBy,
    Input,
    OnBadLine,
    OptionalInput,
    Profile,
    Region,
)
from pumphouse.cli.run_command import run_app
from pumphouse.errors import PumphouseError, UsageError

app = typer.Typer(
    name="pumphouse",
    help="Amazon SQS and SNS: publish, consume, serve and test.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# What typer raises for a command line that it can't read; it exports only the subclasses.
_CommandLineError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"pumphouse {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Amazon SQS and SNS: publish, consume, serve and test."""


app.command(name="run")(run_app)
app.command(name="check")(check_app)
app.command(name="asyncapi")(asyncapi)


@app.command()
def demo(
    input: OptionalInput = None,  # noqa: A002 - it is the option's name
    group_by: GroupBy = None,
    on_bad_line: OnBadLine = "stop",
    fan_out: Annotated[
        bool,
        typer.Option("--fan-out", help="Publish them to a topic with three filtered queues."),
    ] = False,
) -> int:
    """Send events to a FIFO queue and handle them in order, on an in-process account."""
    from pumphouse.cli.demo import run, run_fan_out

    return (run_fan_out if fan_out else run)(input, group_by, on_bad_line)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.")] = 9324,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="A queue to make; NAME.fifo is a FIFO queue, and NAME=DEADLETTERS:3 gives one a "
            "dead-letter queue. May be repeated.",
        ),
    ] = None,
    region: Annotated[
        str, typer.Option(help="The region of requests that name none.")
    ] = "us-east-1",
    account_id: Annotated[str, typer.Option(help="The account id of its queues.")] = "000000000000",
    require_auth: Annotated[
        bool,
        typer.Option("--require-auth", help="Carry out only what is signed with the key pair."),
    ] = False,
    access_key_id: Annotated[
        str, typer.Option(envvar="PUMPHOUSE_ACCESS_KEY_ID", show_default=False)
    ] = "",
    secret_access_key: Annotated[
        str, typer.Option(envvar="PUMPHOUSE_SECRET_ACCESS_KEY", show_default=False)
    ] = "",
    session_token: Annotated[
        str, typer.Option(envvar="PUMPHOUSE_SESSION_TOKEN", show_default=False)
    ] = "",
) -> int:
    """Serve SQS and SNS over HTTP from memory, for any AWS SDK."""
    from pumphouse.cli.serve import Options, run

    return run(
        Options(
            host,
            port,
            queue or [],
            region,
            account_id,
            require_auth,
            access_key_id,
            secret_access_key,
            session_token,
        )
    )


@app.command()
def send(
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", help="A queue's name, URL or ARN, or a topic's ARN."),
    ],
    input: Input = "-",  # noqa: A002 - it is the option's name
    group_by: GroupBy = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute", "-a", metavar="K=V", help="A message attribute. May be repeated."
        ),
    ] = None,
    on_bad_line: OnBadLine = "stop",
    refused: Annotated[
        str,
        typer.Option(
            "--refused", metavar="FILE", help="Where events go that were not stored, and why."
        ),
    ] = "refused.jsonl",
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Send events to a queue, confirmed and batched, in order within each group."""
    from pumphouse.cli.send import Options, run

    return run(
        Options(
            queue,
            input,
            group_by,
            attribute or [],
            on_bad_line,
            refused,
            endpoint_url,
            region,
            profile,
        )
    )


@app.command()
def replay(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A directory of dead letters, or one file.")
    ],
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="Send to this queue, not their own."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", "-k", metavar="KIND", help="Only letters that failed so. May be repeated."
        ),
    ] = None,
    unknown: Annotated[
        bool,
        typer.Option(
            "--unknown", help="Also send those that may be in the queue already, and could double."
        ),
    ] = False,
    replay_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The replay id of all of them; made up for each if not."),
    ] = None,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
) -> int:
    """Send dead letters again. What fails again stays where it is."""
    from pumphouse.cli.replay import Options, run

    return run(Options(path, queue, kind or [], unknown, replay_id, endpoint_url, region, profile))


queue_commands.register(app)


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
        code = app(arguments, prog_name="pumphouse", standalone_mode=False) or OK
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except _CommandLineError as error:
        return _explain_command_line(error)
    except UsageError as error:
        _say(str(error))
        return WRONG_USAGE
    except PumphouseError as error:
        _say(str(error))
        return FAILED
    except BrokenPipeError:
        _close_output()
        return PIPE_CLOSED
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich and typer end so, with code 1
            _close_output()
            return PIPE_CLOSED
        raise
    except OSError as error:
        _say(": ".join(filter(None, (error.strerror or str(error), error.filename))))
        _close_output()
        return FAILED
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        _say("interrupted")
    return int(code)


def _explain_command_line(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "pumphouse"
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help() if context is not None else error)
        return WRONG_USAGE
    text = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    _say(f"{text.rstrip('.')} (`{path} --help` lists what there is)")
    return int(getattr(error, "exit_code", WRONG_USAGE))


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
