"""Where log records of `pumphouse run` go: to standard error, as text or as one JSON object a line,
with the worker's number where there are several."""

from __future__ import annotations

import logging
import sys

from pumphouse.middleware import JsonFormatter
from pumphouse.middleware.logs import MessageContext


def formatter(log_format: str, worker: int | None = None) -> logging.Formatter:
    """The formatter for `--log-format`."""
    if log_format == "json":
        return JsonFormatter(**({} if worker is None else {"worker": worker}))
    who = "" if worker is None else f" [{worker}]"
    return logging.Formatter(f"%(asctime)s %(levelname)s{who} %(name)s: %(message)s")


def set_up(
    level: int, formatter: logging.Formatter, handler: logging.Handler | None = None
) -> None:
    """Send all records from `level` on to one handler, standard error where none is given."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(MessageContext())  # which message a record is about, for JSON
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level > logging.DEBUG:
        logging.getLogger("botocore").setLevel(logging.WARNING)  # where it found credentials
