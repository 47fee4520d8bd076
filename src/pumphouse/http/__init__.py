"""SQS over HTTP: the wire client."""

from __future__ import annotations

from typing import Any

from pumphouse.http.client import HttpBackend
from pumphouse.protocol.sigv4 import Keys

__all__ = ["HttpBackend", "Keys", "connect"]


def connect(**options: Any) -> HttpBackend:
    """A backend over HTTP, for AWS or an endpoint that speaks SQS; nothing is sent yet.

    Takes what `HttpBackend` takes: `region`, `endpoint_url`, `profile`, `credentials`, and so on.
    """
    return HttpBackend(**options)
