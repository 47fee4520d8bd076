"""The command lines of `pumphouse check` and `pumphouse asyncapi`: options and their help."""

from __future__ import annotations

from typing import Annotated

import typer

from pumphouse.cli.options import EndpointUrl, Profile, Region

_Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="The app.")]


def check_app(
    target: _Target,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
    profile: Profile = None,
    local: Annotated[
        bool, typer.Option("--local", help="Check on SQS in memory, with the queues it names.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Findings as JSON, for programs.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings count as errors do, in the exit code.")
    ] = False,
    permissions: Annotated[
        bool,
        typer.Option(
            "--permissions", help="Print the IAM policy that it needs, and check nothing."
        ),
    ] = False,
    arns: Annotated[
        bool, typer.Option("--arns", help="With --permissions: look its queues' ARNs and keys up.")
    ] = False,
) -> int:
    """Look at an app's queues and topics, and say what is wrong. Changes nothing."""
    from pumphouse.cli.check import Options, run

    return run(
        Options(target, endpoint_url, region, profile, local, as_json, strict, permissions, arns)
    )


def asyncapi(
    target: _Target,
    format: Annotated[  # noqa: A002 - it is the option's name
        str | None,
        typer.Option(
            "--format", "-f", metavar="json|yaml", help="By default what the file's name says."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Standard output where not given."),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="The app's name where not given.")
    ] = None,
    version: Annotated[
        str, typer.Option("--version", metavar="TEXT", help="The version of the service.")
    ] = "0.1.0",
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT")] = None,
    endpoint_url: EndpointUrl = None,
    region: Region = None,
) -> int:
    """Write the AsyncAPI document of an app: what it reads, what it sends, and what is in it."""
    from pumphouse.cli.asyncapi import Options, run

    return run(Options(target, format, output, title, version, description, endpoint_url, region))
