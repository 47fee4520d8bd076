"""The events that come along with the demo."""

from __future__ import annotations

from importlib import resources

from pumphouse.jsonl import Events, read


def sample(group_by: str | None = None) -> Events:
    """Forty-eight events of a waterworks, in six groups."""
    with resources.files("pumphouse.demo").joinpath("sample.jsonl").open("rb") as stream:
        return read(stream, "the sample", group_by)
