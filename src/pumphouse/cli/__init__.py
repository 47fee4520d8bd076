"""The command: one module per subcommand, each imported only when its subcommand runs.

A subcommand is a function in `cli/<name>.py`; it is registered here by a thin signature so that
`pumphouse --help` stays quick.
"""

from __future__ import annotations

import typer

app = typer.Typer(
    name="pumphouse",
    help="Amazon SQS and SNS: publish, consume, serve and test.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Amazon SQS and SNS: publish, consume, serve and test."""


def main() -> None:
    """The console script `pumphouse`."""
    app()
