"""What a command or a page does to logging in this process ends with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LEVELS = ("", "botocore", "pumphouse")  # of which `pumphouse run` sets some


@contextmanager
def kept_logging() -> Iterator[None]:
    """The root logger's handlers, and levels, are afterwards what they were."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in _LEVELS}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
