"""What a redrive came to: numbers, and the first of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

INTERRUPTED = "interrupted"
LISTED = 100
"""So many message ids are kept of each kind of trouble; the numbers count all."""


@dataclass(slots=True)
class Trouble:
    """Messages that something went wrong with: how many, and the first of them with reasons."""

    count: int = 0
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, message_id: str, reason: str) -> None:
        self.count += 1
        if len(self.first) < LISTED:
            self.first.append((message_id, reason))


@dataclass(slots=True)
class Redriven:
    """The result of a redrive, and its progress while it runs.

    - `way`: SQS's message move task, or the own move of `move.py`.
    - `moved`: confirmed in the destination and deleted from the source. In a dry run, how many
      would be; None where a dry run knows only `to_move`.
    - `to_move`: how many there were at the start, as SQS says, approximately.
    - `left_out`: seen, and not meant by the conditions.
    - `failed`: not moved, and still in the source. `unknown`: the answer to their send was lost, so
      they are in the source and may be in the destination too. `undeleted`: moved, and their delete
      was not confirmed.
    - `hidden`: in flight in the source, as SQS says, before and after: someone else holds them, or
      a run that was broken off did. `unseen`: visible at the end, as SQS says, and not seen: on a
      FIFO queue what is behind ten messages of its group that stay, or one that could not be moved.
    - `ended`: why it ended before everything was looked at, or ""; and then `left`: how many are
      left in the source, as SQS says.
    - `no_task`: why SQS's message move task, which could have been taken, was not, or "".
    """

    way: Literal["task", "move"]
    destinations: dict[str, int] = field(default_factory=dict)
    to_move: int = 0
    moved: int = 0
    left_out: int = 0
    failed: Trouble = field(default_factory=Trouble)
    unknown: Trouble = field(default_factory=Trouble)
    undeleted: Trouble = field(default_factory=Trouble)
    hidden: int = 0
    unseen: int = 0
    ended: str = ""
    left: int = 0
    no_task: str = ""
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether everything that was meant is moved; a dry run may have seen only a part."""
        return not (
            (self.unseen and not self.dry_run)
            or self.failed.count
            or self.unknown.count
            or self.undeleted.count
            or self.hidden
            or self.ended
        )
