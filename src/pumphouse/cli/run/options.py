"""What the command line of `pumphouse run` said, and what of it goes together."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field

from pumphouse.errors import UsageError
from pumphouse.event_loop import LoopName, factory

MAX_WORKERS = 256


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `pumphouse run`, of which the worker processes get a copy as JSON.

    `local_url` is set by a parent process that serves the in-process account to its worker.
    """

    target: str
    endpoint_url: str | None = None
    region: str | None = None
    local: bool = False
    send: list[str] = field(default_factory=list)
    group_by: str | None = None
    until_empty: bool = False
    serve_port: int | None = None
    drain_seconds: float | None = None
    workers: int | None = None
    stop_seconds: float | None = None
    reload: bool = False
    plain: bool = False
    waiting_every: float = 5.0
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    log_level: str = "info"
    log_format: str = "text"
    loop: LoopName = "auto"
    local_url: str | None = None

    @property
    def supervised(self) -> bool:
        """Whether the app runs in processes of its own."""
        return self.workers is not None or self.reload

    @property
    def level(self) -> int:
        """The log level as a number. Raises `UsageError` for a name that is none."""
        level = logging.getLevelNamesMapping().get(self.log_level.upper())
        if level is None:
            raise UsageError(
                f"--log-level is debug, info, warning or error, not {self.log_level!r}"
            )
        return level

    def check(self) -> None:
        """Raises `UsageError` for what can't be, or does not go together."""
        _ = self.level
        factory(self.loop)
        if self.log_format not in ("text", "json"):
            raise UsageError(f"--log-format is text or json, not {self.log_format!r}")
        if self.local and (self.endpoint_url or self.region):
            raise UsageError("--local runs on an account in memory; it has no endpoint, no region")
        if not self.local:
            for given, option in (
                (bool(self.send), "--send"),
                (self.until_empty, "--until-empty"),
                (self.serve_port is not None, "--serve-port"),
            ):
                if given:
                    raise UsageError(f"{option} is for the account of --local, which is not given")
        if self.group_by is not None and not self.send:
            raise UsageError("--group-by says how the lines of --send are grouped; none is given")
        if self.workers is not None:
            if not 1 <= self.workers <= MAX_WORKERS:
                raise UsageError(f"--workers is 1 to {MAX_WORKERS}, not {self.workers}")
            if self.local:
                raise UsageError(
                    "--workers with --local would give each worker an account of its own; start "
                    "`pumphouse serve`, and run with --endpoint-url"
                )
        if self.supervised and sys.platform == "win32":
            raise UsageError("--workers and --reload need POSIX signals, which Windows has not")
        if self.reload and self.until_empty:
            raise UsageError("--reload waits for the next change, so --until-empty ends nothing")
        if self.stop_seconds is not None and not self.supervised:
            raise UsageError("--stop-seconds is for the processes of --workers or --reload")
        if self.waiting_every and not 1 <= self.waiting_every <= 3_600:
            raise UsageError(
                f"--waiting-every is 1 to 3,600 seconds, or 0, not {self.waiting_every:g}"
            )
        if self.health_host != "127.0.0.1" and self.health_port is None:
            raise UsageError("--health-host is where --health-port listens, which is not given")
