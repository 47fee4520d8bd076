"""What the wire client lets be seen: small frozen values for `pumphouse.hooks.Hooks`.

All but the credentials' events are emitted by `client.py` on the loop of the call; those come from
the thread that loaded them. No event holds a body, a header or a secret.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A request is about to be written: `attempt` counts from 1 within its call."""

    action: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RequestFinished:
    """An attempt ended: with `status` of an answer (0 for none) and the error that it means."""

    action: str
    attempt: int
    status: int
    seconds: float
    error: Exception | None


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """The call is tried again after `delay_seconds`; `error` is why."""

    action: str
    attempt: int
    delay_seconds: float
    error: Exception


@dataclass(frozen=True, slots=True)
class ClockCorrected:
    """AWS's clock differs from this machine's by `skew_seconds`; signatures follow AWS's."""

    skew_seconds: float


@dataclass(frozen=True, slots=True)
class CredentialsLoaded:
    """Credentials were loaded or renewed; `expires_at` is in seconds since the epoch, or None."""

    expires_at: float | None


@dataclass(frozen=True, slots=True)
class CredentialsFailed:
    """Loading credentials failed for the `failures`-th time in a row; the next try is due in
    `retry_seconds`. `usable` is whether the old ones are still valid."""

    error: Exception
    failures: int
    retry_seconds: float
    usable: bool
