"""A message as confirmation knows it: what was sent, measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from pumphouse.content import measure
from pumphouse.protocol.operations import Attributes


@dataclass
class Sent:
    """A `pumphouse.confirmation.Sent`."""

    body: str
    attributes: Attributes | None = None
    system_attributes: Attributes | None = None
    deduplication_id: str | None = None
    tries: int = 1
    md5_of_body: str = field(init=False)
    md5_of_attributes: str | None = field(init=False)

    def __post_init__(self) -> None:
        _, self.md5_of_body, self.md5_of_attributes = measure(self.body, self.attributes)
