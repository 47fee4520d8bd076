"""Options that several commands have, each declared once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


class _Finite(click.FloatRange):
    """A number in a range: neither `nan`, which is in every one, nor `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be counted to.", param, ctx)
        return number


class _Said(click.types.StringParamType):
    """A text that says something."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = super().convert(value, param, ctx)
        if not text.strip():
            self.fail("it is empty; is it a variable of the shell that is not set?", param, ctx)
        return text


DEFAULT_NUMBER = 10
"""How many messages are shown where nobody says."""
SECONDS = _Finite(min=0)
RATE = _Finite(min=0, min_open=True)


def refuse_empty(command: click.Command) -> click.Command:
    """Have every text of a command say something, but for those that are empty by default."""
    for parameter in command.params:
        if parameter.type is click.STRING and parameter.default != "":
            parameter.type = _Said()
    return command


group_by = click.option(
    "--group-by",
    "-g",
    metavar="KEY",
    help="The key whose value is an event's group; dots lead into objects. Without it a usual key "
    "that every event has (customer, user, …), or all are one group.",
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
