"""Options that several commands have, each declared once."""

from __future__ import annotations

from typing import Annotated

import typer

_INPUT = typer.Option(
    "--input", "-i", metavar="FILE", help="Events, one JSON object a line; - is stdin."
)
Input = Annotated[str, _INPUT]
OptionalInput = Annotated[str | None, _INPUT]
GroupBy = Annotated[
    str | None,
    typer.Option(
        "--group-by",
        "-g",
        metavar="KEY",
        help="The key whose value is an event's group; dots lead into objects.",
    ),
]
OnBadLine = Annotated[
    str, typer.Option("--on-bad-line", metavar="skip|stop", help="What a malformed line does.")
]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="Where SQS is; AWS where not given."),
]
Region = Annotated[str | None, typer.Option("--region", metavar="REGION", help="AWS's region.")]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="A profile of AWS's configuration.")
]
