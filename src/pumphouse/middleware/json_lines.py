"""Log records as JSON, one to a line, with everything that was given in `extra`."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from pumphouse.middleware.logs import MessageContext

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {
    "message",
    "asctime",
    "taskName",
}
_OURS = frozenset({"time", "level", "logger", "message", "error", "traceback"})


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: `time` (UTC), `level`, `logger`, `message`, the fields given
    here (`JsonFormatter(service="orders")`), the fields of the record's `extra` that are not None,
    and `error` and `traceback` where there is an exception.

    What is no JSON is written as its `repr`. A field of `extra` that has the name of one of the
    first four gets `_` behind it.
    """

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._fields,
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD and value is not None:
                line[f"{name}_" if name in _OURS else name] = value
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = f"{type(error).__name__}: {error}"
            line["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _encoded(line)


def json_logging(
    level: int | str = logging.INFO, *, stream: TextIO | None = None, **fields: object
) -> logging.Handler:
    """Let the process log JSON lines, to standard error or to `stream`; for a service's start.

    Replaces what the root logger had. Records that are made while a message is handled inside
    `Logging` carry its queue and its ids. `fields` go into every line. Returns the handler.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(**fields))
    handler.addFilter(MessageContext())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return handler


def _time(created: float) -> str:
    when = datetime.fromtimestamp(created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encoded(line: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        plain = {name: _plain(value) for name, value in line.items()}
        return msgspec.json.encode(plain).decode()


def _plain(value: object) -> object:
    """The value, if it is JSON by itself, otherwise its `repr`."""
    try:
        msgspec.json.encode(value, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):
        text = value if isinstance(value, str) else repr(value)
        return text.encode("utf-8", "backslashreplace").decode()
    return (
        value if isinstance(value, str | int | float) else msgspec.to_builtins(value, enc_hook=repr)
    )
