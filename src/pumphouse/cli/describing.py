"""The command lines of `pumphouse check` and `pumphouse asyncapi`: options and their help."""

from __future__ import annotations

from typing import Any

import click

from pumphouse.cli.options import endpoint_url, region, where


@click.command(name="check")
@click.argument("target", metavar="MODULE:APP")
@where
@click.option("--local", is_flag=True, help="Check on SQS in memory, with the queues it names.")
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON, for programs.")
@click.option("--strict", is_flag=True, help="Warnings count as errors do, in the exit code.")
@click.option(
    "--permissions", is_flag=True, help="Print the IAM policy that it needs, and check nothing."
)
@click.option("--arns", is_flag=True, help="With --permissions: look its queues' ARNs and keys up.")
def check_app(**given: Any) -> int:
    """Look at an app's queues and topics, and say what is wrong. Changes nothing."""
    from pumphouse.cli.check import Options, run

    return run(Options(**given))


@click.command(name="asyncapi", short_help="Write the AsyncAPI document of an app.")
@click.argument("target", metavar="MODULE:APP")
@click.option("--format", "-f", metavar="json|yaml", help="By default what the file's name says.")
@click.option("--output", "-o", metavar="FILE", help="Standard output where not given.")
@click.option("--title", metavar="TEXT", help="The app's name where not given.")
@click.option("--version", default="0.1.0", metavar="TEXT", help="The version of the service.")
@click.option("--description", metavar="TEXT", help="What the service does.")
@endpoint_url
@region
def asyncapi(**given: Any) -> int:
    """Write the AsyncAPI document of an app: what it reads, what it sends, and what is in it."""
    from pumphouse.cli.asyncapi import Options, run

    return run(Options(**given))
