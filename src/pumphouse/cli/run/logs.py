"""Where log records of `pumphouse run` go: to standard error, as text or as one JSON object a line,
with the worker's number where there are several."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pumphouse.middleware import JsonFormatter
from pumphouse.middleware.logs import MessageContext


def formatter(log_format: str, worker: int | None = None) -> logging.Formatter:
    """The formatter for `--log-format`."""
    if log_format == "json":
        return JsonFormatter(**({} if worker is None else {"worker": worker}))
    who = "" if worker is None else f" [{worker}]"
    return logging.Formatter(f"%(asctime)s %(levelname)s{who} %(name)s: %(message)s")


def set_up(level: int, formatter: logging.Formatter) -> None:
    """Send all records from `level` on to standard error. A service may set up its own later."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(MessageContext())  # which message a record is about, for JSON
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level > logging.DEBUG:
        logging.getLogger("botocore").setLevel(logging.WARNING)  # where it found credentials


@contextmanager
def through(handler: logging.Handler) -> Iterator[None]:
    """Let what would be written to the terminal go through this handler while the body runs, as it
    would have been written; other handlers that the service has set up go on."""
    root = logging.getLogger()
    before = list(root.handlers)
    replaced = [each for each in before if _writes_to_terminal(each)]
    if replaced:
        last = replaced[-1]
        handler.setFormatter(last.formatter)
        handler.setLevel(last.level)
        handler.filters = list(last.filters)
        root.handlers = [*(each for each in before if each not in replaced), handler]
    try:
        yield
    finally:
        if replaced:
            root.handlers = [
                *(each for each in root.handlers if each is not handler and each not in replaced),
                *replaced,
            ]


def _writes_to_terminal(handler: logging.Handler) -> bool:
    stream: Any = getattr(handler, "stream", None)
    return bool(stream is not None and hasattr(stream, "isatty") and stream.isatty())
