"""`pumphouse serve` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from select import select

READY_SECONDS = 60


@contextmanager
def serve() -> Iterator[str]:
    """`pumphouse serve` on a free port of 127.0.0.1, as a process of its own."""
    command = [sys.executable, "-m", "pumphouse", "serve", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert select([process.stdout], [], [], READY_SECONDS)[0], (
            "it does not say that it is ready"
        )
        banner = process.stdout.readline()
        yield next(word for word in banner.split() if word.startswith("http://"))
    finally:
        process.terminate()
        process.communicate(timeout=30)
