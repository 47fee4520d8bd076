"""The end of the road: who is told of a message that failed for good.

A target is a callback, another queue, or a directory of JSON lines. `DeadLetter` is what each gets.
Reading a directory back and sending it again is `replay.py`'s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from pumphouse.errors import PumphouseError
from pumphouse.outgoing import Outgoing

DeadLetterTarget = Callable[["Outgoing", PumphouseError], Awaitable[None] | None] | str | Path
