"""Options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

group_by = click.option(
    "--group-by",
    "-g",
    metavar="KEY",
    help="The key whose value is an event's group; dots lead into objects.",
)
on_bad_line = click.option(
    "--on-bad-line", default="stop", metavar="skip|stop", help="What a malformed line does."
)
endpoint_url = click.option(
    "--endpoint-url", metavar="URL", help="Where SQS is; AWS where not given."
)
region = click.option("--region", metavar="REGION", help="AWS's region.")
profile = click.option("--profile", metavar="NAME", help="A profile of AWS's configuration.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def events_from(default: str | None) -> Callable[[Function], Function]:
    return click.option(
        "--input",
        "-i",
        default=default,
        metavar="FILE",
        help="Events, one JSON object a line; - is stdin.",
    )


def where(function: Function) -> Function:
    """`--endpoint-url`, `--region` and `--profile`."""
    return endpoint_url(region(profile(function)))
