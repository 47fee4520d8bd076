"""Counters of one subscription, for health, metrics and reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """What happened since the start. Messages, but for the requests at the end.

    `acked`, `retried`, `dropped` and `rejected` count outcomes; `released` what was given back
    unrun; `expired` what was dropped unrun because its lease had ended; `deleted` the confirmed
    deletes; `settle_failed` deletes and releases that SQS refused or never confirmed.
    """

    received: int = 0
    received_again: int = 0
    started: int = 0
    acked: int = 0
    retried: int = 0
    retried_in_place: int = 0
    dropped: int = 0
    rejected: int = 0
    undecodable: int = 0
    dead_lettered: int = 0
    released: int = 0
    expired: int = 0
    stopped: int = 0
    deleted: int = 0
    leases_lost: int = 0
    settle_failed: int = 0
    stalls: int = 0
