"""Where log records of `pumphouse run` go: to standard error, as text or as one JSON object a line,
with the worker's number where there are several."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what was given as `extra`, and the
    traceback where there is one."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            found["worker"] = self._worker
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in found:
                found[name] = value
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(found, enc_hook=str).decode()


def formatter(log_format: str, worker: int | None = None) -> logging.Formatter:
    """The formatter for `--log-format`."""
    if log_format == "json":
        return JsonFormatter(worker)
    who = "" if worker is None else f" [{worker}]"
    return logging.Formatter(f"%(asctime)s %(levelname)s{who} %(name)s: %(message)s")


def set_up(
    level: int, formatter: logging.Formatter, handler: logging.Handler | None = None
) -> None:
    """Send all records from `level` on to one handler, standard error where none is given."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    if level > logging.DEBUG:
        logging.getLogger("botocore").setLevel(logging.WARNING)  # where it found credentials
