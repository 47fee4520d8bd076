"""Middleware that comes with pumphouse: logging, a time limit, and idempotency.

What a middleware is, and how it is called, is in `pumphouse.subscriber.chain`.
"""

from __future__ import annotations

from pumphouse.middleware.idempotency import DuplicateSkipped, Idempotency, KeyBusy
from pumphouse.middleware.json_lines import JsonFormatter, json_logging
from pumphouse.middleware.logs import Logging, MessageContext
from pumphouse.middleware.sqlite_store import SqliteStore
from pumphouse.middleware.stores import Begun, IdempotencyStore, MemoryStore
from pumphouse.middleware.time_limit import TimeLimit
from pumphouse.subscriber.chain import CallNext, CallNextBatch, Middleware, Surroundings

__all__ = [
    "Begun",
    "CallNext",
    "CallNextBatch",
    "DuplicateSkipped",
    "Idempotency",
    "IdempotencyStore",
    "JsonFormatter",
    "KeyBusy",
    "Logging",
    "MemoryStore",
    "MessageContext",
    "Middleware",
    "SqliteStore",
    "Surroundings",
    "TimeLimit",
    "json_logging",
]
