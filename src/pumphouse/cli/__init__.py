"""The command `pumphouse`, and how it ends when something goes wrong.

What goes wrong on purpose is one line on standard error and no traceback. The exit code is 2 for a
command that can't be carried out as it was written (`UsageError`, unknown options), 1 for any other
`PumphouseError` and for a fault of the operating system (a full disk), 130 for Ctrl-C, and 141 when
whoever reads the output has gone; those of `run`, `send` and `replay` are finer (`exit_codes.py`).
A traceback is a bug in pumphouse, or in a service that is run.

The subcommands are in `command.py`, which is imported with the first command: the processes of
`pumphouse run --workers` are in this package as well, and need none of it.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from typing import TYPE_CHECKING

from pumphouse.cli.exit_codes import FAILED, INTERRUPTED, OK, PIPE_CLOSED, WRONG_USAGE
from pumphouse.errors import PumphouseError, UsageError
from pumphouse.way_out import own_process

if TYPE_CHECKING:
    import click


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """As JSON escapes it, so that what is JSON stays so in any locale."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("pumphouse", _escaped)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and end the process with its exit code. The console script `pumphouse`."""
    own_process()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="pumphouse")  # what the locale can't write is escaped
    sys.exit(run_command(arguments))


def run_command(arguments: list[str] | None = None) -> int:
    """Run the command; whatever it raises on purpose becomes a line and an exit code. A Ctrl-C
    while its modules are imported does as well."""
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return code
    except UsageError as error:
        say(str(error))
        return WRONG_USAGE
    except PumphouseError as error:
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        say("interrupted")
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
        say(": ".join(filter(None, (error.strerror or str(error), error.filename))))
        _close_output()
        return FAILED


def _run(arguments: list[str]) -> int:
    import click

    from pumphouse.cli.command import command

    try:
        with command.make_context("pumphouse", list(arguments)) as context:
            return command.invoke(context) or OK
    except click.exceptions.Exit as end:  # of --help and --version
        return end.exit_code
    except click.ClickException as error:
        return _explain_command_line(error)


def _explain_command_line(error: click.ClickException) -> int:
    from click.exceptions import NoArgsIsHelpError

    context = getattr(error, "ctx", None)
    if isinstance(error, NoArgsIsHelpError):
        print(error.format_message())
        return WRONG_USAGE
    path = context.command_path if context is not None else "pumphouse"
    text = " ".join(error.format_message().split())
    say(f"{text.rstrip('.')} (`{path} --help` lists what there is)")
    return error.exit_code


def say(text: str) -> None:
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
