"""Attributes, tags, permissions and lists of queues: the handlers of what changes no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pumphouse.protocol.operations import Operation

HANDLERS: dict[type[Operation[Any]], Callable[[Any, Any], Any]] = {}
"""The handler of each operation: it takes the scope and the operation."""
