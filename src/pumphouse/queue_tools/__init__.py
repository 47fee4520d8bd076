"""What people do with queues by hand: look at them, read them, move dead letters, purge.

Each tool is a function over any backend; the commands of `pumphouse.cli` only print.
"""

from __future__ import annotations

from pumphouse.queue_tools.overview import QueueOverview, overview
from pumphouse.queue_tools.reading import Peeked, peek, receive, shown
from pumphouse.queue_tools.redrive import redrive
from pumphouse.queue_tools.results import Redriven
from pumphouse.queue_tools.selection import Condition, parse_condition

__all__ = [
    "Condition",
    "Peeked",
    "QueueOverview",
    "Redriven",
    "overview",
    "parse_condition",
    "peek",
    "receive",
    "redrive",
    "shown",
]
